"""The jobs' thread: what its log holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cubridge_tui.jobs import Jobs, Outcome
from engine.errors import InputError


def test_the_log_has_lines_and_no_line_ends() -> None:
    """An error with its fix, and what a tool says, have several lines."""
    ended = threading.Event()

    def post(function: Callable[..., None], *arguments: Any) -> None:
        function(*arguments)

    jobs = Jobs(threading.Event(), post, lambda: None)
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
