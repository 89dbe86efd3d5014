"""G2 refuses what is nearly right in scores, masks, weights and heads; and every rule that says
what is computed has at least eight wrong versions of its edit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.deck import Case
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.spec import read_recipe
from engine.transfer.rules import RULES, apply, plan
from tests.engine.gates.g1_g2 import test_sum_and_output as after
from tests.engine.gates.g1_g2 import test_wrong_before as before
from tests.engine.gates.g1_g2 import test_wrong_relative as relative
from tests.engine.gates.g1_g2.test_judge import subject_of

SMALL = [Case(2, 4, 2, 5, 7), Case(1, 6, 2, 9, 150)]
ALIBI = "x * args.scale + slopes_h * (j - i - offset)"
SCORE = {
    "the slope of another head": ("slopes[h]", "slopes[(h + 1) % args.Hq]"),
    "the slope of the key's head": ("slopes[h]", "slopes[h // (args.Hq // args.Hkv)]"),
    "aligned top-left": (ALIBI, ALIBI.replace(" - offset", "")),
    "aligned the other way": (ALIBI, ALIBI.replace("- offset", "+ offset")),
    "the distance turned round": (ALIBI, ALIBI.replace("j - i - offset", "i + offset - j")),
    "the bias scaled too": (ALIBI, "(x + slopes_h * (j - i - offset)) * args.scale"),
    "the score not scaled": (ALIBI, ALIBI.replace("x * args.scale", "x")),
    "scaled twice": (ALIBI, ALIBI.replace("args.scale", "args.scale * args.scale")),
    "one key further": (ALIBI, ALIBI.replace("(j - i - offset)", "(j - i - offset) * 1.0625")),
    "without the bias": (ALIBI, "x * args.scale + 0.0 * slopes_h"),
}  # fmt: skip
CAP = {
    "another cap": ("scale_log2 = 100.0", "scale_log2 = 60.0"),
    "the cap's half": ("scale_log2 = 100.0", "scale_log2 = 50.0"),
    "a cap of the raw score": ("args.scale * -0.05770780163555854", "-0.05770780163555854"),
    "the sign lost": ("args.scale * -0.0577", "args.scale * 0.0577"),
    "half as steep": ("args.scale * -0.05770780163555854", "args.scale * -0.02885390081777927"),
    "in base e": ("-0.05770780163555854", "-0.04"),
    "no cap": ("rcp_approx(1.0 + exp2_approx(x * score_factor))", "x * score_factor"),
    "two in the sum": ("rcp_approx(1.0 + exp2_approx(x * s", "rcp_approx(2.0 + exp2_approx(x * s"),
}  # fmt: skip
KEEP = {
    "aligned top-left": ("j <= i + offset", "j <= i"),
    "the diagonal dropped": ("j <= i + offset", "j < i + offset"),
    "one key more": ("j <= i + offset", "j <= i + offset + 1"),
    "the other triangle": ("j <= i + offset", "j >= i + offset"),
    "offset taken off": ("j <= i + offset", "j <= i - offset"),
    "without the last key": ("j < args.Nk and", "j < args.Nk - 1 and"),
    "rows for keys": ("j < args.Nk and", "j < args.Nq and"),
    "every tile full": ("if not tile_full[BM, BN](args, b, h, q0, n):", "if n < 0:"),
    "either of both": ("j < args.Nk and j <= i + offset", "j < args.Nk or j <= i + offset"),
}  # fmt: skip
WEIGHT = "rcp_approx(1.0 + exp2_approx(x * score_factor + 11.541560327111707))"
SIGMOID = {
    "the bias's sign": ("+ 11.54", "- 11.54"),
    "without a bias": (" + 11.541560327111707", ""),
    "the bias in base e": ("11.541560327111707", "8.0"),
    "the sign of the score": ("args.scale * -1.44", "args.scale * 1.44"),
    "the score in base e": ("args.scale * -1.4426950408889634", "args.scale * -1.0"),
    "an exponential": (WEIGHT, "exp2_approx(x * -score_factor - 11.541560327111707)"),
    "its complement": (WEIGHT, f"1.0 - {WEIGHT}"),
    "its square": (WEIGHT, f"{WEIGHT} * {WEIGHT}"),
    "not scaled": ("args.scale * -1.4426950408889634", "-1.4426950408889634"),
}  # fmt: skip
MODULO = """import torch

