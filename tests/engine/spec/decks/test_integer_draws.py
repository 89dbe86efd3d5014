"""Ids and flags come in the ways that models bring them, in turns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.parser import parse_expr
from engine.resources import specs_dir
from engine.spec.decks import integer_draws as draws
from engine.spec.decks.deck_inputs import make_inputs, ways_of
from engine.spec.read import read_recipe
from engine.spec.recipes.recipe import Input, Recipe
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json

SIZES = {"B": 2, "Hq": 2, "Hkv": 1, "Nq": 90, "Nk": 90, "D": 64, "Dv": 64}


def made(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*draws.IDS, *draws.FLAGS]),
    st.lists(st.integers(0, 20), max_size=4),
    st.integers(0, 10**6),
)
def test_every_way_has_the_shape_and_follows_the_seed(
    way: draws.Draw, shape: list[int], seed: int
) -> None:
    one, other = way(shape, made(seed)), way(shape, made(seed))
    assert list(one.shape) == shape and torch.equal(one, other)
    assert one.dtype == (torch.bool if way in draws.FLAGS else torch.int64)
    if way in draws.ANY_IDS:
        assert bool((one >= 0).all())


def falls(ids: torch.Tensor) -> bool:
    return bool((ids[1:] < ids[:-1]).any())


def test_the_ways_are_what_they_are_called() -> None:
    shape = [200]
    assert not falls(draws.sorted_runs(shape, made()))
    assert falls(draws.unsorted(shape, made())) and falls(draws.permuted_runs(shape, made()))
    assert len(set(draws.all_equal(shape, made()).tolist())) == 1
    assert draws.first_apart([13], made()).tolist() == 5 * [1] + 8 * [0]
    assert draws.last_apart([13], made()).tolist() == 8 * [0] + 5 * [1]
    assert not draws.first_apart(shape, made()).any()
    assert draws.with_tail(shape, made())[-60:].eq(draws.OUTSIDE).all()
    right = draws.prefix(shape, made()).int()
    assert right[0] == 1 and right[-1] == 0 and bool((right.diff() <= 0).all())
    assert draws.all_true(shape, made()).all() and not draws.all_false(shape, made()).any()
    dense = draws.runs([7, 200], made())
    assert bool((dense == dense[:1]).all()) and 1 < int(dense[0].int().diff().abs().sum()) < 30


def test_batches_of_one_case_differ_and_the_first_turn_is_as_ever() -> None:
    recipe = read_recipe(specs_dir() / "causal_document.py", {})
    plain = make_inputs(recipe, SIZES, 3)["doc_k"]
    assert bool((plain.diff() >= 0).all())
    turned = make_inputs(recipe, SIZES, 3, turn=1)["doc_k"]
    assert bool((turned[0].diff() < 0).any()) and not torch.equal(turned[0], turned[1])
    assert bool((make_inputs(recipe, SIZES, 3, turn=6)["doc_k"][0] == draws.OUTSIDE).any())


@pytest.mark.parametrize(
    ("score", "ways"),
    [("x * float(ids[b, j])", draws.IDS), ("x + t[ids[b, j]]", draws.ANY_IDS)],
)
def test_what_indexes_is_never_below_zero(score: str, ways: tuple[draws.Draw, ...]) -> None:
    ids = Input("ids", "extra", "i32", ("B", "Nk"))
    row = ("B", "Hq", "Nq", "D")
    recipe = Recipe(
        "eager", (Input("q", "q", "T", row), ids), parse_expr(score), parse_expr("j < Nk"), None,
        parse_expr("h"), row, "nan",
    )  # fmt: skip
    assert ways_of(ids, recipe) == ways


def test_an_integer_is_drawn_in_the_range_that_its_spec_declares(tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_text(
        "import torch\n"
        "def attention(\n"
        '    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"],\n'
        '    v: Float[Tensor, "B H N D"],\n'
        '    kind: Int32[Tensor, "B N"],  # 2..5\n'
        '    last: Int64[Tensor, "B"],  # 1..N - 1\n'
        "):\n"
        "    bias = torch.eye(6)[:, kind.long()][3]\n"
        "    keep = torch.arange(q.shape[2]) <= last[:, None, None, None]\n"
        "    s = (q @ k.mT + bias[:, None, None]).masked_fill(~keep, -torch.inf)\n"
        "    return torch.softmax(s, -1) @ v\n"
    )
    recipe = read_recipe(path)
    assert recipe_from_json(recipe_to_json(recipe)) == recipe
    sizes = {"B": 40, "Hq": 1, "Hkv": 1, "Nq": 30, "Nk": 30, "D": 4, "Dv": 4}
    seen: dict[str, set[int]] = {"kind": set(), "last": set()}
    for turn in range(6):
        inputs = make_inputs(recipe, sizes, turn, turn=turn)
        for name, values in seen.items():
            values.update(inputs[name].flatten().tolist())
    assert seen["kind"] <= set(range(2, 6)) and len(seen["kind"]) > 1
    assert seen["last"] <= set(range(1, 30)) and max(seen["last"]) > 20
