"""The headless run's model: options, consent, narration. The app has its own screens for these."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge_tui.console import say
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.llm.settings import Prices
    from engine.llm.types import Client, Heard, Parameters
    from engine.service.adaptation import Adaptation
    from engine.service.llm import Consent, Outgoing, Result
    from engine.transfer.llm.loop import Attempt

MOST_ROUNDS, MOST_CANDIDATES = 20, 10


def add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --transfer llm")
    group.add_argument("--rounds", type=int, default=3, metavar="N", help="repairs at most")
    group.add_argument(
        "--candidates", type=int, default=1, metavar="M", help="answers from scratch at most"
    )
    group.add_argument("--model", help="the model's name (default: the config file's)")
    group.add_argument("--base-url", help="the server (default: $OPENAI_BASE_URL)")
    group.add_argument("--ask", metavar="TEXT", help="what the model should do, in your words")
    group.add_argument(
        "--example", action="append", metavar="SESSION", help="show the model that accepted edit"
    )
    group.add_argument("--record", metavar="DIR", help="keep every request and answer there")
    group.add_argument("--replay", metavar="DIR", help="answer from a recording, without a server")
    group.add_argument("--yes", action="store_true", help="send what the program says it will send")


def refuse_model_options(args: argparse.Namespace) -> None:
    """With the rules no model is asked: an option that would be ignored is a mistake."""
    for name in ("model", "base_url", "ask", "example", "record", "replay", "yes"):
        if getattr(args, name):
            option = "--" + name.replace("_", "-")
            raise InputError(
                f"{option} asks for a model", fix="add --transfer llm, or leave it out"
            )


def check_model(args: argparse.Namespace) -> None:
    """Whether the options make sense, before anything is started. Raises `InputError`."""
    if not 0 <= args.rounds <= MOST_ROUNDS:
        raise InputError(f"--rounds {args.rounds}: 0 to {MOST_ROUNDS}")
    if not 1 <= args.candidates <= MOST_CANDIDATES:
        raise InputError(f"--candidates {args.candidates}: 1 to {MOST_CANDIDATES}")
    _client(args)


def run_model(work: Adaptation, args: argparse.Namespace) -> Result:
    """Let the model propose. Raises `InputError` when the person did not agree."""
    from engine.service.llm import ModelTransfer, Wish, accepted_example

    client, model, parameters, prices = _client(args)
    narrate = _Narrator(args.quiet)
    transfer = ModelTransfer(
        work, client, model, _consent(args), parameters,
        listen=narrate.heard, on_attempt=narrate.attempt,
    )  # fmt: skip
    store = work.bench.store
    examples = tuple(accepted_example(store.load(name)) for name in args.example or ())
    result = transfer.run(args.rounds, args.candidates, Wish(args.ask or "", examples=examples))
    say(f"model: {len(result.attempts)} answers, {result.cost(prices)}")
    return result


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
                say(f"  again in {heard.seconds:.0f} s: {heard.text}")
            case "note":
                say(f"  {heard.text}")
            case _:
                self.size += len(heard.text)
                if now - self.last >= 2.0:
                    say(f"  the model has written {self.size} characters")
                    self.last = now

    def attempt(self, attempt: Attempt) -> None:
        word = "passes" if attempt.passed else attempt.reached.name.lower()
        say(f"  answer {attempt.id}: {word}: {attempt.reason}")
