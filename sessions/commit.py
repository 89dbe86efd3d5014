"""One commit of a session: its log, its contents, and the folders for human readers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.types import Artifact, Stage, sha256_of
from sessions.events import Event, Unknown, encode_log
from sessions.fold import fold
from sessions.git_store import SUMMARY, WRITER, GitDir
from sessions.pack import Object, blob_oid
from sessions.session import LOG, Loaded, content_path, summary_of
from sessions.state import SessionState
from sessions.tree import Tree

Blob = bytes | str | Artifact

_SEGMENT = 256 * 1024  # a log longer than this is sealed: later saves do not write it again


@dataclass(frozen=True, slots=True)
class Draft:
    """Objects written but not yet visible: a commit, and all that is new with it."""

    loaded: Loaded
    oids: tuple[str, ...]


def write_commit(
    git: GitDir,
    session: str,
    base: Loaded,
    events: Sequence[Event],
    contents: Mapping[str, bytes],
    parent: str | None,
    damaged: frozenset[str] = frozenset(),
) -> Draft:
    """Write the objects of `base` plus `events`; no ref moves. `contents` are keyed by sha256.

    `damaged` are objects of `base` that must be written again where they are needed.
    """
    tree = base.tree.copy()
    current = base.current
    if len(current) > _SEGMENT:
        number = len(tree.files("events")) + 1
        tree.put(f"events/{number:06d}.jsonl", blob_oid(current))
        current = b""
    lines = encode_log(events)
    current += lines
    state = fold(events, base.state)
    files = {content_path(sha256): content for sha256, content in contents.items()}
    files |= {LOG: current, SUMMARY: summary_of(session, state)}
    for verdict in state.verdicts:
        text = json.dumps(verdict.to_json(), indent=2) + "\n"
        files[f"verdicts/{verdict.gate}.json"] = text.encode("ascii")
    known = set(base.tree.blobs().values()) - damaged
    new: dict[str, Object] = {}
    for path, content in files.items():
        blob = Object("blob", content)
        oid = blob.oid
        tree.put(path, oid)
        if oid not in known:
            new[oid] = blob
    _put_named(tree, state)
    root, trees = tree.finish()
    new |= {item.oid: item for item in trees}
    git.clear_damaged(new)
    commit = _commit(root, parent, _message(session, state, events), int(time.time()))
    git.write([*new.values(), commit])
    loaded = Loaded(
        commit.oid, base.log + lines, current, base.events + tuple(events), state, tree, base.schema
    )
    return Draft(loaded, (*new, commit.oid))


def by_sha256(blobs: Iterable[Blob]) -> dict[str, bytes]:
    """Contents keyed by their hash."""
    found = {}
    for blob in blobs:
        data = blob.data if isinstance(blob, Artifact) else blob
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogateescape")
        found[sha256_of(data)] = data
    return found


def _put_named(tree: Tree, state: SessionState) -> None:
    """The folders for human readers: current artifacts, verdicts and transcripts by name."""
    for stage, artifacts in _artifacts(state).items():
        folder = f"artifacts/{stage}"
        for name, sha256 in artifacts.items():
            oid = tree.get(content_path(sha256))
            if oid is not None:
                tree.put(f"{folder}/{name}", oid)
        tree.keep_only(folder, set(artifacts))
    for transcript in state.transcripts:
        oid = tree.get(content_path(transcript.sha256))
        if oid is not None:
            tree.put(f"transcripts/{transcript.name}", oid)
    tree.keep_only("transcripts", {transcript.name for transcript in state.transcripts})
    tree.keep_only("verdicts", {f"{verdict.gate}.json" for verdict in state.verdicts})


def _artifacts(state: SessionState) -> dict[str, Mapping[str, str]]:
    return {stage.value: state.stage(stage).artifacts for stage in Stage}


def _commit(tree: str, parent: str | None, message: str, seconds: int) -> Object:
    """A commit dated `seconds` after the epoch."""
    name, mail = WRITER
    by = f"{name} <{mail}> {seconds} +0000"
    parents = f"parent {parent}\n" if parent else ""
    return Object(
        "commit", f"tree {tree}\n{parents}author {by}\ncommitter {by}\n\n{message}".encode()
    )


def _message(session: str, state: SessionState, events: Sequence[Event]) -> str:
    """The commit's message: our own words only, titles and reasons stay in the JSON."""
    kinds = ["Unknown" if isinstance(e.body, Unknown) else e.type for e in events]
    gates = " ".join(f"{verdict.gate}={verdict.kind}" for verdict in state.verdicts)
    return (
        f"{', '.join(dict.fromkeys(kinds))}\n\n"
        f"CuBridge-Session: {session}\n"
        f"CuBridge-Stage: {state.furthest or 'none'}\n"
        f"CuBridge-Level: {state.level}\n"
        f"CuBridge-Gates: {gates or 'none'}\n"
        f"CuBridge-Events: {state.count}\n"
    )
