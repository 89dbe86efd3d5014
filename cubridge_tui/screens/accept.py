"""Accepting: what is committed, at which level, what was not run; then package and repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult

from cubridge_tui import actions
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.acceptance import acceptance_rows
from cubridge_tui.model.built import predictions
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.rows import PaneText, wrapped
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.screens.dialogs import Confirm, Prompt, TextDialog
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line
from cubridge_tui.widgets.stage_bar import StageBar
from engine.types import Level

if TYPE_CHECKING:
    from cubridge_tui.screens.adaptation.shared import Shared

# A folder with such a name is most likely a path that was typed onto another one.
FILES = frozenset({".cu", ".cuh", ".h", ".hpp", ".c", ".cc", ".cpp", ".py", ".cuir", ".txt", ".md"})


class AcceptScreen(ActionScreen):
    """Nothing is accepted without its level, and nothing by a key that could not have seen it."""

    NAME = actions.ACCEPT
    BINDINGS = bindings(actions.ACCEPT)

    def __init__(self, parent: Shared) -> None:
        super().__init__()
        self.adaptation = parent
        self.predicted: list[str] = []
        self._only_predicts = False  # what runs adds lines to the page and changes nothing else

    @property
    def snap(self) -> Snapshot:
        assert self.adaptation.snap is not None
        return self.adaptation.snap

    def compose(self) -> ComposeResult:
        yield StageBar(id="stages")
        yield Banner(id="banner")
        yield Line(id="decision")
        yield CodePane(id="summary")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self.fill()
        self.query_one(CodePane).focus()
        target, lifted, recipe = self.snap.target, self.snap.lifted, self.snap.recipe
        binding = self.snap.binding
        if target is not None and lifted is not None:
            self._only_predicts = True
            self.cubridge.jobs.submit(
                "predict", lambda: predictions(target, lifted, recipe, binding), self._predicted,
                quiet=True,
            )  # fmt: skip

    def changes(self) -> bool:
        return super().changes() and not self._only_predicts

    def _predicted(self, outcome: Outcome) -> None:
        self._only_predicts = False
        if isinstance(outcome.value, list) and self.is_attached:
            self.predicted = outcome.value
            self._show_rows()

    def facts(self) -> Facts:
        return self.adaptation.facts()

    def fill(self) -> None:
        snap = self.snap
        state = snap.state
        done = state.acceptance is not None and state.acceptance_is_current
        self._show_bar()
        changed = f"The {snap.changed} changed on disk since this session took it in"
        self.query_one(Banner).say(
            f"{changed}: what is accepted is for the one it took in; esc, then ! takes it in"
            if snap.changed
            else ""
        )
        if done:
            words = [(" Accepted ", "pass"), (f"at {state.accepted_level}: ", "title"),
                     ("w", "key"), (" writes the package, ", "dim"), ("C", "key"),
                     (" commits it to a repository", "dim")]  # fmt: skip
        elif state.level is Level.NONE:
            words = [(" Nothing to accept: ", "fail"), (self.facts().accept_blocked, "dim")]
        else:
            words = [(" Next: ", "dim"), ("A", "key"), (f"  accept at {state.level}", "title")]
        self.query_one("#decision", Line).put(words)
        self._show_rows()
        self.refresh_keys()

    def _show_rows(self) -> None:
        """What is accepted: its words wrapped, the lines of the patch as they are."""
        rows = acceptance_rows(self.snap, self.predicted)
        patch = next(i for i, r in enumerate(rows) if r.text.startswith("the patch:"))
        width = max(self.size.width - 3, 20)
        words = [piece for row in rows[:patch] for piece in wrapped(row, width)]
        content = PaneText([*words, *rows[patch:]], "diff", "what is accepted")
        self.query_one(CodePane).show(content)

    def job_news(self) -> None:
        if self.cubridge.jobs.running:
            self.say(f"{self.cubridge.jobs.running} {self.cubridge.jobs.line}")

    def on_resize(self) -> None:
        if self.adaptation.snap is not None and self.is_mounted:
            self._show_bar()
            self._show_rows()

    def _show_bar(self) -> None:
        bar, snap = self.query_one(StageBar), self.snap
        bar.show(snap.state, snap.title, self.size.width or 120)

    # --- actions ---------------------------------------------------------------------------------

    def do_confirm(self) -> None:
        if self.too_soon():
            return
        self._job("accept", self.adaptation.open_desk.accept, "accepted")

    def _job(self, name: str, work: object, words: str) -> None:
        def done(outcome: Outcome) -> None:
            if isinstance(outcome.value, Snapshot):
                self.adaptation.show(outcome.value)
            if not self.is_attached:
                self._said_elsewhere(outcome, words)
                return
            self.fill()
            if outcome.error is not None:
                # A fix is a command to type: all of it is shown, however long it is.
                self.say(outcome.error.message, "fail")
                lines = str(outcome.error).split("\n")
                self.app.push_screen(TextDialog(f"{name} did not work", lines))
            else:
                told = outcome.value if isinstance(outcome.value, str) else words
                self.say(told, "pass")

        assert callable(work)
        self._only_predicts = False
        self.say(f"{name}: under way", "dim")
        self.cubridge.jobs.submit(name, work, done, quiet=True, keeps=True)

    def _said_elsewhere(self, outcome: Outcome, words: str) -> None:
        """The person left while it was done: the page that is there now says what came of it."""
        told = outcome.value if isinstance(outcome.value, str) else words
        wrong = f"{outcome.name} did not work: {outcome.error}".replace("\n", " ")
        self.cubridge.say(wrong if outcome.error else told, "fail" if outcome.error else "pass")

    def do_write_package(self) -> None:
        desk = self.adaptation.open_desk

        def write(folder: Path) -> str:
            from engine.service.session.package_export import export_session

            return f"the package is in {export_session(desk.work, folder)}"

        def given(text: str | None) -> None:
            if text:
                self._job("package", lambda: write(Path(text).expanduser()), "")

        default = str(self._folder())
        self.app.push_screen(Prompt("Write the kernel package to this folder:", default), given)

    def do_commit_to_repository(self) -> None:
        self._ask_where(str(self._folder()))

    def _folder(self) -> Path:
        """The folder that a package is written to unless the person names another."""
        from engine.service.session.package_export import package_name

        return Path.cwd() / package_name(self.snap.session)

    def _ask_where(self, default: str) -> None:
        title = "Commit the package into your own repository as this folder (or one .cu):"
        self.app.push_screen(Prompt(title, default, unfit), self._commit_as)

    def _commit_as(self, text: str | None) -> None:
        if text is None:
            return
        path = Path(text.strip()).expanduser()

        def answered(yes: bool | None) -> None:
            if yes:
                self._show_plan(path)
            else:
                self._ask_where(text)

        odd = odd_parent(path)
        if odd is None:
            self._show_plan(path)
        else:
            self.app.push_screen(
                Confirm(f"{odd.name} looks like a file's name: make a folder of it?"), answered
            )

    def _show_plan(self, path: Path) -> None:
        from cubridge_tui.screens.commit import CommitScreen

        self.app.push_screen(CommitScreen(self.adaptation, path))

    def do_close(self) -> None:
        self.dismiss(None)
        if job := self.cubridge.jobs.keeping:  # the page below says so, and what comes of it
            self.cubridge.say(f"{job}: under way")


def unfit(text: str) -> str:
    """Why a typed path cannot be the folder or file to commit as; empty where it can."""
    if not text.strip():
        return "a path is needed, such as kernels/softcap"
    path = Path(text.strip()).expanduser()
    if path.is_dir() and not (path / "verdicts.json").is_file() and any(path.iterdir()):
        return f"{path.name or path} is a folder with other files: name a new one in it"
    file = next((parent for parent in path.parents if parent.is_file()), None)
    return f"{file.name} is a file: nothing can be put below it" if file is not None else ""


def odd_parent(path: Path) -> Path | None:
    """The innermost folder of a path that is not there yet and whose name is like a file's."""
    return next((p for p in path.parents if p.suffix in FILES and not p.exists()), None)
