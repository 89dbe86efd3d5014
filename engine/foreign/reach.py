"""Which functions and kernels a launcher reaches, and at which sizes it launches which.

A launcher asks the recorder for its launches in milliseconds: nothing is executed here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.build.machine_code.ptxas import kernel_name
from engine.build.tools.process import run
from engine.build.tools.toolchain import Toolchain, compiler_environ
from engine.errors import InputError
from engine.foreign.cases import LENGTHS, Case, complete
from engine.foreign.compile import Flags
from engine.foreign.functions import names_in, plain
from engine.foreign.includes import reached
from engine.foreign.launcher import Launcher
from engine.foreign.record import Endless
from engine.ptx.syntax import Kernel

MOST_KEYS = 4096  # of a case, so that executing it stays a matter of minutes
MOST_PRODUCTS = 1 << 31  # B Hq Nq Nk D of a case, likewise
_TRIED = 600  # calls of a launcher
_USUAL: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(LENGTHS, (1, 2, 5, 16, 17, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 257,
                               512, 1024, 1040, 2048, 4096)),
    **dict.fromkeys(("D", "Dv"), (8, 16, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256)),
    "Hq": (1, 2, 4, 8, 16, 32), "Hkv": (1, 2, 4, 8), "B": (1, 2, 3, 4, 8, 16),
}  # fmt: skip

Sizes = Mapping[str, int]


def preprocessed(source: Path, flags: Flags, tools: Toolchain, folder: Path) -> bytes:
    """What nvcc's preprocessor makes of a source, of the files of its own and of the include
    folders: macros replaced, and what conditions leave out left out.

    Raises:
        InputError: nvcc cannot preprocess it.
    """
    command = [str(tools.nvcc.path), "-E", f"-I{source.parent}", *flags.words(), str(source)]
    done = run(command, cwd=folder, environ=compiler_environ(), limit=600.0)
    if not done.ok:
        raise InputError(f"nvcc -E ended with {done.returncode}: {done.output.strip()[:200]}")
    own = {str(f) for f in reached(source, flags.includes)}
    kept: list[str] = []
    inside = True
    for line in done.output.splitlines():
        at = re.match(r'#(?:line)? \d+ "(.*?)"', line)
        if at:
            inside = str(Path(at[1]).resolve()) in own
        elif inside:
            kept.append(line)
    return "\n".join(kept).encode()


def reached_functions(texts: Iterable[bytes], launcher: str) -> set[str]:
    """The names of functions that the launcher reaches, itself left out: those that a function
    spells which is reached, or that stand outside of functions."""
    spelled: dict[str, set[str]] = {}
    for text in texts:
        for name, names in names_in(text):
            spelled.setdefault(name, set()).update(names)
    functions = {plain(launcher), "", *(name for name in spelled if name.startswith("operator"))}
    todo = list(functions)
    while todo:
        for name in spelled.get(todo.pop(), ()):
            if name in spelled and name not in functions:
                functions.add(name)
                todo.append(name)
    return functions - {plain(launcher), ""}


@dataclass(frozen=True, slots=True)
class Launches:
    """Which kernels are launched in which case.

    Args:
        of: the launched kernels by name, in a case; raises InputError where it launches none.
        allowed: whether the reference is defined at complete sizes.
        dtypes: element types that the launcher is not bound to by its own.
    """

    launcher: Launcher
    of: Callable[[Case], frozenset[str]]
    allowed: Callable[[Sizes], bool]
    dtypes: Sequence[str] = ()

    def never(self, kernels: Iterable[str], cases: Sequence[Case]) -> set[str]:
        """The kernels that no case launches."""
        left = set(kernels)
        for case in cases:
            left -= self.launched(case)
        return left

    def showing(self, left: set[str], cases: Sequence[Case], texts: Sequence[bytes]) -> list[Case]:
        """Cases that launch what is left, one for each kernel that some size was found for.

        Sizes are the usual ones and those near whole numbers that the source spells: of one case
        one dimension after the other is changed, then two together; small ones first, and before
        others those that end where the kernel's own lengths do: of whole tiles, if they are.
        """
        out: list[Case] = []
        tried: set[tuple[object, ...]] = set()
        for case in self._near(cases, texts):
            if not left or len(tried) == _TRIED:
                break
            key = (case.dtype, *sorted(complete(self.launcher, case.sizes).items()))
            if key in tried:
                continue
            tried.add(key)
            found = self.launched(case) & left
            if found:
                out.append(case)
                left = left - found
        return out

    def launched(self, case: Case) -> frozenset[str]:
        """The same; none, where the launcher does not take the case."""
        try:
            return self.of(case)
        except Endless:
            raise
        except InputError:  # a size that the launcher does not take
            return frozenset()

    def _near(self, cases: Sequence[Case], texts: Sequence[bytes]) -> Iterator[Case]:
        told = self.launcher.sizes
        numbers = {int(n) for t in texts for n in re.findall(rb"(?<![\w.])(\d{1,6})(?![\w.])", t)}
        near = sorted({m for n in numbers for m in (n - 1, n, n + 1) if m > 0})
        choices = {
            dim: sorted({*usual, *(near if dim in LENGTHS else numbers - {0})})
            for dim, usual in _USUAL.items() if dim in told
        }  # fmt: skip
        base = min(cases, key=lambda c: _products(complete(self.launcher, c.sizes)))
        types = ("", *(d for d in self.dtypes))
        one = [{}, *({d: n} for d, ns in choices.items() for n in ns)]
        groups = [one]
        groups += [[{a: m, b: n} for m in choices[a] for n in choices[b]]
                   for a, b in itertools.combinations(choices, 2)]  # fmt: skip
        whole = math.gcd(*(c.sizes[d] for c in cases for d in LENGTHS if d in c.sizes))
        steps = [whole >> n for n in range(whole.bit_length()) if whole >> n << n == whole]
        steps = list(dict.fromkeys((*steps, 1)))
        tries = itertools.chain.from_iterable(itertools.product(steps, g) for g in groups)
        for step, change in tries:
            if any(change[d] % step for d in LENGTHS if d in change):
                continue
            sizes = dict(base.sizes) | change
            if "Hq" in change and "Hkv" in sizes and "Hkv" not in change:
                sizes["Hkv"] = change["Hq"]  # the base's ratio need not divide another number
            every = complete(self.launcher, sizes)
            fits = every["Nk"] <= MOST_KEYS and _products(every) <= MOST_PRODUCTS
            if fits and every["Hq"] % max(every["Hkv"], 1) == 0 and self.allowed(every):
                yield from (Case(sizes, dtype=t) for t in types)


def _products(sizes: Sizes) -> int:
    out = 1
    for dim in ("B", "Hq", "Nq", "Nk", "D"):
        out *= max(sizes.get(dim, 1), 1)
    return out


def kernel_words(kernel: Kernel) -> str:
    """A kernel by its name in the source, and its line."""
    at = next((i.source for i in kernel.code if i.source is not None), None)
    name = kernel_name(kernel.name)
    if at is None:
        return name
    place = at.chain()[-1]
    return f"{name} at {Path(place.file).name}:{place.line}"
