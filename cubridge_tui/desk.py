"""One session on the app's desk: what can be done to it; each call blocks and gives a snapshot.

Called on the jobs' thread only. The work itself is the session service's; nothing here knows what
a kernel is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cubridge_tui.model.builder import Builder
from cubridge_tui.model.next_step import Step, owed
from cubridge_tui.model.snapshot import Snapshot
from engine.errors import CuBridgeError, CuirError, InputError, LowerError
from engine.files import read_spec
from engine.service.executed.opened import adaptation_of
from engine.service.session.adaptation import Beginning, beginning, start
from engine.service.session.disk_inputs import (
    MODULES,
    inputs_of,
    kernel_moved,
    modules_text,
    session_kernel,
    spec_modules,
    spec_moved,
)
from engine.service.session.meanings import decide_meanings
from engine.service.session.proposal_kinds import ABOUT_LOWERINGS, ABOUT_MEANINGS
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel
from engine.service.writers.person import propose_by_person, write_meaning, written_text
from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Proposal,
    Stage,
    VerdictKind,
    sha256_of,
)
from sessions.events import (
    ArtifactSet,
    HunkCommented,
    InputsSet,
    TranscriptAdded,
)
from sessions.newborn import NewSession
from sessions.writer import Writer

if TYPE_CHECKING:
    from engine.service.upkeep.newer import Rebase

TAKE_BACK_SECONDS = 1.0

Shown = Callable[[Snapshot], None]


def _unseen(_: Snapshot) -> None:
    """Nobody looks before the end."""


def begin(bench: Bench, kernel: str, spec: Path, actor: str) -> str:
    """Start a session; its id."""
    package = find_kernel(kernel)
    return start(bench, package, spec, choose_options(package, asked=spec), actor)


def choose(kernel: str, spec: Path) -> Beginning:
    """How a session would begin; the store knows nothing of it yet."""
    package = find_kernel(kernel)
    return beginning(package, spec, choose_options(package, asked=spec))


class Desk:
    """An open session. `close` gives its lease back.

    One that was only chosen is in the store from its first step on: looking leaves no trace.
    """

    def __init__(
        self,
        bench: Bench,
        session: str | Beginning,
        actor: str,
        drafts: Mapping[str, tuple[str, str]],
    ) -> None:
        self.bench, self.actor = bench, actor
        self.writer: Writer
        if isinstance(session, Beginning):
            created, more, blobs = session.created, session.more, session.blobs
            self.writer = NewSession(bench.store, created, more, blobs, actor)
        else:
            self.writer = bench.store.writer(session)
        try:
            self._begin(drafts)
        except BaseException:
            self.writer.close()
            raise

    def _begin(self, drafts: Mapping[str, tuple[str, str]]) -> None:
        """Work on what the session holds now."""
        self.work = adaptation_of(self.bench, self.writer, self.actor)
        builder = Builder(self.work)
        builder.drafts |= drafts
        self.builder = builder

    @property
    def id(self) -> str:
        return self.writer.id

    def close(self) -> None:
        self.writer.close()

    def snapshot(self) -> Snapshot:
        return self.builder.snapshot()

    # --- stages ----------------------------------------------------------------------------------

    def step(self, anyway: bool = False, shown: Shown = _unseen) -> Snapshot:
        """The next step; nothing when the person owes a decision. `shown` gets what there is to
        read before its gate has ended.

        Lowering is refused where the spec or the kernel changed on disk, but `anyway`, which only a
        person says: here, in `run` and in `redo_from`.
        """
        self._take(owed(self.work.state).step, anyway, shown)
        return self.snapshot()

    def run(self, shown: Shown, anyway: bool = False) -> Snapshot:
        """Step after step, to the first decision or failure; `shown` gets each state.

        A gate that came to no verdict is run once: another time is the person's to ask for.
        """
        done: Step | None = None
        while (now := owed(self.work.state)).action == "step" and now.step is not done:
            self._take(done := now.step, anyway, shown)
            shown(self.snapshot())
        return self.snapshot()

    def redo_from(self, stage: Stage, anyway: bool = False, shown: Shown = _unseen) -> Snapshot:
        """Do a stage again; what follows turns stale by itself, where the content changed."""
        steps = {
            Stage.SOURCE: Step.LIFT,
            Stage.LIFTED: Step.LIFT,
            Stage.TARGET: Step.PROPOSE,
            Stage.LOWERED: Step.LOWER,
        }
        self._take(steps[stage], anyway, shown)
        return self.snapshot()

    def _take(self, step: Step | None, anyway: bool, shown: Shown) -> None:
        moved = spec_moved(self.work)
        if step is Step.LOWER and not anyway:
            moved = moved or kernel_moved(self.work)
            if moved is not None:
                raise InputError(
                    f"{moved} changed on disk: the session has it as it was",
                    fix="! takes the change in; or restore it, or step again and say yes",
                )
        if step is Step.PROPOSE and moved is not None:
            raise InputError(
                f"{moved} changed on disk: the session has it as it was",
                fix="! takes the change in; or restore it",
            )
        match step:
            case Step.LIFT:
                self.work.refuse_early()
                self.work.make_lifted()
                shown(self.snapshot())
                self.work.judge_lifted()
            case Step.PROPOSE:
                self.work.propose_by_rules()
            case Step.JUDGE_TARGET:
                self.work.judge_target()
            case Step.LOWER:
                try:
                    lowering = self.work.lower()
                except LowerError as error:
                    self.work.cannot_lower(error)
                    return
                shown(self.snapshot())
                self.work.judge_lowered(lowering)

    def override(self, gate: Gate, reason: str) -> Snapshot:
        """A person takes the responsibility for a gate, with a reason."""
        old = self.work.state.verdict(gate)
        if old is None:
            raise InputError(f"{gate} has not run: there is nothing to override")
        kept = {k: v for k, v in old.details.items() if k in ("op", "counterexample")}
        details = kept | {"overrides": f"{old.kind}: {old.reason}"}
        self.work.give(
            replace(old, kind=VerdictKind.OVERRIDDEN, reason=reason, by=self.actor, details=details)
        )
        return self.snapshot()

    def accept(self) -> Snapshot:
        """Accept at the level that the verdicts earn; says that G4 was not run where it was not."""
        if self.work.state.verdict(Gate.G4) is None:
            self.work.skip_gpu()
        self.work.accept()
        return self.snapshot()

    # --- decisions -------------------------------------------------------------------------------

    def decide(self, name: str, kind: DecisionKind) -> Snapshot:
        """Accept or reject a hunk (`proposal/hunk`)."""
        return self.decide_all([Decision(name, kind, self.actor)])

    def decide_all(self, decisions: Sequence[Decision]) -> Snapshot:
        """Decide on hunks at one stroke, which is undone at once."""
        self.record(*decisions)
        for decision in decisions:
            self.builder.drafts.pop(decision.target, None)
        return self.snapshot()

    def comment(self, name: str, text: str) -> Snapshot:
        """Say something of a hunk (`proposal/hunk`); nothing is decided by it."""
        self.writer.append([HunkCommented(name, text)], actor=self.actor)
        return self.snapshot()

    def record(self, *decisions: Decision) -> None:
        """Record decisions at one stroke; what they are about is made again from them all."""
        parts: dict[str, list[Decision]] = {ABOUT_MEANINGS: [], ABOUT_LOWERINGS: [], "": []}
        for decision in decisions:
            parts[next(a for a in parts if decision.target.startswith(a))].append(decision)
        if parts[ABOUT_MEANINGS]:
            decide_meanings(self.work, *parts[ABOUT_MEANINGS])
        if parts[ABOUT_LOWERINGS]:
            from engine.service.models.llm_lower import decide_lowering  # the model's loop, 0.1 s

            decide_lowering(self.work, *parts[ABOUT_LOWERINGS])
        if parts[""]:
            self.work.decide(*parts[""])

    def accept_rest(self, *proposals: Proposal) -> Snapshot:
        """Accept what is undecided of some proposals, at one stroke that is undone at once."""
        state = self.work.state
        made = []
        for proposal in proposals:
            open_ = [h for h in proposal.hunks if state.decision(proposal.id, h.id) is None]
            whole = len(open_) == len(proposal.hunks)
            names = [f"{proposal.id}/{h.id}" for h in open_]
            made += [
                Decision(name, DecisionKind.ACCEPTED, self.actor)
                for name in ([proposal.id] if whole and open_ else names)
            ]
        self.record(*made)
        return self.snapshot()

    def edit(self, name: str, text: str) -> Snapshot:
        """Replace a hunk's text; one that does not parse stays a draft with its error."""
        decision = Decision(name, DecisionKind.EDITED, self.actor, replacement=text)
        try:
            self.record(decision)
            self.builder.drafts.pop(name, None)
        except CuBridgeError as error:
            meaning = name.startswith(ABOUT_MEANINGS) and isinstance(error, InputError)
            unread = isinstance(error, CuirError) or "does not parse" in error.message
            if not (meaning or unread):
                self.builder.drafts[name] = (text, str(error))
                raise
            self.builder.drafts[name] = (text, str(error))
        return self.snapshot()

    def meaning_text(self, op: str) -> tuple[str, str]:
        """The text of a meaning to write by hand, and why the last one was not taken."""
        return self.builder.drafts.get(op) or (written_text(self.work, op), "")

    def write_meaning(self, op: str, text: str) -> Snapshot:
        """Give an opaque op a meaning of the person's own; one that cannot be read is a draft."""
        try:
            write_meaning(self.work, op, text)
            self.builder.drafts.pop(op, None)
        except (InputError, CuirError) as error:
            self.builder.drafts[op] = (text, str(error))
        return self.snapshot()

    def propose(self, text: str) -> Snapshot:
        """Propose a whole target of the person's own."""
        propose_by_person(self.work, text)
        return self.snapshot()

    def undo(self) -> Snapshot:
        self.work.undo()
        return self.snapshot()

    def redo(self) -> Snapshot:
        self.work.redo()
        return self.snapshot()

    # --- the world outside -----------------------------------------------------------------------

    def poll(self) -> Snapshot | None:
        """What another writer did, if anything (read-only), and its place once it is gone; or what
        is still to be saved, saved; or the writer's place given to a process that waits for it."""
        before = self.writer.read_only
        if before is not None:
            new = self.writer.poll()
            if self.writer.take_over():
                self._begin(self.builder.drafts)  # the other one may have taken in another kernel
            return self.snapshot() if new or self.writer.read_only != before else None
        if self.writer.pending:
            self.writer.retry()
            return self.snapshot()
        return self.snapshot() if self.writer.hand_over() else None

    def take_back(self) -> Snapshot:
        """`poll` until this writes again: whoever was let write does so for a moment."""
        deadline = time.monotonic() + TAKE_BACK_SECONDS
        while self.writer.read_only is not None and time.monotonic() < deadline:
            self.poll()
            time.sleep(0.02)
        return self.snapshot()

    def newer(self, kernel: str | None) -> Rebase:
        """What the session would be on another version of its kernel; nothing is recorded."""
        from engine.service.upkeep.newer import newer_kernel  # also for nothing else
        from engine.service.upkeep.rebase import plan_rebase

        return plan_rebase(self.work, newer_kernel(self.work.state, kernel))

    def rebase(self, made: Rebase) -> Snapshot:
        """Go on with another version of the kernel, with what was decided carried over."""
        from engine.service.upkeep.rebase import record_rebase

        record_rebase(self.work, made)
        self._begin(self.builder.drafts)
        return self.snapshot()

    def take_in(self) -> Snapshot:
        """Take the spec and the kernel as they are on the disk now; what they made turns stale."""
        hashes = self.work.state.hashes
        spec = read_spec(self.work.spec)
        bodies: list[InputsSet | ArtifactSet | TranscriptAdded] = []
        blobs: list[bytes] = []
        inputs: dict[str, str] = {}
        if sha256_of(spec) != hashes.get("spec"):
            inputs["spec"] = sha256_of(spec)
            bodies.append(TranscriptAdded("spec.py", sha256_of(spec), "spec"))
            blobs.append(spec)
        package = session_kernel(self.work.state)
        modules = modules_text(spec_modules(self.work.spec))
        if sha256_of(modules) != hashes.get(MODULES):
            inputs[MODULES] = sha256_of(modules)
            bodies.append(TranscriptAdded("spec_modules.json", sha256_of(modules), "spec"))
            blobs.append(modules.encode())
        if package.hashes["package"] != hashes.get("kernel"):
            inputs |= inputs_of(package, self.work.spec) | {"kernel": package.hashes["package"]}
            source = Artifact.of(Stage.SOURCE, "kernel.cu", package.source)
            bodies.append(ArtifactSet(source.stage, source.name, source.sha256))
            blobs.append(source.data)
            self.work.package = self.work.options.building(package)
        if inputs:
            self.writer.append([InputsSet(inputs), *bodies], blobs, actor=self.actor)
        return self.snapshot()
