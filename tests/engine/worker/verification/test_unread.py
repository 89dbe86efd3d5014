"""A spec that no rule reads: its function judges alone, and what it cannot judge is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.parser import parse_expr
from engine.gpu.job import Contents, hashes_of, pack
from engine.gpu.result import verdict_of
from engine.spec.python.signature import Signature
from engine.spec.recipes.recipe import Input
from engine.worker.contests.bench import floor_ms
from engine.worker.contests.full_size import sampled
from engine.worker.contests.kept_pairs import mask_by_spec
from engine.worker.contests.registry import RIVALS, take_part
from engine.worker.contests.rivals import Absent, Problem
from engine.worker.contests.timing import Ceilings
from engine.worker.launches.graphs import check_graph
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import (
    BY_SPEC,
    CHECKS,
    NO_LSE,
    NO_RECIPE,
    NOT_LINEAR,
    UNREAD,
    required,
)
from engine.worker.orchestration.manifest import read_job
from engine.worker.orchestration.mutants import mutants_of
from engine.worker.orchestration.results import judge
from engine.worker.problems import problem_sizes as cases
from engine.worker.problems.one_head import one_head_by_spec, separable
from engine.worker.problems.problem_sizes import Case
from engine.worker.verification.checks import (
    check_far,
    check_layouts,
    check_numbers,
    check_repeats,
    check_rewritten,
)
from engine.worker.verification.probes import check_independence, check_keep_sets
from engine.worker.verification.verify import asked_of
from tests.engine.gpu.fakes import CAUSAL_SPEC, Fake, causal_recipe, subject
from tests.engine.worker.verification.test_checks import BROKEN

ALL = (
    check_numbers,
    check_layouts,
    check_keep_sets,
    check_independence,
    check_rewritten,
    check_repeats,
)
SIGNATURE = Signature.of(causal_recipe())


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ((1, 1), (7, 3), (65, 70), (130, 67), (0, 5), (5, 0))
    monkeypatch.setattr(cases, "_SHORT", small)
    monkeypatch.setattr(cases, "REPEAT_CASE", Case(1, 2, 1, 65, 70, seed=1))
    monkeypatch.setattr(cases, "LAYOUT_CASE", Case(2, 4, 2, 33, 40, seed=2))
    monkeypatch.setattr(cases, "FAR_CASE", Case(2, 2, 1, 33, 40, seed=4))
    monkeypatch.setattr("engine.worker.verification.checks.FAR", 1 << 20)
    monkeypatch.setattr(cases, "INDEPENDENCE_CASES", (Case(1, 2, 1, 40, 40, seed=3),))


def rows_of(found: Subject) -> dict[str, dict[str, Any]]:
    return {row["check"]: row for row in found.tallies.rows(CHECKS)}


def unread(
    tmp_path: Path, fake: Fake, spec: str = CAUSAL_SPEC, asked: Signature = SIGNATURE, **more: Any
) -> Subject:
    return subject(tmp_path, fake, recipe=asked, spec=spec, **more)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_right_kernel_passes_and_what_was_not_judged_says_why(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    found = unread(tmp_path, Fake(), dtype=dtype)
    for check in ALL:
        check(found)
    rows = rows_of(found)
    assert {n: r["reason"] for n, r in rows.items() if r["verdict"] == "not_run"} == {
        "lse": NO_LSE,
        "recipe": NO_RECIPE,
    }
    assert all(r["verdict"] in ("pass", "not_run") for r in rows.values()), rows
    needed = set(required("x", "y", False, False)) - {"build"}
    assert needed <= {n for n, r in rows.items() if r["verdict"] == "pass"}
    assert rows["keep sets"]["notes"]["pairs"] > 50_000
    assert rows["independence"]["notes"]["rows that must not move"] > 100
    assert rows["independence"]["notes"]["rows that must move"] > 100
    assert rows["empty rows"]["notes"]["rows"] > 0


@pytest.mark.parametrize("name", [n for n in BROKEN if "LSE" not in n])
def test_a_broken_kernel_is_rejected_by_the_same_check(tmp_path: Path, name: str) -> None:
    fake, check, seen_by = BROKEN[name]
    found = unread(tmp_path, replace(fake, calls=0, memory={}))
    check(found)
    assert rows_of(found)[seen_by]["verdict"] == "fail", rows_of(found)


@pytest.mark.parametrize("off", [1, -1])
def test_a_mask_one_off_moves_rows_that_the_spec_leaves(tmp_path: Path, off: int) -> None:
    found = unread(tmp_path, Fake(keep=lambda i, j, nq, nk: j <= i + nk - nq + off))
    check_independence(found)
    assert rows_of(found)["independence"]["verdict"] == "fail"


def test_an_lse_of_nonsense_is_never_called_right(tmp_path: Path) -> None:
    found = unread(tmp_path, Fake(lse=lambda x: x * 17.0 + 4.0))
    check_numbers(found)
    row = rows_of(found)["lse"]
    assert row["verdict"] == "not_run" and row["reason"] == NO_LSE
    unwritten = unread(tmp_path, Fake(lse=lambda x: x * torch.nan))
    check_numbers(unwritten)
    assert rows_of(unwritten)["written"]["verdict"] == "fail"


# --- a spec that really is not read: a sink per head ----------------------------------------------

SINK_SPEC = CAUSAL_SPEC.replace(
    "from jaxtyping import Float\n", "from jaxtyping import Float, Float32\n"
).replace(
    'v: Float[Tensor, "B Hkv Nk D"]\n', 'v: Float[Tensor, "B Hkv Nk D"],\n'
    '    sink: Float32[Tensor, "Hq"]\n',
).replace(
    "    return torch.softmax(scores, dim=-1).to(q.dtype) @ v\n",
    "    column = sink[None, :, None, None].to(scores.dtype).expand(q.size(0), -1, n_q, 1)\n"
    "    weights = torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]\n"
    "    return weights.to(q.dtype) @ v\n",
)  # fmt: skip
SINK = Signature((*SIGNATURE.inputs, Input("sink", "extra", "f32", ("Hq",))), SIGNATURE.output_dims)


class Sink(Fake):
    """Causal attention with a sink; `factor` is what a broken one makes of the sink's share."""

    factor: float = 1.0

    def attend(self, fields: Mapping[str, Any], q: Any, k: Any, v: Any, o: Any) -> None:
        hq, hkv, nq, nk = (fields[n] for n in ("Hq", "Hkv", "Nq", "Nk"))
        head = torch.arange(hq) // (hq // hkv)
        s = q.float() @ k.float()[:, head].transpose(-1, -2) * fields["scale"]
        i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
        s = s.masked_fill(~self.keep(i, j, nq, nk), float("-inf"))
        sink = fields["sink"].view(1, hq, 1, 1)
        top = torch.maximum(s.amax(-1, keepdim=True), sink) if nk else sink
        p = torch.exp(s - top)
        total = p.sum(-1, keepdim=True) + self.factor * torch.exp(sink - top)
        o.copy_((p.to(q.dtype).float() @ v.float()[:, head]) / total)


