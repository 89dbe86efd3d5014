"""Why an output differs: the case once more with every number written down, and what is the spec's.

Only where outputs differ and nothing was found in memory or order: a passing check never does this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.foreign.compile import Compiled
from engine.foreign.launcher import SIZES, Launcher
from engine.foreign.numbers.first import first_wrong
from engine.foreign.numbers.told import Told, Where, told
from engine.foreign.numbers.watched import steps, watched
from engine.foreign.record import Executed, Written, execute
from engine.foreign.reference import Difference, Wanted
from engine.ptx.isa.observe import Observer
from engine.ptx.syntax import Instruction, Module

MOST = 40_000_000  # thread instructions of which every number is kept: about a GB


def explain(
    compiled: Compiled, launcher: Launcher, wanted: Wanted,
    scalars: Mapping[str, int | float | bool], arch: str, folder: Path, launches: list[Executed],
    difference: Difference, where: Where,
) -> Told:  # fmt: skip
    """What is known of an output that differs.

    Args:
        wanted: the case with the numbers that lead to O, where the reference has them.
        launches: the case as it ran before.
    """
    observer, spec = Observer(), wanted.numbers
    module, sites = watched(compiled.module)
    if spec is None or sum(x.thread_instructions for x in launches) > MOST:
        module, sites, spec = compiled.module, {}, None
    outputs, _ = execute(replace(compiled, module=module), launcher, wanted.sizes, wanted.inputs,
                         scalars, arch, folder, observer)  # fmt: skip
    stores = writers(compiled.module, outputs[difference.tensor])
    if spec is None:
        return told(None, compiled.module, stores, where)
    return told(first_wrong(spec, steps(observer, sites)), compiled.module, stores, where)


def writers(module: Module, written: Written) -> list[Instruction]:
    """The instructions that wrote an output."""
    lines = set(np.unique(written.by[:: SIZES[written.dtype]]).tolist())
    return [at for kernel in module.kernels.values() for at in kernel.code if at.line in lines]
