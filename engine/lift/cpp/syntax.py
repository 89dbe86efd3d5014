"""C++ expressions as small trees, parsed by precedence from tokens.

A name followed by `<` opens template arguments exactly when it is known as a template, which is
how the language itself decides: `a < b && d > (e)` is a comparison unless `a` is a template.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from engine.lift.cpp.tokens import Token


@dataclass(frozen=True, slots=True)
class Node:
    """A C++ expression. `kids` by kind:

    name, number, string: none; unary (`text` is the operator): operand; binary: left, right;
    ternary: condition, then, other; call: callee, then arguments; template: arguments (`text` is
    the name); member (`text` is the field): base; index: base, then indices; cast: type, operand;
    lambda: one `param` (`text` is the name, kid its type) per parameter, then the returned
    expression; list: the items of `{...}`.

    `start` and `end` are byte offsets; parentheses around an expression belong to its range.
    """

    kind: str
    text: str
    kids: tuple[Node, ...]
    start: int
    end: int
    # Of a lambda: the range between the parentheses of its parameters.
    inner: tuple[int, int] | None = None
    height: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        height = 1 + max((kid.height for kid in self.kids), default=0)
        if height > _TOO_HIGH:
            raise NotAnExpression("nested too deeply")
        object.__setattr__(self, "height", height)


class NotAnExpression(Exception):
    """The tokens are outside the expression language; `args[0]` says why."""


SCALAR_TYPES = frozenset({
    "void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned",
    "size_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t",
    "uint64_t", "half", "f16", "bf16", "f32", "i32", "i64", "__half", "__nv_bfloat16",
})  # fmt: skip
# Words of the language that no variable may be named.
KEYWORDS = frozenset({
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "class", "compl", "const", "consteval", "constexpr",
    "const_cast", "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast",
    "else", "enum", "explicit", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq",
    "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register",
    "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct",
    "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef", "typeid",
    "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
    "xor_eq", "__global__", "__device__", "__host__", "__shared__", "__constant__",
    "__launch_bounds__", "__grid_constant__",
})  # fmt: skip
CASTS = frozenset({"static_cast"})

_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_STRENGTH = {sign: level for level, signs in enumerate(_LEVELS, 1) for sign in signs}
_UNARY = frozenset({"-", "+", "!", "~"})
# Nested deeper than a person writes; keeps hostile input off the stack's end.
_TOO_DEEP, _TOO_HIGH = 120, 64


def parse_expression(tokens: Sequence[Token], templates: Collection[str]) -> Node:
    """The one expression that `tokens` spell. Raises `NotAnExpression`."""
    parser = _Parser(tokens, templates)
    node = parser.ternary(0, False)
    if parser.at < len(tokens):
        raise NotAnExpression(f"unexpected `{tokens[parser.at].text}`")
    return node


class _Parser:
    def __init__(self, tokens: Sequence[Token], templates: Collection[str]) -> None:
        self.tokens = tokens
        self.templates = templates
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        position = self.at + ahead
        return self.tokens[position].text if position < len(self.tokens) else ""

    def take(self) -> Token:
        if self.at >= len(self.tokens):
            raise NotAnExpression("the expression ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, text: str) -> Token:
        token = self.take()
        if token.text != text:
            raise NotAnExpression(f"expected `{text}`, found `{token.text}`")
        return token

    def ternary(self, depth: int, in_template: bool) -> Node:
        cond = self.binary(1, depth, in_template)
        if self.peek() != "?":
            return cond
        self.take()
        then = self.ternary(depth + 1, False)
        self.expect(":")
        other = self.ternary(depth + 1, in_template)
        return Node("ternary", "?:", (cond, then, other), cond.start, other.end)

    def operator(self, in_template: bool) -> tuple[str, int]:
        """The binary operator here and its number of tokens; `>` closes template arguments."""
        text = self.peek()
        if text == ">":
            if in_template:
                return "", 0
            following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
            adjacent = following is not None and following.start == self.tokens[self.at].end
            if adjacent and following is not None and following.text == ">":
                return ">>", 2
        return text, 1

    def binary(self, level: int, depth: int, in_template: bool) -> Node:
        if depth > _TOO_DEEP:
            raise NotAnExpression("nested too deeply")
        left = self.unary(depth + 1)
        while True:
            sign, width = self.operator(in_template)
            strength = _STRENGTH.get(sign, 0)
            if strength < level or not strength:
                return left
            self.at += width
            right = self.binary(strength + 1, depth + 1, in_template)
            left = Node("binary", sign, (left, right), left.start, right.end)

    def unary(self, depth: int) -> Node:
        if depth > _TOO_DEEP:
            raise NotAnExpression("nested too deeply")
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is not None and token.text in _UNARY:
            self.take()
            operand = self.unary(depth + 1)
            return Node("unary", token.text, (operand,), token.start, operand.end)
        if token is not None and token.text == "(":
            type_name = self.cast_type()
            if type_name is not None:
                operand = self.unary(depth + 1)
                return Node("cast", "cast", (type_name, operand), token.start, operand.end)
        return self.postfix(depth)

    def cast_type(self) -> Node | None:
        """`(float)` before an operand, or None with nothing taken."""
        begin = self.at
        self.take()
        if self.peek() not in SCALAR_TYPES:
            self.at = begin
            return None
        node = self.type_words()
        if self.peek() != ")" or self.peek(1) in ("", ")", ",", ";") or self.peek(1) in _STRENGTH:
            self.at = begin
            return None
        self.take()
        return node

    def type_words(self) -> Node:
        words = [self.take()]
        while self.peek() in SCALAR_TYPES:
            words.append(self.take())
        return Node("name", " ".join(w.text for w in words), (), words[0].start, words[-1].end)

    def postfix(self, depth: int) -> Node:
        node = self.primary(depth)
        while True:
            text = self.peek()
            if text == "(":
                args, end = self.items("(", ")", depth)
                node = Node("call", "", (node, *args), node.start, end)
            elif text == "[":
                args, end = self.items("[", "]", depth)
                node = Node("index", "", (node, *args), node.start, end)
            elif text == ".":
                self.take()
                field = self.take()
                if field.kind != "word":
                    raise NotAnExpression(f"expected a field, found `{field.text}`")
                node = Node("member", field.text, (node,), node.start, field.end)
            else:
                return node

    def items(self, opening: str, closing: str, depth: int) -> tuple[list[Node], int]:
        self.expect(opening)
        out: list[Node] = []
        if self.peek() != closing:
            out.append(self.ternary(depth + 1, False))
            while self.peek() == ",":
                self.take()
                out.append(self.ternary(depth + 1, False))
        return out, self.expect(closing).end

    def primary(self, depth: int) -> Node:
        token = self.take()
        match token.kind:
            case "number" | "string":
                return Node(token.kind, token.text, (), token.start, token.end)
            case "word":
                return self.named(token, depth)
        if token.text == "(":
            inner = self.ternary(depth + 1, False)
            end = self.expect(")").end
            return Node(inner.kind, inner.text, inner.kids, token.start, end, inner.inner)
        if token.text == "[":
            return self.lambda_(token, depth)
        if token.text == "{":
            self.at -= 1
            items, end = self.items("{", "}", depth)
            return Node("list", "", tuple(items), token.start, end)
        raise NotAnExpression(f"unexpected `{token.text}`")

    def named(self, first: Token, depth: int) -> Node:
        if first.text in SCALAR_TYPES and self.peek() in SCALAR_TYPES:
            self.at -= 1
            return self.type_words()
        name, end = first.text, first.end
        while self.peek() == "::":
            self.take()
            part = self.take()
            if part.kind != "word":
                raise NotAnExpression(f"expected a name after `::`, found `{part.text}`")
            name, end = f"{name}::{part.text}", part.end
        name = name.removeprefix("cubridge::")
        if self.peek() != "<" or (name not in self.templates and name not in CASTS):
            return Node("name", name, (), first.start, end)
        self.take()
        args: list[Node] = []
        if self.peek() != ">":
            args.append(self.ternary(depth + 1, True))
            while self.peek() == ",":
                self.take()
                args.append(self.ternary(depth + 1, True))
        end = self.expect(">").end
        if name in CASTS:
            if len(args) != 1:
                raise NotAnExpression("a cast has one type")
            operand, end = self.items("(", ")", depth)
            if len(operand) != 1:
                raise NotAnExpression("a cast has one operand")
            return Node("cast", "cast", (args[0], operand[0]), first.start, end)
        return Node("template", name, tuple(args), first.start, end)

    def lambda_(self, opening: Token, depth: int) -> Node:
        """`[&](float x, int i) { return e; }`; `[=]` is the same in a per-element function."""
        if self.take().text not in ("&", "="):
            raise NotAnExpression("a lambda captures by [&] or [=]")
        self.expect("]")
        begin = self.expect("(").end
        params: list[Node] = []
        while self.peek() != ")":
            words = [self.take()]
            while self.peek() not in (",", ")"):
                words.append(self.take())
            if any(w.kind != "word" for w in words) or words[-1].text in KEYWORDS:
                raise NotAnExpression("a lambda's parameter is passed by value")
            kind = " ".join(w.text for w in words[:-1] if w.text != "const")
            name = words[-1]
            type_node = Node("name", kind, (), words[0].start, words[-1].start)
            params.append(Node("param", name.text, (type_node,), words[0].start, name.end))
            if self.peek() == ",":
                self.take()
        inner = (begin, self.take().start)
        returned: Node | None = None
        if self.peek() == "->":
            self.take()
            returned = self.type_words()
        self.expect("{")
        if self.peek() != "return":
            raise NotAnExpression("a lambda is one return statement")
        self.take()
        body = self.ternary(depth + 1, False)
        if returned is not None:
            body = Node("cast", "cast", (returned, body), body.start, body.end)
        self.expect(";")
        end = self.expect("}").end
        return Node("lambda", "", (*params, body), opening.start, end, inner)
