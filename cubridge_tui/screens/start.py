"""The start screen: kernels, specs and saved sessions; the next key is always on the screen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import wrap

from textual.app import ComposeResult
from textual.containers import Vertical

from cubridge_tui import actions
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.lists import Lists, read_lists
from cubridge_tui.model.rows import PaneText
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import Banner, KeyBar, Line
from engine.errors import StoreError

LISTS = ("kernels", "specs", "sessions")
NARROW = 100  # columns in which the words of a spec need two lines
LEAST_ROWS = 3  # of a list, however little it holds


class StartScreen(ActionScreen):
    """Choose a kernel and a spec, or go on with a session."""

    NAME = actions.START
    BINDINGS = bindings(actions.START)
    DEFAULT_CSS = """
    StartScreen #lists { height: 1fr; }
    StartScreen #sessions { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.lists = Lists()
        self._starting = False
        self._words = ""  # looked for last
        self._told: tuple[object, ...] = ()  # what the words on the screen are about
        self._deleted = ""  # the session that was deleted last, here
        self._shown_at_once = False  # the first resume, which follows the mount, reads nothing anew

    def compose(self) -> ComposeResult:
        yield Line(id="stages")
        yield Banner(id="banner")
        yield Line(id="decision")
        with Vertical(id="lists"):
            for name in LISTS:
                yield CodePane(id=name)
        yield Line(id="about")
        yield Line(id="more")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self.query_one("#stages", Line).put(
            [
                (" CuBridge ", "title"),
                (" carry an expert attention kernel over to a new variant", "dim"),
            ]
        )
        self._read()
        sessions = bool(self.lists.sessions)
        self.query_one("#sessions" if sessions else "#specs", CodePane).focus()
        if self.cubridge.warnings:
            self.say(self.cubridge.warnings[0] + " (L shows all)", "stale")
        self.refresh_keys()

    def on_resize(self) -> None:
        self._divide()

    def _divide(self) -> None:
        """The rows among the lists by what they hold: kernels and sessions first, then specs."""
        counts = {name: len(self.lists.rows(name)) for name in LISTS}
        narrow = self.size.width < NARROW
        self.query_one("#more").display = narrow
        room = self.size.height - 5 - narrow  # the other lines of the screen
        kernels = min(counts["kernels"], max(room // 4, 1)) + 1
        sessions = max(counts["sessions"], LEAST_ROWS) + 1
        specs = max(room - kernels - sessions, (room - kernels) // 2)
        self.query_one("#kernels").styles.height = kernels
        self.query_one("#specs").styles.height = max(min(specs, counts["specs"] + 1), LEAST_ROWS)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        if self._shown_at_once:
            self._read()
        self._shown_at_once = True

    def facts(self) -> Facts:
        session = self.lists.session(self._at("sessions"))
        kernel, spec = self.lists.kernel(self._at("kernels")), self.lists.spec(self._at("specs"))
        return Facts(
            job=self.cubridge.jobs.running,
            session=session.id if session is not None else "",
            deleted=self._deleted,
            on_sessions=self.focused is not None and self.focused.id == "sessions",
            pair_blocked=self.lists.pair_blocked(kernel, spec),
        )

    # --- lists -----------------------------------------------------------------------------------

    def do_refresh(self) -> None:
        self._read()
        counts = [f"{len(self.lists.rows(name))} {name}" for name in LISTS]
        self.say(f"looked again: {', '.join(counts)}")

    def _read(self) -> None:
        self.lists = read_lists(self.cubridge.listing, Path.cwd())
        for name in LISTS:
            pane = self.query_one(f"#{name}", CodePane)
            pane.show(
                PaneText(self.lists.rows(name), "", self.lists.title(name), self.lists.empty(name))
            )
        self.query_one(Banner).say(self.lists.problem)
        self._divide()
        self._tell()

    def _at(self, name: str) -> int:
        return self.query_one(f"#{name}", CodePane).cursor

    def _tell(self) -> None:
        """The next decision, in words with its key."""
        focused = self.focused.id if self.focused is not None else ""
        told = (focused, *map(self._at, LISTS), self.lists, self.size.width)
        if told == self._told:
            return
        self._told = told
        kernel, spec = self.lists.kernel(self._at("kernels")), self.lists.spec(self._at("specs"))
        if focused == "sessions" and self.lists.session(self._at("sessions")) is not None:
            parts = [(" Next: ", "dim"), ("enter", "key"), (" opens the session as left", "title")]
            if kernel and spec and not spec.problem:
                parts += [("; ", "dim"), ("s", "key"), (f" adapts {kernel} to {spec.label}", "dim")]
            else:
                parts.append(("; tab to begin another", "dim"))
        elif kernel and spec and spec.problem:
            parts = [
                (" Next: ", "dim"), ("r", "key"), (" looks again, once ", "title"),
                (f"{spec.label} is mended: it {spec.problem}", "fail"),
            ]  # fmt: skip
        elif kernel and spec:
            words = f" adapts {kernel} to {spec.label}"
            parts = [
                (" Next: ", "dim"),
                ("s", "key"),
                (words, "title"),
                ("; tab changes lists", "dim"),
            ]
        else:
            parts = [(" there is nothing to adapt here", "dim")]
        self.query_one("#decision", Line).put(parts)
        width = max(self.size.width - 2, 20)
        about = wrap(self.lists.about(focused or "", self._at), width if width < NARROW else 10**6)
        for name, words in zip(("about", "more"), (*about, "", ""), strict=False):
            self.query_one(f"#{name}", Line).put([(f" {words}", "dim")])
        self.refresh_keys()

    def on_code_pane_cursor_moved(self) -> None:
        self._tell()

    def job_news(self) -> None:
        if self.cubridge.jobs.running:
            self.say(f"{self.cubridge.jobs.running}: {self.cubridge.jobs.line}")

    # --- actions ---------------------------------------------------------------------------------

    def do_next_list(self) -> None:
        self._focus(1)

    def do_previous_list(self) -> None:
        self._focus(-1)

    def _focus(self, step: int) -> None:
        names = list(LISTS)
        here = self.focused.id if self.focused is not None else names[0]
        index = names.index(here) if here in names else 0
        self.query_one(f"#{names[(index + step) % 3]}", CodePane).focus()

    def _opens(self) -> bool:
        """Whether a session is on its way already: a second one would stand behind it."""
        if self._starting:
            self.say("it is being opened already", "stale")
        return self._starting

    def do_find(self) -> None:
        from cubridge_tui.screens.dialogs import Prompt

        title = "Find in the three lists (small letters match both):"
        self.app.push_screen(Prompt(title, self._words), self._find)

    def _find(self, words: str | None) -> None:
        """To the next row that has the words, after the cursor and then from the first list on."""
        if not words:
            return
        self._words = words
        names = [*LISTS]
        here = self.focused.id if self.focused is not None else None
        begin = (names.index(here), self._at(here)) if here in names else (0, -1)
        fold = words == words.lower()
        found = [
            (place, index)
            for place, name in enumerate(names)
            for index, row in enumerate(self.lists.rows(name))
            if words in (row.text.lower() if fold else row.text)
        ]
        if not found:
            self.say(f"no kernel, spec or session has {words!r}", "stale")
            return
        place, index = next((f for f in found if f > begin), found[0])
        pane = self.query_one(f"#{names[place]}", CodePane)
        pane.focus()
        pane.go_to(index, centre=False)
        self._tell()
        many = f", 1 of {len(found)}: / and enter go to the next" if len(found) > 1 else ""
        self.say(f"found in {names[place]}{many}")

    def do_open(self) -> None:
        if self._opens():
            return
        if self.focused is not None and self.focused.id == "sessions":
            session = self.lists.session(self._at("sessions"))
            assert session is not None  # the action's condition
            self.cubridge.open_session(session.id)
        else:
            self.do_begin()

    def do_begin(self) -> None:
        kernel, spec = self.lists.kernel(self._at("kernels")), self.lists.spec(self._at("specs"))
        if self._opens():
            return
        assert spec is not None  # the action's condition
        self.choose(kernel, spec.path, spec.label)

    def choose(self, kernel: str, spec: Path, label: str) -> None:
        """Open a new session: a kernel by its name or folder, and a spec."""
        self._starting = True

        def choose() -> object:
            from cubridge_tui import desk

            return desk.choose(kernel, spec)

        self.say(f"opening: {kernel} with {label}")
        self.cubridge.jobs.submit("start", choose, self._begun, quiet=True)

    def do_bring(self) -> None:
        from cubridge_tui.screens.bring import Bringing

        Bringing(self, self.lists.specs).begin()

    def do_bring_cancel(self) -> None:
        self.cubridge.jobs.stop()

    def _begun(self, outcome: Outcome) -> None:
        self._starting = False
        if outcome.error is not None:
            self.say(str(outcome.error).replace("\n", " "), "fail")
        elif outcome.value is not None:
            self.cubridge.open_session(outcome.value)

    def do_replay(self) -> None:
        if self._opens():
            return
        session = self.lists.session(self._at("sessions"))
        assert session is not None  # the action's condition
        self.cubridge.open_replay(session.id)

    # --- names and what is put aside -------------------------------------------------------------

    def do_rename(self) -> None:
        session = self.lists.session(self._at("sessions"))
        assert session is not None  # the action's condition
        from cubridge_tui.screens.dialogs import Prompt
        from sessions.ids import title_problem

        prompt = Prompt(
            f"A new title for {session.id} (its id stays):", session.title,
            check=title_problem,
        )  # fmt: skip
        self.app.push_screen(prompt, lambda title: self._rename(session.id, title))

    def _rename(self, session: str, title: str | None) -> None:
        store, actor = self.cubridge.store, self.cubridge.actor

        def rename() -> None:
            from sessions.events import TitleSet

            with store.writer(session) as writer:
                writer.append([TitleSet(title or "")], actor=actor)

        if title:
            self._change("rename", f"{session} is called {title!r} now", rename)

    def do_delete(self) -> None:
        session = self.lists.session(self._at("sessions"))
        assert session is not None  # the action's condition
        store = self.cubridge.store
        key = actions.key_of("restore", self.cubridge.actions)
        self._deleted = session.id  # from now on: `u` may be typed before it is done

        def delete() -> None:
            try:
                store.delete(session.id)
            except StoreError:
                self._deleted = ""
                raise

        self._change("delete", f"{session.id} is deleted: {key} restores it", delete)

    def do_restore(self) -> None:
        store, session = self.cubridge.store, self._deleted

        def restore() -> None:
            store.restore(session)
            if self._deleted == session:  # else another one was deleted meanwhile
                self._deleted = ""

        self._change("restore", f"{session} is there again", restore)

    def _change(self, name: str, done: str, work: Callable[[], None]) -> None:
        """Change a session on the jobs' thread; the list as it is then."""

        def ended(outcome: Outcome) -> None:
            if not self.is_attached:
                return
            self._read()
            if outcome.error is not None:
                self.say(str(outcome.error).replace("\n", " "), "fail")
            else:
                self.say(done)

        self.cubridge.jobs.submit(name, work, ended, quiet=True, keeps=True)
