"""`verify`, `gpu` and `bench` on a real session, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.cli import main
from engine.gpu.job import hashes_of
from engine.resources import kernel_path, spec_path
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.gpu_verdict import (
    contents_of,
    contents_of_kernel,
    job_folder,
    verdict_from,
)
from engine.service.session.session_options import choose_options
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench, find_kernel
from engine.types import Gate, VerdictKind
from engine.worker.orchestration.checklist import explained, required
from engine.worker.orchestration.manifest import read_job
from engine.worker.orchestration.results import KIND, METHOD
from sessions.store import Store

KEY = "bf16_128"


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A store with one session, lowered; no gate was run."""
    path = tmp_path_factory.mktemp("gpu") / "store.git"
    package = find_kernel("flash_fwd_sm80")
    with Bench(Store.open(path)) as bench:
        options = choose_options(package)
        session = start(bench, package, spec_path("softcap_causal"), options, "ada")
        with bench.store.writer(session, wait=5.0) as writer:
            work = Adaptation(bench, writer, "ada")
            _set_lifted(work)
            work.accept_all(work.propose_by_rules())
            work.lower()
    yield path, session


def _set_lifted(work: Adaptation) -> None:
    from engine.cuir.printer import print_module
    from engine.service.session.content import LIFTED
    from engine.types import Artifact, Stage

    work._set([Artifact.of(Stage.LIFTED, LIFTED, print_module(work.lifted.module))])


@pytest.fixture(autouse=True)
def _places(adapted: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBRIDGE_STORE", str(adapted[0]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CUBRIDGE_GPU_COMMAND", raising=False)
    monkeypatch.setattr("engine.gpu.runners.has_gpu", lambda: False)


