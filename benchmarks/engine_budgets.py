"""Benches of the engine's budgets (DESIGN: 2-core machine, p95 of at least 20 runs).

    python benchmarks/engine_budgets.py [--record] [--only NAME ...]

Every row is measured here and now; nothing is estimated. `--record` writes
benchmarks/results/engine.json with the machine's description.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.child.client import Child
from engine.cuir.printer import print_module
from engine.lift import lift, load_package
from engine.lift.lifter import lift_source
from engine.lower.legal import legal
from engine.lower.lower import lower
from engine.resources import specs_dir
from engine.spec.text import recipe_from_json
from engine.transfer.rules import apply, plan

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "engine.json"
RUNS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One budget: seconds at the median and the 95th percentile, and what the design allows."""

    name: str
    runs: int
    median: float
    p95: float
    budget: float
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.p95 <= self.budget


def timed(
    name: str, budget: float, work: Callable[[], object], runs: int = RUNS, note: str = ""
) -> Row:
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    seconds.sort()
    p95 = seconds[min(len(seconds) - 1, round(0.95 * (len(seconds) - 1)))]
    return Row(name, runs, round(seconds[len(seconds) // 2], 4), round(p95, 4), budget, note)


def long_source() -> bytes:
    """The bundled sm_80 kernel grown past 1,000 lines by repeating its epilogue statements."""
    source = load_package("flash_fwd_sm80").source
    line = b"  o = map(o, inverse, [&](float x, float r) { return x * r; });\n"
    assert line in source
    extra = 1000 - source.count(b"\n")
    return source.replace(line, line * (extra + 1))


@contextmanager
def empty_caches() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        yield os.environ | {"XDG_CACHE_HOME": folder, "CUBRIDGE_STORE": f"{folder}/store.git"}


def cubridge(*arguments: str, environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cubridge_tui", *arguments]
    subprocess.run(command, env=environ, check=True, capture_output=True)


def adapt(environ: dict[str, str]) -> None:
    cubridge(
        "adapt", "--kernel", "flash_fwd_sm80", "--spec", str(specs_dir() / "softcap_causal.py"),
        "--accept", "--json", environ=environ,
    )  # fmt: skip


def rows(only: list[str]) -> Iterator[Row]:
    def wanted(name: str) -> bool:
        return not only or name in only

    package = load_package("flash_fwd_sm80")
    lifted = lift(package, package.specialisations[-1])
    spec = specs_dir() / "softcap_causal.py"
    if wanted("version"):
        python = [sys.executable, "-c", ""]
        bare = timed("bare Python", 1e9, lambda: subprocess.run(python, check=True))
        yield timed(
            "--version", round(4 * bare.median, 4),
            lambda: cubridge("--version", environ=dict(os.environ)),
            note=f"bare Python {bare.median} s",
        )  # fmt: skip
    if wanted("lift"):
        source = long_source()
        binding = package.specialisations[-1]
        yield timed(
            "lift of a 1,000-line kernel", 0.5, lambda: lift_source(source, binding, "sm_80")
        )
    payload = {"path": str(spec), "options": {}}
    if wanted("recipe"):

        def cold() -> None:
            with Child() as fresh:
                fresh.call("recipe", payload)

        yield timed("recipe, cold", 8.0, cold)
    with Child() as child:
        answer = child.call("recipe", payload)
        if wanted("recipe"):
            yield timed("recipe, warm", 1.0, lambda: child.call("recipe", payload))
        recipe = recipe_from_json(answer["recipe"])
        planned = plan(lifted.module, recipe)

        def rules_and_lower() -> None:
            target = lifted.module
            for _, after in apply(lifted.module, plan(lifted.module, recipe).steps):
                target = after
            lower(lifted, legal(target))

        if wanted("rules"):
            yield timed("rules and lower", 0.5, rules_and_lower)
        target = lifted.module
        for _, after in apply(lifted.module, planned.steps):
            target = after
        reference = {"path": str(package.reference), "options": {}}
        own = child.call("recipe", reference)["recipe"]

        def both_gates() -> None:
            base = plan(lifted.module, recipe_from_json(own)).binding
            for module, spec_path, text, binding in (
                (lifted.module, reference["path"], own, base),
                (legal(target), payload["path"], answer["recipe"], planned.binding),
            ):
                found = child.call(
                    "judge",
                    {
                        "module": print_module(module), "recipe": text, "spec": spec_path,
                        "binding": binding.to_json(), "options": {},
                    },
                )  # fmt: skip
                assert found["ok"], found["reason"]

        if wanted("gates"):
            yield timed("G1 and G2 on the quick deck", 10.0, both_gates)
    if wanted("adapt"):

        def cold_adapt() -> None:
            with empty_caches() as environ:
                adapt(environ)

        yield timed("adapt softcap_causal, nothing cached", 60.0, cold_adapt, runs=5, note="5 runs")
        with empty_caches() as environ:
            adapt(environ)
            yield timed("adapt softcap_causal, build cached", 10.0, lambda: adapt(environ))


def machine() -> dict[str, object]:
    import torch

    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": os.getloadavg()[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    done = []
    for row in rows(args.only):
        done.append(row)
        mark = "ok  " if row.holds else "OVER"
        print(
            f"{mark} {row.name:<40} p95 {row.p95:8.3f} s  budget {row.budget:g} s  {row.note}",
            flush=True,
        )
    if args.record:
        text = json.dumps({"machine": machine(), "rows": [asdict(r) for r in done]}, indent=2)
        RESULTS.write_text(text + "\n")
    return 0 if all(row.holds for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
