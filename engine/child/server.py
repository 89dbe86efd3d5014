"""The child's side: read a frame, run the command, write the answer.

What specs print goes to standard error, so it can never be taken for an answer. A parent that
is gone, however it ended, takes this process and what a spec started along, busy or not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import traceback
from typing import Any

from engine.child.client import describe
from engine.child.protocol import encode, read_frame
from engine.errors import CuBridgeError


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    requests = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    threading.Thread(target=_end_with_parent, args=(requests.fileno(),), daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(5)
    from engine.child.commands import COMMANDS

    def send(message: dict[str, Any]) -> None:
        data = encode(message)
        while data:
            data = data[answers.write(data) :]

    import torch

    torch.set_num_threads(1)
    while (request := read_frame(requests)) is not None:
        try:
            command = COMMANDS[request["command"]]
            result = command(request["payload"], lambda text: send({"progress": text}))
            send({"result": result})
        except CuBridgeError as error:
            send({"error": describe(error)})
        except Exception as error:
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
            frames = traceback.extract_tb(error.__traceback__)
            where = (
                f" (at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"
                if frames
                else ""
            )
            send(
                {
                    "error": {
                        "type": "ChildFailed",
                        "message": message + where,
                        "fix": None,
                        "where": None,
                    }
                }
            )


def _end_with_parent(requests: int) -> None:
    """Ends this process and its group as soon as nobody can write requests any more."""
    watch = select.poll()
    watch.register(requests, 0)  # a hang-up is reported without asking
    watch.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
