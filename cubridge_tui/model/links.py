"""The same op in every pane: from a line of one text to the lines of the others.

An op's key is its path in the lifted module; an op that is new in the target has its path there.
Three strengths: the op itself, its loop, its worker (the branch of a warpgroup, else the function).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cubridge_tui.model.rows import Key, Row
from engine.cuir.changes.diff import diff
from engine.cuir.nodes import Assign, Call, For, If, Module, Name, Path, Stmt, walk, walk_expr
from engine.cuir.ops.traits import WARPGROUPS
from engine.cuir.parser import Parsed
from engine.lift.cpp.provenance import Lifted
from engine.types import Stage

LIFTED, TARGET, FOUND, FIELDS = "lifted", "target", "found", "Args"


class Around(NamedTuple):
    """What an op stands in."""

    loop: Key | None
    worker: Key


Lines = Mapping[int, Key]


@dataclass(frozen=True, slots=True)
class Links:
    """Which op each line of each stage shows, and what every op stands in.

    `stale` says for a stage why its map is missing or out of date.
    """

    lines: Mapping[Stage, Lines] = field(default_factory=dict)
    around: Mapping[Key, Around] = field(default_factory=dict)
    blocks: frozenset[Key] = frozenset()
    stale: Mapping[Stage, str] = field(default_factory=dict)

    def key(self, stage: Stage, line: int | None) -> Key | None:
        """The innermost op on a 1-based line."""
        return None if line is None else self.lines.get(stage, {}).get(line)

    def first_line(self, stage: Stage, key: Key) -> int | None:
        """The first line of a stage that shows an op."""
        return min((n for n, k in self.lines.get(stage, {}).items() if k == key), default=None)


class Marks(NamedTuple):
    """Row indexes in three strengths."""

    op: tuple[int, ...]
    loop: tuple[int, ...]
    worker: tuple[int, ...]


NO_MARKS = Marks((), (), ())


class MarkIndex:
    """The rows of one pane by op, loop and worker, so that a moving cursor costs look-ups only."""

    def __init__(self, rows: Sequence[Row], links: Links) -> None:
        self._links = links
        self._op: dict[Key, list[int]] = {}
        self._loop: dict[Key, list[int]] = {}
        self._worker: dict[Key, list[int]] = {}
        for index, row in enumerate(rows):
            key = row.key
            if key is None:
                continue
            self._op.setdefault(key, []).append(index)
            around = links.around.get(key)
            if around is None:
                continue
            self._worker.setdefault(around.worker, []).append(index)
            if around.loop is not None:
                self._loop.setdefault(around.loop, []).append(index)

    def first(self, key: Key) -> int | None:
        """The first row that shows an op."""
        return next(iter(self._op.get(key, ())), None)

    def marks(self, key: Key | None) -> Marks:
        """Which rows show an op, its loop and its worker."""
        if key is None:
            return NO_MARKS
        op = self._op.get(key, [])
        inside: list[int] = []
        if key in self._links.blocks:
            # Lines inside a block that are no statement (braces, comments) are its body, not it.
            end = next((n for n, i in enumerate(op) if n and i != op[n - 1] + 1), len(op))
            op, inside = op[:end], op[end:]
        around = self._links.around.get(key)
        if around is None:
            return Marks(tuple(op), tuple(inside), ())
        loop = self._loop.get(around.loop, []) if around.loop is not None else []
        worker = self._worker.get(around.worker, [])
        return Marks(tuple(op), (*inside, *loop), tuple(worker))


def marks(rows: Sequence[Row], key: Key | None, links: Links) -> Marks:
    """The marks of an op among some rows."""
    return MarkIndex(rows, links).marks(key)


# --- maps ----------------------------------------------------------------------------------------


def cuir_lines(parsed: Parsed, text: str, name: Callable[[Path], Key]) -> dict[int, Key]:
    """Line -> op of a CuIR text."""
    out = {line: name(path) for path, line in parsed.lines.items()}
    for path, line in parsed.lines.items():
        if len(path) == 1:
            out.setdefault(line - 1, name(path))  # the decorator
    inside = False
    fields = iter(parsed.module.fields)
    for number, shown in enumerate(text.split("\n"), start=1):
        if shown.startswith("class Args"):
            inside = True
            out[number] = (LIFTED, (FIELDS,))
        elif inside and shown.startswith("    ") and shown.strip() != "pass":
            out[number] = (LIFTED, (FIELDS, next(fields).name))
        else:
            inside = False
    return out


def source_lines(lifted: Lifted, name: Callable[[Path], Key]) -> dict[int, Key]:
    """Line -> innermost op of a CUDA text, from the lifter's provenance (byte spans)."""
    source = lifted.source
    starts = [0]
    at = source.find(b"\n")
    while at >= 0:
        starts.append(at + 1)
        at = source.find(b"\n", at + 1)

    def line_of(offset: int) -> int:
        return bisect_right(starts, offset)

    names = [f.name for f in lifted.module.fields]
    out: dict[int, Key] = {}
    size: dict[int, int] = {}
    for path, span in lifted.provenance.items():
        length = span.end - span.start
        if path[:1] == (FIELDS,):
            index = path[1] if len(path) > 1 else None
            known = isinstance(index, int) and index < len(names)
            key: Key = (
                LIFTED,
                (FIELDS, names[index]) if known and isinstance(index, int) else (FIELDS,),
            )
        else:
            key = name(path)
        for line in range(line_of(span.start), line_of(max(span.end - 1, span.start)) + 1):
            if line not in size or length < size[line]:
                size[line], out[line] = length, key
    return out


