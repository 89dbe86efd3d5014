"""When an action can be done: each condition gives an empty text, else the reason why not."""

from __future__ import annotations

from collections.abc import Callable

from cubridge_tui.model.facts import Facts

Condition = Callable[[Facts], str]


def always(_: Facts) -> str:
    """Nothing stands against it."""
    return ""


def every(*conditions: Condition) -> Condition:
    """All conditions; the first reason against it is given."""

    def check(facts: Facts) -> str:
        return next((why for c in conditions if (why := c(facts))), "")

    return check


def idle(facts: Facts) -> str:
    return f"{facts.job} is running: ctrl+c cancels it" if facts.job else ""


def running(facts: Facts) -> str:
    return "" if facts.job else "nothing is running"


def has_session(facts: Facts) -> str:
    return "" if facts.session else "there is no session yet: s starts one"


def some_deleted(facts: Facts) -> str:
    return "" if facts.deleted else "nothing was deleted: x deletes the session under the cursor"


def can_begin(facts: Facts) -> str:
    return facts.pair_blocked


def can_open(facts: Facts) -> str:
    return has_session(facts) if facts.on_sessions else facts.pair_blocked


def writable(facts: Facts) -> str:
    return f"read-only: {facts.read_only}" if facts.read_only else ""


def in_store(facts: Facts) -> str:
    return "" if facts.session else "there is nothing to copy yet: the first step saves the session"


def can_step(facts: Facts) -> str:
    return facts.step_blocked


def has_proposal(facts: Facts) -> str:
    return "" if facts.proposed else "there is no proposal yet: s lets the rules propose"


def has_hunks(facts: Facts) -> str:
    """Where the kernel computes the spec as it is, a proposal has none."""
    if facts.hunks:
        return ""
    return has_proposal(facts) or "the proposal has no hunk: there is nothing to change"


def on_hunk(facts: Facts) -> str:
    return has_hunks(facts) or (
        "" if facts.hunk else "the cursor is on no hunk: ] goes to the next"
    )


def some_open(facts: Facts) -> str:
    return "" if facts.open else "every hunk is decided: x and a change a decision, u undoes it"


def all_decided(facts: Facts) -> str:
    return "decide on every hunk first: your text starts from the decisions" if facts.open else ""


def showable(facts: Facts) -> str:
    """Nothing is decided about a difference that cannot be seen."""
    return facts.diff_blocked


def can_undo(facts: Facts) -> str:
    return "" if facts.undo else "there is no decision to undo about what is there now"


def can_redo(facts: Facts) -> str:
    return "" if facts.redo else "there is no decision to redo"


def why_word(facts: Facts) -> str:
    """The footer's word for why: only where something did not go through."""
    return "why" if facts.failed or facts.unmeant or facts.refused else ""


def can_accept(facts: Facts) -> str:
    return facts.accept_blocked


def accepted(facts: Facts) -> str:
    return "" if facts.accepted else "accept the kernel first: A"


def not_accepted(facts: Facts) -> str:
    return "these bytes are accepted already: w writes the package" if facts.accepted else ""


def undo_word(facts: Facts) -> str:
    """The footer's word for undo: which decision it takes back."""
    words = facts.undo.split(" (")[0].replace("accepted", "accept").replace("rejected", "reject")
    return f"undo {words.replace('edited', 'edit')}" if words else "undo"


def has_lowered(facts: Facts) -> str:
    return "" if facts.lowered else "there is no lowered kernel yet"


def has_recipe(facts: Facts) -> str:
    return "" if facts.recipe else "the spec was not read yet"


def has_times(facts: Facts) -> str:
    return "" if facts.times else "nothing was timed yet"


def searching(facts: Facts) -> str:
    return "" if facts.search else "search first: /"


def changed_on_disk(facts: Facts) -> str:
    return "" if facts.changed else "nothing changed on disk"


def has_lifted(facts: Facts) -> str:
    return "" if facts.lifted else "lift the source first: s"


def can_send(facts: Facts) -> str:
    """Nothing is sent before it was shown; a round goes on when it waits for the person."""
    if facts.asking in ("ready", "waiting", "done"):
        return ""
    return {"running": "it is asked already"}.get(facts.asking, "look at what would be sent first")


def waiting(facts: Facts) -> str:
    return "" if facts.asking == "waiting" else "no round waits for you"


def not_running(facts: Facts) -> str:
    return "it is asked already: ctrl+c cancels" if facts.asking in ("running", "waiting") else ""


def has_prompt(facts: Facts) -> str:
    """A prompt to read or to edit is there between being made and being sent."""
    why = {"ready": "", "done": "the prompt was sent: s or p makes the next one"}
    there = why.get(facts.asking, "there is no prompt: nothing is configured to send it to; m does")
    return not_running(facts) or there


def can_word(facts: Facts) -> str:
    return "the answer is still coming" if facts.asking == "running" else ""


def some_topics(facts: Facts) -> str:
    return not_running(facts) or ("" if facts.topics > 1 else "there is nothing else to ask for")


def answered(facts: Facts) -> str:
    return "" if facts.attempts else "no answer came yet"


deciding = every(writable, idle, on_hunk, showable)


def can_edit(facts: Facts) -> str:
    """A hunk's text, or the meaning of the opaque op under the cursor."""
    return every(writable, idle)(facts) if facts.opaque and not facts.hunk else deciding(facts)


def edit_word(facts: Facts) -> str:
    return "write meaning" if facts.opaque and not facts.hunk else "edit"
