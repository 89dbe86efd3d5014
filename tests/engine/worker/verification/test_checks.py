"""Every check passes a right kernel and fails the kernel that is wrong in just its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.parser import parse_expr
from engine.gpu.schema import fault_of_rows
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import CHECKS, required
from engine.worker.problems import problem_sizes as cases
from engine.worker.problems.problem_sizes import Case
from engine.worker.verification.checks import (
    LAYOUT_REFUSED,
    check_far,
    check_layouts,
    check_numbers,
    check_repeats,
    check_rewritten,
)
from engine.worker.verification.probes import check_independence, check_keep_sets
from tests.engine.gpu.fakes import CAUSAL_SPEC, Fake, causal_recipe, subject

Check = Callable[[Subject], None]
NUMBERS = (check_numbers,)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deck that two cores run in a moment; sizes still lie off every tile edge."""
    small = ((1, 1), (7, 3), (65, 70), (130, 67), (0, 5), (5, 0))
    monkeypatch.setattr(cases, "_SHORT", small)
    monkeypatch.setattr(cases, "REPEAT_CASE", Case(1, 2, 1, 65, 70, seed=1))
    monkeypatch.setattr(cases, "LAYOUT_CASE", Case(2, 4, 2, 33, 40, seed=2))
    monkeypatch.setattr(cases, "FAR_CASE", Case(2, 2, 1, 33, 40, seed=4))
    monkeypatch.setattr("engine.worker.verification.checks.FAR", 1 << 20)
    monkeypatch.setattr(cases, "INDEPENDENCE_CASES", (Case(1, 2, 1, 40, 40, seed=3),))


