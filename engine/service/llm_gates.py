"""The gates as a model's edit meets them: G2 with sizes that nobody foresaw and in another
specialisation, what else was asked for, and G3."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from engine.child.client import ChildFailed
from engine.cuir.diff import diff
from engine.cuir.nodes import Module
from engine.cuir.patch import apply
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, InputError, Interrupted, LowerError
from engine.gates.g3 import G3
from engine.lift import lift_source, specialisation_key
from engine.lift.meanings import known_meanings, like
from engine.lower.lower import lower
from engine.service.work import GATE_SECONDS, Work
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
        spec = sha256_of(self.work.spec.read_bytes())

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
            if sha256_of(self.work.spec.read_bytes()) != spec:
                raise InputError(
                    f"{self.work.spec.name} changed while a model was asked", fix="start again"
                )
            return found

        return judge

    def _g2(
        self, module: Module, binding: Binding, recipe: Recipe | None, where: str = ""
    ) -> Judgement:
        work = self.work
        work.bench.progress(f"G2: running the model's edit against the spec{where}")
        payload: dict[str, Any] = {
            "module": print_module(module),
            "recipe": None if recipe is None else recipe_to_json(recipe),
            "binding": binding.to_json(),
            "spec": str(work.spec),
            "options": dict(work.options.spec),
            "cases": [unforeseen_case(module)],
            "explain": True,
        }
        try:
            answer = work.bench.child.call(
                "judge", payload, seconds=GATE_SECONDS, cancel=work.bench.cancel,
                progress=work.bench.progress,
            )  # fmt: skip
        except Interrupted:
            raise
        except ChildFailed as error:
            return Judgement(Reached.G2, error.message)
        except CuBridgeError as error:  # what the module itself cannot run
            return Judgement(Reached.G2, str(error))
        details = dict(answer["details"])
        op = str(details.get("op") or "")
        reached = Reached.PASSED if answer["ok"] else Reached.G2
        return Judgement(reached, str(answer["reason"]), op, details)

    def _g2_elsewhere(
        self, module: Module, binding: Binding, recipe: Recipe | None, found: Judgement
    ) -> Judgement:
        """The same edit in another specialisation of the source: what is right at one head size or
        element type alone is found here. `found` where there is none, or where G3 will say that
        the edit does not fit."""
        work = self.work
        other = elsewhere(work, module)
        if other is None:
            return found
        key, edited = other
        judged = self._g2(edited, binding, recipe, f", as {key}")
        if judged.reached is Reached.PASSED:
            return found
        reason = f"as {key}, which is built of the same text: {judged.reason}"
        return Judgement(judged.reached, reason, judged.op, judged.details)

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


def elsewhere(work: Work, module: Module) -> tuple[str, Module] | None:
    """The specialisation that differs most from the session's, and the edit that leads to `module`
    made there; None where there is no other, or where the edit does not fit it."""
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
    edit = diff(replace(lifted.module, spec=()), replace(module, spec=()))
    try:
        made = replace(apply(edit, replace(base, spec=())), spec=base.spec)
    except ValueError:
        return None
    return specialisation_key(binding), made


def unforeseen_case(module: Module) -> Mapping[str, Any]:
    """Sizes that follow from the module's own text: an edit cannot be made for them beforehand."""
    digest = hashlib.sha256(print_module(module).encode()).digest()
    group, kv = ((2, 1), (1, 2), (3, 1), (2, 2))[digest[0] % 4]
    return {
        "B": 1 + digest[1] % 2,
        "Hq": group * kv,
        "Hkv": kv,
        "Nq": 9 + int.from_bytes(digest[2:4]) % 150,
        "Nk": 9 + int.from_bytes(digest[4:6]) % 150,
        "modes": ("exact",),
    }
