"""What the machine reports of a kernel, each at the source line where it happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.ptx.syntax import Instruction, Location

MOST = 20  # findings of a launch that are kept: what follows from the first ones helps nobody


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: a key of `KINDS`.
        at: the instruction.
        words: what happened there, with the memory, bytes and threads concerned.
        block: the block's number in the grid; -1: no block in particular.
        thread: the thread's number in its block; -1: no thread in particular.
        other: the instruction on the other side of a race or of an early read.
    """

    kind: str
    at: Instruction
    words: str
    block: int = -1
    thread: int = -1
    other: Instruction | None = None

    def told(self, folder: str) -> str:
        """The finding at the line of a file below `folder`, then the way from there."""
        text = str(self)
        inner = self.at.source
        if inner is None or (own := inner.within(folder)) == inner:
            return text
        way = inner.chain()
        path = " in ".join(map(str, way[: way.index(own)]))
        return f"{own}{text[len(str(inner)) :]}\n    inlined from {path}"

    def __str__(self) -> str:
        where = self.at.source or f"PTX line {self.at.line}"
        who = f" (block {self.block}, thread {self.thread})" if self.block >= 0 else ""
        text = f"{where}: {self.kind}: {self.words}{who}"
        if self.other is not None:
            there = self.other.source or f"PTX line {self.other.line}"
            text += f"; the other access: {there} ({self.other.opcode})"
        return text


KINDS = {
    "out of bounds": "an address outside of every tensor, or of the shared or local memory",
    "misaligned": "an address that is no multiple of the access's size",
    "race": "two accesses of which one writes, and no barrier or wait orders them",
    "early read": "an asynchronous copy or matmul had not been waited for",
    "missing proxy fence": "the asynchronous proxy reads what no fence.proxy.async made visible",
    "missing wgmma fence": "a matmul takes registers that were written since the last wgmma.fence",
    "too many resources": "threads, shared memory or registers that a block cannot have",
    "input written": "an input of the launcher is another one after it",
    "undefined value": "a value that nothing wrote decides an address, a branch or an output",
    "deadlock": "no thread can go on",
    "divergent collective": "not all of a warp, or of a mask, came to what they execute together",
    "trap": "the kernel stopped itself: a trap or a failed device assertion",
    "barrier misuse": "an mbarrier or a barrier is used in a way that the ISA leaves undefined",
}


class Findings:
    """Collects findings; of one kind at one line, inlined at the same lines, the first is kept."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, Location | int], Finding] = {}

    def add(self, finding: Finding) -> None:
        key = (finding.kind, finding.at.source or finding.at.line)
        if len(self.found) < MOST:
            self.found.setdefault(key, finding)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found.values())

    def __len__(self) -> int:
        return len(self.found)