def verdicts(found: Subject) -> dict[str, str]:
    return {row["check"]: row["verdict"] for row in found.tallies.rows(CHECKS)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_right_kernel_passes_everything(tmp_path: Path, dtype: torch.dtype) -> None:
    found = subject(tmp_path, Fake(), dtype)
    for check in (
        check_numbers,
        check_layouts,
        check_keep_sets,
        check_independence,
        check_rewritten,
        check_repeats,
    ):
        check(found)
    told = verdicts(found)
    assert set(told.values()) == {"pass"}, found.tallies.rows(CHECKS)
    assert set(required("x", "y", True)) - {"build"} <= set(told)


def test_the_zeros_of_an_output_that_is_not_linear_in_v_show_its_pairs(tmp_path: Path) -> None:
    def squared(fake: Fake, fields: Mapping[str, Any]) -> None:
        fields["o"].mul_(fields["o"].abs())

    recipe = replace(causal_recipe(), output=parse_expr("o * abs(o)"))
    attended = "torch.softmax(scores, dim=-1).to(q.dtype) @ v"
    spec = CAUSAL_SPEC.replace(f"return {attended}", f"o = {attended}\n    return o * o.abs()")
    assert spec != CAUSAL_SPEC
    for off, verdict in ((0, "pass"), (1, "fail"), (-1, "fail")):
        fake = Fake(keep=lambda i, j, nq, nk, off=off: j <= i + nk - nq + off, finish=squared)
        found = subject(tmp_path, fake, recipe=recipe, spec=spec)
        assert not found.linear
        check_keep_sets(found)
        assert verdicts(found)["keep sets"] == verdict, off


def _maximum_from_0(fake: Fake, fields: Mapping[str, Any]) -> None:
    """A row whose logits are all far below 0 gives 0."""
    low = fields["lse"] < -104
    fields["o"].masked_fill_(low[..., None], 0.0)


def test_rows_far_below_0_are_in_the_deck(tmp_path: Path) -> None:
    found = subject(tmp_path, _finish(_maximum_from_0), torch.float16)
    check_numbers(found)
    rows = {row["check"]: row for row in found.tallies.rows(CHECKS)}
    assert rows["accuracy"]["verdict"] == "fail" and "level" in str(rows["accuracy"])
    drawn = rows["accuracy"]["notes"]["errors"]["O"]["cells"]
    assert "9" in "".join(drawn)
    samples: list[object] = []
    assert fault_of_rows({"checks": [rows["accuracy"]], "samples": samples}) == ""


def _finish(change: Callable[[Fake, Mapping[str, Any]], None]) -> Fake:
    return Fake(finish=change)


def _leave_nan(fake: Fake, fields: Mapping[str, Any]) -> None:
    if fields["Nq"] > 64:
        fields["o"][:, :, -1, 3] = torch.nan


def _write_outside(fake: Fake, fields: Mapping[str, Any]) -> None:
    lse = fields["lse"]
    place = lse.storage_offset() + lse.numel()
    lse.as_strided((1,), (1,), place).fill_(1.0)


def _write_before(fake: Fake, fields: Mapping[str, Any]) -> None:
    o = fields["o"]
    o.as_strided((1,), (1,), o.storage_offset() - 1).fill_(1.0)


def _spoil_input(fake: Fake, fields: Mapping[str, Any]) -> None:
    if fields["v"].numel():
        fields["v"][0, 0, 0, 0] += 1


def _return_zeros(fake: Fake, fields: Mapping[str, Any]) -> None:
    fields["o"].zero_()


def _return_mean(fake: Fake, fields: Mapping[str, Any]) -> None:
    if fields["Nk"]:
        v = fields["v"].float().mean(-2, keepdim=True)
        fields["o"].copy_(v.repeat_interleave(fields["Hq"] // fields["Hkv"], 1))


def _leak(fake: Fake, fields: Mapping[str, Any]) -> None:
    """A trace of the last key reaches every row."""
    if fields["Nk"] > 1:
        last = fields["v"][:, :, -1:].repeat_interleave(fields["Hq"] // fields["Hkv"], 1)
        fields["o"].add_(0.02 * last)


def _frozen(fake: Fake, fields: Mapping[str, Any]) -> None:
    """What was computed once for an address is given again."""
    key = f"{fields['q'].data_ptr()} {fields['o'].data_ptr()}"
    if key in fake.memory:
        fields["o"].copy_(fake.memory[key])
    fake.memory[key] = fields["o"].clone()


def _drift(fake: Fake, fields: Mapping[str, Any]) -> None:
    if fake.calls % 7 == 0 and fields["o"].numel():
        fields["o"][0, 0, 0, 0] += 1e-2


def _contiguous(fake: Fake, fields: Mapping[str, Any]) -> None:
    """Reads K as if it were contiguous."""
    k = fields["k"]
    size = k.numel()
    if not size or k.is_contiguous():
        return
    flat = k.as_strided((size,), (1,), k.storage_offset())
    wrong = flat.view(k.shape).nan_to_num(0.0)
    fake.attend(fields, fields["q"], wrong, fields["v"], fields["o"])


def _off(diagonal: int) -> Fake:
    return Fake(keep=lambda i, j, nq, nk: j <= i + nk - nq + diagonal)


BROKEN: dict[str, tuple[Fake, Check, str]] = {
    "one key too many": (_off(1), check_keep_sets, "keep sets"),
    "one key too few": (_off(-1), check_keep_sets, "keep sets"),
    "top-left alignment": (
        Fake(keep=lambda i, j, nq, nk: j <= i),
        check_keep_sets,
        "keep sets",
    ),
    "a dropped tile": (
        Fake(keep=lambda i, j, nq, nk: (j <= i + nk - nq) & ((j < 64) | (i < 128))),
        check_keep_sets,
        "keep sets",
    ),
    "scale dropped": (Fake(scale=lambda s: 1.0), check_numbers, "accuracy"),
    "scale of a padded head": (Fake(scale=lambda s: s * 0.94), check_numbers, "accuracy"),
    "head h % Hkv": (Fake(head=lambda h, hq, hkv: h % hkv), check_numbers, "accuracy"),
    "LSE in base 2": (Fake(lse=lambda x: x * 1.442695), check_numbers, "lse"),
    "LSE off by a little": (Fake(lse=lambda x: x + 1e-3), check_numbers, "lse"),
    "an element never written": (_finish(_leave_nan), check_numbers, "written"),
    "a write past the end": (_finish(_write_outside), check_numbers, "guard bands"),
    "a write before the start": (_finish(_write_before), check_numbers, "guard bands"),
    "an input changed": (_finish(_spoil_input), check_numbers, "inputs"),
    "zeros returned": (_finish(_return_zeros), check_numbers, "accuracy"),
    "mean of V returned": (_finish(_return_mean), check_numbers, "accuracy"),
    "empty rows not zero": (Fake(empty=0.5), check_numbers, "empty rows"),
    "empty rows NaN": (Fake(empty=float("nan")), check_numbers, "empty rows"),
    "LSE of empty rows finite": (
        Fake(lse=lambda x: x.clamp(min=-1e30)),
        check_numbers,
        "empty rows",
    ),
    "a trace of a masked key": (_finish(_leak), check_independence, "independence"),
    "nothing depends on V": (_finish(_return_zeros), check_independence, "independence"),
    "memoised by address": (_finish(_frozen), check_rewritten, "rewritten inputs"),
    "not the same bits": (_finish(_drift), check_repeats, "repeats"),
    "strides ignored": (_finish(_contiguous), check_layouts, "layouts"),
    "a launch that fails": (Fake(status=lambda fields: 700), check_numbers, "accuracy"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_rejected_by_its_check(tmp_path: Path, name: str) -> None:
    fake, check, seen_by = BROKEN[name]
    found = subject(tmp_path, fake)
    check(found)
    told = verdicts(found)
    assert told[seen_by] == "fail", (name, found.tallies.rows(CHECKS))


def test_a_misread_recipe_is_seen_by_the_spec_itself(tmp_path: Path) -> None:
    misread = causal_recipe(keep="j < i + Nk - Nq")
    fake = Fake(keep=lambda i, j, nq, nk: j < i + nk - nq)
    found = subject(tmp_path, fake, recipe=misread)
    check_numbers(found)
    check_keep_sets(found)
    assert verdicts(found)["recipe"] == "fail"
    assert verdicts(found)["keep sets"] == "fail"


def _misaligned(fields: Mapping[str, Any]) -> int:
    """Refuses what the TMA cannot take: starts and strides off 16 bytes."""
    for name in ("q", "k", "v"):
        t = fields[name]
        steps = [t.data_ptr() * 8 // 16, *(s for s in t.stride()[:-1])]
        if t.data_ptr() % 16 or any(s % 8 for s in steps[1:]):
            return LAYOUT_REFUSED
    return 0


def test_a_refused_layout_is_named_and_no_failure(tmp_path: Path) -> None:
    found = subject(tmp_path, Fake(status=_misaligned))
    check_layouts(found)
    row = next(r for r in found.tallies.rows(CHECKS) if r["check"] == "layouts")
    assert row["verdict"] == "pass"
    assert any("odd rows" in text for text in row["notes"]["refused"])


def test_a_refusal_of_aligned_rows_or_with_a_write_is_a_failure(tmp_path: Path) -> None:
    def refuse_padded(fields: Mapping[str, Any]) -> int:
        return 0 if fields["q"].stride(-2) == 64 else LAYOUT_REFUSED

    padded = subject(tmp_path, Fake(status=refuse_padded))
    check_layouts(padded)
    assert verdicts(padded)["layouts"] == "fail"
    raised = subject(tmp_path, Fake(status=lambda f: 716 if _misaligned(f) else 0))
    check_layouts(raised)  # 716: cudaErrorMisalignedAddress, which a running kernel leaves behind
    assert verdicts(raised)["layouts"] == "fail"

    def write_and_refuse(fields: Mapping[str, Any]) -> int:
        if _misaligned(fields):
            fields["o"].zero_()
            return LAYOUT_REFUSED
        return 0

    writes = subject(tmp_path, Fake(status=write_and_refuse))
    check_layouts(writes)
    assert verdicts(writes)["layouts"] == "fail"


def test_a_light_pair_that_is_dropped_is_seen(tmp_path: Path) -> None:
    """Weights of 1e-12 leave no trace in O for V of size 1; the probe's V is not of size 1."""
    steep = causal_recipe(score="x / sqrt(float(D)) + 0.5 * float(j - i)")
    spec = tmp_path / "steep.py"
    text = __import__("tests.engine.gpu.fakes", fromlist=["CAUSAL_SPEC"]).CAUSAL_SPEC
    spec_text = text.replace(
        "    future =",
        "    i = torch.arange(n_q, device=q.device)[:, None]\n"
        "    j = torch.arange(n_k, device=q.device)[None, :]\n"
        "    scores = scores + 0.5 * (j - i)\n    future =",
    )
    assert spec_text != text and not spec.exists()

    class Steep(Fake):
        def attend(self, fields: Mapping[str, Any], q: Any, k: Any, v: Any, o: Any) -> None:
            hq, hkv, nq, nk = (fields[n] for n in ("Hq", "Hkv", "Nq", "Nk"))
            head = torch.arange(hq) // (hq // hkv)
            i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
            s = q.float() @ k.float()[:, head].transpose(-1, -2) * fields["scale"]
            s = (s + 0.5 * (j - i)).masked_fill(~self.keep(i, j, nq, nk), float("-inf"))
            p = torch.softmax(s, -1).nan_to_num(0.0)
            o.copy_(p.to(q.dtype).float() @ v.float()[:, head])
            fields["lse"].copy_(torch.logsumexp(s, -1))

    right = subject(tmp_path, Steep(), recipe=steep, spec=spec_text)
    check_keep_sets(right)
    assert verdicts(right)["keep sets"] == "pass", right.tallies.rows(CHECKS)
    near = Steep(keep=lambda i, j, nq, nk: (j <= i + nk - nq) & (j > i + nk - nq - 40))
    windowed = subject(tmp_path, near, recipe=steep, spec=spec_text)
    check_keep_sets(windowed)
    assert verdicts(windowed)["keep sets"] == "fail"
    rows = {row["check"]: row for row in windowed.tallies.rows(CHECKS)}
    drawn = rows["keep sets"]["notes"]["errors"]
    assert "9" in "".join(drawn["weights"]["cells"]) and {"b", "h", "i", "case"} <= set(drawn)


def test_far_batches_are_judged_and_a_lost_offset_is_seen(tmp_path: Path) -> None:
    right = subject(tmp_path, Fake(), short=False)
    check_far(right)
    assert verdicts(right) == {"far offsets": "pass", "recipe": "pass"}

    def near(fake: Fake, fields: Mapping[str, Any]) -> None:
        """Reads the second batch of V where 32 bits would put it."""
        v = fields["v"]
        wrong = v.as_strided(v.shape, (64, *v.stride()[1:]), v.storage_offset()).nan_to_num(0.0)
        fake.attend(fields, fields["q"], fields["k"], wrong, fields["o"])

    wrong = subject(tmp_path, _finish(near), short=False)
    check_far(wrong)
    assert verdicts(wrong)["far offsets"] == "fail"
    short = subject(tmp_path, Fake())
    check_far(short)
    assert verdicts(short) == {}
