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
        block: its blockIdx, without the last dimensions in which the grid has one block; none:
            no block in particular.
        thread: its threadIdx, likewise.
        other: the instruction on the other side of a race or of an early read.
    """

    kind: str
    at: Instruction
    words: str
    block: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    other: Instruction | None = None

    @property
    def who(self) -> str:
        """Which thread, in words."""
        return f"block {_words(self.block)}, thread {_words(self.thread)}" if self.block else ""

    def __str__(self) -> str:
        where = self.at.source or f"PTX line {self.at.line}"
        text = f"{where}: {self.kind}: {self.words}"
        text += f" ({self.who})" if self.who else ""
        if self.other is not None:
            there = self.other.source or f"PTX line {self.other.line}"
            text += f"; the other access: {there} ({self.other.opcode})"
        return text


def _words(index: tuple[int, ...]) -> str:
    return str(index[0] if len(index) == 1 else index)


KINDS = {
    "out of bounds": "an address outside of every tensor, or of the shared or local memory",
    "misaligned": "an address that is no multiple of the access's size",
    "race": "two accesses of which one writes, and no barrier or wait orders them",
    "early read": "a copy or matmul had not been waited for, or by its own warp alone",
    "missing proxy fence": "the asynchronous proxy reads what no fence.proxy.async made visible",
    "missing wgmma fence": "a matmul takes registers that were written since the last wgmma.fence",
    "no tensor map": "a bulk copy is given an address at which no tensor map is, or none may be",
    "refused launch": "dimensions, threads, shared memory or registers that no launch can have",
    "too many resources": "warps whose registers do not fit together into a block",
    "input written": "an input of the launcher is another one after it",
    "undefined value": "a value that nothing wrote decides an address, a branch or an output",
    "deadlock": "no thread can go on",
    "divergent collective": "not all of a warp, or of a mask, came to what they execute together",
    "trap": "the kernel stopped itself: a trap or a failed device assertion",
    "barrier misuse": "an mbarrier or a barrier is used in a way that the ISA leaves undefined",
}


class Findings:
    """Collects findings of a launch; of one kind at one line, inlined at the same lines, the first
    is kept."""

    def __init__(self, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
        self.grid, self.block = grid, block
        self.found: dict[tuple[str, Location | int], Finding] = {}

    def add(
        self, kind: str, at: Instruction, words: str, who: tuple[int, int] | None = None,
        other: Instruction | None = None,
    ) -> None:  # fmt: skip
        """Args:
        who: the block's number in the grid, and the thread's in the block.
        """
        if len(self.found) < MOST:
            dims = zip(who or (), (self.grid, self.block), strict=False)
            block, thread = [_index(*x) for x in dims] or [(), ()]
            finding = Finding(kind, at, words, block, thread, other)
            self.found.setdefault((kind, at.source or at.line), finding)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.found.values())

    def __len__(self) -> int:
        return len(self.found)


def _index(number: int, dims: tuple[int, ...]) -> tuple[int, ...]:
    """A number as an index of these dimensions, the first one fastest."""
    used = max((k for k, size in enumerate(dims) if size > 1), default=0) + 1
    out = []
    for size in dims[:used]:
        out.append(number % size)
        number //= size
    return tuple(out)
