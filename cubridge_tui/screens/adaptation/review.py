"""Review: hunks, decisions, comments, edits in place and outside, the recipe, the export."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cubridge_tui.editor import edit_outside
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.explained import NOTHING, missing_words
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.next_step import owed, undecided
from cubridge_tui.model.page_pictures import write_page
from cubridge_tui.model.proposals import proposal_line, proposal_rows
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import WHOLE
from cubridge_tui.screens.adaptation.shared import Shared
from cubridge_tui.screens.dialogs import Confirm, Prompt, TextDialog
from cubridge_tui.screens.hunk_editor import HunkEditor
from cubridge_tui.screens.picker import Picker
from cubridge_tui.screens.recipe import RecipeScreen
from engine.errors import CuBridgeError
from engine.types import Decision, DecisionKind, Hunk, Origin


class ReviewActions(Shared):
    """Actions of the group Review."""

    def do_next_hunk(self) -> None:
        self._hunk(1)

    def do_previous_hunk(self) -> None:
        self._hunk(-1)

    def _hunk(self, step: int) -> None:
        """The next hunk in the leading pane; panes without any hand over to the one with some."""
        if not self.grid.leader.next_hunk(step):
            self.grid.lead(self.stage_to_decide())
            self.place_panes()
            if not self.grid.leader.next_hunk(step):
                self.say("there is no hunk to go to", "stale")
                return
        self.visit(self.current_key())

    # --- decisions -------------------------------------------------------------------------------

    def do_accept_hunk(self) -> None:
        self._decide(DecisionKind.ACCEPTED)

    def do_reject_hunk(self) -> None:
        self._decide(DecisionKind.REJECTED)

    def _decide(self, kind: DecisionKind) -> None:
        if self.too_soon("the hunk"):
            return
        name, desk = self.current_hunk(), self.open_desk
        made = self.snap.decision(name) if self.snap is not None else None
        if made is not None and made.kind is kind:  # nothing that undo would have to take back
            self.say(f"{name} is {kind} already: c comments, ] goes to the next hunk", "stale")
            return
        verb = "reject" if kind is DecisionKind.REJECTED else "accept"
        self.unless_accepted(
            f"{verb} {name}",
            lambda: self.keep(
                "decide", lambda: desk.decide(name, kind), lambda: self._decided(name)
            ),
        )

    def _decided(self, name: str = "") -> None:
        """On to the next hunk that has no decision; what cannot stand beside this one is said."""
        assert self.snap is not None
        left = undecided(self.snap.state)
        if left:
            self.to_undecided()
            words = f"{left} hunk{'s' * (left != 1)} left"
        else:
            words = f"every hunk is decided; {self._goes_on()}"
        told = [self.dropped_words("the hunk"), self._conflict(name)]  # keys meanwhile
        warned = "; ".join(w for w in told if w)
        self.say(f"{warned}; {words}" if warned else words, "stale" if warned else "dim")
        self.seen_at = time.monotonic()

    def _conflict(self, name: str) -> str:
        """Which hunks read names that a rejected one gives: that is said before a gate finds it."""
        snap = self.snap
        assert snap is not None
        made = snap.decision(name)
        if made is None and not name:  # many at once
            short = [h for p, h, d in snap.hunks if snap.missing(f"{p.id}/{h.id}")]
            return f"{', '.join(h.id for h in short)}: names of rejected hunks" if short else ""
        if made is None or made.kind is not DecisionKind.REJECTED:
            gone = snap.missing(name)
            return f"{name} {missing_words(gone)}" if gone else ""
        proposal = name.partition("/")[0]
        about = snap.explained.get(name, NOTHING)
        users: dict[str, list[str]] = {}
        for user, given in about.users:
            other = snap.decision(f"{proposal}/{user}")
            if other is None or other.kind is not DecisionKind.REJECTED:
                users.setdefault(user, []).append(given.removeprefix("args."))
        told = ", ".join(f"{user} reads its {', '.join(names)}" for user, names in users.items())
        return f"{name} rejected, but {told}: reject these too, or u" if told else ""

    def _goes_on(self) -> str:
        """The key of what comes next, in a few words."""
        assert self.snap is not None
        asks = owed(self.snap.state).action == "ask-model"
        return "M asks for the next step" if asks else "s runs the gate"

    def to_undecided(self) -> None:
        assert self.snap is not None
        open_ = {f"{p.id}/{h.id}" for p, h, d in self.snap.all_hunks if d is None}
        rows = self.grid.leader.content.rows
        count = len(rows)
        here = self.grid.leader.cursor
        for step in range(count):
            index = (here + step) % count
            if rows[index].hunk in open_ and rows[index].kind is RowKind.HEAD:
                self.grid.leader.go_to(index)
                self.visit(self.current_key())
                return

    def decide_all(self, decisions: Sequence[Decision], then: Callable[[str, str], None]) -> None:
        """Take decisions at one stroke; `then` is told what came of them, and in which style."""
        desk = self.open_desk

        def told() -> None:
            assert self.snap is not None
            left = undecided(self.snap.state)
            words = f"{left} left" if left else f"every hunk is decided; {self._goes_on()}"
            warned = self._conflict(decisions[0].target if len(decisions) == 1 else "")
            then(f"{warned}; {words}" if warned else words, "stale" if warned else "dim")

        verb = "reject" if decisions[0].kind is DecisionKind.REJECTED else "accept"
        what = decisions[0].target if len(decisions) == 1 else f"{len(decisions)} hunks"
        self.unless_accepted(
            f"{verb} {what}",
            lambda: self.keep("decide", lambda: desk.decide_all(decisions), told),
        )

    def do_hunks(self) -> None:
        """Every hunk in a list."""
        from cubridge_tui.screens.overview import OverviewScreen

        self.app.push_screen(OverviewScreen(self, self.current_hunk()))

    def to_hunk(self, name: str) -> None:
        """Where a hunk stands, in whichever pane."""
        self._went(name, "")

    def facts_at(self, hunk: str) -> Facts:
        """The state of the screen with the cursor on a hunk."""
        blocked = self.snap.blocked(hunk) if self.snap is not None else ""
        return replace(self.facts(), hunk=hunk, diff_blocked=blocked)

    def do_accept_origin(self) -> None:
        """Everything undecided of the origin under the cursor (of all, when it is on no hunk)."""
        if self.too_soon("the hunk"):
            return
        assert self.snap is not None
        found = self.snap.hunk(self.current_hunk())
        proposals = {p.id: p for p, _, d in self.snap.all_hunks if d is None}
        if found is not None:
            proposals = {k: p for k, p in proposals.items() if p.origin is found[0].origin}
        if not proposals:
            self.say("nothing of this origin is undecided", "stale")
            return
        rest = partial(self.open_desk.accept_rest, *proposals.values())
        self.unless_accepted(
            "accept what is undecided",
            lambda: self.keep("decide", rest, self._decided),
        )

    def do_undo(self) -> None:
        assert self.snap is not None
        what, desk, hunk = self.snap.undo_words, self.open_desk, self.snap.undo_hunk
        said = f"undone: {what}; U makes it again"
        self.unless_accepted(
            f"undo: {what.split(' (')[0]}",
            lambda: self.keep("undo", desk.undo, lambda: self._went(hunk, said)),
        )

    def do_redo(self) -> None:
        assert self.snap is not None
        what, desk, hunk = self.snap.redo_words, self.open_desk, self.snap.redo_hunk
        said = f"made again: {what}"
        self.unless_accepted(
            f"make again: {what.split(' (')[0]}",
            lambda: self.keep("redo", desk.redo, lambda: self._went(hunk, said)),
        )

    def _went(self, hunk: str, said: str) -> None:
        """Show where something was undone or made again: the hunk, in whichever pane it stands."""
        here = self.grid.focused_stage
        for stage in (here, *(s for s in self.grid.panes if s is not here)):
            rows = self.grid.panes[stage].content.rows
            heads = (i for i, r in enumerate(rows) if r.kind is RowKind.HEAD and r.hunk == hunk)
            index = next(heads, None) if hunk else None
            if index is not None:
                if stage is not here:
                    self.grid.lead(stage)
                    self.place_panes()
                self.grid.leader.go_to(index)
                self.visit(self.current_key())
                break
        self.say(said)
        self.seen_at = time.monotonic()

    def do_comment(self) -> None:
        """Say something of the hunk; whatever is decided of it, or open, stays so."""
        assert self.snap is not None
        name, desk = self.current_hunk(), self.open_desk
        found = self.snap.hunk(name)
        if found is None:
            self.say(f"{name} is of an earlier proposal: nothing is said of it any more", "stale")
            return
        said = self.snap.state.comment(found[0].id, found[1].id)
        made = self.snap.decision(name)
        stays = f"it stays {made.kind}" if made is not None else "it stays undecided"

        def given(text: str | None) -> None:
            if text is not None:
                words = f"{name}: comment {'kept' if text else 'taken back'}; {stays}"
                self.keep("comment", lambda: desk.comment(name, text), lambda: self.say(words))

        title = f"Comment on {name} ({stays}):"
        self.app.push_screen(Prompt(title, said.text if said is not None else ""), given)

    # --- editing ---------------------------------------------------------------------------------

    def _hunk_text(self, name: str) -> str:
        """The text to edit: the draft, else what stands, else what is proposed."""
        assert self.snap is not None
        draft = self.open_desk.builder.drafts.get(name)
        if draft is not None:
            return draft[0]
        decision = self.snap.decision(name)
        if decision is not None and decision.replacement is not None:
            return decision.replacement
        found = self.snap.hunk(name)
        return found[1].after if found is not None else ""

    def do_edit(self) -> None:
        assert self.snap is not None
        name = self.current_hunk()
        found = self.snap.hunk(name)
        if found is None:
            self._write_meaning(outside=False)
            return
        error = self.snap.drafts.get(name, ("", ""))[1]
        editor = HunkEditor(found[1], self._hunk_text(name), error)
        self.app.push_screen(editor, lambda text: self._edited(name, text))

    def do_edit_outside(self) -> None:
        name = self.current_hunk()
        if not name:
            self._write_meaning(outside=True)
            return
        before = self._hunk_text(name)
        try:
            text = edit_outside(self.app, self.cubridge.config["editor"], before)
        except CuBridgeError as error:
            self.say(str(error).replace("\n", " "), "fail")
            return
        if text == before:
            self.say("the text came back unchanged: nothing was decided")
        else:
            self._edited(name, text)

    def _write_meaning(self, outside: bool) -> None:
        """The meaning of the opaque op under the cursor, by hand: what stands of it to begin."""
        op, desk = self.current_opaque(), self.open_desk
        if op is None:
            return
        begun: list[tuple[str, str]] = []

        def given(text: str | None) -> None:
            if text is None:
                return
            desk.builder.drafts[op.id] = (text, "")
            self.unless_accepted(
                f"give {op.id} this meaning",
                lambda: self.keep("meaning", lambda: desk.write_meaning(op.id, text), told),
            )

        def told() -> None:
            assert self.snap is not None
            draft = self.snap.drafts.get(op.id)
            if draft is not None:
                self.say(f"kept as a draft, not applied: {draft[1]}".replace("\n", " "), "fail")
            else:
                self.say(f"{op.id} means what you wrote, assumed until G4; {self._goes_on()}")

        def ready() -> None:
            text, error = begun[0]
            if not outside:
                hunk = Hunk(
                    op.id, "Write what this opaque op means", op.reason, "", op.text, text,
                    (op.id,), Origin.PERSON,
                )  # fmt: skip
                self.app.push_screen(HunkEditor(hunk, text, error), given)
                return
            try:
                after = edit_outside(self.app, self.cubridge.config["editor"], text)
            except CuBridgeError as error_:
                self.say(str(error_).replace("\n", " "), "fail")
                return
            if after == text:
                self.say("the text came back unchanged: nothing was decided")
            else:
                given(after)

        def begin() -> None:
            begun.append(desk.meaning_text(op.id))

        self.job("meaning", begin, ready, quiet=True)

    def do_write(self) -> None:
        """The whole target in $EDITOR; what comes back is a proposal, decided on like any other."""
        assert self.snap is not None
        before = self.open_desk.builder.drafts.get(WHOLE, (self.snap.target_text, ""))[0]
        try:
            text = edit_outside(self.app, self.cubridge.config["editor"], before)
        except CuBridgeError as error:
            self.say(str(error).replace("\n", " "), "fail")
            return
        if text == self.snap.target_text:
            self.say("the text came back unchanged: nothing was proposed")
            return
        desk = self.open_desk
        desk.builder.drafts[WHOLE] = (text, "")

        def told() -> None:
            desk.builder.drafts.pop(WHOLE, None)
            self.to_undecided()
            self.say("your proposal: decide on its hunks like on any other's")

        self.unless_accepted(
            "propose your text",
            lambda: self.keep("propose", lambda: desk.propose(text), told),
        )

    def _edited(self, name: str, text: str | None) -> None:
        if text is None:
            return
        desk = self.open_desk

        def told() -> None:
            assert self.snap is not None
            draft = self.snap.drafts.get(name)
            if draft is not None:
                self.say(f"kept as a draft, not applied: {draft[1]}".replace("\n", " "), "fail")
            else:
                left = undecided(self.snap.state)
                self.say(f"accepted as you wrote it; {left} undecided")

        desk.builder.drafts[name] = (text, "")
        self.unless_accepted(
            f"edit {name}",
            lambda: self.keep("edit", lambda: desk.edit(name, text), told),
        )

    # --- words -----------------------------------------------------------------------------------

    def do_recipe(self) -> None:
        if self.snap is not None:
            self.app.push_screen(RecipeScreen(self.snap))

    def do_proposals(self) -> None:
        """Choose a proposal to read: what it proposed, why, and what became of it."""
        snap = self.snap
        assert snap is not None
        rows = [(p.id, proposal_line(snap, p)) for p in reversed(snap.state.proposals)]

        def read(name: str | None) -> None:
            found = next((p for p in snap.state.proposals if p.id == name), None)
            if found is not None:
                lines = proposal_rows(snap, found)
                self.app.push_screen(TextDialog(f"{found.id}, read-only", lines, "cuir"))

        self.app.push_screen(Picker("proposals, the latest first", rows), read)

    def do_export_review(self) -> None:
        def given(text: str | None) -> None:
            if text is None:
                return
            path = Path(text.strip()).expanduser()
            if path.exists():
                question = f"{path} is there already: write the page over it?"
                self.app.push_screen(Confirm(question), lambda yes: write(path) if yes else None)
            else:
                write(path)

        def write(path: Path) -> None:
            snap, events = self.snap, self.open_desk.work.session.events
            assert snap is not None
            self.cubridge.jobs.submit(
                "page", lambda: write_page(path, snap, events), written, quiet=True, keeps=True
            )

        def written(outcome: Outcome) -> None:
            failed = outcome.error is not None
            self.say(str(outcome.error or outcome.value), "fail" if failed else "pass")

        default = str(Path.cwd() / f"{self.session}.html")
        self.app.push_screen(
            Prompt("Write the session as an HTML page to this file:", default, _no_file), given
        )


def _no_file(text: str) -> str:
    """Why a page cannot be written there; empty where it can."""
    if not text.strip():
        return "a file's path, such as review.html"
    path = Path(text.strip()).expanduser()
    if path.is_dir():
        return f"{path} is a folder: name a file in it"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}: make it, or name another"
    if path.exists() and not path.is_file():
        return f"{path} is no regular file: name another"
    return ""
