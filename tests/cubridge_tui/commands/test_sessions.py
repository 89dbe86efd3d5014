"""`sessions list`: a session's last step in words."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from cubridge_tui.commands import replay, sessions
from cubridge_tui.model.steps import step_words
from engine.types import Gate, Level, Stage, Verdict, VerdictKind, sha256_of
from sessions.events import (
    Accepted,
    ArtifactSet,
    Body,
    Event,
    Forked,
    InputsSet,
    Note,
    Redone,
    TranscriptAdded,
    Undone,
    VerdictGiven,
)
from sessions.replay import describe
from sessions.store import Store
from tests.cubridge_tui.made import placed
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.sessions.conftest import artifact_set, created

SHA = sha256_of("some text")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (ArtifactSet(Stage.TARGET, "target.cuir", SHA), "wrote target.cuir"),
        (ArtifactSet(Stage.LOWERED, "kernel.cu", None), "removed kernel.cu"),
        (Accepted(Level.CPU_VERIFIED, {"lowered": SHA}), "accepted as cpu-verified"),
        (Accepted(Level.OVERRIDDEN, {}), "accepted as overridden"),
        (InputsSet({"spec": SHA, "kernel": SHA}), "changed the kernel, spec"),
        (TranscriptAdded("talk-1", SHA, "p1"), "kept the transcript talk-1 about p1"),
        (VerdictGiven(Verdict(Gate.G1, VerdictKind.PASS, "19 runs")), "G1 passed: 19 runs"),
        (Forked("a-session", "deadbeefcafe" + "0" * 28), "forked from a-session"),
        (Undone("e-12"), "undid a decision"),
        (Redone("e-12"), "made a decision again"),
        (Note("looked at deadbeefcafe"), "note: looked at deadbeefcafe"),
    ],
)
def test_a_step_is_told_in_words(body: Body, words: str) -> None:
    """From the log's own line, as the function that writes it has it."""
    step = describe(Event("e1", "2026-01-02T03:04:05Z", "ana", body))
    assert step_words(step) == words


def test_a_session_without_a_step() -> None:
    assert step_words("") == "nothing yet"


def test_the_list_is_in_columns_without_hashes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.git"
    store = Store.open(path)
    for title in ("short", "a much longer title"):
        with store.writer(store.create(created(title), actor="ana")) as writer:
            event, artifact = artifact_set(Stage.TARGET, title, "target.cuir")
            writer.append([event], [artifact], actor="ana")
    arguments = argparse.Namespace(action="list", session=None, title=None, store=path, json=False)
    assert sessions.run(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert len({line.index("wrote target.cuir") for line in lines}) == 1
    assert not re.search(r"[0-9a-f]{12}", "".join(lines))


def test_a_list_takes_no_session_and_a_title_and_a_name_have_a_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.git"
    session = Store.open(path).create(created("short"), actor="ana")
    for words, said in (
        (["list", session], "takes no session"),
        (["rename", session, "t" * 201], "a title has at most 200 characters"),
        (["rename", session, " "], "a title is words"),
        (["show", "s" * 100_000], "cannot be a session's id"),
    ):
        assert main(["sessions", *words, "--store", str(path)]) == 2
        told = capsys.readouterr().err
        assert said in told and len(told) < 400
    assert main(["sessions", "rename", session, "t" * 200, "--store", str(path)]) == 0


async def test_no_list_of_steps_shows_a_hash(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_warm_up: None,
) -> None:
    """A real session, forked, in every place that tells a session's steps."""
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    session = placed(path, Stage.LOWERED)
    store = Store.open(path)
    store.fork(session, actor="ana")
    hashes = re.compile(r"[0-9a-f]{12}")
    for as_json in (False, True):
        given = argparse.Namespace(
            action="list", session=None, title=None, store=path, json=as_json
        )
        assert sessions.run(given) == 0
        assert (
            replay.run(
                argparse.Namespace(
                    session=session, check=False, html=None, store=path, json=as_json
                )
            )
            == 0
        )
    out = capsys.readouterr().out
    assert "wrote kernel.cu" in out and not hashes.search(out)
    async with Driver(session, (200, 60)) as d:
        for opened in (session, store.sessions()[0].id):
            d.app.open_replay(opened)
            await d.settle()
            assert "wrote kernel.cu" in d.text and not hashes.search(d.text)
        await d.press("o")
        assert "forked" in d.text and not hashes.search(d.text)
        await d.press("escape", "escape", "escape", "B")
        assert "sessions (2)" in d.text and not hashes.search(d.text)


def test_sessions_are_renamed_deleted_and_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.SOURCE)

    def run(*words: str) -> tuple[int, str]:
        code = main(["sessions", *words, "--store", str(path)])
        said = capsys.readouterr()
        return code, said.out + said.err

    for wrong in (("rename", session), ("rename", session, " "), ("show", session, "title")):
        assert run(*wrong)[0] == 2
    assert run("rename", session[:7], "a <b>\x1b[2J")[0] == 0
    assert '"a <b>\\x1b[2J"' in run("list")[1]
    assert "restore" in run("delete", session)[1]
    assert "no sessions in" in run("list")[1] and run("show", session)[0] == 2
    assert session in run("restore")[1]
    assert run("restore", session) == (0, f"{session}: restored\n")
    assert session in run("list")[1] and "no deleted sessions" in run("restore")[1]