def sink_subject(tmp_path: Path, factor: float = 1.0, **hooks: Any) -> Subject:
    from engine.transfer.binding import TensorField

    fake = Sink(**hooks)
    fake.factor = factor
    found = unread(tmp_path, fake, SINK_SPEC, SINK)
    tensors = tuple(t for t in found.binding.tensors if t.source != "LSE")
    row = TensorField("sink", "sink", ("Hq",), ("Hq",), "f32")
    found.binding = replace(found.binding, tensors=(*tensors, row))
    return found


def test_a_sink_passes_and_a_dropped_one_or_a_wrong_mask_does_not(tmp_path: Path) -> None:
    right = sink_subject(tmp_path)
    for check in (check_numbers, check_keep_sets, check_independence, check_rewritten):
        check(right)
    rows = rows_of(right)
    assert {n for n, r in rows.items() if r["verdict"] != "pass"} == {"lse", "recipe"}, rows
    assert "no log-sum-exp" in rows["lse"]["reason"]
    dropped = sink_subject(tmp_path, factor=0.0)
    check_numbers(dropped)
    assert rows_of(dropped)["accuracy"]["verdict"] == "fail"
    shifted = sink_subject(tmp_path, keep=lambda i, j, nq, nk: j <= i + nk - nq + 1)
    check_keep_sets(shifted)
    assert rows_of(shifted)["keep sets"]["verdict"] == "fail"


NORMALISED_SPEC = CAUSAL_SPEC.replace(
    '    scores = scores.masked_fill(future, float("-inf"))\n'
    "    return torch.softmax(scores, dim=-1).to(q.dtype) @ v\n",
    "    weights = torch.sigmoid(scores).masked_fill(future, 0.0)\n"
    "    total = weights.sum(-1, keepdim=True).clamp(min=1e-20)\n"
    "    return (weights / total).to(q.dtype) @ v\n",
)


class Normalised(Fake):
    """Rounds the weights before their sum divides them: one key alone then costs a rounding."""

    def attend(self, fields: Mapping[str, Any], q: Any, k: Any, v: Any, o: Any) -> None:
        hq, hkv, nq, nk = (fields[n] for n in ("Hq", "Hkv", "Nq", "Nk"))
        head = torch.arange(hq) // (hq // hkv)
        s = q.float() @ k.float()[:, head].transpose(-1, -2) * fields["scale"]
        i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
        p = torch.sigmoid(s).masked_fill(~self.keep(i, j, nq, nk), 0.0)
        total = p.sum(-1, keepdim=True).clamp(min=1e-20)
        o.copy_(p.to(q.dtype).float() @ v.float()[:, head] / total)
        fields["lse"].zero_()


