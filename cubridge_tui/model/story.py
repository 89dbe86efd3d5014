"""A session's history as one reads it: what people, models and gates did, machine events folded,
hunks by their titles, and the time in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cubridge_tui.console import typeable
from cubridge_tui.model.steps import step_words
from engine.types import DecisionKind
from sessions.events import (
    Accepted,
    ArtifactSet,
    Committed,
    Event,
    HunkCommented,
    HunkDecided,
    InputsSet,
    ProposalMade,
    Redone,
    TranscriptAdded,
    Undone,
    VerdictGiven,
    stroke_end,
)
from sessions.replay import Step, describe, plain
from sessions.state import SessionState

_FOLDED = (ArtifactSet, TranscriptAdded, InputsSet)  # a machine's doing, told by what it is part of
_PERSONS = (HunkDecided, HunkCommented, Undone, Redone, Accepted, Committed)
_VERBS = {
    DecisionKind.ACCEPTED: "accepted",
    DecisionKind.REJECTED: "rejected",
    DecisionKind.EDITED: "accepted with an edit",
}


@dataclass(frozen=True, slots=True)
class Beat:
    """Something that happened: the steps `first` to `last` of the history (from 1).

    `details` are lines that the words leave out; `folded` what machines wrote in it; `waited` the
    seconds since the beat before it, where a person decided after having looked.
    """

    first: int
    last: int
    time: str
    actor: str
    words: str
    details: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()
    waited: float | None = None

    @property
    def after(self) -> str:
        """`after 2 min 05 s`; empty where nobody looked before."""
        return f"after {duration(self.waited)}" if self.waited is not None else ""

    @property
    def told(self) -> str:
        """What happened, and after how long."""
        return f"{self.words}  ({self.after})" if self.after else self.words

    @property
    def line(self) -> str:
        """The beat as one line: steps, time, who, what, after how long, and what is folded."""
        number = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        many = len(self.folded)
        more = f"  [+{many} file{'s' * (many != 1)}]" if many else ""
        time = plain(self.time)[:19].replace("T", " ")
        return f"{number:>7}  {time}  {plain(self.actor)}: {self.told}{more}"


def beats(events: Iterable[Step]) -> Iterator[Beat]:
    """The history, oldest first; every step is in exactly one beat."""
    history = list(events)
    log = [each.event for each in history]
    at, before = 0, ""
    waiting: list[Step] = []  # machine strokes that nothing told of yet
    while at < len(history):
        end = stroke_end(log, at) + 1
        stroke, at = history[at:end], end
        if all(isinstance(s.event.body, _FOLDED) for s in stroke):
            if waiting and waiting[-1].event.actor != stroke[0].event.actor:
                yield _beat(waiting, before)
                before, waiting = waiting[-1].event.time, []
            waiting += stroke
            continue
        if waiting:
            yield _beat(waiting, before)
            before, waiting = waiting[-1].event.time, []
        yield _beat(stroke, before)
        before = stroke[-1].event.time
    if waiting:
        yield _beat(waiting, before)


def merged(beat: Beat, history: Sequence[Step], number: int) -> Step:
    """A beat as one step, of the event that tells it: the states before and after all of it."""
    mine = history[beat.first - 1 : beat.last]
    telling = [s for s in mine if not isinstance(s.event.body, _FOLDED)] or mine
    return replace(telling[-1], number=number, before=mine[0].before, after=mine[-1].after)


def story(events: Iterable[Step]) -> list[str]:
    """The history as lines."""
    return [beat.line for beat in beats(events)]


def duration(seconds: float) -> str:
    """`4 s`, `2 min 05 s`, `3 h 10 min`, `2 days`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} days"


def _beat(stroke: Sequence[Step], before: str) -> Beat:
    first, last = stroke[0], stroke[-1]
    telling = [s for s in stroke if not isinstance(s.event.body, _FOLDED)]
    folded = tuple(step_words(s.words) for s in stroke if isinstance(s.event.body, _FOLDED))
    persons = any(isinstance(s.event.body, _PERSONS) for s in telling)
    waited = _seconds(before, first.event.time) if persons else None
    details: tuple[str, ...] = ()
    if not telling:
        words, folded = "; ".join(dict.fromkeys(folded)), ()
    else:
        words = _at_one_stroke(telling)
        told = tuple(_words(s) for s in telling)
        details = told if words != "; ".join(told) else ()
    return Beat(
        first.number, last.number, first.event.time, first.event.actor, words, details, folded,
        waited,
    )  # fmt: skip


def _at_one_stroke(telling: Sequence[Step]) -> str:
    """What steps at one stroke did: hunks of which the same is said are counted and, where these
    are a rule's or two, called by their titles."""
    alike: dict[tuple[str, str], list[Step]] = {}
    for number, each in enumerate(telling):
        alike.setdefault(_decided(each) or (str(number), ""), []).append(each)
    return "; ".join(
        _words(group[0]) if len(group) == 1 else _together(group, *same)
        for same, group in alike.items()
    )


def _together(group: Sequence[Step], verb: str, comment: str) -> str:
    titles = dict.fromkeys(_title(each) for each in group)
    which = f": {', '.join(titles)}" if len(titles) <= 2 else ""
    return f"{verb} {len(group)} hunks at one stroke{which}{comment}"


def _decided(each: Step) -> tuple[str, str] | None:
    """The decision that a step takes, takes back or makes again, and what was said with it."""
    match each.event.body:
        case HunkDecided(decision):
            said = f": {plain(decision.comment)}" if decision.comment else ""
            return _VERBS[decision.kind], said
        case Undone() | Redone() if each.about is not None:
            verb = "undid" if isinstance(each.event.body, Undone) else "made again"
            if isinstance(each.about.body, HunkDecided):
                return f"{verb}: {_VERBS[each.about.body.decision.kind]}", ""
    return None


def _target(each: Step) -> str:
    body = each.about.body if each.about is not None else each.event.body
    return body.decision.target if isinstance(body, HunkDecided) else ""


def _title(each: Step) -> str:
    found = each.before.find_hunk(_target(each))
    return plain(found[1].title) if found is not None else plain(_target(each))


def _words(each: Step) -> str:
    """What a step did, with the title of the hunk that it is about."""
    decided = _decided(each)
    if decided is not None:
        verb, said = decided
        return f"{verb} {_named(each.before, _target(each))}{said}"
    match each.event.body:
        case HunkCommented(target, text):
            verb = "commented on" if text else "took the comment back on"
            return f"{verb} {_named(each.before, target)}" + (f": {plain(text)}" if text else "")
    return typeable(step_words(each.words))


def _named(state: SessionState, target: str) -> str:
    """A hunk by its title, a whole proposal by its count."""
    found = state.find_hunk(target)
    if found is not None:
        return f"{plain(found[1].title)} ({plain(found[0].id)}/{plain(found[1].id)})"
    for proposal in state.proposals:
        if proposal.id == target:
            return f"all {len(proposal.hunks)} hunks of {plain(proposal.id)}"
    return plain(target)


def _seconds(before: str, now: str) -> float | None:
    try:
        passed = datetime.fromisoformat(now) - datetime.fromisoformat(before)
        return max(passed.total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def news(events: Sequence[Event]) -> str:
    """What others did, by the last of their events that says most; empty where they did nothing."""
    telling = [e for e in events if isinstance(e.body, ProposalMade | VerdictGiven)] or [*events]
    if not telling:
        return ""
    who, what = plain(telling[-1].actor), step_words(describe(telling[-1]))
    return what if what.startswith(f"{who} ") else f"{who}: {what}"
