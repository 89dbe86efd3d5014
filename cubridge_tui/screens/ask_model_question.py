"""What a model will be asked: topic, words, server, how often; shown before it is sent. And the
words of its screen: what the next key does, how a run ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cubridge_tui.jobs import Outcome
from cubridge_tui.model.attempts import (
    Answered,
    Look,
    no_server_text,
    prompt_text,
    ready_text,
)
from cubridge_tui.model.live import Asking, Live
from cubridge_tui.model.rows import PaneText
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.model.topics import Topic, topics
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.screens.dialogs import Prompt
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Part
from engine.errors import CuBridgeError
from engine.llm.settings import NAME_WHERE_ASKED

if TYPE_CHECKING:
    from cubridge_tui.model_desk import Ready, Result
    from cubridge_tui.screens.adaptation.evidence import EvidenceActions

MOST_ROUNDS, MOST_CANDIDATES = 20, 10


@dataclass(slots=True)
class ModelState:
    """A session's run of a model, kept while its screen is closed."""

    asking: Asking = field(default_factory=Asking)
    ready: Ready | None = None
    live: Live | None = None
    result: Result | None = None
    base: str = ""  # the target that was edited, as text
    asked: Topic = Topic.EDIT  # what the latest run asks for
    problem: str = ""
    unanswered: bool = False  # the latest run ended with an error, such as a server that is down
    about: Any = None  # the session's state that `ready` was made for
    held: Answered | None = None
    look: Look = Look.ANSWER

    @property
    def attempts(self) -> list[Answered]:
        return self.live.attempts if self.live is not None else []


