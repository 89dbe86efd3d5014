"""The scalar language: C's integers, typed rounding, tensors like numbers."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.nodes import Binary, Bool, Call, Compare, Name, Num, Select, Unary
from engine.cuir.parser import parse_expr
from engine.cuir.scalar import FUNCTIONS, evaluate, gather
from engine.errors import CuirError

NAMES = ("i", "j", "x", "y")


@pytest.mark.parametrize(
    "text",
    ["i << 64", "j << 60", "1 << (0 - i)", "i >> 64", "i * j * j * j", "i32(x * 1e30)",
     "(1 << 63) + (1 << 63)", "i32(inf)", "i32(nan)"],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["exact", "typed"])
def test_whole_numbers_have_at_most_64_bits(text, mode):
    with pytest.raises(CuirError, match="whole number"):
        evaluate(parse_expr(text), {"i": 3, "j": 1 << 40, "x": 2.0}, mode)


def test_a_wide_literal_is_refused_at_its_place():
    assert parse_expr("18446744073709551615") == Num(2**64 - 1)
    with pytest.raises(CuirError, match="more than 64 bits") as found:
        parse_expr("1 + 18446744073709551616")
    assert (found.value.where.line, found.value.where.column) == (1, 5)


@cache  # made anew for each example it takes most of the example's time
def grow(kind):
    """Expressions of a kind: int, float or bool, over i, j (whole) and x, y (floats)."""
    # Each of them is a branch: with two leaves among nine most examples grow past what is drawn.
    leaf = {
        "int": st.one_of(*(st.just(Name(n)) for n in "ij"), st.integers(-5, 5).map(Num),
                         st.integers(0, 1).map(Num)),
        "float": st.one_of(*(st.just(Name(n)) for n in "xy"),
                           *(st.just(Num(v)) for v in (0.5, -2.0, 3.25))),
    }  # fmt: skip
    divisors = st.sampled_from([3, -4]).map(Num)
    number = st.deferred(lambda: st.one_of(ints, floats))
    ints = st.deferred(
        lambda: st.one_of(
            leaf["int"],
            st.builds(Binary, st.sampled_from("+-*"), ints, ints),
            st.builds(Binary, st.sampled_from(["//", "%"]), ints, divisors),
            st.builds(lambda a, b: Call("min", (a, b)), ints, ints),
            st.builds(lambda a: Call("floor_div", (a, Num(3))), ints),
            st.builds(lambda a: Call("floor_mod", (a, Num(5))), ints),
            st.builds(Select, bools, ints, ints),
        )
    )
    floats = st.deferred(
        lambda: st.one_of(
            leaf["float"],
            st.builds(Binary, st.sampled_from("+-*"), number, floats),
            st.builds(lambda a: Call("tanh", (a,)), number),
            st.builds(lambda a, b: Call("max", (a, b)), floats, floats),
            st.builds(lambda a: Call("float", (a,)), ints),
            st.builds(Select, bools, floats, floats),
            st.builds(lambda a: Unary("-", a), floats),
        )
    )
    bools = st.deferred(
        lambda: st.one_of(
            st.builds(Compare, st.sampled_from(["<", "<=", "==", "!="]), ints, ints),
            st.builds(Compare, st.sampled_from(["<", ">="]), number, floats),
            st.builds(Bool, st.sampled_from(["and", "or"]), bools, bools),
            st.builds(lambda a: Unary("not", a), bools),
        )
    )
    return {"int": ints, "float": floats, "bool": bools}[kind]


values = st.fixed_dictionaries(
    {
        "i": st.lists(st.integers(-20, 20), min_size=4, max_size=4),
        "j": st.lists(st.integers(-20, 20), min_size=4, max_size=4),
        "x": st.lists(st.floats(-4, 4, width=32), min_size=4, max_size=4),
        "y": st.lists(st.floats(-4, 4, width=32), min_size=4, max_size=4),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["int", "float", "bool"]).flatmap(grow), values, st.booleans())
def test_tensors_and_numbers_agree(expr, columns, typed):
    mode = "typed" if typed else "exact"
    floats = torch.float32 if typed else torch.float64
    tensors = {
        name: torch.tensor(column, dtype=torch.int64 if name in "ij" else floats)
        for name, column in columns.items()
    }
    whole = evaluate(expr, tensors, mode)
    for place in range(4):
        one = evaluate(expr, {name: columns[name][place] for name in NAMES}, mode)
        got = whole[place].item() if isinstance(whole, torch.Tensor) else whole
        if isinstance(one, float):
            tolerance = 1e-5 if typed else 1e-12
            assert got == pytest.approx(one, rel=tolerance, abs=tolerance, nan_ok=True)
        else:
            assert got == one


@given(st.integers(-1000, 1000), st.integers(-50, 50).filter(bool))
def test_integer_division_is_c(a, b):
    assert evaluate(parse_expr("a // b"), {"a": a, "b": b}) == math.trunc(a / b)
    assert evaluate(parse_expr("a % b"), {"a": a, "b": b}) == math.fmod(a, b)
    assert evaluate(parse_expr("floor_div(a, b) * b + floor_mod(a, b)"), {"a": a, "b": b}) == a


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_typed_product_beside_a_sum_is_rounded_once(a, b, c):
    a32, b32, c32 = (float(np.float32(v)) for v in (a, b, c))
    names = {"a": a32, "b": b32, "c": c32}
    for text, want in (("a * b + c", a32 * b32 + c32), ("c - a * b", c32 - a32 * b32)):
        assert evaluate(parse_expr(text), names, "typed") == np.float32(want)
        tensors = {n: torch.tensor([v]) for n, v in names.items()}
        assert evaluate(parse_expr(text), tensors, "typed").item() == np.float32(want)
    assert evaluate(parse_expr("a * b"), names, "typed") == np.float32(a32) * np.float32(b32)


def test_a_scale_inside_a_difference_leaves_what_its_rounding_left():
    """-1e30 twice: 0 where the maximum is subtracted first, and far from it where nvcc fuses."""
    names = {"x": torch.tensor([-1e30]), "top": torch.tensor([-1e30])}
    apart, first = ("x * LOG2E - top * LOG2E", "(x - top) * LOG2E")
    assert abs(evaluate(parse_expr(apart), names, "typed").item()) > 2**70
    assert evaluate(parse_expr(first), names, "typed").item() == 0.0


def test_whole_numbers_beside_floats_keep_the_modes_precision():
    i = torch.tensor([16777217])
    assert evaluate(parse_expr("i * 0.5"), {"i": i}).dtype == torch.float64
    assert evaluate(parse_expr("i * 0.5"), {"i": i}).item() == 8388608.5
    assert evaluate(parse_expr("i * 0.5"), {"i": i}, "typed").dtype == torch.float32
    got = evaluate(parse_expr("1.0 if i > 3 else 0.1"), {"i": torch.tensor([1])})
    assert got.item() == 0.1


def test_loads_outside_are_zero():
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    i, j = torch.tensor([[-1], [0], [1], [2]]), torch.tensor([[0, 1, 5]])
    got = evaluate(parse_expr("t[i, j]"), {"t": table, "i": i, "j": j})
    assert got.tolist() == [[0, 0, 0], [1, 2, 0], [3, 4, 0], [0, 0, 0]]
    assert evaluate(parse_expr("t[7, 0]"), {"t": table}) == 0.0
    assert evaluate(parse_expr("t[1, 0]"), {"t": table}) == 3.0


places = st.one_of(
    st.integers(-2, 6),
    st.lists(st.integers(-2, 6), min_size=4, max_size=4).map(lambda v: torch.tensor(v)[:, None]),
    st.lists(st.integers(-2, 6), min_size=3, max_size=3).map(lambda v: torch.tensor(v)[None, :]),
    st.integers(-2, 6).map(torch.tensor),
)
tables = st.lists(st.tuples(st.sampled_from([0, 1, 2, 5]), places), min_size=1, max_size=3)
KINDS = [torch.float64, torch.float32, torch.int64, torch.int32, torch.bool]


@given(tables, st.sampled_from(KINDS), st.sampled_from(["exact", "typed"]))
def test_a_load_is_the_element_or_zero_for_each_index(dims, kind, mode):
    sizes, index = zip(*dims, strict=True)
    table = (torch.arange(1, math.prod(sizes) + 1) * 3).to(kind).reshape(sizes)
    got = gather(table, list(index), mode)
    spread = torch.broadcast_tensors(*(torch.as_tensor(i) for i in index))
    want = [
        table[at].item() if all(0 <= i < n for i, n in zip(at, sizes, strict=True)) else 0
        for at in zip(*(i.flatten().tolist() for i in spread), strict=True)
    ]
    assert torch.as_tensor(got).flatten().tolist() == want
    if isinstance(got, torch.Tensor):
        floats = torch.float64 if mode == "exact" else torch.float32
        whole = torch.bool if kind == torch.bool else torch.int64
        assert got.dtype == (floats if kind.is_floating_point else whole)
        assert got.shape == spread[0].shape


def test_poles_give_what_the_hardware_gives():
    assert evaluate(parse_expr("log(0.0)"), {}) == -math.inf
    assert evaluate(parse_expr("1.0 / 0.0"), {}) == math.inf
    assert math.isnan(evaluate(parse_expr("sqrt(-1.0)"), {}))
    assert evaluate(parse_expr("exp2(5000.0)"), {}) == math.inf
    assert evaluate(parse_expr("exp2(-inf)"), {}) == 0.0
    assert evaluate(parse_expr("max(nan, 2.0)"), {}) == 2.0


def test_casts_round_in_typed_mode_only():
    assert evaluate(parse_expr("bf16(1.01)"), {}) == 1.01
    assert evaluate(parse_expr("bf16(1.01)"), {}, "typed") == torch.tensor(1.01).bfloat16().item()
    assert evaluate(parse_expr("int(-1.5)"), {}) == -1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_on_numbers_and_tensors(name):
    fn = FUNCTIONS[name]
    whole = fn.gives == "int"
    args = [7, 3, 2][: fn.arity] if whole else [0.75, -0.5, 2.0][: fn.arity]
    call = Call(name, tuple(Name(f"v{k}") for k in range(fn.arity)))
    one = evaluate(call, {f"v{k}": v for k, v in enumerate(args)})
    many = evaluate(
        call,
        {
            f"v{k}": torch.tensor([v], dtype=torch.int64 if whole else torch.float64)
            for k, v in enumerate(args)
        },
    )
    assert many.item() == pytest.approx(one, rel=1e-14)


def test_what_is_no_scalar_is_refused():
    with pytest.raises(CuirError, match="no scalar function"):
        evaluate(parse_expr("open(1)"), {})
    with pytest.raises(CuirError, match="takes 2 operands"):
        evaluate(parse_expr("max(1)"), {})
