"""The `cubridge` command: one table of commands, each imported only when it is the one asked for.

A command is a module in `cubridge_tui/commands/` with `configure(parser)` and `run(args) -> int`,
and a line in its table `COMMANDS`. `--json` prints one object on standard output; standard error is
narration. Exit codes: 0 all gates that ran passed, 1 a gate failed, 2 wrong usage or input,
3 something is missing on this machine, 130 interrupted.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import TYPE_CHECKING

from cubridge_tui import __version__
from cubridge_tui.commands import COMMANDS

if TYPE_CHECKING:
    import argparse

OURS = ("engine", "sessions")  # packages beside this one
USAGE_ERROR = 2
INTERRUPTED = 130
# What a shell reports for a program that SIGPIPE ended: nobody reads our output any more.
READER_GONE = 128 + 13
# EX_SOFTWARE of sysexits.h: a fault of ours, told apart from the contract's codes.
INTERNAL_ERROR = 70

# What the app itself takes: option, its value (empty: none), what it does.
APP_OPTIONS = (
    ("--store", "STORE", "the folder where sessions are kept (else $CUBRIDGE_STORE, else XDG)"),
    ("--session", "ID", "open this session, as it was left"),
    ("--theme", "NAME", "dark, light, high_contrast, colour_blind, or one of your own"),
    ("--no-mouse", "", "leave the mouse to the terminal"),
)


def app_parser() -> argparse.ArgumentParser:
    """What `cubridge` takes without a command."""
    from cubridge_tui.parsing import Parser

    parser = Parser(prog="cubridge", description="the app")
    for name, value, words in APP_OPTIONS:
        if value:
            parser.add_argument(name, metavar=value, help=words)
        else:
            parser.add_argument(name, action="store_true", help=words)
    return parser


def usage() -> str:
    """What `--help` says: the commands, and the options that the app takes."""
    from cubridge_tui.console import typeable

    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    options = [f"  {f'{name} {value}':<15}{words}" for name, value, words in APP_OPTIONS]
    return "\n".join(
        [
            "usage: cubridge [OPTIONS]                      the app",
            "       cubridge [--version] [--help] COMMAND ...",
            "",
            "Carry an expert CUDA attention kernel over to a new variant, one reviewed and proven",
            "step at a time.",
            "",
            "commands:",
            *lines,
            "",
            "options of the app:",
            *options,
            "",
            typeable("`cubridge adapt --help` tells more about one command, and so do the others."),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; no exception leaves this function."""
    words = sys.argv[1:] if arguments is None else arguments
    _open_missing_streams()
    if other := namesake():
        print(other, file=sys.stderr)
        return USAGE_ERROR
    try:
        code = dispatch(words)
        sys.stdout.flush()
        return _written(code)
    except BrokenPipeError:
        # The interpreter flushes once more at exit; give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except KeyboardInterrupt:
        print("cubridge: interrupted", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as stop:  # argparse, after --help or a usage error
        return stop.code if isinstance(stop.code, int) else USAGE_ERROR
    except Exception as error:
        return report(error, words)


def namesake() -> str:
    """What to say where Python would take another package for one of ours (PYTHONPATH comes before
    what is installed, and our names are short); empty where it does not."""
    from importlib.util import find_spec

    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in OURS:
        found = find_spec(name)
        place = found.origin if found is not None else None
        folder = os.path.dirname(os.path.dirname(place)) if place else None
        if folder is None or os.path.realpath(folder) != os.path.realpath(ours):
            return (
                f"cubridge: Python finds another package `{name}` before ours: {place or 'none'}\n"
                f"  fix: take its folder out of PYTHONPATH, e.g. `env -u PYTHONPATH cubridge ...`"
            )
    return ""


def _written(code: int) -> int:
    """The exit code, not 0 where a result was written to a standard output that is closed."""
    if code == 0 and isinstance(sys.stdout, _Nowhere) and sys.stdout.lost:
        print(
            "cubridge: standard output is closed: the result was not written\n"
            "  fix: leave it open, or send it to a file",
            file=sys.stderr,
        )
        return USAGE_ERROR
    return code


class _Nowhere(io.StringIO):
    """Stands for a standard output that was closed: keeps nothing, but knows that it was asked."""

    lost = False

    def write(self, text: str) -> int:
        self.lost = self.lost or bool(text)
        return len(text)

    def fileno(self) -> int:
        return 1  # which goes nowhere, too


def dispatch(words: list[str]) -> int:
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name in ("--version", "-V"):
        print(f"cubridge {__version__}")
        return 0
    if name in ("--help", "-h", "help"):
        print(usage())
        return 0
    if not words or name.startswith("--"):
        return start_app(words)
    if name not in COMMANDS:
        from cubridge_tui.console import say
        from engine.errors import advice

        fix = advice(name, COMMANDS, "`cubridge --help` lists them")
        say(f"cubridge: there is no command {name!r}\n  fix: {fix}")
        return USAGE_ERROR

    import importlib

    from cubridge_tui.parsing import Parser

    module_name, summary = COMMANDS[name]
    command = importlib.import_module(module_name)
    parser = Parser(prog=f"cubridge {name}", description=summary)
    command.configure(parser)
    code: int = command.run(parser.parse(rest))
    return code


def start_app(words: list[str]) -> int:
    """The app, on a terminal; without one, a pointer to the headless command."""
    # Without options there is nothing to parse, and 8 ms of the first frame to save.
    taken = vars(app_parser().parse_args(words)) if words else {}
    why = no_terminal()
    if why:
        from cubridge_tui.console import say

        say(f"cubridge: {why}; without one: cubridge adapt --kernel K --spec S")
        return USAGE_ERROR
    # What is loaded now stays: the collector would only walk it, over and over. `steady` has it
    # look again, at what comes later.
    gc.disable()
    from cubridge_tui.app import run

    given = {"theme": taken.get("theme"), "mouse": False if taken.get("no_mouse") else None}
    code = run(taken.get("store"), taken.get("session"), given)
    # All is saved and every child has ended: taking the interpreter apart would only keep the
    # person waiting, for longer than all the rest of quitting.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def no_terminal() -> str:
    """Why the app cannot be shown here; empty where it can."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        # Textual draws on standard error: redirected, the screen would stay empty.
        return "the app needs a terminal for standard input, output and error"
    if os.environ.get("TERM") == "dumb":
        return (
            "the app needs a terminal that can place text, and TERM=dumb says that this one cannot "
            "(where it can: export TERM=xterm-256color)"
        )
    return ""


def _open_missing_streams() -> None:
    """Started with a stream closed, what would go there goes nowhere.

    Else narration would turn up on standard output, and the next file opened would be stream 1.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            made = os.open(os.devnull, os.O_RDWR)
            if made != number:
                os.dup2(made, number)
                os.close(made)
            stream = _Nowhere() if number == 1 else open(number, mode, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def report(error: Exception, words: list[str]) -> int:
    """One clear message on standard error, and the exit code that belongs to it.

    `words` are the command line, which is to be typed again where only room was missing.
    """
    from cubridge_tui.console import say
    from engine.errors import CuBridgeError

    if isinstance(error, CuBridgeError):
        say(f"cubridge: {error}{_again(error, words)}")
        return error.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        say(f"cubridge: {error.filename}: {error.strerror}")
        return USAGE_ERROR
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        say(
            "cubridge: there is no space left for what is written\n"
            "  fix: free space on that disk, or send standard output elsewhere"
        )
        return USAGE_ERROR
    if os.environ.get("CUBRIDGE_TRACEBACK"):
        import traceback

        say(traceback.format_exc())
    say(
        f"cubridge: internal error: {type(error).__name__}: {error}\n"
        "  fix: this is a fault of CuBridge; run again with CUBRIDGE_TRACEBACK=1 and report it"
    )
    return INTERNAL_ERROR


def _again(error: Exception, words: list[str]) -> str:
    """The command to type once the store's disk has room; empty for other errors."""
    import shlex

    from sessions.git_store import DiskFull

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DiskFull):
        cause = cause.__cause__
    return f", then type: cubridge {shlex.join(words)}" if cause is not None and words else ""
