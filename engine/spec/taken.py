"""Extra inputs become fields and variables of a kernel: names that mean something there already."""

from __future__ import annotations

from collections.abc import Iterable

from engine.spec.source import SpecSource

RENAME = "rename it in the spec"


def meaning(name: str) -> str | None:
    """What a name means in every kernel; None for one that is free."""
    from engine.transfer.rules.names import meaning_of  # on use: the rules need recipes themselves

    return meaning_of(name)


def check_names(source: SpecSource, name: str, dims: Iterable[str], line: int) -> None:
    """Raises `SpecError` for an extra input, or a dimension of it, that cannot bear its name."""
    for each in (name, *dims):
        found = None if each.isdigit() or each in ("D", "Dv") else meaning(each)
        if found is not None:
            kind = "input" if each == name else f"dimension of {name},"
            raise source.error(
                f"the {kind} {each} cannot be called so in a kernel: it is {found}", line, RENAME
            )
