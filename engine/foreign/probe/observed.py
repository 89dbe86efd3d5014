"""A kernel compiled with observations in its source; what does not compile is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.build.tools.toolchain import Toolchain
from engine.errors import InputError
from engine.foreign.check import Asked
from engine.foreign.compile import Compiled, DoesNotCompile, compile_again
from engine.foreign.includes import read_included
from engine.foreign.launcher import Launcher
from engine.foreign.overlay import below, overlaid
from engine.foreign.probe.boundaries import Boundary

HELPER = Path(__file__).with_name("observe.cuh")
_ERROR = re.compile(r"^(\S[^\n(]*)\((\d+)\): (?:catastrophic )?error", re.MULTILINE)
_WITHIN = re.compile(r"at line (\d+) of (\S+)")
_TRIES = 12
_ALL_ERRORS = ("-Xcudafe", "--error_limit=100000")  # at once: nvcc ends after a hundred
# What observations make large stays inline: the machine executes no calls.
_INLINE = b"__attribute__((always_inline)) "


@dataclass(frozen=True, slots=True)
class Look:
    """One observation: `expression` at a boundary.

    Args:
        how: `look` (a variable's bytes), `number` (one number) or `change` (may be written).
    """

    at: Boundary
    expression: str
    how: str = "look"

    def text(self, number: int) -> str:
        return f"\ncubridge::{self.how}<{number}>({self.expression});\n"


@dataclass(frozen=True, slots=True)
class Observed:
    """The compiled kernel; observation number n is `looks[n]`, `None` where it did not compile."""

    compiled: Compiled
    looks: tuple[Look | None, ...]


def compile_observed(
    asked: Asked, entry: Launcher, looks: Sequence[Look], tools: Toolchain, base: Compiled,
    folder: Path,
) -> Observed:  # fmt: skip
    """Compiles the kernel with observations, without those that do not compile.

    Args:
        base: the kernel as it is, whose program records the launches.

    Raises:
        InputError: the source itself does not compile.
    """
    left: list[Look | None] = list(looks)
    paths = below(asked)
    for _ in range(_TRIES):
        texts, lines = _inserted(paths, left)
        changed = overlaid(asked, texts, folder / "overlay")
        more = (*(changed.flags.more or ("-std=c++17",)), "-include", str(HELPER), *_ALL_ERRORS)
        flags = replace(changed.flags, more=more)
        try:
            compiled = compile_again(base, changed.source, entry, flags, tools, folder)
        except DoesNotCompile as error:
            bad = _blamed(error.output, folder / "overlay", lines)
            if not bad:
                raise
            # A name that is no number at one place of a function is none at its others: nvcc says
            # so once.
            kinds = {_kind(left[number]) for number in bad} - {None}
            for number, look in enumerate(left):
                if number in bad or _kind(look) in kinds:
                    left[number] = None
        else:
            return Observed(compiled, tuple(left))
    raise InputError(f"{asked.source.name} does not compile with observations in it")


def _kind(look: Look | None) -> tuple[Path, str, str] | None:
    """What numbers have in common that are spelled alike in one function."""
    if look is None or look.how != "number":
        return None
    return look.at.file, look.at.function, look.expression


Lines = dict[tuple[Path, int], int]  # by a file's path below the overlay


def _inserted(
    paths: Mapping[Path, Path], looks: Sequence[Look | None]
) -> tuple[dict[Path, bytes], Lines]:
    """Each file with its observations, and which of them stands in which line of it."""
    by_file: dict[Path, list[tuple[int, int, Look]]] = {}
    for number, look in enumerate(looks):
        if look is not None:
            by_file.setdefault(look.at.file, []).append((look.at.after, number, look))
    texts: dict[Path, bytes] = {}
    lines: Lines = {}
    for file, wanted in by_file.items():
        new = [(after, number, look.text(number).encode()) for after, number, look in wanted]
        new += [(n, -1, _INLINE) for n in {n for _, _, look in wanted for n in look.at.inline}]
        source, parts, done, line = read_included(file), [], 0, 1
        for after, number, text in sorted(new):
            before = source[done:after]
            line += before.count(b"\n")
            if number >= 0:
                lines[paths[file], line + 1] = number
            line += text.count(b"\n")
            parts += [before, text]
            done = after
        texts[file] = b"".join([*parts, source[done:]])
    return texts, lines


def _blamed(output: str, folder: Path, lines: Lines) -> set[int]:
    """The observations that errors are of; those nearest to an error, where it is of none."""
    found = [(Path(f), int(n)) for f, n in _ERROR.findall(output)]
    found += [(Path(f.strip("\"'")), int(n)) for n, f in _WITHIN.findall(output)]
    here = folder.resolve()
    whole = [(f.resolve(), n) for f, n in found]
    own = [(f.relative_to(here), n) for f, n in whole if f.is_relative_to(here)]
    bad = {lines[at] for at in own if at in lines}
    if bad:
        return bad
    return {lines[f, n + d] for f, n in own for d in (-2, -1, 1, 2) if (f, n + d) in lines}
