"""G3 names a primitive that no conformance run proved with exactly these headers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.errors import InputError, MissingTool
from engine.gates.g3_source import conformance
from engine.gates.g3_source import lowering_check as g3
from engine.gates.g3_source.conformance import (
    Record,
    called,
    read_record,
    read_records,
    told,
    unproven,
)
from engine.gates.g3_source.header_hashes import defined, depends, digest, sha256
from engine.lift import lift, load_package
from engine.lift.names.catalogue import default_catalogue
from engine.types import VerdictKind

ROOT = Path(__file__).resolve().parents[4]
SUITES = {"sm80": "flash_fwd_sm80", "sm90": "flash_fwd_sm90"}


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """kernels/conformance/record.py, which runs where this package is not installed."""
    path = ROOT / "kernels" / "conformance" / "record.py"
    spec = importlib.util.spec_from_file_location("conformance_record", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def cases() -> dict[str, list[dict[str, Any]]]:
    """What the runners would try, by suite."""

    def listed(suite: str) -> list[dict[str, Any]]:
        script = str(ROOT / "kernels" / "conformance" / f"{suite}.py")
        done = subprocess.run([sys.executable, script, "--list"], capture_output=True, check=True)
        return list(json.loads(done.stdout))

    return {suite: listed(suite) for suite in SUITES}


Tried = dict[str, Any]
Write = Callable[..., tuple[Record, ...]]


@pytest.fixture
def ran(runner: ModuleType, cases: dict[str, list[dict[str, Any]]], tmp_path: Path) -> Write:
    """Records as runs of today's suites on today's headers would leave them, read again.

    `change` gets each case of a suite and gives what became of it, or None where it was not tried.
    """

    def write(
        change: Callable[[dict[str, Any]], dict[str, Any] | None] = dict,
    ) -> tuple[Record, ...]:
        for suite, tried in cases.items():
            done = [change({**c, "verdict": "pass", "reason": ""}) for c in tried]
            made = runner.make(
                suite, runner.headers_of(f"cubridge/{suite}.cuh"), [c for c in done if c],
                device="a GPU", arch="sm_90", torch="2.11", nvcc="13.0", date="2026-11-28",
            )  # fmt: skip
            runner.write(tmp_path / f"{suite}.json", made)
        return read_records(tmp_path)

    return write


def headers_of(kernel: str) -> tuple[bytes, dict[str, bytes]]:
    package = load_package(kernel)
    return package.source, dict(package.headers)


def names(found: tuple[conformance.Unproven, ...]) -> set[str]:
    return {item.primitive for item in found}


# --- the records that are there --------------------------------------------------------------


def test_the_bundled_records_are_of_both_suites_and_hold_together() -> None:
    records = {record.suite: record for record in read_records()}
    assert set(records) == set(SUITES)
    for record in records.values():
        assert record.device and record.date and record.cases
        assert {case.verdict for case in record.cases} <= {"pass", "fail", "not_run"}


@pytest.mark.parametrize("suite", SUITES)
def test_the_runner_and_g3_compute_one_hash(runner: ModuleType, suite: str) -> None:
    """Else a run on these very headers would prove nothing."""
    headers = runner.headers_of(f"cubridge/{suite}.cuh")
    ours = headers_of(SUITES[suite])[1]
    assert headers == ours
    functions = {name for data in headers.values() for name in runner.defined(data)}
    assert functions
    for name in (*functions, "exp"):
        for layout in ("", "MmaAcc", "WgmmaAcc"):
            needs = depends(name, layout, ours)
            assert needs == runner.depends(name, layout, headers)
            own = digest({path: sha256(ours[path]) for path in needs})
            assert own == runner.digest(needs, headers)


@pytest.mark.parametrize("text", ["[]", "{", '{"schema": 9}', "{}", '{"schema": 1}'])
def test_what_is_no_record_is_refused_with_the_command(tmp_path: Path, text: str) -> None:
    (tmp_path / "sm90.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_records(tmp_path)
    assert "sm90.json" in str(caught.value.where)
    assert caught.value.fix is not None
    assert "python3 kernels/conformance/sm90.py --out" in caught.value.fix


def test_a_record_whose_hash_is_not_of_its_headers_is_refused(ran: Write, tmp_path: Path) -> None:
    ran()
    path = tmp_path / "sm80.json"
    data = json.loads(path.read_text())
    data["headers"]["cubridge/scalar.cuh"] = sha256(b"other bytes")
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="is not that of its headers"):
        read_record(path)


# --- what is proven --------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", SUITES.values())
def test_a_run_on_these_headers_proves_all_that_a_kernel_calls(ran: Write, kernel: str) -> None:
    source, headers = headers_of(kernel)
    records = ran()
    assert len(called(source, headers)) > 20
    assert unproven(source, headers, records) == ()
    assert told((), records) == ""


@pytest.mark.parametrize(("suite", "layout"), [("sm80", "MmaAcc"), ("sm90", "WgmmaAcc")])
def test_a_run_proves_all_that_a_variant_may_call(ran: Write, suite: str, layout: str) -> None:
    """Every call of the catalogue that the suite's headers define, on the suite's accumulator; and
    what the header of whole rows defines, on them, with the headers that the suite of them has."""
    _, headers = headers_of(SUITES[suite])
    own = {name for data in headers.values() for name in defined(data)}
    of_rows = set(defined(headers["cubridge/lines.cuh"]))
    names = [name for name in conformance.primitives(default_catalogue()) if name in own]
    assert len(names) > 40
    alone = {"load_lines", "swap_neighbours"}  # what only whole rows have
    lines = [("Lines", of_rows & set(names))] if suite == "sm80" else []
    for on, those in [(layout, set(names) - alone), *lines]:
        calls = b" ".join(b"%s(s);" % name.encode() for name in sorted(those))
        source = f"{on}<64, 64> s; ".encode() + calls
        assert set(called(source, headers)) == those
        assert unproven(source, headers, ran()) == ()


@pytest.mark.parametrize("more", [b"// a comment only\n", b"static int other;\n"])
def test_one_change_of_an_included_header_takes_the_proof_away(ran: Write, more: bytes) -> None:
    """Bytes decide: a comment counts, and so does a header that is only included on the way."""
    source, headers = headers_of("flash_fwd_sm90")
    records = ran()
    headers["cubridge/layout.cuh"] += more
    found = unproven(source, headers, records)
    assert {"map", "gemm_async", "row_max"} <= names(found)
    assert not {"run", "tma_load", "exp2_approx", "log"} & names(found)  # they include it nowhere
    item = next(item for item in found if item.primitive == "map")
    assert item.why == "other bytes than on a GPU (2026-11-28): layout.cuh"
    assert item.command.startswith("python3 kernels/conformance/sm90.py --out ")


def test_an_overload_in_another_header_is_another_primitive(ran: Write) -> None:
    source, headers = headers_of("flash_fwd_sm80")
    records = ran()
    headers["mine.cuh"] = b"template <typename T>\nT row_max(T a,\n  T b)\n{ return a; }\n"
    assert names(unproven(source, headers, records)) == {"row_max"}
    del headers["mine.cuh"]
    headers["mine.cuh"] = b"// row_max(s, m) {\nint f() { return row_max(1, 2); }\n"
    assert unproven(source, headers, records) == ()


def test_what_failed_or_was_not_reached_is_named_with_its_case(ran: Write) -> None:
    def change(case: dict[str, Any]) -> dict[str, Any]:
        if case["case"] == "tile_f16_64_0":
            return {**case, "verdict": "fail", "reason": "row maxima differ"}
        return {**case, "verdict": "not_run"} if case["case"] == "ring_f16_64_64" else case

    source, headers = headers_of("flash_fwd_sm90")
    found = {item.primitive: item.why for item in unproven(source, headers, ran(change))}
    assert found["row_max"] == "fail on a GPU: tile_f16_64_0: row maxima differ"
    assert found["named_sync"].startswith("not_run on a GPU: ring_f16_64_64")
    assert "gemm_async" not in found


def test_a_proof_is_of_the_accumulator_that_it_ran_on(ran: Write) -> None:
    """Masks by bits are one text for both accumulators; wgmma's is proven by its own case."""

    def change(case: dict[str, Any]) -> dict[str, Any] | None:
        of_wgmma = case["layout"] == "WgmmaAcc" and "keep_bits" in case["primitives"]
        return None if of_wgmma else case

    source = b"auto p = keep_bits(zeros<%s<64, 64>>(), bits);"
    records = ran(change)
    _, headers = headers_of("flash_fwd_sm80")
    assert unproven(source % b"MmaAcc", headers, records) == ()
    _, headers = headers_of("flash_fwd_sm90")
    (item,) = unproven(source % b"WgmmaAcc", headers, records)
    assert (item.primitive, item.why) == ("keep_bits", "no case ran it on WgmmaAcc")


