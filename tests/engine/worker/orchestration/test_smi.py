"""What is asked of nvidia-smi, of a tool put in its place."""

from types import SimpleNamespace

import pytest

from engine.worker.orchestration import smi

CARD = smi.named(SimpleNamespace(uuid="5f3c0c0e-0000-1111-2222-333344445555"))


@pytest.fixture
def tool(tmp_path, monkeypatch):
    def put(script):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_a_card_is_asked_for_by_its_uuid(tool):
    tool('echo "$@"')
    said = smi.asked(CARD, "clocks.sm,power.draw")
    assert said.startswith("-i GPU-5f3c0c0e-0000-1111-2222-333344445555 ")
    assert "--query-gpu=clocks.sm,power.draw" in said


@pytest.mark.parametrize("script", ["echo 'No devices were found'; exit 6", "kill -9 $$"])
def test_what_fails_says_nothing(tool, script):
    tool(script)
    assert smi.asked(CARD, "driver_version") == ""


def test_no_tool_no_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert smi.asked(CARD, "driver_version") == ""
    assert smi.query(CARD, "clocks.sm") == []
