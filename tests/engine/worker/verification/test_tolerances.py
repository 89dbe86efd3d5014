"""The rules of right and wrong: nothing wrong passes, nothing right fails."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.spec.reference.oracle import expected, rounding_of_lse
from engine.worker.launches.guard_bands import LAYOUTS, bits, guarded, guarded_copy
from engine.worker.launches.result_rows import Tally
from engine.worker.verification.tolerances import judge_lse, judge_output
from tests.engine.transfer.recipes import recipe

CPU = torch.device("cpu")


def _case(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Exact O, low-precision O, natural size, live rows."""
    g = torch.Generator().manual_seed(seed)
    exact = torch.randn(1, 2, 16, 8, generator=g, dtype=torch.float64)
    exact[:, :, 3] *= 1e-3
    noise = torch.randn(exact.shape, generator=g, dtype=torch.float64)
    low = (exact * (1 + 2**-9 * noise)).to(torch.bfloat16)
    return exact, low, exact.abs(), torch.ones(1, 2, 16, dtype=torch.bool)


@given(st.integers(0, 10_000))
def test_the_rounded_oracle_passes_and_any_large_error_fails(seed: int) -> None:
    exact, low, size, live = _case(seed)
    right = exact.to(torch.bfloat16)
    assert judge_output(right, exact, low, size, live, 2.0).ok
    wrong = right.clone()
    g = torch.Generator().manual_seed(seed)
    place = tuple(int(torch.randint(n, (), generator=g)) for n in wrong.shape)
    wrong[place] += 0.3
    found = judge_output(wrong, exact, low, size, live, 2.0)
    assert not found.ok and found.where == place


def test_nan_and_infinity_never_pass() -> None:
    exact, low, size, live = _case(1)
    for bad in (math.nan, math.inf):
        o = exact.to(torch.bfloat16)
        o[0, 1, 2, 3] = bad
        assert not judge_output(o, exact, low, size, live, 2.0).ok


def test_an_error_that_hides_behind_the_largest_element_is_seen_in_its_row() -> None:
    exact, low, size, live = _case(2)
    o = exact.to(torch.bfloat16)
    o[0, 0, 3] = 2 * exact[0, 0, 3].to(torch.bfloat16)
    found = judge_output(o, exact, low, size, live, 2.0)
    assert found.share <= 1.0 < found.row_share and not found.ok


def test_a_yardstick_that_overflows_excuses_nobody() -> None:
    exact, low, size, live = _case(3)
    low[0, 0, 0] = math.nan
    o = exact.to(torch.bfloat16)
    o[0, 1, 1, 1] += 0.3
    assert not judge_output(o, exact, low, size, live, 2.0).ok


def test_one_rounding_of_the_weights_is_allowed_where_nothing_else_rounds() -> None:
    """One key: O is V, which PyTorch gives exactly; weights rounded before they are normalised
    cost one unit, a wrong weight more."""
    exact = torch.full((1, 1, 1, 8), 3.609375, dtype=torch.float64)
    low, live = exact.to(torch.bfloat16), torch.ones(1, 1, 1, dtype=torch.bool)
    assert judge_output((exact - 2**-6).bfloat16(), exact, low, exact, live, 2.0).ok
    assert not judge_output((exact - 3 * 2**-6).bfloat16(), exact, low, exact, live, 2.0).ok


def test_rows_without_keys_take_no_part() -> None:
    exact, low, size, live = _case(4)
    o = exact.to(torch.bfloat16)
    o[0, 0, 0] = math.nan
    live[0, 0, 0] = False
    assert judge_output(o, exact, low, size, live, 2.0).ok


@given(st.floats(-50, 50), st.floats(2e-3, 1.0))
def test_lse(value: float, off: float) -> None:
    exact = torch.full((1, 1, 4), value, dtype=torch.float64)
    live = torch.ones(1, 1, 4, dtype=torch.bool)
    assert judge_lse(exact.float(), exact, live, abs(value), False) <= 1.0
    assert judge_lse((exact + off).float(), exact, live, abs(value), False) > 1.0


def test_a_check_without_a_case_has_not_run() -> None:
    tally = Tally("repeats", "bf16_64")
    assert tally.row()["verdict"] == "not_run" and tally.row()["reason"]
    tally.case()
    assert tally.row()["verdict"] == "pass"
    tally.measure(math.nan, "here")
    tally.fail("there")
    row = tally.row()
    assert row["verdict"] == "fail" and row["worst"] == "inf" and row["failures"] == ["there"]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.bool])
def test_guarded_tensors_hold_their_values_and_see_every_byte(layout, dtype) -> None:  # type: ignore[no-untyped-def]
    values = (torch.randn(2, 3, 5, 8) > 0).to(dtype)
    made = guarded_copy(values, dtype, layout)
    assert torch.equal(made.tensor, values)
    assert made.tensor.stride(-1) == 1
    assert made.touched_outside() == 0
    inside = made.mark()
    assert int(inside.sum()) == values.numel() * values.element_size()
    for place in (0, made.buffer.numel() - 1, int((~inside).nonzero()[len(inside) // 3])):
        made.buffer[place] = 7
        assert made.touched_outside() == 1
        made.buffer[place] = 0xFF


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 4, 8), (), (1,)])
def test_guarded_tensors_of_any_shape(shape: tuple[int, ...]) -> None:
    made = guarded(shape, torch.float32, CPU)
    assert tuple(made.tensor.shape) == shape and made.touched_outside() == 0
    assert bool(torch.isnan(made.tensor).all())


def test_bits_tell_nan_and_signed_zero_apart() -> None:
    a = torch.tensor([0.0, math.nan])
    assert torch.equal(bits(a), bits(a.clone()))
    assert not torch.equal(bits(a), bits(torch.tensor([-0.0, math.nan])))


def test_lse_may_be_as_far_off_as_rounded_queries_and_keys_make_it() -> None:
    exact, live = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.bool)
    lse = torch.full((3,), 0.01)
    assert judge_lse(lse, exact, live, 1.0, False) > 1.0
    assert judge_lse(lse, exact, live, 1.0, False, rounding=0.01) <= 1.0
    assert judge_lse(3 * lse, exact, live, 1.0, False, rounding=0.01) > 1.0


@pytest.mark.parametrize(("q", "moves"), [(None, False), ("q[b, h, i, dd] * 1.7", True)])
def test_rounding_moves_lse_where_something_happens_before_the_product(
    q: str | None, moves: bool
) -> None:
    torch.manual_seed(0)
    inputs = {name: torch.randn(1, 2, 9, 64).bfloat16() for name in "qkv"}
    made = recipe("x * 0.125", q=q)
    lse = expected(made, inputs).lse
    assert lse is not None
    assert (rounding_of_lse(made, inputs, lse, ~torch.isneginf(lse)) > 1e-4) is moves
