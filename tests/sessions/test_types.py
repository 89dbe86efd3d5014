"""The shared vocabulary: exact round trips, and the level as a pure function of verdicts."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given

from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Level,
    Proposal,
    Stage,
    Verdict,
    VerdictKind,
    level_of,
    open_assumptions,
    sha256_of,
)
from engine.types.plain import SCHEMA_VERSION
from tests.sessions import strategies as own


def through_json(value: object) -> object:
    return type(value).from_json(json.loads(json.dumps(value.to_json(), allow_nan=False)))  # type: ignore[attr-defined]


@given(own.verdicts)
def test_verdict_round_trip(verdict: Verdict) -> None:
    assert through_json(verdict) == verdict


@given(own.artifacts)
def test_artifact_round_trip(artifact: Artifact) -> None:
    assert through_json(artifact) == artifact
    assert Artifact.of(artifact.stage, artifact.name, artifact.text) == artifact


@given(own.proposals)
def test_proposal_round_trip(proposal: Proposal) -> None:
    assert through_json(proposal) == proposal


@given(own.hunks)
def test_hunk_round_trip(hunk: Hunk) -> None:
    assert through_json(hunk) == hunk


@given(own.decisions)
def test_decision_round_trip(decision: Decision) -> None:
    assert through_json(decision) == decision


@pytest.mark.parametrize(
    "spoil",
    [
        lambda obj: obj.pop("schema"),
        lambda obj: obj.update(schema=SCHEMA_VERSION + 1),
        lambda obj: obj.update(schema=True),
        lambda obj: obj.update(gate="G9"),
        lambda obj: obj.pop("details"),
        lambda obj: obj.update(seconds="fast"),
        lambda obj: obj.update(seconds=True),
        lambda obj: obj.update(subject={"artifact": 3}),
        lambda obj: obj.update(assumed="op1"),
    ],
)
def test_what_cannot_be_read_is_a_value_error(spoil) -> None:  # type: ignore[no-untyped-def]
    obj = Verdict(Gate.G1, VerdictKind.PASS).to_json()
    spoil(obj)
    with pytest.raises(ValueError):
        Verdict.from_json(obj)


def test_details_keep_no_hold_on_what_they_were_made_from() -> None:
    mine = {"errors": [1.0, float("nan"), float("-inf")]}
    verdict = Verdict(Gate.G2, VerdictKind.FAIL, details=mine)
    mine["errors"].append(2.0)
    assert verdict.details == {"errors": [1.0, "nan", "-inf"]}


def test_details_that_are_no_json_are_refused() -> None:
    with pytest.raises(ValueError):
        Verdict(Gate.G2, VerdictKind.FAIL, details={"x": {1, 2}})


def test_an_artifact_cannot_claim_another_hash() -> None:
    with pytest.raises(ValueError):
        Artifact(Stage.SOURCE, "kernel.cu", b"int x;", sha256_of("int y;"))


def test_an_edit_and_only_an_edit_carries_a_replacement() -> None:
    with pytest.raises(ValueError):
        Decision("h1", DecisionKind.EDITED, "ana")
    with pytest.raises(ValueError):
        Decision("h1", DecisionKind.ACCEPTED, "ana", replacement="x")


def test_each_gate_has_its_stage() -> None:
    assert [gate.stage for gate in Gate] == list(Stage)[1:]


def expected_level(kinds: tuple[VerdictKind, ...]) -> Level:
    """The design's sentence, written a second time and differently."""
    ok = {VerdictKind.PASS, VerdictKind.OVERRIDDEN}
    if set(kinds) == {VerdictKind.PASS}:
        return Level.GPU_VERIFIED
    if set(kinds[:3]) <= ok and kinds[3] is not VerdictKind.FAIL:
        if VerdictKind.OVERRIDDEN in kinds:
            return Level.OVERRIDDEN
        return Level.CPU_VERIFIED
    return Level.NONE


def test_level_of_every_combination() -> None:
    for kinds in itertools.product(VerdictKind, repeat=4):
        found = [Verdict(gate, kind) for gate, kind in zip(Gate, kinds, strict=True)]
        assert level_of(found) is expected_level(kinds), kinds


def test_a_missing_verdict_is_one_not_run() -> None:
    three = [Verdict(gate, VerdictKind.PASS) for gate in (Gate.G1, Gate.G2, Gate.G3)]
    assert level_of(three) is Level.CPU_VERIFIED
    assert level_of(three[:2]) is Level.NONE
    assert level_of([]) is Level.NONE


def test_the_last_verdict_of_a_gate_counts() -> None:
    three = [Verdict(gate, VerdictKind.PASS) for gate in (Gate.G1, Gate.G2, Gate.G3)]
    assert level_of([*three, Verdict(Gate.G2, VerdictKind.FAIL)]) is Level.NONE


def test_assumptions_stand_until_the_gpu_has_run_it() -> None:
    lifted = Verdict(Gate.G1, VerdictKind.PASS, assumed=("op7",))
    assert open_assumptions([lifted]) == ("op7",)
    assert open_assumptions([lifted, Verdict(Gate.G4, VerdictKind.PASS)]) == ()


def test_a_stale_verdict_says_what_it_was() -> None:
    verdict = Verdict(Gate.G3, VerdictKind.PASS, "no spills").stale("target changed")
    assert verdict.kind is VerdictKind.STALE
    assert "target changed" in verdict.reason and "pass: no spills" in verdict.reason
