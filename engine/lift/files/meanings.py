"""Meanings of opaque ops: what a person or a model says that a text does.

A meaning stands in the module as the body of `with opaque(...):` and runs there. It is assumed, and
every verdict that rests on it says so, until G4 passes on a GPU. The source's text is never changed
by it: lifted again, the same text in the same function gets the same meaning.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module, Opaque, Path, Stmt, blocks, walk, walk_block, with_blocks
from engine.cuir.parser import parse_block
from engine.cuir.printer import print_stmts
from engine.errors import InputError
from engine.lift.cpp.provenance import Lifted
from engine.types.plain import made_of, object_of, read, read_object

SCHEMA = 1
NOTHING = "no_effect"  # the variable that a meaning of "nothing" assigns
Block = tuple[Stmt, ...]
Known = Mapping[tuple[str, str], tuple[Block, ...]]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is said of one opaque op, in the order of saying it: does, binds, means.

    `op` is its id in the lifted module, `text` its text, `does` words, `reads` and `writes` names,
    `by` names of `engine.cuir.ops.Who`, `body` the op in CuIR (empty while it is not translated).
    """

    op: str
    text: str
    does: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    body: Block = ()

    def to_json(self) -> dict[str, Any]:
        body = "\n".join(print_stmts(self.body, 0, (), {}))
        return {"schema": SCHEMA, **object_of(replace(self, body=())), "body": body}

    @classmethod
    def from_json(cls, data: object) -> Meaning:
        """Raises ValueError on what is no meaning, CuirError on a body that does not parse."""
        obj = read_object(data, "meaning")
        body = read(obj, "body", str)
        made = made_of(cls, {**obj, "body": []})
        return replace(made, body=parse_block(body, "meaning")) if body else made


def meanings_json(meanings: Sequence[Meaning]) -> str:
    """The meanings as the store keeps them."""
    data = {"schema": SCHEMA, "meanings": [m.to_json() for m in meanings]}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def read_meanings(text: str) -> tuple[Meaning, ...]:
    """Raises `InputError` on what is no such file."""
    try:
        obj = read_object(json.loads(text), "meanings")
        return tuple(map(Meaning.from_json, read(obj, "meanings", list)))
    except ValueError as error:
        raise InputError(
            f"the meanings of opaque ops cannot be read: {error}", fix="give them anew"
        ) from None


def with_meanings(lifted: Lifted, meanings: Sequence[Meaning]) -> Lifted:
    """The lifted source with every meaning that has a body in its place.

    Raises:
        InputError: a meaning of an op that is not there, or that has another text.
    """
    paths = {id: path for path, id in assign(lifted.module).items()}
    bodies: dict[Path, Block] = {}
    for meaning in meanings:
        path = paths.get(meaning.op)
        stmt = dict(walk(lifted.module)).get(path) if path is not None else None
        if path is None or not isinstance(stmt, Opaque) or stmt.text != meaning.text:
            raise InputError(
                f"the meaning of {meaning.op} was given for another source: `{meaning.text[:60]}` "
                "is not there",
                fix="give the opaque ops of this source their meanings anew",
            )
        if meaning.body:
            bodies[path] = meaning.body
    if not bodies:
        return lifted
    module = _filled(lifted.module, bodies)
    spans = dict(lifted.provenance)
    for path, body in bodies.items():
        # A meaning's statements come from where the opaque text stands.
        inside = [inner for inner, _ in walk_block(body, (*path, "meaning"))]
        spans |= dict.fromkeys(inside, lifted.provenance[path])
    left = tuple(op for op in lifted.opaque if op.path not in bodies)
    return replace(lifted, module=module, provenance=spans, opaque=left)


def known_meanings(module: Module) -> Known:
    """By function and text: the meanings of that text's occurrences, in order."""
    out: dict[tuple[str, str], tuple[Block, ...]] = {}
    for path, stmt in walk(module):
        if isinstance(stmt, Opaque):
            key = (str(path[0]), stmt.text)
            out[key] = (*out.get(key, ()), stmt.meaning)
    return out if any(any(bodies) for bodies in out.values()) else {}


def like(module: Module, known: Known) -> Module:
    """`module` with its opaque texts given the known meanings, each occurrence its own; one more
    occurrence than is known gets a meaning only where all known ones agree."""
    seen: Counter[tuple[str, str]] = Counter()
    bodies: dict[Path, Block] = {}
    for path, stmt in walk(module):
        if not isinstance(stmt, Opaque) or stmt.meaning:
            continue
        key = (str(path[0]), stmt.text)
        given = known.get(key, ())
        at = seen[key]
        seen[key] += 1
        if at < len(given):
            bodies[path] = given[at]
        elif given and all(body == given[0] for body in given):
            bodies[path] = given[0]
    return _filled(module, {path: body for path, body in bodies.items() if body})


def unexplained(module: Module) -> tuple[Path, ...]:
    """The opaque ops of `module` that have no meaning."""
    return tuple(p for p, s in walk(module) if isinstance(s, Opaque) and not s.meaning)


def assumed(bare: Module, module: Module) -> tuple[str, ...]:
    """The ops of `bare` whose meaning was given in `module` and not proven, by their ids there."""
    ids = assign(bare)
    return tuple(ids[p] for p, s in walk(module) if isinstance(s, Opaque) and s.meaning)


def released(base: Module, edited: Module) -> Module:
    """`edited` with the opaque ops written out whose meaning the edit changed: the source's text
    no longer says what happens there, so the changed meaning stands for itself (and nothing does
    where nothing of it is left)."""
    meant = {
        (str(path[0]), stmt.text, stmt.meaning)
        for path, stmt in walk(base)
        if isinstance(stmt, Opaque) and stmt.meaning
    }
    texts = {(function, text) for function, text, _ in meant}

    def freed(function: str, body: Block) -> Block:
        out: list[Stmt] = []
        for stmt in body:
            for branch, inner in blocks(stmt):
                new = freed(function, inner)
                if new != inner:
                    stmt = with_blocks(stmt, {branch: new})
            if (
                isinstance(stmt, Opaque)
                and (function, stmt.text) in texts
                and (function, stmt.text, stmt.meaning) not in meant
            ):
                out += stmt.meaning
            else:
                out.append(stmt)
        return tuple(out)

    functions = tuple(replace(f, body=freed(f.name, f.body)) for f in edited.functions)
    return replace(edited, functions=functions)


def _filled(module: Module, bodies: Mapping[Path, Block]) -> Module:
    def fill(block: Block, at: Path) -> Block:
        out: list[Stmt] = []
        for index, stmt in enumerate(block):
            path = (*at, index)
            if isinstance(stmt, Opaque) and path in bodies:
                out.append(replace(stmt, meaning=bodies[path]))
                continue
            for branch, inner in blocks(stmt):
                new = fill(inner, (*path, branch))
                if new is not inner and new != inner:
                    stmt = with_blocks(stmt, {branch: new})
            out.append(stmt)
        return tuple(out)

    functions = tuple(replace(f, body=fill(f.body, (f.name,))) for f in module.functions)
    return replace(module, functions=functions)
