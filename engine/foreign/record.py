"""What a launcher asked of the GPU: its record, read and executed on a CPU."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.build.machine_code.ptxas import kernel_name
from engine.build.tools.process import run as run_process
from engine.errors import InputError
from engine.foreign.compile import Compiled
from engine.foreign.launcher import SIZES, Launcher
from engine.ptx.findings import Finding
from engine.ptx.isa.observe import Observer
from engine.ptx.launch import Launch
from engine.ptx.launch import run as run_kernel
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.records import unproven
from engine.ptx.syntax import Instruction

LIMIT = 60.0  # seconds that a launcher may take
MOST_BYTES = 1 << 30  # that a launcher may allocate

Array = np.ndarray[Any, Any]


class Endless(InputError):
    """A launcher that did not end: other sizes are not tried, each would be waited for as long."""


@dataclass(frozen=True, slots=True)
class Executed:
    """One launch of a kernel that was executed. `unproven` are instructions of it that no GPU was
    seen to agree on, the first one of each opcode; `carried` as `Outcome` has it."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    thread_instructions: int
    seconds: float
    findings: tuple[Finding, ...]
    unproven: tuple[Instruction, ...]
    carried: Mapping[int, frozenset[int]]

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


def arguments(
    launcher: Launcher, sizes: Mapping[str, int], scalars: Mapping[str, int | float | bool]
) -> list[str]:
    """The launcher's arguments in a case: addresses of tensors in their order, sizes, scalars."""
    out: list[str] = []
    tensors = 0
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
) -> tuple[dict[str, Written], list[Executed]]:  # fmt: skip
    """Runs the launcher on a case and executes every launch that it made.

    Args:
        inputs: the bits of each input tensor by name.
        scalars: further numbers by name; a scale is 1 / sqrt(D) where it has none.
        observer: sees what the source's `observe` instructions say.
        memory_only: nothing is compared, so that no tensor needs to be an output.

    Returns:
        The outputs by name; and the launches with their findings.

    Raises:
        InputError: the launcher ended with an error, launched nothing, wrote no output, or asked
            for what the recorder has not.
    """
    tensors = [
        Tensor(p.means, inputs[p.means].copy())
        if not p.output
        else Tensor.output(
            p.means,
            np.zeros([sizes[d] for d in p.dims], np.dtype(f"u{SIZES[p.dtype]}")),
        )
        for p in launcher.tensors
    ]
    words = arguments(launcher, sizes, scalars)
    events = _events(compiled, launcher, words, len(tensors), arch, folder)
    launches: list[Executed] = []
    returned: list[Written] = []
    own: dict[str, Tensor] = {}
    for event in events:
        if event["event"] == "returned":
            returned.append(_returned(event, tensors))
        else:
            _do(event, compiled, tensors, own, launches, observer)
    if not launches:
        raise InputError(
            f"{launcher.name} launched no kernel at "
            + ", ".join(f"{name} {size}" for name, size in sizes.items()),
            fix="launch it with <<<...>>> or cudaLaunchKernel in that function; where it takes one "
            "head size alone, name that with --head-dim",
        )
    if memory_only and not launcher.outputs:
        return {}, launches
    stopped = any(x.findings for x in launches)
    return _outputs(launcher, tensors, returned, stopped), launches


def launched(
    compiled: Compiled, launcher: Launcher, sizes: Mapping[str, int],
    scalars: Mapping[str, int | float | bool], arch: str, folder: Path,
) -> frozenset[str]:  # fmt: skip
    """The kernels that the launcher launches in a case, by name; nothing is executed.

    Raises:
        InputError: as `execute` does.
    """
    words = arguments(launcher, sizes, scalars)
    events = _events(compiled, launcher, words, len(launcher.tensors), arch, folder)
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


def _returned(event: Mapping[str, Any], tensors: list[Tensor]) -> Written:
    """A tensor that the launcher returned, as it is after all launches before."""
    data, known, start = _bytes(tensors, int(event["address"]))
    by = tensors[int(event["address"]) - GLOBAL >> WINDOW].by
    size = SIZES[event["type"]]
    part = slice(start, start + size * math.prod(event["sizes"]))
    bits = data[part].view(np.dtype(f"u{size}")).reshape(event["sizes"])
    return Written(
        event["type"], bits, np.ones(bits.nbytes, np.bool_) if known is None else known[part],
        by[part],
    )  # fmt: skip


