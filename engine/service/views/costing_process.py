"""The process that predicts what decisions cost, and tries what they compute;
`engine.service.views.costing` starts it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import resource
import select
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache, partial
from typing import Any, TextIO, TypeVar

from engine.child.wire import failure_of
from engine.cost.timeline.events import Timeline
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.gates.g3_source.speed import Setting, setting_of
from engine.gates.outcome import Trial
from engine.lower.spelling.legal import legal
from engine.priority import stand_back
from engine.service.views.consequence import cost_of, timeline_of, where_of
from engine.service.views.costing import ALL, EXPERT, Cost, Question
from engine.transfer.proposals.review import compose
from engine.types import Decision, DecisionKind

LONGEST = 20  # CPU seconds that a target is tried for
POLL = 0.05  # seconds between two looks at a trial
T = TypeVar("T")


def main() -> None:
    """Answer one question, and the targets that come meanwhile."""
    stand_back()
    with contextlib.suppress(OSError):
        os.nice(10)
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    first = requests.readline()
    if not first:
        return
    waiting: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, waiting), daemon=True).start()

    def say(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    try:
        question = Question.from_json(json.loads(first))
        base = parse_module(question.base, "base")
        proposed = parse_module(question.proposed, "proposed")
        setting = setting_of(base, question.recipe, question.binding)
    except Exception as error:
        say(name=EXPERT, cost=Cost(problem=failure_of(error).message).to_json())
        return
    say(where=asdict(where_of(setting)))

    def without(gone: frozenset[str]) -> Module:
        taken = {
            h.id: Decision(h.id, DecisionKind.ACCEPTED, "")
            for h in question.proposal.hunks
            if h.id not in gone
        }
        return legal(compose(base, proposed, question.proposal, taken))

    @cache
    def cost(gone: frozenset[str]) -> dict[str, Any]:
        return {"cost": _cost(lambda: without(gone), setting).to_json()}

    def tried(gone: frozenset[str]) -> Trial:
        from engine.gates.g1_g2 import few_sizes  # as `_Apart` has loaded it

        assert question.recipe is not None and question.binding is not None
        return few_sizes.tried(without(gone), question.recipe, question.binding)

    hunks = [(name, frozenset(gone)) for name, gone in question.sets.items()]
    todo: list[tuple[str, frozenset[str], bool]] = [(ALL, frozenset(), False)]
    todo += [(name, gone, False) for name, gone in hunks]
    todo += [(name, gone, True) for name, gone in hunks if question.tries]
    say(name=EXPERT, cost=_cost(lambda: base, setting).to_json())
    known: dict[frozenset[str], Trial] = {}
    trial: _Apart | None = None
    while True:
        if trial is not None and (found := trial.answer()) is not None:
            known[trial.gone] = found
            say(name=trial.name, trial=asdict(found))
            trial = None
        try:
            # All hunks are told: wait for targets.
            pause = None if trial is None else POLL
            given = waiting.get(block=trial is not None or not todo, timeout=pause)
        except queue.Empty:
            if trial is not None:
                continue
            name, gone, tries = todo.pop(0)
            if not tries:
                say(name=name, **cost(gone))
            elif gone in known:
                say(name=name, trial=asdict(known[gone]))
            else:
                trial = _Apart(name, gone, partial(tried, gone))
            continue
        if "first" in given:
            now = {given["first"], *question.at_first().get(given["first"], ())}
            todo.sort(key=lambda each: (each[0] != ALL, each[0] not in now))
            continue
        name = str(given["name"])
        if "timeline" in given:
            drawn = given["timeline"]
            say(name=name, timeline=_timeline(_reading(drawn) if drawn else lambda: base, setting))
        else:
            say(name=name, cost=_cost(_reading(given["target"]), setting).to_json())


class _Apart:
    """A trial in a copy of this process: targets are costed meanwhile, and it ends at its limit."""

    def __init__(self, name: str, gone: frozenset[str], make: Callable[[], Trial]) -> None:
        self.name, self.gone = name, gone
        # Loaded where nobody waits for it, before there is a copy: a copy has no threads.
        importlib.import_module("engine.gates.g1_g2.few_sizes")
        importlib.import_module("torch").set_num_threads(1)
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
            found = _or_problem(make, lambda words: Trial(problem=words))
            os.write(writer, json.dumps(asdict(found)).encode())
            os._exit(0)
        os.close(writer)

    def answer(self) -> Trial | None:
        """What it found, once it has ended."""
        if not select.select([self._reader], [], [], 0)[0]:
            return None
        with os.fdopen(self._reader, "rb") as stream:
            text = stream.read()
        os.waitpid(self._pid, 0)
        if not text:
            return Trial(problem=f"it takes longer than {LONGEST} seconds of a processor")
        return Trial(**json.loads(text))


def _reading(text: str) -> Callable[[], Module]:
    return lambda: parse_module(text, "target")


def _timeline(make: Callable[[], Module], setting: Setting) -> dict[str, Any]:
    found = _or_problem(lambda: timeline_of(make(), setting), lambda words: Timeline(problem=words))
    return found.to_json()


def _cost(make: Callable[[], Module], setting: Setting) -> Cost:
    return _or_problem(lambda: cost_of(make(), setting), lambda words: Cost(problem=words))


def _or_problem(make: Callable[[], T], problem: Callable[[str], T]) -> T:
    try:
        return make()
    except ValueError as error:  # what a layout cannot be, in words
        return problem(str(error))
    except Exception as error:
        return problem(failure_of(error).message)


def _read(requests: TextIO, waiting: queue.SimpleQueue[Mapping[str, Any]]) -> None:
    for line in requests:
        waiting.put(json.loads(line))
    os.killpg(0, signal.SIGKILL)  # whoever asked is gone; a trial is of this process's own group


if __name__ == "__main__":
    main()
