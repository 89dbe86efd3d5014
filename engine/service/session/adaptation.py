"""One adaptation: what each step of the pipeline does to a session.

Every method does one step's work and appends its events as one commit. Nothing downstream runs by
itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.cuir.changes.ids import assign
from engine.cuir.printer import print_module
from engine.cuir.static.host_constants import head_sizes
from engine.errors import InputError, LowerError, StoreError
from engine.files import read_spec
from engine.gates.g3_source.lowering_check import Lowering
from engine.lift.files.kernel_package import KernelPackage
from engine.service.session.content import BINDING, LOWERED, RECIPE, SOURCE, TARGET
from engine.service.session.decisions import redo_group, undo_group
from engine.service.session.disk_inputs import inputs_of, modules_text, spec_modules
from engine.service.session.package_export import package_archive
from engine.service.session.proposal_kinds import ABOUT_MEANINGS
from engine.service.session.session_options import Options, refuse_other_columns
from engine.service.session.stage_work import Work, applied_rules
from engine.service.session.workbench import Bench
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.proposals.review import propose
from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Level,
    Origin,
    Proposal,
    Stage,
    Verdict,
    sha256_of,
)  # fmt: skip
from sessions.events import (
    Accepted,
    ArtifactSet,
    Body,
    Event,
    HunkDecided,
    InputsSet,
    ProposalMade,
    Redone,
    SessionCreated,
    TranscriptAdded,
    Undone,
    VerdictGiven,
    stamp,
)  # fmt: skip
from sessions.fold import fold
from sessions.state import acceptance_of
from sessions.writer import Writer

RULES = "rules"
PACKAGE = "package.tar"


def start(
    bench: Bench,
    package: KernelPackage,
    spec: Path,
    options: Options,
    actor: str,
    title: str | None = None,
) -> str:
    """Create a session for a kernel and a spec and give its id."""
    made = beginning(package, spec, options, title)
    return bench.store.create(made.created, made.more, made.blobs, actor=actor)


@dataclass(frozen=True, slots=True)
class Beginning:
    """A session that is not in the store yet: what its first commit will hold."""

    created: SessionCreated
    more: tuple[Body, ...]
    blobs: tuple[bytes, ...]


def beginning(
    package: KernelPackage, spec: Path, options: Options, title: str | None = None
) -> Beginning:
    """How a session for a kernel and a spec begins."""
    text = read_spec(spec)
    created = SessionCreated(
        title or f"{spec.stem} on {package.name}",
        package.name,
        package.hashes["package"],
        spec.name,
        sha256_of(text),
        options.to_json()
        | {"kernel_path": str(package.folder.absolute()), "spec_path": str(spec.absolute())},
    )
    source = Artifact.of(Stage.SOURCE, SOURCE, package.source)
    kept = {"spec.py": text}
    if modules := spec_modules(spec):  # part of what was asked for
        kept["spec_modules.json"] = modules_text(modules).encode()
    more: tuple[Body, ...] = (
        InputsSet(inputs_of(package, spec)),
        _set_of(source),
        *(TranscriptAdded(name, sha256_of(data), "spec") for name, data in kept.items()),
    )
    return Beginning(created, more, (source.data, *kept.values()))


@dataclass(frozen=True, slots=True)
class Proposed:
    """A proposal, the whole `text` that it proposes under the `name` that the session keeps it by,
    and what the target begins with."""

    proposal: Proposal
    name: str
    text: str
    artifacts: Sequence[Artifact]


class Adaptation(Work):
    """A session open for writing; `writer` keeps the lease for as long as this lives."""

    def __init__(
        self, bench: Bench, writer: Writer, actor: str, package: KernelPackage | None = None
    ) -> None:
        super().__init__(bench, writer, package)
        self.writer = writer
        self.actor = actor

    def lift(self) -> Verdict:
        """Lift the source and judge G1."""
        self.make_lifted()
        return self.judge_lifted()

    def make_lifted(self) -> None:
        """Lift the source; the lifted artifact is set."""
        self.bench.progress("lifting")
        self._set(self.lifted_artifacts())

    def judge_lifted(self) -> Verdict:
        """Judge G1; a session that was ended before it was lifted is lifted first."""
        if not self.state.stage(Stage.LIFTED).artifacts:
            self.make_lifted()
        return self.give(self.weigh_lifted())

    def propose_by_rules(self) -> Proposal:
        """Read the spec and let the rules propose; nothing is accepted yet."""
        self.bench.progress("reading the spec")
        return self._record(self.proposed_by_rules(self.read_recipe(self.spec, self.options.spec)))

    def propose_smaller_tile(self) -> Proposal | None:
        """The rules' proposal by the next smaller tile, where G3 said that theirs spills; None
        where it did not, where no tile is smaller, and of a kernel that is not lifted."""
        judged, recipe = self.state.verdict(Gate.G3), self.recipe
        ruled = next((p for p in self.edits if p.origin is Origin.RULES), None)
        if judged is None or not judged.spills or recipe is None or ruled is None:
            return None
        if self.package.executed:
            return None
        made = self.proposed_by_rules(recipe)
        return None if made.text == self.proposed_text(ruled) else self._record(made)

    def _record(self, made: Proposed) -> Proposal:
        """A proposal that nothing is decided of yet, in the session."""
        proposal = made.proposal
        kept = TranscriptAdded(made.name, sha256_of(made.text), proposal.id)
        before: list[Body] = [kept, ProposalMade(proposal)]
        self._set(made.artifacts, before, [made.text.encode()], actor=RULES)
        return proposal

    def proposed_by_rules(self, recipe: Recipe) -> Proposed:
        """What the rules propose for a recipe; nothing of it is recorded. Where G3 said that what
        they proposed spills, it is the next smaller tile."""
        base = self.lifted.module
        judged = self.state.verdict(Gate.G3)
        narrower = self.narrower(recipe) + (judged is not None and judged.spills)
        refuse_other_columns(self.spec, head_sizes(base))
        proposed, trail, made = applied_rules(base, recipe, narrower)
        proposal = propose(
            base, proposed, id=RULES, origin=Origin.RULES,
            reason="the rules carry every clause of the recipe", ids=assign(base), trail=trail,
        )  # fmt: skip
        artifacts = [
            Artifact.of(Stage.TARGET, RECIPE, pretty_json(recipe_to_json(recipe))),
            Artifact.of(Stage.TARGET, BINDING, pretty_json(made.to_json())),
            Artifact.of(Stage.TARGET, TARGET, print_module(base)),
        ]
        text = print_module(proposed)
        return Proposed(proposal, f"{proposal.id}.proposed.cuir", text, artifacts)

    def decide(self, *decisions: Decision) -> None:
        """Record decisions made at one stroke, and make the target that all decisions give.

        Raises:
            CuirError: an edited text that does not parse; nothing is recorded then.
        """
        artifacts = self.target_artifacts(*decisions)
        self._set(artifacts, [HunkDecided(d) for d in decisions])

    def accept_all(self, proposal: Proposal) -> None:
        """Accept every hunk of a proposal."""
        if proposal.hunks:
            self.decide(Decision(proposal.id, DecisionKind.ACCEPTED, self.actor))

    def undo(self) -> bool:
        """Take the latest stroke of decisions back; False when there is none."""
        return self._turn(undo_group(self.writer.events, self.state.undo), Undone)

    def redo(self) -> bool:
        """Make the stroke undone last again; False when there is none."""
        return self._turn(redo_group(self.writer.events, self.state.redo), Redone)

    def _turn(self, group: Sequence[Event], turned: type[Undone | Redone]) -> bool:
        """Undo or redo decisions, and with them what no draft keeps: the lifted stage, where
        meanings were decided on."""
        if not group:
            return False
        bodies: list[Body] = [turned(event.id) for event in group]
        made: list[Artifact] = []
        decided = (e.body.decision.target for e in group if isinstance(e.body, HunkDecided))
        if any(target.startswith(ABOUT_MEANINGS) for target in decided):
            from engine.service.session.meanings import (  # the model's steps, 0.1 s
                lifted_with,
                standing,
            )

            after = fold(stamp(bodies, self.actor, group[-1].id), self.state)
            made = lifted_with(self, standing(self, state=after))
        self._set(made, bodies)
        return True

    def judge_target(self) -> Verdict:
        return self.give(self.weigh_target())

    def lower(self) -> Lowering:
        """Write the target back into the source; the lowered artifact is set.

        Raises `InputError` where there is no target yet.
        """
        if not self.state.stage(Stage.TARGET).artifacts:
            raise InputError(
                f"{self.session.id} has no target yet: nothing was proposed",
                fix=f"`cubridge --session {self.session.id}`: s goes on to the next gate",
            )
        lowering = self.make_lowering()
        self._set(self.lowered_artifacts(lowering))
        return lowering

    def cannot_lower(self, error: LowerError) -> Verdict:
        """Record that the templates cannot write the target: G3 was not run, for this reason.

        A lowered source of another target goes, so that nobody takes it for this one's.
        """
        if self.state.stage(Stage.LOWERED).artifacts:
            gone = ArtifactSet(Stage.LOWERED, LOWERED, None)
            self.writer.append([gone], actor=self.actor)
        details = {"unlowered": True}
        begin = time.monotonic()
        found = self.not_run(Gate.G3, begin, str(error), details)
        return self.give(found)

    def judge_lowered(self, lowering: Lowering | None = None) -> Verdict:
        return self.give(self.weigh_lowered(lowering))

    def skip_gpu(self) -> Verdict:
        """Say that G4 was not run, and why."""
        return self.give(self.not_run(Gate.G4, time.monotonic(), self.no_gpu))

    def give(self, verdict: Verdict) -> Verdict:
        """Record a verdict, also one that was reached elsewhere (a GPU result, an override)."""
        self.writer.append([VerdictGiven(verdict)], actor=self.actor)
        return verdict

    def accept(self) -> Accepted:
        """Accept the current content at the level that its verdicts earn.

        Raises:
            StoreError: nothing is accepted without a level.
        """
        accepted = acceptance_of(self.state)
        if accepted.level is Level.NONE:
            reasons = ", ".join(f"{v.gate} {v.kind}" for v in self.state.verdicts) or "no verdicts"
            raise StoreError(f"nothing is accepted without a level ({reasons})")
        # The store then holds all that rebuilds and uses the kernel, headers included.
        package = package_archive(self, accepted.level)
        kept = TranscriptAdded(PACKAGE, sha256_of(package), "accepted")
        self.writer.append([kept, accepted], [package], actor=self.actor)
        return accepted

    def _set(
        self,
        artifacts: Sequence[Artifact],
        before: Sequence[Body] = (),
        blobs: Sequence[bytes] = (),
        actor: str | None = None,
    ) -> None:
        bodies = [*before, *map(_set_of, artifacts)]
        contents = [*blobs, *(a.data for a in artifacts)]
        self.writer.append(bodies, contents, actor=actor or self.actor)


def _set_of(artifact: Artifact) -> ArtifactSet:
    return ArtifactSet(artifact.stage, artifact.name, artifact.sha256)


def pretty_json(data: object) -> str:
    """JSON as the store keeps it: indented, one text per value."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
