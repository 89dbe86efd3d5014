"""Which primitives of a source a conformance run has proven, alone and on a GPU, by these headers.

A record (`kernels/conformance/results/*.json`, written by the runners beside it) names for each
primitive the header bytes that it ran with. A primitive counts as proven when every case of it
passed, on the accumulator that the source computes with, by the very bytes that the kernel uses:
those of the headers that define a function of its name, or that accumulator, and of all that these
include. Bytes decide, so a changed comment takes a proof away too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.cuir.nodes import Call
from engine.errors import InputError, Where
from engine.gates.g3_source.header_hashes import Headers, defined, depends, digest, sha256
from engine.lift.cpp.syntax import Node
from engine.lift.cpp.tokens import Tokens
from engine.lift.names.catalogue import Catalogue, default_catalogue, head
from engine.resources import kernels_dir

SCHEMA = 1
RERUN = "run it again: python3 kernels/conformance/{}.py --out {}"
_LANGUAGE = frozenset({"sizeof"})  # called like a function, and none
_SHOWN = 2  # names in a reason, which stands on a line of a screen


@dataclass(frozen=True, slots=True)
class Case:
    """One run of some primitives. `layout` is their accumulator, "" where none takes part."""

    case: str
    primitives: tuple[str, ...]
    layout: str
    element: str
    shape: tuple[int, ...]
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """One suite's run on one device.

    `headers` are SHA-256 by path below the include folder; `hashes` and `needs` are, by primitive
    and accumulator, the hash of the headers that the primitive comes from and their paths.
    """

    suite: str
    command: str
    device: str
    arch: str
    date: str
    headers: Mapping[str, str]
    hashes: Mapping[tuple[str, str], str]
    needs: Mapping[tuple[str, str], tuple[str, ...]]
    cases: tuple[Case, ...]

    @property
    def layouts(self) -> frozenset[str]:
        return frozenset(layout for _, layout in self.hashes if layout)

    def failure(self, primitive: str, layout: str) -> Case | None:
        """The first case of it that did not pass."""
        mine = (c for c in self.cases if c.layout == layout and primitive in c.primitives)
        return next((case for case in mine if case.verdict != "pass"), None)


@dataclass(frozen=True, slots=True)
class Unproven:
    """A primitive that no record proves for the bytes at hand; `command` is what would."""

    primitive: str
    why: str
    command: str

    def to_json(self) -> dict[str, str]:
        return {"primitive": self.primitive, "why": self.why, "command": self.command}


# --- records ------------------------------------------------------------------------------------


def results_dir() -> Path:
    """`kernels/conformance/results/`: the records that come with CuBridge."""
    return kernels_dir() / "conformance" / "results"


def read_records(folder: Path | None = None) -> tuple[Record, ...]:
    """The records in `folder` (default: the bundled ones), by suite; empty where there is none.

    Raises:
        InputError: one of them is no record; says the file and the command that writes it anew.
    """
    folder = folder if folder is not None else results_dir()
    return tuple(read_record(path) for path in sorted(folder.glob("*.json")))


def read_record(path: Path) -> Record:
    """Raises `InputError` as `read_records` does."""
    try:
        return _record(json.loads(path.read_bytes()))
    except OSError as error:
        wrong = f"cannot be read: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        wrong = f"no conformance record: {type(error).__name__} {error}"
    raise InputError(wrong, where=Where(str(path)), fix=RERUN.format(path.stem, path)) from None


def _record(data: Any) -> Record:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}, and this version reads {SCHEMA}")
    entries = {(e["name"], e["layout"]): e for e in data["primitives"]}
    cases = tuple(
        Case(
            str(c["case"]), tuple(c["primitives"]), c["layout"], c["element"], tuple(c["shape"]),
            str(c["verdict"]), str(c["reason"]),
        )
        for c in data["cases"]
    )  # fmt: skip
    tried = {(name, case.layout) for case in cases for name in case.primitives}
    if tried != set(entries):
        raise ValueError("its primitives are not those of its cases")
    needs = {key: tuple(entry["headers"]) for key, entry in entries.items()}
    for key, names in needs.items():
        if entries[key]["hash"] != digest({name: data["headers"][name] for name in names}):
            raise ValueError(f"the hash of {key[0]} is not that of its headers")
    return Record(
        str(data["suite"]), str(data["command"]), str(data["device"]), str(data["arch"]),
        str(data["date"]), dict(data["headers"]),
        {key: str(entry["hash"]) for key, entry in entries.items()}, needs, cases,
    )  # fmt: skip


# --- what a source calls ------------------------------------------------------------------------


def called(source: bytes, headers: Headers, catalogue: Catalogue | None = None) -> tuple[str, ...]:
    """The primitives that a source text calls, in the order of their first calls.

    A primitive is what the lift catalogue knows as a call: a function of the headers, or one of
    CUDA's own under the name of its op. A function that the source defines itself is none; the
    reads of a view are `gmem`'s.
    """
    names = primitives(catalogue or default_catalogue())
    own = {name for data in headers.values() for name in defined(data)}
    local = defined(source)
    found: dict[str, None] = {}
    for token, after in pairwise(Tokens(source).all):
        if token.kind != "word" or token.text not in names or token.text in local:
            continue
        name = token.text if token.text in own else names[token.text]
        if name and after.text in ("(", "<"):
            found[name] = None
    return tuple(found)


def primitives(catalogue: Catalogue) -> dict[str, str]:
    """What the catalogue knows as a call: the C++ name and the name of the op.

    A call inside a pattern (`at(..)`) is part of another op: "" in place of its name.
    """
    found: dict[str, str] = {}
    for pattern in (p for patterns in catalogue.by_head.values() for p in patterns):
        for node in _calls(pattern.tree):
            found.setdefault(node, "")
        match head(pattern.tree).split(" "), pattern.cuir:
            case ["call", "name" | "template", name], Call(str(op)):
                found[name] = op
            case ["call", "name" | "template", name], _:
                found[name] = name
    return {name: op for name, op in found.items() if name not in _LANGUAGE}


def _calls(node: Node) -> Iterator[str]:
    """The names that a pattern's tree calls."""
    match head(node).split(" "):
        case ["call", "name" | "template", name]:
            yield name
    for kid in node.kids:
        yield from _calls(kid)


