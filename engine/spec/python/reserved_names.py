"""Dimensions become fields and variables of a kernel: names that mean something there already."""

from __future__ import annotations

from collections.abc import Iterable

from engine.cuir.static.kernel_names import meaning_of
from engine.spec.python.spec_file import SpecSource

RENAME = "rename it in the spec"


def meaning(name: str) -> str | None:
    """What a name means in every kernel; None for one that is free."""
    return meaning_of(name)


def check_dims(source: SpecSource, name: str, dims: Iterable[str], line: int) -> None:
    """Raises `SpecError` for a dimension of an extra input that cannot bear its name."""
    for each in dims:
        found = None if each.isdigit() or each in ("D", "Dv") else meaning(each)
        if found is not None:
            raise source.error(
                f"the dimension of {name}, {each} cannot be called so in a kernel: it is {found}",
                line, RENAME,
            )  # fmt: skip
