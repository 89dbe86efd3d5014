"""`cubridge config`: which file wins, and mistakes as warnings."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from cubridge_tui.commands.config import example
from cubridge_tui.config import load_config

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_stronger_place_wins_and_is_named(tmp_path: Path, cubridge: Run) -> None:
    home = Path(os.environ["XDG_CONFIG_HOME"]) / "cubridge"
    home.mkdir()
    (home / "config.toml").write_text('theme = "light"\nmouse = false\n[keys]\nstep = "s,f5"\n')
    (tmp_path / "cubridge.toml").write_text('theme = "high_contrast"\n')
    done = cubridge("config", "--json", cwd=tmp_path, environ={"CUBRIDGE_GPU_HOST": "box"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    settings = found["settings"]
    assert settings["theme"] == {
        "value": "high_contrast",
        "from": str(tmp_path / "cubridge.toml"),
    }
    assert settings["mouse"]["value"] is False
    assert settings["gpu_host"] == {"value": "box", "from": "$CUBRIDGE_GPU_HOST"}
    assert found["keys"]["step"]["keys"] == "s,f5"
    assert [f["read"] for f in found["files"]] == [True, True]
    assert found["warnings"] == []


def test_mistakes_are_warnings_with_the_nearest_name(tmp_path: Path, cubridge: Run) -> None:
    (tmp_path / "cubridge.toml").write_text(
        'them = "light"\nmouse = "yes"\n[keys]\nstpe = "x"\nundo = "s"\n"[/]\\u001b[2J" = "q"\n'
    )
    done = cubridge("config", cwd=tmp_path)
    assert done.returncode == 0
    assert "do you mean 'theme'?" in done.stderr
    assert "mouse must be true or false" in done.stderr
    assert "do you mean 'step'?" in done.stderr
    assert "s is both" in done.stderr
    assert "\x1b" not in done.stderr and "[/]" in done.stderr


def test_no_toml_at_all(tmp_path: Path, cubridge: Run) -> None:
    (tmp_path / "cubridge.toml").write_bytes(b"\xff\xfe not toml [[[")
    done = cubridge("config", cwd=tmp_path)
    assert done.returncode == 0 and "is left out" in done.stderr and "built in" in done.stdout


def test_the_example_changes_nothing_and_its_lines_are_settings(tmp_path: Path) -> None:
    text = example()
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "cubridge.toml").write_text(text)
    plain = load_config(environment={"XDG_CONFIG_HOME": str(tmp_path / "none")}, folder=folder)
    assert not plain.warnings and not plain.keys
    # Each commented line is a setting once its mark is taken away.
    lines = [re.sub(r"^# (\w+ = )", r"\1", line) for line in text.split("\n")]
    (folder / "cubridge.toml").write_text("\n".join(lines))
    given = load_config(environment={"XDG_CONFIG_HOME": str(tmp_path / "none")}, folder=folder)
    assert not given.warnings
    assert {n: v.value for n, v in given.values.items()} == {
        n: v.value for n, v in plain.values.items()
    }


def test_every_action_is_listed(cubridge: Run) -> None:
    from cubridge_tui.actions import ACTIONS

    done = cubridge("config", "--keys")
    assert all(f" {action.id} " in done.stdout for action in ACTIONS)
