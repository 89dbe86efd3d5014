"""Variants and layouts beyond the bundled specs: what each is read as."""

# ruff: noqa: E501  (a spec in a table reads better on few lines)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr
from engine.scalar_algebra.canonical import canonical
from engine.spec import Recipe, read_recipe
from tests.engine.scalar_algebra.equivalence import same

Read = Callable[..., Recipe]
IMPORTS = """\
import math
import torch
import torch.nn.functional as F
from torch import Tensor
from jaxtyping import Bool, Float, Int32, Int64

"""
QKV = (
    'q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"]'
)
EXPAND = """\
    k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    v = v.repeat_interleave(q.size(1) // v.size(1), 1)
    i = torch.arange(q.size(2))[:, None]
    j = torch.arange(k.size(2))[None, :]
    s = q @ k.mT * q.size(-1) ** -0.5
"""


def eager(body: str, extras: str = "", before: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"{IMPORTS}{before}\ndef attention({QKV}{extras}):\n{EXPAND}{lines}"


SCORE = "x * rsqrt(D)"
# name: (spec, score, keep)
ELEMENTWISE = {
    "chunked": (
        eager("keep = (j <= i) & (i // 64 == j // 64)\nreturn s.masked_fill(~keep, -1e9).softmax(-1) @ v"),
        SCORE, "j <= i and i // 64 == j // 64",
    ),
    "dilated": (
        eager("keep = ((i - j).abs() <= 12) & ((i - j).abs() % 3 == 0)\n"
              "return s.masked_fill(~keep, -math.inf).softmax(-1) @ v"),
        SCORE, "abs(i - j) <= 12 and abs(i - j) % 3 == 0",
    ),
    "key padding": (
        eager("pad = torch.arange(k.size(2))[None] < lengths[:, None]\n"
              "return s.masked_fill(~pad[:, None, None], -math.inf).softmax(-1) @ v",
              ', lengths: Int32[Tensor, "B"]'),
        SCORE, "j < lengths[b]",
    ),
    "boolean mask": (
        eager("return s.masked_fill(~mask, -math.inf).softmax(-1) @ v", ', mask: Bool[Tensor, "1 1 Nq Nk"]'),
        SCORE, "mask[0, 0, i, j]",
    ),
    "bias of one head dimension": (
        eager("return (s + bias).softmax(-1) @ v", ', bias: Float[Tensor, "Hq 1 Nk"]'),
        f"{SCORE} + bias[h, 0, j]", "True",
    ),
    "scalar input": (
        eager("return (s * temperature).softmax(-1) @ v", ', temperature: Float[Tensor, ""]'),
        f"{SCORE} * temperature", "True",
    ),
    "log-n scaling": (
        eager("return (s * math.log(k.size(2), 512)).softmax(-1) @ v"),
        f"x * {1 / 6.238324625039508!r} * rsqrt(D) * log(Nk)", "True",
    ),
    "sinks of a stream": (
        eager("keep = (j <= i) & ((j < 4) | (i - j < 32))\n"
              "return s.masked_fill(~keep, -math.inf).softmax(-1) @ v"),
        SCORE, "j <= i and (j < 4 or i - j < 32)",
    ),
    "soft cap after the mask leaks": (
        eager("s = s.masked_fill(j > i, -math.inf)\nreturn (2.0 * torch.tanh(s / 2.0)).softmax(-1) @ v"),
        "2.0 * tanh((x * rsqrt(D) if j <= i else -inf) / 2.0)", "True",
    ),
    "window in Python": (
        eager("w = min(window, k.size(2))\nreturn s.masked_fill(i - j >= w, -math.inf).softmax(-1) @ v",
              ", window: int = 4096"),
        SCORE, "i - j < min(4096, Nk)",
    ),
    "window in a loop": (
        eager("keep = torch.zeros(q.size(2), k.size(2), dtype=torch.bool)\n"
              "for row in range(q.size(2)):\n    keep[row, max(0, row - window + 1) : row + 1] = True\n"
              "return s.masked_fill(~keep, -math.inf).softmax(-1) @ v", ", window: int = 300"),
        SCORE, "j <= i and i - j < 300",
    ),
    "loop over heads": (
        f"{IMPORTS}\ndef attention({QKV}):\n    out = []\n    for h in range(q.size(1)):\n"
        "        g = h // (q.size(1) // k.size(1))\n"
        "        s = q[:, h] @ k[:, g].mT / math.sqrt(q.size(-1))\n"
        "        out.append(s.softmax(-1) @ v[:, g])\n    return torch.stack(out, 1)\n",
        SCORE, "True",
    ),
    "fused, causal": (
        f"{IMPORTS}\ndef attention({QKV}):\n"
        "    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)\n",
        SCORE, "j <= i",
    ),
    "fused, bias and scale": (
        f'{IMPORTS}\ndef attention({QKV}, bias: Float[Tensor, "Nq Nk"]):\n'
        "    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3, enable_gqa=True)\n",
        "x * 0.3 + bias[i, j]", "True",
    ),
    "flex_attention called": (
        f"{IMPORTS}from torch.nn.attention.flex_attention import create_block_mask, flex_attention\n\n"
        f"def attention({QKV}):\n    def causal(b, h, i, j):\n        return i >= j\n"
        "    mask = create_block_mask(causal, None, None, q.size(2), k.size(2), device=q.device)\n"
        "    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.5 * (j - i),\n"
        "                          block_mask=mask, scale=0.25, enable_gqa=True)\n",
        "x * 0.25 + 0.5 * (j - i)", "j <= i",
    ),
    "factory, shared question": (
        IMPORTS + 'def attention_mods(doc: Int32[Tensor, "B Nk"], seg: Int32[Tensor, "B Nk"]):\n'
        "    def mask_mod(b, h, q, kv):\n"
        "        return (doc[b, q] == doc[b, kv]) & (q >= kv) & ((seg[b, kv] == 0) | (seg[b, q] == seg[b, kv]))\n"
        "    return mask_mod\n",
        SCORE, "doc[b, i] == doc[b, j] and j <= i and (seg[b, j] == 0 or seg[b, i] == seg[b, j])",
    ),
    "factory, eviction": (
        IMPORTS + 'def attention_mods(evict: Int64[Tensor, "B Hq Nk"]):\n'
        "    return lambda b, h, q, kv: (kv <= q) & (q < evict[b, h, kv])\n",
        SCORE, "j <= i and i < evict[b, h, j]",
    ),
    "factory, global and sliding": (
        IMPORTS + "def attention_mods(n_glob: int = 16, left: int = 32, right: int = 24):\n"
        "    def mask_mod(b, h, i, j):\n"
        "        before = (j <= i) & ((i - j <= left) | (j < n_glob))\n"
        "        after = (j >= i) & ((j - i <= right) | (i < n_glob))\n"
        "        return before | after\n    return mask_mod\n",
        SCORE, "(j <= i and (i - j <= 32 or j < 16)) or (j >= i and (j - i <= 24 or i < 16))",
    ),
    "factory, two mods and sizes": (
        IMPORTS + "def attention_mods(Nq, Nk, Hq):\n"
        "    def alibi(score, b, h, q, kv):\n"
        "        return score + torch.exp2(-((h + 1) * 8.0 / Hq)) * (kv - q - (Nk - Nq))\n"
        "    def causal(b, h, q, kv):\n        return kv <= q + (Nk - Nq)\n"
        "    return alibi, causal\n",
        f"{SCORE} + exp2(-8.0 * (h + 1) / Hq) * (j - i - Nk + Nq)", "j <= i + Nk - Nq",
    ),
    "factory, NATTEN": (
        IMPORTS + "def attention_mods():\n    W, K, T = 8, 5, 6\n"
        "    def mask_mod(b, h, q, kv):\n"
        "        cx = (q // W).clamp(K // 2, T - 1 - K // 2)\n"
        "        cy = (q % W).clamp(K // 2, W - 1 - K // 2)\n"
        "        return ((cx - kv // W).abs() <= K // 2) & ((cy - kv % W).abs() <= K // 2)\n"
        "    return mask_mod\n",
        SCORE, "abs(min(max(i // 8, 2), 3) - j // 8) <= 2 and abs(min(max(i % 8, 2), 5) - j % 8) <= 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_reads_as(name: str, read: Read) -> None:
    text, score, keep = ELEMENTWISE[name]
    recipe = read(text)
    kinds = {i.name: "int" for i in recipe.inputs if i.dtype in ("i32", "i64")}
    kinds |= {i.name: "bool" for i in recipe.inputs if i.dtype == "bool"}
    assert same(recipe.keep, parse_expr(keep), kinds), print_expr(recipe.keep)
    assert same(recipe.score, parse_expr(score), kinds), print_expr(recipe.score)
    # What is written down is already canonical.
    assert canonical(recipe.keep, kinds) == recipe.keep
    assert canonical(recipe.score, kinds) == recipe.score


WEIGHTS = {
    "relu": ("return F.relu(s) @ v / k.size(2)", "max(s, 0.0)", "o / Nk", "True"),
    "squared relu, zeroed": ("return F.relu(s.tril()) ** 2 @ v", "max(s, 0.0) * max(s, 0.0)", None, "j <= i"),
    "linear": ("return (s.tril()) @ v", "s", None, "j <= i"),
    "silu": ("return F.silu(s) @ v", "s * sigmoid(s)", None, "True"),
    "masked to -inf": ("return s.masked_fill(j > i, -math.inf).sigmoid() @ v", "sigmoid(s)", None, "j <= i"),
    "zeroed after": ("return torch.where(j <= i, s.sigmoid(), 0.0) @ v", "sigmoid(s)", None, "j <= i"),
    "mean": ("return s.sigmoid() @ v / k.size(2)", "sigmoid(s)", "o / Nk", "True"),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_reads_weights_without_softmax(name: str, read: Read) -> None:
    body, weight, factor, keep = WEIGHTS[name]
    recipe = read(eager(body))
    assert recipe.weight is not None
    assert same(recipe.weight, parse_expr(weight), {})
    output = "o" if factor is None else factor
    assert same(recipe.output, parse_expr(output), {}) or name == "linear"
    assert print_expr(recipe.keep) == keep


LAYOUTS = {
    "BNHD, one name for heads and lengths": (
        'query: Float[Tensor, "batch seq heads dim"], key: Float[Tensor, "batch seq heads dim"], '
        'value: Float[Tensor, "batch seq heads dim"]',
        "s = torch.einsum('bqhd,bkhd->bhqk', query, key)\n"
        "    return torch.einsum('bhqk,bkhd->bqhd', s.softmax(-1), value)",
        [("B", "Nq", "Hq", "D"), ("B", "Nk", "Hq", "D"), ("B", "Nk", "Hq", "D")],
        ("B", "Nq", "Hq", "D"), {"Nq == Nk", "Hq == Hkv"},
    ),
    "v first, its own columns": (
        'v: Float[Tensor, "B H S Dv"], k: Float[Tensor, "B H S D"], q: Float[Tensor, "B H L D"]',
        "return (q @ k.mT).softmax(-1) @ v",
        [("B", "Hq", "Nk", "Dv"), ("B", "Hq", "Nk", "D"), ("B", "Hq", "Nq", "D")],
        ("B", "Hq", "Nq", "Dv"), {"Hq == Hkv"},
    ),
    "one key head, no head dimension": (
        'q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B Nk D"], v: Float[Tensor, "B Nk D"]',
        "s = torch.einsum('bhid,bjd->bhij', q, k)\n    return s.softmax(-1) @ v[:, None]",
        [("B", "Hq", "Nq", "D"), ("B", "Nk", "D"), ("B", "Nk", "D")], ("B", "Hq", "Nq", "D"), set(),
    ),
    "no batch": (
        'q: Float[Tensor, "H Nq D"], k: Float[Tensor, "H Nk D"], v: Float[Tensor, "H Nk D"]',
        "return (q @ k.mT).softmax(-1) @ v",
        [("Hq", "Nq", "D"), ("Hq", "Nk", "D"), ("Hq", "Nk", "D")], ("Hq", "Nq", "D"),
        {"Hq == Hkv", "B == 1"},
    ),
    "one head": (
        'q: Float[Tensor, "Nq D"], k: Float[Tensor, "Nk D"], v: Float[Tensor, "Nk D"]',
        "return (q @ k.T).softmax(-1) @ v",
        [("Nq", "D"), ("Nk", "D"), ("Nk", "D")], ("Nq", "D"), {"B == 1", "Hq == 1", "Hkv == 1"},
    ),
    "HBND": (
        'q: Float[Tensor, "H B Nq D"], k: Float[Tensor, "H B Nk D"], v: Float[Tensor, "H B Nk D"]',
        "return (q @ k.mT).softmax(-1) @ v",
        [("Hq", "B", "Nq", "D"), ("Hq", "B", "Nk", "D"), ("Hq", "B", "Nk", "D")],
        ("Hq", "B", "Nq", "D"), {"Hq == Hkv"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_and_roles(name: str, read: Read) -> None:
    parameters, body, dims, output, constraints = LAYOUTS[name]
    recipe = read(f"{IMPORTS}\ndef attention({parameters}):\n    {body}\n")
    assert [i.dims for i in recipe.inputs] == dims
    assert recipe.output_dims == output
    assert {print_expr(c) for c in recipe.constraints} == constraints


def test_grouped_heads_by_remainder(read: Read) -> None:
    recipe = read(
        f"{IMPORTS}\ndef attention({QKV}):\n    r = q.size(1) // k.size(1)\n"
        "    k, v = k.repeat(1, r, 1, 1), v.repeat(1, r, 1, 1)\n    return (q @ k.mT).softmax(-1) @ v\n"
    )
    assert print_expr(recipe.kv_head) == "h % Hkv"


def test_options_override_scalars(read: Read) -> None:
    text = eager("return s.masked_fill(j >= n, -math.inf).softmax(-1) @ v", ", n: int = 5")
    assert print_expr(read(text).keep) == "j < 5"
    assert print_expr(read(text, n=9).keep) == "j < 9"


def test_lengths_that_a_spec_is_defined_for(read: Read) -> None:
    past = "keep = torch.ones(k.size(2), k.size(2)).tril()[k.size(2) - q.size(2) :] == 1\n"
    recipe = read(eager(past + "return s.masked_fill(~keep, -1e9).softmax(-1) @ v"))
    assert print_expr(recipe.keep) == "j <= i + Nk - Nq"
    assert [print_expr(c) for c in recipe.constraints] == ["Nq <= Nk"]
    square = "keep = torch.ones(q.size(2), q.size(2)).tril() == 1\n"
    recipe = read(eager(square + "return s.masked_fill(~keep, -1e9).softmax(-1) @ v"))
    assert print_expr(recipe.keep) == "j <= i"
    assert [print_expr(c) for c in recipe.constraints] == ["Nq == Nk"]


@pytest.mark.parametrize(
    ("fill", "empty"),
    [("-math.inf", "nan"), ("-1e30", "mean"), ("torch.finfo(s.dtype).min", "mean"), ("-10000.0", "mean")],
)  # fmt: skip
def test_what_the_spec_gives_on_empty_rows(fill: str, empty: str, read: Read) -> None:
    recipe = read(eager(f"return s.masked_fill(j > i - 3, {fill}).softmax(-1) @ v"))
    assert recipe.empty_rows == empty
    assert print_expr(recipe.keep) == "j <= i - 3"


def test_guards_of_empty_rows_are_not_part_of_the_score(read: Read) -> None:
    plain = "s = s.masked_fill(j > i - 3, -math.inf)\n"
    for guarded in (
        "return torch.nan_to_num(s.softmax(-1)) @ v",
        "o = s.softmax(-1) @ v\nreturn o.masked_fill((j > i - 3).all(-1, keepdim=True), 0.0)",
        "o = s.softmax(-1) @ v\nreturn torch.where((j <= i - 3).any(-1, keepdim=True), o, 0.0)",
        "m = s.amax(-1, keepdim=True)\nm = torch.where(torch.isinf(m), 0.0, m)\n"
        "e = torch.exp(s - m)\nl = e.sum(-1, keepdim=True)\n"
        "return (e / torch.where(l == 0, 1.0, l)) @ v",
        "m = s.amax(-1, keepdim=True).clamp(min=-1e30)\ne = torch.exp(s - m)\n"
        "return e @ v / e.sum(-1, keepdim=True).clamp(min=1e-20)",
    ):
        recipe = read(eager(plain + guarded))
        assert recipe.empty_rows == "zero"
        assert (print_expr(recipe.score), print_expr(recipe.keep)) == (SCORE, "j <= i - 3")


def test_finite_fills_that_are_not_masks_stay(read: Read) -> None:
    recipe = read(eager("return torch.where(j <= i, s, s - 100.0).softmax(-1) @ v"))
    assert print_expr(recipe.keep) == "True"


def test_reading_is_the_same_from_any_place(tmp_path: Path) -> None:
    text = eager("return s.masked_fill(j > i, -1e9).softmax(-1) @ v")
    for n, folder in enumerate((tmp_path / "a", tmp_path / "b c")):
        folder.mkdir()
        (folder / f"spec{n}.py").write_text(text)
    assert read_recipe(tmp_path / "a" / "spec0.py") == read_recipe(tmp_path / "b c" / "spec1.py")
