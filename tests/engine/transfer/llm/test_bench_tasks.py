"""The bench's tasks are whole, fair, and their acceptance tests can tell yes from no."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.llm_tasks.accept import CHECKS, accept
from benchmarks.llm_tasks.tasks import GROUPS, load_tasks
from engine.cuir.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.lift import lift
from engine.service.bench import find_kernel
from engine.spec.declared import declared
from engine.spec.source import read_source
from engine.transfer.llm.answer import read_answer
from engine.transfer.llm.apply import apply_answer
from engine.transfer.llm.bind import Interface
from engine.transfer.llm.prompt import Task, code_alone, first_messages
from tests.engine.transfer.llm.answers import id_of, line_of

TASKS = load_tasks()


@pytest.fixture(scope="module")
def kernel() -> Module:
    package = find_kernel("flash_fwd_sm80")
    return lift(package, dict(package.specialisation({"T": "bf16", "D": "64"})), "sm_80").module


def test_twenty_four_tasks_half_of_each_group_held_out() -> None:
    assert Counter(t.group for t in TASKS) == dict.fromkeys(GROUPS, 8)
    for group in GROUPS:
        assert sum(t.held_out for t in TASKS if t.group == group) == 4
    assert len({t.name for t in TASKS}) == 24
    assert {t.accept for t in TASKS if t.accept} == set(CHECKS)
    assert all((t.accept is None) == (t.words == "") == (t.group != "instruction") for t in TASKS)


def test_no_prompt_holds_another_task(kernel: Module) -> None:
    specs = {t.name: code_alone(t.spec.read_text()) for t in TASKS}
    bodies = {n: s.partition("v = v.repeat_interleave")[2].strip() for n, s in specs.items()}
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
