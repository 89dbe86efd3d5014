"""No figure beyond the card is shown anywhere, and none of pairs that nobody counted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cubridge_tui.model.gpu_results import bars, contestants, picture
from engine.gpu.bench_bars import groups_of
from engine.gpu.result import table
from engine.worker.contests.kept_pairs import mask_by_spec
from engine.worker.contests.rivals import Mask, bare_rivals
from engine.worker.contests.timing import Timing
from engine.worker.contests.whole_function import Whole, rated, whole_row, work_of
from engine.worker.orchestration.checklist import ALL_PAIRS, UNCOUNTED
from engine.worker.orchestration.device import Rate, peak_tflops, rate_of
from engine.worker.problems.problem_sizes import Case
from tests.engine.gpu.fakes import CAUSAL_SPEC, Fake
from tests.engine.worker.verification.test_unread import SINK, SINK_SPEC, unread

H100 = {"name": "NVIDIA H100", "capability": [9, 0], "multiprocessors": 132,
        "clocks_max_sm": "1980 MHz"}  # fmt: skip
WINDOW = CAUSAL_SPEC.replace("future =", "future = (torch.arange(k.size(2)) % 3 == 0) |", 1)


def test_the_card_s_most_is_its_multiprocessors_flop_and_clock() -> None:
    assert peak_tflops(H100) == pytest.approx(132 * 4096 * 1980e6 / 1e12)
    a100 = {"capability": [8, 0], "multiprocessors": 108, "clocks_max_sm": "1410 MHz"}
    assert peak_tflops(a100) == pytest.approx(312, rel=0.01)
    for lacking in ({}, {**H100, "clocks_max_sm": "unknown"}, {**H100, "capability": [99, 0]}):
        assert peak_tflops(lacking) is None


@pytest.mark.parametrize(
    ("tflops", "shown", "words"),
    [
        (5528.0, False, "refused: 5,528 TFLOP/s, and the card's most is 1,071"),
        (1122.0, False, "refused"),
        (900.0, True, "above the measured matmul (800)"),
        (719.0, True, ""),
    ],
)
def test_a_figure_beyond_the_card_is_refused_and_one_above_the_matmul_marked(
    tflops: float, shown: bool, words: str
) -> None:
    found = rate_of({"tflops": tflops}, H100, 800.0)
    assert found.tflops == (tflops if shown else None) and words in found.note
    assert bool(found.note) == bool(words)


def test_a_rate_of_all_pairs_is_none() -> None:
    assert rate_of({"tflops": 300.0, "mask": ALL_PAIRS}, H100).tflops is None
    assert rate_of({"ms": 1.0}, H100) == Rate(None)


def details(*rows: dict[str, Any]) -> dict[str, Any]:
    common = {"case": "S 8192", "iqr_ms": 0.01, "ms": 1.96}
    times = [{**common, **row} for row in rows]
    return {"times": times, "device": H100, "checks": [], "self_test": [], "primary": "bf16_128",
            "title": "t", "verdict": "pass", "reason": ""}  # fmt: skip


@pytest.mark.parametrize(
    "ours",
    [
        {"tflops": 1122.0, "matmul_tflops": 800.0, "of_floor": 0.4},
        {"tflops": 300.0, "mask": ALL_PAIRS, "of_floor": 0.4},
        {"mask": UNCOUNTED, "of_floor": 0.4},
    ],
)
def test_where_no_rate_may_stand_the_time_does(ours: dict[str, Any]) -> None:
    compiled = {"name": "torch.compile", "ms": 39.5, "ours_is": 20.2, "note": "0.618 ms on a part"}
    found = details({"name": "CuBridge", **ours}, compiled)
    lines = "\n".join([*table(found), *(row.text for row in bars(found, 120).rows)])
    assert lines.count("1.960 ms") == 2 and lines.count("0.618 ms on a part") == 2
    for line in lines.splitlines():
        assert not re.search(r"\d TFLOP/s", line) or "refused" in line
    assert [c.name for c in contestants(found)["S 8192"]] == ["CuBridge", "torch.compile"]
    for group in groups_of(found["times"], H100):
        assert all(bar.reason for bar in group.bars), "a bar is a rate"
    assert picture("t", found)


def test_a_marked_figure_is_shown_with_its_mark_everywhere() -> None:
    found = details({"name": "CuBridge", "tflops": 900.0, "matmul_tflops": 800.0, "of_floor": 1.1})
    for text in (
        "\n".join(table(found)),
        "\n".join(row.text for row in bars(found, 120).rows),
        groups_of(found["times"], H100)[0].bars[0].words,
    ):
        assert "above the measured matmul" in text and "900" in text


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (CAUSAL_SPEC, "causal"),
        (CAUSAL_SPEC.replace("n_q + 1)", "n_q + 9)"), "other"),
        (WINDOW, "other"),
    ],
    ids=["causal", "eight further", "a third"],
)
@pytest.mark.parametrize("rows", [(40, 40), (33, 150)])
def test_the_pairs_that_the_function_keeps_are_counted(
    tmp_path: Path, spec: str, kind: str, rows: tuple[int, int]
) -> None:
    found = unread(tmp_path, Fake(), spec)
    case = Case(2, 4, 2, *rows, seed=5)
    sizes = found.run.sizes(case, 64, 64)
    inputs = found.run.make_inputs(case, sizes, torch.bfloat16)
    weights = found.run.weights(inputs)
    mask = mask_by_spec(found, inputs, sizes)
    assert mask.pairs == int(((weights != 0) & ~weights.isnan()).sum()) > 0
    if rows == (40, 40):
        assert mask.kind == kind
    else:
        assert mask.kind == "other"


def test_a_sink_s_mask_is_causal_and_its_bare_kernel_is_a_rival(tmp_path: Path) -> None:
    found = unread(tmp_path, Fake(), SINK_SPEC, SINK)
    sizes = found.run.sizes(Case(1, 4, 2, 40, 40), 64, 64)
    inputs = found.run.make_inputs(Case(1, 4, 2, 40, 40), sizes, torch.bfloat16)
    mask = mask_by_spec(found, inputs, sizes)
    assert mask == Mask(4 * 40 * 41 // 2, "causal")
    assert set(bare_rivals(found.run, mask, 64)) == {
        "bare causal, SDPA FlashAttention-2", "bare causal, SDPA cuDNN",
    }  # fmt: skip
    assert bare_rivals(found.run, replace(mask, kind="other"), 64) == {}
    work = work_of(found, mask)
    assert work == {"pairs": 3280, "flops": 2.0 * 128 * 3280}
    assert rated(work, 1.0) == {"tflops": pytest.approx(work["flops"] * 1e-9)}


def test_what_cannot_be_counted_has_no_rate_and_says_why(tmp_path: Path) -> None:
    case = Case(1, 2, 1, 20, 30)
    bent = unread(tmp_path, Fake(), CAUSAL_SPEC.replace("@ v\n", "@ torch.tanh(v)\n"))
    sizes = bent.run.sizes(case, 64, 64)
    inputs = bent.run.make_inputs(case, sizes, torch.bfloat16)
    mask = mask_by_spec(bent, inputs, sizes)
    assert mask.pairs is None and "not linear" in mask.kind
    slow = unread(tmp_path, Fake())
    late = mask_by_spec(slow, inputs, sizes, seconds=-1.0)
    assert late.pairs is None and "longer" in late.kind
    assert rated(work_of(slow, late), 1.0) == {}


@pytest.mark.parametrize(("batch", "heads", "factor"), [(1, 4, 4), (2, 8, 1), (1, 2, 8)])
def test_a_time_on_a_part_of_the_heads_is_scaled_and_says_so(
    batch: int, heads: int, factor: int
) -> None:
    def sizes(b: int, h: int) -> dict[str, int]:
        return {"B": b, "Hq": h, "Hkv": h, "Nq": 64, "Nk": 64, "D": 64, "Dv": 64}

    whole = Whole("torch.compile", lambda _: torch.empty(0), {}, sizes(batch, heads))
    work = {"pairs": 10.0, "flops": 4e9}
    row = whole_row(whole, Timing(0.5, 0.1, 10), sizes(2, 8), "other", 1.0, work)
    assert row["ms"] == 0.5 * factor and row["iqr_ms"] == 0.1 * factor
    assert row["ours_is"] == 0.5 * factor and row["sizes"]["Hq"] == 8
    assert row["tflops"] == pytest.approx(4.0 / (0.5 * factor))
    assert ("0.500 ms on" in row.get("note", "")) == (factor > 1)
