"""How fast the session store saves, opens and lists: `python benchmarks/store.py [--record]`.

Budgets (p95 of at least 20 runs): saving an event < 50 ms; opening a session of 1,000 events
< 0.5 s, in this process and in a fresh one that still has to import git. Exits 1 when a budget is
missed; `--record` writes benchmarks/results/store.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine.types import (  # noqa: E402
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Origin,
    Proposal,
    Stage,
    Verdict,
    VerdictKind,
    sha256_of,
)
from sessions.events import (  # noqa: E402
    ArtifactSet,
    Body,
    HunkDecided,
    ProposalMade,
    SessionCreated,
    VerdictGiven,
)
from sessions.store import Store  # noqa: E402
from sessions.writer import Writer  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "store.json"
RUNS = 20
SAVE_BUDGET = 0.050
OPEN_BUDGET = 0.5

FRESH = """
import sys, time
begin = time.perf_counter()
from sessions.store import Store
session = Store.open(sys.argv[1]).load(sys.argv[2])
assert session.state.count == int(sys.argv[3])
print(time.perf_counter() - begin)
"""


def kernel(version: int) -> Artifact:
    """A lowered kernel of 1,000 lines that differs from its neighbours in a few of them."""
    lines = [f"  acc[{n}] = fmaf(p[{n % 64}], v[{n % 128}], acc[{n}]);" for n in range(1000)]
    for n in range(5):
        lines[(version * 37 + n * 101) % 1000] = f"  s[{n}] = softcap(s[{n}], {version});"
    return Artifact.of(Stage.LOWERED, "kernel.cu", "\n".join(lines) + "\n")


def round_of_work(version: int) -> list[tuple[list[Body], list[Artifact]]]:
    """Five saves as one round of review makes them: proposal, decision, artifact, two verdicts."""
    hunk = Hunk(f"h{version}", "cap the scores", "the spec caps before masking", "softcap",
                "s = map(s, lambda x, i, j: x * scale)\n" * 8,
                "s = map(s, lambda x, i, j: cap * tanh(x * scale / cap))\n" * 8,
                ("op12", "op13"), Origin.RULES)  # fmt: skip
    proposal = Proposal(f"p{version}", Origin.RULES, "recipe", (hunk,))
    artifact = kernel(version)
    subject = (("artifact", artifact.sha256), ("headers", sha256_of("headers")))
    details = {"spills": 0, "registers": 168, "lines": {"changed": 12, "total": 1000}}
    passed = Verdict(Gate.G3, VerdictKind.PASS, "", 12.5, subject, details)
    not_run = Verdict(Gate.G4, VerdictKind.NOT_RUN, "no GPU here")
    return [
        ([ProposalMade(proposal)], []),
        ([HunkDecided(Decision(f"h{version}", DecisionKind.ACCEPTED, "ana"))], []),
        ([ArtifactSet(artifact.stage, artifact.name, artifact.sha256)], [artifact]),
        ([VerdictGiven(passed)], []),
        ([VerdictGiven(not_run)], []),
    ]


def spread(seconds: list[float]) -> dict[str, Any]:
    """Median, p95 and worst of some runs, in milliseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {
        "runs": len(ordered),
        "median_ms": round(1e3 * ordered[last // 2], 2),
        "p95_ms": round(1e3 * ordered[min(last, round(0.95 * last))], 2),
        "worst_ms": round(1e3 * ordered[-1], 2),
    }


def timed(work: Callable[[], object], runs: int = RUNS) -> list[float]:
    """Seconds of each run."""
    found = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return found


CREATED = SessionCreated(
    "softcap", "flash_fwd_sm80", sha256_of("kernel"), "softcap.py", sha256_of("spec")
)


@contextmanager
def session_of_a_thousand(
    folder: Path, saves: list[float] | None = None
) -> Iterator[tuple[Store, str, Writer]]:
    """A store below `folder`, a session of 1,000 events in it, and its writer; the seconds of each
    save are put into `saves`."""
    store = Store.open(folder / "store.git")
    session = store.create(CREATED, actor="ana")
    with store.writer(session) as writer:
        version = 0
        while writer.state.count < 1000:
            for bodies, blobs in round_of_work(version):
                begin = time.perf_counter()
                writer.append(bodies, blobs, actor="engine")
                if saves is not None:
                    saves.append(time.perf_counter() - begin)
            version += 1
        yield store, session, writer


def measure(folder: Path) -> dict[str, Any]:
    """All the measurements, on a store below `folder`."""
    saves: list[float] = []
    with session_of_a_thousand(folder, saves) as (store, session, writer):
        count = writer.state.count
    for number in range(100):
        store.create(CREATED, actor=f"person {number}")
    fresh = [
        float(
            subprocess.run(
                [sys.executable, "-c", FRESH, str(store.path), session, str(count)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True, text=True, check=True,
            ).stdout
        )
        for _ in range(RUNS)
    ]  # fmt: skip
    reader = store.load(session)
    found = {
        "save_first_20": spread(saves[:RUNS]),
        "save_last_20_of_1000_events": spread(saves[-RUNS:]),
        "save_all": spread(saves),
        "open_1000_events": spread(timed(lambda: store.load(session))),
        "open_1000_events_fresh_process": spread(fresh),
        "list_101_sessions": spread(timed(store.sessions)),
        "poll_unchanged": spread(timed(reader.poll, 200)),
        "store_bytes_loose": size(store.path),
    }
    begin = time.perf_counter()
    store.pack()
    found["pack_seconds"] = round(time.perf_counter() - begin, 2)
    found["store_bytes_packed"] = size(store.path)
    found["open_1000_events_packed"] = spread(timed(lambda: store.load(session)))
    return found


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "git": git.stdout.split()[-1],
        "system": platform.system(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the result file")
    parser.add_argument("--folder", help="where to put the store that is measured")
    options = parser.parse_args()
    random.seed(0)
    described = machine()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measure(Path(folder))
    budgets = {
        "save_last_20_of_1000_events": SAVE_BUDGET,
        "save_all": SAVE_BUDGET,
        "open_1000_events": OPEN_BUDGET,
        "open_1000_events_fresh_process": OPEN_BUDGET,
    }
    missed = [name for name, limit in budgets.items() if found[name]["p95_ms"] > 1e3 * limit]
    method = (
        "wall time of each call; every save syncs files and folders; a session grows to 1,000 "
        "events in rounds of five saves, every fifth with a new 1,000-line kernel"
    )
    result = {
        "what": "session store",
        "method": method,
        "machine": described,
        "budgets_ms": {name: 1e3 * limit for name, limit in budgets.items()},
        "missed": missed,
        "measured": found,
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text, end="")
    if options.record:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
