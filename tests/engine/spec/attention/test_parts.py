"""q and k in parts along the head dimension, joined or multiplied part by part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import Recipe, read_recipe

HEAD = """\
import torch
import torch.nn.functional as F


def whole(a, b):
    return torch.cat((a, b.expand(-1, a.size(1), -1, -1)), -1)


def attention(
    qn: Float[Tensor, "B H N 32"],
    qp: Float[Tensor, "B H N 16"],
    kn: Float[Tensor, "B H N 32"],
    kp: Float[Tensor, "B {heads} N 16"],
    v: Float[Tensor, "B H N D"],{more}
):
"""
Q = "qn[b, h, i, dd] if dd < 32 else qp[b, h, i, dd - 32]"
K = "kn[b, h, j, dd] if dd < 32 else kp[b, 0, j, dd - 32]"
JOINED = "s = torch.cat((qn, qp), -1) @ whole(kn, kp).mT"
# body: (more inputs, q, k, score)
READ = {
    JOINED: ("", Q, K, "x"),
    "s = qn @ kn.mT + qp @ kp.mT": ("", Q, K, "x"),
    "s = torch.einsum('bhid,bhjd->bhij', qn, kn) * 0.5 + 0.5 * (qp @ kp.mT)": ("", Q, K, "x * 0.5"),
    "s = torch.tanh((qn @ kn.mT + qp @ kp.mT) / 8) * 9 + bias": (
        'bias: Float[Tensor, "H N N"]', Q, K, "bias[h, i, j] + 9.0 * tanh(x * 0.125)",
    ),
    "s = qp @ kp.mT + qn @ kn.mT": (
        "", "qp[b, h, i, dd] if dd < 16 else qn[b, h, i, dd - 16]",
        "kp[b, 0, j, dd] if dd < 16 else kn[b, h, j, dd - 16]", "x",
    ),
    "s = qn @ kn.mT + qp @ kp.mT + qm @ km.mT": (
        'qm: Float[Tensor, "B H N 8"], km: Float[Tensor, "B H N 8"]',
        Q.replace("dd - 32]", "dd - 32] if dd < 48 else qm[b, h, i, dd - 48]"),
        K.replace("dd - 32]", "dd - 32] if dd < 48 else km[b, h, j, dd - 48]"), "x",
    ),
    "a, b = q.split((32, 16), -1)\ns = a @ kn.mT + b @ kp.mT": (
        'q: Float[Tensor, "B H N 48"]', None, K, "x",
    ),
    "s = q @ whole(kn, kp).mT": ('q: Float[Tensor, "B H N 48"]', None, K, "x"),
    "s = torch.cat((F.normalize(qn, dim=-1), qp), -1) @ whole(kn, kp).mT": (
        "", Q.replace(
            "dd] if",
            "dd] / max(sqrt(sum_over(lambda c: qn[b, h, i, c] * qn[b, h, i, c], 32)), 1e-12) if",
        ), K, "x",
    ),
}  # fmt: skip


def recipe_of(write: Callable[[str], Path], body: str, more: str = "", heads: str = "1") -> Recipe:
    head = HEAD.format(more=f" {more}" if more else "", heads=heads)
    lines = "".join(
        f"    {line}\n" for line in f"{body}\nreturn torch.softmax(s, -1) @ v".split("\n")
    )
    return read_recipe(write(head + lines))


@pytest.mark.parametrize("body", READ)
def test_parts_are_one_row(body: str, write: Callable[[str], Path]) -> None:
    more, q, k, score = READ[body]
    recipe = recipe_of(write, body, more)
    assert (recipe.q and print_expr(recipe.q)) == q
    assert (recipe.k and print_expr(recipe.k)) == k
    assert print_expr(recipe.score) == score
    columns = 56 if "qm" in more else 48
    assert f"D == {columns}" in {print_expr(c) for c in recipe.constraints}
    before = [c.words for c in recipe.clauses if c.kind == "before"]
    assert any("joined from kp and kn" in w or "joined from kn" in w for w in before)


def test_a_part_for_each_head_is_no_part_of_all(write: Callable[[str], Path]) -> None:
    shared, own = (recipe_of(write, JOINED, heads=heads) for heads in ("1", "H"))
    assert shared.k != own.k and own.k is not None and "kp[b, h, j" in print_expr(own.k)


REFUSED = {
    "s = qn @ kn.mT - qp @ kp.mT": ("", "sum of products of several inputs"),
    "s = (qn @ kn.mT) * 0.5 + qp @ kp.mT": ("", "sum of products of several inputs"),
    "s = qn @ kn.mT + torch.einsum('bhid,bijd->bhij', qp, far)": (
        'far: Float[Tensor, "B N N 16"]', "product",
    ),
    "s = q[..., :32] @ kn.mT": ('q: Float[Tensor, "B H N 48"]', "reads 32 of the 48 columns of q"),
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_no_row_of_parts_is_refused(body: str, write: Callable[[str], Path]) -> None:
    more, words = REFUSED[body]
    with pytest.raises(SpecError, match=words):
        recipe_of(write, body, more)


def test_parts_of_unknown_width_are_told_to_say_it(write: Callable[[str], Path]) -> None:
    text = HEAD.format(more="", heads="1").replace("16", "R").replace("32", "P")
    with pytest.raises(SpecError, match="columns is P") as refused:
        read_recipe(write(text + f"    {JOINED}\n    return torch.softmax(s, -1) @ v\n"))
    assert "as numbers" in (refused.value.fix or "")
