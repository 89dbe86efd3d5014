"""Sessions rebased onto changed kernels: each is right, or asks; the gates and the executor judge.

    python benchmarks/rebase.py [--only WORD ...] [--record]

Forty changes that somebody could make upstream (ten of each kernel, for a session that the rules
made and for such a target as a model's proposal, which is merged by op), and the bundled kernels'
own versions in git that lift today, each onto the next one. Where nothing is asked, G1 and G2 run
and the lowered text is lifted again; where hunks are asked, the same once all are accepted, which
nobody has to do. A rebase that asks nothing and fails a gate is `wrong`, but where the same kernel
adapted anew fails it too (`fails anew`): then it is the kernel that cannot be adapted. A record
keeps the rows of today's cases that were not run again, each with its commit and its machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.machine_state import described  # noqa: E402
from engine.cuir.changes.ids import assign  # noqa: E402
from engine.cuir.printer import print_module  # noqa: E402
from engine.errors import CuBridgeError  # noqa: E402
from engine.lift import lift  # noqa: E402
from engine.service.session.adaptation import Adaptation, pretty_json, start  # noqa: E402
from engine.service.session.content import BINDING, RECIPE, TARGET  # noqa: E402
from engine.service.session.session_options import choose_options  # noqa: E402
from engine.service.session.workbench import Bench, find_kernel, find_spec  # noqa: E402
from engine.service.upkeep.newer import Rebase, newer_kernel  # noqa: E402
from engine.service.upkeep.rebase import plan_rebase, record_rebase  # noqa: E402
from engine.spec.recipes.recipe_json import recipe_to_json  # noqa: E402
from engine.transfer.proposals.review import propose  # noqa: E402
from engine.transfer.rules import apply, plan  # noqa: E402
from engine.types import Artifact, Origin, Stage, Verdict, sha256_of  # noqa: E402
from sessions.events import ArtifactSet, ProposalMade, TranscriptAdded  # noqa: E402
from sessions.store import Store  # noqa: E402
from tests.engine.lift.formatting import renamed, without_comments  # noqa: E402
from tests.engine.lower.relift import verify_relift  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "rebase.json"
KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
SPECS = {
    ("flash_fwd_sm80", "rules"): "softcap_causal", ("flash_fwd_sm80", "model"): "causal_document",
    ("flash_fwd_sm90", "rules"): "causal_document", ("flash_fwd_sm90", "model"): "softcap_causal",
}  # fmt: skip
SHOWN = {"T": "bf16", "D": "64"}
LOCALS = {"m_prev": "before", "n": "tile", "s": "scores", "o": "acc", "m": "top_row", "l": "total",
          "step": "round_no", "tiles": "n_tiles", "alpha": "decay", "q0": "first_row"}  # fmt: skip
ALL = LOCALS | {"BM": "QROWS", "BN": "KEYS", "STAGES": "DEPTH", "i": "row_no", "j": "key_no",
                "prev": "was", "now": "top_now", "tile_full": "needs_no_mask"}  # fmt: skip
RIGHT, ASKS, WRONG, ANEW = "right", "asks", "wrong", "fails anew"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a kernel's source; `asks` where the session has to be asked about it (None: it
    may be)."""

    name: str
    make: Callable[[bytes], bytes]
    asks: bool | None = False


def put(*pairs: tuple[str, str]) -> Callable[[bytes], bytes]:
    """The texts in place of those that stand there; of each pair one at least must be found."""

    def change(source: bytes) -> bytes:
        text = source.decode()
        found = [(old, new) for old, new in pairs if old in text]
        assert found, pairs
        for old, new in found:
            text = text.replace(old, new)
        return text.encode()

    return change


def another_style(source: bytes) -> bytes:
    """Without comments, in tabs, braces on lines of their own, lines that end as on Windows."""
    text = without_comments(source).decode().replace(") {\n", ")\n{\n").replace("  ", "\t")
    return text.replace("\n", "\r\n").encode()


def functions_moved(source: bytes) -> bytes:
    """The schedule's device functions in the opposite order."""
    head, *pieces = source.decode().split("template <int BM, int BN")
    last = pieces[-1].index("\n}\n") + 3
    rest = pieces[-1][last:]
    pieces[-1] = pieces[-1][:last] + "\n"
    moved = "".join(f"template <int BM, int BN{p}" for p in reversed(pieces))
    return (head + moved + rest).encode()


