"""The boundaries between statements of a CUDA source, and what is in scope at each.

Nothing here knows attention: every variable that a statement mentions is worth a look after it.
Whether the text that is put there compiles, and what stands in the variable, is for nvcc and the
machine to say.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tree_sitter import Node

from engine.foreign.cuda_tree import descend, parsed, text
from engine.foreign.functions import declarator_of, functions_of, name_of, plain
from engine.foreign.probe.fields import INTEGERS, Fields, fields, last_word, own_fields

_ARITHMETIC = {"+", "-", "*", "/", "%", "&", ">>", "<<"}
_ALWAYS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
_BLOCKS = ("compound_statement", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif",
           "case_statement", "else_clause")  # fmt: skip
_LEAVES = ("return_statement", "break_statement", "continue_statement", "goto_statement",
           "comment", "preproc_call", "preproc_def", "preproc_include", "preproc_function_def",
           "using_declaration", "alias_declaration", "static_assert_declaration")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that a function declares, its type as it is spelled, its extents if it is an array."""

    name: str
    type: str
    extents: tuple[str, ...] = ()
    pointer: bool = False
    constant: bool = False
    given: bool = False  # a kernel's parameter


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop around a boundary: the bytes of its head's parts, `None` where one is empty."""

    line: int
    first: tuple[int, int] | None
    left: tuple[int, int] | None  # of its condition, which compares
    left_text: str
    right: tuple[int, int] | None
    right_text: str
    operator: str
    counter: str  # the left or right side, where it is a name


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of a statement: what it mentions, and what may be spelled there.

    Args:
        mentioned: lvalues of the statement: variables in scope, and what it assigns to.
        scope: expressions that may be numbers there: names, members, sums and products that the
            function spells of what is in scope, and numbers that structs in scope have.
        inline: where an attribute of what is around the boundary may be spelled: of its function
            (but for a kernel), and of the lambdas in it.
    """

    file: Path
    function: str
    after: int
    line: int
    indent: str
    mentioned: tuple[Variable, ...]
    scope: tuple[str, ...]
    loops: tuple[Loop, ...]
    inline: tuple[int, ...] = ()


def boundaries(
    file: Path, source: bytes, reached: Container[str], lines: Collection[int] | None = None,
    known: Fields | None = None,
) -> Iterator[Boundary]:  # fmt: skip
    """All boundaries inside of those functions of a file that are reached, in their order.

    Args:
        lines: those that instructions are of: a function without one is not executed. None: any.
        known: the numbers of structs; None: those of this file.
    """
    known = fields([source]) if known is None else known
    for function in functions_of(parsed(source)):
        body = function.child_by_field_name("body")
        if plain(name_of(function)) not in reached:
            continue
        span = range(function.start_point[0] + 1, function.end_point[0] + 2)
        if lines is not None and not any(n in span for n in lines):
            continue
        head = source[function.start_byte : body.start_byte if body else function.end_byte]
        if body is None or b"constexpr" in head.split(b"(")[0]:
            continue
        if any(n.type == "kernel_call_syntax" for n in descend(body)):
            continue  # a function of the host
        declarator = declarator_of(function)
        listed = declarator.child_by_field_name("parameters") if declarator else None
        scope = list(_parameters(listed, b"__global__" in head))
        free = _free(body, {v.name for v in scope})
        inline = () if b"__global__" in head else (function.start_byte,)
        walk = _Walk(file, source, name_of(function), _spelled(body, free), free,
                     own_fields(known, function), inline)  # fmt: skip
        yield from walk.block(body, scope, ())


def _parameters(listed: Node | None, kernel: bool) -> Iterator[Variable]:
    for node in listed.named_children if listed else ():
        declarator = node.child_by_field_name("declarator")
        if declarator is None:
            continue
        found = _declared(declarator, _type(node))
        if found is not None:
            yield replace(found, given=kernel)


def _type(node: Node) -> str:
    """The type of a declaration as it is spelled, without its declarators."""
    words = [text(c) for c in node.children
             if c.type in ("type_qualifier", "storage_class_specifier")]  # fmt: skip
    return " ".join([*words, text(node.child_by_field_name("type"))])


def _declared(node: Node, type: str) -> Variable | None:
    """The variable of a declarator."""
    extents: list[str] = []
    pointer = False
    at: Node | None = node
    while at is not None:
        if at.type == "identifier":
            words = type.split()
            constant = "const" in words or "constexpr" in words
            shared = "__shared__" in words or "extern" in words
            return Variable(text(at), type, tuple(reversed(extents)), pointer or shared, constant)
        if at.type == "array_declarator":
            extents.append(text(at.child_by_field_name("size")))
        if at.type in ("pointer_declarator", "function_declarator"):
            pointer = True
        inner = at.child_by_field_name("declarator")
        if inner is None:
            inner = next((c for c in at.named_children if c.type != "type_identifier"
                          and c.type.endswith(("declarator", "identifier"))), None)  # fmt: skip
        at = inner
    return None


def _declarations(node: Node) -> Iterator[Variable]:
    type = _type(node)
    for child in node.children_by_field_name("declarator"):
        found = _declared(child, type)
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class _Spelled:
    """An expression that may be a number, and the names that it needs."""

    text: str
    needs: frozenset[str]


def _free(body: Node, given: set[str]) -> frozenset[str]:
    """Names that a function spells and does not declare, those of functions left out: constants of
    the file among them."""
    own, called, spelled = set(given), set(), set()
    for node in descend(body):
        if node.type in ("declaration", "parameter_declaration"):
            own |= {v.name for v in _declarations(node)}
        elif node.type == "call_expression":
            called.add(text(node.child_by_field_name("function")))
        elif node.type == "template_function":
            called.add(text(node.child_by_field_name("name")))
        elif node.type == "identifier":
            spelled.add(text(node))
    return frozenset(spelled - own - called - _ALWAYS)


def _spelled(body: Node, free: frozenset[str]) -> tuple[_Spelled, ...]:
    """Constants of the file, members, qualified names, and arithmetic of such, that a function
    spells, in their order."""
    out: dict[str, _Spelled] = {}
    for node in descend(body):
        constant = node.type == "identifier" and text(node) in free
        if (
            constant
            or node.type in ("field_expression", "binary_expression")
            or (node.type == "qualified_identifier" and _is_value(node))
        ):
            needs = _needs(node)
            words = " ".join(text(node).split())
            if needs is not None and len(words) < 80:
                out.setdefault(words, _Spelled(words, needs))
    return tuple(out.values())


def _is_value(node: Node) -> bool:
    """Whether a qualified name may be a number: no type, and nothing that is called."""
    name = node.child_by_field_name("name")
    parent = node.parent
    called = parent is not None and parent.type in ("call_expression", "template_function")
    return name is not None and name.type == "identifier" and not called


def _needs(node: Node) -> frozenset[str] | None:
    """The names that an expression without side effects needs; None for any other."""
    if node.type == "identifier":
        return frozenset({text(node)})
    if node.type in ("number_literal", "qualified_identifier"):
        return frozenset()
    if node.type == "field_expression":
        return _needs(node.children[0])
    if node.type == "parenthesized_expression" and len(node.named_children) == 1:
        return _needs(node.named_children[0])
    if (
        node.type == "binary_expression"
        and text(node.child_by_field_name("operator")) in _ARITHMETIC
    ):
        left, right = (node.child_by_field_name(n) for n in ("left", "right"))
        if left is None or right is None:
            return None
        one, other = _needs(left), _needs(right)
        return None if one is None or other is None else one | other
    return None


@dataclass(slots=True)
class _Walk:
    """Goes through one function's body."""

    file: Path
    source: bytes
    function: str
    spelled: tuple[_Spelled, ...]
    free: frozenset[str]
    fields: Mapping[str, tuple[str, ...]]
    inline: tuple[int, ...]

    def block(
        self, node: Node, outer: list[Variable], loops: tuple[Loop, ...]
    ) -> Iterator[Boundary]:
        scope = outer if node.type.startswith("preproc") else list(outer)
        for child in node.named_children:
            if child.type in _LEAVES:
                continue
            yield from self.inside(child, scope, loops)
            new = list(_declarations(child)) if child.type == "declaration" else []
            scope += new
            if node.type in ("preproc_if", "preproc_ifdef", "preproc_elif") and child.type in (
                "identifier", "binary_expression", "preproc_defined", "number_literal",
            ):  # fmt: skip
                continue
            if child.type in _BLOCKS and child.type != "compound_statement":
                continue
            if self.source[child.end_byte - 1 : child.end_byte] in (b";", b"}"):
                yield self.boundary(child, scope, loops, new)

    def inside(
        self, node: Node, scope: list[Variable], loops: tuple[Loop, ...]
    ) -> Iterator[Boundary]:
        """The boundaries inside of a statement."""
        walk = self
        if node.type in _BLOCKS:
            yield from self.block(node, scope, loops)
            return
        if node.type == "for_statement":
            start = node.child_by_field_name("initializer")
            own = list(_declarations(start)) if start and start.type == "declaration" else []
            scope, loops = [*scope, *own], (*loops, self.loop(node))
        elif node.type in ("while_statement", "do_statement"):
            loops = (*loops, self.loop(node))
        elif node.type == "lambda_expression":
            declarator = node.child_by_field_name("declarator")
            listed = declarator.child_by_field_name("parameters") if declarator else None
            scope = [*scope, *_parameters(listed, False)]
            walk = replace(self, inline=(*self.inline, _attributes(node)))
        for child in node.named_children:
            yield from walk.inside(child, scope, loops)

    def loop(self, node: Node) -> Loop:
        start = node.child_by_field_name("initializer")
        condition = node.child_by_field_name("condition")
        while condition is not None and condition.type in (
            "condition_clause", "parenthesized_expression",
        ):  # fmt: skip
            condition = next(iter(condition.named_children), None)
        left = right = None
        operator = counter = ""
        if condition is not None and condition.type == "binary_expression":
            left, right = (condition.child_by_field_name(n) for n in ("left", "right"))
            operator = text(condition.child_by_field_name("operator"))
            names = [text(n) for n in (left, right) if n is not None and n.type == "identifier"]
            counter = names[0] if names else ""
        first = _value(start, counter)
        return Loop(
            node.start_point[0] + 1, _span(first), _span(left), text(left),
            _span(right), text(right), operator, counter,
        )  # fmt: skip

    def boundary(
        self, node: Node, scope: list[Variable], loops: tuple[Loop, ...], new: list[Variable]
    ) -> Boundary:
        named = {v.name: v for v in scope}
        known = _ALWAYS | self.free | set(named)
        mentioned: dict[str, Variable] = {v.name: v for v in new}
        if node.type != "declaration":
            for inner in descend(node):
                if inner.type == "identifier" and text(inner) in named:
                    mentioned.setdefault(text(inner), named[text(inner)])
        if node.type == "expression_statement":
            for inner in descend(node):
                if inner.type == "assignment_expression":
                    left = inner.child_by_field_name("left")
                    if left is not None and left.type != "identifier":
                        words = " ".join(text(left).split())
                        mentioned.setdefault(words, Variable(words, ""))
        names = [v.name for v in scope if not v.pointer and not v.extents]
        members = [f"{v.name}{'->' if v.pointer else '.'}{field}" for v in scope if not v.extents
                   for field in self.fields.get(last_word(v.type), ())]  # fmt: skip
        own = self.source[self.source.rfind(b"\n", 0, node.start_byte) + 1 : node.start_byte]
        indent = own.decode("utf-8", "replace")
        return Boundary(
            self.file, self.function, node.end_byte, node.end_point[0] + 1,
            indent if not indent.strip() else indent[: len(indent) - len(indent.lstrip())],
            tuple(v for v in mentioned.values() if _worth(v)),
            tuple(dict.fromkeys([*names, *(s.text for s in self.spelled if s.needs <= known),
                                 *members])),
            loops, self.inline,
        )  # fmt: skip


