"""A recipe in plain words, beside the lines that caused each clause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.resources import specs_dir
from engine.spec import Recipe, describe, read_recipe

Read = Callable[..., Recipe]
TEXT = """\
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"],
    bias: Float[Tensor, "H Nq Nk"],
):
    scores = q @ k.transpose(2, 3)
    scores = scores * 0.5
    scores = 20.0 * torch.tanh(scores / 20.0)
    scores = scores + bias
    rows = torch.arange(q.size(2))[:, None]
    future = torch.arange(k.size(2)) > rows
    scores = scores.masked_fill(future, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v
"""


def test_each_clause_names_its_lines(read: Read) -> None:
    clauses = {c.kind: c for c in read(TEXT).clauses}
    assert (clauses["scale"].words, clauses["scale"].lines) == (
        "the dot product is multiplied by 0.5",
        (11,),
    ) or (clauses["scale"].lines == (11, 12))
    assert "20.0 * tanh(s / 20.0)" in clauses["softcap"].words
    assert clauses["softcap"].lines == (12,)
    assert clauses["bias"].words == "then bias[h, i, j] is added" and clauses["bias"].lines == (13,)
    assert set(clauses["mask"].lines) == {15, 16}
    assert "top-left" in clauses["mask"].words
    assert clauses["normaliser"].lines == (17,)
    assert clauses["score"].lines == (10,)


EAGER = """\
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"]
):
    heads, n = q.size(1), q.size(2)
    slopes = (2 ** (-8 / heads)) ** torch.arange(1, heads + 1)
    at = torch.arange(n)
    bias = -slopes[:, None, None] * (at[:, None] - at).abs()
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
"""
FLEX = """\
import torch


def attention_mods(Hq: int):
    def alibi(score, b, h, q, kv):
        return score - torch.exp2(-(h + 1) * 8.0 / Hq) * (q - kv)

    return alibi
"""


@pytest.mark.parametrize(("text", "lines"), [(EAGER, {12, 13}), (FLEX, {6})])
def test_an_exponential_of_the_head_is_no_weight(read: Read, text: str, lines: set[int]) -> None:
    """ALiBi's slopes: what is added to the score has its lines."""
    (bias,) = (c for c in read(text).clauses if c.kind == "bias")
    assert "exp2(-8.0 * (h + 1) / Hq)" in bias.words
    assert lines <= set(bias.lines)


def test_words_name_alignment_empty_rows_and_heads() -> None:
    lines = describe(read_recipe(specs_dir() / "causal.py"))
    text = "\n".join(lines)
    assert "bottom-right" in text
    assert "h // (Hq // Hkv)" in text
    assert "the spec gives NaN there, the kernel gives O = 0 and LSE = -inf" in text


def test_words_say_where_tables_come_from() -> None:
    path = specs_dir() / "alibi_causal.py"
    line = next(
        n for n, t in enumerate(path.read_text().split("\n"), 1) if "slopes = torch.tensor" in t
    )
    text = "\n".join(describe(read_recipe(path)))
    assert f"slopes[Hq], f32, built by the spec's own code before the launch (line {line})" in text
