"""What a launch of a kernel allows its warpgroups, and what they were seen to ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.cuir.arch import WARPGROUP_THREADS, Arch
from engine.cuir.nodes import Path
from engine.cuir.ops.traits import NAMED_BARRIERS, REALLOCATIONS
from engine.cuir.types import BarriersType, Scalar, SharedType, Type, WordsType

Report = Callable[[str, Path, str], None]
"""Kind of a finding, where, and its words."""


@dataclass(slots=True)
class Launch:
    """What one launch of a kernel fixes, and what its warpgroups were seen to do.

    `shared` are the dynamic shared bytes that it asks for, None where they are not known, and
    `lost` those of them that may go in rounding the start up. `group` is the warpgroup that is
    followed now. By warpgroup: its registers per thread and where they were asked for; by named
    barrier: the thread counts of its users and where each stands.
    """

    shared: int | None
    lost: int = 0
    registers: dict[int, tuple[int, Path]] = field(default_factory=dict)
    named: dict[int, dict[int, Path]] = field(default_factory=dict)
    group: int | None = None

    def saw(self, op: str, args: list[Type], found: Type, path: Path, report: Report) -> None:
        """Take in an op at `path`: its operands where it is one of those, and its result."""
        known = [number(a) for a in args]
        if op in REALLOCATIONS:
            if self.group is not None and known[0] is not None:
                self.registers[self.group] = (known[0], path)
        elif op in NAMED_BARRIERS:
            if None not in known:
                self.named.setdefault(known[0] or 0, {}).setdefault(known[1] or 0, path)
        elif isinstance(found, SharedType | BarriersType | WordsType) and found.offset is not None:
            end = found.offset + found.bytes
            if self.shared is not None and end > self.shared - self.lost:
                report("out_of_bounds", path, past_end(end, self.shared, self.lost))

    def judge(
        self, arch: Arch, threads: int | None, blocks: int, groups: int, report: Report
    ) -> None:
        """Registers after reallocation, and the users of each named barrier."""
        for id, users in self.named.items():
            if len(users) > 1:
                told = ", ".join(str(n) for n in sorted(users))
                for where in users.values():
                    report(
                        "wrong_named_count",
                        where,
                        f"the users of named barrier {id} disagree: {told} threads",
                    )
        if not self.registers or not threads:
            return
        base = arch.registers_at_launch(threads, blocks)
        now = {g: self.registers.get(g, (base, ()))[0] for g in range(groups)}
        if sum(now.values()) > base * groups:
            for group, (count, where) in self.registers.items():
                if count > base:
                    report(
                        "registers_over_file", where,
                        f"warpgroup {group} takes {count} registers per thread; together they take "
                        f"{sum(now.values()) * WARPGROUP_THREADS}, and the block starts with "
                        f"{base * threads} ({base} for each of {threads} threads)",
                    )  # fmt: skip


def past_end(end: int, shared: int, lost: int) -> str:
    """What ends past the launch's shared memory, in words; sizes in bytes, see `Launch`."""
    asked = f"ends at byte {end} of shared memory, and the launch asks for {shared}"
    return f"{asked}, of which up to {lost} go in rounding its start up" if lost else asked


def number(value: Type) -> int | None:
    """The whole number that a value is known to be."""
    return int(value.value) if isinstance(value, Scalar) and value.value is not None else None
