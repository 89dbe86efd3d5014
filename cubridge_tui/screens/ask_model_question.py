"""What a model will be asked: topic, words, server, how often; shown before it is sent."""

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
from cubridge_tui.screens.ask_model_words import in_app
from cubridge_tui.screens.base import ActionScreen
from cubridge_tui.screens.dialogs import Prompt
from cubridge_tui.widgets.code_pane import CodePane
from engine.errors import CuBridgeError

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
