"""The launch in a CUDA graph: captured once, replayed on inputs that have changed since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from engine.worker.launches.guarded_call import synchronise
from engine.worker.launches.result_rows import NOT_RUN
from engine.worker.launches.specialisation import Subject
from engine.worker.problems import problem_sizes as deck

Capture = Callable[[Callable[[], int]], Callable[[], None]]


def captured(launch: Callable[[], int]) -> Callable[[], None]:
    """The launch as a graph on the current device; the function replays it.

    RuntimeError where CUDA refuses to capture it.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        status = launch()
    if status:
        raise RuntimeError(f"the captured launch returned {status}")
    return graph.replay


def check_graph(subject: Subject, capture: Capture = captured) -> dict[str, Any]:
    """A replay must give the bits of a launch on what the inputs hold by then."""
    case = subject.repeat_case
    with subject.tallies.timed("graph") as tally:
        if case is None:
            return {**tally.row(), "verdict": NOT_RUN, "reason": "no case of the deck applies"}
        subject.say(f"graph: {case}")
        call, _ = subject.call(case)
        call.run()  # what a first launch loads is loaded
        sizes = subject.run.sizes(case, subject.d, subject.dv)
        try:
            replay = capture(lambda: call.launch(call.fields))
        except RuntimeError as error:
            words = f"it cannot be captured: {str(error).splitlines()[0]}"
            if subject.terms.theirs:
                return {**tally.row(), "verdict": NOT_RUN, "reason": words}
            tally.case()
            tally.fail(f"{case}: {words}")
            return tally.row()
        for n, lies in enumerate((0, 2)):
            tally.case()
            call.lies = lies  # what a replay finds in the workspace, where there is one
            fresh = replace(case, values=deck.PEAKED, seed=8101 + n, turn=n + 2)
            inputs = subject.run.make_inputs(fresh, sizes, subject.dtype)
            for name, held in call.inputs.items():
                held.tensor.copy_(inputs[name])
            call.run()
            wanted = call.bits()
            call.blank()
            replay()
            synchronise(subject.run.device)
            pairs = zip(wanted, call.bits(), strict=True)
            if different := sum(int((a != b).sum()) for a, b in pairs):
                tally.fail(f"{fresh}: {different} elements of a replay differ from a launch")
            if outside := call.touched_outside():
                tally.fail(f"{fresh}: a replay changed {outside} bytes outside of the outputs")
    return tally.row()
