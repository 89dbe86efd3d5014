"""Why an output differs: the case once more with every number written down, and what is the spec's.

Only where outputs differ and nothing was found in memory or order: a passing check never does this.
Of a finding the lines that led to it are told by what the run that found it saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.foreign.compile import Compiled
from engine.foreign.launcher import Launcher
from engine.foreign.numbers.first import first_wrong
from engine.foreign.numbers.flow import Carried, beside, origin, reached_by
from engine.foreign.numbers.told import Told, told
from engine.foreign.numbers.watched import steps, watched
from engine.foreign.numbers.where import Where
from engine.foreign.record import Executed, Written, execute
from engine.foreign.reference import Wanted
from engine.ptx.findings import Finding
from engine.ptx.isa.observe import Observer
from engine.ptx.syntax import Instruction, Module

Array = np.ndarray[Any, Any]
ADDRESSED = ("out of bounds", "misaligned", "race", "early read")
MOST = 40_000_000  # thread instructions of which every number is kept: about a GB


def explain(
    compiled: Compiled, launcher: Launcher, wanted: Wanted,
    scalars: Mapping[str, int | float | bool], arch: str, folder: Path, launches: list[Executed],
    written: Written, where: Where,
) -> Told:  # fmt: skip
    """What is known of an output that differs.

    Args:
        wanted: the case with the numbers that lead to O, where the reference has them.
        launches: the case as it ran before, and `written` the output that differs as it was left.
    """
    spec, stores = wanted.numbers, writers(compiled.module, written.by)
    carried, unset = together(x.carried for x in launches), not written.known.all()
    if spec is None or sum(x.thread_instructions for x in launches) > MOST:
        return told(None, compiled.module, stores, carried, unset, where)
    observer = Observer()
    module, sites = watched(compiled.module)
    execute(replace(compiled, module=module), launcher, wanted.sizes, wanted.inputs, scalars, arch,
            folder, observer)  # fmt: skip
    first = first_wrong(spec, steps(observer, sites))
    return told(first, compiled.module, stores, carried, unset, where)


def together(launches: Iterable[Carried]) -> Carried:
    """What memory carried in several launches."""
    out: dict[int, frozenset[int]] = {}
    for carried in launches:
        for line, stores in carried.items():
            out[line] = out.get(line, frozenset()) | stores
    return out


def led(
    finding: Finding, module: Module, carried: Carried
) -> Iterator[tuple[str, list[Instruction]]]:
    """The instructions that led to a finding, each kind with its words."""
    if finding.kind in ADDRESSED:
        yield "its address is made at", origin(module, finding.at)
    if finding.kind == "deadlock":
        yield "whether threads come there is decided by", reached_by(module, finding.at)
    if finding.kind == "undefined value" and finding.other is not None:
        near = beside(module, finding.other, carried)
        ways = [at for store in near for at in reached_by(module, store)]
        yield "what it reads elsewhere is written at", near
        yield "whether that is written is decided by", ways


def writers(module: Module, by: Array) -> list[Instruction]:
    """The instructions that wrote an output; `by`: the PTX line that wrote each of its bytes."""
    lines = set(np.unique(by).tolist())
    return [at for kernel in module.kernels.values() for at in kernel.code if at.line in lines]
