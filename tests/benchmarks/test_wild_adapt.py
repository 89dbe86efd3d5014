"""The bench of adapted public kernels: what it records names the program, and no checkout."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.wild_adapt import RESULTS, ROOT, record, run
from engine.worker.orchestration.results import KIND, SCHEMA


def test_commands_are_recorded_by_the_program_s_name(tmp_path: Path) -> None:
    code, _, said = run(["sessions", "show"], tmp_path)
    assert code == 2 and "cubridge sessions list" in said
    assert str(ROOT) not in said and "dev run" not in said


def test_no_record_names_a_checkout() -> None:
    for path in RESULTS.parent.glob("*.json"):
        assert "/dev run " not in path.read_text(encoding="utf-8"), path.name
    assert "`cubridge verify SESSION`" in RESULTS.read_text(encoding="utf-8")


def test_what_a_gpu_found_stands_in_the_row_of_its_job(tmp_path: Path) -> None:
    adapted, unedited = tmp_path / "adapted.json", tmp_path / "unedited.json"
    adapted.write_text(json.dumps({"theirs_1": {"softcap_causal": {"level": "cpu-verified"}}}))
    unedited.write_text(json.dumps({"theirs_1": {"g1": True}}))
    row = {"check": "build", "specialisation": "bf16_64", "verdict": "fail", "failures": ["no"]}
    paths = []
    for spec in ("softcap_causal", "reference"):
        result = {
            "kind": KIND, "schema": SCHEMA, "name": f"theirs_1-{spec}", "title": "t",
            "primary": "bf16_64", "keys": ["bf16_64"], "hashes": {"theirs": "1", "kernel": "2"},
            "worker": "w", "device": {"name": "NVIDIA H200"}, "method": "", "state": "complete",
            "verdict": "fail", "reason": "", "checks": [row], "times": [], "self_test": [],
            "samples": [], "events": [],
        }  # fmt: skip
        paths.append(tmp_path / f"{spec}.json")
        paths[-1].write_text(json.dumps(result))
    record(paths, adapted, unedited)
    for made in (
        json.loads(adapted.read_text())["theirs_1"]["softcap_causal"],
        json.loads(unedited.read_text())["theirs_1"],
    ):
        assert made["gpu"]["verdict"] == "fail" and made["gpu"]["device"] == "NVIDIA H200"
        assert made["gpu"]["checks"] == {"build bf16_64": "fail"} and len(made) == 2
