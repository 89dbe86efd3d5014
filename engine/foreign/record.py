"""What a launcher asked of the GPU: its record, read and executed on a CPU."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.build.machine_code.ptxas import kernel_name
from engine.build.tools.process import run as run_process
from engine.errors import InputError
from engine.foreign.compile import Compiled
from engine.foreign.launcher import MOST_BYTES, SIZES, Launcher
from engine.ptx.findings import Finding
from engine.ptx.isa.observe import Observer
from engine.ptx.launch import Launch
from engine.ptx.launch import run as run_kernel
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.records import unproven
from engine.ptx.syntax import Instruction, Module

LIMIT = 60.0  # seconds that a launcher may take

Array = np.ndarray[Any, Any]


class Endless(InputError):
    """A launcher that did not end: other sizes are not tried, each would be waited for as long."""


@dataclass(frozen=True, slots=True)
class Executed:
    """One launch of a kernel that was executed. `unproven` are instructions of it that no GPU was
    seen to agree on, the first one of each opcode; `carried` and `ran` as `Outcome` has them."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    thread_instructions: int
    seconds: float
    findings: tuple[Finding, ...]
    unproven: tuple[Instruction, ...]
    carried: Mapping[int, frozenset[int]]
    ran: frozenset[int]

    @property
    def function(self) -> str:
        """The kernel's name in the source."""
        return kernel_name(self.kernel)


@dataclass(frozen=True, slots=True)
class Written:
    """An output as the launches left it: its bits, which of its bytes hold a value, and the PTX
    line that wrote each byte last."""

    dtype: str
    data: Array
    known: Array
    by: Array


@dataclass(slots=True)
class Process:
    """What a process has after some calls of its launcher.

    Args:
        said: the calls, as its command line has them.
        tensors: global memory in the order of addresses; what was given back has no bytes.
        own: the module's variables by name.
    """

    said: list[str] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    own: dict[str, Tensor] = field(default_factory=dict)

    def free(self, number: int, why: str) -> None:
        name = f"{self.tensors[number].name} ({why})"
        self.tensors[number] = Tensor(name, np.zeros(0, np.uint8))

    def at(self, address: int, count: int, what: str) -> tuple[int, slice]:
        """The tensor that `count` bytes from an address on lie in, and where in it."""
        number, start = divmod(address - GLOBAL, 1 << WINDOW)
        start -= HALF
        if not 0 <= number < len(self.tensors):
            raise InputError(f"the launcher {what} memory that it did not allocate")
        tensor = self.tensors[number]
        if not 0 <= start <= tensor.data.nbytes - count:
            raise InputError(f"the launcher {what} {count} bytes at byte {start} of {tensor.name}, "
                             f"which has {tensor.data.nbytes}")  # fmt: skip
        return number, slice(start, start + count)

    def set(self, address: int, data: Array | int, known: Array | bool = True) -> None:
        """Writes bytes, some of which may be undefined."""
        count = data.size if isinstance(data, np.ndarray) else int(np.size(known))
        number, part = self.at(address, count, "sets")
        tensor = self.tensors[number]
        tensor.data.reshape(-1).view(np.uint8)[part] = data
        if tensor.set is not None:
            tensor.set[part] = known


def arguments(
    launcher: Launcher, sizes: Mapping[str, int], scalars: Mapping[str, int | float | bool],
    first: int = 0,
) -> list[str]:  # fmt: skip
    """The launcher's arguments in a case: addresses of tensors in their order, the number of the
    first one, sizes, scalars."""
    out: list[str] = []
    tensors = first
    for p in launcher.parameters:
        if p.kind == "tensor":
            address = str(GLOBAL + (tensors << WINDOW) + HALF)
            shape = [p.dtype, *(str(sizes[d]) for d in p.dims)] if p.torch else []
            out.append(",".join([address, *shape]))
            tensors += 1
        elif p.kind == "size":
            out.append(str(sizes[p.means]))
        elif p.kind == "scalar":
            value = scalars.get(p.means, 1 / math.sqrt(sizes["D"]))
            out.append(repr(int(value) if isinstance(value, bool) else value))
        else:
            out.append("0")
    return out


