"""Short ids of statements and functions, in a side table that follows them through edits.

An id is `s` and a number for a statement, `f` and a number for a function. It names the same
statement for as long as that lives, and is never given again: prompts, hunks and verdicts of older
artifacts stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from engine.cuir.changes.edits import Diff
from engine.cuir.nodes import Module, Path, walk

Ids = dict[Path, str]
Value = TypeVar("Value")


def assign(module: Module) -> Ids:
    """Fresh ids for all of `module`, numbered in reading order from 1."""
    return _fill(module, {}, ())


def carry(
    old_ids: Mapping[Path, str], difference: Diff, new: Module, used: Iterable[str] = ()
) -> Ids:
    """The ids of `new`: survivors keep theirs, what is new gets ids never used before.

    `used` are ids that have been given away earlier (of statements deleted long ago).
    """
    kept = carry_table(old_ids, difference)
    return _fill(new, kept, [*used, *old_ids.values()])


def carry_table(table: Mapping[Path, Value], difference: Diff) -> dict[Path, Value]:
    """Any table of the old module (provenance, origins) for the statements that survive."""
    pairs = difference.pairs
    return {pairs[path]: value for path, value in table.items() if path in pairs}


def same_ids(old_ids: Mapping[Path, str], new_ids: Mapping[Path, str]) -> dict[Path, Path]:
    """Old path -> new path of what bears the same id in both; an id met twice proves nothing."""
    old_at, new_at = _unique(old_ids), _unique(new_ids)
    return {old_at[name]: new_at[name] for name in old_at if name in new_at}


def _unique(ids: Mapping[Path, str]) -> dict[str, Path]:
    out: dict[str, Path] = {}
    doubled: set[str] = set()
    for path, name in ids.items():
        if name in out:
            doubled.add(name)
        out[name] = path
    return {name: path for name, path in out.items() if name not in doubled}


def _number(name: str) -> int:
    return int(name[1:]) if name[:1] in ("s", "f") and name[1:].isdecimal() else 0


def _fill(module: Module, kept: Mapping[Path, str], used: Iterable[str]) -> Ids:
    last = max(map(_number, [*used, *kept.values()]), default=0)
    ids: Ids = {}
    paths: list[Path] = []
    for function in module.functions:
        paths.append((function.name,))
        paths += [path for path, _ in walk(Module((), (), (function,)))]
    for path in paths:
        if path in kept:
            ids[path] = kept[path]
            continue
        last += 1
        ids[path] = f"{'f' if len(path) == 1 else 's'}{last}"
    return ids
