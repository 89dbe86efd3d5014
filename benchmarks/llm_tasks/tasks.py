"""The tasks as typed data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.resources import spec_path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Ground:
    """What the tasks of a group are carried to, and how often each is asked. With `only` that one
    specialisation is built, else all of the kernel's."""

    kernel: str
    head_size: str
    samples: int = 1
    only: bool = False


SM80 = Ground("flash_fwd_sm80", "64")
GROUPS: Mapping[str, Ground] = {
    "paper": SM80,
    "unread": SM80,
    "instruction": SM80,
    "edit": Ground("flash_fwd_sm90", "128", samples=3, only=True),
}


@dataclass(frozen=True, slots=True)
class BenchTask:
    name: str  # with the sample's number behind it where the group has several
    group: str
    spec: Path
    held_out: bool
    words: str
    accept: str | None

    @property
    def ground(self) -> Ground:
        return GROUPS[self.group]


def load_tasks() -> tuple[BenchTask, ...]:
    """All tasks, each sample of a task as one, in the file's order."""
    data = tomllib.loads((HERE / "tasks.toml").read_text(encoding="utf-8"))
    out = []
    for group, ground in GROUPS.items():
        for name, row in data[group].items():
            spec = str(row["spec"])
            path = spec_path(spec[1:]) if spec.startswith("@") else HERE / "specs" / f"{spec}.py"
            samples = range(1, ground.samples + 1)
            out += [
                BenchTask(
                    name if ground.samples == 1 else f"{name}-{sample}", group, path,
                    bool(row.get("held_out", False)), str(row.get("words", "")), row.get("accept"),
                )
                for sample in samples
            ]  # fmt: skip
    return tuple(out)
