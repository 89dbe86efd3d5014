"""The order of the rules is what their declarations say, whatever order they are listed in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.transfer.rules import RULES, Rule, plan
from engine.transfer.rules.base.rule import ordered
from tests.engine.transfer.recipes import VARIANTS, lifted


def test_each_rule_comes_after_those_that_it_names() -> None:
    place = {rule.name: n for n, rule in enumerate(RULES)}
    assert len(place) == len(RULES)
    for rule in RULES:
        assert all(place[name] < place[rule.name] for name in rule.after), rule.name


@given(st.permutations(RULES))
def test_the_order_of_the_list_says_nothing(rules: list[Rule]) -> None:
    assert ordered(rules) == RULES


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_a_plan_has_its_steps_in_that_order(kernel: str) -> None:
    titles = [rule.title for rule in RULES if isinstance(rule.title, str)]
    for variant in VARIANTS.values():
        steps = [s.title for s in plan(lifted(kernel), variant).steps if s.title in titles]
        assert steps == sorted(steps, key=titles.index)


def changed(name: str, *after: str) -> list[Rule]:
    return [replace(r, after=after) if r.name == name else r for r in RULES]


def test_an_unknown_name_a_cycle_and_an_open_order_are_said() -> None:
    with pytest.raises(ValueError, match="keep comes after scores: no such rule"):
        ordered(changed("keep", "scores"))
    with pytest.raises(ValueError, match=r"a cycle: each of .*keep.*visit"):
        ordered(changed("keep", "exponent", "ticket"))
    with pytest.raises(ValueError, match="which comes first: inputs, keep"):
        ordered(changed("keep"))
    with pytest.raises(ValueError, match="two rules are called keep"):
        ordered([*RULES, *changed("keep", "inputs")])