class Question(ActionScreen):
    """The part of the model's screen that is about what would be sent."""

    def __init__(self, owner: EvidenceActions, state: ModelState) -> None:
        super().__init__()
        self.owner, self.state = owner, state
        self._showing = ""  # what the lower pane shows: ready, prompt, stream, attempt

    def present(self) -> None:
        raise NotImplementedError

    def _tell(self) -> None:
        raise NotImplementedError

    def _stream(self) -> None:
        raise NotImplementedError

    def _stage(self) -> str:
        raise NotImplementedError

    @property
    def snap(self) -> Snapshot:
        assert self.owner.snap is not None
        return self.owner.snap

    @property
    def lower(self) -> CodePane:
        return self.query_one("#shown", CodePane)

    _topics: tuple[Snapshot | None, tuple[Topic, ...]] = (None, ())  # those of a snapshot

    @property
    def topics(self) -> tuple[Topic, ...]:
        """What can be asked for now, what the session waits for first."""
        if self._topics[0] is not self.snap:
            self._topics = (self.snap, topics(self.snap))
        return self._topics[1]

    @property
    def topic(self) -> Topic:
        """What is asked for: what the person chose, while it can be, else what the state asks."""
        there = self.topics
        chosen = self.state.asking.topic
        return chosen if chosen in there else there[0]

    # --- what would be sent ----------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the prompt; the engine's part is loaded on the jobs' thread."""
        self.state.ready, self.state.problem, self.state.unanswered = None, "", False
        desk, asking, topic = self.owner.open_desk, self.state.asking, self.topic
        about = self.snap.state

        def work() -> Ready:
            from cubridge_tui.model_desk import prepare

            return prepare(desk, asking, topic)

        def done(outcome: Outcome) -> None:
            if outcome.error is not None:
                self.state.problem = in_app(outcome.error)
            elif outcome.value is not None:
                self.state.ready, self.state.about = outcome.value, about
            self.seen_at = self._now()
            if self.is_attached:
                self._showing = ""  # what would be sent is seen before it is
                self.present()

        self.cubridge.jobs.submit("prompt", work, done, quiet=True)
        self._tell()

    @staticmethod
    def _now() -> float:
        import time

        return time.monotonic()

    def _show_ready(self) -> None:
        self._showing = "ready"
        ready = self.state.ready
        if ready is not None:
            self.lower.show(ready_text(ready))
        elif self.state.problem:
            self.lower.show(no_server_text(self.state.problem))
        else:
            self.lower.show(PaneText((), "", "what would be sent", "making the prompt"))

    def do_model_prompt(self) -> None:
        """The prompt and the summary of what would be sent, in turns."""
        ready = self.state.ready
        if ready is None and self._stage() == "done":
            self._showing = ""
            self._prepare()
        elif ready is None:
            self.say("there is no prompt: nothing is configured to send it to; m does", "stale")
        elif self._showing == "prompt":
            self._show_ready()
        else:
            self._showing = "prompt"
            self.lower.show(prompt_text(ready.prompt, "the first prompt, whole"))

    def do_model_edit(self) -> None:
        from cubridge_tui.editor import edit_outside
        from cubridge_tui.model_desk import edited

        ready = self.state.ready
        assert ready is not None  # the action's condition
        before = ready.prompt[-1].text
        try:
            text = edit_outside(self.app, self.cubridge.config["editor"], before)
        except CuBridgeError as error:
            self.say(str(error).replace("\n", " "), "fail")
            return
        if text == before:
            self.say("the prompt came back unchanged")
            return
        self.state.asking = replace(self.state.asking, prompt=edited(ready.prompt, text))
        self.say("your prompt: s sends it; n, t or m make a new one")
        self._prepare()

    def _ask(self, **changes: Any) -> None:
        """Ask otherwise: a new prompt, and so another look at what would be sent."""
        self.state.asking = replace(self.state.asking, prompt=None, **changes)
        self._prepare()

    def do_model_topic(self) -> None:
        """The next thing that can be asked for."""
        there = self.topics
        following = there[(there.index(self.topic) + 1) % len(there)]
        self._showing = ""
        self._ask(topic=following)
        self.say(f"asks for {following.words}")

    def do_model_rounds(self) -> None:
        asking = self.state.asking

        def numbers(text: str) -> tuple[int, int] | None:
            parts = [p.strip() for p in text.split(",")]
            if len(parts) != 2 or not all(p.isdecimal() for p in parts):
                return None
            rounds, candidates = map(int, parts)
            fits = rounds <= MOST_ROUNDS and 1 <= candidates <= MOST_CANDIDATES
            return (rounds, candidates) if fits else None

        def check(text: str) -> str:
            limits = f"0 to {MOST_ROUNDS}, 1 to {MOST_CANDIDATES}"
            return "" if numbers(text) else f"two numbers, such as 3,1 ({limits})"

        def given(text: str | None) -> None:
            found = numbers(text or "")
            if found:
                self._ask(rounds=found[0], candidates=found[1])

        title = "Repairs after each first answer, and answers from scratch, at most:"
        value = f"{asking.rounds},{asking.candidates}"
        self.app.push_screen(Prompt(title, value, check), given)

    def do_model_server(self) -> None:
        asking = self.state.asking
        found = self.state.ready.settings if self.state.ready is not None else None
        url = asking.url or (found.base_url if found else "http://127.0.0.1:8000/v1")
        model = asking.model or (found.model if found else "")

        def check(text: str) -> str:
            return "" if len(text.split()) == 2 else "a base URL, a blank, a model's name"

        def given(text: str | None) -> None:
            if text:
                url, model = text.split()
                self._ask(url=url, model=model)

        self.app.push_screen(Prompt("Base URL and model:", f"{url} {model}", check), given)

    def do_model_words(self) -> None:
        live = self.state.live
        waits = live is not None and live.waiting is not None

        def given(text: str | None) -> None:
            if text is None:
                return
            if waits and live is not None:
                live.go_on(text)
                self._stream()
            else:
                self._ask(instruction=text)

        title = (
            "A line for the next round:" if waits else "What the model should mind, in your words:"
        )
        before = "" if waits else self.state.asking.instruction
        self.app.push_screen(Prompt(title, before), given)


def in_app(error: CuBridgeError) -> str:
    """An error in a line; a fix that is asked for here becomes the key that does it."""
    fix = error.fix or ""
    if fix.startswith(NAME_WHERE_ASKED):
        fix = "m names a server and a model"
    elif fix.startswith("export "):  # the app has the environment that it was started with
        fix = fix.removesuffix(", then try again") + " and start the app again, or m names a server"
    return " ".join(f"{error.said}; {fix}".removesuffix("; ").split())


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
