"""Which deck a row was made with: real checks on the CPU, run.py around them, a verdict."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.worker.launches.graphs import check_graph
from engine.worker.launches.result_rows import Tallies
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration import building, main
from engine.worker.orchestration.checklist import BY_RUN, LISTS, explained, required
from engine.worker.orchestration.manifest import Job, read_job
from engine.worker.orchestration.trouble import End
from engine.worker.problems import problem_sizes as cases
from engine.worker.problems.problem_sizes import Case
from engine.worker.verification import verify
from engine.worker.verification.checks import check_held, check_stale
from tests.engine.gpu.fakes import Fake, subject
from tests.engine.worker.orchestration.test_main import DEVICE, NVCC
from tests.engine.worker.verification.test_workspaces import right, with_lists

SMALL = ((1, 1), (7, 3), (65, 70), (0, 5), (5, 0))
Rows = dict[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "_SHORT", SMALL)
    monkeypatch.setattr(cases, "_SIZES", (*SMALL, (130, 67)))
    monkeypatch.setattr(cases, "_LEVELS", cases._LEVELS[:1])
    monkeypatch.setattr(cases, "_LONG_SUM", Case(1, 1, 1, 1, 301, cases.EVEN, 8203))
    monkeypatch.setattr(cases, "REPEAT_CASE", Case(1, 2, 1, 65, 70, seed=1))
    monkeypatch.setattr(cases, "LAYOUT_CASE", Case(2, 4, 2, 33, 40, seed=2))
    monkeypatch.setattr(cases, "FAR_CASE", Case(2, 2, 1, 33, 40, seed=4))
    monkeypatch.setattr("engine.worker.verification.checks.FAR", 1 << 20)
    monkeypatch.setattr(cases, "INDEPENDENCE_CASES", (Case(1, 2, 1, 40, 40, seed=3),))


def captured(launch: Callable[[], int]) -> Callable[[], None]:
    """A graph of a CPU: it launches again."""
    return lambda: None if launch() == 0 else pytest.fail("the replay was refused")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Job, str, bool], Rows]:
    """The verifying child in this process, on a kernel made of torch."""

    def subject_of(job: Job, library: Path, key: str, short: bool) -> Subject:
        dtype = torch.bfloat16 if key.startswith("bf16") else torch.float16
        made = subject(tmp_path, Fake(), dtype, short=short)
        return replace(made, key=key, tallies=Tallies(key))

    told: list[dict[str, Any]] = []
    monkeypatch.setattr(verify, "tell", lambda **event: told.append(event))
    monkeypatch.setattr(verify, "subject_of", subject_of)
    monkeypatch.setattr(verify, "check_graph", lambda made: check_graph(made, captured))
    monkeypatch.setattr(verify, "traced_kernels", lambda run: [run(), "flash_fwd"][1:])

    def run(job: Job, key: str, short: bool) -> Rows:
        told.clear()
        verify.verify(job, Path("library"), key, short)
        return {e["row"]["check"]: e["row"] for e in told if e["event"] == "row"}

    return run


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[str, str], Path],
    job: Path,
    child: Callable[[Job, str, bool], Rows],
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """`run.py` with that child, and a program that stands for nvcc."""
    nvcc = program("nvcc", NVCC)
    monkeypatch.setattr(building, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(main, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(main, "describe_device", lambda: dict(DEVICE))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    lock = threading.Lock()

    def child_rows(
        run: main.Run, job: Job, library: Path, key: str, short: bool,
        samples: list[dict[str, Any]] | None = None,
    ) -> tuple[list[dict[str, Any]], End]:  # fmt: skip
        with lock:
            return list(child(job, key, short).values()), End(None, "")

    monkeypatch.setattr(main.Run, "child_rows", child_rows)

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        code = main.main(["--no-bench", "--no-sanitizer", *words], job)
        return code, json.loads((job / "result.json").read_text())

    return run


def cases_of(result: dict[str, Any], key: str = "bf16_64") -> int:
    (found,) = [
        r for r in result["checks"] if (r["specialisation"], r["check"]) == (key, "accuracy")
    ]
    return int(found["cases"])


def test_a_quick_run_is_no_pass_and_does_not_stand_in_for_a_whole_one(
    here: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    code, quick = here("--quick")
    assert (code, quick["verdict"]) == (main.MISSING, "not_run")
    assert "bf16_64 has only the short deck (--quick)" in quick["reason"]
    assert all(r["verdict"] in ("pass", "not_run") for r in quick["checks"]), quick["checks"]
    code, full = here()
    assert (code, full["verdict"]) == (0, "pass"), full["reason"]
    assert cases_of(full) > cases_of(quick)
    assert cases_of(full, "f16_64") == cases_of(quick, "f16_64")
    # And nothing is lost by a quick run after it.
    code, again = here("--quick")
    assert (code, again["verdict"], cases_of(again)) == (0, "pass", cases_of(full))


@pytest.mark.parametrize("short", [False, True])
def test_a_child_leaves_a_row_of_all_that_it_is_to_judge(
    child: Callable[[Job, str, bool], Rows], job: Path, short: bool
) -> None:
    read = read_job(job)
    for key in ("bf16_64", "f16_64"):
        rows = child(read, key, short or key != "bf16_64")
        named = {*required(key, "bf16_64", True), *explained(key, "bf16_64", True, False)}
        assert set(rows) == named - {"build", *BY_RUN}
        unrun = {c: r["reason"] for c, r in rows.items() if r["verdict"] != "pass"}
        assert set(unrun) == ({"far offsets"} if short and key == "bf16_64" else set())


def test_lists_that_no_case_fits_have_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_lists(tmp_path, right)
    monkeypatch.setattr(type(made.run), "fits", lambda run, sizes: False)
    for check in (check_held, check_stale):
        check(made)
    rows = {r["check"]: r for r in made.tallies.rows()}
    assert set(rows) == set(LISTS)
    assert all(r["verdict"] == "not_run" and r["reason"] for r in rows.values())
