"""What a launcher asked of the GPU: its record, read and executed on a CPU."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.build.process import run as run_process
from engine.errors import InputError
from engine.foreign.compile import Compiled
from engine.foreign.launcher import SIZES, Launcher
from engine.ptx.findings import Finding
from engine.ptx.launch import Launch
from engine.ptx.launch import run as run_kernel
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor

LIMIT = 60.0  # seconds that a launcher may take
MOST_BYTES = 1 << 30  # that a launcher may allocate

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Executed:
    """One launch of a kernel that was executed."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    thread_instructions: int
    seconds: float
    findings: tuple[Finding, ...]


def arguments(launcher: Launcher, sizes: Mapping[str, int]) -> list[str]:
    """The launcher's arguments in a case: addresses of tensors in their order, sizes, the scale."""
    out: list[str] = []
    tensors = 0
    for p in launcher.parameters:
        if p.kind == "tensor":
            out.append(str(GLOBAL + (tensors << WINDOW) + HALF))
            tensors += 1
        elif p.kind == "size":
            out.append(str(sizes[p.means]))
        elif p.kind == "scale":
            out.append(repr(1 / math.sqrt(sizes["D"])))
        else:
            out.append("0")
    return out


def execute(
    compiled: Compiled, launcher: Launcher, sizes: Mapping[str, int],
    inputs: Mapping[str, Array], arch: str, folder: Path,
) -> tuple[dict[str, Array], list[Executed]]:  # fmt: skip
    """Runs the launcher on a case and executes every launch that it made.

    Args:
        inputs: the bits of each input tensor by name.

    Returns:
        The output tensors by name, as bits; and the launches with their findings.

    Raises:
        InputError: the launcher ended with an error, launched nothing, or asked for what the
            recorder has not.
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
    events = _events(compiled, launcher, sizes, len(tensors), arch, folder)
    launches: list[Executed] = []
    for event in events:
        _do(event, compiled, tensors, launches)
    if not launches:
        raise InputError(f"{launcher.name} launched no kernel")
    return {t.name: t.data for t in tensors}, launches


def _events(
    compiled: Compiled, launcher: Launcher, sizes: Mapping[str, int], tensors: int, arch: str,
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
    argv = [str(compiled.program), *arguments(launcher, sizes)]
    done = run_process(argv, cwd=folder, environ=environ, limit=LIMIT)
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    events = [json.loads(line) for line in lines]
    refused = next((e["call"] for e in events if e["event"] == "refused"), None)
    if refused is not None:
        raise InputError(f"{launcher.name} asks for {refused}, which cannot be executed yet")
    if not done.ok:
        why = done.output.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise InputError(f"{launcher.name} failed: {why[0]}")
    yield from events


def _do(
    event: Mapping[str, Any], compiled: Compiled, tensors: list[Tensor], launches: list[Executed]
) -> None:
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
        done = run_kernel(compiled.module, launch, tensors)
        launches.append(
            Executed(
                launch.kernel, launch.grid, launch.block, launch.shared,
                done.thread_instructions, done.seconds, done.findings,
            )
        )  # fmt: skip
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
