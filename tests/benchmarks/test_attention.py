"""Records of the attention bench: what is kept, merged and shown, and pages in step with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.attention import judged, record
from benchmarks.attention_report import (
    PLOTS,
    Timed,
    _lacks_what_ops_do,
    _rival,
    cost_table,
    load_records,
    measured_pages,
    measured_table,
    plots,
    put,
    readme_table,
    table,
    timed_cases,
    timed_of,
    why_untimed,
    write_plots,
    written,
)
from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.gpu.predicted import with_predictions
from engine.report.picture import svg
from engine.service.session.workbench import lift_any
from engine.worker.orchestration.checklist import SHORT, WHOLE, explained, required
from engine.worker.orchestration.results import KIND, SCHEMA

SIZES = {"B": 1, "Hq": 4, "Hkv": 4, "Nq": 2048, "Nk": 2048, "D": 128, "Dv": 128}


def times(ours: float, case: str = "S 2048 B 1 heads 4 D 128") -> list[dict[str, Any]]:
    flops = 512.0 * 4 * 2048**2
    common = {"case": case, "iqr_ms": 0.001, "flops": flops, "sizes": SIZES}
    return [
        {**common, "name": "CuBridge", "tflops": ours, "ms": flops / ours * 1e-9, "of_floor": 0.5,
         "matmul_tflops": 770.0},
        {**common, "name": "SDPA cuDNN", "tflops": 250.0, "ms": flops / 250e9, "ours_is": 0.9},
        {"case": case, "name": "FlashAttention-4", "reason": "not installed"},
    ]  # fmt: skip


def result(**changed: Any) -> dict[str, Any]:
    build = {
        "check": "build", "specialisation": "bf16_128", "verdict": "pass", "cases": 1,
        "notes": {"resources": [{"specialisation": "bf16_128", "spill_stores": 0,
                                 "spill_loads": 4, "registers": 168}]},
    }  # fmt: skip
    return {
        "kind": KIND, "schema": SCHEMA, "name": "flash_fwd_sm90-causal", "title": "t",
        "hashes": {"kernel": "a"}, "keys": ["bf16_128"], "declared": ["bf16_128"],
        "primary": "bf16_128", "method": "m", "state": "complete", "verdict": "pass",
        "reason": "", "checks": [build], "self_test": [], "times": times(280.0),
        "device": {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90a", "torch": "2", "driver": "5"},
        "cuir": print_module(lift_any("flash_fwd_sm90", None, {}).module), **changed,
    }  # fmt: skip


def saved(tmp_path: Path, *results: dict[str, Any]) -> list[Path]:
    out = []
    for number, each in enumerate(results):
        out.append(tmp_path / f"r{number}.json")
        out[-1].write_text(json.dumps(each))
    return out


def test_a_record_holds_the_prediction_and_the_resources(tmp_path: Path) -> None:
    data = record(saved(tmp_path, result()), tmp_path / "out.json")
    (case,) = timed_of(json.loads((tmp_path / "out.json").read_text()))
    assert case.predicted is not None and case.predicted > 100
    assert (case.registers, case.spilled) == (168, 4)
    assert case.best_rival() == ("SDPA cuDNN", 250.0)
    (row,) = [line for line in table(data) if line.startswith("| flash")]
    assert "280 (3%)" in row and "| 1.12 | 36% |" in row and "| 168 | 4 |" in row


def test_without_cuir_or_card_the_reason_stands_there(tmp_path: Path) -> None:
    for changed in ({"cuir": ""}, {"cuir": "not cuir"},
                    {"device": {"name": "NVIDIA Quadro", "arch": "sm_75"}}):  # fmt: skip
        row = with_predictions(result(**changed))["times"][0]
        assert row["prediction"]["reason"]


def test_results_of_the_same_bytes_are_merged_case_by_case(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    record(saved(tmp_path, result()), out)
    other = times(300.0, "S 4096 B 1 heads 4 D 128")
    data = record(saved(tmp_path, result(times=other)), out)
    assert [c.rate for c in timed_of(data)] == [280.0, 300.0]
    # Other bytes: nothing of the old rows stays.
    made = saved(tmp_path, result(hashes={"kernel": "b"}, times=other))
    data = record(made, out, drop_times=True)
    assert [c.rate for c in timed_of(data)] == [300.0]


def test_cards_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    record(saved(tmp_path, result()), out)
    other = {"name": "NVIDIA H200", "arch": "sm_90a", "torch": "2", "driver": "5"}
    with pytest.raises(InputError, match="different cards"):
        record(saved(tmp_path, result(device=other)), out)


def test_tables_of_a_record(tmp_path: Path) -> None:
    data = record(saved(tmp_path, result()), tmp_path / "out.json")
    text = "\n".join(measured_table([data]))
    assert "| causal | S 2048 B 1 heads 4 D 128 | 280* |" in text and "without G4" in text
    lines = cost_table([data])
    assert lines[-1].startswith("1 rows")
    page = "a\n<!-- x: made by `python benchmarks/attention.py readme` -->\nold\n<!-- end -->b"
    marked = put(page, "x", ["new"])
    assert "new" in marked and "old" not in marked and marked.endswith("<!-- end -->b")
    with pytest.raises(ValueError, match="no place"):
        put("nothing", "x", [])


def test_a_time_on_a_part_of_the_heads_is_marked_and_a_plain_rival_named() -> None:
    whole = {"name": "A", "tflops": 100.0}
    part = {**whole, "note": "1 ms on heads 2, which fits; scaled to all heads"}
    reason = "a function (library 1.0) has no parameter for a gate or a factor on the output"
    for row, shown, absent, plain in (
        (whole, "100", {}, False),
        (part, "100~", {"B": reason}, True),
        (whole, "100", {"B": "it is not installed"}, False),
    ):
        case = Timed("k", "s", "S 1", "pass", {"A": row}, absent, None, None)
        assert _rival("A", case) == shown and _lacks_what_ops_do(case) is plain


def test_the_readme_shows_the_run_that_asked_the_most_rivals(tmp_path: Path) -> None:
    case = "S 8192 B 2 heads 32 D 128"
    old = record(saved(tmp_path, result(times=times(280.0, case))), tmp_path / "old.json")
    (row,) = [line for line in readme_table([old]) if line.startswith("| causal |")]
    assert row == "| causal | 280* | 250 | SDPA cuDNN | 1.12 |  |"
    assert "Not asked beside causal" in " ".join(readme_table([old]))
    said = "flex_attention (torch 2) raised"
    asked = [*times(240.0, case), {"case": case, "name": "FlexAttention FLASH", "reason": said}]
    card = {"name": "NVIDIA H200", "arch": "sm_90a", "torch": "2", "driver": "5"}
    new = record(saved(tmp_path, result(times=asked, device=card)), tmp_path / "new.json")
    shown = readme_table([old, new])
    assert "| causal | 240* | 250 | SDPA cuDNN | 0.96 |  |" in shown
    assert "Not asked" not in " ".join(shown) and "One NVIDIA H200" in shown[0]
    every = "\n".join(measured_pages([old, new]))
    assert f"| FlexAttention FLASH | causal | {said} |" in every and "## NVIDIA H200" in every
    assert "says nothing of what they take" in " ".join(every.split())


def test_plots_show_ours_and_the_prediction(tmp_path: Path) -> None:
    data = record(saved(tmp_path, result()), tmp_path / "out.json")
    assert set(plots([data])) == {"attention_sm90", "predicted"}
    files = write_plots([data], tmp_path / "plots")
    assert {f.suffix for f in files} == {".svg"}
    text = (tmp_path / "plots" / "attention_sm90.svg").read_text()
    assert "CuBridge" in text and "not installed" in text and "H100" in text


def test_every_recorded_time_of_ours_has_a_prediction() -> None:
    for data in load_records():
        for case in timed_of(data):
            assert case.predicted is not None, (case.kernel, case.spec, case.case)


def test_the_pages_are_in_step_with_the_records() -> None:
    for path, text in written(load_records()).items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name}: run `python benchmarks/attention.py readme`"
        )
    for name, picture in plots(load_records()).items():
        assert (PLOTS / f"{name}.svg").read_text(encoding="utf-8") == svg(picture), name


def test_a_timed_entry_is_not_replaced_by_one_without_its_times(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    both = [*times(280.0), *times(300.0, "S 4096 B 1 heads 4 D 128")]
    record(saved(tmp_path, result(times=both)), out)
    before = out.read_bytes()
    other = {"kernel": "b"}
    reason = [{"case": "S 2048 B 1 heads 4 D 128", "name": "CuBridge", "reason": "no memory"}]
    for fewer in ([], reason, times(280.0), both[1:3]):
        made = saved(tmp_path, result(hashes=other, times=fewer))
        with pytest.raises(InputError, match="S 4096 B 1 heads 4 D 128") as found:
            record(made, out)
        assert "--drop-times" in str(found.value) and out.read_bytes() == before
    # Beside one that may be recorded too: all or nothing.
    with pytest.raises(InputError):
        record(saved(tmp_path, result(name="x"), result(hashes=other, times=[])), out)
    assert out.read_bytes() == before
    # What one result lacks another may bring.
    halves = [result(hashes=other, times=both[:3]), result(hashes=other, times=both[3:])]
    assert len(timed_of(record(saved(tmp_path, *halves), tmp_path / "two.json"))) == 2
    (tmp_path / "copy.json").write_bytes(before)
    assert len(timed_of(record(saved(tmp_path, *halves), tmp_path / "copy.json"))) == 2
    # The same bytes lose nothing, and all cases timed again may take the place.
    assert len(timed_of(record(saved(tmp_path, result(times=reason)), out))) == 2
    assert len(timed_of(record(saved(tmp_path, result(hashes=other, times=both)), out))) == 2
    data = record(saved(tmp_path, result(times=[])), out, drop_times=True)
    assert timed_of(data) == [] and len(data["entries"]) == 1


def test_an_untimed_entry_says_why_on_the_pages(tmp_path: Path) -> None:
    events = ["timing: AcceleratorError: CUDA error: out of memory\nmore of it", "and so on"]
    row = {"check": "timed outputs", "specialisation": "bf16_128", "verdict": "not_run"}
    why = {
        "timing: AcceleratorError: CUDA error: out of memory": result(times=[], events=events),
        "left out by --no-bench": result(
            times=[], events=events, checks=[row | {"reason": "left out by --no-bench"}]
        ),
        "the run was interrupted": result(times=[], state="interrupted"),
        "G4 failed: bf16_128 timed outputs: off": result(
            times=[], checks=[row | {"verdict": "fail", "failures": ["off"]}]
        ),
        "no reason is recorded": result(times=[]),
    }
    for reason, made in why.items():
        data = record(saved(tmp_path, made), tmp_path / "out.json", drop_times=True)
        (tmp_path / "out.json").unlink()
        words = f"Not timed: causal bf16_128 on flash_fwd_sm90 ({reason})."
        assert words in table(data)
        assert words in " ".join(measured_table([data]))
    assert "Not timed" not in str(table(record(saved(tmp_path, result()), tmp_path / "out.json")))


def test_rows_that_were_run_stay_and_the_verdict_is_of_all_rows(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    good = whole_rows()
    assert record(saved(tmp_path, result(checks=good)), out)["entries"][0]["verdict"] == "pass"
    unrun = [{**r, "verdict": "not_run", "cases": 0, "reason": "left out"} for r in good]
    quick = [{**r, "deck": SHORT} for r in good]
    for rows in (unrun[-2:], quick):
        (entry,) = record(saved(tmp_path, result(checks=rows)), out)["entries"]
        assert (entry["verdict"], entry["checks"]) == ("pass", good)
    # Fewer rows, one of them failed: that is no pass of the rows before.
    bad = [{**good[3], "verdict": "fail", "failures": ["off"]}]
    (entry,) = record(saved(tmp_path, result(checks=bad)), out)["entries"]
    assert entry["verdict"] == "fail" and "off" in entry["reason"]


def whole_rows() -> list[dict[str, Any]]:
    key = "bf16_128"
    names = (*required(key, key, True), *explained(key, key, lists=False))
    return [
        {"check": c, "specialisation": key, "verdict": "pass", "deck": WHOLE, "cases": 1}
        for c in names
    ]


def test_every_recorded_entry_has_a_time_of_ours_or_the_reason() -> None:
    for data in load_records():
        assert data["entries"]
        for entry in data["entries"]:
            assert timed_cases(entry) or why_untimed(entry), (entry["name"], entry["primary"])


def test_every_recorded_verdict_is_what_its_rows_earn() -> None:
    for data in load_records():
        for entry in data["entries"]:
            said = (entry["verdict"], entry["reason"])
            assert said == judged(entry), (entry["name"], entry["primary"])
            # And each of its rows is needed: without it, none of them passes.
            if entry["verdict"] == "pass":
                for n, row in enumerate(entry["checks"]):
                    fewer = [*entry["checks"][:n], *entry["checks"][n + 1 :]]
                    assert judged({**entry, "checks": fewer})[0] == "not_run", row
