"""What a spec computes from sizes and constants alone: exact formulas, or tables made by itself."""

# ruff: noqa: E501  (a spec in a table reads better on few lines)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import Recipe, make_inputs
from tests.engine.spec.spec_grammar import outcome_of

Read = Callable[..., Recipe]
HEAD = """\
import math
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int32
from torch import Tensor

def attention(q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]%s):
    nq, nk, heads, dim = q.shape[2], k.shape[2], q.shape[1], q.shape[3]
    i, j = torch.arange(nq)[:, None], torch.arange(nk)
    s = q @ k.mT
"""
TAIL = "    return torch.softmax(s, -1) @ v\n"


def spec(line: str, extras: str = "") -> str:
    return HEAD % extras + "".join(f"    {part}\n" for part in line.split("\n")) + TAIL


# (line, score, keep): every one was, or could be, another formula at lengths of one parity
SIZES = [
    ("s = s + j / (nk - 1)", "x + 1.0 * j / (Nk - 1)", "True"),
    ("s = s + (j / (nk - 1)).to(q.dtype)", "x + 1.0 * j / (Nk - 1)", "True"),
    ("s = s + i * j / (8 * (nq - 1))", "x + 1.0 * j * i / (8 * Nq - 8)", "True"),
    ("s = s + (j <= nk - 3).to(q.dtype)", "x + 1.0 * (1 if j <= Nk - 3 else 0)", "True"),
    ("s = s * (1 / (nk + 1))", "x / (Nk + 1)", "True"),
    ("s = s.masked_fill(j >= (nk + 7) // 8 * 3, -math.inf)", "x", "j < 3 * ((Nk + 7) // 8)"),
    ("s = s.masked_fill(j > nk % 5 + i, -math.inf)", "x", "j <= i + Nk % 5"),
    ("s = s * max(dim - 7, 1) ** -0.5", "x * rsqrt(max(D - 7, 1))", "True"),
    ("s = s * math.log(nk + 3)", "x * log(Nk + 3)", "True"),
    ("s = s.masked_fill((i - j).abs() > math.ceil(nk / 3), -math.inf)", "x",
     "j <= i + (Nk + 2) // 3 and j >= i - (Nk + 2) // 3"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "score", "keep"), SIZES)
def test_an_expression_of_sizes_is_exact(line: str, score: str, keep: str, read: Read) -> None:
    recipe = read(spec(line))
    assert (print_expr(recipe.score), print_expr(recipe.keep)) == (score, keep)


def test_sizes_that_divide_by_zero_are_not_the_spec_s(read: Read) -> None:
    recipe = read(spec("s = s + j / (nk - 1)"))
    assert "Nk != 1" in {print_expr(c) for c in recipe.constraints}


