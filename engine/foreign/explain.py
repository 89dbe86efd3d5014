"""Why an output differs: the case once more with every number written down, and what is the spec's.

Only where outputs differ and nothing was found in memory or order: a passing check never does this.
Of a finding the lines that led to it are told by what the run that found it saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.foreign.compile import Compiled
from engine.foreign.launcher import Launcher
from engine.foreign.numbers.expected import LSE, OUT, Attention
from engine.foreign.numbers.first import first_wrong
from engine.foreign.numbers.flow import Carried, beside, holding, origin, reached_by
from engine.foreign.numbers.nans import Nans, first_nans
from engine.foreign.numbers.told import Told, in_order, told, told_nans
from engine.foreign.numbers.watched import Step, steps, watched
from engine.foreign.numbers.where import Where
from engine.foreign.record import Executed, Written, execute
from engine.foreign.reference import Difference, Wanted
from engine.ptx.findings import Finding
from engine.ptx.isa.observe import Observer
from engine.ptx.syntax import Instruction, Module

Array = np.ndarray[Any, Any]
ADDRESSED = ("out of bounds", "misaligned", "race", "early read")
_ORDERS: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]] = {
    "bar": [("barriers of the block stand at", ("bar.sync", "barrier.")),
            ("fences stand at", ("membar.", "fence.sc", "fence.acq_rel"))],
    "cp": [("copies are committed at", ("cp.async.commit_group", "cp.async.bulk.commit_group")),
           ("copies are waited for at", ("cp.async.wait_", "cp.async.bulk.wait_"))],
    "wgmma": [("matmuls are committed at", ("wgmma.commit_group",)),
              ("matmuls are waited for at", ("wgmma.wait_group",))],
}  # fmt: skip
MOST = 40_000_000  # thread instructions of which every number is kept: about a GB


def explain(
    compiled: Compiled, launcher: Launcher, wanted: Wanted,
    scalars: Mapping[str, int | float | bool], arch: str, folder: Path, launches: list[Executed],
    differences: Sequence[Difference], outputs: Mapping[str, Written], where: Where,
) -> Told:  # fmt: skip
    """What is known of outputs that differ: where a NaN in the first of them was made, and of what
    is wrong besides which numbers on the way are the spec's.

    Args:
        wanted: the case with the numbers that lead to O, where the reference has them.
        launches: the case as it ran before, and `outputs` as it left them.
    """
    module, spec, d = compiled.module, wanted.numbers, differences[0]
    written = outputs[d.tensor]
    stores, unset = writers(module, written.by), not written.known.all()
    carried = together(x.carried for x in launches)
    many = sum(x.thread_instructions for x in launches) > MOST
    if many or (spec is None and not d.nans.any()):
        return told(None, module, stores, carried, unset, where)
    observer = Observer()
    seen, sites = watched(module)
    execute(replace(compiled, module=seen), launcher, wanted.sizes, wanted.inputs, scalars, arch,
            folder, observer)  # fmt: skip
    wrong = {x.tensor: x.elements for x in differences}
    return followed(spec, module, steps(observer, sites), stores, carried, unset, wrong, d.nans,
                    where)  # fmt: skip


def followed(
    spec: Attention | None, module: Module, made: Sequence[Step], stores: Sequence[Instruction],
    carried: Carried, unset: bool, wrong: Mapping[str, Array], nan: Array, where: Where,
) -> Told:  # fmt: skip
    """The same of numbers that were written down.

    Args:
        stores: what wrote the first output that is wrong; `unset`: it has elements that nothing
            wrote; `nan`: which of its elements are NaN.
        wrong: by output (`o`, `lse`) which of its elements are wrong, [B, Hq, Nq, Dv] as is `nan`.
    """
    first_made = first_nans(module, stores, made, carried) if nan.any() else Nans()
    out = told_nans(next(iter(wrong)), nan, first_made, where)
    # What no NaN says: rows of which another output is wrong, or which have other wrong numbers.
    rows: Array = np.asarray(nan.reshape(*nan.shape[:3], -1).any(-1) & bool(out.lines))
    wrong = {n: x & ~(rows[..., None] if x.ndim == 4 else rows) for n, x in wrong.items()}
    if out.lines and not any(x.any() for x in wrong.values()):
        return out
    first = None if spec is None else first_wrong(spec, made, wrong)
    stored = [n for n, x in ((OUT, "o"), (LSE, "lse")) if x in wrong and wrong[x].any()]
    more = told(first, module, stores, carried, unset, where, stored)
    return Told((*out.lines, *more.lines), tuple(in_order([*out.named, *more.named])))


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
    if finding.kind == "early read" or (finding.kind == "race" and "shared" in finding.words):
        yield from _orders(finding, module)
    if finding.kind in ADDRESSED:
        yield "its address is made at", origin(module, [finding.at])
    if finding.kind == "deadlock":
        yield "whether threads come there is decided by", reached_by(module, finding.at)
    if finding.kind == "undefined value" and finding.other is not None:
        near = beside(module, finding.other, carried)
        ways = [at for store in near for at in reached_by(module, store)]
        yield "what it reads elsewhere is written at", near
        yield "whether that is written is decided by", ways


def _orders(finding: Finding, module: Module) -> Iterator[tuple[str, list[Instruction]]]:
    """What orders such accesses elsewhere in the kernel."""
    kernel = holding(module, finding.at)
    late = finding.other or finding.at  # what was not waited for
    lacks = finding.kind == "race" or "no barrier" in finding.words
    orders = _ORDERS["bar"] if lacks else ()
    for words, names in (*orders, *(_ORDERS.get(late.name, ()) if finding.kind != "race" else ())):
        yield words, [at for at in (kernel.code if kernel else ()) if at.opcode.startswith(names)]


def writers(module: Module, by: Array) -> list[Instruction]:
    """The instructions that wrote an output; `by`: the PTX line that wrote each of its bytes."""
    lines = set(np.unique(by).tolist())
    return [at for kernel in module.kernels.values() for at in kernel.code if at.line in lines]
