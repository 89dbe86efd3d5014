"""G2 without a recipe: the spec's own function judges, and says what it could not compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.deck import Case
from engine.gates.diagnosis.counterexample import diagnosis
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.by_spec import BY_SPEC
from engine.gates.g1_g2.judge import judge_json
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.spec import read_recipe
from engine.spec.python.declarations import declared
from engine.spec.python.spec_file import read_source
from engine.transfer.llm.answer import read_answer
from engine.transfer.llm.apply import apply_answer
from engine.transfer.llm.bind import Interface, bind
from engine.transfer.rules import apply, plan

ROOT = Path(__file__).parents[4]
BASE = parse_module((ROOT / "tests/golden/cuir/sm80_flash.cuir").read_text())
SPECS = ROOT / "benchmarks/llm_tasks/specs"
HEAD = """import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"]
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    s = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
"""


def edited(*blocks: str) -> Module:
    text = "```edit\n" + "\n".join(blocks) + "\n```"
    return apply_answer(read_answer(text), BASE, assign(BASE)) if blocks else BASE


def judged(module: Module, spec: Path, **more: Any) -> dict[str, Any]:
    interface = Interface.of(declared(read_source(spec, {})), None, None)
    payload = {
        "module": print_module(module), "recipe": None, "spec": str(spec), "options": {},
        "binding": bind(BASE, module, interface, ()).to_json(), **more,
    }  # fmt: skip
    return judge_json(payload, lambda _: None)


def spec_of(tmp_path: Path, body: str) -> Path:
    file = tmp_path / "spec.py"
    file.write_text(HEAD + body)
    return file


def off_by_one(one: str) -> Module:
    lse = "lse = map(m, l, lambda top, sum: top * args.scale + log(sum) if sum > 0.0 else -inf)"
    return edited(
        f"<<<<<<< after s59\nl = map(l, m, lambda sum, top: sum + {one})\n>>>>>>>",
        f"<<<<<<< s61\n{lse}\n=======\n"
        "lse = map(m, l, lambda top, sum: 0.0 if top == -inf else top * args.scale + log(sum))\n"
        ">>>>>>>",
    )


def test_a_right_target_passes_and_says_what_was_not_compared() -> None:
    found = judged(off_by_one("exp2_approx(0.0 - top * scale_log2)"), SPECS / "off_by_one.py")
    assert found["ok"], found["reason"]
    assert "LSE is not compared" in found["reason"] and "one-hot V" in found["reason"]
    modes = {row["mode"] for row in found["details"]["runs"]}
    assert modes == {"exact", "typed", "weights", "a late warp"}


def test_a_wrong_one_fails_with_its_weights() -> None:
    found = judged(off_by_one("1.0"), SPECS / "off_by_one.py")
    example = found["details"]["counterexample"]
    assert not found["ok"] and "normaliser is wrong" in example["diagnosis"]
    assert len(example["keys"]) == example["wrong_keys"] == 7 and "Nk 7" in example["case"]
    pictures = found["details"]["errors"]
    assert pictures["weights"]["columns"] == 7 and "9" in "".join(pictures["O"]["cells"])
    found = judged(BASE, ROOT / "kernels/specs/causal.py")
    assert "keeps" in found["details"]["counterexample"]["diagnosis"]
    above = found["details"]["errors"][
        "weights"
    ]  # above the diagonal alone there are pairs too many
    assert above["high"] == above["wide"] == 1
    wrong = [(i, j) for i, row in enumerate(above["cells"]) for j, d in enumerate(row) if d != "0"]
    assert wrong and any(j > i for i, j in wrong)


def test_a_mask_that_hides_in_o_is_found_by_one_hot_v(tmp_path: Path) -> None:
    """With V zero past key 40 of long rows O would not tell; the weights do."""
    body = """    s = s.masked_fill(torch.arange(k.size(-2)) == 40, float("-inf"))
    return (torch.softmax(s, -1).to(q.dtype) @ v)
"""
    found = judged(BASE, spec_of(tmp_path, body))
    assert not found["ok"]


def test_rows_that_the_spec_gives_as_nan_must_be_zero(tmp_path: Path) -> None:
    body = """    i = torch.arange(q.size(-2))[:, None]
    s = s.masked_fill(i % 3 == 0, float("-inf"))
    return torch.softmax(s, -1).to(q.dtype) @ v