def execute(
    compiled: Compiled, launcher: Launcher, sizes: Mapping[str, int],
    inputs: Mapping[str, Array], scalars: Mapping[str, int | float | bool], arch: str,
    folder: Path, observer: Observer | None = None, memory_only: bool = False,
    process: Process | None = None,
) -> tuple[dict[str, Written], list[Executed]]:  # fmt: skip
    """Runs the launcher on a case and executes every launch that it made.

    Args:
        inputs: the bits of each input tensor by name.
        scalars: further numbers by name; a scale is 1 / sqrt(D) where it has none.
        observer: sees what the source's `observe` instructions say.
        memory_only: nothing is compared, so that no tensor needs to be an output, and each may be
            written.
        process: what calls before left; None: this is the first one.

    Returns:
        The outputs by name; and the launches with their findings.

    Raises:
        InputError: the launcher ended with an error, launched nothing, wrote no output, or asked
            for what the recorder has not, or what the driver refuses.
    """
    process = process or Process()
    first = len(process.tensors)
    given = [
        Tensor(p.means, inputs[p.means].copy(), np.ones(inputs[p.means].nbytes, np.bool_))
        if not p.output
        else Tensor.output(
            p.means,
            np.zeros([sizes[d] for d in p.dims], np.dtype(f"u{SIZES[p.dtype]}")),
        )
        for p in launcher.tensors
    ]
    words = arguments(launcher, sizes, scalars, first)
    process.tensors += given
    process.said += [str(len(process.tensors)), *words]
    launches: list[Executed] = []
    returned: list[Written] = []
    kept = [] if memory_only else [t for t in given if t.name in inputs]  # inputs as they were
    for event in _events(compiled, launcher, process.said, arch, folder):
        if event["event"] == "returned":
            returned.append(_returned(event, process))
            continue
        _do(event, compiled, process, launches, observer)
        changed = [t for t in kept if not np.array_equal(t.data, inputs[t.name])]
        for tensor in changed:
            kept.remove(tensor)
            if event["event"] != "launch":
                raise InputError(f"the launcher overwrites {tensor.name}, an input")
            launches[-1] = _overwritten(launches[-1], tensor, inputs[tensor.name], compiled.module)
    if not launches:
        raise InputError(
            f"{launcher.name} launched no kernel at "
            + ", ".join(f"{name} {size}" for name, size in sizes.items()),
            fix="launch it with <<<...>>> or cudaLaunchKernel in that function; where it takes one "
            "head size alone, name that with --head-dim",
        )
    for number in range(first, first + len(given)):
        process.free(number, "of an earlier call")
    if memory_only and not launcher.outputs:
        return {}, launches
    # What wrote an output at an earlier call has one: that it does not now is a wrong number.
    stopped = bool(first) or any(x.findings for x in launches)
    return _outputs(launcher, given, returned, stopped), launches


def _overwritten(launch: Executed, tensor: Tensor, was: Array, module: Module) -> Executed:
    """A launch that left other values in an input, with a finding where it wrote the first."""
    differs = tensor.data.reshape(-1).view(np.uint8) != was.reshape(-1).view(np.uint8)
    line = tensor.by[differs][0]
    at = next(x for x in module.kernels[launch.kernel].code if x.line == line)
    found = Finding("input written", at, f"writes {tensor.name}, an input of the launcher")
    return replace(launch, findings=(*launch.findings, found))


def launched(
    compiled: Compiled, launcher: Launcher, sizes: Mapping[str, int],
    scalars: Mapping[str, int | float | bool], arch: str, folder: Path,
) -> frozenset[str]:  # fmt: skip
    """The kernels that the launcher launches in a case, by name; nothing is executed.

    Raises:
        InputError: as `execute` does.
    """
    words = [str(len(launcher.tensors)), *arguments(launcher, sizes, scalars)]
    events = _events(compiled, launcher, words, arch, folder)
    return frozenset(e["kernel"] for e in events if e["event"] == "launch")


def _outputs(
    launcher: Launcher, tensors: list[Tensor], returned: list[Written], stopped: bool
) -> dict[str, Written]:
    held = zip(launcher.tensors, tensors, strict=False)
    out = {p.means: Written(p.dtype, t.data, np.ones(0) if t.set is None else t.set, t.by)
           for p, t in held if p.output}  # fmt: skip
    out |= {p.means: w for p, w in zip(launcher.returned, returned, strict=False)}
    if not out:
        raise InputError(f"{launcher.name} has no output", fix="take `o`, or return a tensor")
    for name, written in out.items():
        if written.data.size and not written.known.any() and not stopped:
            raise InputError(f"{launcher.name} writes nothing into {name}")
    return out


def _returned(event: Mapping[str, Any], process: Process) -> Written:
    """A tensor that the launcher returned, as it is after all launches before."""
    size = SIZES[event["type"]]
    count = size * math.prod(event["sizes"])
    number, part = process.at(int(event["address"]), count, "returns")
    tensor = process.tensors[number]
    bits = tensor.data.reshape(-1).view(np.uint8)[part].view(np.dtype(f"u{size}"))
    known = np.ones(count, np.bool_) if tensor.set is None else tensor.set[part]
    return Written(event["type"], bits.reshape(event["sizes"]), known, tensor.by[part])


