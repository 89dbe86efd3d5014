"""Twenty-four writings of each variant give one recipe; a twin that differs by one never does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import engine.spec.read as reading
from engine.spec import Recipe, read_recipe
from tests.engine.scalar_algebra.equivalence import difference
from tests.engine.spec.families import Family, families

FAMILIES = families()


def meaning(recipe: Recipe) -> tuple[object, ...]:
    """What a recipe asks for; how the spec fills empty rows and its lines take no part."""
    return (
        recipe.inputs, recipe.score, recipe.keep, recipe.weight, recipe.kv_head,
        recipe.output_dims, recipe.sink, recipe.output, recipe.constraints,
    )  # fmt: skip


@cache
def read_once(text: str) -> Recipe:
    """A recipe of which only the meaning counts."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "spec.py"
        path.write_text(text)
        return read_recipe(path)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_equivalent_writings_give_the_same_recipe(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are read, and every third is held against its own function as well, which takes the most
    time: a recipe that equals theirs asks for what was held."""
    hold = reading._validated
    texts = family.texts()
    assert len(set(texts)) == len(texts) >= 20
    found = []
    for n, text in enumerate(texts):
        path = tmp_path / f"writing{n}.py"
        path.write_text(text)
        held = hold if n % 3 == 0 else lambda program, read, recipe, *_: recipe
        monkeypatch.setattr(reading, "_validated", held)
        found.append(meaning(read_recipe(path)))
    for n, one in enumerate(found):
        assert one == found[0], f"writing {n}:\n{texts[n]}"


@pytest.mark.parametrize(
    ("family", "n"), [(f, n) for f in FAMILIES for n in range(len(f.twin_texts()))],
    ids=lambda v: v.name if isinstance(v, Family) else str(v),
)  # fmt: skip
def test_a_twin_never_gives_the_same_recipe(
    family: Family, n: int, write: Callable[[str], Path]
) -> None:
    original = read_once(family.writing(0))
    twin = read_recipe(write(family.twin_texts()[n]))
    assert meaning(twin) != meaning(original)
    kinds = {i.name: "int" for i in original.inputs if i.dtype == "i32"}
    pairs = [(original.keep, twin.keep), (original.score, twin.score)]
    if original.weight is not None and twin.weight is not None:
        pairs.append((original.weight, twin.weight))
    assert any(difference(a, b, kinds) is not None for a, b in pairs), "equal at 10,000 points"
