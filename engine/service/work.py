"""What a session's content means and what its gates say: computed, never recorded.

`Adaptation` records these results in a session; `recheck` computes them again and compares.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.child.client import ChildFailed
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, StoreError, TransferError
from engine.gates.apart import judge_apart
from engine.gates.g3 import G3, Lowering, judge_lowered
from engine.gates.unlike import Fault, cannot_carry, unfilled_field
from engine.lift import lift
from engine.lift.meanings import assumed, read_meanings, with_meanings
from engine.lift.provenance import Lifted
from engine.lower.legal import legal
from engine.lower.lower import lower
from engine.service.bench import Bench, find_kernel
from engine.service.inputs import MODULES, kernel_moved, spec_moved
from engine.service.kinds import edits
from engine.service.lowerings import written_lowering
from engine.service.options import Options
from engine.spec.recipe import Recipe
from engine.spec.text import recipe_from_json, recipe_to_json
from engine.transfer.binding import Binding
from engine.transfer.review import compose
from engine.transfer.rules import plan
from engine.types import (
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Origin,
    Proposal,
    Stage,
    Verdict,
    VerdictKind,
)
from sessions.session import Session
from sessions.state import SessionState

if TYPE_CHECKING:
    from engine.service.llm_gates import Elsewhere

GATE_SECONDS = 300.0
SOURCE, LIFTED, TARGET, LOWERED = "kernel.cu", "lifted.cuir", "target.cuir", "kernel.cu"
RECIPE, BINDING = "recipe.json", "binding.json"
MEANINGS = "meanings.json"  # of opaque ops, beside the lifted module


class Work:
    """A session's content, read-only."""

    def __init__(self, bench: Bench, session: Session) -> None:
        self.bench = bench
        self.session = session
        created = session.state.created
        if created is None:
            raise StoreError(f"session {session.id} has no beginning")
        self.options = Options.from_json(created.options)
        self.package = find_kernel(str(created.options.get("kernel_path") or created.kernel))
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

    def compose(self, *latest: Decision) -> Module:
        """The target that all standing decisions give, with `latest` on top of them."""
        module = self.lifted.module
        for proposal in self.edits:
            decisions = {
                h.id: d for h in proposal.hunks if (d := self.state.decision(proposal.id, h.id))
            }
            for decision in latest:
                decisions |= {
                    h.id: decision
                    for h in proposal.hunks
                    if decision.target in (proposal.id, h.id, f"{proposal.id}/{h.id}")
                }
            proposed = parse_module(self.proposed_text(proposal), f"{proposal.id}.cuir")
            module = compose(module, proposed, proposal, decisions)
        return legal(module)

    def ruled(self) -> Module:
        """The lifted module with what stands of the rules' own hunks: what a free hand began with.

        The lifted module itself where the rules' hunks rest on somebody else's.
        """
        module = self.lifted.module
        for proposal in self.edits:
            if proposal.origin is not Origin.RULES:
                continue
            decisions = {
                h.id: d
                for h in proposal.hunks
                if (d := self.state.decision(proposal.id, h.id)) is not None
                and d.kind is DecisionKind.ACCEPTED
            }
            proposed = parse_module(self.proposed_text(proposal), f"{proposal.id}.cuir")
            try:
                module = compose(module, proposed, proposal, decisions)
            except (CuBridgeError, ValueError):
                return self.lifted.module
        return legal(module)

    # --- gates -----------------------------------------------------------------------------------

    def read_recipe(self, path: Path, options: Mapping[str, Any]) -> Recipe:
        """Trace a spec in the child, and check it at the kernel's own head sizes."""
        built = {int(s["D"]) for s in self.package.specialisations if s.get("D", "").isdigit()}
        head_sizes = [(d, d) for d in sorted(built)]
        answer = self.bench.child.call(
            "recipe",
            {"path": str(path), "options": dict(options), "head_sizes": head_sizes},
            cancel=self.bench.cancel,
            progress=self.bench.progress,
        )
        return recipe_from_json(answer["recipe"])

    def weigh_lifted(self, lifted: Lifted | None = None) -> Verdict:
        """G1: the lifted program computes the kernel's declared reference, soundly.

        `lifted` is the session's, or one with meanings that nobody has accepted yet.
        """
        self.bench.progress("G1: running the lifted CuIR against the kernel's reference")
        begin = time.monotonic()
        lifted = self.lifted if lifted is None else lifted
        if lifted.opaque:
            first = lifted.opaque[0]
            reason = f"line {first.span.start_line} is opaque ({first.reason}): give it a meaning"
            details = {"op": "/".join(map(str, first.path)), "opaque": len(lifted.opaque)}
            return self.verdict(Gate.G1, VerdictKind.NOT_RUN, begin, reason, details)
        moved = kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G1, begin, moved)
        reference = self.package.reference
        if reference is None:
            reason = "the kernel declares no reference to compare with"
            return self.verdict(Gate.G1, VerdictKind.NOT_RUN, begin, reason, {})
        recipe = self.read_recipe(reference, {})
        try:
            planned = plan(lifted.module, recipe)
        except TransferError as error:
            differs = cannot_carry(lifted.module, error)
            if differs is not None:
                return self._unlike(begin, lifted, differs)
            reason = f"the kernel cannot be compared with its reference: {error.message}"
            return self.verdict(Gate.G1, VerdictKind.NOT_RUN, begin, reason, {})
        if planned.steps:
            reason = (
                "the lifted kernel is not its own declared reference: the rules would "
                + planned.steps[0].title.lower()
            )
            return self.verdict(Gate.G1, VerdictKind.FAIL, begin, reason, {})
        differs = unfilled_field(lifted.module, planned.binding)
        if differs is not None:
            return self._unlike(begin, lifted, differs)
        return self._judge(Gate.G1, begin, lifted.module, recipe, planned.binding, reference, {})

    def _unlike(self, begin: float, lifted: Lifted, fault: Fault) -> Verdict:
        """G1 fails at a statement of the source, before anything is run."""
        span = lifted.provenance.get(fault.path)
        reason = fault.reason.replace("the spec", "the kernel's own reference")
        details: dict[str, Any] = {"op": "/".join(map(str, fault.path))}
        if span is not None:
            details["line"] = span.start_line
            reason = f"{SOURCE}:{span.start_line}: {reason}"
        return self.verdict(Gate.G1, VerdictKind.FAIL, begin, reason, details)

    def weigh_target(self) -> Verdict:
        """G2: the target equals the person's function."""
        self.bench.progress("G2: running the target CuIR against the spec")
        begin = time.monotonic()
        recipe = self.recipe
        if BINDING not in self.state.stage(Stage.TARGET).artifacts:
            return self.verdict(Gate.G2, VerdictKind.NOT_RUN, begin, "the spec was not read", {})
        moved = spec_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G2, begin, moved)
        free = self._free_hand()
        found = self._judge(
            Gate.G2, begin, self.target, recipe, self.binding, self.spec, self.options.spec,
            self.ruled() if free else None,
        )  # fmt: skip
        if found.kind is VerdictKind.PASS and free:
            found = self._weigh_elsewhere(begin, recipe, found)
        moved = spec_moved(self)  # while it ran: nobody knows then what was judged
        return found if moved is None else self._moved_on(Gate.G2, begin, moved)

    def _free_hand(self) -> bool:
        """True where what a model or a person wrote stands in the target."""
        for proposal in self.edits:
            by_hand = {DecisionKind.EDITED}
            if proposal.origin is not Origin.RULES:
                by_hand |= {DecisionKind.ACCEPTED}
            decisions = (self.state.decision(proposal.id, hunk.id) for hunk in proposal.hunks)
            if any(d is not None and d.kind in by_hand for d in decisions):
                return True
        return False

    def _weigh_elsewhere(self, begin: float, recipe: Recipe | None, found: Verdict) -> Verdict:
        """The same edit in another specialisation: rules hold in all, a free hand need not."""
        from engine.service.llm_gates import judged_elsewhere

        there = judged_elsewhere(self, self.target, self.binding, recipe)
        if there is None or there.ok:
            return found
        return self.verdict(Gate.G2, VerdictKind.FAIL, begin, there.reason, there.details)

    def _moved_on(self, gate: Gate, begin: float, moved: str) -> Verdict:
        reason = f"{moved} changed on disk: restore what this session has, or take the change in"
        return self.verdict(gate, VerdictKind.NOT_RUN, begin, reason, {})

    def make_lowering(self) -> Lowering:
        """The target written back into the source: by the templates, or as an accepted proposal
        of a lowering says."""
        self.bench.progress("lowering")
        written = written_lowering(self)
        if written is not None:
            return written
        return lower(self.lifted, self.target)

    def weigh_lowered(self, lowering: Lowering | None = None) -> Verdict:
        """G3: the lowered bytes lift to the target again, only allowed bytes changed, and nvcc
        builds them without losing what the source had."""
        self.bench.progress("G3: lifting the lowered source again, and compiling it")
        begin = time.monotonic()
        moved = kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G3, begin, moved)
        lowered = self.session.artifact(Stage.LOWERED, LOWERED).data
        result = self.judge_source(self.target, lowered)
        details = dict(result.details)
        if lowering is not None:
            details["changed_lines"] = lowering.changed_lines
            details["total_lines"] = lowering.total_lines
        return self.verdict(
            Gate.G3, result.kind, begin, result.reason, details, compiler=result.compiler
        )

    def judge_source(self, target: Module, lowered: bytes) -> G3:
        """G3 of any target and lowered source of this session."""
        judge = judge_apart if self.bench.apart else judge_lowered
        return judge(
            self.package, self.lifted, target, lowered, self.options.arch,
            cancel=self.bench.cancel, progress=self.bench.progress,
        )  # fmt: skip

    def verdict(
        self,
        gate: Gate,
        kind: VerdictKind,
        begin: float,
        reason: str,
        details: Mapping[str, Any],
        **more: str,
    ) -> Verdict:
        """A verdict about the session's present content."""
        stage = Stage.LOWERED if gate is Gate.G4 else gate.stage
        seconds = round(time.monotonic() - begin, 3)
        # What rests on given meanings says so until a GPU has run the bytes themselves.
        rests_on = () if gate is Gate.G4 else assumed(self.bare.module, self.lifted.module)
        return Verdict(gate, kind, reason, seconds, self.subject(stage, **more), details, rests_on)

    def subject(self, stage: Stage, **more: str) -> tuple[tuple[str, str], ...]:
        """The hashes that a verdict about `stage` belongs to."""
        hashes = self.state.hashes
        out = {"headers": self.package.hashes["headers"]}
        if stage.value in hashes:
            out["artifact"] = hashes[stage.value]
        wanted = {
            Stage.LIFTED: ("kernel",),
            Stage.TARGET: ("kernel", "spec", MODULES, "lifted"),
            Stage.LOWERED: ("kernel", "spec", MODULES, "lifted", "target"),
        }[stage]
        out |= {name: hashes[name] for name in wanted if name in hashes}
        return tuple((out | {k: v for k, v in more.items() if v}).items())

    def _judge(
        self,
        gate: Gate,
        begin: float,
        module: Module,
        recipe: Recipe | None,
        binding: Binding,
        spec: Path,
        options: Mapping[str, Any],
        base: Module | None = None,
    ) -> Verdict:
        try:
            answer = self.ask_judge(module, recipe, binding, spec, options, base)
        except ChildFailed as error:
            at = error.where
            place = f"{Path(at.file).name}:{at.line}: " if at is not None else ""
            return self.verdict(gate, VerdictKind.FAIL, begin, place + error.message, {})
        kind = VerdictKind.PASS if answer["ok"] else VerdictKind.FAIL
        reason = str(answer["reason"])
        if gate is Gate.G1:
            reason = reason.replace("the spec", "the kernel's own reference")
        return self.verdict(gate, kind, begin, reason, answer["details"])

    def ask_judge(
        self,
        module: Module,
        recipe: Recipe | None,
        binding: Binding,
        spec: Path,
        options: Mapping[str, Any],
        base: Module | None = None,
        *,
        explain: bool = False,
    ) -> dict[str, Any]:
        """What `engine.gates.judge` says of a module, in the torch child.

        `base` is the module before a model's or a person's edit. Raises `ChildFailed`.
        """
        payload = {
            "module": print_module(module),
            "recipe": None if recipe is None else recipe_to_json(recipe),
            "binding": binding.to_json(),
            "spec": str(spec),
            "options": dict(options),
            "base": None if base is None else print_module(base),
            "explain": explain,
        }
        return self.bench.child.call(
            "judge",
            payload,
            seconds=GATE_SECONDS,
            cancel=self.bench.cancel,
            progress=self.bench.progress,
        )
