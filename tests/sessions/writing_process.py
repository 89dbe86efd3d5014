"""A process that writes a session, for the tests that kill it or run two of it.

Usage: python writing_process.py STORE SESSION NAME COUNT WAIT. It prints the id of each event once
that event is acknowledged.
"""

from __future__ import annotations

import sys

from engine.types import Artifact, Stage
from sessions.events import ArtifactSet, Note
from sessions.store import Store


def main() -> None:
    path, session, name, count, wait = sys.argv[1:]
    store = Store.open(path)
    done = 0
    while done < int(count):
        with store.writer(session, wait=float(wait)) as writer:
            for _ in range(3):
                artifact = Artifact.of(Stage.TARGET, "text", f"{name} {done}\n" * 200)
                body = ArtifactSet(Stage.TARGET, "text", artifact.sha256)
                note, _ = writer.append([Note(f"{name} {done}"), body], [artifact], actor=name)
                print(note.id, flush=True)
                done += 1


if __name__ == "__main__":
    main()
