"""Kernels broken on purpose: what the self-test must see rejected."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

LISTS = ("class_tiles", "list_tiles")  # what a kernel that makes tile lists has
NOT_APPLICABLE = "not applicable: this kernel's text has no place for it"


@dataclass(frozen=True)
class Mutant:
    """A changed source (None where the change does not apply) and the checks that must see it."""

    name: str
    change: str
    text: str | None
    seen_by: tuple[str, ...]


def mutants_of(source: str, lse: bool = True) -> tuple[Mutant, ...]:
    """The classic bugs, put into a kernel's own text; that of LSE where it is compared (`lse`), and
    those of tile lists where the kernel makes some."""
    keeps = ("keep sets",)
    made = [
        _mutant(source, "mask", "the mask looks one key ahead", _mask, keeps),
        _mutant(source, "scale", "the scale is dropped", _scale, ("accuracy",)),
        _mutant(source, "heads", "query head h reads key head h % Hkv", _heads, ("accuracy",)),
    ]
    if lse:
        made.append(_mutant(source, "lse", "LSE in base 2", _lse, ("lse",)))
    if all(name in source for name in LISTS):
        made += [
            _mutant(source, "full", "every listed tile counts as full", _full, keeps),
            _mutant(source, "slot", "a tile takes the bits of the next slot", _slot, keeps),
            _mutant(
                source, "classes", "every second tile keeps the class that lay in the workspace",
                _classes, ("stale lists",),
            ),
        ]  # fmt: skip
    return tuple(made)


def _mutant(
    source: str, name: str, change: str, apply: Callable[[str], str], seen_by: tuple[str, ...]
) -> Mutant:
    text = apply(source)
    return Mutant(name, change, text if text != source else None, seen_by)


# A predicate over (.., i, j): a mask of scores, a tile's class, a tile's mask as bits.
_PREDICATE = re.compile(
    r"(\b(?:keep|class_of<[^;{}]*?>|put_bits<[^;{}]*?>)\([^;{}]*?"
    r"\[&\]\((?:[\w ]+, )*int (\w+)\) \{\s*return )([^;]*;)"
)


def _mask(source: str) -> str:
    """Inside every predicate: the last parameter of the lambda plus one."""

    def shifted(found: re.Match[str]) -> str:
        name = found[2]
        return found[1] + re.sub(rf"\b{name}\b", f"({name} + 1)", found[3])

    return _PREDICATE.sub(shifted, source)


def _scale(source: str) -> str:
    return re.sub(r"\bargs\.scale\b", "1.0f", source)


def _heads(source: str) -> str:
    return re.sub(r"(\bh\w*) / \(args\.Hq / args\.Hkv\)", lambda m: f"{m[1]} % args.Hkv", source)


def _lse(source: str) -> str:
    return re.sub(r"(?<![\w.])log\(", "log2(", source)


def _full(source: str) -> str:
    """`return lists(..) == 2;`, by which the attention leaves a tile unmasked."""
    return re.sub(r"(return lists\w*\([^;{}]*\)) == 2;", r"\1 != 0;", source)


def _slot(source: str) -> str:
    """`return lists(..) - 3;`, which of the masks made as bits is a tile's."""
    return re.sub(r"(return lists\w*\([^;{}]*\)) - 3;", r"\1 - 2;", source)


def _classes(source: str) -> str:
    """The class that `class_tiles` puts at its tile n."""
    return re.sub(
        r"^( *)(put\(lists\w*\.tile\([^;{}]*\+ (\w+)\), kind\);)", r"\1if (\3 % 2 == 0) \2", source,
        flags=re.MULTILINE,
    )  # fmt: skip
