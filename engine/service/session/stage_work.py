"""What a session's content means and what its gates say: computed, never recorded.

`Adaptation` records these results in a session; `recheck` computes them again and compares.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.child.wire import ChildFailed, failure_of
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, TransferError
from engine.gates.analysis.reference_mismatch import (
    Fault,
    another_head,
    cannot_carry,
    unfilled_field,
)
from engine.gates.g3_source.g3_process import judge_apart
from engine.gates.g3_source.lowering_check import G3, Lowering, judge_lowered
from engine.gates.outcome import Found
from engine.lift.cpp.provenance import Lifted
from engine.lift.files.meanings import assumed, released
from engine.lower.lower import lower
from engine.lower.spelling.legal import legal
from engine.service.session.content import BINDING, LIFTED, LOWERED, SOURCE, TARGET, Content
from engine.service.session.disk_inputs import MODULES, kernel_moved, spec_moved
from engine.service.session.lowerings import written_lowering
from engine.service.session.other_specialisations import judged_elsewhere
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json
from engine.transfer.binding import Binding
from engine.transfer.rules import Step, apply, plan
from engine.types import (
    UNFINISHED,
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Level,
    Origin,
    Stage,
    Verdict,
    VerdictKind,
)

if TYPE_CHECKING:
    from engine.gpu.job import Contents

GATE_SECONDS = 300.0
MOST_STEPS = 8  # of 16 keys each: no tile has more than 128
Steps = list[tuple[Step, Module]]


class Work(Content):
    """A session's content and what its gates say of it, read-only."""

    # The texts that a person is shown of the stages between source and lowered, and what they are.
    shown: Mapping[Stage, str] = {Stage.LIFTED: LIFTED, Stage.TARGET: TARGET}
    words: Mapping[Stage, str] = {Stage.LIFTED: "CuIR", Stage.TARGET: "CuIR"}
    no_gpu = (
        "not run on a GPU yet: `cubridge verify SESSION`, or v in the app, runs or packs the job"
    )

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

    def refuse_early(self) -> None:
        """Raises TransferError where a long lift would be in vain: the spec asks for what no kernel
        of this kind is carried to."""

    def gutter(self) -> Mapping[int, str]:
        """What stands at lines of the source, as a letter, where probing found it."""
        return {}

    def found_lines(self) -> Mapping[int, int]:
        """Which line of the source each line of the lifted text tells of, where that is no CuIR."""
        return {}

    def lifted_artifacts(self) -> list[Artifact]:
        """The lifted stage, made from the source."""
        return [Artifact.of(Stage.LIFTED, LIFTED, print_module(self.lifted.module))]

    def target_artifacts(self, *latest: Decision) -> list[Artifact]:
        """The target that all standing decisions give, with `latest` on top of them."""
        return [Artifact.of(Stage.TARGET, TARGET, print_module(self.compose(*latest)))]

    def lowered_artifacts(self, lowering: Lowering) -> list[Artifact]:
        """The lowered stage that a lowering is."""
        return [Artifact.of(Stage.LOWERED, LOWERED, lowering.source)]

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
            return self.not_run(Gate.G1, begin, reason, details)
        moved = kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G1, begin, moved)
        reference = self.package.reference
        if reference is None:
            reason = "the kernel declares no reference to compare with"
            return self.not_run(Gate.G1, begin, reason)
        recipe = self.read_recipe(reference, {})
        try:
            planned = plan(lifted.module, recipe)
        except TransferError as error:
            differs = cannot_carry(lifted.module, error)
            if differs is not None:
                return self._unlike(begin, lifted, differs)
            reason = f"the kernel cannot be compared with its reference: {error.message}"
            return self.not_run(Gate.G1, begin, reason)
        differs = another_head(lifted.module, recipe)
        if differs is not None:
            return self._unlike(begin, lifted, differs)
        if planned.steps:
            reason = (
                "the lifted kernel is not its own declared reference: the rules would "
                + planned.steps[0].title.lower()
            )
            return self.found(Gate.G1, begin, Found(False, reason))
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
        return self.found(Gate.G1, begin, Found(False, reason, details))

    def weigh_target(self) -> Verdict:
        """G2: the target equals the person's function."""
        self.bench.progress("G2: running the target CuIR against the spec")
        begin = time.monotonic()
        if BINDING not in self.state.stage(Stage.TARGET).artifacts:
            return self.not_run(Gate.G2, begin, "the spec was not read")
        moved = spec_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G2, begin, moved)
        free = self._free_hand()
        recipe = self.recipe
        if recipe is not None and self.recipe_is_old:
            recipe = self.read_recipe(self.spec, self.options.spec)
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
        there = judged_elsewhere(self, self.target, self.binding, recipe)
        if there is None or there.ok:
            return found
        if there.unfinished:
            return self._unfinished(Gate.G2, begin, there.reason)
        return self.found(Gate.G2, begin, Found(False, there.reason, there.details))

    def _moved_on(self, gate: Gate, begin: float, moved: str) -> Verdict:
        reason = f"{moved} changed on disk: restore what this session has, or take the change in"
        return self.not_run(gate, begin, reason)

    def _unfinished(self, gate: Gate, begin: float, reason: str) -> Verdict:
        """No verdict about the content: what judges it was killed, hung, ran out of memory, or
        raised what it never should."""
        return self.not_run(gate, begin, reason, {UNFINISHED: True})

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
        builds them without losing what the source had, and not far slower than the source."""
        self.bench.progress("G3: lifting the lowered source again, and compiling it")
        begin = time.monotonic()
        moved = kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G3, begin, moved)
        lowered = self.session.artifact(Stage.LOWERED, LOWERED).data
        try:
            result = self.judge_source(self.target, lowered, self.recipe, self.binding)
        except ChildFailed as error:
            return self._unfinished(Gate.G3, begin, error.message)
        except CuBridgeError:
            raise
        except Exception as error:
            return self._unfinished(Gate.G3, begin, failure_of(error).message)
        details = dict(result.details)
        if lowering is not None:
            details["changed_lines"] = lowering.changed_lines
            details["total_lines"] = lowering.total_lines
        if result.kind is VerdictKind.NOT_RUN:
            return self.not_run(Gate.G3, begin, result.reason, details, compiler=result.compiler)
        found = Found(result.kind is VerdictKind.PASS, result.reason, details)
        return self.found(Gate.G3, begin, found, compiler=result.compiler)

    def judge_source(
        self, target: Module, lowered: bytes, recipe: Recipe | None, binding: Binding
    ) -> G3:
        """G3 of any target and lowered source of this session; `recipe` is what the spec asks for,
        where it was read, `binding` what fills the target's fields."""
        judge = judge_apart if self.bench.apart else judge_lowered
        return judge(
            self.package, self.lifted, target, lowered, self.options.arch, recipe, binding,
            cancel=self.bench.cancel, progress=self.bench.progress,
        )  # fmt: skip

    def not_run(
        self, gate: Gate, begin: float, reason: str, details: Mapping[str, Any] = {}, **more: str
    ) -> Verdict:
        """No verdict about the session's present content, and why there is none."""
        return self._verdict(gate, VerdictKind.NOT_RUN, begin, reason, details, **more)

    def found(self, gate: Gate, begin: float, found: Found, **more: str) -> Verdict:
        """A pass or a fail of the session's present content."""
        kind = VerdictKind.PASS if found.ok else VerdictKind.FAIL
        return self._verdict(gate, kind, begin, found.reason, found.details, **more)

    def _verdict(
        self,
        gate: Gate,
        kind: VerdictKind,
        begin: float,
        reason: str,
        details: Mapping[str, Any],
        **more: str,
    ) -> Verdict:
        stage = Stage.LOWERED if gate is Gate.G4 else gate.stage
        seconds = round(time.monotonic() - begin, 3)
        # What rests on given meanings says so until a GPU has run the bytes themselves.
        rests_on = () if gate is Gate.G4 else self.assumed_ops()
        return Verdict(gate, kind, reason, seconds, self.subject(stage, **more), details, rests_on)

    def own_job(self, bench: Mapping[str, Any]) -> Contents | None:
        """The GPU job of a kernel of others; None for one that is lifted."""
        return None

    def own_files(self, level: Level) -> dict[str, bytes] | None:
        """The files of an accepted kernel of others; None for one that a package is made of."""
        return None

    def rules_text(self, recipe: Recipe) -> str:
        """The whole text that the rules propose for a recipe."""
        return self._by_rules(recipe, self.narrower(recipe))

    def _by_rules(self, recipe: Recipe, narrower: int) -> str:
        return print_module(applied_rules(self.lifted.module, recipe, narrower)[0])

    def narrower(self, recipe: Recipe) -> int:
        """How many steps of keys fewer the rules' proposal has than they choose by themselves; 0
        without one, and for one that they would not make of this recipe."""
        made = next((p for p in self.edits if p.origin is Origin.RULES), None)
        text = None if made is None else self.proposed_text(made)
        steps = range(MOST_STEPS if text is not None else 0)
        return next((n for n in steps if self._by_rules(recipe, n) == text), 0)

    def assumed_ops(self) -> tuple[str, ...]:
        """Ops whose meaning was given and not proven."""
        return assumed(self.bare.module, self.lifted.module)

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
            found = self.ask_judge(module, recipe, binding, spec, options, base, what=gate.value)
        except ChildFailed as error:
            at = error.where
            place = f"{Path(at.file).name}:{at.line}: " if at is not None and at.line else ""
            return self._unfinished(gate, begin, place + error.message)
        if gate is Gate.G1:
            reason = found.reason.replace("the spec", "the kernel's own reference")
            found = replace(found, reason=reason)
        return self.found(gate, begin, found)

    def ask_judge(
        self,
        module: Module,
        recipe: Recipe | None,
        binding: Binding,
        spec: Path,
        options: Mapping[str, Any],
        base: Module | None = None,
        *,
        what: str,
    ) -> Found:
        """What `engine.gates.g1_g2.judge` says of a module, in the torch child.

        `what` begins each line that it says meanwhile: the gate. `base` is the module before a
        model's or a person's edit.

        Raises:
            ChildEnded: it was killed, hung or grew too large.
            ChildFailed: it raised what it never should.
        """
        payload = {
            "module": print_module(module),
            "recipe": None if recipe is None else recipe_to_json(recipe),
            "binding": binding.to_json(),
            "spec": str(spec),
            "options": dict(options),
            "base": None if base is None else print_module(base),
            "archs": list(self.package.archs),
            "sizes": dict(self.package.sizes.most),
        }
        answer = self.bench.child.call(
            "judge",
            payload,
            seconds=GATE_SECONDS,
            cancel=self.bench.cancel,
            progress=lambda text: self.bench.progress(f"{what}: {text}"),
        )
        return Found.from_json(answer)


def applied_rules(base: Module, recipe: Recipe, narrower: int = 0) -> tuple[Module, Steps, Binding]:
    """What the rules make of a kernel, by tiles of `narrower` steps of keys fewer than they choose,
    the way there, and how its arguments are filled.

    Raises `TransferError` where no rule carries the recipe.
    """
    planned = plan(base, recipe, narrower)
    steps = list(apply(base, planned.steps))
    return released(base, legal(steps[-1][1] if steps else base)), steps, planned.binding