def _events(
    compiled: Compiled, launcher: Launcher, words: list[str], arch: str, folder: Path
) -> Iterator[dict[str, Any]]:
    """The events of the last of the calls, in their order."""
    record, parameters = folder / "record.jsonl", folder / "parameters.txt"
    record.unlink(missing_ok=True)
    parameters.write_text(
        "".join(
            f"{name} {' '.join(f'{p.offset}:{p.size}' for p in kernel.parameters)}\n"
            for name, kernel in compiled.module.kernels.items()
        ),
        encoding="utf-8",
    )
    digits = arch.removeprefix("sm_").rstrip("af")
    environ = {
        **os.environ, "CUBRIDGE_RECORD": str(record), "CUBRIDGE_PARAMETERS": str(parameters),
        "CUBRIDGE_ARCH": digits,
    }  # fmt: skip
    done = run_process([str(compiled.program), *words], cwd=folder, environ=environ, limit=LIMIT)
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    events = [json.loads(line) for line in lines]
    refused = next((e["call"] for e in events if e["event"] == "refused"), None)
    if refused is not None:
        raise InputError(f"{launcher.name} asks for {refused}, which cannot be executed yet")
    invalid = next((e["words"] for e in events if e["event"] == "invalid"), None)
    if invalid is not None:
        raise InputError(f"{launcher.name} asks for {invalid}: the driver refuses that")
    if not done.ok:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode
        why = done.output.strip().splitlines()[-1:] or [f"it ended with {how}"]
        if done.timed_out:
            raise Endless(f"{launcher.name} failed: it did not end within {LIMIT:.0f} s")
        if done.returncode == -signal.SIGSEGV:
            why = ["it uses memory that it has not: device memory cannot be read or written by the "
                   "launcher itself"]  # fmt: skip
        raise InputError(f"{launcher.name} failed: {why[0]}")
    last = max((n for n, e in enumerate(events) if e["event"] == "call"), default=-1)
    yield from events[last + 1 :]


def _do(
    event: Mapping[str, Any], compiled: Compiled, process: Process, launches: list[Executed],
    observer: Observer | None,
) -> None:  # fmt: skip
    tensors, kind = process.tensors, event["event"]
    if kind == "allocate":
        size = int(event["bytes"])
        if size + sum(t.data.nbytes for t in tensors) > MOST_BYTES:
            raise InputError(f"the launcher allocates {size} bytes: more than is executed here")
        name = f"allocation {len(tensors)}"
        empty = np.zeros(max(size, 1), np.uint8)
        tensors.append(Tensor(name, empty, np.zeros(len(empty), np.bool_), workspace=True))
    elif kind == "free":
        number, part = process.at(int(event["address"]), 0, "frees")
        if part.start or not tensors[number].data.nbytes:
            raise InputError(f"the launcher frees {tensors[number].name} from byte {part.start} on")
        process.free(number, "freed")
    elif kind == "launch":
        name = event["kernel"]
        launch = Launch(name, tuple(event["grid"]), tuple(event["block"]), event["shared"],
                        bytes.fromhex(event["parameters"]), event["allowed"],
                        compiled.registers.get(name, 0), event["cooperative"])  # fmt: skip
        if observer is not None:
            observer.launch = len(launches)
        done = run_kernel(compiled.module, launch, tensors, observer=observer, own=process.own)
        launches.append(
            Executed(
                launch.kernel, launch.grid, launch.block, launch.shared,
                done.thread_instructions, done.seconds, done.findings,
                unproven(compiled.module.kernels[launch.kernel].code), done.carried, done.ran,
            )
        )  # fmt: skip
    elif kind == "symbol":
        new = np.frombuffer(bytes.fromhex(event["data"]), np.uint8)
        end = event["offset"] + len(new)
        if end > event["has"]:
            raise InputError(f"the launcher sets {len(new)} bytes at byte {event['offset']} of "
                             f"{event['name']}, which has {event['has']}")  # fmt: skip
        variable = next((v for v in compiled.module.variables if v.name == event["name"]), None)
        if variable is None:  # no kernel uses it
            return
        initial = np.frombuffer(variable.initial, np.uint8).copy()
        held = process.own.setdefault(variable.name, Tensor(variable.name, initial)).data
        held[event["offset"] : end] = new
    elif kind == "fill":
        process.set(int(event["address"]), event["value"], np.ones(event["bytes"], np.bool_))
    elif kind == "upload":
        process.set(int(event["address"]), np.frombuffer(bytes.fromhex(event["data"]), np.uint8))
    else:
        number, part = process.at(int(event["from"]), event["bytes"], "copies")
        source = tensors[number]
        known = True if source.set is None else source.set[part].copy()
        data = source.data.reshape(-1).view(np.uint8)[part].copy()
        process.set(int(event["address"]), data, known)
