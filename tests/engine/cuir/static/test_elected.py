"""Branches for the elected thread, and questions that the executor's units cannot answer."""

import pytest
from helpers import faults, golden_text, make_inputs

from engine.cuir.execute import Limits, run_program
from engine.cuir.parser import parse_module

TEXT = golden_text("hopper_pingpong")
FREED = "                if elect():\n                    arrive(k_empty[stage])\n"
BODY = "                    arrive(k_empty[stage])\n"

OTHERS_GO_ON = {
    "all but the elected thread": f"                if not elect():\n{BODY}",
    "a comparison": f"                if elect() == False:\n{BODY}",
    "or": f"                if elect() or n == 0:\n{BODY}",
    "a name for all but it": (
        f"                rest = not elect()\n                if rest:\n{BODY}"
    ),
    "a number of it": (
        f"                side = 1 if elect() else 2\n                if side == 2:\n{BODY}"
    ),
    "a name that is given twice": (
        "                chosen = elect()\n                chosen = n >= 0\n"
        f"                if chosen:\n{BODY}"
    ),
    "an else": (
        f"                if elect():\n{BODY}                else:\n"
        "                    mma_fence()\n"
    ),
    "a bound": f"                for k in range(1 if elect() else 0):\n{BODY}",
}

ONE_THREAD = {
    "alone": FREED,
    "beside and": f"                if n >= 0 and elect():\n{BODY}",
    "a name": f"                chosen = elect()\n                if chosen:\n{BODY}",
    "a name with more": (
        f"                chosen = elect() and n >= 0\n                if chosen:\n{BODY}"
    ),
}


@pytest.mark.parametrize("text", OTHERS_GO_ON.values(), ids=OTHERS_GO_ON)
def test_what_sends_the_other_threads_another_way_is_reported_and_not_run(text):
    assert TEXT.count(FREED) == 1
    module = parse_module(TEXT.replace(FREED, text))
    assert "not_elected" in {f.kind for f in faults(module)}
    outcome = run_program(module, make_inputs(Nq=130, Nk=130), limits=Limits(sm_count=3))
    assert outcome.status == "failed"
    assert [f.kind for f in outcome.findings] == ["not_elected"]


@pytest.mark.parametrize("text", ONE_THREAD.values(), ids=ONE_THREAD)
def test_a_branch_for_one_thread_runs(text):
    module = parse_module(TEXT.replace(FREED, text))
    assert faults(module) == ()
    outcome = run_program(module, make_inputs(Nq=130, Nk=130), limits=Limits(sm_count=3))
    assert outcome.clean