"""
    keep = "s = keep(s, lambda i, j: j < args.Nk, at=[q0, n * BN])"
    test = "if not tile_full[BM, BN](args, b, h, q0, n):"
    right = edited(
        f"<<<<<<< s48\n{test}\n    {keep}\n=======\n"
        "s = keep(s, lambda i, j: j < args.Nk and i % 3 != 0, at=[q0, n * BN])\n>>>>>>>",
        "<<<<<<< s52\nalpha = map(m_prev, m, lambda prev, now: exp2_approx((prev - now) * "
        "scale_log2))\n=======\ntop = map(m, lambda x: 0.0 if x == -inf else x)\n"
        "alpha = map(m_prev, top, lambda prev, now: exp2_approx((prev - now) * scale_log2))\n"
        ">>>>>>>",
        "<<<<<<< s53\ns = map(s, m, lambda x, top: exp2_approx(x * scale_log2 - top * scale_log2))"
        "\n=======\ns = map(s, top, lambda x, now: exp2_approx(x * scale_log2 - now * scale_log2))"
        "\n>>>>>>>",
    )
    spec = spec_of(tmp_path, body)
    assert judged(right, spec)["ok"]
    assert not judged(BASE, spec)["ok"]


def test_a_spec_that_runs_nowhere_is_no_pass(tmp_path: Path) -> None:
    found = judged(BASE, spec_of(tmp_path, "    raise ValueError('only on Tuesdays')\n"))
    assert not found["ok"] and "only 0 cases" in found["reason"]


def test_a_free_hand_is_judged_at_its_own_sizes(tmp_path: Path) -> None:
    """Also where no recipe was read: what never comes out one way does not pass."""
    spec = spec_of(tmp_path, "    return (torch.softmax(s, -1).to(q.dtype) @ v)\n")
    base = print_module(BASE)
    found = judged(BASE, spec, base=base)
    assert found["ok"], found["reason"]
    read = declared(read_source(spec, {}))
    binding = bind(BASE, BASE, Interface.of(read, None, None), ())
    plain = BY_SPEC.deck(Subject(BASE, read.as_recipe("unread"), binding, spec, {}))
    ran = {r["case"] for r in found["details"]["runs"] if r["mode"] == "exact"}
    assert not ran <= {str(case) for case in plain}
    late = "n * BN + BN <= args.Nk and args.Nk * 1.0 < 70000.5"
    text = base.replace("(n + 1) * BN <= args.Nk", late)
    assert text != base
    found = judged(parse_module(text), spec, base=base)
    assert not found["ok"] and "no run has `args.Nk * 1.0 >= 70000.5`" in found["reason"]


def test_weights_of_relu_that_are_zero_are_not_removed_pairs() -> None:
    """With a recipe: a kept pair may weigh nothing."""
    recipe = read_recipe(SPECS / "relu.py")
    planned = plan(BASE, recipe)
    target = list(apply(BASE, planned.steps))[-1][1]
    subject = Subject(target, recipe, planned.binding, SPECS / "relu.py", {})
    failure, row = BY_RECIPE.probe(subject, Case(1, 2, 1, 20, 33, probe_keep=True), 0)
    assert failure is None and 0 < row["kept"] < 2 * 20 * 33


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([0.25, 0.75, 0.0], "weights are right"),
        ([0.5, 1.5, 0.0], "2 times the spec's"),
        ([0.75, 0.25, 0.0], "scores"),
        ([0.25, 0.5, 0.25], "keeps 1 keys that the spec masks (first j=10)"),
        ([0.0, 1.0, 0.0], "masks 1 keys that the spec keeps (first j=8)"),
        ([float("nan"), 0.5, 0.0], "NaN"),
    ],
)
def test_diagnosis(got: list[float], words: str) -> None:
    want = torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64)
    assert words in diagnosis(want, torch.tensor(got, dtype=torch.float64), 8)


INTEGERS = """import torch
from jaxtyping import Float, Int32
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"],
    {declared},
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k = k.repeat_interleave(group, dim=1)
    v = v.repeat_interleave(group, dim=1)
    s = (q @ k.transpose(-2, -1)).float() * q.size(-1) ** -0.5
    keep = {keep}
    return torch.softmax(s.masked_fill(~keep, float("-inf")), -1).to(q.dtype) @ v
"""
LENGTHS = ('lens: Int32[Tensor, "B"]', "(torch.arange(k.size(-2)) < lens[:, None])[:, None, None]")
PREFIX = ('n: Int32[Tensor, ""]', "torch.arange(k.size(-2)).expand(s.shape) < n")
PLACES = (
    'order: Int32[Tensor, "Nk"], slot: Int32[Tensor, "Nq"]',
    "(order[None, :] <= torch.arange(k.size(-2))[slot.long()][:, None]).expand(s.shape)",
)


LEN, PLACE = "j < lens_b,", "order_keys <= slot_rows,"


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        (
            LENGTHS,
            [
                (LEN, "j < lens_b + 1,"),
                (LEN, "j < min(lens_b, 2),"),
                ("lens_b = lens[b]", "lens_b = lens[0]"),
            ],
        ),
        (PREFIX, [("j < args.n,", new) for new in ("j < args.n + 1,", "j < min(args.n, 3),",
                                                   "j < 1,")]),
        (PLACES, [(PLACE, "order_keys < slot_rows,"), (PLACE, "order_keys <= min(slot_rows, 2),")]),
    ],
    ids=["lengths", "a number", "places"],
)  # fmt: skip
def test_integers_are_drawn_as_what_they_may_mean(
    spec: tuple[str, str], wrong: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Without a recipe nobody says whether an integer is a length, a document or a place."""
    file = tmp_path / "spec.py"
    file.write_text(INTEGERS.format(declared=spec[0], keep=spec[1]))
    module = lift(load_package("flash_fwd_sm80"), "bf16_64").module
    planned = plan(module, read_recipe(file))
    text = print_module([*apply(module, planned.steps)][-1][1])
    for old, new in [("", ""), *wrong]:
        assert old in text, text
        payload = {
            "module": text.replace(old, new), "recipe": None, "spec": str(file), "options": {},
            "binding": planned.binding.to_json(),
        }  # fmt: skip
        found = judge_json(payload, lambda _: None)
        assert found["ok"] == (old == new), (new, found["reason"])
