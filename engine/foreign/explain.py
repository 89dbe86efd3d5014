"""Why an output differs: the case once more with every number written down, and what is the spec's.

Only where outputs differ and nothing was found in memory or order: a passing check never does this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.foreign.compile import Compiled
from engine.foreign.launcher import Launcher
from engine.foreign.numbers.first import first_wrong
from engine.foreign.numbers.told import Told, Where, told
from engine.foreign.numbers.watched import steps, watched
from engine.foreign.record import Executed, Written, execute
from engine.foreign.reference import Wanted
from engine.ptx.isa.observe import Observer
from engine.ptx.syntax import Instruction, Module

Array = np.ndarray[Any, Any]
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
    if spec is None or sum(x.thread_instructions for x in launches) > MOST:
        return told(None, compiled.module, stores, where)
    observer = Observer()
    module, sites = watched(compiled.module)
    execute(replace(compiled, module=module), launcher, wanted.sizes, wanted.inputs, scalars, arch,
            folder, observer)  # fmt: skip
    return told(first_wrong(spec, steps(observer, sites)), compiled.module, stores, where)


def writers(module: Module, by: Array) -> list[Instruction]:
    """The instructions that wrote an output; `by`: the PTX line that wrote each of its bytes."""
    lines = set(np.unique(by).tolist())
    return [at for kernel in module.kernels.values() for at in kernel.code if at.line in lines]
