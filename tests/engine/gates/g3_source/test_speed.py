"""A target's predicted speed beside the bare kernel's: what is slow passes no gate by itself."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import StoreError
from engine.gates.g3_source.lowering_check import G3
from engine.gates.g3_source.speed import SLOWEST, SPEED, Speed, beside, too_slow
from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import Gate, Level, VerdictKind
from sessions.store import Store
from tests.engine.transfer.recipes import VARIANTS, lifted

BASE = lifted("flash_fwd_sm80")
MAX = "        m = row_max(s, m)\n"
# Right, and slow: the same maximum again and again.
SLOW = f"        for again in range(60):\n    {MAX}"


def slow_text() -> str:
    text = print_module(BASE)
    assert text.count(MAX) == 1
    return text.replace(MAX, SLOW)


def test_what_does_the_same_over_and_over_is_slow() -> None:
    found = beside(BASE, parse_module(slow_text(), "slow"), None)
    assert found.share < SLOWEST and found.slow and found.visited == pytest.approx(1.0)
    assert "predicted to take" in found.words and "the bare kernel" in found.words
    assert Speed.of({SPEED: json.loads(json.dumps(found.to_json()))}) == found
    same = beside(BASE, BASE, None)
    assert same.share == 1.0 and not same.slow


def test_two_attentions_are_set_against_two_bare_calls() -> None:
    one = Speed(190.0, 100.0, 1)
    assert one.share == pytest.approx(0.526, abs=0.001) and not one.slow
    assert replace(one, us=210.0).slow and not replace(one, us=210.0, attentions=2).slow
    recipe = VARIANTS["softcap_causal"]
    assert beside(BASE, BASE, recipe).attentions == 1


def test_what_the_cost_model_cannot_follow_is_not_slow() -> None:
    text = print_module(BASE)
    hostless = parse_module(text[: text.index("@host")], "hostless")
    found = beside(BASE, hostless, None)
    assert found.problem and not found.slow and "is not predicted" in found.words
    assert not too_slow({}) and not too_slow({SPEED: found.to_json()})


@pytest.mark.parametrize(("us", "level"), [(1900.0, Level.CPU_VERIFIED), (2100.0, Level.NONE)])
def test_below_half_of_the_speed_is_accepted_as_overridden_alone(
    us: float, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(us, 1000.0, where="a card")
    passed = G3(VerdictKind.PASS, "compiles", {SPEED: speed.to_json()}, "nvcc")
    monkeypatch.setattr(Adaptation, "judge_source", lambda *_: passed)
    with Bench(Store.open(tmp_path / "store.git")) as bench:
        package = find_kernel("flash_fwd_sm80")
        options = choose_options(package, specialisation={"D": "64"})
        session = start(bench, package, find_spec("softcap_causal"), options, "tester")
        with bench.store.writer(session, wait=5) as writer:
            work = Adaptation(bench, writer, "tester")
            work.make_lifted()
            work.accept_all(work.propose_by_rules())
            work.lower()
            for gate in (Gate.G1, Gate.G2):  # other tests' business
                work.give(work.found(gate, time.monotonic(), Found(True, "")))
            verdict = work.judge_lowered()
            assert work.state.level is level
            if level is Level.CPU_VERIFIED:
                assert verdict.kind is VerdictKind.PASS
                return
            assert verdict.kind is VerdictKind.FAIL
            assert verdict.reason.startswith("below half of the bare kernel's speed; compiles")
            with pytest.raises(StoreError, match="G3 fail"):
                work.accept()
            taken = replace(verdict, kind=VerdictKind.OVERRIDDEN, reason="a first try", by="tester")
            work.give(taken)
            assert work.accept().level is Level.OVERRIDDEN