BLOOM = """\
near = 2 ** math.floor(math.log2(heads))
base = torch.tensor(2 ** (-(2 ** -(math.log2(near) - 3))), dtype=torch.float32)
slopes = torch.pow(base, torch.arange(1, 1 + near, dtype=torch.int32))
if near != heads:
    extra = torch.tensor(2 ** (-(2 ** -(math.log2(2 * near) - 3))), dtype=torch.float32)
    odd = torch.arange(1, 1 + 2 * min(near, heads - near), 2, dtype=torch.int32)
    slopes = torch.cat([slopes, torch.pow(extra, odd)], dim=0)
s = s + slopes[:, None, None] * j"""
T5 = """\
d = (j - i).abs()
large = (4 + torch.log(d.float() / 4) / 3.5 * 4).to(torch.long)
large = torch.min(large, torch.full_like(large, 7))
bucket = torch.where(d < 4, d, large)
s = s + F.embedding(bucket, table).permute(2, 0, 1)"""
SWIN = """\
c = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
r = (c[:, :, None] - c[:, None, :] + 3).permute(1, 2, 0) * torch.tensor([7, 1])
place = r.sum(-1)[(j - i).clamp(0, 15), i % 16]
s = s + table[place].permute(2, 0, 1)"""
LENGTH = "n = valid.sum(-1)[:, None, None, None]\ns = s.masked_fill(j > i + n - nq, -math.inf)"
TABLES = {
    "slopes of any number of heads": (BLOOM, "", "slopes[h] * j", ("Hq",)),
    "slopes from a list": (
        "slopes = torch.tensor([2.0 ** (-8 * (n + 1) / 2 ** math.floor(math.log2(heads))) for n in range(heads)])\n"
        "s = s + slopes[:, None, None] * j", "", "slopes[h] * j", ("Hq",)),
    "log buckets": (T5, ', table: Float[Tensor, "8 H"]', "table[bucket[j - i + Nq - 1], h]", ("Nk + Nq - 1",)),
    "log buckets of what is clamped before the logarithm": (
        T5.replace("d.float()", "d.float().clamp(min=1)"), ', table: Float[Tensor, "8 H"]',
        "table[bucket[j - i + Nq - 1], h]", ("Nk + Nq - 1",)),
    "log buckets of one side": (
        T5.replace(".abs()", ".clamp(min=0)"), ', table: Float[Tensor, "8 H"]',
        "table[bucket[j - i + Nq - 1], h]", ("Nk + Nq - 1",)),
    "a length from a mask": (LENGTH, ', valid: Bool[Tensor, "B Nk"]', "", ("B",)),
    "a length from a mask, and the mask": (
        LENGTH + "\ns = s.masked_fill(~valid[:, None, None], -math.inf)",
        ', valid: Bool[Tensor, "B Nk"]', "", ("B",)),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_what_reads_no_float_input_is_a_table(name: str, read: Read) -> None:
    line, extras, term, dims = TABLES[name]
    recipe = read(spec(line, extras))
    (table,) = [i for i in recipe.inputs if i.derive is not None]
    assert table.dims == dims
    assert term in print_expr(recipe.score)


def test_sums_over_constants_are_a_table(read: Read) -> None:
    text = spec(
        SWIN.replace("[(j - i).clamp(0, 15), i % 16]", ""), ', table: Float[Tensor, "49 H"]'
    )
    recipe = read(text.replace("Nq D", "16 D").replace("Nk D", "16 D"))
    (table,) = [i for i in recipe.inputs if i.derive is not None]
    assert table.dims == ("16", "16")


CARRIED = {
    "a loop over the batch": (
        "o = [torch.softmax(q[n] @ k[n].mT, -1) @ v[n] for n in range(q.shape[0])]\nreturn torch.stack(o)", ""),
    "random parameters that reach nothing": ("torch.nn.Linear(8, 8)", ""),
    "random numbers that reach nothing": ("torch.rand(3) + 1", ""),
    "keyword arguments": ("s = s * 1.0", ", **kwargs"),
    "a clamp to the half of a size": ("s = s + t[:, (i - j).abs().clamp(max=nk // 2)]", ', t: Float[Tensor, "H Nk"]'),
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIED)
def test_reads(name: str, read: Read) -> None:
    line, extras = CARRIED[name]
    assert read(spec(line, extras)).weight is None


@pytest.mark.parametrize(
    "name", ["x", "s", "b", "h", "i", "j", "m", "max", "größe", "Nk", "template"]
)
def test_an_input_may_have_any_name(name: str, read: Read) -> None:
    text = spec("PLACE", f', {name}: Float[Tensor, "H"]').replace("i, j = ", "ii, jj = ")
    text = text.replace("    s = q @ k.mT\n", "").replace(
        "PLACE", f"score = q @ k.mT + {name}[:, None, None]"
    )
    recipe = read(text.replace("softmax(s", "softmax(score"))
    assert len(recipe.extra()) == 1


def test_integers_that_index_a_table_are_drawn_inside_it(read: Read) -> None:
    recipe = read(spec(
        "s = s + table[:, dist].transpose(0, 1)",
        ', table: Float[Tensor, "H 10"], dist: Int32[Tensor, "B Nq Nk"]',
    ))  # fmt: skip
    sizes = {"B": 2, "Hq": 3, "Hkv": 3, "Nq": 9, "Nk": 31, "D": 8, "Dv": 8}
    drawn = torch.cat([make_inputs(recipe, sizes, n)["dist"].flatten() for n in range(3)])
    assert (int(drawn.min()), int(drawn.max())) == (0, 9)


# What puts whole numbers into a low type, and whether those are positions.
COUNTED = [
    ("s = s.masked_fill(j.to(q.dtype) > i.to(q.dtype), -math.inf)", True),
    ("s = s + 0.1 * torch.arange(nk, dtype=q.dtype)", True),
    ("s = s + 0.1 * torch.arange(nk).float().to(torch.bfloat16)", True),
    ("s = s + (j > i).to(q.dtype) * -10000.0", False),
    ("s = s + (j % 7).to(q.dtype)", False),
    ("s = s + (2.0 ** -torch.arange(1, heads + 1)[:, None, None] * (j - i)).to(q.dtype)", False),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), COUNTED)
def test_positions_in_a_low_type_are_said(line: str, said: bool, read: Read) -> None:
    found = [c for c in read(spec(line)).clauses if c.kind == "rounding"]
    assert [c.lines for c in found] == ([(11,)] if said else [])


def test_positions_that_a_low_type_cannot_hold_are_the_reason(read: Read) -> None:
    with pytest.raises(SpecError, match="positions are counted in it") as caught:
        read(spec("s = s + ((j * 97).to(q.dtype) - (i * 97).to(q.dtype)) % 97"))
    assert "count in int32 or float32" in str(caught.value.fix)


@pytest.mark.parametrize("seed", [5, 19, 36, 43])
def test_a_drawn_spec_is_read_right(seed: int, tmp_path: Path) -> None:
    assert outcome_of(seed, tmp_path, runs=4).kind == "read"