MOVED = "    const auto m_prev = m;\n"
KEEP = "return j < args.Nk;"
CHANGES = (
    Change("reformatted, without comments", another_style),
    Change("locals renamed", lambda source: renamed(source, LOCALS)),
    Change("locals, constants, parameters and a function renamed", lambda s: renamed(s, ALL)),
    Change("functions moved", functions_moved),
    Change("another stage count", put(("STAGES = 2", "STAGES = 3"))),
    Change("another tile shape", put(
        ("D == 64 ? 64 :", "D == 64 ? 32 :"), ("112 : 128", "112 : 96"),
    )),
    Change("a fix beside a hunk", put(("return sum * a; }", "return a * sum; }"))),
    Change("a statement moved past a hunk", put(
        (MOVED, ""),
        ("    if (!tile_full<BM, BN>(", f"{MOVED}    if (!tile_full<BM, BN>("),
        ("    if (!tile_full<BM, BN, 64>(", f"{MOVED}          if (!tile_full<BM, BN, 64>("),
    ), asks=None),
    Change("a change inside a hunk", put((KEEP, "return j < args.Nk && i < args.Nq;")), asks=True),
    Change("a change of the schedule", put(
        ("int q0) {\n  return ceil_div(args.Nk, BN);",
         "int q0) {\n  const int all = ceil_div(args.Nk, BN);\n  return all;"),
    ), asks=True),
)  # fmt: skip


def by_rules(work: Adaptation) -> None:
    work.accept_all(work.propose_by_rules())


def by_model(work: Adaptation) -> None:
    """The rules' target as if a model had written it: no rule speaks for it on the new kernel."""
    recipe, base = work.read_recipe(work.spec, {}), work.lifted.module
    planned = plan(base, recipe)
    proposed = [*apply(base, planned.steps)][-1][1]
    made = propose(base, proposed, id="model-1", origin=Origin.MODEL, reason="", ids=assign(base))
    texts = {RECIPE: recipe_to_json(recipe), BINDING: planned.binding.to_json()}
    artifacts = [Artifact.of(Stage.TARGET, n, pretty_json(t)) for n, t in texts.items()]
    artifacts.append(Artifact.of(Stage.TARGET, TARGET, print_module(base)))
    text = print_module(proposed)
    work.writer.append(
        [TranscriptAdded("model-1.proposed.cuir", sha256_of(text), "model-1"), ProposalMade(made),
         *(ArtifactSet(a.stage, a.name, a.sha256) for a in artifacts)],
        [text.encode(), *(a.data for a in artifacts)], actor="a model",
    )  # fmt: skip
    work.accept_all(made)


KINDS = {"rules": by_rules, "model": by_model}


LIFTED: dict[str, str] = {}  # what G1 says of a kernel, by its hash: no session takes part in that


def word_of(verdict: Verdict) -> str:
    word = verdict.kind.value
    return word if verdict.passed else f"{word}: {verdict.reason[:160]}"


def judged(work: Adaptation) -> dict[str, str]:
    """The gates of what the session holds now, as far as a machine without nvcc has them."""
    kernel = work.state.hashes["kernel"]
    if kernel not in LIFTED:
        LIFTED[kernel] = word_of(work.judge_lifted())
    out = {"G1": LIFTED[kernel], "G2": word_of(work.judge_target())}
    try:
        found = verify_relift(work.make_lowering().source, [work.target])
        out["relift"] = "pass" if found is None else f"fail: {found}"
    except CuBridgeError as error:
        out["relift"] = f"refused: {error}"
    return out


def passed(gates: dict[str, str]) -> bool:
    return all(word == "pass" for word in gates.values())


@contextmanager
def started(bench: Bench, kernel: str, kind: str) -> Iterator[Adaptation]:
    """A new session on the kernel, for the spec that `kind` has there."""
    package = find_kernel(kernel)
    options = choose_options(package, specialisation=SHOWN, only=True)
    session = start(bench, package, find_spec(SPECS[kernel, kind]), options, "bench")
    with bench.store.writer(session, wait=5) as writer:
        yield Adaptation(bench, writer, "bench")


def onto(work: Adaptation, source: Path) -> tuple[Rebase, Adaptation]:
    """The session on another source of its kernel."""
    made = plan_rebase(work, newer_kernel(work.state, str(source)))
    return made, record_rebase(work, made)


def rebased(
    bench: Bench, kernel: str, kind: str, old: Path | None, new: Path
) -> tuple[Rebase, Adaptation]:
    """A session of `kind` on the kernel (with another source, where `old` is one), rebased."""
    with started(bench, kernel, kind) as work:
        if old is not None:
            _, work = onto(work, old)
        work.make_lifted()
        KINDS[kind](work)
        return onto(work, new)


def run(bench: Bench, kernel: str, kind: str, old: Path | None, new: Path) -> dict[str, Any]:
    """One rebase and what the gates say of it."""
    begin = time.monotonic()
    made, work = rebased(bench, kernel, kind, old, new)
    seconds = round(time.monotonic() - begin, 2)
    assert made.proposal is not None
    row: dict[str, Any] = {
        "changes": dict(made.changes), "renamed": made.renamed,
        "hunks": len(made.proposal.hunks), "asked": len(made.asked), "seconds": seconds,
    }  # fmt: skip
    with bench.store.writer(work.session.id, wait=5) as writer:
        work = Adaptation(bench, writer, "bench")
        if made.asked:
            work.accept_all(made.proposal)
        gates = judged(work)
    row |= {"accepting all": gates} if made.asked else {"gates": gates}
    row["fate"] = ASKS if made.asked else RIGHT if passed(gates) else WRONG
    if row["fate"] == WRONG:
        row["anew"] = adapted_anew(bench, kernel, kind, new)
        row["fate"] = WRONG if passed(row["anew"]) else ANEW
    return row


