"""Everything that is drawn at random, judged: mutants, specs and masks, on both kernels.

    python -m benchmarks.sweep run [--log FILE] [--jobs N] [--seconds S] [--only STEP ...]
                                      [--again OUTCOME ...]
    python -m benchmarks.sweep record [--log FILE]
    python -m benchmarks.sweep pack FOLDER

`run` goes on where an earlier one stopped; each item is a line of the log. Drawn specs and masks
are compiled first (`texts`), then mutants are judged, then the decks run. `record` writes the sums,
each survivor and refusal by kind and the log's hash to benchmarks/results/sweep.json. `pack` writes
a folder that runs where there is Python, torch and nvcc: `python3 FOLDER/run.py run`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from pathlib import Path

from benchmarks.sweep.packing import pack
from benchmarks.sweep.record import write_record
from benchmarks.sweep.tasks import Original, tasks

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sweep.json"
LOG = ROOT / "build" / "sweep.jsonl"
JUDGING = ("engine", "kernels", "benchmarks/sweep", "tests/engine/lower", "tests/engine/lift",
           "tests/engine/spec", "tests/mutants")  # fmt: skip


def tree() -> str:
    """What a verdict depends on: the code that judges, the kernels, and what draws."""
    digest = hashlib.sha256()
    for folder in JUDGING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--log", type=Path, default=LOG)
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("--seconds", type=float, default=math.inf)
    run.add_argument("--only", nargs="*", default=(), help="steps, or words of what is judged")
    run.add_argument("--again", nargs="*", default=(), help="outcomes that are judged anew")
    run.add_argument("--source-mutants", type=int, default=30, help="of each of 5 sources")
    run.add_argument("--target-mutants", type=int, default=14, help="of each bundled target")
    run.add_argument("--masks", type=int, default=1000)
    run.add_argument("--specs", type=int, default=2000)
    recorded = commands.add_parser("record")
    recorded.add_argument("--log", type=Path, default=LOG)
    packed = commands.add_parser("pack")
    packed.add_argument("folder", type=Path)
    packed.add_argument("--log", type=Path, default=LOG)
    asked = parser.parse_args()
    if asked.command == "pack":
        pack(ROOT, asked.folder, asked.log)
    elif asked.command == "record":
        return write_record(asked.log, RESULTS)
    else:
        return _run(asked)
    return 0


def _run(asked: argparse.Namespace) -> int:
    from benchmarks.sweep.pool import sweep

    end = time.monotonic() + asked.seconds
    wanted = [
        task
        for task in tasks(asked.source_mutants, asked.target_mutants, asked.masks, asked.specs)
        if not asked.only
        or task.step in asked.only
        or any(
            word in (task.of.name if isinstance(task.of, Original) else task.of)
            for word in asked.only
        )
    ]
    done = sweep(wanted, asked.log, asked.jobs, end, tree(), asked.again)
    print(f"{done} items are in {asked.log}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
