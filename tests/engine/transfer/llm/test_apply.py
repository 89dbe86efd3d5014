"""Answers are read strictly and applied strictly; what does not apply says why."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Assign, Module, walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module, print_stmts
from engine.cuir.rewrite import get
from engine.transfer.llm.answer import AnswerError, AnswerRefused, read_answer
from engine.transfer.llm.apply import apply_answer


def edited(text: str, base: Module) -> Module:
    return apply_answer(read_answer(text), base, assign(base))


def edit(*blocks: str) -> str:
    return "Why.\n\n```edit\n" + "\n".join(blocks) + "\n```\n"


def block(op: str, search: str, replace: str) -> str:
    return f"<<<<<<< {op}\n{search}\n=======\n{replace}\n>>>>>>>"


def test_blocks_fields_insertions_and_deletions(base: Module) -> None:
    made = edited(
        edit(
            block("Args", "scale: f32", "scale: f32\nsink: tensor"),
            "<<<<<<< after s23\n=======\nSink = gmem[f32](args.sink, args.Hq)\n>>>>>>>",
            block("s59", "    l = row_reduce(l)  #@s59", "    l = row_reduce(l)\n    x = 1"),
            block("s28", "commit_async()", ""),
            "<<<<<<< before f5\n@device\ndef twice(args, n):\n    return n * 2\n>>>>>>>",
        ),
        base,
    )  # fmt: skip
    assert [f.name for f in made.fields][-1] == "sink"
    kernel = made.function("flash_fwd")
    assert len(kernel.body) == len(base.function("flash_fwd").body) + 1
    assert [f.name for f in made.functions][2] == "twice"
    # Nothing else has changed.
    text, old = print_module(made), print_module(base)
    assert len(set(text.split("\n")) - set(old.split("\n"))) == 5


def test_a_whole_answer_in_one_fence_is_read(base: Module) -> None:
    plain = edit(block("#@s18", "q0 = block_id(0) % q_tiles * BM", "q0 = 0"))
    for fence in ("~~~", "~~~markdown", "````md"):
        assert edited(f"{fence}\n{plain}{fence[:4].rstrip('m')}\n", base) == edited(plain, base)
    with pytest.raises(AnswerError, match="no ```edit block"):
        edited("~~~\nx = 1\n~~~\n", base)


def test_a_block_may_go_on_into_the_next_ops_and_into_a_body(base: Module) -> None:
    made = edited(
        edit(
            block(
                "s48",
                "if not tile_full[BM, BN](args, b, h, q0, n):\n"
                "    s = keep(s, lambda i, j: j < args.Nk, at=[q0, n * BN])\nm_prev = m",
                "s = keep(s, lambda i, j: j < args.Nk and j <= i, at=[q0, n * BN])\nm_prev = m",
            )
        ),
        base,
    )
    assert "j <= i" in print_module(made) and "tile_full[" not in print_module(made)


def test_search_lines_of_one_place_are_taken_there_whatever_the_id(base: Module) -> None:
    right = edited(edit(block("s4", "return step", "return step + 1")), base)
    assert edited(edit(block("s2", "return step", "return step + 1")), base) == right
    with pytest.raises(AnswerError, match=r"not there\. The op s2 reads"):
        edited(edit(block("s2", "sync()", "pass")), base)  # of four places none is meant


def test_of_several_places_the_only_one_of_the_ops_function_is_taken(base: Module) -> None:
    line, blocks = "q_tiles = ceil_div(args.Nq, BM)", "    blocks = ceil_div"
    twice = parse_module(print_module(base).replace(blocks, f"    {line}\n{blocks}"))
    last = max(path for path in assign(twice) if path[0] == "launch" and len(path) == 2)
    made = edited(edit(block(assign(twice)[last], line, "q_tiles = 1")), twice)
    assert print_module(made) == print_module(base).replace(blocks, f"    q_tiles = 1\n{blocks}")


def test_a_whole_function_and_a_whole_module(base: Module) -> None:
    text = "@device\ndef tile_count(args, b, h, q0, *, BM, BN):\n    return ceil_div(args.Nk, BN)"
    new = text.replace("ceil_div(args.Nk, BN)", "ceil_div(min(args.Nk, q0 + BM), BN)")
    made = edited(edit(block("f1", text, new)), base)
    whole = f"All of it.\n\n```cuir\n{print_module(made, assign(made))}```"
    assert edited(whole, base) == made


def test_a_unified_diff(base: Module) -> None:
    diff = (
        "```diff\n--- a/target.cuir\n+++ b/target.cuir\n@@ -20,3 +20,3 @@\n"
        " @device\n def tile_count(args, b, h, q0, *, BM, BN):\n"
        "-    return ceil_div(args.Nk, BN)\n+    return ceil_div(args.Nk + 0, BN)\n```"
    )
    assert "args.Nk + 0" in print_module(edited(diff, base))
    with pytest.raises(AnswerError, match="context is not there"):
        edited(diff.replace("q0, *, BM", "q1, *, BM"), base)
    with pytest.raises(AnswerRefused, match="not of the target"):
        edited(diff.replace("a/target.cuir", "engine/gates/deck.py"), base)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("just words", "no ```edit block"),
        ("```python\nx = 1\n```", "no ```edit block"),
        ("```edit\n<<<<<<< s4\nreturn step\n", "not closed"),
        ("```edit\n<<<<<<< s4\nreturn step\n```", "not closed"),
        ("```edit\n\n```", "holds no block"),
        ("```edit\nreturn step\n```", "text outside of a block"),
        ("```edit\n<<<<<<< s4\n<<<<<<< s2\n```", "inside another"),
        ("```edit\n>>>>>>>\n```", "without ======="),
        (edit(block("s4", "return step", "return 1")) + "```cuir\nx\n```", "mixes ways"),
        (edit(block("s400", "return step", "return 1")), "no op has the id"),
        (edit(block("s4", "return steps", "return 1")), "not there. The op s4 reads"),
        (edit(block("f7", "sync()", "pass")), "occur 4 times"),
        (edit(block("s4", "", "return 1")), "no search lines"),
        (edit(block("s4", "return step", "return 1"), block("f3", "return step", "return 2")),
         "edit the same lines"),
        (edit(block("s4", "return step", "return step")), "changes nothing"),
        (edit(block("s4", "return step", "return step +")), "does not parse"),
        (edit(block("s4", "return step", "import os")), "does not parse"),
        (edit(block("s4", "return step", "\treturn 1")), "spaces, not tabs"),
        (edit(block("s49", "    x\n  y", "z")), "leave the block"),
        ("```edit\n<<<<<<< after s4\nreturn step\n=======\nx = 1\n>>>>>>>\n```", "take no search"),
        (edit(block("s4", "return step", "return 1")) + "```bind\nnonsense\n```", "field = input"),
        ("```diff\n@@ -1 +1 @@\n+new\n```", "no context"),
        ("```cuir\n```", "does not parse|part of an edit"),
    ],
)  # fmt: skip
def test_what_does_not_apply_says_why(base: Module, text: str, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        edited(text, base)


@pytest.mark.parametrize(
    "name", ["kernels/specs/sink.py", "recipe.json", "engine/gates/deck.py", "../x", "binding.json"]
)
def test_only_the_target_can_be_edited(name: str) -> None:
    with pytest.raises(AnswerRefused, match="only the target"):
        read_answer(edit(block("s4", "a", "b")).replace("```edit", f"```edit {name}"))


@pytest.mark.parametrize(
    "hidden", ["\x1b]52;c;aGk=\x07", "\x1b[2J", "\x00", "\u202e", "\u200b", "\x9b2J", "\ue000"]
)
def test_escape_sequences_are_refused_in_edits_and_shown_in_reasons(hidden: str) -> None:
    with pytest.raises(AnswerRefused, match="carries the character"):
        read_answer(edit(block("s4", "return step", f"return step  # {hidden}")))
    answer = read_answer(f"because {hidden}\n\n" + edit(block("s4", "a", "b")))
    assert all(c.isprintable() for c in answer.reason) and "because" in answer.reason


def test_the_header_is_no_part_of_an_edit(base: Module) -> None:
    text = print_module(base).replace("D=64", "D=128")
    with pytest.raises(AnswerRefused, match="specialisation"):
        edited(f"```cuir\n{text}```", base)


def test_crlf_and_longer_fences(base: Module) -> None:
    text = edit(block("s4", "return step", "return step + 0")).replace("```", "~~~~")
    assert edited(text.replace("\n", "\r\n"), base) == edited(text, base)


@settings(max_examples=60)
@given(st.data())
def test_every_op_can_be_addressed(base: Module, data: st.DataObject) -> None:
    ids = assign(base)
    paths = [p for p, s in walk(base) if isinstance(s, Assign)]
    path = data.draw(st.sampled_from(paths))
    stmt = get(base, path)
    line = print_stmts((stmt,), 0, (), {})[0]
    made = edited(edit(block(ids[path], line, f"{line}\nfresh = 1")), base)
    expected = print_module(base, ids).split("\n")
    at = next(n for n, text in enumerate(expected) if text.endswith(f"#@{ids[path]}"))
    indent = expected[at][: len(expected[at]) - len(expected[at].lstrip())]
    expected.insert(at + 1, f"{indent}fresh = 1")
    assert made == parse_module("\n".join(expected))


@settings(max_examples=150)
@given(st.text("`~<>=@\n sedit4after", max_size=120))
def test_reading_is_total(text: str) -> None:
    with contextlib.suppress(AnswerError):
        read_answer(text)


@pytest.mark.parametrize(
    "answer",
    [
        edit(block("s59", "x" * 90_000, "y = 1")),
        edit(block("s59", "l = row_reduce(l)", "y = " + "x" * 90_000 + " +")),
        edit(block("s59", "l = row_reduce(l)", "y = )" + "x" * 90_000)),
        edit(block("x" * 90_000, "l = row_reduce(l)", "y = 1")),
        f"```cuir {'x' * 90_000}\n```\n",
        f"```cuir\nspecialisation({'x' * 90_000}\n```\n",
        f"```diff\n@@ -1,1 +1,1 @@\n-{'x' * 90_000}\n+y\n```\n",
        f"```diff\n--- {'x' * 90_000}\n```\n",
    ],
)
def test_a_line_of_any_length_is_not_echoed_whole(base: Module, answer: str) -> None:
    with pytest.raises(AnswerError) as error:
        edited(answer, base)
    assert len(error.value.message) < 2000 and len(str(error.value)) < 2000
    assert "characters ..." in error.value.message


BLOCK = "```edit\n<<<<<<< s4\na\n=======\nb\n>>>>>>> x\n```"
TRIED = BLOCK.replace("s4", "s9")


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\nperhaps\n{TRIED}\n</think>\n\nit is so\n\n{BLOCK}",
        f"perhaps {TRIED}\n</think>\nit is so\n\n{BLOCK}",  # the template opened it
        f"it is so\n\n{BLOCK}\n\n<think>or\n{TRIED}",  # cut off
        f"<thinking>\n```edit\nopen\n</thinking>\nit is so\n\n{BLOCK}",
        f"[THINK]{TRIED}[/THINK]\nit is so\n\n{BLOCK}",
        f"<think>a</think>\n<Think>\n{TRIED}\n</Think>\nit is so\n\n{BLOCK}",
        f"<|channel|>analysis<|message|>{TRIED}\n<|end|><|start|>assistant<|channel|>final<|message|>"
        f"it is so\n\n{BLOCK}",
    ],
)
def test_what_a_model_thought_is_no_answer(text: str) -> None:
    answer = read_answer(text)
    assert [(b.op, b.replace) for b in answer.blocks] == [("s4", ("b",))]
    assert answer.reason == "it is so"


def test_thoughts_alone_are_no_answer_and_lines_keep_their_numbers() -> None:
    with pytest.raises(AnswerError, match="holds no"):
        read_answer(f"<think>\n{BLOCK}")
    with pytest.raises(AnswerError, match="line 4"):
        read_answer("<think>\na\n</think>\n```edit\n```")
