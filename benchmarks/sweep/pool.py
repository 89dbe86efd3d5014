"""Tasks on several processes; each finished item is one line of the log at once.

The parent alone writes, so a sweep that is stopped at any moment loses what is in hand and nothing
else, and the next one goes on with what has no line.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # takes seconds, which each process would spend

from benchmarks.sweep.drawn import decks, texts
from benchmarks.sweep.mutants import judge_mutants
from benchmarks.sweep.tasks import Original, Task, left

_PR_SET_PDEATHSIG = 1
PATIENCE = 240.0  # CPU seconds for one item; a hang is recorded and the sweep goes on
HANGS = 3600.0  # seconds for one item, on a machine that has other things to do too
EVERY = 15.0  # seconds between two words on how far it is


def lines_of(log: Path) -> dict[str, dict[str, Any]]:
    """The latest line of each item; a line that was cut off is none."""
    out: dict[str, dict[str, Any]] = {}
    if log.exists():
        for text in log.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            out[line.pop("item")] = line
    return out


@dataclass
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    task: Task | None = None
    since: tuple[float, float] = (0.0, 0.0)  # of the clock, and its CPU seconds then

    def begun(self) -> None:
        """It has an item in hand now."""
        self.since = time.monotonic(), self.spent()

    def is_late(self) -> bool:
        clock, cpu = self.since
        return self.spent() - cpu > PATIENCE or time.monotonic() - clock > HANGS

    def spent(self) -> float:
        """CPU seconds of its process and of those that it has waited for."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[-1].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def outcomes_of(line: Mapping[str, Any]) -> set[str]:
    """A line's outcome, and those on each kernel."""
    return {str(part["outcome"]) for part in (line, *line.values()) if isinstance(part, Mapping)}


def sweep(
    tasks: Iterable[Task],
    log: Path,
    jobs: int,
    end: float,
    tree: str,
    again: Collection[str] = (),
) -> int:
    """Run the tasks on `jobs` processes until `end` (of the monotonic clock); items done.

    `tree` is what the lines say they were judged by; items of the outcomes `again` are judged anew.
    """
    lines = lines_of(log)
    known = {item for item, line in lines.items() if not outcomes_of(line) & set(again)}
    queue = deque(t for task in tasks if (t := left(task, known)) is not None)
    total, done, told = sum(len(t.numbers) for t in queue), 0, time.monotonic()
    workers = [_started() for _ in range(jobs)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        if file.tell() and not log.read_bytes().endswith(b"\n"):
            file.write("\n")

        def write(item: str, line: dict[str, Any]) -> None:
            file.write(json.dumps({"item": item, "tree": tree, **line}, ensure_ascii=False) + "\n")
            file.flush()

        while time.monotonic() < end and (queue or any(w.task for w in workers)):
            for worker in workers:
                if worker.task is None and queue:
                    worker.task = queue.popleft()
                    worker.begun()
                    worker.pipe.send(worker.task)
            busy = {w.pipe: w for w in workers if w.task is not None}
            for pipe in wait(list(busy), timeout=1.0):
                worker = busy[pipe]  # type: ignore[index]
                done += _heard(worker, write, queue)
            for at, worker in enumerate(workers):
                late = worker.task is not None and worker.is_late()
                if late or not worker.process.is_alive():
                    why = f"no answer in {PATIENCE:.0f} CPU s" if late else "its process ended"
                    done += _lost(worker, why, write, queue)
                    workers[at] = _started()
            if time.monotonic() - told > EVERY:
                told = time.monotonic()
                print(f"{done} of {total}, {end - told:.0f} s left", flush=True)
    for worker in workers:
        worker.process.kill()
        worker.process.join()
    return done


def _started() -> _Worker:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _heard(worker: _Worker, write: Any, queue: deque[Task]) -> int:
    """One message of a worker: a line, or that its task is over."""
    assert worker.task is not None
    try:
        number, line = worker.pipe.recv()
    except (EOFError, OSError):
        return _lost(worker, "its process ended", write, queue)
    worker.begun()
    if number is None:
        worker.task = None
        return 0
    write(worker.task.item(number), line)
    worker.task = replace(worker.task, numbers=tuple(n for n in worker.task.numbers if n != number))
    return 1


def _lost(worker: _Worker, why: str, write: Any, queue: deque[Task]) -> int:
    """The item that a worker did not survive, and the rest of its task to another one."""
    task, worker.task = worker.task, None
    worker.process.kill()
    worker.process.join()
    if task is None or not task.numbers:
        return 0
    first = task.item(task.numbers[0])
    write(first, {"outcome": "internal", "why": why})
    rest = left(task, {first})
    if rest is not None:
        queue.append(rest)
    return 1


def _serve(pipe: Connection) -> None:
    """A worker: tasks in, lines out, each with its seconds."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        begin = time.process_time(), time.monotonic()
        for number, line in _judged(task):
            cpu, wall = time.process_time() - begin[0], time.monotonic() - begin[1]
            pipe.send((number, line | {"s": round(wall, 2), "cpu": round(cpu, 2)}))
            begin = time.process_time(), time.monotonic()
        pipe.send((None, {}))


def _judged(task: Task) -> Any:
    if isinstance(task.of, Original):
        return judge_mutants(task.of, task.numbers)
    return (texts if task.step == "texts" else decks)(task.of, task.numbers)
