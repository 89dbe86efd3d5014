"""G3 in a process of its own, so that a caller with a screen to paint keeps its interpreter.

Lifting every specialisation twice takes a second of pure Python; in a thread it would take every
other turn from the painting one. Its session gives way, says how far it is, and ends with its
caller: its standard input stays open for as long as the answer is wanted.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from engine.child.environment import child_command, child_environment
from engine.child.wire import (
    Broken,
    ChildEnded,
    ChildFailed,
    describe,
    encode,
    failure_of,
    next_message,
    rebuild,
)
from engine.cuir.nodes import Module
from engine.errors import Interrupted
from engine.gates.g3_source.lowering_check import G3, judge_lowered
from engine.lift import KernelPackage
from engine.lift.cpp.provenance import Lifted
from engine.priority import stand_back
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.types import VerdictKind

Progress = Callable[[str], None]
_SIZE = struct.Struct(">Q")
_TICK = 0.05
_GRACE = 2.5  # seconds that the process has at most to end its compilers


def judge_apart(
    package: KernelPackage,
    lifted: Lifted,
    target: Module,
    lowered: bytes,
    arch: str,
    recipe: Recipe | None,
    binding: Binding | None,
    *,
    cancel: threading.Event | None = None,
    progress: Progress = lambda _: None,
) -> G3:
    """As `judge_lowered`, which it runs in another process.

    Raises:
        Interrupted: `cancel` was set; the process and its compilers are gone.
        ChildEnded: the process ended without an answer.
    """
    request = pickle.dumps(
        (package, lifted, target, lowered, arch, recipe, binding), pickle.HIGHEST_PROTOCOL
    )
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            child_command("engine.gates.g3_source.g3_process"), env=child_environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(_SIZE.pack(len(request)) + request)
                process.stdin.flush()
            return _answer(process, log, cancel, progress)
        finally:
            _end(process)


def _answer(
    process: subprocess.Popen[bytes],
    log: Any,
    cancel: threading.Event | None,
    progress: Progress,
) -> G3:
    assert process.stdout is not None
    fd = process.stdout.fileno()
    buffer = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            try:
                while (message := next_message(buffer)) is not None:
                    if "progress" in message:
                        progress(str(message["progress"]))
                        continue
                    if "error" in message:
                        raise rebuild(message["error"])
                    found = message["result"]
                    kind = VerdictKind(found["kind"])
                    return G3(kind, found["reason"], found["details"], found["compiler"])
            except (Broken, KeyError, ValueError, TypeError) as error:
                raise ChildFailed(f"the process that runs G3 gave no answer: {error}") from None
            if cancel is not None and cancel.is_set():
                raise Interrupted("G3 was cancelled")
            if selector.select(_TICK):
                chunk = os.read(fd, 1 << 20)
                if not chunk:
                    log.seek(0)
                    said = log.read().decode("utf-8", "replace").strip().split("\n")[-1][:300]
                    words = f"the process that runs G3 {_how(process)}"
                    raise ChildEnded(words + (f": {said}" if said else ""))
                buffer += chunk


def _how(process: subprocess.Popen[bytes]) -> str:
    """How the process ended whose answers are closed."""
    try:
        code = process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        return "closed its answers"
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input, which ends its compilers; then make sure."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(_GRACE + 0.5)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# --- in the process ------------------------------------------------------------------------------


def main() -> None:
    """Read one request, judge it, write progress and the answer."""
    for _ in range(4):
        if stand_back():
            break
        time.sleep(0.1)
    with contextlib.suppress(OSError):
        os.nice(5)
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    (size,) = _SIZE.unpack(requests.read(_SIZE.size))
    asked = pickle.loads(requests.read(size))  # from our parent
    cancel = threading.Event()
    threading.Thread(target=_watch, args=(requests, cancel), daemon=True).start()
    send_lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        data = encode(message)
        with send_lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[answers.write(data) :]

    try:
        found = judge_lowered(*asked, cancel=cancel, progress=lambda text: send({"progress": text}))
    except Exception as error:
        send({"error": describe(failure_of(error))})
        return
    send({"result": {
        "kind": found.kind.value, "reason": found.reason, "details": dict(found.details),
        "compiler": found.compiler,
    }})  # fmt: skip


def _watch(requests: BinaryIO, cancel: threading.Event) -> None:
    """The parent closed our input, or is gone: end the compilers, then this process."""
    requests.read()
    cancel.set()
    deadline = time.monotonic() + _GRACE
    while _has_children() and time.monotonic() < deadline:
        time.sleep(0.02)
    os._exit(1)


def _has_children() -> bool:
    """Whether a process that this one started still runs (Linux says so; elsewhere: assume it)."""
    try:
        tasks = Path("/proc/self/task")
        return any((task / "children").read_text().strip() for task in tasks.iterdir())
    except OSError:
        return True


if __name__ == "__main__":
    main()
