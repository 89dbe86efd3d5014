"""The headless run's model: options, consent, narration. The app has its own screens for these."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import say
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.llm.settings import Prices
    from engine.llm.types import Client, Heard, Parameters
    from engine.service.models.llm_conversation import Consent, Outgoing, Result
    from engine.service.session.adaptation import Adaptation
    from engine.transfer.llm.editing import Edit
    from engine.transfer.llm.loop import Attempt

MOST_ROUNDS, MOST_CANDIDATES = 20, 10
ROUNDS, CANDIDATES = 3, 1  # where none are named
STOP = "/stop"
_OPTIONS = (
    "rounds", "candidates", "model", "base_url", "ask", "record", "replay", "yes", "steer",
)  # fmt: skip


def add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with a model (--lift, --transfer or --lower llm)")
    group.add_argument(
        "--lift", choices=["catalogue", "llm"], default="catalogue",
        help="who gives meanings to ops that the catalogue does not know",
    )  # fmt: skip
    group.add_argument(
        "--lower", choices=["templates", "llm"], default="templates",
        help="who writes into the source what the templates cannot",
    )  # fmt: skip
    group.add_argument(
        "--rounds", type=int, metavar="N", help=f"repairs at most (default: {ROUNDS})"
    )
    group.add_argument(
        "--candidates", type=int, metavar="M",
        help=f"answers from scratch at most (default: {CANDIDATES})",
    )  # fmt: skip
    group.add_argument("--model", help="the model's name (default: the config file's)")
    group.add_argument("--base-url", help="the server (default: $OPENAI_BASE_URL)")
    group.add_argument("--ask", metavar="TEXT", help="what the model should do, in your words")
    group.add_argument(
        "--steer", action="store_true",
        help=f"read a line for the model after every failed answer; {STOP} ends the rounds",
    )  # fmt: skip
    group.add_argument("--record", metavar="DIR", help="keep every request and answer there")
    group.add_argument("--replay", metavar="DIR", help="answer from a recording, without a server")
    group.add_argument("--yes", action="store_true", help="send what the program says it will send")


def asks_a_model(args: argparse.Namespace) -> bool:
    return "llm" in (args.lift, args.transfer, args.lower)


def refuse_model_options(args: argparse.Namespace) -> None:
    """Where no model is asked, an option that would be ignored is a mistake."""
    for name in _OPTIONS:
        if getattr(args, name) not in (None, False):  # not given
            option = "--" + name.replace("_", "-")
            raise InputError(
                f"{option} asks for a model",
                fix="add --transfer llm (or --lift llm, --lower llm), or leave it out",
            )


class ModelRun:
    """The model of one headless run: what it is asked, said on standard error and kept as rows."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Raises `InputError` for options that make no sense, before anything is started."""
        self.rounds = ROUNDS if args.rounds is None else args.rounds
        self.candidates = CANDIDATES if args.candidates is None else args.candidates
        if not 0 <= self.rounds <= MOST_ROUNDS:
            raise InputError(f"--rounds {self.rounds}: 0 to {MOST_ROUNDS}")
        if not 1 <= self.candidates <= MOST_CANDIDATES:
            raise InputError(f"--candidates {self.candidates}: 1 to {MOST_CANDIDATES}")
        self.args = args
        self.client, self.model, self.parameters, self.prices = _client(args)
        self.attempts: list[dict[str, Any]] = []
        self.narrate = _Narrator(args.quiet)

    def transfer(self, work: Adaptation) -> Result[Edit]:
        """Let the model propose. Raises `InputError` when the person did not agree."""
        from engine.service.models.llm import ModelTransfer, Wish

        args = self.args
        transfer = ModelTransfer(
            work, self.client, self.model, _consent(args), self.parameters,
            listen=self.narrate.heard, on_attempt=self._kept("transfer"), steer=self._steer,
        )  # fmt: skip
        result = transfer.run(self.rounds, self.candidates, Wish(args.ask or ""))
        if not args.quiet:
            say(f"model: {len(result.attempts)} answers, {result.cost(self.prices)}")
        return result

    def give_meanings(self, work: Adaptation) -> tuple[bool, str]:
        """Let the model say what opaque ops mean and accept it: whether all three steps got
        through, and what came of them."""
        from engine.service.models.llm_lift import ModelLift
        from engine.service.session.meanings import decide_meanings
        from engine.transfer.llm.lifting import Step
        from engine.types import Decision, DecisionKind

        count = len(work.bare.opaque)
        if not count:
            return True, "no op is opaque"
        lift = ModelLift(
            work, self.client, self.model, _consent(self.args), self.parameters,
            listen=self.narrate.heard, steer=self._steer,
        )  # fmt: skip
        for step in Step:
            lift.on_attempt = self._kept(step.value, f"{step.value} ")
            result = lift.run(step, self.rounds, self.args.ask or "")
            if result.proposal is None:
                return False, f"{step.words}: {result.attempts[-1].reason}"
            decide_meanings(work, Decision(result.proposal.id, DecisionKind.ACCEPTED, work.actor))
        return True, f"{count - len(work.lifted.opaque)} of {count} opaque ops have a meaning now"

    def lower(self, work: Adaptation, why: str) -> str:
        """Let the model write the lowering and accept it: why there is none, or nothing."""
        from engine.service.models.llm_lower import ModelLower, accept_lowering

        lower = ModelLower(
            work, self.client, self.model, _consent(self.args), self.parameters,
            listen=self.narrate.heard, steer=self._steer,
            on_attempt=self._kept("lower", "lower "),
        )  # fmt: skip
        result = lower.run(why, self.rounds, self.args.ask or "")
        if result.proposal is None:
            return result.attempts[-1].reason
        accept_lowering(work, result.proposal)
        return ""

    # --- what is heard ---------------------------------------------------------------------------

    def _kept(self, asked_for: str, before: str = "") -> Callable[[Attempt[Any]], None]:
        """Keeps an attempt as a row, and says it with `before` before its id."""

        def keep(attempt: Attempt[Any]) -> None:
            self.attempts.append({"for": asked_for} | attempt.summary())
            self.narrate.attempt(f"{before}{attempt.id}", attempt.reached.word, attempt.reason)

        return keep

    def _steer(self, _: object) -> str | None:
        """The person's line for the next round: empty to go on without, None to stop."""
        if not self.args.steer:
            return ""
        if sys.stdin.isatty():
            print(f"a line for the model ({STOP} ends): ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().strip()
        return None if line == STOP else line


def _client(
    args: argparse.Namespace,
) -> tuple[Client, str, Parameters, Prices | None]:
    from engine.llm.record import Recorder, Replayer
    from engine.llm.settings import load_settings

    if args.replay:
        if args.record:
            raise InputError("--replay and --record exclude each other")
        replayer = Replayer(Path(args.replay))
        return replayer, args.model or replayer.model, replayer.parameters, None
    from engine.llm.client import ServerClient

    settings = load_settings(args.base_url, args.model)
    client: Client = ServerClient(settings)
    if args.record:
        client = Recorder(client, Path(args.record))
    return client, settings.model, settings.parameters, settings.prices


def _consent(args: argparse.Namespace) -> Consent:
    def consent(outgoing: Outgoing) -> bool:
        if args.replay:
            return True
        say("this will be sent " + outgoing.words())
        if args.yes:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        print("send it? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return consent


class _Narrator:
    """Progress of answers on standard error, a few lines each."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.size = 0
        self.last = 0.0

    def heard(self, heard: Heard) -> None:
        if self.quiet:
            return
        now = time.monotonic()
        match heard.kind.value:
            case "connecting":
                self.size = 0
            case "waiting":
                say(f"  again in {max(heard.seconds, 1.0):.0f} s: {heard.text}")
            case "note":
                say(f"  {heard.text}")
            case _:
                self.size += len(heard.text)
                if now - self.last >= 2.0:
                    say(f"  the model has written {self.size} characters")
                    self.last = now

    def attempt(self, name: str, reached: str, reason: str) -> None:
        if self.quiet:
            return
        word = "passes" if reached == "passed" else reached
        say(f"  answer {name}: {word}: {reason}")