def _events(
    compiled: Compiled, launcher: Launcher, words: list[str], tensors: int, arch: str,
    folder: Path,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The record's events, in their order."""
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
        "CUBRIDGE_TENSORS": str(tensors), "CUBRIDGE_ARCH": digits,
    }  # fmt: skip
    done = run_process([str(compiled.program), *words], cwd=folder, environ=environ, limit=LIMIT)
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    events = [json.loads(line) for line in lines]
    refused = next((e["call"] for e in events if e["event"] == "refused"), None)
    if refused is not None:
        raise InputError(f"{launcher.name} asks for {refused}, which cannot be executed yet")
    if not done.ok:
        why = done.output.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        if done.timed_out:
            raise Endless(f"{launcher.name} failed: it did not end within {LIMIT:.0f} s")
        if done.returncode == -signal.SIGSEGV:
            why = ["it uses memory that it has not: device memory cannot be read or written by the "
                   "launcher itself"]  # fmt: skip
        raise InputError(f"{launcher.name} failed: {why[0]}")
    yield from events


def _do(
    event: Mapping[str, Any], compiled: Compiled, tensors: list[Tensor], own: dict[str, Tensor],
    launches: list[Executed], observer: Observer | None,
) -> None:  # fmt: skip
    kind = event["event"]
    if kind == "allocate":
        size = int(event["bytes"])
        if size + sum(t.data.nbytes for t in tensors) > MOST_BYTES:
            raise InputError(f"the launcher allocates {size} bytes: more than is executed here")
        name = f"allocation {len(tensors)}"
        tensors.append(Tensor.output(name, np.zeros(max(size, 1), np.uint8)))
    elif kind == "launch":
        launch = Launch(event["kernel"], tuple(event["grid"]), tuple(event["block"]),
                        event["shared"], bytes.fromhex(event["parameters"]))  # fmt: skip
        if observer is not None:
            observer.launch = len(launches)
        done = run_kernel(compiled.module, launch, tensors, observer=observer, own=own)
        launches.append(
            Executed(
                launch.kernel, launch.grid, launch.block, launch.shared,
                done.thread_instructions, done.seconds, done.findings,
                unproven(compiled.module.kernels[launch.kernel].code), done.carried,
            )
        )  # fmt: skip
    elif kind == "symbol":
        new = np.frombuffer(bytes.fromhex(event["data"]), np.uint8)
        variable = next((v for v in compiled.module.variables if v.name == event["name"]), None)
        if variable is None:  # no kernel uses it
            return
        initial = np.frombuffer(variable.initial, np.uint8).copy()
        held = own.setdefault(variable.name, Tensor(variable.name, initial)).data
        held[event["offset"] : event["offset"] + len(new)] = new
    else:
        data, known, start = _bytes(tensors, int(event["address"]))
        if kind == "fill":
            part = slice(start, start + event["bytes"])
            data[part] = event["value"]
        elif kind == "upload":
            new = np.frombuffer(bytes.fromhex(event["data"]), np.uint8)
            part = slice(start, start + len(new))
            data[part] = new
        else:
            source, _, first = _bytes(tensors, int(event["from"]))
            part = slice(start, start + event["bytes"])
            data[part] = source[first : first + event["bytes"]]
        if known is not None:
            known[part] = True


def _bytes(tensors: list[Tensor], address: int) -> tuple[Array, Array | None, int]:
    """The tensor that an address lies in, its bytes, and where in it."""
    number, start = divmod(address - GLOBAL, 1 << WINDOW)
    start -= HALF
    if not (0 <= number < len(tensors) and 0 <= start < tensors[number].data.nbytes):
        raise InputError("the launcher sets memory that it did not allocate")
    tensor = tensors[number]
    return tensor.data.reshape(-1).view(np.uint8), tensor.set, start
