"""Sums and maxima over columns, of rows as they go into a product and of the output."""

from __future__ import annotations

import torch

from engine.cuir.parser import parse_expr
from engine.spec.reference.sums import evaluated

ROWS = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_reductions_over_the_output() -> None:
    for text, wanted in (
        ("o / max_over(lambda c: abs(o[c]), 8)", ROWS / ROWS.abs().amax(-1, keepdim=True)),
        ("sum_over(lambda c: o[c] * o[c + 4], 4)", (ROWS[..., :4] * ROWS[..., 4:]).sum(-1, True)),
        ("max_over(lambda c: o[c], 0)", torch.tensor(-torch.inf)),
    ):
        found = evaluated(parse_expr(text), {"o": ROWS})
        assert torch.allclose(torch.as_tensor(found), wanted.double(), rtol=1e-14)


def test_a_reduction_in_another_one_over_an_input() -> None:
    mean = "sum_over(lambda c: q[i, c], D) / D"
    text = f"(q[i, dd] - {mean}) / max_over(lambda c: abs(q[i, c] - {mean}), D)"
    at = {"i": torch.arange(5)[:, None], "dd": torch.arange(8)}
    found = evaluated(parse_expr(text), {"q": ROWS[0], "D": 8, **at})
    centred = ROWS[0] - ROWS[0].mean(-1, keepdim=True)
    assert torch.allclose(found, centred / centred.abs().amax(-1, keepdim=True), rtol=1e-14)
