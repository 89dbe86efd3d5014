"""How far a build is and how long it will take, from what ninja wrote down of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engine.build.folder.units import arch_flags

_LOOKED_AT = 32  # folders of the cache, the ones used last
_LEAST = 10.0  # seconds that are worth telling


def earlier_seconds(root: Path, arch: str) -> dict[str, float]:
    """How long each specialisation took to compile for `arch` when it was last compiled."""
    used: list[tuple[float, Path]] = []
    for entry in root.iterdir() if root.is_dir() else ():
        with suppress(OSError):
            used.append(((entry / ".lock").stat().st_mtime, entry))
    out: dict[str, float] = {}
    flags = f"flags = {' '.join(arch_flags(arch))} "
    for _, folder in sorted(used, reverse=True)[:_LOOKED_AT]:
        with suppress(OSError, UnicodeDecodeError):
            if flags in (folder / "build.ninja").read_text():
                out = _logged((folder / ".ninja_log").read_text()) | out
    return out


def _logged(log: str) -> dict[str, float]:
    """Seconds by specialisation: a line is start and end in milliseconds, a time, the output."""
    out: dict[str, float] = {}
    for line in log.split("\n"):
        fields = line.split("\t")
        if len(fields) > 3 and fields[3].endswith(".o") and "/" not in fields[3]:
            with suppress(ValueError):
                out[fields[3].removesuffix(".o")] = (int(fields[1]) - int(fields[0])) / 1000
    return out


class Pace:
    """Specialisations that are being compiled, `jobs` of them at a time.

    `earlier` has seconds of earlier builds; one that is not in it is taken to be as the others.
    """

    def __init__(self, keys: Sequence[str], jobs: int, earlier: dict[str, float]) -> None:
        known = [earlier[key] for key in keys if key in earlier]
        usual = sum(known) / len(known) if known else 1.0
        self._left = {key: max(earlier.get(key, usual), 0.001) for key in keys}
        self._whole, self._count = sum(self._left.values()), len(keys)
        # Before the first has ended only earlier builds tell anything.
        longest = max(self._left.values(), default=0.0)
        self._begin = max(self._whole / jobs, longest) if known else None

    @property
    def going(self) -> bool:
        """Whether any is still to be compiled."""
        return bool(self._left)

    def ended(self, key: str) -> None:
        """One is compiled."""
        self._left.pop(key, None)

    def words(self, elapsed: float) -> str:
        """How far it is, `elapsed` seconds after its beginning: `3 of 10 compiled, about ...`."""
        if not self._count:  # what is compiled again was there before
            return "compiling again"
        work = sum(self._left.values())
        done = self._whole - work
        left = self._begin - elapsed if self._begin is not None else None
        if done > 0:
            left = work * elapsed / done
        told = f", about {_about(left)} left" if left is not None and left >= _LEAST else ""
        return f"{self._count - len(self._left)} of {self._count} compiled{told}"


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{round(seconds / 10) * 10} s"
    return f"{round(seconds / 60)} min"
