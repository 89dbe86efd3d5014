"""Kernels broken on purpose: what the self-test must see rejected."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A changed source (None where the change does not apply) and the checks that must see it."""

    name: str
    change: str
    text: str | None
    seen_by: tuple[str, ...]


def mutants_of(source: str, lse: bool = True) -> tuple[Mutant, ...]:
    """The classic bugs, put into a kernel's own text; that of LSE where it is compared (`lse`)."""
    made = (
        _mutant(source, "mask", "the keep predicate looks one key ahead", _mask, ("keep sets",)),
        _mutant(source, "scale", "the scale is dropped", _scale, ("accuracy",)),
        _mutant(source, "heads", "query head h reads key head h % Hkv", _heads, ("accuracy",)),
        _mutant(source, "lse", "LSE in base 2", _lse, ("lse",)),
    )
    return tuple(m for m in made if lse or m.name != "lse")


def _mutant(
    source: str, name: str, change: str, apply: Callable[[str], str], seen_by: tuple[str, ...]
) -> Mutant:
    text = apply(source)
    return Mutant(name, change, text if text != source else None, seen_by)


def _mask(source: str) -> str:
    """Inside every keep(...): the last parameter of the lambda plus one."""

    def shifted(found: re.Match[str]) -> str:
        name = found[2]
        return found[1] + re.sub(rf"\b{name}\b", f"({name} + 1)", found[3])

    return re.sub(
        r"(keep\((?:[^;{]|\n)*?\[&\]\(int \w+, int (\w+)\) \{\s*return )([^;]*;)", shifted, source
    )


def _scale(source: str) -> str:
    return re.sub(r"\bargs\.scale\b", "1.0f", source)


def _heads(source: str) -> str:
    return re.sub(r"(\bh\w*) / \(args\.Hq / args\.Hkv\)", lambda m: f"{m[1]} % args.Hkv", source)


def _lse(source: str) -> str:
    return re.sub(r"(?<![\w.])log\(", "log2(", source)
