"""A target's predicted speed beside the bare kernel's: what is slow passes no gate by itself."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge_tui.model.next_step import owed
from engine.build.machine_code.result import BuildResult
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.errors import StoreError
from engine.gates.g3_source import lowering_check, speed
from engine.gates.g3_source.speed import (
    LARGEST_ERROR,
    SLOWEST,
    SPEED,
    Speed,
    beside,
)
from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.transfer.binding import Binding, ScalarField
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
    found = beside(BASE, parse_module(slow_text(), "slow"), None, None)
    assert found.share < SLOWEST and found.slow and found.visited == pytest.approx(1.0)
    assert "predicted to take" in found.words and "the bare kernel" in found.words
    assert Speed.of({SPEED: json.loads(json.dumps(found.to_json()))}) == found
    same = beside(BASE, BASE, None, None)
    assert same.share == pytest.approx(1.0) and not same.slow and same.words.endswith(")")


def test_a_number_of_the_spec_reaches_the_prediction() -> None:
    text = print_module(BASE).replace("    scale: f32\n", "    scale: f32\n    window: i32\n", 1)
    reach = "ceil_div(min(args.Nk, args.window), BN)"
    text = text.replace("ceil_div(args.Nk, BN)", reach, 1)
    target = parse_module(text, "window")
    times = [
        beside(BASE, target, None, Binding((), (), (ScalarField("window", parse_expr(value)),))).us
        for value in ("Nk", "Nk // 4", "1024")
    ]
    whole = beside(BASE, BASE, None, None).us
    assert times[0] == pytest.approx(whole) and 0.2 < times[1] / whole < 0.35
    assert times[2] < times[1]


def test_two_attentions_are_set_against_two_bare_calls() -> None:
    one = Speed(190.0, 100.0, 1)
    assert one.share == pytest.approx(0.526, abs=0.001) and not one.slow
    assert replace(one, us=310.0).slow and not replace(one, us=310.0, attentions=2).slow
    recipe = VARIANTS["softcap_causal"]
    assert beside(BASE, BASE, recipe, None).attentions == 1


def test_within_the_models_largest_error_it_is_told_and_not_failed() -> None:
    near = Speed(250.0, 100.0, where="a card")
    assert not near.slow and "below half of that speed, within the model's largest error, 32%" in (
        near.words
    )
    guessed = Speed(900.0, 100.0, where="a card", examples=True)
    assert not guessed.slow and guessed.words.endswith(
        "by example values of what the mask reads (of ids: 8 documents of 3 to 29% of a row)"
    )
    assert beside(BASE, BASE, VARIANTS["document"], None).examples
    largest = re.findall(r"within 15%, from -(\d+)% to", Path("docs/cost.md").read_text())
    assert largest == [f"{100 * LARGEST_ERROR:.0f}"]


def test_a_bare_kernel_that_visits_fewer_pairs_than_the_spec_keeps_is_taken_for_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = speed.prediction_of(BASE, speed.setting_of(BASE, None, None))
    half = replace(whole, microseconds=whole.microseconds / 2, visited_flops=whole.flops / 2)
    monkeypatch.setattr(speed, "prediction_of", lambda *_: half)
    assert beside(BASE, BASE, None, None).bare_us == pytest.approx(whole.microseconds)
    none = replace(half, visited_flops=0.0)
    monkeypatch.setattr(speed, "prediction_of", lambda *_: none)
    assert "no pair" in beside(BASE, BASE, None, None).problem


def test_a_fault_of_the_cost_model_itself_is_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(speed, "bound_words", broken)
    with pytest.raises(KeyError):
        beside(BASE, BASE, None, None)


def test_a_mask_that_divides_by_an_example_of_zero_is_not_predicted() -> None:
    recipe = VARIANTS["document"]
    recipe = replace(recipe, keep=parse_expr("i // doc[j] > 3", "keep"))
    assert "with example values" in beside(BASE, BASE, recipe, None).problem


def test_what_the_cost_model_cannot_follow_is_not_slow() -> None:
    text = print_module(BASE)
    hostless = parse_module(text[: text.index("@host")], "hostless")
    found = beside(BASE, hostless, None, None)
    assert found.problem and not found.slow and "is not predicted" in found.words


@pytest.mark.parametrize(("us", "level"), [(2850.0, Level.CPU_VERIFIED), (3000.0, Level.NONE)])
def test_too_slow_a_target_is_accepted_as_overridden_alone(
    us: float, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = BuildResult(True, "sm_80", "nvcc", "", None, (), (), "", 0, 0.0)
    monkeypatch.setattr(lowering_check, "_check_text", lambda *_: None)
    monkeypatch.setattr(lowering_check, "find_toolchain", lambda: None)
    monkeypatch.setattr(lowering_check, "_compile", lambda *_: (built, built))
    monkeypatch.setattr(lowering_check, "compare", lambda *_: ())
    found = Speed(us, 1000.0, where="a card")
    monkeypatch.setattr(lowering_check, "beside", lambda *_: found)
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
            assert verdict.reason.startswith("predicted below half of the bare kernel's speed; lif")
            assert verdict.too_slow and Speed.of(verdict.details) == found
            assert owed(work.state).action == "override"  # no other lowering is asked for
            with pytest.raises(StoreError, match="G3 fail"):
                work.accept()
            taken = replace(verdict, kind=VerdictKind.OVERRIDDEN, reason="a first try", by="tester")
            work.give(taken)
            assert work.accept().level is Level.OVERRIDDEN
            monkeypatch.setattr(lowering_check, "beside", lambda *_: {}["a bug"])
            assert work.weigh_lowered().unfinished
