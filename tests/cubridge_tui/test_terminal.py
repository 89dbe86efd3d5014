"""A whole review in a real terminal, by keyboard alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from sessions.store import Store
from tests.cubridge_tui.terminal import Terminal

pytestmark = pytest.mark.xdist_group("terminal")  # in real time: one of these at once
SCORE = "Compute the spec's score"  # the hunk that puts the cap in


def torch_children() -> set[int]:
    """Our torch children among the processes of this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if b"engine.torch_child.server" in words:
                found.add(parent)
    return found


def test_reject_a_hunk_see_g2_fail_and_quit(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    store = os.environ["CUBRIDGE_STORE"]
    with Terminal({"CUBRIDGE_STORE": store}, 120, 40, cwd=tmp_path) as terminal:
        terminal.wait_for("s adapts flash_fwd_sm80 to softcap_causal")
        terminal.type("s")
        terminal.wait_for("Lift the source and run G1")
        terminal.type("s")
        terminal.wait_for("lifted G1 ✓ pass", 90)
        terminal.type("s")
        terminal.wait_for("Decide on")
        terminal.type("A")
        terminal.wait_for("Run G2")
        terminal.type("z")  # the target alone, so that head lines are whole
        for _ in range(12):
            if re.search(rf"▶h\d+ {SCORE}", terminal.text):
                break
            terminal.type("]")
        terminal.type("x")
        terminal.wait_for(f"{SCORE} · rules · rejected")
        terminal.type("s")
        terminal.wait_for("G2 failed: ", 120)  # the bar names the stage only where it has room
        terminal.type("w")
        terminal.wait_for("counterexample")
        shown = terminal.wait_for("clause     ")  # below both ops; a frame may come in two reads
        assert re.search(rf"here ▶ +rules/h\d+ \({SCORE}\), which was rej", shown)
        named = re.search(r"the gate names the op ([\w/]+)", shown)
        assert named, shown
        terminal.type("escape", "i")  # the cursor stands on the rejected hunk
        terminal.wait_for("op inspector")
        shown = terminal.wait_for("of proposal rules, rejected: ")  # a frame may come in two reads
        assert re.search(rf"hunk +h\d+ of proposal rules, rejected: {SCORE}", shown)
        terminal.type("escape", "w", "w", "escape", "i")  # w there: the op that the gate names
        terminal.wait_for(f"op         {named[1]} ")
        terminal.type("escape")
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.restored
        assert terminal.process.pid not in torch_children()
    state = Store.open(store).load(Store.open(store).sessions()[0].id).state
    assert [str(v.kind) for v in state.verdicts] == ["pass", "fail"]


def test_without_a_terminal_it_points_to_the_headless_command(cubridge_process: object) -> None:
    assert callable(cubridge_process)
    result = cubridge_process()
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and " adapt --kernel" in result.stderr


def test_a_hunk_is_edited_in_the_persons_own_editor(
    proposed: tuple[Path, str], tmp_path: Path
) -> None:
    store, session = proposed
    editor = tmp_path / "my editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/LOG2E/LOG2E * 1.0/" "$1"\n')
    editor.chmod(0o755)
    environment = {"CUBRIDGE_STORE": str(store), "EDITOR": f"'{editor}'"}
    with Terminal(environment, 100, 30, ("--session", session), cwd=tmp_path) as terminal:
        terminal.wait_for("Decide on")
        for _ in range(12):
            if re.search(r"▶h\d+ .*Put the cap where the scale was", terminal.text):
                break
            terminal.type("]")
        terminal.type("E")
        shown = terminal.wait_for("LOG2E * 1.0")
        assert "P~" in shown and "accepted with your edit" in shown
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.restored
    state = Store.open(store).load(session).state
    edited = [d.replacement for d in state.draft.decisions.values() if d.replacement]
    assert edited and "LOG2E * 1.0" in edited[0]


def test_every_editor_that_fails_gives_the_screen_back(
    proposed: tuple[Path, str], tmp_path: Path
) -> None:
    """Absent, not allowed, a broken command line, interrupted, one that removes the text."""
    store, session = proposed
    locked = tmp_path / "locked.sh"
    locked.write_text("#!/bin/sh\n")
    locked.chmod(0o600)
    wrong = {
        "no-such-editor-here": "cannot be started: No such file",
        str(locked): "cannot be started: Permission denied",
        "vim 'half a quote": "cannot be read: No closing quotation",
        "sh -c 'kill -INT 0; exit 3'": "ended",
        "sh -c 'rm \"$0\"'": "cannot hand the text over",
    }
    for command, words in wrong.items():
        environment = {"CUBRIDGE_STORE": str(store), "EDITOR": command}
        with Terminal(environment, 160, 30, ("--session", session), cwd=tmp_path) as terminal:
            terminal.wait_for("Decide on")
            terminal.type("]", "E")
            shown = terminal.wait_for(words)
            assert "lifted" in shown and "Decide on" in shown
            assert terminal.raw.rfind(b"\x1b[?1049h") > terminal.raw.rfind(b"\x1b[?1049l")
            terminal.type("?")
            terminal.wait_for("Next hunk")  # keys are heard
            terminal.type("escape", "q")
            assert terminal.ended() == 0 and terminal.restored
    assert not Store.open(store).load(session).state.draft.decisions
