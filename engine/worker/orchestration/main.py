"""`python3 JOB/run.py [JOB ...]`: build, verify and time one or several jobs on this machine.

Compilers run in parallel, verifications of several jobs beside each other; timings wait until
nothing else uses the GPU, and run one at a time. Rows are kept as they are found, so that a run
that was cut off goes on where it was. Exit codes: 0 every job passed, 1 one failed, 2 wrong usage,
3 no GPU or no nvcc here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from engine.worker.launches.result_rows import FAIL, NOT_RUN, PASS
from engine.worker.orchestration import building
from engine.worker.orchestration.building import Built, build, find_nvcc
from engine.worker.orchestration.checklist import SHORT, WHOLE
from engine.worker.orchestration.children import Child, Ended, child_command, last_line
from engine.worker.orchestration.device import describe_device, rate_of
from engine.worker.orchestration.job_options import parser
from engine.worker.orchestration.manifest import (
    KERNEL,
    UNEDITED,
    Job,
    JobError,
    arch_for,
    read_job,
)
from engine.worker.orchestration.mutants import NOT_APPLICABLE, Mutant, mutants_of
from engine.worker.orchestration.results import Store, has_lse, write_result
from engine.worker.orchestration.sanitizer import sanitizer_rows
from engine.worker.orchestration.trouble import End, build_row, left_out, not_run, trouble_of

SILENCE = 120.0  # seconds without a word after which a child has hung
DUMP = "sanitize.json"
MISSING = 3


@dataclass
class Work:
    """One job on its way: what is done, and what is left for the timing."""

    job: Job
    store: Store
    include: Path
    build: Future[Built] | None = None
    source: Future[Built] | None = None  # someone else's kernel as it was, a rival
    library: Path | None = None
    verified: bool = False
    bench: Child | None = None
    said: str = ""  # what its timing child last said went wrong
    trouble: str = ""  # how that child ended, where it was too soon
    mutants: list[tuple[Mutant, Future[Built]]] = field(default_factory=list)


class Run:
    """All jobs of one command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begin = time.monotonic()
        self.nvcc = find_nvcc()
        self.device = describe_device()
        cores = max(1, len(os.sched_getaffinity(0)))
        self.compilers = ThreadPoolExecutor(cores)
        self.builders = ThreadPoolExecutor(64)
        self.gpu = threading.Semaphore(options.parallel)
        self.children: set[Child] = set()
        self.lock = threading.Lock()
        self.stopped = False

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:6.1f}] {text}", file=sys.stderr, flush=True)

    # --- the whole -------------------------------------------------------------------------------

    def all(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        works = [self.prepare(job) for job in jobs]
        with ThreadPoolExecutor(len(works)) as pool:
            list(pool.map(self.verify, works))
        for work in works:
            self.time(work)
        for work in works:
            # Beside others a card has no room in more ways than can be told by an error's words.
            if work.trouble and len(works) > 1 and not self.stopped:
                self.say(f"{work.job.name}: once more, with the card to itself")
                self.ready_bench(work)
                self.time(work)
        if not self.stopped:
            for work in works:
                self.explain(work)
        state = "interrupted" if self.stopped else "complete"
        return [work.store.result(state) for work in works]

    def prepare(self, job: Job) -> Work:
        """Choose the arch and start the compilers."""
        capability = tuple(self.device["capability"])
        arch = arch_for(capability, job.archs)
        device = {**self.device, "arch": arch, "compiler": building.compiler_name(self.nvcc)}
        work = Work(job, Store(job, device, self.options.fresh), job.folder / KERNEL)
        if arch is None:
            reason = (
                f"the kernel is built for {', '.join(job.archs)}; this card is "
                f"sm_{capability[0]}{capability[1]}"
            )
            self.add(work, not_run("build", job.primary, reason))
            return work
        keys = (job.primary,) if self.options.primary_only else job.keys
        work.build = self.builders.submit(
            build, self.compilers, job.source, work.include, job.work / f"build-{arch}", job.entry,
            keys, job.fields, arch, self.nvcc,
            () if job.theirs is None else job.theirs.words(work.include),
        )  # fmt: skip
        if self.options.bench:
            self.source(work)
        if self.options.self_test:
            text = job.source.read_bytes().decode("utf-8", "surrogateescape")
            for mutant in mutants_of(text, has_lse(job)):
                if mutant.text is None:
                    self.add_mutant(work, mutant, NOT_RUN, NOT_APPLICABLE)
                    continue
                folder = job.work / f"mutant-{mutant.name}-{arch}"
                folder.mkdir(parents=True, exist_ok=True)
                source = folder / "kernel.cu"
                source.write_bytes(mutant.text.encode("utf-8", "surrogateescape"))
                made = self.builders.submit(
                    build, self.compilers, source, work.include, folder, job.entry,
                    (job.primary,), job.fields, arch, self.nvcc,
                )  # fmt: skip
                work.mutants.append((mutant, made))
        return work

    def source(self, work: Work) -> Future[Built] | None:
        """Someone else's kernel as it was, built once; the job's own build where it has no edit."""
        job, arch = work.job, str(work.store.device["arch"])
        if work.source is None and job.theirs is not None:
            work.source = work.build if job.unedited else self.builders.submit(
                build, self.compilers, work.include / UNEDITED, work.include,
                job.work / f"source-{arch}", job.entry, (job.primary,), job.fields, arch, self.nvcc,
                job.theirs.words(work.include, unedited=True),
            )  # fmt: skip
        return work.source

    def add(self, work: Work, row: dict[str, Any]) -> None:
        work.store.add("checks", row)
        mark = {"pass": "pass", "fail": "FAIL"}.get(row["verdict"], row["verdict"])
        more = row.get("reason") or (row.get("failures") or [""])[0]
        worst = f", worst {row['worst']:.3g}" if isinstance(row.get("worst"), float) else ""
        self.say(
            f"{work.job.name} {row['specialisation']} {row['check']}: {mark} "
            f"({row.get('cases', 0)} cases{worst}) {more}".rstrip()
        )

    # --- verification ----------------------------------------------------------------------------

    def verify(self, work: Work) -> None:
        if work.build is None:
            return
        built = work.build.result()
        job = work.job
        keys = (job.primary,) if self.options.primary_only else job.keys
        for key in keys:
            self.add(work, build_row(built, key))
        if not built.ok:
            return
        work.library = built.library
        library = built.library
        tasks: list[Callable[[], None]] = []
        if not self.options.bench_only:
            tasks += [partial(self.verify_key, work, library, key) for key in keys]
        tasks += [partial(self.judge_mutant, work, *broken) for broken in work.mutants]
        if tasks:
            with ThreadPoolExecutor(len(tasks)) as pool:
                for task in [pool.submit(t) for t in tasks]:
                    task.result()
        failed = any(r["verdict"] == "fail" for r in work.store.checks)
        wanted = self.options.sanitize and not self.options.bench_only
        if wanted and not failed and not self.stopped:
            dump = job.work / DUMP

            def launching(library: Path) -> list[str]:
                words = ("sanitize", str(job.folder), str(library), str(dump))
                return child_command(job.folder / "run.py", *words)

            def unedited() -> list[str]:
                made = self.source(work)
                source = None if made is None else made.result()
                return launching(source.library) if source is not None and source.ok else []

            limit, key = self.options.sanitizer_seconds, job.primary
            with self.gpu:
                for found in sanitizer_rows(
                    launching(library), key, dump, job.folder, limit, unedited
                ):
                    self.add(work, found)
        work.verified = not any(r["verdict"] == "fail" for r in work.store.checks)
        if work.verified and self.options.bench and not self.stopped:
            self.ready_bench(work)

    def verify_key(self, work: Work, library: Path, key: str) -> None:
        """Every check of one specialisation."""
        job = work.job
        if work.store.has_checks(key):
            self.say(f"{job.name} {key}: every check is there from an earlier run")
            return
        short = self.options.quick or key != job.primary
        deck = {"deck": SHORT if short else WHOLE}
        samples: list[dict[str, Any]] = []
        rows, ended = self.child_rows(job, library, key, short, samples)
        for found in rows:
            self.add(work, found | deck)
        for sample in samples:
            work.store.add("samples", sample)
        if not self.stopped and (trouble := trouble_of(ended, rows, key, SILENCE)):
            self.add(work, trouble | deck)

    def child_rows(
        self,
        job: Job,
        library: Path,
        key: str,
        short: bool,
        samples: list[dict[str, Any]] | None = None,
    ) -> tuple[list[dict[str, Any]], End]:
        """The rows that a verifying child tells, and how it ended; `samples` are added to."""
        rows: list[dict[str, Any]] = []
        last, error, internal = "starting", "", False

        def on_line(event: dict[str, Any]) -> None:
            nonlocal last, error, internal
            if event["event"] == "row":
                rows.append(event["row"])
            elif event["event"] == "sample" and samples is not None:
                samples.append(event["sample"])
            elif event["event"] == "step":
                last = event["text"]
            elif event["event"] == "error":
                error, internal = event["text"], bool(event.get("internal"))

        words = [str(job.folder), str(library), key, *(["short"] if short else [])]
        with self.gpu:
            if self.stopped:
                return rows, End(None, last, error)
            child = self.start("verify", *words, cwd=job.folder)
            ended = child.follow(on_line, SILENCE)
            self.forget(child)
        return rows, End(ended, last, error, internal)

    def judge_mutant(self, work: Work, mutant: Mutant, made: Future[Built]) -> None:
        """A broken kernel must be rejected, by one of the checks that exist for it."""
        built = made.result()
        if not built.ok:
            self.add_mutant(work, mutant, FAIL, f"does not compile: {last_line(built.log)}")
            return
        rows, end = self.child_rows(work.job, built.library, work.job.primary, True)
        failing = [r["check"] for r in rows if r["verdict"] == "fail"]
        if not rows:
            failing = ["the child ended: " + (end.error or end.step)]
        seen = [check for check in failing if check in mutant.seen_by]
        reason = f"rejected by {', '.join(failing)}" if failing else "accepted by every check"
        if failing and not seen:
            reason += f"; none of {', '.join(mutant.seen_by)} saw it"
        self.add_mutant(work, mutant, PASS if seen else FAIL, reason)

    def add_mutant(self, work: Work, mutant: Mutant, verdict: str, reason: str) -> None:
        row = {
            "mutant": mutant.name, "specialisation": work.job.primary, "change": mutant.change,
            "verdict": verdict, "reason": reason,
        }  # fmt: skip
        work.store.add("self_test", row)
        self.say(f"{work.job.name} mutant {mutant.name}: {row['verdict']}, {reason}")

    # --- timing ----------------------------------------------------------------------------------

    def ready_bench(self, work: Work) -> None:
        """Start the timing child; it compiles the rivals and then waits for its turn."""
        job = work.job
        plan = {**job.bench, "deadline": self.options.bench_seconds}
        if self.options.shapes or self.options.lengths:
            plan |= {"lengths": self.options.lengths, "shapes": self.options.shapes}
        plan["done"] = [row["case"] for row in work.store.timed]
        if self.options.samples:
            plan["samples"] = self.options.samples
        if self.options.rivals:
            plan["rivals"] = self.options.rivals
        if work.source is not None:
            made = work.source.result()
            plan["source"] = str(made.library) if made.ok else ""
        assert work.library is not None
        work.said = work.trouble = ""
        child = self.start(
            "bench",
            str(job.folder),
            str(work.library),
            job.primary,
            json.dumps(plan),
            cwd=job.folder,
        )
        with self.gpu:
            ended = child.follow(
                lambda e: self.on_bench(work, e), SILENCE * 2, lambda e: e["event"] == "ready"
            )
        if ended is None:
            work.bench = child
        else:
            self.forget(child)
            self.untimed(work, ended, "before its turn")

    def time(self, work: Work) -> None:
        child = work.bench
        if child is None:
            return
        if self.stopped:
            child.end()
            return
        self.say(f"{work.job.name}: timing")
        work.bench = None
        child.send("go")
        ended = child.follow(lambda e: self.on_bench(work, e), SILENCE)
        self.forget(child)
        if ended is not None and not ended.ok:
            self.untimed(work, ended, "in its turn")

    def untimed(self, work: Work, ended: Ended, when: str) -> None:
        """Note that the timing child ended too soon, and by its own words why."""
        how = "was silent and was ended" if ended.silent else f"ended with {ended.code}"
        why = work.said or last_line(ended.output)
        work.trouble = f"the timing child {how} {when}: {why}"
        self.note(work, work.trouble)

    def explain(self, work: Work) -> None:
        """Rows that say why of what this run left out, where no earlier one has done it."""
        key, rows = work.job.primary, work.store.checks
        if work.library is None or any(r["verdict"] == "fail" for r in rows):
            return
        have = {r["check"] for r in rows if r["specialisation"] == key}
        for row in left_out(self.options, key, work.trouble or work.said):
            if row["check"] not in have:
                self.add(work, row)

    def on_bench(self, work: Work, event: dict[str, Any]) -> None:
        if event["event"] == "row":
            row = event["row"]
            work.store.add("times", row)
            if "ms" in row:
                found = rate_of(row, self.device)
                rate = "" if found.tflops is None else f", {found.tflops:.1f} TFLOP/s"
                notes = "".join(f"; {n}" for n in (found.note, row.get("note")) if n)
                self.say(f"  {row['case']} {row['name']}: {row['ms']:.3f} ms{rate}{notes}")
            else:
                self.say(f"  {row['case']} {row['name']}: {row['reason']}")
        elif event["event"] == "timed":
            work.store.add("timed", {"case": event["case"]})
        elif event["event"] == "error":
            work.said = event["text"]
            self.note(work, work.said)
        elif event["event"] == "check":
            self.add(work, event["row"])

    def note(self, work: Work, text: str) -> None:
        work.store.events.append(text)
        self.say(f"{work.job.name}: {text}")

    # --- children --------------------------------------------------------------------------------

    def start(self, kind: str, *words: str, cwd: Path) -> Child:
        child = Child(child_command(cwd / "run.py", kind, *words), cwd)
        with self.lock:
            self.children.add(child)
        return child

    def forget(self, child: Child) -> None:
        with self.lock:
            self.children.discard(child)

    def stop(self) -> None:
        """End everything that runs."""
        self.stopped = True
        building.stop_compilers()
        with self.lock:
            children = list(self.children)
        for child in children:
            child.end()
        self.compilers.shutdown(wait=False, cancel_futures=True)


def self_test_missed(result: Mapping[str, Any]) -> bool:
    """Whether a mutant was accepted, or none of a self-test's mutants applied."""
    verdicts = [row["verdict"] for row in result["self_test"]]
    return FAIL in verdicts or (bool(verdicts) and PASS not in verdicts)


def main(arguments: list[str], folder: Path) -> int:
    options = parser().parse_args(arguments)
    folders = [*([] if options.only else [folder]), *options.jobs]
    if not folders:
        print("run.py: name a job", file=sys.stderr)
        return 2
    try:
        jobs = [read_job(f) for f in dict.fromkeys(f.resolve() for f in folders)]
    except JobError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    try:
        run = Run(options)
    except (JobError, subprocess.SubprocessError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return MISSING

    def on_signal(number: int, frame: object) -> None:
        run.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    results = run.all(jobs)
    for job, result in zip(jobs, results, strict=True):
        with contextlib.suppress(OSError):
            write_result(job.folder / "result.json", result)
    if options.out:
        one = (
            results[0]
            if len(results) == 1
            else {"kind": "cubridge-gpu-results", "results": results}
        )
        write_result(options.out, one)
    for job, result in zip(jobs, results, strict=True):
        run.say(f"{job.name}: {result['verdict']}: {result['reason']}")
        for row in result["self_test"]:
            if row["verdict"] == FAIL:
                run.say(f"{job.name}: the self-test missed the mutant {row['mutant']}")
            elif row["verdict"] == NOT_RUN:
                run.say(f"{job.name}: mutant {row['mutant']}: {row['reason']}")
    run.compilers.shutdown(wait=False, cancel_futures=True)
    run.builders.shutdown(wait=False, cancel_futures=True)
    missed = any(map(self_test_missed, results))
    if any(r["verdict"] == "fail" for r in results) or missed:
        return 1
    passed = all(r["verdict"] == "pass" for r in results) or options.bench_only
    return 0 if passed else MISSING
