"""Drawn specs and masks through all that stands between a spec and machine code, on both kernels.

`texts` is G3's side: the spec is read, its recipe held against the spec's own function at sizes of
all remainders, the rules make the target, and the lowered text passes the checks that run nothing
and nvcc. `decks` is G2 as a session has it. One specialisation: bf16, 128 columns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.sweep import compiling
from benchmarks.sweep.gate import passed, target
from benchmarks.sweep.tasks import TARGETS, Drawn
from engine.errors import CuBridgeError, TransferError
from engine.lift import lift, load_package
from engine.lift.cpp.provenance import Lifted
from engine.spec.recipes.recipe import Recipe
from engine.transfer.rules import plan
from tests.engine.lower.random_masks import lowered, random_mask, spec_text
from tests.engine.spec.spec_grammar import Outcome, draw_spec, held, read_drawn

KEY = "bf16_128"
SIZES_EACH = 8
THROUGH_PTXAS = 20  # one text of so many, for what it spills
FAULTS = ("false", "misread", "internal", "not lowered", "not compiled", "spills", "fails")
"""Outcomes that nothing excuses; the others are a pass and a refusal with its reason."""

Line = dict[str, Any]


@cache
def kernel(name: str) -> Lifted:
    package = load_package(name)
    return lift(package, KEY, package.archs[0])


def text_of(of: Drawn, seed: int) -> str:
    """A drawn spec's text."""
    return draw_spec(seed) if of == "spec" else spec_text(random_mask(seed))


def texts(of: Drawn, seeds: tuple[int, ...]) -> Iterator[tuple[int, Line]]:
    """What became of each on its way to machine code; all are compiled in one unit per kernel."""
    lines: dict[int, Line] = {}
    recipes: dict[str, Recipe] = {}
    made: dict[str, dict[str, bytes]] = {name: {} for name in TARGETS}
    with tempfile.TemporaryDirectory(prefix="cubridge-sweep-") as folder:
        for seed in seeds:
            path = Path(folder) / f"{of}_{seed}.py"
            path.write_text(text_of(of, seed))
            recipe = read_drawn(path)
            found = recipe if isinstance(recipe, Outcome) else held(path, recipe, seed, SIZES_EACH)
            lines[seed] = {"outcome": found.kind, "why": found.words}
            if found.kind == "read" and isinstance(recipe, Recipe):
                recipes[str(seed)] = recipe
                for name in TARGETS:
                    outcome, why, text = _lowered(name, recipe)
                    lines[seed][name] = {"outcome": outcome, "why": why}
                    if text:
                        made[name][str(seed)] = text
    for name, batch in made.items():
        arch = load_package(name).archs[0]
        wrong = compiling.refused(name, arch, KEY, batch)
        for seed, why in wrong.items():
            lines[int(seed)][name] = {"outcome": "not compiled", "why": why}
        for seed, text in batch.items():
            if int(seed) % THROUGH_PTXAS == 0 and seed not in wrong:
                outcome, why = optimised(name, arch, recipes[seed], text)
                lines[int(seed)][name] = {"outcome": outcome, "why": why}
    yield from lines.items()


def optimised(name: str, arch: str, recipe: Recipe, text: bytes) -> tuple[str, str]:
    """What ptxas makes of a text; where it spills, of the next smaller tiles, as a session has it
    that proposes again."""
    first = why = compiling.spills(arch, KEY, text)
    for narrower in count(1):
        if not why:
            steps = f"{narrower - 1} step{'s' * (narrower > 2)} of keys fewer"
            return "optimised", f"{steps}: {first}" if first else ""
        last, text = text, lowered(kernel(name), recipe, narrower)[0]
        if text == last:
            return "spills", first
        why = compiling.spills(arch, KEY, text)
    raise AssertionError("tiles have so many keys")


def _lowered(name: str, recipe: Recipe) -> tuple[str, str, bytes]:
    """Outcome, reason and text of a recipe on a kernel."""
    try:
        plan(kernel(name).module, recipe)
    except TransferError as error:
        return "refused", error.message, b""
    except Exception as error:
        return "internal", f"{type(error).__name__}: {error}", b""
    try:
        return "compiled", "", lowered(kernel(name), recipe)[0]
    except (CuBridgeError, AssertionError) as error:
        return "not lowered", str(error), b""
    except Exception as error:
        return "internal", f"{type(error).__name__}: {error}", b""


def decks(of: Drawn, seeds: tuple[int, ...]) -> Iterator[tuple[int, Line]]:
    """G2's verdict on each."""
    with tempfile.TemporaryDirectory(prefix="cubridge-sweep-") as folder:
        for seed in seeds:
            path = Path(folder) / f"{of}_{seed}.py"
            path.write_text(text_of(of, seed))
            recipe = read_drawn(path)
            if isinstance(recipe, Outcome):
                yield seed, {"outcome": recipe.kind, "why": recipe.words}
                continue
            line: Line = {"outcome": "read", "why": ""}
            for name in TARGETS:
                outcome, why = _judged(name, recipe, path)
                line[name] = {"outcome": outcome, "why": why}
            yield seed, line


def _judged(name: str, recipe: Recipe, path: Path) -> tuple[str, str]:
    try:
        subject = target(kernel(name).module, recipe, path)
    except TransferError as error:
        return "refused", error.message
    except Exception as error:
        return "internal", f"{type(error).__name__}: {error}"
    try:
        with subject.function:
            found = passed(subject, load_package(name).archs)
    except CuBridgeError as error:
        return "refused", error.message
    except Exception as error:
        return "internal", f"{type(error).__name__}: {error}"
    return ("passes", found.proven) if not found.by else ("fails", f"{found.by}: {found.why}")
