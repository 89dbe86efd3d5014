"""Guards of rows that keep no key, before a row is divided by its sum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.foreign.probe.places import Found, Row
from engine.graft.edits import apply
from engine.graft.guards import at_rows, guards
from tests.engine.graft import made


def lines(found: Found, data: bytes) -> list[list[str]]:
    """The lines that each guard adds, with the line after them."""
    out: list[list[str]] = []
    for edit in guards(found, {edit_file(found): data}):
        new = apply({edit.file: data}, [edit])[edit.file].decode().splitlines()
        old = data.decode().splitlines()
        first = next(n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
        out.append(new[first : first + 2])
    return out


def edit_file(found: Found) -> Path:
    return found.hooks[0].places[0].file


def test_a_guard_stands_before_the_division() -> None:
    found = made.plain()
    assert lines(found, made.PLAIN.read_bytes()) == [
        ["  if (m < -1e30f) l = INFINITY;", "  for (int d = 0; d < D; d++) out[d] /= l;"]
    ]


def test_an_element_of_an_array_is_guarded_by_the_same_element() -> None:
    assert lines(made.mma(), made.MMA.read_bytes()) == [
        ["    if (most[r] < -1e30f) sum[r] = INFINITY;", "    if (row < rows)"]
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("float m = 0, l = 1; { float n = l; o[0] = 1 / n; }", ["if (m < -1e30f) n = INFINITY;"]),
        ("float m = 0; const float l = 1; o[0] /= l;", []),  # it cannot be written
        ("float m = 0; int l = 1; o[0] /= l;", []),  # no sum of weights
        ("float l = 1; o[0] /= l; float m = 0;", []),  # the maximum is not there yet
        ("float m[2], l = 1; o[0] /= l;", []),  # which of the two?
        ("float m = 0; o[0] /= 2;", []),
        ("float m = 0, l = 1; for (int r = 0; r < 2; r++) o[r] = 1 / l;", [  # before the loop
            "if (m < -1e30f) l = INFINITY;"]),
    ],
)  # fmt: skip
def test_what_may_be_guarded(tmp_path: Path, body: str, expected: list[str]) -> None:
    file = tmp_path / "a.cu"
    found = made.found(file, "attention", {}, ["m"])
    data = f"__global__ void attention(float* o) {{\n  {body}\n}}\n".encode()
    assert [e.text.strip() for e in guards(found, {file: data})] == expected


def test_where_probing_tried_both_they_are_guarded_there(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    most = Row("m", file, 40, 3, "attention", "most", 2, "most[r][@]", "    ", "1", "raised")
    whole = Row("l", file, 90, 8, "attention", "sum", 1, "sum", "  ", "1", "doubled")
    found = made.found(file, "attention", {}, ["most"])
    files = {file: b"int e; // e_"}
    assert at_rows(replace(found, rows=(most,)), files) == []
    assert [(e.start, e.text) for e in at_rows(replace(found, rows=(most, whole)), files)] == [
        (
            40,
            "\n    for (int e_ = 0; e_ < 2; ++e_) "
            "if (most[r][e_] == -INFINITY) most[r][e_] = 0.0f;",
        ),
        (90, "\n  if (sum == 0.0f) sum = 1.0f;"),
    ]
