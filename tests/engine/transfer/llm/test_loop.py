"""Ask, judge, repair: what goes back to the model, and when it ends."""

from __future__ import annotations

import json

import pytest

from engine.llm.types import Ending, Message, Reply, Request, Usage
from engine.transfer.llm.loop import Attempt, Plan
from engine.transfer.llm.loop import run as run_loop
from engine.transfer.llm.outcome import Outcome, Reached

START = (Message("system", "rules"), Message("user", "question"))


def run(
    replies: list[Reply], rounds: int, *words: str | None
) -> tuple[list[Attempt[int]], list[Request]]:
    """The attempts of a model with these replies; an answer that is a number passes when even."""
    asked: list[Request] = []
    lines = list(words)

    def ask(request: Request) -> Reply:
        asked.append(request)
        return replies[len(asked) - 1]

    def judge(text: str) -> Outcome[int]:
        if not text.isdecimal():
            return Outcome(
                Reached.UNREADABLE, f"{text!r} is no number", stage="It could not be read:"
            )
        if int(text) % 2:
            return Outcome(
                Reached.UNSOUND, "it is odd", "f/1", {"case": "c"}, "It was checked:", "x = 1",
                int(text),
            )  # fmt: skip
        return Outcome(Reached.PASSED, "even", value=int(text))

    def steer(_: Attempt[int]) -> str | None:
        return lines.pop(0) if lines else ""

    return list(run_loop(START, Plan("m", rounds=rounds), ask, judge, steer)), asked


def answer(text: str, ending: Ending = Ending.COMPLETE, note: str = "") -> Reply:
    return Reply(ending, text, usage=Usage(10, 2), seconds=1.5, note=note)


def test_failures_go_back_until_one_passes() -> None:
    done, asked = run([answer("one"), answer("3"), answer("4"), answer("6")], 5, "mind parity")
    assert [a.reached.word for a in done] == ["unreadable", "unsound", "passed"]
    assert done[-1].outcome.value == 4 and len(asked) == 3
    second, third = asked[1].messages, asked[2].messages
    assert [m.role for m in second] == ["system", "user", "assistant", "user"]
    assert "'one' is no number" in second[-1].text and "mind parity" in second[-1].text
    assert second[-2].text == "one"
    # The next one is about the last answer, and lists what failed before.
    assert third[-2].text == "3" and "it is odd" in third[-1].text and "x = 1" in third[-1].text
    assert "* unreadable: 'one' is no number" in third[-1].text
    assert "mind parity" not in third[-1].text


@pytest.mark.parametrize(
    ("then", "rounds", "reached"),
    [
        (["4", "6"], 5, ["passed", "passed"]),
        (["it stands"], 5, ["passed", "unreadable"]),
        (["3", "4"], 5, ["passed", "unsound", "passed"]),
        (["3", "it stands"], 5, ["passed", "unsound", "unreadable"]),
        (["3", "5", "7", "9"], 3, ["passed", "unsound", "unsound", "unsound"]),
        (["4"], 0, ["passed"]),  # no answer is left
    ],
)
def test_one_that_passes_is_asked_whether_it_can_be_better(
    then: list[str], rounds: int, reached: list[str]
) -> None:
    asked: list[Request] = []

    def ask(request: Request) -> Reply:
        asked.append(request)
        return answer("2" if len(asked) == 1 else then[len(asked) - 2])

    def judge(text: str) -> Outcome[int]:
        if not text.isdecimal():
            return Outcome(Reached.UNREADABLE, "no number", nothing=True)
        kind = Reached.UNSOUND if int(text) % 2 else Reached.PASSED
        return Outcome(kind, "", value=int(text), better=f"{text} is small, see `it`")

    def steer(_: Attempt[int]) -> str | None:
        raise AssertionError("no person is asked about what passed")

    done = list(run_loop(START, Plan("m", rounds=rounds, candidates=3), ask, judge, steer))
    assert [a.reached.word for a in done] == reached
    if rounds:
        last = asked[1].messages
        assert [m.role for m in last] == ["system", "user", "assistant", "user"]
        assert "2 is small" in last[-1].text and "it is kept" in last[-1].text
        assert last[-2].text == "2" and asked[0].messages == last[:2]
        assert ("This is the last answer" if rounds == 1 else f"{rounds} answers remain") in (
            last[-1].text
        )
    for request, wrong in zip(asked[2:], then, strict=False):
        assert request.messages[:4] == last and request.messages[4].text == wrong


def test_half_an_answer_is_no_turn() -> None:
    done, asked = run([answer("2222", Ending.LENGTH), answer("2")], 1)
    assert [a.reached.word for a in done] == ["incomplete", "passed"]
    assert "cut off" in done[0].outcome.reason
    assert [m.role for m in asked[1].messages] == ["system", "user"]
    assert "2222" not in asked[1].messages[1].text and "cut off" in asked[1].messages[1].text


@pytest.mark.parametrize(
    ("replies", "rounds", "words", "count"),
    [
        ([answer("1")] * 9, 2, (), 3),
        ([answer("1")] * 9, 8, ("", None), 2),
        ([answer("", Ending.CANCELLED)] * 9, 8, (), 1),
        ([answer("2")] * 9, 8, (), 1),
        ([answer("1")] * 9, 0, (), 1),
    ],
)
def test_when_it_ends(
    replies: list[Reply], rounds: int, words: tuple[str | None, ...], count: int
) -> None:
    done, asked = run(replies, rounds, *words)
    assert len(done) == len(asked) == count


def test_an_attempt_is_kept_whole() -> None:
    (attempt,), _ = run([answer("3")], 0)
    kept = json.loads(attempt.transcript())
    assert kept["outcome"] == {
        "reached": "unsound", "passed": False, "reason": "it is odd", "op": "f/1",
        "details": {"case": "c"}, "found": "", "better": "", "microseconds": None,
    }  # fmt: skip
    assert kept["reply"]["text"] == "3" and kept["request"]["messages"][1]["content"] == "question"
    assert attempt.summary() == {
        "candidate": 1, "round": 0, "reached": "unsound", "reason": "it is odd",
        "tokens": {"prompt": 10, "answer": 2}, "seconds": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize("ending", [e for e in Ending if e is not Ending.COMPLETE])
def test_every_shortcoming_has_words(ending: Ending) -> None:
    assert answer("x", ending).shortcoming
    assert "because" in answer("x", ending, "because").shortcoming
