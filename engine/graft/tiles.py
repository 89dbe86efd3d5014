"""The tiles that a mask drops whole are not visited: other bounds of the loop over keys.

Which keys a block of rows may keep is told by the interval analysis of the keep predicate; the
loop, its keys and the block's rows by probing. Executing the patched source says whether the bounds
may change there: what loads the first tile before the loop must load another one then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from engine.cuir.nodes import Binary, Call, Expr, Name, Num, free_names, walk_expr
from engine.cuir.rewrite import map_expr
from engine.errors import TransferError
from engine.foreign.cuda_tree import descend, parsed, text
from engine.foreign.probe.places import Found, Loop
from engine.graft.edits import Edit, Files
from engine.graft.element import SIZES, Writer, one_length
from engine.graft.ring import Ring
from engine.graft.scope import declared, scope
from engine.spec.recipes.recipe import Recipe
from engine.transfer.linear import tidy
from engine.transfer.schedule import Rows, key_ranges, maximum

TITLE = "Skip the tiles that the mask drops"
ROW = Name("i")  # here the first row of a block
_SUM, _PRODUCT = 10, 11  # binding strengths, as the emitter counts them


def fewer_tiles(
    recipe: Recipe, found: Found, files: Files, equal_lengths: bool, edits: Sequence[Edit] = ()
) -> Iterator[list[Edit]]:
    """The edits with changes of the loop's bounds, the one that may skip most first; none where the
    mask drops no tile for certain, or the loop is not one that counts up to a bound, or down to
    one."""
    if not found.loops or not found.hooks:
        return
    loop, place = found.loops[0], found.hooks[0].places[0]
    up = loop.compare == "<" and loop.step > 0 and loop.keys % loop.step == 0
    down = loop.compare == ">=" and loop.step == -1
    through = loop.compare == "<=" and loop.step == 1
    if not (up or down or through) or not loop.row or re.search(r" [+-] \d+$", loop.key):
        return
    data = files[loop.file]
    head = _Head.of(data, loop)
    if head is None:
        return
    keep = one_length(recipe.keep) if equal_lengths else recipe.keep
    last = tidy(Binary("-", Name("Nq" if equal_lengths else "Nk"), Num(1)))
    rows = Rows(ROW, Binary("+", ROW, Num(loop.rows - 1)))
    ranges = key_ranges(keep, rows, Name("Nq" if equal_lengths else "Nk"))
    parts = [r for r in (ranges.prefix, ranges.rest) if r is not None]
    if not parts:
        return
    low = _without("max", Num(0), tidy(parts[0].low))
    high = parts[0].high if len(parts) == 1 else maximum(parts[0].high, parts[1].high)
    high = _without("min", last, tidy(high))
    here = replace(place, coordinates={"i": loop.row}, signed=(*place.signed, "i"))
    writer = Writer(recipe, here, data.decode("utf-8", "surrogateescape"), {}, inline=True)
    first = end = None
    if down:
        least = head.least(_words(writer, low, _PRODUCT)) if low != Num(0) else None
        if least is not None:
            yield [*edits, least]
        return
    ring = head.ring() if low != Num(0) else None
    if ring is not None and (words := _words(writer, low, _PRODUCT)):
        first_tile = f"max(0, {words} / {head.count})"
        if head.in_scope(words, ring.statement()):
            yield ring.moved(edits, head.edit(0, 0, ""), first_tile, data)
    if through:
        return
    if low != Num(0):
        first = head.first(_words(writer, low, _PRODUCT))
    if high != last:
        end = head.end(_words(writer, tidy(Binary("+", high, Num(1))), _SUM))
    both = [e for e in (first, end) if e is not None]
    before = [] if first is None else list(head.before(first.text))
    if before:  # what loads the first tile before the loop
        yield [*edits, *before, *both]
    if both:
        yield [*edits, *both]
    if len(both) > 1:
        yield [*edits, *both[1:]]
        yield [*edits, *both[:1]]


def _without(fn: str, bound: Expr, expr: Expr) -> Expr:
    """An end of the keys without the bound that all loops have: what is in the loop's head is a
    bound already."""

    def inner(node: Expr) -> Expr | None:
        match node:
            case Call(name, (left, right)) if bound in (left, right):
                return map_expr(right if left == bound else left, inner) if name == fn else bound
        return None

    return tidy(map_expr(expr, inner))


def _words(writer: Writer, expr: Expr, need: int) -> str:
    """The expression in the loop's words, which bind as tightly as `need`; "" where something of it
    has no words there: sizes, the block's first row and what C++ has have."""
    calls = {e.fn for e in walk_expr(expr) if isinstance(e, Call)}
    if free_names(expr) - {ROW.id, *SIZES} or calls - {"min", "max"}:
        return ""
    try:
        return writer.text(expr, need)
    except TransferError:
        return ""


def _arguments(call: Node) -> list[Node]:
    listed = call.child_by_field_name("arguments")
    return listed.named_children if listed is not None else []


