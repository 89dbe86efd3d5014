"""What a model says of opaque ops is read strictly, step by step."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Assign, Name
from engine.cuir.parser import parse_block, parse_module
from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.lift import lift
from engine.lift.files.meanings import (
    Meaning,
    known_meanings,
    like,
    meanings_json,
    read_meanings,
    released,
    unexplained,
    with_meanings,
)
from engine.lower.lower import lower
from engine.lower.spans import allowed_spans, verify_spans
from engine.service.session.workbench import find_kernel
from engine.transfer.llm.answer import AnswerError, AnswerRefused, addressed
from engine.transfer.llm.lifting import (
    LiftTask,
    Step,
    lift_messages,
    part_text,
    read_part,
    read_step,
)
from engine.transfer.llm.sources import definitions
from tests.engine.transfer.llm.shop import HEADER, make_shop

SCORES = Meaning(
    "s44", "scores(s, sQ, sK[step % STAGES]);", "adds products", ("s", "sQ", "sK"), ("s",),
    ("part",),
)  # fmt: skip


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> LiftTask:
    package = find_kernel(str(make_shop(tmp_path_factory.mktemp("k") / "shop")))
    lifted = lift(package, package.specialisations[0], "sm_80")
    return LiftTask.of("shop", lifted, assign(lifted.module), package.headers, {"s44": SCORES})


def refused(step: Step, text: str, task: LiftTask, id: str = "s44") -> str:
    with pytest.raises(AnswerError) as caught:
        read_part(step, id, text, task)
    return caught.value.message


def test_annotations_name_what_stands_in_the_text(task: LiftTask) -> None:
    said = read_part(
        Step.ANNOTATE,
        "s44",
        "does: adds the\n  products.\nreads: `sQ`, sK, memory\nwrites: s",
        task,
    )
    assert said is not None and said.does == "adds the products."
    assert (said.reads, said.writes) == (("sQ", "sK", "memory"), ("s",))
    assert "stand in the op's text" in refused(Step.ANNOTATE, "does: x\nreads: o\nwrites: s", task)
    assert "needs the lines" in refused(Step.ANNOTATE, "does: x", task)
    assert "stands twice" in refused(Step.ANNOTATE, "does: x\ndoes: y\nreads:\nwrites:", task)
    assert "not a line" in refused(Step.ANNOTATE, "s = 1", task)
    assert read_part(Step.ANNOTATE, "s44", "unknown: no definition", task) is None


def test_escapes_in_words_are_shown_as_escapes(task: LiftTask) -> None:
    said = read_part(Step.ANNOTATE, "s44", "does: a\x1b[2Jb\nreads:\nwrites:", task)
    assert said is not None and "\x1b" not in said.does


def test_bindings_are_of_a_closed_list(task: LiftTask) -> None:
    said = read_part(Step.BIND, "s44", "by: part, thread", task)
    assert said is not None and said.by == ("part", "thread")
    assert "one or more of" in refused(Step.BIND, "by: everybody", task)
    assert "needs the lines `by:`" in refused(Step.BIND, "by:", task)


def test_a_translation_keeps_to_what_was_said(task: LiftTask) -> None:
    right = "gemm(s, sQ, transpose(sK[step % STAGES]))"
    said = read_part(Step.TRANSLATE, "s44", right, task)
    assert said is not None and part_text(Step.TRANSLATE, said) == right
    assert "did not say that it writes" in refused(Step.TRANSLATE, "l = row_sum(s, l)", task)
    assert "executed by block" in refused(Step.TRANSLATE, "sync()", task)
    assert "cannot return" in refused(Step.TRANSLATE, "return", task)
    assert "does not parse" in refused(Step.TRANSLATE, "s = [x for x in s]", task)
    assert "name of the function" in refused(
        Step.TRANSLATE, "for step in range(2):\n    s = s", task
    )
    with pytest.raises(AnswerRefused, match="not of opaque text"):
        read_part(Step.TRANSLATE, "s44", "opaque('scores(s)', reads=[], writes=[])", task)
    nothing = read_part(Step.TRANSLATE, "s44", "pass", task)
    assert nothing is not None and len(nothing.body) == 1


def test_an_answer_has_one_part_for_every_op(task: LiftTask) -> None:
    def answer(*ids: str) -> str:
        parts = "\n".join(f"<<<<<<< {id}\nby: part\n>>>>>>>" for id in ids)
        return f"Why.\n\n```meaning\n{parts}\n```"

    (said,) = read_step(Step.BIND, answer("s44"), task)
    assert said.op == "s44" and said.does == SCORES.does
    for text, message in [
        (answer("s56"), "not asked for"), (answer("s44", "s44"), "answered twice"),
        ("by: part", "exactly one ```meaning block"),
        ("```meaning\nby: part\n```", "outside of a part"),
        ("```meaning\n<<<<<<< s44\nby: part\n```", "not closed"),
        ("```meaning\n<<<<<<< s44\nunknown: no\n>>>>>>>\n```", "every one is unknown"),
        ("```meaning\n<<<<<<< s44\nby: pa\u202ert\n>>>>>>>\n```", "carries the character"),
    ]:  # fmt: skip
        with pytest.raises(AnswerError, match=message):
            read_step(Step.BIND, text, task)
    with pytest.raises(AnswerError, match="nothing is said of s2, s4"):
        read_step(Step.ANNOTATE, answer("s44"), task)


@settings(max_examples=60)
@given(st.text(alphabet="<>=` \nsdoewritad:4_()", max_size=120))
def test_any_answer_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(AnswerError):
        addressed(f"```meaning\n{text}\n```", "meaning")


def test_a_prompt_shows_definitions_without_comments(task: LiftTask) -> None:
    for step in Step:
        text = lift_messages(step, task, "MANUAL")[1].text
        assert "cubridge::gemm(s, q, cubridge::transpose(k));" in text
        assert "SECRET" not in text and "IGNORE-ALL" not in text
    assert "adds products" in text and "Executed by: part" in text


def test_definitions_are_found_wherever_they_stand() -> None:
    source = b"""// f(1);
