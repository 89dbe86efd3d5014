"""Whether the scores of a patched source stand where those of the author's did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.build.tools.toolchain import Toolchain
from engine.child.client import Child
from engine.errors import InputError
from engine.files import read_text
from engine.foreign.check import Asked, launcher_of
from engine.foreign.compile import compile_kernel
from engine.foreign.overlay import below
from engine.foreign.probe.boundaries import Boundary
from engine.foreign.probe.codes import Codes
from engine.foreign.probe.coverage import held
from engine.foreign.probe.observed import Look, Observed, compile_observed
from engine.foreign.probe.places import Hook, Place
from engine.foreign.probe.run import Bench, Sizes, probing_sizes
from engine.foreign.probe.tracks import tracks
from engine.foreign.reference import read_reference
from engine.gates.outcome import Found
from engine.graft.edits import Edit
from engine.ptx.isa.observe import Observer
from engine.scalar_algebra.arrays import kept_places, places
from engine.spec.recipes.recipe import Recipe

Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Patched:
    """A patched kernel: as a person gave it and with the files changed, which lie in `folder`."""

    was: Asked
    now: Asked
    folder: Path
    edits: Sequence[Edit]

    def place(self, old: Place) -> Boundary:
        """A place of the author's source in the patched one."""
        shift = sum(
            len(e.text.encode()) - (e.end - e.start)
            for e in self.edits
            if e.file == old.file and e.start < old.after
        )
        return Boundary(
            self.folder / below(self.was)[old.file], old.function, old.after + shift,
            old.line, old.indent, (), (), (),
        )  # fmt: skip


def same_scores(
    hooks: Sequence[Hook], recipe: Recipe, patched: Patched, child: Child, tools: Toolchain,
    said: Said,
) -> Found:  # fmt: skip
    """Probes the patched source at the places of its hooks, before what was put there: those of
    each hook hold each score that the recipe keeps, and each that they hold once.

    Raises:
        InputError: it cannot be probed.
    """
    asked, folder = patched.now, patched.folder / "probe"
    folder.mkdir()
    assert asked.reference is not None
    reference = read_reference(asked.reference, child, asked.options)
    text = read_text(asked.source, "the patched source")
    entry = launcher_of(asked, text, reference)
    # Whole, as what may be written is: of what is looked at alone a few words are enough.
    looks = [Look(patched.place(p), p.variable, "change") for hook in hooks for p in hook.places]
    base = compile_kernel(asked.source, entry, asked.flags, tools, folder)
    observed = compile_observed(asked, entry, looks, tools, base, folder)
    said_of: list[str] = []
    at = 0
    for hook in hooks:
        own = replace(asked, sizes=(hook.sizes,)) if hook.sizes else asked
        bench = Bench(own, entry, reference, child, folder)
        found = _held_again(hook, at, observed, recipe, bench, said)
        if not found.ok:
            return found
        said_of.append(found.reason)
        at += len(hook.places)
    return Found(True, f"probed again, {'; '.join(said_of)}")


def _held_again(
    hook: Hook, first: int, observed: Observed, recipe: Recipe, bench: Bench, said: Said
) -> Found:
    """One hook's places, whose observations begin with number `first`."""
    why: InputError | None = None
    usual = [sizes for sizes, _ in probing_sizes(bench)]
    assert bench.reference is not None
    own = [hook.probed] if hook.probed and bench.reference.allows(hook.probed) else []
    for sizes in (*own, *usual):
        said(f"probing at {_words(sizes)}")
        q, k = Codes(sizes).inputs()
        v = np.ones((sizes["B"], sizes["Hkv"], sizes["Nk"], sizes["Dv"]))
        observer = Observer()
        try:
            bench.run(observed.compiled, sizes, q, k, v, observer)
        except InputError as error:
            why = why or error
            continue
        scale = bench.scale(sizes)
        by = 1.0 if hook.factor == 1 else hook.factor / hook.scale * scale
        found = tracks(observer)
        count = np.zeros(int(np.prod(Codes(sizes).shape)), np.int64)
        idle = []  # places whose tiles the mask drops all
        for number, place in enumerate(hook.places, start=first):
            at = f"{place.file.name}:{place.line}: {place.variable}"
            if number not in found:
                idle.append(at)
                continue
            one = held(number, found[number], Codes(sizes), (by,))
            if isinstance(one, str):
                return Found(False, f"probed again, {at} holds no scores any more: {one}")
            count += one.covered
        lacking = int((needed(recipe, sizes) & (count == 0)).sum())
        if lacking or count.max() > 1:
            wrong = f"lack {lacking}" if lacking else "hold some more than once"
            return Found(False, f"probed again, the places of the scores {wrong} ({_words(sizes)})")
        once = int((count == 1).sum())
        words = f"{once} scores stand where they stood, once each ({_words(sizes)})"
        return Found(True, "; ".join((words, *(f"{at} is not reached any more" for at in idle))))
    raise why or InputError("the patched source is probed at no sizes")


def needed(recipe: Recipe, sizes: Sizes) -> np.ndarray[Any, Any]:
    """The pairs that the recipe keeps, as far as indices alone say: [B Hq Nq Nk]."""
    kept = kept_places(recipe.keep, places(sizes))
    return np.broadcast_to(kept, Codes(sizes).shape).reshape(-1)


def _words(sizes: Sizes) -> str:
    return ", ".join(f"{n} {sizes[n]}" for n in ("B", "Hq", "Hkv", "Nq", "Nk", "D"))
