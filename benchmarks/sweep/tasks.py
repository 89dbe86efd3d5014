"""What a sweep judges, cut into tasks of about a minute that any process can take.

The cheap tasks come first: a sweep that is cut off has compiled all texts before it runs decks.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from engine.lift import load_package
from engine.resources import list_specs, spec_path
from engine.service.session.session_options import fixed_head_size

Step = Literal["mutants", "texts", "decks"]
Drawn = Literal["mask", "spec"]

CHUNK = 10
# Both kernels, three head sizes; on sm_90 D 64 and 256 overlap matmuls with softmax, 128 does not.
SOURCES = (
    ("flash_fwd_sm80", "bf16_64"), ("flash_fwd_sm80", "bf16_128"), ("flash_fwd_sm90", "bf16_64"),
    ("flash_fwd_sm90", "bf16_128"), ("flash_fwd_sm90", "bf16_256"),
)  # fmt: skip
TARGETS = ("flash_fwd_sm80", "flash_fwd_sm90")


@dataclass(frozen=True, slots=True)
class Original:
    """What mutants are drawn of: a kernel's source, or the target that rules make for a spec."""

    kernel: str
    key: str
    spec: str | None = None

    @property
    def name(self) -> str:
        return f"{self.spec or 'source'} on {self.kernel} {self.key}"

    @property
    def arch(self) -> str:
        return load_package(self.kernel).archs[0]


@dataclass(frozen=True, slots=True)
class Task:
    """Items of one step: drawn masks or specs by their seeds, or one original's mutants."""

    step: Step
    of: Drawn | Original
    numbers: tuple[int, ...]

    def item(self, number: int) -> str:
        """The name of an item's line in the log."""
        of = self.of.name if isinstance(self.of, Original) else self.of
        return f"{self.step}/{of}/{number}"


def originals() -> Iterator[Original]:
    for kernel, key in SOURCES:
        yield Original(kernel, key)
    for kernel in TARGETS:
        built = {names["D"] for names in load_package(kernel).specialisations}
        for spec in list_specs():
            columns = fixed_head_size(spec_path(spec)) or "64"
            if columns in built:
                yield Original(kernel, f"bf16_{columns}", spec)


def tasks(source_mutants: int, target_mutants: int, masks: int, specs: int) -> Iterator[Task]:
    """All tasks, in the order in which they are worth most."""
    drawn: tuple[tuple[Drawn, int], ...] = (("mask", masks), ("spec", specs))
    for of, count in drawn:
        yield from _chunks("texts", of, count)
    for one in originals():
        count = target_mutants if one.spec is not None else source_mutants
        yield from _chunks("mutants", one, count)
    # In turn, so that a sweep that is cut off has run the same part of each.
    decks = [list(_chunks("decks", of, count)) for of, count in drawn]
    longest = max(map(len, decks))
    for at in range(longest):
        for of_one in decks:
            share = len(of_one) / longest
            yield from of_one[int(at * share) : int((at + 1) * share)]


def _chunks(step: Step, of: Drawn | Original, count: int) -> Iterator[Task]:
    for first in range(0, count, CHUNK):
        yield Task(step, of, tuple(range(first, min(first + CHUNK, count))))


def left(task: Task, done: Container[str]) -> Task | None:
    """The task without what is done; None where that is all."""
    numbers = tuple(n for n in task.numbers if task.item(n) not in done)
    return replace(task, numbers=numbers) if numbers else None
