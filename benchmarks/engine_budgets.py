"""Benches of the engine's budgets: the 95th percentile of at least 20 runs on a 2-core machine.

    python benchmarks/engine_budgets.py [--only NAME ...] [--record] [--list]
    python benchmarks/engine_budgets.py --only lift --runs 3       # to try a row; never recorded

Every row is measured here and now; nothing is estimated. `--record` puts each row into
benchmarks/results/engine.json as soon as it is there, and leaves the other rows of that file as
they are, so that rows may be measured one by one. Each says the machine, the commit, the load and
the share of processor time that the host took away. Exits 1 when a budget is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.machine_state import Watched, described  # noqa: E402
from engine.child.client import Child  # noqa: E402
from engine.lift import lift, load_package  # noqa: E402
from engine.lift.files.lifter import lift_source  # noqa: E402
from engine.lift.names.catalogue import default_catalogue  # noqa: E402
from engine.lower.lower import lower  # noqa: E402
from engine.lower.spelling.legal import legal  # noqa: E402
from engine.resources import specs_dir  # noqa: E402
from engine.spec.recipes.recipe_json import recipe_from_json  # noqa: E402
from engine.transfer.rules import apply, plan  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "engine.json"
RUNS = 20
KERNEL, SPEC = "flash_fwd_sm80", "softcap_causal"
Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """One budget: seconds at the median and the 95th percentile, and what the design allows."""

    name: str
    title: str
    runs: int
    median: float
    p95: float
    worst: float
    budget: float
    around: dict[str, float]
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.p95 <= self.budget


def nearest_rank(seconds: list[float], share: float) -> float:
    """The percentile by nearest rank: of 20 values, the 95th is the second largest."""
    return sorted(seconds)[max(math.ceil(share * len(seconds)) - 1, 0)]


def measured(work: Work, runs: int) -> list[float]:
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


# --- what is measured: each gives the work to time, set up and taken down around it ---------------


@contextmanager
def version() -> Iterator[Work]:
    yield lambda: cubridge("--version", environ=dict(os.environ))


def bare_python() -> object:
    return subprocess.run([sys.executable, "-c", ""], check=True)


@contextmanager
def lifting() -> Iterator[Work]:
    """The bundled sm_80 kernel grown past 1,000 lines by repeating its epilogue statements."""
    package = load_package(KERNEL)
    line = b"  o = map(o, inverse, [&](float x, float r) { return x * r; });\n"
    assert line in package.source
    extra = 1000 - package.source.count(b"\n")
    source = package.source.replace(line, line * (extra + 1))
    # Anew each time: by the catalogue that it takes unasked, a text is lifted once in a process.
    catalogue, one = default_catalogue(), package.specialisations[-1]
    yield lambda: lift_source(source, one, "sm_80", catalogue=catalogue)


@contextmanager
def recipe_cold() -> Iterator[Work]:
    """A fresh torch child for each: starting Python and loading torch are part of it."""

    def work() -> None:
        with Child() as fresh:
            fresh.call("recipe", {"path": str(spec(SPEC)), "options": {}})

    yield work


@contextmanager
def recipe_warm() -> Iterator[Work]:
    payload = {"path": str(spec(SPEC)), "options": {}}
    with Child() as child:
        child.call("recipe", payload)
        yield lambda: child.call("recipe", payload)


@contextmanager
def rules_and_lower() -> Iterator[Work]:
    package = load_package(KERNEL)
    lifted = lift(package, package.specialisations[-1])
    with Child() as child:
        answer = child.call("recipe", {"path": str(spec(SPEC)), "options": {}})
    recipe = recipe_from_json(answer["recipe"])

    def work() -> None:
        target = lifted.module
        for _, after in apply(lifted.module, plan(lifted.module, recipe).steps):
            target = after
        lower(lifted, legal(target))

    yield work


@contextmanager
def gates(kernel: str, asked: str) -> Iterator[Work]:
    """G1 and G2 as a session gives them, in a warm torch child."""
    from engine.service.session.adaptation import Adaptation, start
    from engine.service.session.session_options import choose_options
    from engine.service.session.workbench import Bench, find_kernel
    from engine.types import VerdictKind
    from sessions.store import Store

    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "store.git")
        with Bench(store) as bench:
            package = find_kernel(kernel)
            session = start(bench, package, spec(asked), choose_options(package), "bench")
            with store.writer(session) as writer:
                adaptation = Adaptation(bench, writer, "bench")
                adaptation.lift()
                adaptation.accept_all(adaptation.propose_by_rules())

                def work() -> None:
                    for verdict in (adaptation.weigh_lifted(), adaptation.weigh_target()):
                        assert verdict.kind is VerdictKind.PASS, verdict.reason

                yield work


@contextmanager
def adapt_cold() -> Iterator[Work]:
    """The whole command on a machine that has built nothing."""

    def work() -> None:
        with empty_caches() as environ:
            adapt(environ)

    yield work


@contextmanager
def adapt_cached() -> Iterator[Work]:
    with empty_caches() as environ:
        adapt(environ)
        yield lambda: adapt(environ)


@contextmanager
def nvcc(kernel: str, arch: str) -> Iterator[Work]:
    """One specialisation (bf16, D 128) as G3 compiles it, into an empty cache each time."""
    from engine.build.build import build
    from engine.build.tools.toolchain import find_toolchain

    package = load_package(kernel)
    fields = [
        (f.name, f.type) for f in lift(package, package.specialisation("bf16_128")).module.fields
    ]
    toolchain = find_toolchain(os.environ)

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            made = build(
                package.source, package.headers, package.entry, ["bf16_128"], arch, toolchain,
                cache=Path(folder), fields=fields, compile_only=True,
            )  # fmt: skip
            assert made.ok and made.compiled == 1, made.log

    yield work


@contextmanager
def grown_session() -> Iterator[tuple[Any, str, int, Callable[[], None]]]:
    """A store with a session of 1,000 events, its id, its count, and one more save to it."""
    from benchmarks.store import round_of_work
    from benchmarks.store import session_of_a_thousand as grown

    with tempfile.TemporaryDirectory() as folder, grown(Path(folder)) as (store, session, writer):
        saves = iter(save for version in range(1000, 10000) for save in round_of_work(version))

        def save() -> None:
            bodies, blobs = next(saves)
            writer.append(bodies, blobs, actor="engine")

        yield store, session, writer.state.count, save


@contextmanager
def saving() -> Iterator[Work]:
    """An event (every fifth with a 1,000-line kernel) to a session of 1,000 events."""
    with grown_session() as (_, _, _, save):
        yield save


@contextmanager
def opening() -> Iterator[Work]:
    """In this process, which has the store's modules; benchmarks/store.py has a fresh one too."""
    with grown_session() as (store, session, count, _):

        def work() -> None:
            assert store.load(session).state.count == count

        yield work