@dataclass(frozen=True, slots=True)
class _Head:
    """A loop's head in its file's tree."""

    loop: Loop
    data: bytes
    node: Node
    function: Node

    @staticmethod
    def of(data: bytes, loop: Loop) -> _Head | None:
        for node in descend(parsed(data)):
            at = node.start_point[0] + 1 == loop.line and node.type in (
                "for_statement", "while_statement",
            )  # fmt: skip
            if at and node.start_byte < loop.end[0] < node.end_byte:
                function: Node | None = node
                while function is not None and function.type != "function_definition":
                    function = function.parent
                return None if function is None else _Head(loop, data, node, function)
        return None

    def ring(self) -> Ring | None:
        """The loop as one of several that go by one count from 0."""
        loop = self.loop
        zero = loop.first is not None and self.data[slice(*loop.first)].strip() == b"0"
        if not zero or loop.step != 1:
            return None
        return Ring.of(self.function, self.node, loop.counter, loop.end)

    @property
    def count(self) -> str:
        """How many keys from one count to the next, as the source has it."""
        keys = self.loop.keys // abs(self.loop.step)
        named = re.fullmatch(rf"{re.escape(self.loop.counter)} \* (\w+)", self.loop.key)
        return named[1] if named else str(keys)

    @property
    def step(self) -> str:
        """What the counter goes on by, as the source has it."""
        update = re.search(r"\+=\s*(\w+)\s*$", text(self.node.child_by_field_name("update")))
        return update[1] if update else str(self.loop.step)

    def first(self, low: str) -> Edit | None:
        """The loop begins with the tile of a key."""
        if self.loop.first is None or not low or not self.in_scope(low, self.node):
            return None
        start, end = self.loop.first
        old = self.data[start:end].decode()
        if self.loop.step == 1:
            new = low if self.count == "1" else f"{low} / {self.count}"
        else:
            new = f"{low} / {self.step} * {self.step}"
            if self.loop.keys != self.loop.step:
                return None
        return self.edit(start, end, f"max({old}, {new})")

    def before(self, first: str) -> Iterator[Edit]:
        """Calls before the loop of what the loop calls with its counter: those that have the loop's
        old first value as that argument get the new one."""
        assert self.loop.first is not None
        old = self.data[slice(*self.loop.first)].decode()
        counted = {
            (text(call.child_by_field_name("function")), number)
            for call in descend(self.node) if call.type == "call_expression"
            for number, given in enumerate(_arguments(call))
            if re.search(rf"\b{self.loop.counter}\b", text(given))
        }  # fmt: skip
        for call in descend(self.function):
            if call.type != "call_expression" or call.end_byte > self.node.start_byte:
                continue
            called = text(call.child_by_field_name("function"))
            for number, given in enumerate(_arguments(call)):
                same = (called, number) in counted and text(given) == old
                if same and self.in_scope(first, call):
                    yield self.edit(given.start_byte, given.end_byte, first)

    def end(self, key: str) -> Edit | None:
        """The loop ends before a key."""
        bound = key if self.count == "1" else f"({key} + {self.count} - 1) / {self.count}"
        return self.bounded("min", bound) if key else None

    def least(self, low: str) -> Edit | None:
        """A loop that counts down ends with the tile of a key."""
        bound = low if self.count == "1" else f"{low} / {self.count}"
        return self.bounded("max", bound) if low else None

    def bounded(self, fn: str, bound: str) -> Edit | None:
        """The loop's bound with another one beside it: in its definition, where it is a variable
        that is set once, so that what counts by it counts by the same; else in the loop's head."""
        start, end = self.loop.end
        at = self.node
        old = self.data[start:end].decode()
        definition = self.definition(old)
        if definition is not None and self.in_scope(bound, definition):
            value = definition.child_by_field_name("value")
            assert value is not None
            at, start, end = definition, value.start_byte, value.end_byte
            old = self.data[start:end].decode()
        if not self.in_scope(bound, at):
            return None
        return self.edit(start, end, f"{fn}({old}, {bound})")

    def definition(self, name: str) -> Node | None:
        """Where a local variable gets the one value that it has."""
        found: list[Node] = []
        for node in descend(self.function):
            left = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if node.type in ("assignment_expression", "update_expression") and text(left) == name:
                return None
            named = text(node.child_by_field_name("declarator")) == name
            if node.type == "init_declarator" and named:
                found.append(node)
        whole = self.node.start_byte
        return found[0] if len(found) == 1 and found[0].end_byte < whole else None

    def in_scope(self, words: str, at: Node) -> bool:
        """Whether the function declares no word of these elsewhere than before `at`."""
        statement = at
        while statement.parent is not None and statement.parent.type != "compound_statement":
            statement = statement.parent
        before = dict(scope(statement, self.function))
        kinds = ("declaration", "parameter_declaration")
        below = {name for node in descend(self.function) if node.type in kinds
                 for name, _ in declared(node)}  # fmt: skip
        used = set(re.findall(r"(?<![\w.>])[A-Za-z_]\w*", words))
        return not (used & below) - before.keys()

    def edit(self, start: int, end: int, new: str) -> Edit:
        why = (
            f"a block has {self.loop.rows} rows from {self.loop.row} on, and the mask keeps for "
            "none of them a key of the tiles that are left out; executed so it is right, and does "
            "less"
        )
        return Edit(self.loop.file, start, end, new, TITLE, why, "mask")