def surroundings(module: Module, name: Callable[[Path], Key]) -> dict[Key, Around]:
    """Loop and worker of every op of a module."""
    loops: set[Path] = set()
    branches: set[Path] = set()
    groups: dict[str, set[str]] = {}
    for path, stmt in walk(module):
        if isinstance(stmt, For):
            loops.add(path)
        function = str(path[0])
        if isinstance(stmt, Assign) and _asks_group(stmt):
            groups.setdefault(function, set()).add(stmt.target)
        if isinstance(stmt, If) and len(path) == 2 and _tests(stmt, groups.get(function, set())):
            branches.add(path)
    out: dict[Key, Around] = {}
    for function_ in module.functions:
        out[name((function_.name,))] = Around(None, name((function_.name,)))
    for path, _ in walk(module):
        above = [path[:n] for n in range(2, len(path) + 1, 2)]
        loop = next((p for p in reversed(above) if p in loops), None)
        branch = next((p for p in above if p in branches), None)
        worker = name(path[:1])
        if branch is not None:
            # Both branches of one `if`: the first op of the branch stands for the worker.
            inner = path[: len(branch) + 1]
            worker = (name(branch)[0], (*name(branch)[1], *map(str, inner[len(branch) :])))
        out[name(path)] = Around(name(loop) if loop is not None else None, worker)
    return out


def _asks_group(stmt: Assign) -> bool:
    return isinstance(stmt.value, Call) and stmt.value.fn in WARPGROUPS


def _tests(stmt: If, names: set[str]) -> bool:
    return any(
        (isinstance(e, Name) and e.id in names) or (isinstance(e, Call) and e.fn in WARPGROUPS)
        for e in walk_expr(stmt.cond)
    )


def blocks_of(module: Module, name: Callable[[Path], Key]) -> set[Key]:
    """Ops that hold others."""

    def holds(stmt: Stmt) -> bool:
        return isinstance(stmt, For | If)

    found = {name(path) for path, stmt in walk(module) if holds(stmt)}
    return found | {name((f.name,)) for f in module.functions}


def lifted_name(path: Path) -> Key:
    return (LIFTED, path)


def namer(base: Module, new: Module, of: Callable[[Path], Key], kind: str) -> Callable[[Path], Key]:
    """Names for the paths of `new`: those of `base` for what survived, its own for the rest."""
    back = {new_path: old for old, new_path in diff(base, new).pairs.items()}

    def name(path: Path) -> Key:
        old = back.get(path)
        return of(old) if old is not None else (kind, path)

    return name


def link(
    lifted: Lifted | None,
    lifted_text: str,
    lifted_parsed: Parsed | None,
    target: tuple[Parsed, str] | None,
    lowered: Lifted | None,
    stale: Mapping[Stage, str],
) -> tuple[Links, Callable[[Path], Key]]:
    """The links of a session's texts, and the names of the target's paths."""
    if lifted is None:
        return Links(stale=stale), lifted_name
    lines: dict[Stage, Lines] = {Stage.SOURCE: source_lines(lifted, lifted_name)}
    around = surroundings(lifted.module, lifted_name)
    holders = blocks_of(lifted.module, lifted_name)
    if lifted_parsed is not None:
        lines[Stage.LIFTED] = cuir_lines(lifted_parsed, lifted_text, lifted_name)
    name: Callable[[Path], Key] = lifted_name
    if target is not None:
        parsed, text = target
        name = namer(lifted.module, parsed.module, lifted_name, TARGET)
        lines[Stage.TARGET] = cuir_lines(parsed, text, name)
        around |= surroundings(parsed.module, name)
        holders |= blocks_of(parsed.module, name)
        if lowered is not None:
            again = namer(parsed.module, lowered.module, name, "lowered")
            lines[Stage.LOWERED] = source_lines(lowered, again)
            around = surroundings(lowered.module, again) | around
    return Links(lines, around, frozenset(holders), stale), name


def found_links(found: Mapping[int, int], same: Mapping[int, int]) -> dict[Stage, Lines]:
    """The links of a source that is executed: of its lines with those of what was `found` (line of
    that text to line of the source), and with its `same` lines in the patched source."""
    keys: dict[int, Key] = {at: (FOUND, (at,)) for at in found.values()}
    return {
        Stage.SOURCE: keys,
        Stage.LIFTED: {line: keys[at] for line, at in found.items()},
        Stage.LOWERED: {new: keys[old] for old, new in same.items() if old in keys},
    }


def with_keys(rows: Sequence[Row], stage: Stage, links: Links) -> tuple[Row, ...]:
    """Rows with the op that each line of the stage shows."""
    table = links.lines.get(stage, {})
    return tuple(
        replace(r, key=table.get(r.number)) if r.number is not None and r.key is None else r
        for r in rows
    )


def path_of(text: str) -> Path:
    """The path that a verdict names an op by (`flash_fwd/16/body/6`)."""
    return tuple(int(p) if p.isdecimal() else p for p in text.split("/") if p)
