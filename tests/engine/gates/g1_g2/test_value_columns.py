"""Values of other columns than the queries: flash_fwd_sm90 at head size 192 has 128."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Module
from engine.errors import InputError
from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.runs.case_run import exact, make_case, weights_of
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.resources import specs_dir
from engine.spec.read import read_recipe
from engine.transfer.rules import plan

CASE = Case(1, 2, 1, 70, 150, modes=("exact",))


def lifted() -> Module:
    return lift(load_package("flash_fwd_sm90"), "bf16_192", "sm_90a").module


def test_the_expert_kernel_is_judged_with_its_own_columns() -> None:
    reference, module = load_package("flash_fwd_sm90").reference, lifted()
    assert reference is not None
    recipe = read_recipe(reference, {})
    subject = Subject(module, recipe, plan(module, recipe).binding, reference, {})
    assert subject.columns == {"D": 192, "Dv": 128}
    inputs, sizes = make_case(subject, CASE, 0)
    assert [inputs[n].shape[-1] for n in "qkv"] == [192, 192, 128]
    failure, _ = exact(BY_RECIPE, subject, CASE, 0)
    assert failure is None, failure
    failure, weights = weights_of(subject, CASE, inputs, sizes, 0)
    assert failure is None and weights is not None and weights.shape == (1, 2, 70, 150)


@pytest.mark.parametrize("spec", ["causal", "bias_gqa", "flex_causal_document"])
def test_a_spec_whose_values_are_as_wide_as_its_queries_is_told_so(spec: str) -> None:
    module, recipe = lifted(), read_recipe(specs_dir() / f"{spec}.py", {})
    with pytest.raises(InputError, match="128 columns") as told:
        plan(module, recipe)
    assert told.value.exit_code == 2 and "Dv" in told.value.fix
