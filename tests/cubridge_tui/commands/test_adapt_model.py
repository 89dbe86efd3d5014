"""`adapt` with a model, as a person types it: what is asked, steered, kept and shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RunCubridge
from tests.engine.llm import server as acts
from tests.engine.llm.conftest import KEY
from tests.engine.llm.server import Act, Server
from tests.engine.transfer.llm.conftest import SINK
from tests.engine.transfer.llm.shop import make_shop
from tests.engine.transfer.llm.test_lift_session import ANNOTATE, BIND, TRANSLATE, WRONG

Start = Callable[..., Server]


@pytest.fixture
def serving() -> Iterator[Start]:
    servers: list[Server] = []

    def make(*script: Act) -> Server:
        servers.append(Server(script))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def test_meanings_from_a_model_then_the_rules(
    cubridge: RunCubridge, serving: Start, tmp_path: Path
) -> None:
    shop = make_shop(tmp_path / "shop")
    server = serving(*map(acts.answer, (ANNOTATE, BIND, WRONG, TRANSLATE)))
    arguments = ["adapt", "--kernel", str(shop), "--spec", "causal", "--lift", "llm"]
    run = cubridge(
        *arguments, "--base-url", server.url, "--model", "fake", "--yes", "--json",
        "--record", str(tmp_path / "rec"), "--accept",
        environ={"OPENAI_API_KEY": KEY, "XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    stages = {row["name"]: row for row in result["stages"]}
    assert stages["meanings"]["reason"] == "5 of 5 opaque ops have a meaning now"
    assert stages["lifted"]["verdict"] == stages["target"]["verdict"] == "pass"
    rows = [(a["for"], a["round"], a["reached"]) for a in result["attempts"]]
    assert rows == [
        ("annotate", 0, "passed"), ("bind", 0, "passed"),
        ("translate", 0, "g1"), ("translate", 1, "passed"),
    ]  # fmt: skip
    assert all(set(a) == {"for", "candidate", "round", "reached", "reason", "tokens", "seconds"}
               for a in result["attempts"])  # fmt: skip
    assert result["attempts"][0]["tokens"] == {"prompt": 11, "answer": 7}
    assert KEY not in run.stdout + run.stderr and "CUDA text" in run.stderr
    # The verdict says what it rests on, and replaying needs no server.
    server.stop()
    again = cubridge(
        *arguments, "--replay", str(tmp_path / "rec"), "--json",
        environ={"XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["artifacts"] == result["artifacts"]


def test_a_person_steers_between_rounds(serving: Start, tmp_path: Path, root: Path) -> None:
    spec = tmp_path / "sink.py"
    spec.write_text(SINK)
    server = serving(*map(acts.answer, ("no edit", "still none", "none")))
    run = subprocess.run(
        [
            sys.executable, "-P", "-m", "cubridge_tui", "adapt", "--kernel", "flash_fwd_sm80",
            "--spec", str(spec), "--head-dim", "64", "--transfer", "llm", "--rounds", "5",
            "--base-url", server.url, "--model", "fake", "--yes", "--steer", "--json",
        ],
        input="Add the sink to the row sum.\n/stop\n",
        env={**os.environ, "PYTHONPATH": str(root), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    assert len(server.asked) == 2
    assert "Add the sink to the row sum." in server.asked[1].prompt
    result = json.loads(run.stdout)
    assert [a["reached"] for a in result["attempts"]] == ["unreadable"] * 2
    assert result["stages"][-1]["verdict"] == "not_run"


def test_quiet_says_what_is_sent_and_nothing_of_how_it_goes(
    cubridge: RunCubridge, serving: Start, tmp_path: Path
) -> None:
    spec = tmp_path / "sink.py"
    spec.write_text(SINK)
    server = serving(acts.status(500, "down"), *map(acts.answer, ("no edit", "still none")))
    run = cubridge(
        "adapt", "--kernel", "flash_fwd_sm80", "--spec", str(spec), "--head-dim", "64",
        "--transfer", "llm", "--rounds", "1", "--base-url", server.url, "--model", "fake",
        "--yes", "--json", "--quiet",
        environ={"OPENAI_API_KEY": KEY, "XDG_CONFIG_HOME": str(tmp_path)},
    )  # fmt: skip
    assert run.returncode == 1 and len(server.asked) == 3
    assert len(json.loads(run.stdout)["attempts"]) == 2
    assert "this will be sent to 127.0.0.1" in run.stderr
    for narration in ("answer c1r0", "again in", "characters", "model:", "asking", "running"):
        assert narration not in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steer"], "--steer asks for a model"),
        (["--yes"], "--lower llm"),
        (["--rounds", "3"], "--rounds asks for a model"),
        (["--rounds", "-1"], "--rounds asks for a model"),
        (["--candidates", "1"], "--candidates asks for a model"),
        (["--ask", ""], "--ask asks for a model"),
        (["--set", "foo=3"], "--set foo: the spec has no scalar parameter"),
        (["--export", "made"], "add --accept"),
        (["--accept", "--export", "/proc/made"], "/proc/made cannot be written"),
        (["--accept", "--export", "/dev/null/made"], "/dev/null/made cannot be written"),
        (["--accept", "--export", "3 d"], "'3 d' cannot be imported"),
        (["--lift", "llm", "--rounds", "99"], "0 to 20"),
        (["--lower", "llm", "--replay", "nowhere"], "nowhere"),
        (["--lift", "guess"], "invalid choice"),
    ],
)
def test_options_that_make_no_sense(
    cubridge: RunCubridge, options: list[str], message: str, tmp_path: Path
) -> None:
    run = cubridge(
        "adapt", "--kernel", "flash_fwd_sm80", "--spec", "causal", *options,
        environ={"XDG_CONFIG_HOME": str(tmp_path), "OPENAI_BASE_URL": "", "CUBRIDGE_MODEL": "m"},
    )  # fmt: skip
    assert run.returncode == 2 and message in run.stderr and not run.stdout
    assert "session " not in run.stderr  # before any work
