"""The process that predicts what decisions cost, and tries what they compute;
`engine.service.views.costing` starts it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, TextIO, TypeVar

from engine.child.wire import failure_of
from engine.cost.timeline.events import Timeline
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.errors import InputError
from engine.gates.g3_source.speed import Setting, setting_of
from engine.gates.outcome import Trial
from engine.lower.spelling.legal import legal
from engine.priority import stand_back
from engine.service.views.consequence import cost_of, timeline_of, where_of
from engine.service.views.costing import ALL, EXPERT, Cost, Question
from engine.transfer.proposals.review import compose
from engine.types import Decision, DecisionKind

LONGEST = 20  # CPU seconds that a target is tried for
Answer = Callable[[frozenset[str]], dict[str, Any]]
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
        setting = setting_of(base, question.recipe)
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

    @cache
    def trial(gone: frozenset[str]) -> dict[str, Any]:
        return {"trial": asdict(_tried(lambda: without(gone), question))}

    hunks = [(h.id, frozenset(question.without[h.id])) for h in question.proposal.hunks]
    todo: list[tuple[str, frozenset[str], Answer]] = [(ALL, frozenset(), cost)]
    todo += [(name, gone, cost) for name, gone in hunks]
    todo += [(name, gone, trial) for name, gone in hunks if question.tries]
    say(name=EXPERT, cost=_cost(lambda: base, setting).to_json())
    while True:
        block = not todo  # all hunks are told: wait for targets
        try:
            given = waiting.get(block=block)
        except queue.Empty:
            name, gone, answer = todo.pop(0)
            say(name=name, **answer(gone))
            continue
        if "first" in given:
            todo.sort(key=lambda each: (each[0] != ALL, each[0] != given["first"]))
            continue
        name = str(given["name"])
        if "timeline" in given:
            drawn = given["timeline"]
            say(name=name, timeline=_timeline(_reading(drawn) if drawn else lambda: base, setting))
        else:
            say(name=name, cost=_cost(_reading(given["target"]), setting).to_json())


def _tried(make: Callable[[], Module], question: Question) -> Trial:
    """What the target computes at a few sizes. torch is loaded here, where nobody waits for it."""
    import torch

    from engine.gates.g1_g2.few_sizes import tried

    recipe, binding = question.recipe, question.binding
    assert recipe is not None and binding is not None
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        return _or_problem(
            lambda: tried(make(), recipe, binding), lambda words: Trial(problem=words)
        )
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(*_: object) -> None:
    raise InputError(f"a run takes longer than {LONGEST} seconds")


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
    os._exit(0)  # whoever asked is gone


if __name__ == "__main__":
    main()
