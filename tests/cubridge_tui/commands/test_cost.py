"""`cubridge cost` and `cubridge bench RESULT.json`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.cli import main
from engine.cuir.printer import print_module
from engine.gates.schedules.tile_visits import Visits
from engine.service.session.adaptation import Adaptation
from engine.service.session.workbench import lift_any
from engine.types import Gate, Stage, VerdictKind
from engine.worker.orchestration.results import KIND, SCHEMA
from sessions.store import Store
from tests.cubridge_tui.made import bench_of, placed, verdict_of


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "cost", "flash_fwd_sm90", "--shapes", "1x4x2048", "--kept", "0.5")
    assert code == 0
    assert "S 2048 B 1 heads 4 D 128" in out and "bound by" in out and "tensor cores 2,688" in out


def test_a_file_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cuir"
    path.write_text(print_module(lift_any("flash_fwd_sm80", None, {"D": "64"}).module))
    code, out, _ = run(capsys, "cost", str(path), "--lengths", "512", "1024", "--json")
    assert code == 0
    rows = json.loads(out)["predictions"]
    assert [row["shape"]["Nq"] for row in rows] == [512, 1024]
    assert all(row["tflops"] > 0 and row["bound"] and row["arch"] == "sm_80" for row in rows)


@pytest.mark.parametrize(
    ("words", "card"),
    [
        (["flash_fwd_sm80"], "a100"),
        (["flash_fwd_sm90"], "h100"),
        (["flash_fwd_sm80", "--card", "h200"], "h200"),
        (["flash_fwd_sm90", "--card", "h200"], "h200"),
    ],
)
def test_the_card_is_the_one_that_the_app_predicts_for(
    words: list[str], card: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(run(capsys, "cost", *words, "--shapes", "1x4x1024", "--json")[1])
    assert found["card"] == found["predictions"][0]["card"] == card


def test_an_arch_of_no_card_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.cuir"
    text = print_module(lift_any("flash_fwd_sm80", None, {"D": "64"}).module)
    path.write_text(text.replace("'sm_80'", "'sm_75'"))
    code, out, err = run(capsys, "cost", str(path))
    assert code == 2 and out == "" and "no card of the arch sm_75" in err and "--card" in err


def test_half_the_pairs_are_half_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    rates = []
    for kept in ("1", "0.5"):
        words = ("cost", "flash_fwd_sm80", "--shapes", "1x4x1024", "--kept", kept, "--json")
        rates.append(json.loads(run(capsys, *words)[1])["predictions"][0]["tflops"])
    assert rates[1] == pytest.approx(rates[0] / 2, rel=1e-3)


def test_a_session_s_counted_tiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of G2's verdict on what the session holds, as it was given; none of an older one."""
    path = tmp_path / "s.git"
    session = placed(path, Stage.LOWERED)
    words = ("cost", session, "--store", str(path), "--lengths", "1024")

    def told() -> tuple[str, object]:
        lines = run(capsys, *words)[1].splitlines()
        return lines[-1], json.loads(run(capsys, *words, "--json")[1])["tiles"]

    line, found = told()
    assert "no mask, or tile lists" in line and found is None  # a verdict without a count
    with bench_of(Store.open(path)) as bench, bench.store.writer(session) as writer:
        work = Adaptation(bench, writer, "tester")
        tiles = Visits("B 2, heads 4/2", 1234, 5).to_json()
        passed, failed = VerdictKind.PASS, VerdictKind.FAIL
        work.give(verdict_of(work, Gate.G2, passed, "equal", {"tiles": tiles}))
        line, found = told()
        assert "1,234 key tiles visited at B 2, heads 4/2, 5 of them hold no kept" in line
        assert found == tiles
        work.give(verdict_of(work, Gate.G2, failed, "unequal"))
        line, found = told()
        assert "G2 has not passed" in line and found is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nosuch",), "no session nosuch"),
        (("missing.cuir",), "missing.cuir"),
        (("flash_fwd_sm90", "--kept", "2"), "no share"),
        (("flash_fwd_sm90", "--shapes", "2x32"), "no shape"),
        (("flash_fwd_sm90", "--lengths", "-1"), "no length"),
        (("flash_fwd_sm90", "--card", "abacus"), "abacus"),
        (("a.cuir", "--head-dim", "64"), "a.cuir is no kernel"),
        (("20260101-abc", "--dtype", "f16"), "20260101-abc is no kernel"),
    ],
)
def test_wrong_usage_says_what(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, "cost", *words, "--store", str(tmp_path / "s.git"))
    assert code == 2 and told in err and "Traceback" not in err and out == ""


def result() -> dict[str, Any]:
    sizes = {"B": 1, "Hq": 4, "Hkv": 4, "Nq": 1024, "Nk": 1024, "D": 128, "Dv": 128}
    common = {"case": "S 1024", "iqr_ms": 0.1, "sizes": sizes, "flops": 2147483648.0}
    return {
        "kind": KIND, "schema": SCHEMA, "name": "flash_fwd_sm90", "title": "t", "softmax": True,
        "hashes": {"kernel": "a", "recipe": "b"}, "keys": ["bf16_128"], "declared": ["bf16_128"],
        "primary": "bf16_128", "method": "how", "state": "complete", "verdict": "pass",
        "reason": "", "checks": [], "self_test": [],
        "device": {"name": "NVIDIA H100", "arch": "sm_90a", "torch": "2.11", "driver": "580"},
        "cuir": print_module(lift_any("flash_fwd_sm90", None, {}).module),
        "times": [
            {**common, "name": "CuBridge", "ms": 0.01, "tflops": 200.0, "of_floor": 0.5,
             "matmul_tflops": 800.0},
            {**common, "name": "SDPA cuDNN", "ms": 0.02, "tflops": 100.0, "ours_is": 2.0},
        ],
    }  # fmt: skip


def test_a_result_with_its_prediction_and_bars(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plot = tmp_path / "r.json", tmp_path / "bars.svg"
    path.write_text(json.dumps(result()))
    code, out, _ = run(capsys, "bench", str(path), "--plot", str(plot))
    assert code == 0
    assert "25% of the measured matmul" in out and "predicted" in out and "ours is 2.00 x" in out
    assert plot.read_bytes().startswith(b"<svg")


def test_a_plot_has_a_known_ending(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result()))
    code, _, err = run(capsys, "bench", str(path), "--plot", str(tmp_path / "bars.gif"))
    assert code == 2 and ".svg" in err
