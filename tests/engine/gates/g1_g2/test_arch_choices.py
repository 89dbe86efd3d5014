"""What the launcher chooses on the package's other archs is judged too."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cuir.printer import print_module
from engine.gates.g1_g2.arch_choices import judge_choices, other_choices
from engine.gates.runs.subject import Subject
from engine.lift import load_package
from engine.spec import recipe_to_json
from tests.engine.gates.g1_g2.test_judge import edited, subject_of

ARCHS = load_package("flash_fwd_sm80").archs


def asked(subject: Subject) -> dict[str, Any]:
    return {
        "module": print_module(subject.module), "recipe": recipe_to_json(subject.recipe),
        "binding": subject.binding.to_json(), "spec": str(subject.spec), "options": {},
        "archs": list(ARCHS),
    }  # fmt: skip


def test_each_choice_is_judged_once() -> None:
    """sm_80, sm_86 and sm_90 have three amounts of shared memory; the rest have one of these."""
    module = subject_of("full", key="bf16_128").module
    found = {name: chosen for name, _, chosen in other_choices(module, ARCHS)}
    assert set(found) == {"sm_86", "sm_90"}
    assert found["sm_86"]["BM"] == 64 and found["sm_90"]["BN"] == 48


@pytest.mark.parametrize("spec", ["full", "causal_document", "sigmoid"])
def test_what_the_rules_write_is_right_on_each(spec: str) -> None:
    said: list[str] = []
    verdict = judge_choices(asked(subject_of(spec, key="bf16_128")), said.append)
    assert verdict["ok"], verdict["reason"]
    assert len(said) == len(set(said)) and {x[:10] for x in said if x.startswith("on ")} == {
        "on sm_86, ", "on sm_90, ",
    }  # fmt: skip
    archs = {row["arch"] for row in verdict["details"]["runs"] if "arch" in row}
    assert archs == {"sm_86", "sm_90"}


@pytest.mark.parametrize(
    ("old", "new", "arch"),
    [
        ("block % q_tiles * BM", "block % q_tiles * 128", "sm_86"),
        ("K[b, h_kv, next * BN:]", "K[b, h_kv, next * 32:]", "sm_90"),
    ],
)
def test_a_literal_in_a_names_place_fails_where_it_is_wrong(old: str, new: str, arch: str) -> None:
    wrong = edited(subject_of("full", key="bf16_128"), old, new)
    verdict = judge_choices(asked(wrong), lambda _: None)
    assert not verdict["ok"] and f"this is on {arch}" in verdict["reason"]
    # On the session's own arch the whole deck passes: what stands on that arch alone would too.
    own = [row for row in verdict["details"]["runs"] if "arch" not in row]
    assert {row["mode"] for row in own} >= {"exact", "typed", "keep set", "a late warp"}
