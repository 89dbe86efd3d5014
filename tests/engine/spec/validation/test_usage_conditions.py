"""What no small float64 run shows: branches on sizes, on types, on the number of the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.spec import Recipe, read_recipe

Read = Callable[..., Recipe]
HEAD = """\
import math
import torch
from jaxtyping import Float
from torch import Tensor
CALLS = 0


def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]
):
    global CALLS
    CALLS += 1
    nq, nk = q.size(-2), k.shape[2]
    s = q @ k.mT / math.sqrt(q.size(-1))
"""
TAIL = "    return torch.softmax(s, -1).to(q.dtype) @ v\n"
LINE = HEAD.count("\n") + 1

# (what, the line, words of the message)
BRANCHES = [
    ("one head size", "s = s * (0.5 if q.size(-1) == 64 else 1.0)", "D == 64"),
    ("an uncommon head size", "s = s * (0.5 if q.shape[-1] == 80 else 1.0)", "D == 80"),
    ("a table of head sizes", "s = s * {64: 0.9, 128: 0.7}.get(q.size(-1), 1.0)", "D == 64"),
    ("head sizes from one on", "s = s * (2 if q.size(3) > 192 else 1)", "D > 192"),
    ("a divisor", "s = s * (2 if q.size(-1) % 13 == 0 else 1)", "floor_mod(D, 13) == 0"),
    ("heads", "s = s * 2 if q.size(1) == 32 else s", "H == 32"),
    ("batch", "s = s * 2 if q.size(0) >= 9 else s", "B >= 9"),
    ("batch and heads", "s = s * 2 if q.size(0) == 3 and q.size(1) == 9 else s", "H == 9"),
    ("a length that no literal gives", 's = s * 2 if nk > len("a" * 3000) else s', "Nk > 3000"),
    ("the size of a tensor on the way", "s = s * 2 if s.size(-1) == 301 else s", "Nk == 301"),
    ("a size of both lengths", "s = s * 2 if nk - nq == 77 else s", "Nk - Nq == 77"),
    ("a length too large to run", "s = s * 2 if nk > 10**6 else s", "Nk > 1000000"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "words"), [b[1:] for b in BRANCHES], ids=[b[0] for b in BRANCHES])
def test_a_branch_on_a_size_is_refused_at_its_line(read: Read, line: str, words: str) -> None:
    with pytest.raises(SpecError, match="computes something else where") as caught:
        read(f"{HEAD}    {line}\n{TAIL}")
    assert f" {words}" in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.line == LINE
    assert "spec of its own" in str(caught.value.fix)


HARMLESS = [
    "assert q.size(-1) <= 256 and nk >= 1",
    "assert q.size(-1) % 2 == 0",
    "if q.size(0) > 64:\n        raise ValueError('batch')",
    "assert nk <= 10**6",
    "s = s * 1.0 if q.size(1) == 32 else s",
    "for start in range(0, nk, 64):\n        s = s + 0.0",
    "n = 0\n    while n < nk:\n        n += 16",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_a_branch_that_computes_the_same_or_refuses_is_read(read: Read, line: str) -> None:
    assert print_expr(read(f"{HEAD}    {line}\n{TAIL}").score) == "x * rsqrt(D)"


def test_a_window_cut_to_the_keys_in_python_is_read(read: Read) -> None:
    text = HEAD + (
        "    w = min(100000, nk)\n    i, j = torch.arange(nq)[:, None], torch.arange(nk)\n"
        "    s = s.masked_fill(j > i + w, float('-inf'))\n"
    )
    assert "100000" in print_expr(read(text + TAIL).keep)


@pytest.mark.parametrize("test", ["q.dtype == torch.bfloat16", "q.dtype != torch.float64",
                                  "q.element_size() == 2"])  # fmt: skip
def test_another_formula_in_another_type_is_refused(read: Read, test: str) -> None:
    with pytest.raises(SpecError, match="in bfloat16 the spec computes something else"):
        read(f"{HEAD}    s = s * 2 if {test} else s\n{TAIL}")


@pytest.mark.parametrize(
    "line",
    [
        "s = s.to(torch.bfloat16).to(q.dtype)",
        "s = s.half().float().to(q.dtype)",
        "s = s.float()",
        "s = 30 * torch.tanh(s / 30)",
        "s = torch.where(s > 1.5, s / 2, s)",
        "s = s - 0.5 * (torch.arange(nq)[:, None] - torch.arange(nk)).abs()",
    ],
)
def test_rounding_is_no_other_formula(read: Read, line: str) -> None:
    read(f"{HEAD}    {line}\n{TAIL}")


def test_a_count_of_calls_is_refused(read: Read) -> None:
    with pytest.raises(SpecError, match="call 30 of the spec gives another output"):
        read(f"{HEAD}    s = s * (1 if CALLS < 30 else 2)\n{TAIL}")


def test_the_head_sizes_of_a_kernel_are_tried(write: Callable[[str], Path]) -> None:
    # What leaves no trace of the size it came from decides: a text's length.
    path = write(
        f"{HEAD}    d = len('d' * q.size(-1))\n"
        f"    s = s * torch.where(torch.tensor(float(d)) == 80.0, 2.0, 1.0)\n{TAIL}"
    )
    read_recipe(path)
    with pytest.raises(SpecError, match=r"at .*D 80"):
        read_recipe(path, {}, [(80, 80)])


def test_nan_for_ordinary_inputs_is_not_called_a_misreading(read: Read) -> None:
    with pytest.raises(SpecError, match="gives NaN for ordinary inputs"):
        read(f"{HEAD}    s = s / 0\n{TAIL}")


def test_writing_into_an_input_is_refused(read: Read) -> None:
    with pytest.raises(SpecError, match="writes into its input q"):
        read(f"{HEAD}    q *= 2\n{TAIL}")
