"""Generated specs: each is read or refused with a reason, and no recipe is false.

    python -m benchmarks.spec_grammar --count 2000 --out benchmarks/results/spec_grammar.json

A recipe that is read is held against the spec's own function at sizes of all remainders. Exits 1
where a recipe is false, an error is an internal one, or a refusal gives no reason. With --minutes
the run ends there; the record says how many specs were run.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch

from tests.engine.spec.spec_grammar import Outcome, outcome_of

FAULTS = ("false", "internal", "misread")


def timed(seed: int, folder: Path, runs: int) -> tuple[int, Outcome, float]:
    torch.set_num_threads(1)
    began = time.process_time()
    return seed, outcome_of(seed, folder, runs), time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=8, help="sizes at which each recipe is held")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.count)
    kinds: Counter[str] = Counter()
    refusals: dict[int, str] = {}
    faults: dict[int, str] = {}
    seconds: list[float] = []
    end = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(asked.jobs) as pool:
        work = partial(timed, folder=Path(folder), runs=asked.runs)
        for seed, found, took in pool.map(work, seeds):
            kinds[found.kind] += 1
            seconds.append(took)
            if found.kind != "read":
                (faults if found.kind in FAULTS else refusals)[seed] = found.words
                print(f"{seed} {found.kind}: {found.words[:200]}", flush=True)
            if time.monotonic() > end:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    seconds.sort()
    result = {
        "specs": len(seconds),
        "asked_for": len(seeds),
        "first": asked.first,
        "sizes_each": asked.runs,
        "outcomes": dict(kinds),
        "cpu_seconds_with_checks": {
            "median": round(seconds[len(seconds) // 2], 3),
            "p95": round(seconds[int(len(seconds) * 0.95)], 3),
        },
        "faults": faults,
        "refusals": refusals,
    }
    print(json.dumps({k: v for k, v in result.items() if k != "refusals"}))
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