def _worth(variable: Variable) -> bool:
    """Whether a variable may hold scores: not a pointer, not declared as a whole number."""
    words = [w for w in variable.type.split() if w not in ("const", "static", "register")]
    if variable.pointer or variable.given:
        return False
    return " ".join(words) not in INTEGERS and "constexpr" not in words


def _attributes(node: Node) -> int:
    """Where a lambda's attributes stand: before the type that it returns, else before its body."""
    declarator = node.child_by_field_name("declarator")
    parts = [*(declarator.named_children if declarator else ()), *node.named_children]
    ends = ("trailing_return_type", "compound_statement")
    at: int = next(part.start_byte for part in parts if part.type in ends)
    return at


def lambdas_around(source: bytes, at: int) -> list[int]:
    """Where attributes stand of the lambdas that a byte is in."""
    return [_attributes(n) for n in descend(parsed(source))
            if n.type == "lambda_expression" and n.start_byte < at < n.end_byte]  # fmt: skip


def _span(node: Node | None) -> tuple[int, int] | None:
    return None if node is None else (node.start_byte, node.end_byte)


def _value(start: Node | None, counter: str) -> Node | None:
    """What a loop's head gives its counter at first."""
    for node in descend(start) if start is not None else ():
        if (
            node.type == "init_declarator"
            and text(node.child_by_field_name("declarator")) == counter
        ):
            return node.child_by_field_name("value")
        if (
            node.type == "assignment_expression"
            and text(node.child_by_field_name("left")) == counter
        ):
            return node.child_by_field_name("right")
    return None
