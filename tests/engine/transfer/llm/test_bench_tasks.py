"""The bench's tasks are whole, fair, and their acceptance tests can tell yes from no."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.llm import Again, read_rows, report
from benchmarks.llm_tasks.accept import CHECKS, accept
from benchmarks.llm_tasks.tasks import GROUPS, load_tasks
from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.lift import lift
from engine.service.session.workbench import find_kernel
from engine.spec.python.declarations import declared
from engine.spec.python.spec_file import read_source
from engine.transfer.llm.answer import read_answer
from engine.transfer.llm.apply import apply_answer
from engine.transfer.llm.bind import Interface
from engine.transfer.llm.prompt import Task, code_alone, first_messages
from tests.engine.llm import server as acts
from tests.engine.llm.server import Server
from tests.engine.transfer.llm.answers import id_of, line_of

TASKS = load_tasks()


@pytest.fixture(scope="module")
def kernel() -> Module:
    package = find_kernel("flash_fwd_sm80")
    return lift(package, dict(package.specialisation({"T": "bf16", "D": "64"})), "sm_80").module


def test_eight_tasks_a_group_half_of_each_held_out() -> None:
    assert Counter(t.group for t in TASKS) == {g: 8 * on.samples for g, on in GROUPS.items()}
    for group, ground in GROUPS.items():
        assert sum(t.held_out for t in TASKS if t.group == group) == 4 * ground.samples
        assert len({t.spec for t in TASKS if t.group == group and not t.words}) in (0, 8)
    assert len({t.name for t in TASKS}) == len(TASKS) == 48
    assert {t.accept for t in TASKS if t.accept} == set(CHECKS)
    assert all((t.accept is None) == (t.words == "") == (t.group != "instruction") for t in TASKS)


def test_no_prompt_holds_another_task(kernel: Module) -> None:
    specs = {t.name: code_alone(t.spec.read_text()) for t in TASKS}
    bodies = {n: s.partition("v = v.repeat")[2].strip() for n, s in specs.items()}
    for task in TASKS:
        interface = Interface.of(declared(read_source(task.spec, {})), None, None)
        prompt = first_messages(
            Task("flash_fwd_sm80", kernel, assign(kernel), task.spec.name, task.spec.read_text(),
                 None, "not read here", interface, task.words),
            "MANUAL",
        )  # fmt: skip
        text = "\n".join(m.text for m in prompt)
        assert specs[task.name].strip().splitlines()[-1] in text
        for other in TASKS:
            if other.spec != task.spec:
                assert bodies[other.name] not in text, (task.name, other.name)
            if other.words and other.name != task.name:
                assert other.words not in text


def test_the_expert_kernel_follows_no_instruction(kernel: Module) -> None:
    for name in CHECKS:
        assert accept(name, kernel) is not None, name


def edited(kernel: Module, *blocks: str) -> Module:
    text = "```edit\n" + "\n".join(blocks) + "\n```"
    return apply_answer(read_answer(text), kernel, assign(kernel))


def line(kernel: Module, start: str, new: str) -> str:
    return f"<<<<<<< {id_of(kernel, start)}\n{line_of(kernel, start)}\n=======\n{new}\n>>>>>>>"


def solved(kernel: Module, name: str) -> Module:
    match name:
        case "reverse_tiles":
            new = "return ceil_div(args.Nk, BN) - 1 - step"
            return edited(kernel, line(kernel, "return step", new))
        case "narrow_tiles":
            return edited(kernel, line(kernel, "BN = ", "BN = 32"))
        case "three_stages":
            return edited(kernel, line(kernel, "STAGES = ", "STAGES = 3"))
        case "no_lse":
            lines = [line(kernel, start, "") for start in ("lse = map", "store_rows(", "LSE = ")]
            return edited(kernel, *lines, "<<<<<<< Args\nlse: tensor\n=======\n>>>>>>>")
        case "heads_fastest":
            return edited(
                kernel,
                line(kernel, "q0 = ", "q0 = block // args.Hq % q_tiles * BM"),
                line(kernel, "h = ", "h = block % args.Hq"),
                line(kernel, "b = ", "b = block // args.Hq // q_tiles"),
            )
        case "late_rows_first":
            new = "q0 = (q_tiles - 1 - block % q_tiles) * BM"
            return edited(kernel, line(kernel, "q0 = ", new))
        case "natural_exp":
            text = print_module(kernel).replace("exp2_approx", "exp").replace(" * LOG2E", "")
            return apply_answer(read_answer(f"```cuir\n{text}```"), kernel, assign(kernel))
        case "split_loop":
            text = print_module(kernel)
            start = text.index("    for step in range(tiles):")
            end = text.index("    l = row_reduce(l)")
            loop = text[start:end]
            full = "        if not tile_full[BM, BN](args, b, h, q0, n):\n            s = keep("
            assert full in loop
            keep = loop[loop.index(full) :].split("\n")[1]
            clean = loop.replace(full + keep.partition("keep(")[2] + "\n", "")
            masked = loop.replace(full, "        s = keep(")
            first = clean.replace("range(tiles)", "range(tiles - 1)")
            second = masked.replace("range(tiles)", "range(max(tiles - 1, 0), tiles)")
            text = text[:start] + first + second + text[end:]
            return apply_answer(read_answer(f"```cuir\n{text}```"), kernel, assign(kernel))
    raise KeyError(name)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_module_that_follows_is_accepted(kernel: Module, name: str) -> None:
    made = solved(kernel, name)
    assert accept(name, made) is None
    for other in CHECKS:
        if other not in (name, "heads_fastest", "late_rows_first"):
            assert accept(other, made) is not None, other


def test_half_followed_is_not_followed(kernel: Module) -> None:
    doubled = edited(
        kernel, line(kernel, "h = ", "h = block % args.Hq"),
        line(kernel, "q0 = ", "q0 = block % q_tiles * BM"),
        line(kernel, "b = ", "b = block // args.Hq // q_tiles + 1 - 1 + 0 * h"),
    )  # fmt: skip
    assert accept("heads_fastest", doubled) is not None
    twice = edited(kernel, line(kernel, "return step", "return ceil_div(args.Nk, BN) - step"))
    assert "visited as" in (accept("reverse_tiles", twice) or "")


def test_tasks_in_processes_of_their_own_keep_whole_rows(tmp_path: Path, root: Path) -> None:
    server = Server([acts.answer("no edit at all")] * 2)
    names = ("narrow_tiles", "no_lse")
    try:
        run = subprocess.run(
            [
                sys.executable, str(root / "benchmarks" / "llm.py"), "--model", "fake",
                "--base-url", server.url, "--jobs", "2", "--rounds", "0", "--out",
                str(tmp_path / "out"), "--answered-by", "a script", "--yes",
                *(word for name in names for word in ("--task", name)),
            ],
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        server.stop()
    assert run.returncode == 0, run.stderr
    rows = read_rows(tmp_path / "out")
    assert sorted(row["task"] for row in rows) == sorted(names)
    assert {tuple(row["reached"]) for row in rows} == {("unreadable",)}
    assert all(row["attempts"][0]["tokens"]["answer"] == 7 for row in rows)
    assert {p.name for p in (tmp_path / "out" / "recordings").iterdir()} == set(names)
    assert "| instruction | 2 | 0.00" in run.stdout and "a script" in run.stdout
    # A second run has nothing left to ask.
    assert len(server.asked) == 2


def test_the_recorded_run_is_whole(root: Path) -> None:
    """A row and the transcripts for every task of a group that was asked; the report is made of
    nothing else."""
    folder = root / "benchmarks" / "results" / "llm"
    rows = read_rows(folder)
    asked = {row["group"] for row in rows}
    assert sorted(row["task"] for row in rows) == sorted(t.name for t in TASKS if t.group in asked)
    for row in rows:
        replies = Again(folder / "recordings" / row["task"]).replies
        assert len([r for r in replies if r.complete]) >= len(row["reached"])
    table = report(rows).partition("\n\nAnswered")[0]
    assert table in (root / "benchmarks" / "llm.md").read_text(encoding="utf-8")