def attention(q: Float[Tensor, "B Hq N D"], k: Float[Tensor, "B Hkv N D"], v: Float[Tensor, "B Hkv N D"]):
    owner = torch.arange(q.size(1)) % k.size(1)
    return (q @ k[:, owner].mT / 8).softmax(-1) @ v[:, owner]
"""  # noqa: E501
HEAD = "h_kv = h % args.Hkv"
HEADS = {
    "in groups": (HEAD, "h_kv = h // (args.Hq // args.Hkv)"),
    "the next one": (HEAD, "h_kv = (h + 1) % args.Hkv"),
    "the first one": (HEAD, "h_kv = 0"),
    "the last one": (HEAD, "h_kv = args.Hkv - 1"),
    "backwards": (HEAD, "h_kv = args.Hkv - 1 - h % args.Hkv"),
    "by the batch": (HEAD, "h_kv = b % args.Hkv"),
    "of k alone": ("V[b, h_kv,", "V[b, 0,"),
    "of v alone": ("K[b, h_kv,", "K[b, 0,"),
}  # fmt: skip
WRONG = {
    "alibi_causal": SCORE, "softcap_causal": CAP, "causal": KEEP, "sigmoid_causal": SIGMOID,
    "modulo": HEADS,
}  # fmt: skip
BY_RULE = {
    "score": SCORE, "cap": CAP, "keep": KEEP, "softmax": SIGMOID, "kv_head": HEADS,
    "prepare": before.WRONG, "tables": relative.WRONG, "sink": after.SINKS,
    "lse_base": after.BASES, "late": after.LATE, "output": after.GATES, "other": after.OTHER,
}  # fmt: skip
HOW = {
    "inputs", "scale", "exponent", "visit", "find_tiles", "listed", "launch_lists", "longest",
    "spread", "empty_rows", "offset", "stage", "narrow_tiles", "smaller_tiles", "edge_tiles",
    "built_tiles", "next_tile", "shared", "rows", "branches", "bits", "ticket", "under_mask",
    "landed",
}  # fmt: skip
"""Rules that change how something is computed, not what: the numbers are the others'."""
ALL = [(spec, wrong, *pair) for spec, those in WRONG.items() for wrong, pair in those.items()]


@cache
def right(spec: str) -> Subject:
    if spec != "modulo":
        return subject_of(spec)
    path = Path(mkdtemp()) / "modulo.py"
    path.write_text(MODULO)
    recipe, package = read_recipe(path), load_package("flash_fwd_sm80")
    target = lift(package, "bf16_64", package.archs[0]).module
    planned = plan(target, recipe)
    for _, made in apply(target, planned.steps):
        target = made
    return Subject(target, recipe, planned.binding, path, {})


def cases(spec: str) -> list[Case]:
    return [replace(c, Nk=c.Nq) for c in SMALL] if spec == "modulo" else SMALL


@pytest.mark.parametrize(("spec", "wrong", "old", "new"), ALL, ids=lambda v: str(v)[:30])
def test_a_wrong_version_is_refused(spec: str, wrong: str, old: str, new: str) -> None:
    text = print_module(right(spec).module)
    assert old in text
    module = parse_module(text.replace(old, new))
    failure, _ = run_deck(
        BY_RECIPE, replace(right(spec), module=module), cases(spec), lambda _: None
    )
    assert failure is not None, wrong


@pytest.mark.parametrize("spec", WRONG)
def test_the_right_version_passes(spec: str) -> None:
    failure, _ = run_deck(BY_RECIPE, right(spec), cases(spec), lambda _: None)
    assert failure is None


def test_every_rule_has_eight_wrong_versions() -> None:
    assert {rule.name for rule in RULES} == HOW | set(BY_RULE)
    assert {name: len(wrong) for name, wrong in BY_RULE.items() if len(wrong) < 8} == {}
