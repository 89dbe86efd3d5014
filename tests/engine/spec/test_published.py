"""Kinds of published writings, each by its smallest case and with what must be read of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import Recipe, read_recipe

HEAD = """\
import math
import torch


def attention(
    q: Float[Tensor, "{q}"], k: Float[Tensor, "{k}"], v: Float[Tensor, "{k}"],{more}
):
"""
SOFTMAX = "\nreturn torch.softmax(s, -1) @ v"
MASKED = "s = (q @ k.mT).masked_fill(~keep, -torch.inf)" + SOFTMAX


def recipe_of(
    write: Callable[[str], Path], body: str, more: str = "", q: str = "B H N D", k: str = ""
) -> Recipe:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    more = f" {more}" if more else ""
    return read_recipe(write(HEAD.format(q=q, k=k or q, more=more) + lines))


def tables(recipe: Recipe) -> list[str]:
    return [f"{i.dtype}[{' '.join(i.dims)}]" for i in recipe.inputs if i.derive]


CASES = {
    "slopes of a power that the heads are rounded to": (
        "",
        "n = q.shape[1]\nclosest = 2 ** math.floor(math.log2(n))\n"
        "a = torch.pow(torch.tensor(2 ** (-8 / closest)), torch.arange(1, 1 + closest))\n"
        "odd = torch.arange(1, 1 + 2 * (n - closest), 2)\n"
        "b = torch.pow(torch.tensor(2 ** (-4 / closest)), odd)\n"
        "s = q @ k.mT + torch.cat([a, b])[:, None, None] * torch.arange(k.shape[2])" + SOFTMAX,
        "True",
        ["f32[Hq]"],
    ),
    "a mask that Python fills by the values of an input": (
        'prefix: Int64[Tensor, "B"]',
        "keep = torch.ones(q.shape[0], q.shape[2], q.shape[2]).tril_()\n"
        "for b, n in enumerate(prefix):\n    keep[b, :, :n] = 1\n"
        "keep = keep[:, None] > 0.5\n" + MASKED,
        "not table0[b, 0, i, j]",
        ["bool[B 1 Nk Nk]"],
    ),
    "blocks that cumulative lengths give": (
        'ends: Int32[Tensor, "S"]',
        "keep = torch.zeros(q.shape[2], q.shape[2], dtype=torch.bool)\n"
        "for m in range(1, len(ends)):\n"
        "    keep[ends[m - 1] : ends[m], ends[m - 1] : ends[m]] = True\n"
        "keep = keep | torch.eye(q.shape[2], dtype=torch.bool)\n" + MASKED,
        "not table0[i, j]",
        ["bool[Nk Nk]"],
    ),
    "a row that has keys, as a number that is multiplied": (
        'seen: Bool[Tensor, "B N N"]',
        "low = torch.finfo(q.dtype).min\n"
        "bias = torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, low)\n"
        "bias = bias * seen.any(-1, keepdim=True)\ns = q @ k.mT + bias[:, None]" + SOFTMAX,
        "bias[b, i, 0] and seen[b, i, j] or not bias[b, i, 0]",
        None,
    ),
    "a table that two one-hot products look up": (
        'table: Float[Tensor, "H 7"]',
        "hot = torch.zeros(4, 4, 7)\n"
        "for a in range(4):\n    for b in range(4):\n        hot[a, b, b - a + 3] = 1\n"
        "s = q @ k.mT + torch.einsum('hd,ijd->hij', table, hot)" + SOFTMAX,
        "True",
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_reads_no_q_k_or_v_is_a_table(name: str, write: Callable[[str], Path]) -> None:
    more, body, keep, wanted = CASES[name]
    lengths = "B H 4 D" if "one-hot" in name else "B H N D"
    recipe = recipe_of(write, body, more, lengths)
    if wanted is not None:
        assert print_expr(recipe.keep) == keep
        assert tables(recipe) == wanted
    else:
        assert tables(recipe)


def test_heads_that_are_tiled_or_named_by_a_list(write: Callable[[str], Path]) -> None:
    body = "k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v))\ns = q @ k.mT"
    tiled = recipe_of(write, body + SOFTMAX, "", "B Hq Nq D", "B Hkv Nk D")
    assert print_expr(tiled.kv_head) == "h % Hkv"
    listed = "at = [0, 0, 1, 2, 2]\nk, v = k[:, at], v[:, at]\ns = q @ k.mT" + SOFTMAX
    read = recipe_of(write, listed, "", "B 5 Nq D", "B 3 Nk D")
    assert print_expr(read.kv_head) == "table0[h]" and tables(read) == ["i32[5]"]
    assert [print_expr(c) for c in read.constraints] == ["Hq == 5", "Hkv == 3"]


@pytest.mark.parametrize(
    ("dims", "wanted"),
    [
        ("1 H N D", {"Hq == Hkv", "Nq == Nk", "B == 1"}),
        ("B 1 N D", {"Hq == Hkv", "Nq == Nk", "Hq == 1", "Hkv == 1"}),
        ("B H 49 D", {"Hq == Hkv", "Nq == Nk", "Nq == 49", "Nk == 49"}),
        ("B H N 64", {"Hq == Hkv", "Nq == Nk", "D == 64"}),
    ],
)
def test_a_size_that_is_a_number_is_the_only_one(
    dims: str, wanted: set[str], write: Callable[[str], Path]
) -> None:
    recipe = recipe_of(write, "s = q @ k.mT" + SOFTMAX, "", dims)
    assert {print_expr(c) for c in recipe.constraints} >= wanted
    assert [len(i.dims) for i in recipe.inputs] == [4, 4, 4]
    assert all("1" not in i.dims for i in recipe.inputs)


@pytest.mark.parametrize(
    "body",
    [
        "s = q @ k.mT\nif n.max() > 1:\n    s = s * 2",
        "s = q @ k.mT\nif int(n[0]) > 20:\n    s = s * 2",
        "s = q @ k.mT * (1 + int(n[0]))",
    ],
)
def test_what_python_decides_for_q_or_k_by_values_is_refused(
    body: str, write: Callable[[str], Path]
) -> None:
    with pytest.raises(SpecError):
        recipe_of(write, body + SOFTMAX, 'n: Int32[Tensor, "B"]')


def test_a_mod_may_take_its_indices_for_numbers(write: Callable[[str], Path]) -> None:
    text = (
        "import torch\n"
        "def attention_mods(N: int, first: Int32[Tensor, 'N']):\n"
        "    def score(s, b, h, i, j):\n"
        "        at = torch.cat([i.view(1), j.view(1)]).float()\n"
        "        return s - (at[0] - at[1]).abs() / N\n"
        "    def mask(b, h, i, j):\n"
        "        return torch.stack([i, first[i]])[1] >= j\n"
        "    return score, mask\n"
    )
    recipe = read_recipe(write(text))
    assert print_expr(recipe.score) == "x * rsqrt(D) - 1.0 * abs(j - i) / N"
    assert print_expr(recipe.keep) == "j <= first[i]"