def adapted_anew(bench: Bench, kernel: str, kind: str, new: Path) -> dict[str, str]:
    """What the gates say of the new kernel in a session that had no other before a proposal."""
    with started(bench, kernel, kind) as work:
        _, work = onto(work, new)
        work.make_lifted()
        try:
            by_rules(work)
        except CuBridgeError as error:
            return {"rules": str(error)}
        return judged(work)


def versions(kernel: str) -> Iterator[tuple[str, bytes]]:
    """The kernel's own versions in git, oldest first."""
    path = f"kernels/{kernel}/kernel.cu"
    log = ["git", "log", "--reverse", "--abbrev=8", "--format=%h", "--", path]
    for commit in subprocess.run(log, cwd=ROOT, capture_output=True, text=True).stdout.split():
        show = ["git", "show", f"{commit}:{path}"]
        yield commit, subprocess.run(show, cwd=ROOT, capture_output=True, check=True).stdout


def lifts(kernel: str, source: Path) -> bool:
    """Whether today's catalogue knows every statement of an old version."""
    package = find_kernel(kernel)
    options = choose_options(package, specialisation=SHOWN, only=True)
    try:
        made = package.with_source(source)
        return not lift(made, options.specialisation, options.arch).opaque
    except CuBridgeError:
        return False


def fates_of(changes: list[dict[str, Any]], history: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "changes": dict(Counter(r["fate"] for r in changes)),
        "history": dict(Counter(r["fate"] for r in history)),
    }


@dataclass(frozen=True, slots=True)
class Case:
    """A session of `kind` on a kernel (or on `old`, a source of it), and the source it goes to."""

    name: str
    kernel: str
    kind: str
    old: Path | None
    new: Path
    must: str = ""  # the fate that is expected


def cases_of(kernel: str, folder: Path) -> tuple[list[Case], list[Case]]:
    """The changes of a kernel and the steps of its history; their sources are put in the folder."""

    def written(name: str, source: bytes) -> Path:
        path = folder / f"{name}.cu"
        path.write_bytes(source)
        return path

    def cases(title: str, old: Path | None, new: Path, must: str = "") -> Iterator[Case]:
        for kind in KINDS:
            name = f"{title}: {SPECS[kernel, kind]} by {kind} on {kernel}"
            yield Case(name, kernel, kind, old, new, must)

    changes: list[Case] = []
    history: list[Case] = []
    source = find_kernel(kernel).source
    for number, change in enumerate(CHANGES):
        must = {True: ASKS, False: RIGHT, None: ""}[change.asks]
        new = written(f"{kernel}_{number}", change.make(source))
        changes += cases(change.name, None, new, must)
    lifted = [
        (commit, path) for commit, text in versions(kernel)
        if lifts(kernel, path := written(f"{kernel}_{commit}", text))
    ]  # fmt: skip
    for (before, one), (after, two) in itertools.pairwise(lifted):
        history += cases(f"{before} to {after}", one, two)
    return changes, history


def beside(
    kept: list[dict[str, Any]], made: list[dict[str, Any]], cases: list[Case]
) -> list[dict[str, Any]]:
    """The recorded rows of these cases, those that were run again replaced."""
    names = {case.name for case in cases}
    rows = {r["case"]: r for r in kept} | {r["case"]: r for r in made}
    return [row for name, row in rows.items() if name in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=(), help="cases whose names hold these words")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    machine = described()
    commit = machine.pop("commit")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found = [cases_of(kernel, folder) for kernel in KERNELS]
        changes = [case for of_kernel, _ in found for case in of_kernel]
        steps = [case for _, of_kernel in found for case in of_kernel]
        with Bench(Store.open(folder / "store.git")) as bench:
            for case in (*changes, *steps):
                if not all(word in case.name for word in args.only):
                    continue
                try:
                    row = run(bench, case.kernel, case.kind, case.old, case.new)
                except CuBridgeError as error:
                    row = {"fate": "refused", "why": str(error)}
                if case.must and row["fate"] not in (case.must, ANEW):
                    row["expected"] = case.must
                made = {"case": case.name, "commit": commit, "machine": machine} | row
                (rows if case in changes else history).append(made)
                if args.record:
                    old = json.loads(RESULTS.read_text(encoding="utf-8"))
                    data = {
                        "changes": beside(old["changes"], rows, changes),
                        "history": beside(old["history"], history, steps),
                    }
                    text = json.dumps({"fates": fates_of(**data)} | data, indent=1)
                    RESULTS.write_text(text + "\n", encoding="utf-8")
                other = f", not {case.must}" if "expected" in row else ""
                print(f"{case.name}: {row['fate']}{other}", flush=True)
    print(fates_of(rows, history))
    bad = any(r["fate"] == WRONG or "expected" in r for r in rows + history)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
