"""The process that runs a person's spec, apart from the one that judges.

It is split off from a process that has torch loaded, which takes a few milliseconds, and is asked
through a pipe. JSON and the bytes of tensors come back, and both are checked here. A spec may
patch torch or our own modules: that happens in its own process, so all it can change is what it
says its function computes. What a spec started is ended with its process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn, Self

import torch
from torch import Tensor

from engine.child.keeper import end_with, hide_memory, keep_spec
from engine.child.postmortem import ASK
from engine.child.tensors import described, received, to_bytes
from engine.child.wire import Broken, ChildFailed, describe, encode, failure_of, read_frame, rebuild
from engine.errors import CuBridgeError, SpecError, Where
from engine.spec.function import OUTPUT, PersonsFunction
from engine.spec.python.program import program_of
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json

_GRACE = 5.0
GARBLED = (
    "what came back from the process that ran the spec is no answer: the spec writes into streams "
    "that are not its own"
)


class SpecEnded(Exception):
    """The spec's process ended in the middle of a question: `code` is its exit code, or the
    negative number of the signal that ended it."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the process that ran the spec ended ({code})")


class SpecProcess:
    """A person's function, asked in a process of its own, which the first question starts.

    Every question raises `SpecError` for what the spec does wrong and `SpecEnded` where its process
    ends. Use as a context manager, or call `close`.
    """

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        self.path = path
        self.options = dict(options)
        self._running: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and all that the spec started."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def recipe(self, head_sizes: Sequence[tuple[int, int]] = ()) -> Recipe:
        """What tracing the spec says that a kernel must compute."""
        data, _ = self._ask("recipe", {"head_sizes": [list(pair) for pair in head_sizes]}, {})
        try:
            recipe = recipe_from_json(data["recipe"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._garbled() from None
        declared = program_of(read_source(self.path, self.options)).tensors
        if {i.name for i in recipe.inputs if i.derive is None} != {t.name for t in declared}:
            raise self._garbled()
        return recipe

    def wide(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The function's output in float64, in the spec's own layout, for inputs by name."""
        return self._output("wide", inputs)

    def low(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The function's output in the types that the inputs have, as PyTorch computes it."""
        return self._output("low", inputs)

    def derived(self, recipe: Recipe, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The values of the recipe's derived inputs for these inputs."""
        wanted = {i.name for i in recipe.inputs if i.derive is not None}
        if not wanted:
            return {}
        _, out = self._ask("derived", {"recipe": recipe_to_json(recipe)}, inputs)
        if out.keys() != wanted:
            raise self._garbled()
        return out

    def _output(self, question: str, inputs: Mapping[str, Tensor]) -> Tensor:
        _, out = self._ask(question, {}, inputs)
        if out.keys() != {OUTPUT}:
            raise self._garbled()
        return out[OUTPUT]

    def _ask(
        self, question: str, data: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        if self._running is None:
            self._running = _Running(self.path, self.options)
        try:
            message = self._running.ask({"question": question, "data": dict(data)}, tensors)
            if "error" in message:
                raise self._told(rebuild(message["error"]))
            result = message.get("result")
            if not isinstance(result, dict):
                raise Broken("no result")
            return result, received(message.get("tensors"), self._running.read)
        except Broken:
            self.close()
            raise self._garbled() from None
        except SpecEnded:
            self._running = None
            raise

    def _told(self, error: CuBridgeError) -> CuBridgeError:
        """What the process said, with the file that it is about."""
        where = Where(str(self.path))
        if not isinstance(error, ChildFailed):
            return type(error)(error.message, where=error.where or where, fix=error.fix)
        fix = "report it with the spec; --transfer llm carries specs that cannot be read"
        return type(error)(error.message, where=where, fix=fix)

    def _garbled(self) -> SpecError:
        return SpecError(GARBLED, where=Where(str(self.path)))


class _Running:
    """The process's two pipes, and its keeper, which ends as the process does."""

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        theirs, requests = os.pipe()
        answers, mine = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()  # what waits there is written once
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a thread of ours only waits
            keeper = os.fork()
        if keeper == 0:
            _serve(path, options, theirs, mine)
        os.close(theirs)
        os.close(mine)
        self._requests: IO[bytes] = os.fdopen(requests, "wb", buffering=0)
        self._answers: BinaryIO = os.fdopen(answers, "rb")
        self._end = weakref.finalize(self, _ended, keeper, self._requests, self._answers, 0.0)

    def end(self) -> int:
        """End it, if it has not ended by itself: its exit code, or its signal's negative number."""
        return self._end() or 0

    def ask(self, question: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        try:
            _write(self._requests, encode(question | {"tensors": described(tensors)}))
            for tensor in tensors.values():
                _write(self._requests, to_bytes(tensor))
        except BrokenPipeError:
            raise self._gone() from None
        message = read_frame(self._answers)
        if message is None:
            raise self._gone()
        return message

    def read(self, size: int) -> bytearray:
        data = self._answers.read(size)
        if len(data) < size:
            raise self._gone()
        return bytearray(data)

    def _gone(self) -> SpecEnded:
        _, _, arguments, _ = self._end.detach() or (None, None, None, None)
        assert arguments is not None
        keeper, requests, answers, _ = arguments
        return SpecEnded(_ended(keeper, requests, answers, _GRACE))


def _ended(keeper: int, requests: IO[bytes], answers: BinaryIO, patience: float) -> int:
    """How the process ended; one that has not within `patience` seconds is ended."""
    deadline = time.monotonic() + patience
    status = os.waitpid(keeper, os.WNOHANG)
    while not status[0] and time.monotonic() < deadline:
        time.sleep(0.01)
        status = os.waitpid(keeper, os.WNOHANG)
    requests.close()  # its keeper sees that
    answers.close()
    if not status[0]:
        status = os.waitpid(keeper, 0)
    return os.waitstatus_to_exitcode(status[1])


def _write(stream: IO[bytes], data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) or 0 :]


# --- in the process ------------------------------------------------------------------------------


def _serve(path: Path, options: Mapping[str, object], requests: int, answers: int) -> NoReturn:
    """The keeper, and below it the process that answers; neither comes back from here."""
    try:
        faulthandler.disable()
        faulthandler.unregister(ASK)  # what they write to is closed now
        keeper = keep_spec(requests, answers)
        _answer_all(PersonsFunction(path, options), str(path), requests, answers, keeper)
    except BaseException as error:
        with contextlib.suppress(BaseException):
            failure_of(error)  # tells standard error
            sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _answer_all(
    function: PersonsFunction, path: str, requests: int, answers: int, keeper: int
) -> None:
    hide_memory(False)  # a crash of its own may leave a dump
    log = os.dup(2)
    os.dup2(2, 1)  # what a spec prints is no answer
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.enable(log)
    faulthandler.register(ASK, log, all_threads=True)
    threading.Thread(target=end_with, args=(requests, keeper), daemon=True).start()
    torch.set_num_threads(1)
    # Kept out of the spec's reach by name: it may patch modules, and then has only itself to blame.
    own, exit_now, write, process = os.getpid(), os._exit, os.write, os.getpid
    stream = os.fdopen(requests, "rb", closefd=False)

    def send(data: bytes | bytearray) -> None:
        if process() != own:  # a copy that the spec forked off and that came back out of it
            exit_now(0)
        while data:
            data = data[write(answers, data) :]

    while (request := read_frame(stream)) is not None:
        given = received(request["tensors"], lambda n: bytearray(stream.read(n)))
        try:
            result, out = function.answer(request["question"], request["data"], given)
            head, bodies = _packed(result, out, path)
        except BaseException as error:
            head, bodies = {"error": describe(failure_of(error))}, []
        send(encode(head))
        for body in bodies:
            send(body)


def _packed(
    result: Mapping[str, Any], out: Mapping[str, Tensor], path: str
) -> tuple[dict[str, Any], list[bytearray]]:
    try:
        head = {"result": dict(result), "tensors": described(out)}
    except TypeError as error:
        fix = "return a dense tensor of floats"
        raise SpecError(f"the spec's {error}", where=Where(path), fix=fix) from None
    return head, [to_bytes(tensor) for tensor in out.values()]