def test_weights_that_are_normalised_last_pass_and_a_mask_one_off_does_not(tmp_path: Path) -> None:
    assert "sigmoid" in NORMALISED_SPEC
    right = unread(tmp_path, Normalised(), NORMALISED_SPEC)
    for check in ALL:
        check(right)
    rows = rows_of(right)
    assert {n for n, r in rows.items() if r["verdict"] != "pass"} == {"lse", "recipe"}, rows
    assert rows["independence"]["notes"]["rows that must not move"] > 100
    assert rows["empty rows"]["verdict"] == "pass"
    for off in (1, -1):
        shifted = Normalised(keep=_shifted(off))
        for check, name in ((check_keep_sets, "keep sets"), (check_independence, "independence")):
            wrong = unread(tmp_path, shifted, NORMALISED_SPEC)
            check(wrong)
            assert rows_of(wrong)[name]["verdict"] == "fail", (off, name)


def _shifted(off: int) -> Callable[[torch.Tensor, torch.Tensor, int, int], torch.Tensor]:
    return lambda i, j, nq, nk: j <= i + nk - nq + off


def test_a_vector_is_drawn_of_both_signs(tmp_path: Path) -> None:
    """A kernel that takes |sink| for sink is right on positive ones only."""
    found = sink_subject(tmp_path)
    case = Case(1, 64, 2, 4, 5)
    sizes = found.run.sizes(case, 64, 64)
    drawn = [
        found.run.make_inputs(replace(case, seed=seed), sizes, torch.float16)["sink"]
        for seed in (10, 11)
    ]
    assert bool((drawn[0] > 0).all()) and bool((drawn[1] < 0).any())


# --- what a function may be -----------------------------------------------------------------------


def test_an_output_that_is_not_linear_in_v_shows_no_weights(tmp_path: Path) -> None:
    bent = CAUSAL_SPEC.replace("@ v\n", "@ torch.tanh(v)\n")
    assert bent != CAUSAL_SPEC
    found = unread(tmp_path, Fake(), bent)
    check_keep_sets(found)
    row = rows_of(found)["keep sets"]
    assert row["verdict"] == "not_run" and row["reason"] == NOT_LINEAR
    check_numbers(found)  # the kernel forgets the tanh
    assert rows_of(found)["accuracy"]["verdict"] == "fail"


def test_sizes_at_which_the_function_does_not_run_are_left_out(tmp_path: Path) -> None:
    picky = CAUSAL_SPEC.replace("    group =", "    assert q.size(2) > 64\n    group =")
    found = unread(tmp_path, Fake(), picky)
    check_numbers(found)
    row = rows_of(found)["accuracy"]
    assert row["notes"]["sizes at which the spec does not run"] >= 4
    assert row["verdict"] == "pass"
    never = CAUSAL_SPEC.replace("    group =", "    assert q.size(2) > 640\n    group =")
    nothing = unread(tmp_path, Fake(), never)
    check_numbers(nothing)
    failed = rows_of(nothing)["accuracy"]
    assert failed["verdict"] == "fail" and "could be compared" in failed["failures"][0]


def test_integers_are_drawn_in_a_way_that_the_spec_runs_with(tmp_path: Path) -> None:
    text = SINK_SPEC.replace("Float32", "Int32")
    text = text.replace('sink: Int32[Tensor, "Hq"]', 'pick: Int32[Tensor, "Nq"]')
    zeros = "    k[:, :, pick.long()]\n    column = torch.zeros(q.size(1))"
    text = text.replace("    column = sink", zeros)
    asked = Signature(
        (*SIGNATURE.inputs, Input("pick", "extra", "i32", ("Nq",))), SIGNATURE.output_dims
    )
    found = unread(tmp_path, Fake(), text, asked)
    drawn = []
    for seed in range(6):
        case = Case(1, 2, 1, 9, 20, seed=seed)
        inputs = found.run.make_inputs(case, found.run.sizes(case, 64, 64), torch.float32)
        assert int(inputs["pick"].max()) < 20
        drawn.append(tuple(inputs["pick"].tolist()))
        found.run.exact(inputs)
    assert len(set(drawn)) == 6


