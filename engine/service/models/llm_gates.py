"""The gates as a model's edit meets them: G2 with every branch taken, also in another
specialisation, what else was asked for, and G3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from engine.cuir.changes.diff import diff
from engine.cuir.nodes import Module, Path
from engine.errors import CuBridgeError, InputError, LowerError
from engine.gates.g3_source.lowering_check import G3
from engine.gates.g3_source.speed import Speed
from engine.lift import lift_source
from engine.lower.lower import lower
from engine.service.models.llm_findings import found_words, speed_words
from engine.service.session.other_specialisations import judged, judged_elsewhere, spec_hash
from engine.service.session.stage_work import Work
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.transfer.llm.editing import Edit, Gates
from engine.transfer.llm.outcome import Outcome, Reached
from engine.transfer.llm.prompt import Task
from engine.types import TOO_SLOW, Gate, VerdictKind


@dataclass(frozen=True, slots=True)
class ModelGates:
    """The gates of one session, for edits of `task`. `through` is the last one that an edit must
    pass, `also` one more demand (why it is not met), `turn` is held while gates run."""

    work: Work
    task: Task
    through: Gate
    also: Callable[[Module], str | None]
    turn: Callable[[], AbstractContextManager[object]]

    def judge(self, recipe: Recipe | None) -> Gates:
        """The judge of edits of a session's target; `recipe` is None where none was read."""
        spec = spec_hash(self.work)

        def judge(module: Module, binding: Binding) -> Outcome[Edit]:
            with self.turn():
                return judge_in_turn(module, binding)

        def judge_in_turn(module: Module, binding: Binding) -> Outcome[Edit]:
            found = self._g2(module, binding, recipe)
            if found.reached is Reached.PASSED:
                found = self._g2_elsewhere(module, binding, recipe, found)
            unmet = self.also(module) if found.reached is Reached.PASSED else None
            if unmet is not None:
                found = Outcome(Reached.UNMET, unmet)
            if found.reached is Reached.PASSED and self.through is not Gate.G2:
                found = self._g3(module, binding, recipe, found)
            if spec_hash(self.work) != spec:
                raise InputError(
                    f"{self.work.spec.name}, or a module that it imports, changed while a model "
                    "was asked",
                    fix="start again",
                )
            return found

        return judge

    def _g2(self, module: Module, binding: Binding, recipe: Recipe | None) -> Outcome[Edit]:
        work = self.work
        work.bench.progress("G2: running the model's edit against the spec")
        found = judged(work, work.ruled(), module, binding, recipe)
        reached = Reached.PASSED if found.ok else Reached.G2
        return Outcome(reached, found.reason, str(found.details.get("op") or ""), found.details)

    def _g2_elsewhere(
        self, module: Module, binding: Binding, recipe: Recipe | None, found: Outcome[Edit]
    ) -> Outcome[Edit]:
        """The same edit in another specialisation of the source; `found` where it passes there."""
        there = judged_elsewhere(self.work, module, binding, recipe)
        if there is None or there.ok:
            return found
        op = str(there.details.get("op") or "")
        return Outcome(Reached.G2, there.reason, op, there.details)

    def _g3(
        self, module: Module, binding: Binding, recipe: Recipe | None, found: Outcome[Edit]
    ) -> Outcome[Edit]:
        """The text of G3 and, where nvcc is, its compile and speed: a model can repair what fails
        there, and hears of the speed of what passes."""
        work = self.work
        try:
            lowered = lower(work.lifted, module)
            result = work.judge_source(module, lowered.source, recipe, binding)
        except LowerError as error:
            return Outcome(Reached.LOWERING, f"it cannot be lowered: {error}")
        except CuBridgeError:
            raise
        except Exception as error:  # a text that nobody thought of must not end the session
            reason = f"it cannot be lowered ({type(error).__name__}: {error})"
            return Outcome(Reached.LOWERING, reason)
        speed = Speed.of(result.details)
        if speed is not None and result.details.get(TOO_SLOW):
            said = speed_words(speed, result.details)
            return Outcome(Reached.LOWERING, result.reason, found=said, microseconds=speed.us)
        if result.kind is VerdictKind.FAIL:
            pairs = diff(self.task.base, module).pairs
            ids = {new: self.task.ids[old] for old, new in pairs.items() if old in self.task.ids}
            said = compilers_words(work, result, lowered.source, module, ids)
            return Outcome(Reached.LOWERING, result.reason, found=said)
        if speed is None or speed.problem:
            return found
        better = speed_words(speed, result.details)
        return replace(found, microseconds=speed.us, better=better)


def compilers_words(
    work: Work, result: G3, source: bytes, module: Module, ids: Mapping[Path, str]
) -> str:
    """All that G3 found in a lowered source, each error at its op of `module`; a model knows its
    statements by `ids`."""
    lifted = work.lifted
    binding = {k: v for k, v in lifted.specialisation.items() if k != "arch"}
    try:
        again = lift_source(source, binding, work.options.arch, entry=work.package.entry)
    except CuBridgeError:
        again = None
    return found_words(result.details, source, again, module, ids)
