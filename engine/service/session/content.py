"""What a session's content means: its kernel lifted, its target composed; never recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.errors import CuBridgeError, StoreError
from engine.lift import lift
from engine.lift.cpp.provenance import Lifted
from engine.lift.files.kernel_package import KernelPackage
from engine.lift.files.meanings import read_meanings, with_meanings
from engine.lower.spelling.legal import legal
from engine.service.session.disk_inputs import MODULES, session_kernel
from engine.service.session.proposal_kinds import edits
from engine.service.session.session_options import Options
from engine.service.session.workbench import Bench
from engine.spec.python.declarations import declared
from engine.spec.python.signature import Asked, Signature
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.transfer.binding import Binding
from engine.transfer.proposals.review import compose
from engine.types import (
    Decision,
    DecisionKind,
    Hunk,
    Origin,
    Proposal,
    Stage,
)
from sessions.events import ArtifactSet, InputsSet
from sessions.session import Session
from sessions.state import SessionState

if TYPE_CHECKING:
    from engine.service.session.other_specialisations import Elsewhere

SOURCE, LIFTED, TARGET, LOWERED = "kernel.cu", "lifted.cuir", "target.cuir", "kernel.cu"
RECIPE, BINDING = "recipe.json", "binding.json"
MEANINGS = "meanings.json"  # of opaque ops, beside the lifted module


class Content:
    """A session's content, read-only."""

    def __init__(
        self, bench: Bench, session: Session, package: KernelPackage | None = None
    ) -> None:
        """`package` stands for the session's own, which may be gone from the disk."""
        self.bench = bench
        self.session = session
        created = session.state.created
        if created is None:
            raise StoreError(f"session {session.id} has no beginning")
        self.options = Options.from_json(created.options)
        self.package = self.options.building(package or session_kernel(session.state))
        self.spec = Path(str(created.options["spec_path"]))
        self._bare: Lifted | None = None
        self._lifted: tuple[str | None, Lifted] | None = None  # with the hash of the meanings
        self.elsewhere: dict[str, Elsewhere] = {}  # by what was judged

    @property
    def state(self) -> SessionState:
        return self.session.state

    def text(self, stage: Stage, name: str) -> str:
        """An artifact as text."""
        return self.session.artifact(stage, name).text

    @property
    def bare(self) -> Lifted:
        """The lifted source as the lifter gives it, made again from the session's own bytes."""
        source = self.session.artifact(Stage.SOURCE, SOURCE).data
        if self._bare is None or self._bare.source != source:
            package = replace(self.package, source=source)
            self._bare = lift(package, self.options.specialisation, self.options.arch)
            self._lifted = None
        return self._bare

    @property
    def lifted(self) -> Lifted:
        """The lifted source, its opaque ops with the meanings that were given to them."""
        bare = self.bare
        given = self.state.stage(Stage.LIFTED).artifacts.get(MEANINGS)
        if self._lifted is None or self._lifted[0] != given:
            meanings = () if given is None else read_meanings(self.text(Stage.LIFTED, MEANINGS))
            self._lifted = given, with_meanings(bare, meanings)
        return self._lifted[1]

    @property
    def edits(self) -> tuple[Proposal, ...]:
        """The proposals that are about the target: not those about meanings or the lowered text."""
        return edits(self.state.proposals)

    @property
    def recipe(self) -> Recipe | None:
        """What the spec asks for, when it was read."""
        if RECIPE not in self.state.stage(Stage.TARGET).artifacts:
            return None
        return recipe_from_json(json.loads(self.text(Stage.TARGET, RECIPE)))

    @property
    def asked(self) -> Asked:
        """The recipe; a target that a model or a person made of a spec that no rule reads has only
        the spec's declarations, and the spec's own function judges it.

        Raises `SpecError` where q, k and v are not declared.
        """
        if (recipe := self.recipe) is not None:
            return recipe
        return Signature.of(declared(read_source(self.spec, dict(self.options.spec))))

    @property
    def recipe_is_old(self) -> bool:
        """Whether the spec was taken in anew since the recipe was read from it."""
        for event in reversed(self.session.events):
            match event.body:
                case ArtifactSet(Stage.TARGET, name) if name == RECIPE:
                    return False
                case InputsSet(hashes) if hashes.keys() & {"spec", MODULES}:
                    return True
        return False

    @property
    def binding(self) -> Binding:
        return Binding.from_json(json.loads(self.text(Stage.TARGET, BINDING)))

    @property
    def target(self) -> Module:
        return parse_module(self.text(Stage.TARGET, TARGET), TARGET)

    def hunks(self) -> tuple[tuple[Proposal, Hunk, Decision | None], ...]:
        """Every hunk with its standing decision."""
        return tuple((p, h, self.state.decision(p.id, h.id)) for p in self.edits for h in p.hunks)

    def proposed_text(self, proposal: Proposal) -> str:
        """The whole CuIR text that a proposal proposes."""
        for transcript in reversed(self.state.transcripts):
            if transcript.about == proposal.id and transcript.name.endswith(".proposed.cuir"):
                return self.session.content(transcript.sha256).decode()
        raise StoreError(f"the text of proposal {proposal.id} is not in the session")

    def proposed(self, proposal: Proposal) -> Module:
        """What a proposal proposes."""
        return parse_module(self.proposed_text(proposal), f"{proposal.id}.cuir")

    def decisions(self, proposal: Proposal, latest: Sequence[Decision] = ()) -> dict[str, Decision]:
        """What stands decided of a proposal's hunks, by hunk, with `latest` on top of it."""
        made = {h.id: self.state.decision(proposal.id, h.id, latest) for h in proposal.hunks}
        return {hunk: decision for hunk, decision in made.items() if decision is not None}

    def decided(self, edits: Sequence[Proposal], latest: Sequence[Decision] = ()) -> Module:
        """The lifted module with what stands decided of these proposals, `latest` on top of it:
        what the next proposal is made against."""
        module = self.lifted.module
        for proposal in edits:
            decisions = self.decisions(proposal, latest)
            module = compose(module, self.proposed(proposal), proposal, decisions)
        return module

    def compose(self, *latest: Decision) -> Module:
        """The target that all standing decisions give, with `latest` on top of them."""
        return legal(self.decided(self.edits, latest))

    def ruled(self) -> Module:
        """The lifted module with what stands of the rules' own hunks: what a free hand began with.

        The lifted module itself where the rules' hunks rest on somebody else's.
        """
        module = self.lifted.module
        for proposal in self.edits:
            if proposal.origin is not Origin.RULES:
                continue
            made = self.decisions(proposal).items()
            accepted = {hunk: d for hunk, d in made if d.kind is DecisionKind.ACCEPTED}
            proposed = self.proposed(proposal)
            try:
                module = compose(module, proposed, proposal, accepted)
            except (CuBridgeError, ValueError):
                return self.lifted.module
        return legal(module)
