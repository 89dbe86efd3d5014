"""Errors as pictures in the words of a failed gate."""

from __future__ import annotations

from cubridge_tui.text.error_pictures import picture_lines

GRID = {
    "rows": 6, "columns": 4, "first": 0, "high": 2, "wide": 1, "top": 0.5,
    "cells": ["0000", "0090", "0630"],
}  # fmt: skip


def test_where_rows_are_wrong_and_the_weights_of_one_of_them() -> None:
    keys = [{"j": 2, "expected": 0.0, "got": 0.25}]
    example = {"b": 0, "h": 1, "i": 3, "case": "Nq 6", "wrong_keys": 5, "keys": keys}
    lines = picture_lines({"counterexample": example, "errors": {"O": GRID, "weights": GRID}})
    assert lines[0].startswith("|error| of O over (i, d), b 0, h 1, case Nq 6: 0.5 at most")
    assert lines[0].endswith("a mark is 2 rows x 1 column")
    assert any("of the weights over (i, j)" in line for line in lines)
    assert (
        "▶i=2      █" in lines
        and " i=4     ▒·" in lines
        and " i=0" in [x.strip("\n").rstrip() for x in lines]
    )
    assert "weights of row i=3 that differ: 5, the first 1" in lines
    assert "       2  0 (masked)    0.25" in lines


def test_what_is_no_number_has_no_largest_error() -> None:
    example = {"b": 0, "h": 1, "i": 3, "got": float("nan")}
    lines = picture_lines({"counterexample": example, "errors": {"O": GRID}})
    assert "no number in places, 0.5 at most elsewhere" in lines[0]


def test_a_gpu_s_first_picture_is_drawn_and_what_is_none_is_not() -> None:
    errors = {"b": 0, "h": 0, "i": 1, "case": "c", "O": GRID}
    checks = [{"check": "lse"}, {"check": "accuracy", "notes": {"errors": errors}}]
    assert any(line.startswith("▶i=0") for line in picture_lines({"checks": checks}))
    broken = {"O": {"rows": 1}, "weights": [], "other": GRID}
    assert picture_lines({"errors": broken}) == [] == picture_lines({})
