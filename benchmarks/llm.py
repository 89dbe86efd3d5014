"""The LLM bench: fixed tasks, rules switched off, every transcript kept.

    python benchmarks/llm.py --model NAME [--base-url URL] [--split open|held-out|all]
                             [--group NAME ...] [--task NAME ...] [--rounds 4] [--jobs N]
                             [--out DIR] [--answered-by WORDS] --yes
    python benchmarks/llm.py --report DIR
    python benchmarks/llm.py --rejudge DIR [--task NAME ...]

Each task is a session in DIR/store.git; DIR/recordings/TASK replays it without a server. A task is
done once its row is in DIR/rows.jsonl, so an interrupted run goes on where it stopped. pass@1: the
first complete answer passes G2 and G3 (and, for instructions, its behavioural test) unrepaired.
repaired@4: some answer within four repair rounds does. G4 is not run here.

With --jobs each task runs in a process of its own, at most N at once: they wait for the model
together and take turns at the gates, so that no gate's time limit depends on N.

--rejudge takes the recorded answers to today's gates, without a server: 1 where one that had passed
does not pass any more.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.llm_tasks.accept import accept
from benchmarks.llm_tasks.tasks import GROUPS, BenchTask, load_tasks
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError
from engine.llm.client import ServerClient
from engine.llm.record import Recorder
from engine.llm.settings import Limits, Settings, load_settings
from engine.llm.types import Client, Listen, Parameters, Reply, Request, deaf
from engine.service.models.llm import ModelTransfer, Wish
from engine.service.models.llm_conversation import Outgoing, Result
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.content import LIFTED
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel
from engine.transfer.llm.editing import Edit
from engine.transfer.llm.loop import Attempt
from engine.types import Artifact, Stage
from engine.types.plain import object_of
from sessions.events import ArtifactSet
from sessions.store import Store

# A person or a queue may stand behind the server: wait long, never for ever.
PATIENT = Limits(first_s=3600, chunk_s=600, total_s=7200, retries=5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    parser.add_argument("--split", choices=["open", "held-out", "all"], default="open")
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--task", action="append")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1, help="tasks at once")
    parser.add_argument("--out", type=Path, default=Path("llm-bench"))
    parser.add_argument("--answered-by", default="", help="who or which model answers, in words")
    parser.add_argument("--yes", action="store_true", help="send the tasks to the server")
    parser.add_argument("--report", type=Path, metavar="DIR")
    parser.add_argument("--rejudge", type=Path, metavar="DIR", help="judge recorded answers again")
    args = parser.parse_args()
    if args.report:
        print(report(read_rows(args.report)))
        return 0
    if args.rejudge:
        return rejudge(args.rejudge, args.task)
    settings = replace(load_settings(args.base_url, args.model), limits=PATIENT)
    chosen = [
        t
        for t in load_tasks()
        if (
            t.name in args.task
            if args.task is not None
            else args.split in ("all", "held-out" if t.held_out else "open")
            and (args.group is None or t.group in args.group)
        )
    ]
    print(f"{len(chosen)} tasks go to {settings.host}, model {settings.model}", file=sys.stderr)
    if not args.yes:
        print("nothing was sent; --yes sends them", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    done = {row["task"] for row in read_rows(args.out)}
    waiting = [task for task in chosen if task.name not in done]
    store = Store.open(args.out / "store.git")
    store.exists()
    if args.jobs > 1 and len(waiting) > 1:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda task: in_its_own_process(task, settings, args), waiting))
    else:
        with Bench(store) as bench:
            for task in waiting:
                keep_row(run_task(bench, task, settings, args), args.out)
    rows = read_rows(args.out)
    print(report(rows))
    missing = {task.name for task in chosen} - {row["task"] for row in rows}
    if missing:
        print(f"no answer for: {', '.join(sorted(missing))}; run again to go on", file=sys.stderr)
    return 1 if missing else 0


def in_its_own_process(task: BenchTask, settings: Settings, args: argparse.Namespace) -> None:
    """One task, by this program again. Its row is written there."""
    subprocess.run(
        [
            sys.executable, __file__, "--task", task.name, "--model", settings.model,
            "--base-url", settings.base_url, "--rounds", str(args.rounds),
            "--out", str(args.out), "--answered-by", args.answered_by, "--yes",
        ],
        stdout=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip


def keep_row(row: dict[str, Any], out: Path) -> None:
    """Append a row: one write under a lock, so that rows of several processes never mix."""
    # A server's fault says nothing about an answer: such a task is run again next time.
    name = "errors.jsonl" if row["error"] else "rows.jsonl"
    with (out / name).open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(row).encode() + b"\n")
        os.fsync(file.fileno())
    print(f"{row['task']:<22} {row['reached']} {row['error']}", file=sys.stderr)


@contextmanager
def turn_at(lock: Path) -> Iterator[None]:
    """One process at a time."""
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_task(
    bench: Bench, task: BenchTask, settings: Settings, args: argparse.Namespace
) -> dict[str, Any]:
    """One task in a session of its own: a row of the results."""
    begin = time.monotonic()
    client = Recorder(ServerClient(settings), args.out / "recordings" / task.name)
    asked = Asked(client, settings.model, settings.parameters, args.rounds)
    session, attempts, result, error = ask(bench, task, asked, args.out / "gates.lock")
    complete = [a for a in attempts if a.reply.complete]
    return {
        "task": task.name,
        "group": task.group,
        "held_out": task.held_out,
        "session": session,
        "model": settings.model,
        "answered_by": args.answered_by,
        "reached": [a.reached.word for a in attempts],
        "reasons": [a.reason for a in attempts],
        "attempts": [a.summary() for a in attempts],
        "microseconds": [a.outcome.microseconds for a in attempts],
        "pass_at_1": bool(complete) and complete[0].passed,
        "repaired": result is not None and result.passed,
        "rounds": args.rounds,
        "tokens": None if result is None else object_of(result.usage),
        "model_seconds": round(sum(a.reply.seconds for a in attempts), 1),
        "seconds": round(time.monotonic() - begin, 1),
        "error": error,
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """Who answers a task, and how often."""

    client: Client
    model: str
    parameters: Parameters
    rounds: int


def ask(
    bench: Bench, task: BenchTask, asked: Asked, lock: Path
) -> tuple[str, list[Attempt[Edit]], Result | None, str]:
    """A task's session, its attempts, what they came to, and the server's fault, if any."""
    ground = task.ground
    kernel = find_kernel(ground.kernel)
    options = choose_options(kernel, specialisation={"D": ground.head_size}, only=ground.only)
    session = start(bench, kernel, task.spec, options, "bench", f"bench {task.name}")
    attempts: list[Attempt[Edit]] = []
    with bench.store.writer(session, wait=5.0) as writer:
        work = Adaptation(bench, writer, "bench")
        lifted = Artifact.of(Stage.LIFTED, LIFTED, print_module(work.lifted.module))
        # G1 of the expert's kernel is the same for all tasks and is shown elsewhere.
        writer.append(
            [ArtifactSet(lifted.stage, lifted.name, lifted.sha256)], [lifted.data], actor="bench"
        )
        transfer = ModelTransfer(
            work, asked.client, asked.model, agree, asked.parameters,
            on_attempt=attempts.append, also=demand(task), turn=lambda: turn_at(lock),
        )  # fmt: skip
        try:
            return session, attempts, transfer.run(asked.rounds, 1, Wish(task.words)), ""
        except CuBridgeError as failure:
            return session, attempts, None, failure.message


class Again:
    """A client that gives recorded replies in their order, whatever is asked."""

    place, manner = "a recording", "nothing leaves this machine"

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("[0-9]*.json"))
        self.replies = [Reply.from_json(json.loads(f.read_text())["reply"]) for f in files]

    async def complete(self, _: Request, __: Listen = deaf) -> Reply:
        return self.replies.pop(0)


def rejudge(folder: Path, names: list[str] | None) -> int:
    """The first recorded answer of every task, judged anew."""
    before = {row["task"]: bool(row["pass_at_1"]) for row in read_rows(folder)}
    lost = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        with Bench(Store.open(place / "store.git")) as bench:
            for task in load_tasks():
                if task.name not in before or (names and task.name not in names):
                    continue
                client = Again(folder / "recordings" / task.name)
                asked = Asked(client, "recorded", Parameters(), 0)
                _, attempts, _, error = ask(bench, task, asked, place / "gates.lock")
                passed = bool(attempts) and attempts[0].passed
                lost += before[task.name] and not passed
                words = "passes" if passed else error or attempts[0].reason.split("\n")[0]
                print(f"{task.name:<22} {words}", flush=True)
    print(f"{lost} of {sum(before.values())} answers that had passed do not pass any more")
    return 1 if lost else 0


def demand(task: BenchTask):  # type: ignore[no-untyped-def]
    """The behavioural test of an instruction, as the loop asks it."""

    def check(module: Module) -> str | None:
        return None if task.accept is None else accept(task.accept, module)

    return check


def agree(_: Outgoing) -> bool:
    return True  # `--yes` was given, and the host was printed


# --- results --------------------------------------------------------------------------------------


def read_rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "rows.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    p = hits / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def report(rows: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown."""
    lines = ["| tasks | n | pass@1 (95%) | repaired@4 (95%) |", "| --- | --- | --- | --- |"]

    def add(name: str, some: Sequence[dict[str, Any]]) -> None:
        cells = []
        for key in ("pass_at_1", "repaired"):
            hits = sum(bool(r[key]) for r in some)
            low, high = wilson(hits, len(some))
            share = f"{hits / len(some):.2f} ({low:.2f} to {high:.2f})" if some else "not run"
            cells.append(share)
        lines.append(f"| {name} | {len(some)} | {cells[0]} | {cells[1]} |")

    for group in GROUPS:
        add(group, [r for r in rows if r["group"] == group])
        add(f"{group}, held out", [r for r in rows if r["group"] == group and r["held_out"]])
    who = sorted({f"{r['model']} ({r['answered_by'] or 'not stated'})" for r in rows})
    lines += ["", f"Answered by: {', '.join(who) or 'nobody: not run'}. G4 not run."]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
