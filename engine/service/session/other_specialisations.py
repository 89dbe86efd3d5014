"""G2 of an edit in another specialisation: one text is built for every head size and element type,
so what a free hand wrote for one is judged in the one that differs most, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.child.wire import ChildFailed
from engine.cuir.changes.diff import diff
from engine.cuir.changes.patch import apply
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, Interrupted
from engine.files import read_spec
from engine.lift import lift_source, specialisation_key
from engine.lift.files.meanings import known_meanings, like
from engine.service.session.disk_inputs import modules_hash
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.binding import Binding
from engine.types import sha256_of

if TYPE_CHECKING:
    from engine.service.session.stage_work import Work


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What G2 says of an edit, here or in another specialisation."""

    ok: bool
    reason: str
    details: Mapping[str, Any]
    unfinished: bool = False  # an exception ended what judges: nothing is known of the edit


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
        spec_hash(work), json.dumps(dict(work.options.spec), default=str),
    )  # fmt: skip
    asked = sha256_of("\0".join(parts))
    if asked not in work.elsewhere:
        work.bench.progress(f"G2: running the edit as {key}")
        found = judged(work, base, edited, binding, recipe, what=f"G2 as {key}")
        reason = f"as {key}, which is built of the same text: {found.reason}"
        found = replace(found, reason=reason)
        if not found.details:  # the child failed: another time it may not
            return found
        work.elsewhere[asked] = found
    return work.elsewhere[asked]


def spec_hash(work: Work) -> str:
    """Of the spec, and of the modules that it imports from beside it."""
    return sha256_of(f"{sha256_of(read_spec(work.spec))} {modules_hash(work.spec)}")


def judged(
    work: Work, base: Module, module: Module, binding: Binding, recipe: Recipe | None, *,
    what: str = "G2",
) -> Elsewhere:  # fmt: skip
    """G2 of `module`, an edit of `base`, by the torch child; one that raises decides nothing.

    `what` begins each line that it says meanwhile.
    """
    try:
        found = work.ask_judge(
            module, recipe, binding, work.spec, work.options.spec, base, what=what
        )
    except Interrupted:
        raise
    except ChildFailed as error:
        return Elsewhere(False, error.message, {}, unfinished=True)
    except CuBridgeError as error:  # what the module itself cannot run
        return Elsewhere(False, str(error), {}, unfinished=True)
    return Elsewhere(found.ok, found.reason, dict(found.details))


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