def accumulators(source: bytes, records: Iterable[Record]) -> tuple[str, ...]:
    """The accumulators of the records that a source names, sorted."""
    known = {layout for record in records for layout in record.layouts}
    return tuple(sorted(known & {token.text for token in Tokens(source).all}))


# --- what is proven -----------------------------------------------------------------------------


def unproven(source: bytes, headers: Headers, records: Sequence[Record]) -> tuple[Unproven, ...]:
    """The primitives that `source` calls and that no record proves for these `headers`."""
    layouts = accumulators(source, records)
    records = sorted(records, key=lambda record: not record.layouts & set(layouts))
    found: list[Unproven] = []
    for name in called(source, headers):
        why = _why(name, layouts, headers, records)
        if why:
            commands = [r.command for r in _serving(name, layouts, headers, records)]
            found.append(Unproven(name, why, " && ".join(commands)))
    return tuple(found)


def _serving(
    name: str, layouts: Sequence[str], headers: Headers, records: Sequence[Record]
) -> list[Record]:
    """The suite that tries the primitive of these headers, by preference on these accumulators."""
    needs = {layout: depends(name, layout, headers) for layout in ("", *layouts)}
    same = [r for r in records if any(r.needs.get((name, at)) == needs[at] for at in needs)]
    ours = [r for r in records if r.layouts & set(layouts)]
    return ([r for r in same if r in ours] or same or ours)[:1] or list(records)


def _why(name: str, layouts: Sequence[str], headers: Headers, records: Sequence[Record]) -> str:
    """Why the primitive is not proven; empty where it is: without tiles, or on those of `layouts`
    that it was tried on, one at least. Not every primitive takes every layout."""
    alone = _doubt(name, "", headers, records)
    doubts = [_doubt(name, layout, headers, records) for layout in layouts]
    tried = [doubt for doubt in doubts if doubt is not None]
    if alone == "" or (tried and not any(tried)):
        return ""
    words = next((doubt for doubt in (*tried, alone) if doubt), "")
    if words:
        return words
    if any(name == tried for record in records for tried, _ in record.hashes):
        return f"no case ran it on {' and '.join(layouts) or 'what this source computes with'}"
    return "no case of it has run"


def _doubt(name: str, layout: str, headers: Headers, records: Sequence[Record]) -> str | None:
    """Empty where a record proves it on this accumulator; None where no record tried that."""
    doubt: str | None = None
    now = {path: sha256(headers[path]) for path in depends(name, layout, headers)}
    for record in records:
        if (name, layout) not in record.hashes:
            continue
        failed = record.failure(name, layout)
        if record.hashes[name, layout] != digest(now):
            then = {path: record.headers[path] for path in record.needs[name, layout]}
            other = sorted(p for p in {*now, *then} if now.get(p) != then.get(p))
            files = ", ".join(path.rpartition("/")[2] for path in other)
            words = f"other bytes than on {record.device} ({record.date}): {files}"
        elif failed is not None:
            words = f"{failed.verdict} on {record.device}: {failed.case}: {failed.reason}"
        else:
            return ""
        doubt = doubt or words
    return doubt


def told(found: Sequence[Unproven], records: Sequence[Record]) -> str:
    """The clause that a reason gets; empty where all is proven."""
    if not records:
        return "no conformance records here, so no primitive is known to be proven on a GPU"
    if not found:
        return ""
    names = ", ".join(item.primitive for item in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"not yet proven on a GPU with these headers: {names}{more}"