def test_heads_and_batches_are_cut_where_the_function_lets_them(tmp_path: Path) -> None:
    found = sink_subject(tmp_path)
    axes = separable(found.run, 64, 64)
    assert axes == ("B", "heads")
    case = Case(2, 4, 2, 30, 40, seed=8)
    sizes = found.run.sizes(case, 64, 64)
    inputs = found.run.make_inputs(case, sizes, torch.bfloat16)
    whole = found.run.exact(inputs)
    for b, h in ((0, 0), (1, 3), (1, 2)):
        o, size, live = one_head_by_spec(found.run, inputs, sizes, b, h, axes)
        torch.testing.assert_close(o, whole[b, h])
        assert bool((size >= o.abs()).all()) and bool(live.all())
    assert set(sampled(found, inputs, sizes)) == {(0, 0), (1, 3)}
    by_number = CAUSAL_SPEC.replace(
        "    future =", "    scores = scores * torch.arange(q.size(1))[:, None, None]\n    future ="
    )
    assert separable(unread(tmp_path, Fake(), by_number).run, 64, 64) == ("B",)
    mixing = CAUSAL_SPEC.replace(
        "    future =", "    scores = scores * (1 + q.mean())\n    future ="
    )
    assert separable(unread(tmp_path, Fake(), mixing).run, 64, 64) == ()


def test_rivals_that_need_a_recipe_say_so(tmp_path: Path) -> None:
    found = unread(tmp_path, Fake())
    case = Case(1, 2, 1, 20, 30)
    sizes = found.run.sizes(case, 64, 64)
    inputs = found.run.make_inputs(case, sizes, torch.bfloat16)
    mask = mask_by_spec(found, inputs, sizes)
    absent = [take_part(rival, Problem(found.run, inputs, sizes, mask)) for rival in RIVALS]
    assert all(isinstance(a, Absent) and "no rule reads" in a.reason for a in absent)
    # Where pairs are not counted, arithmetic puts no floor under the time; bytes do.
    ceilings = Ceilings(800.0, 2000.0)
    assert floor_ms(found, sizes, 0.0, ceilings) < floor_ms(found, sizes, 1e15, ceilings)


def test_far_batches_and_a_graph_need_no_recipe(tmp_path: Path) -> None:
    found = unread(tmp_path, Fake(), short=False)
    check_far(found)
    assert rows_of(found)["far offsets"]["verdict"] == "pass"

    def capture(launch: Callable[[], int]) -> Callable[[], None]:
        def replay() -> None:
            launch()

        return replay

    assert check_graph(found, capture)["verdict"] == "pass"


# --- jobs and verdicts ----------------------------------------------------------------------------


def test_a_job_without_a_recipe_brings_the_signature(contents: Contents, tmp_path: Path) -> None:
    asked = replace(SIGNATURE, constraints=(parse_expr("Nq == Nk"),))
    bare = replace(contents, asked=asked)
    folder = pack(bare, tmp_path / "bare")
    job = read_job(folder)
    assert not (folder / "recipe.json").exists()
    assert asked_of(job) == asked
    assert set(hashes_of(bare)) == {*hashes_of(contents), "signature"} - {"recipe"}
    again = pack(contents, folder)  # the same folder with a recipe: no signature stays
    assert not (again / "signature.json").exists() and read_job(again).recipe is not None


def _rows(key: str, verdicts: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "check": c,
            "specialisation": key,
            "verdict": verdicts.get(c, "pass"),
            "cases": 1,
            "reason": "none",
        }
        for c in CHECKS
    ]


def test_the_verdict_says_that_the_function_judged_alone() -> None:
    rows = _rows("a", dict.fromkeys(("lse", "recipe"), "not_run"))
    kind, reason = judge(rows, ("a",), "a", False, (), False)
    assert kind == "pass"
    assert BY_SPEC in reason and "not run: lse, recipe" in reason
    # With a recipe the same rows are no pass.
    assert judge(rows, ("a",), "a", True)[0] == "not_run"
    for check in UNREAD:
        fewer = [r for r in rows if r["check"] != check]
        assert judge(fewer, ("a",), "a", False, (), False)[0] == "not_run"
        mute = [*fewer, {"check": check, "specialisation": "a", "verdict": "not_run"}]
        assert judge(mute, ("a",), "a", False, (), False)[0] == "not_run"


def test_which_of_both_it_was_is_read_from_the_hashes() -> None:
    result: dict[str, Any] = {
        "checks": _rows("a", dict.fromkeys(UNREAD, "not_run")), "keys": ["a"], "primary": "a",
        "softmax": False, "declared": ["a"], "hashes": {"signature": "0"},
    }  # fmt: skip
    assert verdict_of(result)[0] == "pass"
    assert verdict_of(result | {"hashes": {"recipe": "0"}})[0] == "not_run"


def test_the_self_test_has_no_mutant_that_nothing_could_see() -> None:
    names = {m.name for m in mutants_of("", lse=False)}
    assert names == {"mask", "scale", "heads"}