def test_what_is_in_no_record_is_named_too(ran: Write) -> None:
    def change(case: dict[str, Any]) -> dict[str, Any]:
        return {**case, "primitives": [n for n in case["primitives"] if n not in ("exp", "put")]}

    _, headers = headers_of("flash_fwd_sm90")
    found = unproven(b"put(out.tile(0), exp(x)); gmem<int>(a, b);", headers, ran(change))
    assert [(item.primitive, item.why) for item in found] == [
        ("put", "no case of it has run"),
        ("exp", "no case of it has run"),
    ]


def test_calls_are_the_catalogues_and_not_the_sources_own() -> None:
    _, headers = headers_of("flash_fwd_sm80")
    source = b"""
    // gemm(acc, a, b);
    __device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
    void f() { keep(s, at(i, j), [&](int i, int j) { return sigmoid(i) > j; }); sizeof(int); }
    int gemm = 3;  // a name, no call
    """
    assert called(source, headers) == ("exp", "keep", "at")


# --- the words -------------------------------------------------------------------------------


def test_the_words_name_two_and_count_the_rest(ran: Write) -> None:
    records = ran()
    found = tuple(conformance.Unproven(n, "", "") for n in ("gemm", "map", "keep", "zeros"))
    start = "not yet proven on a GPU with these headers: "
    assert told(found[:1], records) == start + "gemm"
    assert told(found[:2], records) == start + "gemm, map"
    assert told(found, records) == start + "gemm, map and 2 more"
    assert "no conformance records here" in told(found, ())