# --- the commands ---------------------------------------------------------------------------------


def spec(name: str) -> Path:
    return specs_dir() / f"{name}.py"


@contextmanager
def empty_caches() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        yield os.environ | {"XDG_CACHE_HOME": folder, "CUBRIDGE_STORE": f"{folder}/store.git"}


def cubridge(*arguments: str, environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cubridge_tui", *arguments]
    subprocess.run(command, env=environ, cwd=ROOT, check=True, capture_output=True)


def adapt(environ: dict[str, str]) -> None:
    cubridge(
        "adapt", "--kernel", KERNEL, "--spec", str(spec(SPEC)), "--accept", "--json",
        environ=environ,
    )  # fmt: skip


# --- the rows -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    title: str
    budget: float
    setup: Callable[[], AbstractContextManager[Work]]


BENCHES = {
    # Four times what bare Python takes in the same run.
    "version": Bench("--version", math.nan, version),
    "lift": Bench("lift of a 1,000-line kernel", 0.5, lifting),
    "recipe-cold": Bench("recipe, cold", 8.0, recipe_cold),
    "recipe-warm": Bench("recipe, warm", 1.0, recipe_warm),
    "rules": Bench("rules and lower", 0.5, rules_and_lower),
    "gates": Bench(f"G1 + G2, {SPEC} on {KERNEL}", 10.0, lambda: gates(KERNEL, SPEC)),
    "gates-lists": Bench(
        "G1 + G2, causal_document on flash_fwd_sm90", 10.0,
        lambda: gates("flash_fwd_sm90", "causal_document"),
    ),
    "nvcc-sm80": Bench(
        "nvcc, one specialisation, sm_80, D 128", 15.0, lambda: nvcc("flash_fwd_sm80", "sm_80")
    ),
    "nvcc-sm90a": Bench(
        "nvcc, one specialisation, sm_90a, D 128", 40.0, lambda: nvcc("flash_fwd_sm90", "sm_90a")
    ),
    "adapt-cold": Bench(f"adapt {SPEC}, nothing cached", 60.0, adapt_cold),
    "adapt-cached": Bench(f"adapt {SPEC}, build cached", 10.0, adapt_cached),
    "save": Bench("saving an event", 0.050, saving),
    "open": Bench("opening a session of 1,000 events", 0.5, opening),
}  # fmt: skip


def measure(name: str, runs: int) -> Row:
    bench = BENCHES[name]
    budget, note = bench.budget, ""
    with bench.setup() as work, Watched() as seen:
        if name == "version":
            bare = nearest_rank(measured(bare_python, runs), 0.5)
            budget, note = round(4 * bare, 4), f"bare Python {bare:.4f} s"
        seconds = measured(work, runs)
    return Row(
        name, bench.title, runs, round(nearest_rank(seconds, 0.5), 4),
        round(nearest_rank(seconds, 0.95), 4), round(max(seconds), 4), budget, seen.found, note,
    )  # fmt: skip


def record(row: Row, machine: dict[str, Any]) -> None:
    """Put the row into the results, in the place of an earlier one of its name."""
    try:
        found = {r["name"]: r for r in json.loads(RESULTS.read_text())["rows"]}
    except FileNotFoundError:
        found = {}
    found[row.name] = {**asdict(row), "holds": row.holds, "machine": machine}
    rows = [found[name] for name in BENCHES if name in found]
    method = f"wall time of each run, 95th percentile by nearest rank of {RUNS} runs or more"
    RESULTS.write_text(json.dumps({"method": method, "rows": rows}, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(BENCHES), default=[])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--list", action="store_true", help="the rows and their budgets")
    parser.add_argument("--runs", type=int, default=RUNS)
    args = parser.parse_args()
    if args.list:
        for name, bench in BENCHES.items():
            print(f"{name:<13} {bench.title}")
        return 0
    if args.record and args.runs < RUNS:
        parser.error(f"a budget is the 95th percentile of at least {RUNS} runs: none is recorded")
    # Children write their bytecode as they do for a person; this process may be told otherwise.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    machine = described()
    missed = False
    for name in args.only or BENCHES:
        row = measure(name, args.runs)
        missed = missed or not row.holds
        print(
            f"{'ok  ' if row.holds else 'OVER'} {row.title:<44} median {row.median:8.3f} s  "
            f"p95 {row.p95:8.3f} s  budget {row.budget:g} s  steal "
            f"{row.around['steal_percent']:g}%  load {row.around['load_after']:g}  {row.note}",
            flush=True,
        )
        if args.record:
            record(row, machine)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
