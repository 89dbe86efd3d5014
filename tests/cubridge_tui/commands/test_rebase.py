"""`cubridge rebase` and `cubridge status`: what they say, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.cli import main
from engine.build.tools.toolchain import find_toolchain
from engine.errors import InputError, MissingTool, Where
from engine.files import read_spec
from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation
from engine.service.session.disk_inputs import session_kernel
from engine.service.session.package_export import export_session
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.upkeep import staleness as status
from engine.types import Gate, Level, Verdict, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, bench_of, placed, verdict_of

KEEP = "return j < args.Nk;"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lowered session in the default store, whose torch child is a table."""
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    monkeypatch.setattr(
        "engine.service.session.workbench.Bench",
        lambda store, progress=None: bench_of(store, "softcap_causal"),
    )
    return placed(tmp_path / "store.git")


def rewritten(folder: Path, old: str, new: str) -> Path:
    path = folder / "new.cu"
    text = find_kernel("flash_fwd_sm80").source.decode()
    assert old in text, f"the kernel is written otherwise: mend this test: {old}"
    path.write_text(text.replace(old, new))
    return path


def test_a_hunk_that_the_new_kernel_changed_is_asked(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = rewritten(tmp_path, KEEP, "return j < args.Nk && i < args.Nq;")
    assert main(["rebase", session[:-2], str(new), "--json"]) == 1
    told = capsys.readouterr()
    data = json.loads(told.out)
    assert data["session"] == session and data["changes"] == {"change": 1}
    (asked,) = data["asked"]
    assert asked["title"] == "Keep what the spec keeps" and data["level"] == "none"
    assert [(s["gate"], s["verdict"]) for s in data["stages"]] == [("G1", "pass")]
    assert "1 hunk waits for a decision" in told.err and f"--session {session}" in told.err
    assert main(["replay", session]) == 0
    assert f"rebased onto {new}" in capsys.readouterr().out
    # What is asked is still asked when the same is typed again.
    assert main(["rebase", session, str(new), "--json"]) == 1
    again = json.loads(capsys.readouterr().out)
    assert again["asked"] == [asked] and again["changes"] == {}


def test_a_rebase_that_was_killed_before_its_gates_goes_on_with_them(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    new = rewritten(tmp_path, "STAGES = 2", "STAGES = 3")

    def killed(_: Adaptation) -> Verdict:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Adaptation, "judge_target", killed)
        assert main(["rebase", session, str(new)]) == 130
    store = Store.open(tmp_path / "store.git")
    assert store.load(session).state.level is Level.NONE
    monkeypatch.setattr(
        "cubridge_tui.commands.rebase.lower_and_judge", lambda *_: True
    )  # it compiles
    assert main(["rebase", session, "--json"]) == 0
    told = capsys.readouterr()
    gates = [(s["gate"], s["verdict"]) for s in json.loads(told.out)["stages"]]
    assert gates == [("G1", "pass"), ("G2", "pass"), ("G4", "not_run")]
    assert "has this version of its kernel already\n" in told.err


def test_the_same_version_is_left_as_it_is(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = Store.open(tmp_path / "store.git").load(session).state.count
    assert main(["rebase", session]) == 0
    assert "nothing to do" in capsys.readouterr().err
    assert Store.open(tmp_path / "store.git").load(session).state.count == count


def test_the_same_version_is_accepted_where_that_is_asked(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store.open(tmp_path / "store.git")
    assert main(["rebase", session, "--accept"]) == 0
    assert "accepted, cpu-verified" in capsys.readouterr().err
    assert store.load(session).state.acceptance_is_current
    with Bench(store) as bench, store.writer(session, wait=5) as writer:
        work = Adaptation(bench, writer, ACTOR)
        work.give(verdict_of(work, Gate.G3, VerdictKind.FAIL, "made for a test"))
    assert main(["rebase", session, "--accept"]) == 1
    told = capsys.readouterr().err
    assert "not accepted: " in told and "G3 fail" in told and f"--session {session}" in told


def test_a_gate_that_is_asked_for_and_does_not_run_is_missing(
    session: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["check", session, "--json"]) == 0
    assert [s["verdict"] for s in json.loads(capsys.readouterr().out)["stages"]] == ["pass"] * 2
    monkeypatch.setattr("engine.service.session.stage_work.kernel_moved", lambda _: "the source")
    assert main(["check", session, "--json"]) == 3
    told = [s["verdict"] for s in json.loads(capsys.readouterr().out)["stages"]]
    assert told == ["not_run", "pass"]
    monkeypatch.setattr(
        "engine.service.session.stage_work.Work.ask_judge",
        lambda *_, **__: Found(False, "made for a test", {}),
    )
    assert main(["check", session]) == 1  # a fail is more than what did not run


def test_status_says_what_is_stale_and_what_to_type(
    session: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    repository, store = tmp_path / "repository", Store.open(tmp_path / "store.git")
    folder = repository / "src" / "attention_softcap"
    (repository / ".git").mkdir(parents=True)
    with Bench(store) as bench, store.writer(session, wait=5) as writer:
        work = Adaptation(bench, writer, ACTOR)
        work.skip_gpu()
        work.accept()
        export_session(work, folder)

    def told() -> tuple[int, dict[str, Any]]:
        code = main(["status", str(folder.parent), "--json"])
        (row,) = json.loads(capsys.readouterr().out)["kernels"]
        return code, row

    code, row = told()
    assert code == 0 and row["folder"] == str(folder) and row["session"] == session
    assert row["level"] == "cpu-verified" and row["stale"] == {} and row["steps"] == []

    # A level that was typed in; verdicts that were; a level that is none.
    was = (folder / "verdicts.json").read_text()
    assert was.count('"cpu-verified"') == 1
    for text, says, earned in (
        (was.replace('"cpu-verified"', '"gpu-verified"'), "'gpu-verified'", "cpu-verified"),
        (was.replace('"not_run"', '"pass"').replace('"cpu-verified"', '"gpu-verified"'),
         "'gpu-verified'", "gpu-verified"),
        (was.replace('"cpu-verified"', '"proven"'), "'proven', which is no level", "cpu-verified"),
        (was.replace('"cpu-verified"', "[1]"), "[1], which is no level", "cpu-verified"),
    ):  # fmt: skip
        assert text != was
        (folder / "verdicts.json").write_text(text)
        code, row = told()
        assert code == 1 and row["level"] == "cpu-verified"
        assert row["stale"]["level"] == (
            f"verdicts.json says {says}; the verdicts in it earn {earned}; session {session} gives "
            "these bytes cpu-verified"
        )
        assert row["steps"][-1].endswith(f" export {session} {folder}")
    other = tmp_path / "other.git"
    (folder / "verdicts.json").write_text(was.replace('"cpu-verified"', '"gpu-verified"'))
    assert main(["status", str(repository), "--store", str(other), "--json"]) == 1
    row = json.loads(capsys.readouterr().out)["kernels"][0]
    assert row["level"] == "cpu-verified" and "earn cpu-verified" in row["stale"]["level"]
    assert "no session here judged it" in row["unknown"]["level"]
    (folder / "verdicts.json").write_text(was)

    # A file that somebody edited, and one that is gone.
    kernel = (folder / "kernel.cu").read_bytes()
    (folder / "kernel.cu").write_bytes(kernel.replace(b"0", b"1", 1))
    code, row = told()
    assert code == 1 and row["stale"] == {"files": "kernel.cu is not what was accepted"}
    (step,) = row["steps"]
    assert step.endswith(f" export {session} {folder}")
    (folder / "kernel.cu").write_bytes(kernel)
    (folder / "README.md").unlink()
    assert told()[1]["stale"] == {"files": "README.md cannot be read: No such file or directory"}
    assert main(["export", session, str(folder)]) == 0
    capsys.readouterr()
    assert told()[0] == 0

    # Another compiler than the one that judged.
    data = json.loads((folder / "verdicts.json").read_text())
    next(v for v in data["verdicts"] if v["gate"] == "G3")["subject"]["compiler"] = "nvcc 1.0"
    was = (folder / "verdicts.json").read_text()
    (folder / "verdicts.json").write_text(json.dumps(data))
    try:
        find_toolchain()
    except MissingTool:
        assert told()[1]["unknown"] == {"compiler": "there is no nvcc here"}
    else:
        code, row = told()
        assert code == 1 and list(row["stale"]) == ["compiler"]
        assert "lower" in row["steps"][0] and "export" in row["steps"][1]
    (folder / "verdicts.json").write_text(was)

    # The kernel that it came from changed.
    changed = rewritten(tmp_path, "STAGES = 2", "STAGES = 3")
    moved = find_kernel("flash_fwd_sm80").with_source(changed)
    monkeypatch.setattr(status, "session_kernel", lambda state: moved)
    assert main(["status", str(repository)]) == 1
    out = capsys.readouterr().out
    assert "src/attention_softcap  cpu-verified  STALE" in out
    assert f"rebase {session} --accept" in out and f"export {session} {folder}" in out
    monkeypatch.setattr(status, "session_kernel", session_kernel)

    # The spec changed, and the kernel is gone from the disk.
    def gone(_: object) -> object:
        raise InputError("it is not there", where=Where("kernel.cu"))

    with monkeypatch.context() as patch:
        patch.setattr(status, "session_kernel", gone)
        patch.setattr(status, "read_spec", lambda _: b"")
        code, row = told()
        patch.setattr(status, "read_spec", lambda _: read_spec(tmp_path / "gone.py"))
        lost, of = told()
    assert code == 1 and row["unknown"]["source"] == "kernel.cu: it is not there"
    assert "adapt --kernel KERNEL --spec " in row["steps"][0]
    why = f"{tmp_path / 'gone.py'}: cannot be read: No such file or directory"
    assert (lost, of["stale"], of["unknown"]["spec"]) == (0, {}, why)

    # Without the session: the bundled kernel of its name, and the spec beside it.
    code = main(["status", str(repository), "--store", str(tmp_path / "other.git"), "--json"])
    row = json.loads(capsys.readouterr().out)["kernels"][0]
    assert row["session"] == "" and code == 0
    asked = find_spec("softcap_causal").read_bytes()
    for path in folder.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(asked, asked + b"\n"))
    code = main(["status", str(repository), "--store", str(tmp_path / "other.git"), "--json"])
    row = json.loads(capsys.readouterr().out)["kernels"][0]
    assert code == 1 and list(row["stale"]) == ["files", "spec"] and "adapt" in row["steps"][0]


def test_what_is_no_repository_or_no_verdicts_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert main(["status", str(tmp_path)]) == 0
    assert "no accepted kernels" in capsys.readouterr().err
    # Another tool's file of that name hides no kernel beside it.
    for name, text in (("a", "[]"), ("b", "[" * 9999)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "verdicts.json").write_text(text)
    assert main(["status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "a  unknown\n  verdicts.json not compared: " in out and "is no file of verdicts" in out
    assert "b  unknown\n" in out
