"""Variables that rules add never take the name of an input, or of a dimension, of the spec."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from engine.cuir.execute import run_program
from engine.cuir.nodes import Module
from engine.cuir.static.check import check
from engine.errors import TransferError
from engine.lift import lift, load_package
from engine.lower.lower import lower
from engine.lower.spelling.legal import legal
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.fill import fill_arguments
from engine.transfer.rules import apply, plan
from engine.transfer.rules.launches.pass_inputs import RENAME
from engine.transfer.workspace import launch_constants
from tests.engine.transfer.recipes import recipe
from tests.engine.transfer.rules.tile_lists.test_tile_lists import kept_pairs

torch.set_num_threads(1)
KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
NUMBERS = "j >= {0}[b] and j <= i + 40"
PREFIX = "(j < {0}[b] or j >= i - 20) and j <= i + 40"
PAIRS = "{0}[b, j] <= {0}[b, i] and j <= i + 40"
IDS = {NUMBERS: "numbers", PREFIX: "prefix", PAIRS: "pairs"}
# For each mask what the rules call their own variables and fields, where nothing is called so.
OWN = {
    NUMBERS: ("last", "first", "begin", "end", "own_last"),
    PREFIX: ("last", "first", "begin", "end", "own_last", "prefix", "visit"),
    PAIRS: ("last", "first", "slots", "planned", "lists", "slot", "step", "row_block", "kind"),
}
SIZES = {"B": 2, "Hq": 1, "Hkv": 1, "Nq": 150, "Nk": 190, "D": 64, "Dv": 64}


@cache
def base(kernel: str) -> Module:
    return lift(load_package(kernel), "bf16_64").module


def values(wanted: Recipe, sizes: dict[str, int]) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    out = {}
    for item in wanted.inputs:
        shape = [sizes[d] for d in item.dims]
        if item.role != "extra":
            out[item.name] = torch.randn(shape, generator=draw).double()
        elif len(shape) == 1:
            out[item.name] = torch.tensor([5, 137])
        else:
            out[item.name] = (torch.rand(shape, generator=draw) < 0.02).cumsum(-1)
    return out


def holds(kernel: str, wanted: Recipe, **more: int) -> bool:
    """True when the kernel is carried and computes the spec; False when its name is refused."""
    try:
        planned = plan(base(kernel), wanted)
        *_, (_, target) = apply(base(kernel), planned.steps)
    except TransferError as refused:
        assert refused.fix == RENAME
        return False
    target = legal(target)
    assert check(target) == ()
    assert lower(lift(load_package(kernel), "bf16_64"), target).source
    sizes = {**SIZES, **more, **launch_constants(target, planned.binding)}
    given = values(wanted, sizes)
    filled = fill_arguments(planned.binding, given, sizes, torch.float64).fields
    outcome = run_program(target, filled, "exact")
    assert outcome.status == "ran" and outcome.findings == ()
    keep = kept_pairs(wanted, given, sizes)
    scores = given["q"] @ given["k"].transpose(-2, -1) * 0.125
    scores = scores.masked_fill(~keep, -torch.inf)
    want = torch.softmax(scores, -1).nan_to_num(0.0) @ given["v"]
    got = next(i.field for i in planned.binding.tensors if i.output and i.source == "O")
    assert (outcome.outputs[got] - want).abs().max() < 1e-10
    return True


@pytest.mark.parametrize(
    ("mask", "name"),
    [pytest.param(mask, name, id=f"{IDS[mask]}-{name}") for mask in OWN for name in OWN[mask]],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_an_input_may_be_called_as_a_rule_s_own_variable(kernel: str, mask: str, name: str) -> None:
    dims = ("B", "Nk") if mask == PAIRS else ("B",)
    wanted = recipe(keep=mask.format(name), extra=(Input(name, "extra", "i32", dims),))
    assert holds(kernel, wanted)


@pytest.mark.parametrize("name", ["first", "last", "slots", "planned", "lists"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_so_may_a_dimension(kernel: str, name: str) -> None:
    item = Input("doc", "extra", "i32", ("B", name))
    assert holds(kernel, recipe(keep=PAIRS.format("doc"), extra=(item,)), **{name: 190})


def test_all_of_them_at_once() -> None:
    names = ("last", "first", "begin", "end", "own_last", "prefix", "visit")
    keep = " and ".join(f"j >= {name}[b] - 100" for name in names) + " and j <= i + 40"
    extra = tuple(Input(name, "extra", "i32", ("B",)) for name in names)
    assert holds("flash_fwd_sm90", recipe(keep=keep, extra=extra))
