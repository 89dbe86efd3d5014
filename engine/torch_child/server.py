"""The child's side: read a frame, run the command, write the answer.

This process judges. It runs nothing of a person's: a spec runs in a process that is split off for
each command (see spec_process.py). A parent that is gone, however it ended, takes this process and
what a spec started along, busy or not; so does the end of this process itself (see keeper.py).
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from engine.child.family import end_descendants
from engine.child.keeper import end_as, end_with, hide_memory, keep
from engine.child.postmortem import ASK
from engine.child.wire import describe, encode, failure_of, read_frame
from engine.errors import MissingTool

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    keeper = keep(0, int(sys.argv[1]))
    hide_memory(True)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    requests = os.fdopen(os.dup(0), "rb")
    log = os.dup(2)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    faulthandler.enable(log)
    faulthandler.register(ASK, log, all_threads=True)
    threading.Thread(target=end_with, args=(requests.fileno(), keeper), daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(5)
    write, own = answers.write, os.getpid()

    def send(message: dict[str, Any]) -> None:
        data = encode(message)
        while data:
            data = data[write(data) :]

    missing = _import_torch()
    while (request := read_frame(requests)) is not None:
        if missing is not None:
            send({"error": describe(missing)})
        else:
            send({"began": own})
            _answer(request, send)
    end_descendants(os.getpid())  # the parent is gone: which of the two threads sees it is chance


def _import_torch() -> MissingTool | None:
    try:
        import torch
    except (ImportError, OSError) as error:
        message = f"PyTorch cannot be imported: {error}"
        return MissingTool(message, fix="./dev in a checkout, else pip install torch")
    torch.set_num_threads(1)
    # What every command needs, before one is asked for; what fails here fails again there.
    with contextlib.suppress(Exception):
        import engine.gates.g1_g2.judge
        import engine.spec.read  # noqa: F401
    # All of this stays: the collector, which runs of CuIR wake often, need not walk it each time.
    gc.freeze()
    return None


def _answer(request: dict[str, Any], send: Send) -> None:
    from engine.child.spec_process import SpecEnded
    from engine.torch_child.commands import COMMANDS

    try:
        command = COMMANDS[request["command"]]
        result = command(request["payload"], lambda text: send({"progress": text}))
        send({"result": result})
    except SpecEnded as ended:
        end_as(ended.code)  # the asker tells a person how, and starts a fresh process
    except BaseException as error:
        send({"error": describe(failure_of(error))})


if __name__ == "__main__":
    main()
