"""What the model's screen says: what the next key does, how a run ended, what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cubridge_tui.jobs import Outcome
from cubridge_tui.model.topics import Topic
from cubridge_tui.widgets.line import Part
from engine.errors import CuBridgeError
from engine.llm.settings import NAME_WHERE_ASKED

if TYPE_CHECKING:
    from cubridge_tui.model_desk import Result
    from cubridge_tui.screens.ask_model_question import ModelState


def in_app(error: CuBridgeError) -> str:
    """An error in a line; a fix that is asked for here becomes the key that does it."""
    fix = error.fix or ""
    if fix.startswith(NAME_WHERE_ASKED):
        fix = "m names a server and a model"
    elif fix.startswith("export "):  # the app has the environment that it was started with
        fix = fix.removesuffix(", then try again") + " and start the app again, or m names a server"
    said = f"{error.where}: {error.message}" if error.where else error.message
    return " ".join(f"{said}; {fix}".removesuffix("; ").split())


def next_action(stage: str, state: ModelState) -> str:
    """The action that leads on from here."""
    if stage == "done" and state.result is not None and state.result.proposal is not None:
        return "model-close"
    return "model-server" if not stage and state.problem else "model-send"


def next_parts(stage: str, state: ModelState, key: str, job_line: str) -> list[Part]:
    """The line with the next decision; `key` makes it, `job_line` is what the running job said."""
    live = state.live
    parts: list[Part] = [(" Next: ", "dim")]
    if stage == "running" and live is not None:
        line = live.note or job_line
        pace = live.pace() if live.began else ""
        return [(f" asking for {state.asked.short} ", "title"), (f"{pace}  {line}", "dim")]
    if stage == "waiting" and live is not None and live.waiting is not None:
        words = f"  sends what the gates found about {live.waiting.id}"
        return [*parts, (key, "key"), (words, "title"), ("; t adds a line, x stops here", "dim")]
    if stage == "ready" and state.ready is not None:
        out = state.ready.outgoing
        words = f"  asks for {state.ready.topic.short}: sends {out.bytes} bytes to {out.place}"
        return [*parts, (key, "key"), (f"{words}, model {out.model}", "title")]
    if stage == "done" and state.result is not None and state.result.proposal is not None:
        parts += [(key, "key"), ("  decide on its hunks", "title")]
        return [*parts, ("; d looks at the answer otherwise, s asks again", "dim")]
    if stage == "done" and state.unanswered:
        parts += [(key, "key"), ("  shows the request again, to send it once more", "title")]
        return [*parts, ("; m names another server", "dim")]
    if stage == "done":
        return [*parts, (key, "key"), ("  shows what asking again would send", "title")]
    if state.problem:
        return [*parts, (key, "key"), ("  names a server and a model", "title")]
    return [(" making the prompt …", "dim")]


def ended_words(outcome: Outcome, result: Result | None) -> str:
    """What a run came to, in a line."""
    if outcome.error is not None:
        return f"model: {in_app(outcome.error)}"
    if outcome.cancelled or result is None:
        return "model: cancelled; the answers that came are kept"
    if result.proposal is None:
        what = {Topic.EDIT: "a target", Topic.LOWER: "a lowering"}.get(result.topic, "meanings")
        return f"model: no answer became {what}; t gives it a line, s asks again"
    count = len(result.proposal.hunks)
    passed = "passes" if result.passed else "the best one, which does not pass"
    return f"{result.proposal.id}: {count} hunk{'s' * (count != 1)} to decide on ({passed})"