def result_for(adapted: tuple[Path, str], verdict: str = "pass") -> dict[str, Any]:
    with Bench(Store.open(adapted[0])) as bench:
        contents = contents_of(Work(bench, bench.store.load(adapted[1])))
    keys = [f"{t}_{d}" for t in ("bf16", "f16") for d in (64, 128)]
    rows = [
        {"check": c, "specialisation": k, "verdict": "pass", "cases": 1, "seconds": 0.1}
        for k in keys
        for c in (*required(k, KEY, True), *explained(k, KEY))
    ]
    if verdict == "fail":
        rows[3] |= {"verdict": "fail", "failures": ["b 0 h 1 i 2"]}
    times = [{"case": "S 8", "name": "CuBridge", "ms": 1.0, "iqr_ms": 0.1, "tflops": 3.0}]
    return {
        "kind": KIND, "schema": 1, "name": contents.name, "title": "t", "primary": KEY,
        "keys": keys, "declared": keys, "hashes": hashes_of(contents), "softmax": True,
        "device": {"name": "NVIDIA H100", "arch": "sm_90"}, "method": METHOD, "state": "complete",
        "verdict": verdict, "reason": "", "checks": rows, "self_test": [], "times": times,
    }  # fmt: skip


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_pack_gives_a_job_of_the_lowered_bytes(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "job"
    assert main(["gpu", "pack", adapted[1], str(target), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    job = read_job(target)
    assert told["hashes"] == dict(job.hashes) and told["session"] == adapted[1]
    text = job.source.read_text()
    assert text != kernel_path("flash_fwd_sm80").read_text() and job.spec == "softcap_causal.py"
    assert job.keys[0] == KEY and len(job.keys) == 4 and job.kernels == ("flash_fwd",)
    assert main(["verify", adapted[1], "--pack", str(tmp_path / "b"), "--only", KEY]) == 0
    fewer = read_job(tmp_path / "b")
    assert fewer.keys == (KEY,) and len(fewer.declared) == 4
    assert fewer.hashes == job.hashes


def test_pack_says_what_makes_a_card_s_time_worth_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source itself, since nobody decided on the rules' hunks, and no gate ran."""
    package = find_kernel("flash_fwd_sm80")
    store = tmp_path / "store.git"
    with Bench(Store.open(store)) as bench:
        session = start(bench, package, spec_path("causal"), choose_options(package), "ada")
        with bench.store.writer(session, wait=5.0) as writer:
            work = Adaptation(bench, writer, "ada")
            _set_lifted(work)
            hunks = len(work.propose_by_rules().hunks)
            work.lower()
    for command in (["gpu", "pack", session], ["verify", session, "--pack"]):
        assert main([*command, str(tmp_path / f"{command[0]}.tar"), "--store", str(store)]) == 0
        said = capsys.readouterr().err
        assert all(f"note: {gate} not_run" in said for gate in ("G1", "G2", "G3"))
        assert f"note: {hunks} hunks are undecided" in said
        assert f"tar xf {command[0]}.tar && python3 " in said


@pytest.mark.parametrize("command", [["verify", "S", "--pack", "DIR"], ["gpu", "pack", "S", "DIR"]])
def test_only_what_the_session_builds_is_packed(
    adapted: tuple[Path, str],
    tmp_path: Path,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A head size that the kernel may have, and this session's G3 did not compile."""
    target = tmp_path / "job"
    words = [{"S": adapted[1], "DIR": str(target)}.get(word, word) for word in command]
    assert main([*words, "--only", KEY, "bf16_72"]) == 2
    told = capsys.readouterr().err
    assert "does not build bf16_72" in told and "bf16_64, bf16_128" in told
    assert not target.exists()


def test_a_result_of_what_the_session_does_not_build_is_refused(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = result_for(adapted)
    rows = [r | {"specialisation": "bf16_72"} for r in made["checks"] if r["specialisation"] == KEY]
    more = made | {"keys": [KEY, "bf16_72"], "checks": made["checks"] + rows}
    before = Store.open(adapted[0]).load(adapted[1]).state.count
    assert main(["gpu", "import", adapted[1], str(write(tmp_path / "r.json", more))]) == 2
    assert "does not build bf16_72" in capsys.readouterr().err
    assert Store.open(adapted[0]).load(adapted[1]).state.count == before


def test_a_key_named_twice_does_not_stand_for_another(
    adapted: tuple[Path, str], tmp_path: Path
) -> None:
    path = write(tmp_path / "r.json", result_for(adapted) | {"keys": [KEY] * 4})
    with Bench(Store.open(adapted[0])) as bench:
        verdict = verdict_from(Work(bench, bench.store.load(adapted[1])), path)
    assert f"of 4 specialisations only {KEY}" in verdict.reason


def test_what_a_result_says_of_itself_is_not_believed(
    adapted: tuple[Path, str], tmp_path: Path
) -> None:
    """LSE must have been judged, whether or not the file says that there is one."""
    made = result_for(adapted)
    rows = [r for r in made["checks"] if r["check"] != "lse"]
    path = write(tmp_path / "r.json", made | {"checks": rows, "softmax": False})
    with Bench(Store.open(adapted[0])) as bench:
        verdict = verdict_from(Work(bench, bench.store.load(adapted[1])), path)
    assert verdict.kind is VerdictKind.NOT_RUN and "lse" in verdict.reason


def test_import_records_the_verdict(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.json", result_for(adapted))
    assert main(["gpu", "import", adapted[1], str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"]["gate"] == "G4" and told["verdict"]["kind"] == "pass"
    state = Store.open(adapted[0]).load(adapted[1]).state
    found = state.verdict(Gate.G4)
    assert found is not None and found.kind is VerdictKind.PASS
    assert "NVIDIA H100" in found.reason
    bad = write(tmp_path / "bad.json", result_for(adapted, "fail"))
    assert main(["gpu", "import", adapted[1], str(bad)]) == 1
    state = Store.open(adapted[0]).load(adapted[1]).state
    found = state.verdict(Gate.G4)
    assert found is not None and found.kind is VerdictKind.FAIL and "b 0 h 1 i 2" in found.reason


def test_other_bytes_are_refused_and_record_nothing(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = result_for(adapted)
    data["hashes"]["kernel"] = "a" * 64
    path = write(tmp_path / "r.json", data)
    before = Store.open(adapted[0]).load(adapted[1]).state.count
    assert main(["gpu", "import", adapted[1], str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "other bytes" in err and "fix:" in err
    assert Store.open(adapted[0]).load(adapted[1]).state.count == before


def test_verify_without_a_gpu_says_what_to_type(
    adapted: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", adapted[1]]) == 3
    out, err = capsys.readouterr()
    assert out == "" and "pack a job" in err
    assert main(["verify", adapted[1], "--runner", "ssh"]) == 2
    assert main(["verify", adapted[1], "--runner", "command"]) == 2


def test_verify_runs_a_command_and_records(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.json", result_for(adapted))
    command = f'sh -c \'cp "$0" "$1"\' {path} {{out}} {{job}}'
    code = main(["verify", adapted[1], "--runner", "command", "--command", command, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 0 and told["verdict"]["kind"] == "pass"
    assert Path(told["job"]).name.startswith("flash_fwd_sm80-softcap_causal-")


def test_show_and_bench_read_a_result(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.json", result_for(adapted))
    assert main(["gpu", "show", str(path)]) == 0
    assert "flash_fwd_sm80-softcap_causal: pass" in capsys.readouterr().out
    assert main(["bench", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["times"][0]["name"] == "CuBridge"
    failing = write(tmp_path / "f.json", result_for(adapted, "fail"))
    assert main(["gpu", "show", str(failing)]) == 1
    assert main(["gpu", "show", str(tmp_path / "none.json")]) == 2


def test_a_session_that_is_not_lowered_has_no_job(
    adapted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = find_kernel("flash_fwd_sm80")
    with Bench(Store.open(adapted[0])) as bench:
        fresh = start(bench, package, spec_path("causal"), choose_options(package), "ada")
    assert main(["gpu", "pack", fresh, str(tmp_path / "j")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "no lowered kernel" in err and f" lower {fresh}" in err
    assert main(["bench", "no-such-thing"]) == 2


def test_an_expert_kernel_is_a_job_of_its_own_reference(tmp_path: Path) -> None:
    with Bench(Store.open(tmp_path / "store.git")) as bench:
        contents = contents_of_kernel(bench, find_kernel("flash_fwd_sm80"))
    assert contents.source == find_kernel("flash_fwd_sm80").source
    assert contents.primary == KEY and contents.spec.name == "reference.py"
    assert job_folder(contents) == job_folder(contents)
