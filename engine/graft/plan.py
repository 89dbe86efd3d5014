"""A recipe as edits of a foreign kernel's files, at the places that probing found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.cuir.nodes import Name, walk_expr
from engine.errors import TransferError
from engine.foreign.functions import plain
from engine.foreign.launcher import Launcher
from engine.foreign.probe.boundaries import lambdas_around
from engine.foreign.probe.places import Found, Hook, Place
from engine.graft.edits import Edit, Files
from engine.graft.element import COORDINATES, SIZES, masked_or_scored, write
from engine.graft.route import Router, values_at
from engine.spec.recipes.recipe import Recipe

# What a dropped pair's score becomes, as evidence decides: -inf is what the recipe says, and right
# where the kernel guards rows whose first tiles are dropped; a large number where it does not. A
# power of two: times a scale it is exact, so that the score less its row's maximum is 0 whether or
# not ptxas makes one operation of product and difference.
MINUS = ("-INFINITY", "-0x1p126f")
INLINE = "__attribute__((always_inline)) "
STAYS_INLINE = (
    "with more in it nvcc may call the lambda, and a call ends what matmuls may do beside it"
)


def plan(
    recipe: Recipe, hooks: Sequence[Hook], files: Files, source: Path, launcher: Launcher,
    minus: str, head_size: int, equal: bool, folded: bool = True,
) -> list[Edit]:  # fmt: skip
    """The edits that carry a recipe; none where it asks for no other score and drops no pair.

    Args:
        hooks: of each kernel one; instantiations of a template have the same places.
        head_size: D of a kernel whose launcher is not told it.
        equal: whether it has as many rows as keys wherever it is run.
        folded: how scores are written, as `write` has it.

    Raises:
        TransferError: a part of the recipe is no edit of a score, or has no writing there.
    """
    router = Router(files, source, plain(launcher.name))
    items = {i.name: i for i in recipe.extra()}
    refuse(recipe)
    edits: list[Edit] = []
    fixed = {} if "D" in launcher.sizes else {"D": str(head_size)}
    found: dict[tuple[Path, int], tuple[Place, Hook]] = {}
    for hook in hooks:
        for place in hook.places:
            before, _ = found.setdefault((place.file, place.after), (place, hook))
            found[place.file, place.after] = _of_both(before, place), hook
    for place, hook in found.values():
        place = replace(place, sizes={**fixed, **place.sizes})
        text = files[place.file].decode("utf-8", "surrogateescape")
        infinite = hook.dropped == "-inf"
        bare = write(recipe, place, text, {}, minus, equal, folded, infinite)
        if not bare.text:
            continue
        values = values_at(router, items, bare.inputs, place)
        made = write(recipe, place, text, values, minus, equal, folded, infinite)
        title, clauses = _title(recipe), ", ".join(made.clauses)
        reason = _reason(recipe, hook, minus)
        edits.append(Edit(place.file, place.after, place.after, made.text, title, reason, clauses))
        for at in lambdas_around(files[place.file], place.after):
            edits.append(Edit(place.file, at, at, INLINE, title, STAYS_INLINE, clauses))
    return [*edits, *router.edits]


def _of_both(one: Place, other: Place) -> Place:
    """A place of two instantiations of a template, with what is right in both.

    Raises:
        TransferError: its elements are others, or nothing makes scores of them in both.
    """
    scales = [t for t in (one.to_score, *one.alike) if t in (other.to_score, *other.alike)]
    coordinates, sizes = (
        {n: t for n, t in own.items() if its.get(n) == t}
        for own, its in ((one.coordinates, other.coordinates), (one.sizes, other.sizes))
    )
    same = (one.variable, one.element) == (other.variable, other.element)
    if not same or one.elements != other.elements or not scales:
        raise TransferError(
            f"{one.file.name}:{one.line}: {one.variable} holds scores in two instantiations, and "
            "no one text there makes them scale * (q . k) in both"
        )
    return replace(one, coordinates=coordinates, sizes=sizes, to_score=scales[0],
                   alike=tuple(scales[1:]))  # fmt: skip


def refuse(recipe: Recipe) -> None:
    """Raises TransferError where a recipe is no edit of scores, whatever the kernel is."""
    if recipe.lse == "2":
        raise TransferError("a log-sum-exp in base 2 is not carried into a foreign kernel")
    masked_or_scored(recipe)  # what is no edit of scores at all is said first
    refuse_numbers(recipe)


def refuse_numbers(recipe: Recipe) -> None:
    """Raises TransferError where scores or mask ask for a number that a caller gives: what comes in
    has dimensions."""
    plain = {i.name for i in recipe.extra() if not i.dims}
    known = {"x", *COORDINATES, *SIZES, *(i.name for i in recipe.extra() if i.dims)}
    for part in (recipe.score, recipe.keep):
        for e in walk_expr(part):
            if isinstance(e, Name) and e.id not in known:
                kind = "a tensor without dimensions" if e.id in plain else "a number of the caller"
                raise TransferError(
                    f"the spec's {e.id} is {kind}, which is not carried into a foreign kernel",
                    fix="write its value into the spec, or read it from a tensor over heads",
                )


def hooks_of(found: Found) -> tuple[Hook, ...]:
    """The hooks to write at.

    Raises:
        TransferError: none was found, with what probing says.
    """
    if not found.hooks:
        why = "; ".join(found.refused) or "probing found no place that holds every score once"
        raise TransferError(f"the kernel has no scores to edit: {why}")
    return found.edited


def _title(recipe: Recipe) -> str:
    score, dropped = masked_or_scored(recipe)
    parts = ["the spec's score"] * (score is not None) + ["its mask"] * (dropped is not None)
    return ("Compute " if score is not None else "Apply ") + " and ".join(parts).replace(
        "its", "its" if score is not None else "the spec's"
    )


def _reason(recipe: Recipe, hook: Hook, minus: str) -> str:
    said = [hook.evidence.rstrip(".")]
    if masked_or_scored(recipe)[1] is not None and minus != MINUS[0]:
        said.append(
            f"a dropped pair becomes {minus}: with -INFINITY the patched kernel was wrong when "
            "it was executed"
        )
    return "; ".join(said)
