"""Fewer tiles where several loops go by one count: a warp that loads ahead into a ring of buffers,
warps that compute, and loads before both.

The count says two things: which tile it is, and which buffer and phase of the ring. Only the first
moves: each loop still counts from where it did, and its tiles are so many further on. Executing the
patched source says whether all that has to move did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tree_sitter import Node

from engine.foreign.cuda_tree import descend, text
from engine.graft.edits import Edit

_LISTS = ("initializer_list", "argument_list", "subscript_argument_list", "init_declarator",
          "parenthesized_expression")  # fmt: skip
_LOOPS = ("for_statement", "while_statement")


@dataclass(frozen=True, slots=True)
class Ring:
    """A loop that computes on tiles from a ring of buffers, in its function.

    Args:
        loop: its node; `counter` counts its tiles from 0.
        end: bytes of the count's bound in its head.
        arrays: what is indexed by the count modulo something.
    """

    function: Node
    loop: Node
    counter: str
    end: tuple[int, int]
    arrays: frozenset[str]

    @staticmethod
    def of(function: Node, loop: Node, counter: str, end: tuple[int, int]) -> Ring | None:
        """None where the loop has no ring."""
        arrays = frozenset(
            name for use in _uses(loop.child_by_field_name("body"), counter)
            if _modulo(use) and (name := _indexed(use))
        )  # fmt: skip
        return Ring(function, loop, counter, end, arrays) if arrays else None

    def places(self) -> Iterator[tuple[int, int, str]]:
        """Where the count, or a bound of one, has to move: bytes, and how with what they hold."""
        for node in descend(self.function):
            if node.type not in _LOOPS:
                continue
            own = node == self.loop
            counter = self.counter if own else _counter(node)
            uses = list(_uses(node.child_by_field_name("body"), counter)) if counter else []
            if not own and not any(_indexed(u) in self.arrays for u in uses):
                continue
            tiles = [u for u in uses if not _modulo(u) and _indexed(u) not in self.arrays]
            yield from ((u.start_byte, u.end_byte, "{} + {}" if _loose(u) else "({} + {})")
                        for u in tiles)  # fmt: skip
            end = self.end if own else _bound(node, counter)
            if tiles and end is not None:
                yield *end, "{} - {}"

    def moved(self, edits: Sequence[Edit], template: Edit, first: str, data: bytes) -> list[Edit]:
        """The edits, and those by which tile 0 becomes tile `first`: an expression of what is in
        scope before the first of the loops.

        Args:
            template: of an edit here, whose file, title and reason those have.
        """
        name = "first_tile"
        while name.encode() in data:
            name += "_"
        places = sorted(self.places())
        top = self.statement().start_byte
        indent = data[data.rfind(b"\n", 0, top) + 1 : top].decode()
        out = [replace(template, start=top, end=top, text=f"const int {name} = {first};\n{indent}")]
        for start, end, how in places:
            new = how.format(data[start:end].decode(), name)
            out.append(replace(template, start=start, end=end, text=new))
        inside = range(self.loop.start_byte, self.loop.end_byte)
        word = re.compile(rf"\b{self.counter}\b")
        return [
            replace(e, text=word.sub(f"({self.counter} + {name})", e.text))
            if e.file == template.file and e.start in inside else e
            for e in edits
        ] + out  # fmt: skip

    def statement(self) -> Node:
        """The function's own statement around the first of the places."""
        first = min(self.places())[0]
        body = self.function.child_by_field_name("body")
        assert body is not None
        return next(n for n in body.named_children if n.start_byte <= first < n.end_byte)


def _uses(node: Node | None, name: str) -> Iterator[Node]:
    for inner in descend(node) if node is not None else ():
        if inner.type == "identifier" and text(inner) == name:
            yield inner


def _counter(loop: Node) -> str:
    """The variable that a loop declares and counts."""
    first = loop.child_by_field_name("initializer")
    for node in descend(first) if first is not None else ():
        if node.type == "init_declarator":
            return text(node.child_by_field_name("declarator"))
    return ""


def _bound(loop: Node, counter: str) -> tuple[int, int] | None:
    """The bytes of a variable that a loop's count is compared with; None of a constant."""
    condition = loop.child_by_field_name("condition")
    if condition is None or text(condition.child_by_field_name("left")) != counter:
        return None
    right = condition.child_by_field_name("right")
    return None if right is None or right.type != "identifier" else (
        right.start_byte, right.end_byte)  # fmt: skip


def _parents(node: Node) -> Iterator[tuple[Node, Node]]:
    """Each node above one, with the one below it, within an expression."""
    below, above = node, node.parent
    while above is not None and "statement" not in above.type and above.type != "declaration":
        yield above, below
        below, above = above, above.parent


def _loose(use: Node) -> bool:
    """Whether a sum may stand where a use stands."""
    above = use.parent
    if above is None or above.type != "binary_expression":
        return above is not None and above.type in _LISTS
    return text(above.child_by_field_name("operator")) == "+"


def _modulo(use: Node) -> bool:
    """Whether a use is what a remainder is taken of."""
    return any(
        above.type == "binary_expression" and text(above.child_by_field_name("operator")) == "%"
        and above.child_by_field_name("left") == below
        for above, below in _parents(use)
    )  # fmt: skip


def _indexed(use: Node) -> str:
    """The array whose index a use is in, the innermost one; "" outside of an index."""
    for above, below in _parents(use):
        if above.type == "subscript_expression" and above.child_by_field_name("argument") != below:
            return text(above.child_by_field_name("argument"))
    return ""
