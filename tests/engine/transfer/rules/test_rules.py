"""The rules on both bundled kernels: what they change, and that they say why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Call, walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.errors import CuirError, TransferError
from engine.spec.recipes.recipe import Input
from engine.transfer.proposals.review import compose, propose
from engine.transfer.rules import apply, plan
from engine.types import Decision, DecisionKind, Origin
from tests.engine.transfer.recipes import VARIANTS, lifted, recipe

KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_variant_is_carried_and_reviewable(kernel: str, variant: str) -> None:
    base = lifted(kernel)
    steps = plan(base, VARIANTS[variant]).steps
    trail = list(apply(base, steps))
    target = trail[-1][1]
    assert parse_module(print_module(target)) == target
    proposal = propose(
        base, target, id="p", origin=Origin.RULES, reason="r", ids=assign(base), trail=trail
    )
    assert proposal.hunks and all(h.title and h.reason and h.clause for h in proposal.hunks)
    every = {h.id: Decision(h.id, DecisionKind.ACCEPTED, "me") for h in proposal.hunks}
    assert compose(base, target, proposal, every) == target
    assert compose(base, target, proposal, {}) == base
    for left_out in proposal.hunks:
        some = {k: d for k, d in every.items() if k != left_out.id}
        assert compose(base, target, proposal, some) != target


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_plain_scale_changes_nothing(kernel: str) -> None:
    planned = plan(lifted(kernel), recipe("x * rsqrt(f32(D))"))
    assert planned.steps == ()
    assert [s.field for s in planned.binding.scalars] == ["scale"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_negative_scale_is_not_folded(kernel: str) -> None:
    """exp2 after the row maximum of the raw scores is wrong for a negative multiplier."""
    titles = [s.title for s in plan(lifted(kernel), recipe("x * -0.5")).steps]
    assert "Compute the spec's score" in titles


@pytest.mark.parametrize("kernel", KERNELS)
def test_sigmoid_sends_the_softmax_away(kernel: str) -> None:
    *_, (_, target) = apply(lifted(kernel), plan(lifted(kernel), VARIANTS["sigmoid"]).steps)
    used = {
        e.fn
        for _, s in walk(target)
        for e in [getattr(s, "value", None) or getattr(s, "call", None)]
        if isinstance(e, Call)
    }
    assert not used & {"row_max", "row_sum", "row_reduce", "store_rows"}
    assert all(f.name != "lse" for f in target.fields)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kv_head", ["h % Hkv", "heads[h]"])
def test_another_head_map_takes_the_place_of_the_kernels(kernel: str, kv_head: str) -> None:
    table = (Input("heads", "extra", "i32", ("Hq",)),) if "[" in kv_head else ()
    *_, (step, target) = apply(
        lifted(kernel), plan(lifted(kernel), recipe(kv_head=kv_head, extra=table)).steps
    )
    assert "key/value head" in step.reason
    assert f"h_kv = {kv_head.replace('Hkv', 'args.Hkv')}" in print_module(target)
    assert not check(target)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_a_kernel_s_mask_calls_its_row_and_key_is_no_matter(kernel: str) -> None:
    base, asked = lifted(kernel), VARIANTS["softcap_causal"]
    text = print_module(base)
    other = parse_module(text.replace("lambda i, j: j < args.Nk", "lambda r, c: c < args.Nk"))
    assert other != base
    made = [[*apply(module, plan(module, asked).steps)][-1][1] for module in (base, other)]
    assert made[0] == made[1]
    caught = parse_module(text.replace("lambda i, j: j <", "lambda r, c: i - i + c <"))
    with pytest.raises(TransferError, match="called i or j"):
        list(apply(caught, plan(caught, asked).steps))


def test_a_schedule_that_would_call_what_is_defined_after_it_is_refused() -> None:
    base = lifted("flash_fwd_sm90")
    first, second, *rest = base.functions
    assert (first.name, second.name) == ("tile_count", "tile_index")
    moved = replace(base, functions=(second, first, *rest))
    with pytest.raises(TransferError, match="tile_index has to call tile_count"):
        list(apply(moved, plan(moved, VARIANTS["softcap_causal"]).steps))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["o", "args", "T", "q0", "sK"])
def test_an_input_with_a_name_of_the_kernel_gets_another(kernel: str, name: str) -> None:
    extra = (Input(name, "extra", "f32", ("Hq",)),)
    base = lifted(kernel)
    planned = plan(base, recipe(f"x * 0.125 + {name}[h]", extra=extra))
    target = [*apply(base, planned.steps)][-1][1]
    added = {f.name for f in target.fields} - {f.name for f in base.fields}
    assert added == {f"{name}_input"}


def test_an_edited_hunk_takes_its_place() -> None:
    base = lifted("flash_fwd_sm80")
    trail = list(apply(base, plan(base, VARIANTS["softcap_causal"]).steps))
    target = trail[-1][1]
    proposal = propose(base, target, id="p", origin=Origin.RULES, reason="", ids=assign(base))
    decisions = {h.id: Decision(h.id, DecisionKind.ACCEPTED, "me") for h in proposal.hunks}
    hunk = next(h for h in proposal.hunks if "keep(" in h.after)
    text = hunk.after.replace("j <= i", "j < i")
    decisions[hunk.id] = Decision(hunk.id, DecisionKind.EDITED, "me", replacement=text)
    edited = compose(base, target, proposal, decisions)
    assert print_module(edited) == print_module(target).replace(
        "and j <= i + offset, at=", "and j < i + offset, at="
    )
    broken = decisions | {
        hunk.id: Decision(hunk.id, DecisionKind.EDITED, "me", replacement="s = keep(s,")
    }
    with pytest.raises(CuirError):
        compose(base, target, proposal, broken)


@pytest.mark.parametrize(
    ("reduced", "why"),
    [
        ("sum_over(lambda c: o[c] * o[c], min(D, 32))", "some of the output's columns"),
        ("sum_over(lambda c: o[c] * o[c + 64], D)", "at other columns"),
        ("max_over(lambda c: abs(o[c]), D)", "maximum over the output's columns"),
    ],
)
def test_a_norm_of_something_else_than_the_output_s_row_is_refused(reduced: str, why: str) -> None:
    base = lifted("flash_fwd_sm80")
    with pytest.raises(TransferError, match=why):
        list(apply(base, plan(base, recipe(output=f"o / {reduced}")).steps))


def test_a_norm_may_have_the_number_of_columns_of_the_specialisation() -> None:
    base = lifted("flash_fwd_sm80", 128)
    made = [
        list(apply(base, plan(base, recipe(output=f"o / sum_over(lambda c: o[c], {n})")).steps))
        for n in ("Dv", "128")
    ]
    assert made[0][-1][1] == made[1][-1][1]


@pytest.mark.parametrize("variant", ["sink", "row_gate"])
def test_a_kernel_that_normalises_after_the_log_sum_exp_is_refused(variant: str) -> None:
    lines = print_module(lifted("flash_fwd_sm80")).split("\n")
    at = next(n for n, line in enumerate(lines) if "inverse = map(l" in line)
    assert "o = map(o, inverse" in lines[at + 1] and "lse = map(m, l" in lines[at + 2]
    lines[at : at + 3] = [lines[at + 2], *lines[at : at + 2]]
    base = parse_module("\n".join(lines))
    with pytest.raises(TransferError, match="no `map` of the row sum `l` before the log-sum-exp"):
        list(apply(base, plan(base, VARIANTS[variant]).steps))
