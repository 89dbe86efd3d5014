"""Bringing a CUDA kernel that others wrote: a source and its reference are chosen, `cubridge
import` runs beside the app and its words are shown; a kernel whose G1 passed begins a session."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding

from cubridge_tui.headless_foreign import ARCH
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.lists import Spec, files_below, specs_among
from cubridge_tui.screens.dialogs import Prompt, TextDialog
from cubridge_tui.screens.picker import Picker
from engine.errors import InputError
from engine.files import read_text
from engine.service.upkeep.own_command import Finished, run_cubridge

if TYPE_CHECKING:
    from cubridge_tui.screens.start import StartScreen

MOST_SOURCES = 500
_PLACE = re.compile(r"\s*(?:the other access: )?(\S.*?):(\d+)\b")  # of a finding: file and line


class Bringing:
    """One import, from the question which source to the session about it."""

    def __init__(self, screen: StartScreen, specs: Sequence[Spec]) -> None:
        self.screen = screen
        here = Path.cwd()
        files = files_below(here)
        self.sources = [str(f.relative_to(here)) for f in files if f.suffix == ".cu"][:MOST_SOURCES]
        known = {spec.path.resolve() for spec in specs}
        below = specs_among([f for f in files if f.suffix == ".py" and f.resolve() not in known],
                            here)  # fmt: skip
        self.specs = [spec for spec in (*below, *specs) if not spec.problem]
        self.words: list[str] = []

    def begin(self) -> None:
        self._pick("Import which CUDA source?", [(s, s) for s in self.sources], self._source)

    def _pick(
        self, title: str, rows: Sequence[tuple[str, str]], then: Callable[[str | None], None]
    ) -> None:
        self.screen.app.push_screen(Picker(title, rows, files=True), then)

    def _of_specs(self) -> list[tuple[str, str]]:
        return [(str(spec.path), f"{spec.label}  {spec.words}") for spec in self.specs]

    def _source(self, source: str | None) -> None:
        if source is None:
            return

        def referenced(path: str | None) -> None:
            if path is not None:
                words = ["import", source, "--reference", path, "--arch", ARCH]
                self._ask(shlex.join(words))

        title = f"What does {source} compute? Its reference:"
        self._pick(title, self._of_specs(), referenced)

    def _ask(self, command: str) -> None:
        """The command, for the person to add to, whole below the line that it is typed in."""
        prompt = Prompt(
            "cubridge runs this (add -I, -D, --launcher, --dtype, --nvcc, --sizes, --out):",
            command, check=_why_not, live=lambda text: f"cubridge {text}",
        )  # fmt: skip
        self.screen.app.push_screen(prompt, self._run)

    def _run(self, command: str | None) -> None:
        if command is None:
            return
        self.words = shlex.split(command)
        app = self.screen.cubridge

        def said(line: str) -> None:
            if not line.lstrip().startswith("fix:"):  # the reason, which stands before it
                app.jobs.progress(line)

        def work() -> Finished:
            return run_cubridge(self.words, app.cancel, said)

        app.jobs.submit("import", work, self._ended)

    def _ended(self, outcome: Outcome) -> None:
        if outcome.cancelled:
            self.screen.say("the import was stopped; nothing was written", "stale")
            return
        if outcome.error is not None:
            self.screen.say(str(outcome.error).replace("\n", " "), "fail")
            return
        done: Finished = outcome.value
        lines = done.output.rstrip("\n").split("\n")
        answers = [("s", "starts adapting it")] if done.ok else [("e", "changes the command")]
        title = "imported" if done.ok else "nothing was written; enter shows a finding's source"
        title = f"cubridge {self.words[0]}: {title}"
        dialog = Told(title, lines, answers=answers, at=-1)
        self.screen.app.push_screen(dialog, self._answered)

    def _answered(self, key: str | None) -> None:
        if key == "e":
            self._ask(shlex.join(self.words))
        elif key == "s":
            folder = imported_folder(self.words)

            def adapt(path: str | None) -> None:
                if path is not None:
                    self.screen.choose(folder, Path(path), Path(path).stem)

            self._pick(f"Adapt {folder} to which spec?", self._of_specs(), adapt)


class Told(TextDialog):
    """What the command said; enter on a line that begins with a place shows the source there."""

    BINDINGS = [
        Binding("enter", "source", "the source", show=False, priority=True),
    ]

    def action_source(self) -> None:
        row = self._rows[self.given_row].text if self.given_row >= 0 else ""
        place = _PLACE.match(row)
        try:
            text = read_text(Path(place[1]), "") if place else ""
        except InputError:
            text = ""
        if not place or not text:
            self.dismiss(None)
            return
        lines, at = text.split("\n"), int(place[2])
        shown = TextDialog(f"{place[1]}:{at}", lines, "cuda", at=min(at, len(lines)) - 1)
        self.app.push_screen(shown)


def imported_folder(words: Sequence[str]) -> str:
    """The folder that `cubridge` with these words has written."""
    from cubridge_tui.commands import bring
    from cubridge_tui.parsing import Parser

    parser = Parser(prog="cubridge import")
    bring.configure(parser)
    return str(bring.folder_of(parser.parse_args(words[1:])).resolve())


def _why_not(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"not a command: {error}"
    return "" if words[:1] == ["import"] else "the command begins with import"
