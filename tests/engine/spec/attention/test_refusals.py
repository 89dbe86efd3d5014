"""A refusal says in the words of the field what the spec has that no rule reads, and at which line.

Parts that a rule reads some day leave this list: it holds what nothing here carries.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import SpecError
from engine.spec import read_recipe

HEAD = """\
import torch
import torch.nn.functional as F


def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"],{more}
):
"""
CASES = {
    "dropout": (
        "",
        "w = F.dropout(torch.softmax(q @ k.mT, -1), 0.1)\nreturn w @ v",
        r"^dropout: .* draws random numbers",
    ),
    "top-k": (
        "",
        "s = q @ k.mT\nlow = s.topk(4, -1)[0][..., -1:]\n"
        "return torch.softmax(s.masked_fill(s < low, -torch.inf), -1) @ v",
        r"\(top-k\): no rule reads aten.topk of k and q",
    ),
    "a threshold": (
        "",
        "s = q @ k.mT\nreturn torch.softmax(s.masked_fill(s < -3, -torch.inf), -1) @ v",
        "which keys are kept depends on the scores themselves",
    ),
    "talking heads": (
        'mix: Float[Tensor, "H H"]',
        "s = torch.einsum('bhij,hg->bgij', q @ k.mT, mix)\nreturn torch.softmax(s, -1) @ v",
        r"scores of several heads are mixed \(talking heads\)",
    ),
    "a second product": (
        'far: Float[Tensor, "B N N D"]',
        "s = q @ k.mT + torch.einsum('bhld,blrd->bhlr', q, far)\nreturn torch.softmax(s, -1) @ v",
        r"more than one product: far with q is added \(as relative position embeddings",
    ),
    "merged projections": (
        'made: Float[Tensor, "B N 64"]',
        "x = made.view(*made.shape[:2], 4, 16).transpose(1, 2)\n"
        "return torch.softmax(x @ x.mT, -1) @ x",
        "heads and columns of made come as one dimension",
    ),
    "two attentions": (
        'p: Float[Tensor, "B H N D"], r: Float[Tensor, "B H N D"]',
        "return (torch.softmax(q @ k.mT, -1) - 0.8 * torch.softmax(p @ r.mT / 2, -1)) @ v",
        "two attentions are combined whose scores differ",
    ),
    "a second set of keys": (
        'p: Float[Tensor, "B H M D"], r: Float[Tensor, "B H M D"]',
        "k, v = torch.cat((k, p), 2), torch.cat((v, r), 2)\nreturn torch.softmax(q @ k.mT, -1) @ v",
        "a second set of keys or queries",
    ),
    "a gather of keys": (
        'at: Int32[Tensor, "B N"]',
        "k = k[torch.arange(q.shape[0])[:, None], :, at.long()].transpose(1, 2)\n"
        "return torch.softmax(q @ k.mT, -1) @ v",
        r"rows of k are gathered through at \(a paged cache",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_no_rule_reads_has_its_name(name: str, write: Callable[[str], Path]) -> None:
    more, body, words = CASES[name]
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(SpecError) as refused:
        read_recipe(write(HEAD.format(more=f" {more}" if more else "") + lines))
    assert re.search(words, refused.value.message), refused.value.message
    assert refused.value.where is not None and (refused.value.where.line or 0) >= 8
    assert refused.value.fix
