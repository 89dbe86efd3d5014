"""The tasks as typed data."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from engine.resources import spec_path

HERE = Path(__file__).resolve().parent
GROUPS = ("paper", "unread", "instruction")


@dataclass(frozen=True, slots=True)
class BenchTask:
    name: str
    group: str
    spec: Path
    held_out: bool
    words: str
    accept: str | None


def load_tasks() -> tuple[BenchTask, ...]:
    """All tasks, in the file's order."""
    data = tomllib.loads((HERE / "tasks.toml").read_text(encoding="utf-8"))
    out = []
    for group in GROUPS:
        for name, row in data[group].items():
            spec = str(row["spec"])
            path = spec_path(spec[1:]) if spec.startswith("@") else HERE / "specs" / f"{spec}.py"
            out.append(
                BenchTask(
                    name, group, path, bool(row.get("held_out", False)),
                    str(row.get("words", "")), row.get("accept"),
                )
            )  # fmt: skip
    return tuple(out)
