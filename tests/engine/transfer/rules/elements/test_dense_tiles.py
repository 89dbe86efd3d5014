"""Dense tiles beside asynchronous matmuls: loaded ahead where registers are left to hold them."""

from __future__ import annotations

import re

import pytest

from engine.cuir.nodes import (
    Assign,
    Call,
    Do,
    Expr,
    For,
    If,
    Index,
    Name,
    Num,
    Select,
    Stmt,
    walk_block,
)
from engine.cuir.printer import print_expr
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.match import find_attention
from engine.transfer.rules import plan
from tests.engine.transfer.recipes import lifted, recipe
from tests.engine.transfer.rules.launches.test_grid import target_of

HOPPER = "flash_fwd_sm90"
CAUSAL = "j <= i + (Nk - Nq)"
SUM = "x * 0.125 + near[b, h, i, j]"


def table(name: str, dtype: str) -> Input:
    return Input(name, "extra", dtype, ("B", "Hq", "Nq", "Nk"))


NEAR, WIDE, FLAGS = table("near", "T"), table("near", "f32"), table("flags", "bool")
BOTH = f"{SUM} + far[b, h, i, j]"
# A recipe, the tiles loaded ahead, and the keys of a tile (None: those of the kernel).
CASES: dict[str, tuple[Recipe, list[str], int | None]] = {
    "16 bits": (recipe(SUM, extra=(NEAR,)), ["near"], 80),
    "16 bits and a mask": (recipe(SUM, CAUSAL, (NEAR,)), ["near"], 64),
    "16 bits without a softmax": (recipe(SUM, extra=(NEAR,), weight="sigmoid(s)"), ["near"], 64),
    "32 bits": (recipe(SUM, extra=(WIDE,)), ["near"], 64),
    "two of 16 bits": (recipe(BOTH, extra=(NEAR, table("far", "T"))), ["near", "far"], 64),
    "32 and 16 bits": (recipe(BOTH, extra=(WIDE, table("far", "T"))), [], None),
    "a mask": (recipe(keep="flags[b, h, i, j]", extra=(FLAGS,)), [], None),
    "16 bits and a dense mask": (
        recipe(SUM, "flags[b, h, i, j]", (NEAR, FLAGS)), ["near"], 64,
    ),
}  # fmt: skip


def loads(kernel: str, wanted: Recipe) -> tuple[list[str], list[str]]:
    """The tensors of dense tiles loaded before the first matmul, and those after it."""
    target = target_of(kernel, wanted)
    ahead: list[str] = []
    after: list[str] = []
    seen = False
    for _, stmt in walk_block(target.function(find_attention(lifted(kernel)).kernel).body, ()):
        match stmt:
            case Do(Call(fn)) if fn.startswith("gemm"):
                seen = True
            case Assign(_, Call("load_tile", (Index(Name(tensor)), _))):
                (after if seen else ahead).append(tensor)
    return ahead, after


def keys_of(kernel: str, wanted: Recipe, narrower: int = 0) -> Expr:
    host = target_of(kernel, wanted, narrower).functions[-1]
    return next(s.value for s in host.body if isinstance(s, Assign) and s.target == "BN")


@pytest.mark.parametrize("case", CASES)
def test_what_registers_hold_is_loaded_before_the_matmul(case: str) -> None:
    wanted, ahead, keys = CASES[case]
    found, after = loads(HOPPER, wanted)
    assert sorted(found) == sorted(ahead)
    dense = {i.name for i in wanted.extra()}
    assert set(found) | set(after) == dense
    own = next(
        s.value for s in lifted(HOPPER).functions[-1].body
        if isinstance(s, Assign) and s.target == "BN"
    )  # fmt: skip
    given = keys_of(HOPPER, wanted)
    if keys == 80:
        # Where the kernel's own tile is as narrow, its accumulators leave room for 64 keys alone.
        chosen = re.compile(r"\b\d+(?= if|$)")  # what stands between the conditions
        fewer = chosen.sub(lambda n: "80" if int(n[0]) > 80 else "64", print_expr(own))
        assert print_expr(given) == fewer
    else:
        assert given == (own if keys is None else Num(keys))


SYNCHRONOUS = "flash_fwd_sm80"


@pytest.mark.parametrize("case", CASES)
def test_matmuls_that_are_waited_for_at_once_leave_loads(case: str) -> None:
    ahead, _ = loads(SYNCHRONOUS, CASES[case][0])
    assert ahead == []


