"""A matrix of errors as digits."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.spec.reference.error_grid import COLUMNS, ROWS, error_grid


def test_digits_are_powers_of_ten_below_the_largest_and_no_number_is_the_worst() -> None:
    got = torch.tensor([[1.0, 1.0 + 1e-4, 1.0], [1.5, math.nan, 1.0 + 1e-12]], dtype=torch.float64)
    grid = error_grid(got, torch.ones(2, 3), first=7)
    assert grid["cells"] == ["060", "990"] and grid["top"] == 0.5 and grid["first"] == 7
    assert error_grid(torch.ones(2, 2), torch.ones(2, 2))["cells"] == ["00", "00"]


@given(st.integers(1, 200), st.integers(1, 300), st.data())
def test_every_error_is_in_its_part_and_no_other_is(
    rows: int, columns: int, data: st.DataObject
) -> None:
    i, j = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    got = torch.zeros(rows, columns)
    got[i, j] = 3.0
    grid = error_grid(got, torch.zeros(rows, columns))
    cells = grid["cells"]
    assert len(cells) <= ROWS and all(len(row) == len(cells[0]) <= COLUMNS for row in cells)
    assert cells[i // grid["high"]][j // grid["wide"]] == "9"
    assert "".join(cells).count("0") == len(cells) * len(cells[0]) - 1
