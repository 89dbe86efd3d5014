"""What a time was measured on, and what else the machine did meanwhile, from /proc."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def described() -> dict[str, Any]:
    """The machine, and the commit that was measured (with + where files differ from it)."""
    import torch

    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "git": _git("--version").split()[-1],
        "commit": commit + ("+" if changed else ""),
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Ticks:
    """Processor time since the start, in clock ticks over all cores (see proc_stat(5))."""

    total: int
    idle: int
    steal: int

    @staticmethod
    def now() -> Ticks:
        fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
        return Ticks(sum(fields), fields[3] + fields[4], fields[7])


class Watched:
    """`with Watched() as seen: ...`, then `seen.found`: the load average before and after, and the
    shares of processor time that the host kept for others (steal) and that nothing used (idle)."""

    def __enter__(self) -> Watched:
        self._load, self._begin = os.getloadavg()[0], Ticks.now()
        return self

    def __exit__(self, *_: object) -> None:
        end, begin = Ticks.now(), self._begin
        whole = max(end.total - begin.total, 1)
        self.found = {
            "load_before": round(self._load, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "steal_percent": round(100 * (end.steal - begin.steal) / whole, 1),
            "idle_percent": round(100 * (end.idle - begin.idle) / whole, 1),
        }
