"""The gates as a model's edit meets them: G2 with every branch taken, also in another
specialisation, what else was asked for, and G3."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from engine.child.client import ChildEnded, ChildFailed
from engine.cuir.diff import diff
from engine.cuir.nodes import Module
from engine.cuir.patch import apply
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, InputError, Interrupted, LowerError
from engine.gates.g3 import G3
from engine.lift import lift_source, specialisation_key
from engine.lift.meanings import known_meanings, like
from engine.lower.lower import lower
from engine.service.inputs import modules_hash
from engine.service.work import Work
from engine.spec.recipe import Recipe
from engine.spec.text import recipe_to_json
from engine.transfer.binding import Binding
from engine.transfer.llm.loop import Judgement, Reached
from engine.types import Gate, VerdictKind, sha256_of


@dataclass(frozen=True, slots=True)
class ModelGates:
    """The gates of one session. `through` is the last one that an edit must pass, `also` one more
    demand (why it is not met), `turn` is held while gates run."""

    work: Work
    through: Gate
    also: Callable[[Module], str | None]
    turn: Callable[[], AbstractContextManager[object]]

    def judge(self, recipe: Recipe | None) -> Callable[[Module, Binding], Judgement]:
        """The judge of edits of a session's target; `recipe` is None where none was read."""
        spec = _spec_hash(self.work)

        def judge(module: Module, binding: Binding) -> Judgement:
            with self.turn():
                return judge_in_turn(module, binding)

        def judge_in_turn(module: Module, binding: Binding) -> Judgement:
            found = self._g2(module, binding, recipe)
            if found.reached is Reached.PASSED:
                found = self._g2_elsewhere(module, binding, recipe, found)
            unmet = self.also(module) if found.reached is Reached.PASSED else None
            if unmet is not None:
                found = Judgement(Reached.UNMET, unmet)
            if found.reached is Reached.PASSED and self.through is not Gate.G2:
                found = self._g3(module, found)
            if _spec_hash(self.work) != spec:
                raise InputError(
                    f"{self.work.spec.name}, or a module that it imports, changed while a model "
                    "was asked",
                    fix="start again",
                )
            return found

        return judge

    def _g2(self, module: Module, binding: Binding, recipe: Recipe | None) -> Judgement:
        work = self.work
        work.bench.progress("G2: running the model's edit against the spec")
        found = _judged(work, work.ruled(), module, binding, recipe)
        reached = Reached.PASSED if found.ok else Reached.G2
        return Judgement(reached, found.reason, str(found.details.get("op") or ""), found.details)

    def _g2_elsewhere(
        self, module: Module, binding: Binding, recipe: Recipe | None, found: Judgement
    ) -> Judgement:
        """The same edit in another specialisation of the source; `found` where it passes there."""
        there = judged_elsewhere(self.work, module, binding, recipe)
        if there is None or there.ok:
            return found
        op = str(there.details.get("op") or "")
        return Judgement(Reached.G2, there.reason, op, there.details)

    def _g3(self, module: Module, found: Judgement) -> Judgement:
        """The text of G3 and, where nvcc is, its compile: a model can repair what fails there."""
        work = self.work
        try:
            lowered = lower(work.lifted, module)
            result = work.judge_source(module, lowered.source)
        except LowerError as error:
            return Judgement(Reached.LOWERING, f"it cannot be lowered: {error}")
        except CuBridgeError:
            raise
        except Exception as error:  # a text that nobody thought of must not end the session
            reason = f"it cannot be lowered ({type(error).__name__}: {error})"
            return Judgement(Reached.LOWERING, reason)
        if result.kind is VerdictKind.FAIL:
            return Judgement(Reached.LOWERING, result.reason + lowered_line(result, lowered.source))
        return found


def lowered_line(result: G3, source: bytes) -> str:
    """The line of the lowered source that G3 names, since a model sees CuIR alone."""
    number = result.details.get("line")
    lines = source.decode("utf-8", "replace").split("\n")
    if not isinstance(number, int) or not 1 <= number <= len(lines):
        return ""
    return f"\n    {lines[number - 1].strip()}"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What G2 says of an edit, here or in another specialisation."""

    ok: bool
    reason: str
    details: Mapping[str, Any]
    unfinished: bool = False  # what judges was killed, hung or ran out of memory


def judged_elsewhere(
    work: Work, module: Module, binding: Binding, recipe: Recipe | None
) -> Elsewhere | None:
    """G2 of the same edit in another specialisation of the source: what is right at one head size
    or element type alone is found here. None where there is no other, or where G3 will say that
    the edit does not fit. What was judged once, in a model's loop say, is not judged again.
    """
    other = elsewhere(work, module)
    if other is None:
        return None
    key, base, edited = other
    parts = (
        print_module(base), print_module(edited), json.dumps(binding.to_json()),
        "" if recipe is None else json.dumps(recipe_to_json(recipe)),
        _spec_hash(work), json.dumps(dict(work.options.spec), default=str),
    )  # fmt: skip
    asked = sha256_of("\0".join(parts))
    if asked not in work.elsewhere:
        work.bench.progress(f"G2: running the edit as {key}")
        found = _judged(work, base, edited, binding, recipe)
        reason = f"as {key}, which is built of the same text: {found.reason}"
        found = replace(found, reason=reason)
        if not found.details:  # the child failed: another time it may not
            return found
        work.elsewhere[asked] = found
    return work.elsewhere[asked]


def _spec_hash(work: Work) -> str:
    """Of the spec, and of the modules that it imports from beside it."""
    return sha256_of(f"{sha256_of(work.spec.read_bytes())} {modules_hash(work.spec)}")


def _judged(
    work: Work, base: Module, module: Module, binding: Binding, recipe: Recipe | None
) -> Elsewhere:
    try:
        answer = work.ask_judge(
            module, recipe, binding, work.spec, work.options.spec, base, explain=True
        )
    except Interrupted:
        raise
    except ChildFailed as error:
        return Elsewhere(False, error.message, {}, isinstance(error, ChildEnded))
    except CuBridgeError as error:  # what the module itself cannot run
        return Elsewhere(False, str(error), {})
    return Elsewhere(bool(answer["ok"]), str(answer["reason"]), dict(answer["details"]))


def elsewhere(work: Work, module: Module) -> tuple[str, Module, Module] | None:
    """The specialisation that differs most from the session's: its name, the module there that a
    free hand began with, and the edit that leads to `module`; None where there is no other, or
    where the edit does not fit it."""
    lifted = work.lifted
    own = {k: v for k, v in lifted.specialisation.items() if k != "arch"}

    def distance(binding: Mapping[str, str]) -> int:
        return sum(binding[k] != own.get(k) for k in binding)

    binding = max(work.package.specialisations, key=distance, default=None)
    if binding is None or not distance(binding):
        return None
    base = lift_source(
        lifted.source, binding, work.options.arch, file=work.package.file, entry=work.package.entry
    ).module
    base = like(base, known_meanings(lifted.module))

    def there(target: Module) -> Module:
        edit = diff(replace(lifted.module, spec=()), replace(target, spec=()))
        return replace(apply(edit, replace(base, spec=())), spec=base.spec)

    try:
        return specialisation_key(binding), there(work.ruled()), there(module)
    except ValueError:
        return None
