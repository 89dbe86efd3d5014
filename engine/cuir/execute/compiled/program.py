"""One run of one program: what all its blocks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.cuir.arch import Arch
from engine.cuir.execute.compiled.code import Code, Stopped
from engine.cuir.execute.state.values import Shared, Tensor, TensorField
from engine.cuir.findings import Finding
from engine.cuir.nodes import Module, Path
from engine.cuir.scalar import Mode, float_dtype
from engine.cuir.types import SharedType


@dataclass(frozen=True, slots=True)
class Schedule:
    """In which order the parts of a block go on.

    Seed 0 takes turns; any other seed picks at random, each block with its own paces. `parts`
    simulated warps make up one unit (a warpgroup, or the whole block). With `choices` the first
    part that can goes on, but at the decisions that it names: how tests explore schedules. With
    `starve` one part of each block goes on only where no other can, and bulk copies land at once:
    part `starve` of the first block, the next part of the next one, and so on in turn. A warp that
    is late for a phase of a barrier shows there. turns.py says which block goes on where blocks
    claim work.
    """

    seed: int = 0
    parts: int = 2
    choices: Mapping[int, int] | None = None
    starve: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the run may use, and the device that the host code sees."""

    sm_count: int = 4
    max_steps: int = 5_000_000
    max_findings: int = 100


@dataclass(slots=True)
class Coverage:
    """What ran: how often each op, which launches, how many decisions a schedule took.

    What a function gave for the same numbers before is not counted again. `parts` is the number of
    simulated warps of the largest block.
    """

    ops: dict[Path, int] = field(default_factory=dict)
    launches: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    parts: int = 0


class Program:
    """State of a run: inputs and outputs, findings, coverage."""

    def __init__(
        self,
        arch: Arch,
        mode: Mode,
        paths: list[Path],
        codes: Mapping[str, Code],
        schedule: Schedule,
        limits: Limits,
    ) -> None:
        self.arch = arch
        self.mode = mode
        self.paths = paths
        self.codes = codes
        self.schedule = schedule
        self.limits = limits
        self.float: torch.dtype = float_dtype(mode)
        self.coverage = Coverage()
        self.findings: dict[tuple[str, Path], Finding] = {}
        self.pairs: set[tuple[int, int]] = set()
        self.stages: dict[tuple[SharedType, int, int], Shared] = {}
        self.aranges: dict[tuple[int, int, int], Tensor] = {}
        # What a part found out for all: the same numbers would give it again.
        self.found: dict[Any, Any] = {}
        self.steps = 0
        self.block = 0  # serial number of the running block, from 1
        self.launch_first = 0  # serial number before the first block of the running launch
        self.clean_inputs = True
        self.shared_bytes = 0
        self.grid: tuple[int, ...] = (1, 1, 1)
        self.scalars: dict[str, Any] = {}
        # by field and index: a word that the running launch claims from, what it held, by which op
        self.claims: dict[tuple[str, tuple[int, ...]], tuple[Tensor, int, int]] = {}
        self.shared_words = False  # whether the running launch changes words by atomics
        self.fields: dict[str, TensorField] = {}
        self.module: Module | None = None

    def report(self, kind: str, path: int, message: str, part: int, other: int = -1) -> None:
        """Notes a finding once per kind and op; clashes of two ops only once per pair."""
        if other >= 0:
            pair = (min(path, other), max(path, other))
            if pair in self.pairs:
                return
            self.pairs.add(pair)
        where = self.paths[path]
        key = (kind, where)
        found = self.findings.get(key)
        if found is None:
            if len(self.findings) < self.limits.max_findings:
                self.findings[key] = Finding(
                    kind, where, message, (part,) if part >= 0 else (),
                    self.paths[other] if other >= 0 else None,
                )  # fmt: skip
        elif part >= 0 and part not in found.parts:
            self.findings[key] = Finding(
                kind, where, found.message, tuple(sorted((*found.parts, part))), found.other
            )

    def stop(self, kind: str, path: int, message: str, part: Any = None) -> Stopped:
        """The exception that ends the run with this finding."""
        number = getattr(part, "index", -1)
        where = self.paths[path]
        return Stopped(
            Finding(kind, where, message, (number,) if number >= 0 else ()), where, message
        )

    def arange(self, start: int, count: int, step: int = 1) -> Tensor:
        """start, start + step, ...: `count` of them, cached for small starts."""
        key = (start, count, step)
        found = self.aranges.get(key)
        if found is None:
            if len(self.aranges) > 4096:
                self.aranges.clear()
            found = self.aranges[key] = torch.arange(start, start + count * step, step)
        return found