FAR, LAST = table("far", "T"), table("last", "T")
THREE = f"{BOTH} + last[b, h, i, j]"
KEYWISE = " or ".join(f"{a}[b, i] == {a}[b, j]" for a in ("one", "two", "three", "four"))
IDS = tuple(Input(n, "extra", "i32", ("B", "Nk")) for n in ("one", "two", "three", "four"))
OWN, WIDE_ONLY, ALL = (64, 48, 32), (64, 16, 16), (48, 16, 16)
# Keys for 64 columns, and for 128 with much shared memory and with little.
SMALLER: dict[str, tuple[Recipe, tuple[int, int, int]]] = {
    "a bias": (recipe(SUM, extra=(NEAR,)), OWN),
    "two biases": (recipe(BOTH, extra=(NEAR, FAR)), OWN),
    "a dense mask": (recipe(keep="flags[b, h, i, j]", extra=(FLAGS,)), WIDE_ONLY),
    "a bias and a dense mask": (recipe(SUM, "flags[b, h, i, j]", (NEAR, FLAGS)), ALL),
    "two biases and a dense mask": (recipe(BOTH, "flags[b, h, i, j]", (NEAR, FAR, FLAGS)), ALL),
    "three biases": (recipe(THREE, extra=(NEAR, FAR, LAST)), ALL),
    "four vectors": (
        recipe(keep=KEYWISE[: KEYWISE.index(" or three")], extra=IDS[:2]),
        (64, 32, 32),
    ),
    "six vectors": (recipe(keep=KEYWISE[: KEYWISE.index(" or four")], extra=IDS[:3]), (64, 32, 16)),
    "eight vectors": (recipe(keep=KEYWISE, extra=IDS), (48, 32, 16)),
}


@pytest.mark.parametrize("case", SMALLER)
def test_tiles_leave_registers_for_all_that_is_read_at_once(case: str) -> None:
    wanted, (narrow, much, little) = SMALLER[case]
    own = print_expr(keys_of(SYNCHRONOUS, recipe(keep=CAUSAL)))
    for was, now in zip(("64 if", "48 if", "else 32"), (narrow, much, little), strict=True):
        assert own.count(was) == 1
        own = own.replace(was, re.sub(r"\d+", f"<{now}>", was))
    assert print_expr(keys_of(SYNCHRONOUS, wanted)) == re.sub(r"<(\d+)>", r"\1", own)


@pytest.mark.parametrize(
    ("case", "rows", "keys"),
    [("two biases", None, {64}), ("three biases", 128, {64, 48}),
     ("two biases and a dense mask", 128, {64, 48})],
)  # fmt: skip
def test_three_dense_tiles_take_the_fewest_rows(
    case: str, rows: int | None, keys: set[int]
) -> None:
    host = target_of(HOPPER, SMALLER[case][0]).functions[-1]
    given = {s.target: s.value for s in host.body if isinstance(s, Assign)}
    assert (given["BM"] == Num(128)) == (rows == 128)
    assert {n.value for n in _numbers(given["BN"])} == keys


@pytest.mark.parametrize(("case", "step"), [("four vectors", 0), ("six vectors", 16)])
def test_six_vectors_beside_an_asynchronous_matmul_take_a_step_of_keys(
    case: str, step: int
) -> None:
    own = {n.value for n in _numbers(keys_of(HOPPER, recipe(keep=CAUSAL)))}
    given = {n.value for n in _numbers(keys_of(HOPPER, SMALLER[case][0]))}
    assert given == {int(n) - step if n > 64 else n for n in own}


@pytest.mark.parametrize("kernel", [SYNCHRONOUS, HOPPER])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_what_spilled_is_proposed_with_fewer_keys_and_its_price(kernel: str, steps: int) -> None:
    wanted = CASES["16 bits"][0]
    own = [int(n.value) for n in _numbers(keys_of(kernel, wanted))]
    given = [int(n.value) for n in _numbers(keys_of(kernel, wanted, steps))]
    assert given == [max(n - 16 * steps, 16) for n in own]
    assert target_of(kernel, wanted, 8) == target_of(kernel, wanted, 9), "no tile is narrower"
    (step,) = (s for s in plan(lifted(kernel), wanted, steps).steps if "fewer keys" in s.title)
    assert "spills registers, which the source's does not" in step.reason
    if steps == 1:
        assert "2 times as many of 16 keys as of 32" in step.reason
    assert all("fewer keys" not in s.title for s in plan(lifted(kernel), wanted).steps)


def _numbers(value: Expr) -> list[Num]:
    """The numbers that a choice chooses among."""
    if isinstance(value, Select):
        return [*_numbers(value.then), *_numbers(value.other)]
    return [value] if isinstance(value, Num) else []


@pytest.mark.parametrize("case", CASES)
def test_a_tile_held_alone_is_loaded_one_step_ahead(case: str) -> None:
    """The next tile's loads stand right behind the sum of the weights."""
    wanted, _, _ = CASES[case]
    kernel = find_attention(lifted(HOPPER)).kernel
    body = target_of(HOPPER, wanted).function(kernel).body
    tails = [
        [_fn(s) for s in stmt.body]
        for _, stmt in walk_block(body, ())
        if isinstance(stmt, For) and any(_fn(s) == "convert" for s in stmt.body)
    ]
    (names,) = tails
    if case == "16 bits":
        at = names.index("row_sum")
        assert names[at + 1] == "load_tile if" and "load_tile" not in names
    else:
        assert "load_tile if" not in names


def _fn(stmt: Stmt) -> str:
    match stmt:
        case Assign(_, Call(fn)) | Do(Call(fn)):
            return fn
        case If(_, (Assign(_, Call("load_tile")),), ()):
            return "load_tile if"
    return ""