def test_a_pass_of_g3_names_them(
    ran: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict stays pass, whatever the records say; a broken or a missing one is told."""
    try:
        find_toolchain()
    except MissingTool:
        pytest.skip("no nvcc here")
    package = load_package("flash_fwd_sm80")
    package = replace(package, specialisations=package.specialisations[:1])
    lifted = lift(package, package.specialisations[0], "sm_80")
    args = (package, lifted, lifted.module, package.source, "sm_80", None, None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def judged(folder: Path) -> g3.G3:
        monkeypatch.setattr(conformance, "results_dir", lambda: folder)
        found = g3.judge_lowered(*args)
        assert found.kind is VerdictKind.PASS
        json.dumps(found.details)  # a verdict's details are plain values
        return found

    def change(case: dict[str, Any]) -> dict[str, Any] | None:
        return None if "gemm" in case["primitives"] or "sync" in case["primitives"] else case

    ran()
    whole = judged(tmp_path)
    assert "compile for sm_80 without a loss; predicted to take " in whole.reason
    assert whole.details["conformance"]["unproven"] == []
    assert [run["suite"] for run in whole.details["conformance"]["runs"]] == ["sm80", "sm90"]

    ran(change)
    some = judged(tmp_path)
    assert "without a loss; not yet proven on a GPU with these headers: " in some.reason
    listed = some.details["conformance"]["unproven"]
    assert {"gemm", "sync"} <= {item["primitive"] for item in listed}
    assert all(item["why"] and "sm80.py --out" in item["command"] for item in listed)

    assert "no conformance records here" in judged(tmp_path / "nothing").reason

    (tmp_path / "sm90.json").write_text("{}")
    broken = judged(tmp_path)
    assert "; conformance is not known: sm90.json: no conformance record" in broken.reason
    assert "sm90.py" in broken.details["conformance"]["fix"]
