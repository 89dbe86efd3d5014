"""G2 refuses what is nearly right in the tables of products with embeddings of positions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from engine.cuir.printer import print_module
from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.spec import read_recipe
from engine.transfer.rules import apply, plan
from tests.engine.gates.g1_g2.test_judge import edited

SPEC = """\
import torch


def attention(
    q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"],
    to: Float[Tensor, "H 9 D"], back: Float[Tensor, "H 9 D"],
):
    t = torch.arange(q.shape[2])
    gap = (t[:, None] - t).clamp(-4, 4) + 4
    at = gap.expand(*q.shape[:2], -1, -1)
    s = q @ k.mT + torch.gather(q @ to.mT, -1, at)
    s = s + torch.gather(k @ back.mT, -1, (8 - at).mT).mT
    return torch.softmax(s * q.shape[-1] ** -0.5, -1) @ v
"""
CASE = Case(2, 2, 2, 21, 21, modes=("exact",))
FROM_Q, FROM_K = "load_lines[lines[16, D, 4]](Q[b, h, row0:], 0)", "(K[b, h, row0:], 0)"
PLACE = "q_to[b, h, min(max(i - j, -4), 4) + 4, i]"
WRONG = {
    "the embeddings of another head": ("to[h, place, 0:]", "to[0, place, 0:]"),
    "the next embedding": ("to[h, place, 0:]", "to[h, place + 1, 0:]"),
    "another column of it": ("to[h, place, 0:]", "to[h, place, 1:]"),
    "the other table": ("(args.to, args.Hq", "(args.back, args.Hq"),
    "the row of another head": (FROM_Q, FROM_Q.replace("b, h", "b, 0")),
    "the row of another batch": (FROM_K, FROM_K.replace("b, h", "0, h")),
    "a square": ("lambda x, to_at: x * to_at", "lambda x, to_at: x * x * to_at"),
    "one embedding less": ("for place in range(9)", "for place in range(8)"),
    "stored one row on": ("(q_to[b, h, place, row0:]", "(q_to[b, h, place, row0 + 1:]"),
    "the distance turned round": (PLACE, PLACE.replace("i - j", "j - i")),
    "the key's row of it": (PLACE, PLACE.replace(", i]", ", j]")),
    "clipped too early": (PLACE, PLACE.replace("-4), 4)", "-3), 3)")),
    "added before the scale alone": (f"{PLACE}", f"{PLACE} * 2.0"),
}  # fmt: skip


@cache
def subject() -> Subject:
    path = Path(mkdtemp()) / "relative.py"
    path.write_text(SPEC)
    recipe, package = read_recipe(path), load_package("flash_fwd_sm80")
    base = lift(package, "bf16_64", "sm_80").module
    planned = plan(base, recipe)
    *_, (_, target) = apply(base, planned.steps)
    return Subject(target, recipe, planned.binding, path, {})


def test_the_right_version_passes_there() -> None:
    assert run_deck(BY_RECIPE, subject(), [CASE], lambda _: None)[0] is None


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_version_fails(name: str) -> None:
    old, new = WRONG[name]
    assert old in print_module(subject().module), print_module(subject().module)
    assert run_deck(BY_RECIPE, edited(subject(), old, new), [CASE], lambda _: None)[0] is not None
