"""The timing run's own arithmetic: pairs, floors, right and wrong at full size."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
import torch

from engine.cuir.parser import parse_expr
from engine.worker.contests import bench
from engine.worker.contests.full_size import UNCOMPARED
from engine.worker.contests.rivals import Absent, Taking, Way, dense_mask, mask_of
from engine.worker.contests.timing import Ceilings
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.device import peak_tflops
from engine.worker.problems.one_head import one_head
from engine.worker.problems.problem_sizes import (
    Case,
    accuracy_deck,
    around,
    constants,
    label,
    probe_deck,
)
from engine.worker.problems.specrun import SpecRun
from engine.worker.verification.verify import foreign_kernels
from tests.engine.gpu.fakes import CAUSAL_SPEC, Fake, causal_recipe, subject

CASE = Case(2, 4, 2, 40, 40, seed=5)


@pytest.fixture
def found(tmp_path: Path) -> Subject:
    return subject(tmp_path, Fake())


def inputs_of(found: Subject, case: Case = CASE) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    sizes = found.run.sizes(case, 64, 64)
    return found.run.make_inputs(case, sizes, torch.bfloat16), sizes


@pytest.mark.parametrize(
    ("keep", "kind"),
    [("True", "full"), ("j <= i + Nk - Nq", "causal"), ("j <= i", "causal"), ("j < i", "other"),
     ("j <= i and h < 2", "other"), ("b == 1 or j == 0", "other")],
)  # fmt: skip
@pytest.mark.parametrize("rows", [40, 33])
def test_kept_pairs_are_counted(tmp_path: Path, keep: str, kind: str, rows: int) -> None:
    found = subject(tmp_path, Fake(), recipe=causal_recipe(keep=keep))
    case = Case(2, 4, 2, rows, 40, seed=5)
    inputs, sizes = inputs_of(found, case)
    mask = mask_of(found.run, inputs, sizes)
    assert mask.pairs == int(found.run.expected(inputs).keep.sum())
    assert mask.kind == (kind if rows == 40 or kind == "full" else "other")


def test_one_head_is_the_recipe(found: Subject) -> None:
    inputs, sizes = inputs_of(found)
    want = found.run.expected(inputs)
    o, size, live = one_head(found.run, inputs, sizes, 1, 3)
    torch.testing.assert_close(o, want.o[1, 3])
    assert torch.equal(live, ~want.empty[1, 3])
    torch.testing.assert_close(size, found.run.magnitude(inputs)[1, 3])


def test_a_wrong_output_of_a_timed_call_is_seen(found: Subject) -> None:
    inputs, sizes = inputs_of(found)
    want = bench.sampled(found, inputs, sizes)
    right = found.run.expected(inputs).o.to(torch.bfloat16)
    assert bench.differs(right, want) == ""
    for b, h in want:
        wrong = right.clone()
        wrong[b, h, 7, 3] += 0.2
        assert f"b {b} h {h}" in bench.differs(wrong, want)
    assert bench.differs(right, {}) == UNCOMPARED
    assert bench.differs(torch.zeros_like(right), want)
    assert bench.differs(torch.full_like(right, float("nan")), want)


def test_a_rival_that_nothing_is_compared_with_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    taking = Taking("", [Way("its own", lambda inputs: torch.zeros(1, 1, 2, 4))])
    assert bench.first_runs(taking, {}, {}) == Absent(UNCOMPARED)
    assert bench.first_runs(taking, {}, None) is taking  # it is not meant to compute the spec


def test_the_roofline_floor() -> None:
    class Half:
        dtype = torch.bfloat16

    sizes = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": 8, "Nk": 8, "D": 64, "Dv": 64}
    # Arithmetic: 1e12 operations at 500 TFLOP/s are 2 ms.
    assert bench.floor_ms(Half(), sizes, 1e12, Ceilings(500.0, 3000.0)) == pytest.approx(2.0)  # type: ignore[arg-type]
    # Bytes: 1 GB at 1000 GB/s is 1 ms.
    rows = 10**9 // (2 * 2 * 128)
    big = {**sizes, "Nq": rows, "Nk": rows}
    assert bench.floor_ms(Half(), big, 1.0, Ceilings(500.0, 1000.0)) == pytest.approx(1.0, rel=0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ms", "refused"), [(2.809, False), (2.0, True)])
def test_a_time_is_refused_where_no_card_has_it(found: Subject, ms: float, refused: bool) -> None:
    """Full attention at head size 256 on an H200: above the measured matmul, below the peak."""
    flops = 2 * 512 * 32 * 8192.0**2
    device = {"capability": [9, 0], "multiprocessors": 132, "clocks_max_sm": "1980 MHz"}
    most = Ceilings(peak_tflops(device) or math.inf, 4000.0 / bench.ROOF)
    sizes = {"B": 2, "Hq": 16, "Hkv": 16, "Nq": 8192, "Nk": 8192, "D": 256, "Dv": 256}
    least = bench.floor_ms(found, sizes, flops, most)
    assert (ms < least) is refused


def test_the_dense_mask_says_bias_and_mask(tmp_path: Path) -> None:
    found = subject(
        tmp_path, Fake(), recipe=causal_recipe(keep="j < i", score="x * 0.5 + float(h)")
    )
    inputs, sizes = inputs_of(found)
    dense = dense_mask(found.run, inputs, sizes, parse_expr("float(h)"))
    assert isinstance(dense, torch.Tensor) and dense.shape[1:] == (4, 40, 40)
    assert float(dense[0, 3, 5, 4]) == 3.0 and float(dense[0, 3, 5, 5]) == float("-inf")


def test_foreign_kernels() -> None:
    names = [
        "void flash_fwd<__nv_bfloat16, 128, 128, 32, 2, 4>(Args)",
        "void at::native::vectorized_elementwise_kernel<4>(int)",
        "flash_fwd_other(Args)",
    ]
    assert foreign_kernels(names, ["flash_fwd"]) == sorted(names[1:])
    assert foreign_kernels(names[:1], ["flash_fwd", "combine"]) == []


def test_the_deck_reaches_past_every_constant() -> None:
    exprs = [parse_expr("j > i - 1024 and j <= i or j < 256"), parse_expr("x * 0.5")]
    assert constants(exprs) == (256, 1024)
    for deck in (accuracy_deck(exprs, False), accuracy_deck(exprs, True), probe_deck(exprs, True)):
        assert max(c.Nk for c in deck) > 1024 + 32
    sizes = {(c.Nq, c.Nk) for c in accuracy_deck(exprs, False)}
    for c in (256, 1024):
        assert {(c - 1, c - 1), (c, c), (c + 1, c + 1)} <= sizes
    assert {(0, 64), (64, 0), (0, 0)} <= sizes
    assert len(around((256, 1024))) == 12


def test_a_case_of_an_earlier_run_is_not_timed_again(
    found: Subject, capsys: pytest.CaptureFixture[str]
) -> None:
    done = label(found.run.sizes(CASE, found.d, found.dv))
    assert bench.prepare(found, CASE, {"done": [done]}) is None
    assert "from an earlier run" in capsys.readouterr().out


HELPED = (
    CAUSAL_SPEC.replace(
        "    scores = scores.masked_fill",
        "    scores = plain(scores)\n    scores = scores.masked_fill",
    )
    + """

def plain(x):
    return x * 1.0
"""
)


def test_a_spec_is_compiled_with_the_functions_beside_it(tmp_path: Path) -> None:
    """A module that is loaded fresh and leaves nothing behind can still be looked up."""
    (tmp_path / "sigmoid.py").write_text(HELPED)
    run = SpecRun(tmp_path / "sigmoid.py", {}, causal_recipe(), torch.device("cpu"))
    sizes = run.sizes(CASE, 64, 64)
    inputs = run.make_inputs(CASE, sizes, torch.float32)
    compiled = run.eager(partial(torch.compile, backend="eager", dynamic=False))
    torch.testing.assert_close(compiled(inputs), run.eager()(inputs))
