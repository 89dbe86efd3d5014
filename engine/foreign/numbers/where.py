"""Where an instruction stands for the author of a kernel: the line of the author's function, and
the lines of what is inlined there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.ptx.syntax import Instruction, Location, Module

_LINES = 12  # that are told one by one
_MOST = 0.5  # of a kernel's code: a call that holds more is all of the kernel, and no place in it


@dataclass(frozen=True, slots=True)
class Place:
    """Args:
    line: `a.cu:3`, or the PTX line where no other is known.
    inlined: the lines of functions that are called there, up to the instruction's own.
    """

    line: str
    inlined: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.line} (there {listed(self.inlined, self.line)})" if self.inlined else self.line
        )


Where = Callable[[Instruction], Place]


class Places:
    """The places of a module's instructions, in the person's own source where it has them."""

    def __init__(self, module: Module, source: Path) -> None:
        self._source, self._resolved = str(source), source.resolve()
        self._whole = frozenset(_whole(module))

    def __call__(self, at: Instruction) -> Place:
        if at.source is None:
            return Place(str(at))
        chain = at.source.chain()
        inside = [x for n, x in enumerate(chain) if n == 0 or x not in self._whole]
        lines = [self._line(x) for x in inside if self._own(x)] or list(map(str, inside))
        return Place(lines[-1], tuple(reversed(lines[:-1])))

    def _own(self, at: Location) -> bool:
        return Path(at.file).resolve() == self._resolved

    def _line(self, at: Location) -> str:
        return f"{self._source}:{at.line}"


def _whole(module: Module) -> Iterable[Location]:
    """Calls that hold most of a kernel."""
    for kernel in module.kernels.values():
        known = {id(x.source): x.source for x in kernel.code if x.source is not None}
        count = Counter(id(x.source) for x in kernel.code if x.source is not None)
        held: Counter[Location] = Counter()
        for key, at in known.items():
            held.update(dict.fromkeys(at.chain()[1:], count[key]))
        yield from (at for at, n in held.items() if n > _MOST * len(kernel.code))


def told_places(instructions: Iterable[Instruction], where: Where) -> str:
    """Their places, each line once, with the lines inlined there: `a.cu:3, 7 (there 21), b.h:9`. Of
    many the first that are given."""
    found: dict[str, set[str]] = {}
    for place in (where(at) for at in instructions if at.source is not None):
        found.setdefault(place.line, set()).update(place.inlined)
    lines = sorted(list(found)[:_LINES], key=_by_line)
    said = [f"{short} (there {listed(sorted(found[line], key=_by_line), line)})"
            if found[line] else short
            for line, short in zip(lines, _shortened(lines), strict=True)]  # fmt: skip
    left = len(found) - len(lines)
    return ", ".join(said) + (f" and {left} lines more" if left else "")


def listed(lines: Sequence[str], after: str = "") -> str:
    """Lines in their order, those of one file by their numbers: `a.cu:3, 7`; `3 to 7` of many."""
    out: list[list[str]] = []
    for line, short in zip(lines, _shortened(lines, after), strict=True):
        before = _by_line(out[-1][-1]) if out else ("", 0)
        if out and _by_line(line) == (before[0], before[1] + 1):
            out[-1].append(line)
        else:
            out.append([short, line])
    return ", ".join(_range(first, run) for first, *run in out)


def _range(first: str, run: Sequence[str]) -> str:
    numbers = [str(_by_line(line)[1]) for line in run[1:]]
    return f"{first} to {numbers[-1]}" if len(numbers) > 1 else ", ".join([first, *numbers])


def _shortened(lines: Sequence[str], after: str = "") -> list[str]:
    """Without the file where the one before is of the same."""
    files = [after.rpartition(":")[0], *(line.rpartition(":")[0] for line in lines)]
    return [line.rpartition(":")[2] if files[n] and files[n] == files[n + 1] else line
            for n, line in enumerate(lines)]  # fmt: skip


def _by_line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0
