"""Bringing a CUDA kernel that others wrote: a source and its reference are chosen, `cubridge
import` runs beside the app and its words are shown; a kernel whose G1 passed begins a session."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge_tui.jobs import Outcome
from cubridge_tui.model.lists import Spec
from cubridge_tui.screens.dialogs import Prompt, TextDialog
from cubridge_tui.screens.picker import Picker
from engine.service.upkeep.own_command import Finished, run_cubridge

if TYPE_CHECKING:
    from cubridge_tui.screens.start import StartScreen

MOST_SOURCES = 500


def sources_in(folder: Path) -> list[str]:
    """The CUDA sources of a folder and below it, those of hidden folders left out."""
    found = (
        path.relative_to(folder)
        for path in sorted(folder.rglob("*.cu"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return [str(path) for path, _ in zip(found, range(MOST_SOURCES), strict=False)]


class Bringing:
    """One import, from the question which source to the session about it."""

    def __init__(self, screen: StartScreen, specs: Sequence[Spec]) -> None:
        self.screen = screen
        self.specs = [spec for spec in specs if not spec.problem]
        self.words: list[str] = []

    def begin(self) -> None:
        sources = sources_in(Path.cwd())
        if not sources:
            self.screen.say("no .cu file here or below: start cubridge where it is", "stale")
            return
        self._pick("Import which CUDA source?", [(s, s) for s in sources], self._source)

    def _pick(
        self, title: str, rows: Sequence[tuple[str, str]], then: Callable[[str | None], None]
    ) -> None:
        self.screen.app.push_screen(Picker(title, rows), then)

    def _of_specs(self) -> list[tuple[str, str]]:
        return [(str(spec.path), f"{spec.label}  {spec.words}") for spec in self.specs]

    def _source(self, source: str | None) -> None:
        if source is None:
            return

        def referenced(path: str | None) -> None:
            if path is not None:
                self._ask(f"import {shlex.quote(source)} --reference {shlex.quote(path)}")

        title = f"What does {source} compute? Its reference:"
        self._pick(title, self._of_specs(), referenced)

    def _ask(self, command: str) -> None:
        """The command, for the person to add to: -I, -D, --launcher, --arch, --sizes, --out."""
        prompt = Prompt(
            "cubridge runs this (add -I, -D, --launcher, --arch, --nvcc, --sizes, --out):", command,
            check=_why_not,
        )  # fmt: skip
        self.screen.app.push_screen(prompt, self._run)

    def _run(self, command: str | None) -> None:
        if command is None:
            return
        self.words = shlex.split(command)
        app = self.screen.cubridge

        def work() -> Finished:
            return run_cubridge(self.words, app.cancel, app.jobs.progress)

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
        title = f"cubridge {self.words[0]}: {'imported' if done.ok else 'nothing was written'}"
        dialog = TextDialog(title, lines, answers=answers, at_end=True)
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
