"""A name with a typo in it is answered with the name that was meant, whatever takes it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cubridge_tui.app import CuBridgeApp
from cubridge_tui.config import load_config
from engine.errors import advice, nearest
from engine.resources import kernels_dir, specs_dir
from tests.cubridge_tui.conftest import settled

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SPECS, KERNELS = specs_dir(), kernels_dir()
TYPOS = {
    "a spec": (["recipe", "softcap_casual"], "softcap_causal"),
    "a spec of an adaptation": (
        ["adapt", "--kernel", "flash_fwd_sm80", "--spec", "sliding-windw"], "sliding_window"
    ),
    "a spec's path": (["recipe", f"{SPECS}/causl.py"], f"{SPECS}/causal.py"),
    "a kernel": (["lift", "flash_fwd_smm80"], "flash_fwd_sm80"),
    "a kernel of an adaptation": (
        ["adapt", "--kernel", "flsh_fwd_sm80", "--spec", "causal"], "flash_fwd_sm80"
    ),
    "a kernel's path": (["lift", f"{KERNELS}/flash_fwd_sm8"], f"{KERNELS}/flash_fwd_sm80"),
    "a kernel to time": (["bench", "flash_fwd_sm9"], "flash_fwd_sm90"),
    "a kernel to predict": (["cost", "flash_fwd_sm9"], "flash_fwd_sm90"),
    "a scalar of a spec": (["recipe", "sliding_window_causal", "--set", "widow=3"], "window"),
    "a runner": (["verify", "x", "--runner", "loca"], "local"),
    "a command": (["replya", "x"], "replay"),
    "a command of a command": (["sessions", "shwo"], "show"),
    "an option": (["lift", "flash_fwd_sm80", "--jsn"], "--json"),
    "an option of the app": (["--sesion", "x"], "--session"),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPOS)
def test_the_name_that_was_meant_is_told(name: str, cubridge: Run) -> None:
    words, meant = TYPOS[name]
    done = cubridge(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"do you mean {meant}?" in done.stderr, done.stderr


@pytest.mark.parametrize("command", [["sessions", "show"], ["replay"], ["lower"], ["bench"]])
@pytest.mark.parametrize("whole", [True, False])
def test_a_session(
    command: list[str], whole: bool, proposed: tuple[Path, str], cubridge: Run
) -> None:
    session = proposed[1]
    slip = session.replace("flash", "falsh") if whole else "softcpa-ca"
    assert f"do you mean {session}?" in cubridge(*command, slip).stderr


def test_the_function_of_a_spec(tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import torch\n\ndef atention(q, k, v):\n    return v\n")
    done = cubridge("recipe", str(path))
    assert done.returncode == 2
    assert f"{path}:3:" in done.stderr and "call it attention, not atention" in done.stderr


async def test_a_theme(no_warm_up: None) -> None:
    app = CuBridgeApp(config=load_config({"theme": "high-contarst"}))
    async with app.run_test(size=(120, 24)) as pilot:
        await settled(app, pilot)
        assert any("do you mean high-contrast?" in w for w in app.warnings)
    app.close()


def test_what_is_no_typo_of_anything_gets_no_guess() -> None:
    assert nearest("weather", ["softcap_causal", "full"]) == ""
    assert advice("weather", ["full"], "name one of: full") == "name one of: full"
    assert nearest("", ["full"]) == "" and nearest("full", []) == ""


def test_options_may_stand_before_what_may_be_left_out(cubridge: Run, tmp_path: Path) -> None:
    for words in (
        ["--store", str(tmp_path / "s"), "none"],
        ["none", "--store", str(tmp_path / "s")],
    ):
        done = cubridge("sessions", "show", *words)
        assert done.returncode == 2 and "there is no session none" in done.stderr