#define F(x) \\
  (x + 1)
int g(int x);
namespace a { namespace b {
template <int N> inline int f(int x) { if (x) { return F(x); } return 0; /* SECRET */ }
struct S { int f; void h() { f = 1; } };
}}
int f2(int y) { return y; }
"""
    assert definitions(source, {"f"}) == [
        "template <int N> inline int f(int x) { if (x) { return F(x); } return 0;  }"
    ]
    assert definitions(source, {"F"}) == ["#define F(x) \\\n  (x + 1)"]
    assert definitions(source, {"g"}) == ["int g(int x);"]
    assert definitions(source, {"h"}) == [] and definitions(b"", {"f"}) == []
    assert len(definitions(HEADER.encode(), {"scores", "add_rows"})) == 2


def test_meanings_round_trip_and_belong_to_their_text(task: LiftTask, tmp_path: Path) -> None:
    package = find_kernel(str(make_shop(tmp_path / "shop")))
    lifted = lift(package, package.specialisations[0], "sm_80")
    said = read_part(Step.TRANSLATE, "s44", "gemm(s, sQ, transpose(sK[step % STAGES]))", task)
    assert said is not None and read_meanings(meanings_json([said, SCORES])) == (said, SCORES)
    given = with_meanings(lifted, [said])
    assert len(given.opaque) == len(lifted.opaque) - 1
    assert "with opaque('scores" in print_module(given.module)
    assert len(unexplained(given.module)) == len(lifted.opaque) - 1
    # Every statement has a place in the source, also those of a meaning.
    inner = next(p for p in given.provenance if "meaning" in p)
    assert given.provenance[inner] == given.provenance[inner[:-2]]
    # The same text, lifted again, means the same.
    assert like(lifted.module, known_meanings(given.module)) == given.module
    assert like(lifted.module, known_meanings(lifted.module)) == lifted.module
    for wrong in (replace(said, text="other();"), replace(said, op="s1"), replace(said, op="s999")):
        with pytest.raises(InputError, match="another source"):
            with_meanings(lifted, [wrong])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "meanings": [3]}'])
def test_damaged_meanings_are_one_clear_error(text: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_meanings(text)


def test_an_op_whose_meaning_was_edited_is_written_out(tmp_path: Path) -> None:
    package = find_kernel(str(make_shop(tmp_path / "shop")))
    lifted = lift(package, package.specialisations[0], "sm_80")
    said = Meaning("s56", "add_rows(l, s);", body=(Assign("l", Name("l")),))
    module = with_meanings(lifted, [said]).module
    assert released(module, module) == module
    gone = released(module, lifted.module)  # nothing is left of its meaning
    assert "add_rows" not in print_module(gone) and "scores(" in print_module(gone)
    other = replace(said, body=(Assign("l", Name("m")), Assign("l", Name("l"))))
    text = print_module(released(module, with_meanings(lifted, [other]).module))
    assert "add_rows" not in text and "        l = m\n        l = l\n" in text


def test_rules_that_change_a_meaning_replace_the_op(tmp_path: Path) -> None:
    """What a helper of the shop does is written out where the variant needs it otherwise."""
    package = find_kernel(str(make_shop(tmp_path / "shop")))
    lifted = lift(package, package.specialisations[0], "sm_80")
    body = parse_block("l = row_sum(s, l)\n")
    given = with_meanings(lifted, [Meaning("s56", "add_rows(l, s);", body=body)])
    edited = parse_module(
        print_module(given.module).replace("l = row_sum(s, l)", "l = row_sum(s, alpha)"), "t"
    )
    target = released(given.module, edited)
    assert "add_rows" not in print_module(target)
    done = lower(given, target)
    assert b"add_rows(l, s);" not in done.source and b"l = row_sum(s, alpha);" in done.source
    allowed = allowed_spans(given, target)
    assert verify_spans(given.source, done.source, allowed) is None
