"""The jobs' thread: what its log holds, and what the running job's line says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.jobs import Jobs, Outcome
from engine.errors import InputError
from engine.service.session.adaptation import Adaptation
from engine.service.session.workbench import Bench
from engine.types import Stage
from sessions.store import Store
from tests.cubridge_tui.made import TableChild, placed
from tests.engine.transfer.recipes import VARIANTS


def test_the_log_has_lines_and_no_line_ends() -> None:
    """An error with its fix, and what a tool says, have several lines."""
    ended = threading.Event()

    def post(function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    jobs = Jobs(threading.Event(), post, lambda: None, lambda _: None)
    jobs.start()

    def work() -> None:
        jobs.progress("one line\nand another")
        raise InputError("this is wrong", fix="type that")

    def done(outcome: Outcome) -> None:
        ended.set()

    jobs.submit("a job", work, done)
    assert ended.wait(60)
    jobs.close()
    told = [line.strip() for line in jobs.log]
    assert {"one line", "and another", "this is wrong", "fix: type that"} <= set(told)
    assert not any("\n" in line for line in jobs.log)


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("G2", "G2: 4 of 13: B 1", "4 of 13: B 1"),
        ("lower and G3", "G3: lowered: 1 of 2 compiled", "lowered: 1 of 2 compiled"),
        ("G2", "G2 as f16_64: 4 of 13: B 1", "as f16_64: 4 of 13: B 1"),
        ("run to the end", "G2: 4 of 13: B 1", "G2: 4 of 13: B 1"),
        ("lift and G1", "G10 is none", "G10 is none"),
    ],
)
def test_a_job_and_its_line_name_the_gate_once(name: str, said: str, line: str) -> None:
    jobs = Jobs(threading.Event(), lambda *_: None, lambda: None, lambda _: None)
    jobs.submit(name, lambda: None, lambda _: None)
    jobs.progress(said)
    assert jobs.line == line
    assert list(jobs.log) == [said]


class _Saying(TableChild):
    def call(self, name: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
        if name == "judge":
            more["progress"]("1 of 2: a case")
        return super().call(name, payload)


def test_what_the_torch_child_says_is_told_with_its_gate(tmp_path: Path) -> None:
    session = placed(tmp_path / "store.git", Stage.TARGET)
    store = Store.open(tmp_path / "store.git")
    said: list[str] = []
    child: Any = _Saying(VARIANTS["softcap_causal"])
    with Bench(store, child=child, progress=said.append) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, "tester")
        work.judge_lifted()
        work.judge_target()
    counted = [line for line in said if "1 of 2" in line]
    assert counted == ["G1: 1 of 2: a case", "G2: 1 of 2: a case"]
