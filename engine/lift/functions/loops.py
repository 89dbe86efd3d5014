"""The headers of `for` loops: what a range says, and nothing that it cannot say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cuir.nodes import (
    THEN,
    Binary,
    Call,
    Expr,
    Name,
    Num,
    Unary,
    names_in,
    next_of,
)
from engine.cuir.static.conversions import UNSIGNED
from engine.lift.cpp.tokens import Token
from engine.lift.functions.effects import assigned, objects
from engine.lift.functions.expressions import Translator, Unknown
from engine.lift.functions.inline_ptx import Parse
from engine.lift.names.scope import Local


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop as a range; `end` is the byte after the header's parenthesis."""

    var: Token
    name: str
    start: Expr
    stop: Expr
    step: Expr
    end: int


def read_loop(
    header: Sequence[Token], body: Sequence[Token], parse: Parse, translator: Translator
) -> Loop:
    """`for (int i = a; i < b; ++i)` and its kin, `i = next` among them. Declares the variable.
    Raises `Unknown`."""
    if [t.text for t in header[:2]] != ["for", "("] or header[-1].text != ")":
        raise Unknown("a loop header of another form")
    pieces = _split(header[2:-1], ";")
    if len(pieces) != 3 or not all(pieces):
        raise Unknown("a loop that is not `for (int i = a; i < b; ++i)`")
    init, cond, update = pieces
    if [t.text for t in init[:1]] != ["int"] or len(init) < 4 or init[2].text != "=":
        raise Unknown("a loop variable that is not `int i = ...`")
    var = init[1]
    start = translator.converted(translator.scalar(parse(init[3:])), "i32")
    name = translator.scope.fresh(var.text)
    translator.scope.declare(var.text, Local(Name(name), "i32"))
    step = _step(var, update, parse, translator)
    stop = _stop(var, cond, _is_negative(step), parse, translator)
    # A range computes its bounds once; a next value is what the body makes of it.
    bounds = cond if next_of(step) else (*cond, *update)
    changed = assigned(body) & {token.text for _, token in objects(bounds)}
    if changed:
        raise Unknown(f"the loop changes `{min(changed)}`, which bounds it")
    return Loop(var, name, start.expr, stop, step, header[-1].end)


def _step(var: Token, tokens: list[Token], parse: Parse, translator: Translator) -> Expr:
    """`++i`, `i++`, `i += c`, `--i`, `i--`, `i -= c` as the range's step, `i = n` as its next
    value."""
    texts = [t.text for t in tokens]
    if len(tokens) == 2 and var.text in texts and {"++", "--"} & set(texts):
        return Num(1) if "++" in texts else Num(-1)
    if len(tokens) == 3 and texts[:2] == [var.text, "="]:
        follows = translator.scalar(parse(tokens[2:]))
        if follows.kind != "i32" or not isinstance(follows.expr, Name):
            raise Unknown("a loop's next value that is not an int variable")
        return Call(THEN, (follows.expr,))
    if len(tokens) > 2 and texts[0] == var.text and texts[1] in ("+=", "-="):
        step = translator.scalar(parse(tokens[2:]))
        if step.kind not in ("i32", *UNSIGNED):
            raise Unknown("a loop's step is an int")
        if texts[1] == "+=":
            return step.expr
        if isinstance(step.expr, Num):
            return Num(-step.expr.value)
        return Unary("-", step.expr)
    raise Unknown("a loop's step of another form")


def _stop(
    var: Token, tokens: list[Token], down: bool, parse: Parse, translator: Translator
) -> Expr:
    """The range's end from `i < b`, `i <= b`, or downwards `i > b`, `i >= b`."""
    node = parse(tokens)
    signs = (">", ">=") if down else ("<", "<=")
    if node.kind != "binary" or node.text not in signs or node.kids[0].text != var.text:
        raise Unknown("a loop's condition that does not go with its step")
    if node.kids[0].kind != "name":
        raise Unknown("a loop's condition of another form")
    stop = translator.scalar(node.kids[1])
    if stop.kind != "i32":
        raise Unknown("a loop's bound is an int")
    if var.text in names_in(stop.expr):
        raise Unknown("a loop's bound that names its variable")
    if node.text == "<=":
        return Binary("+", stop.expr, Num(1))
    if node.text == ">=":
        if isinstance(stop.expr, Num):
            return Num(stop.expr.value - 1)
        return Binary("-", stop.expr, Num(1))
    return stop.expr


def _split(tokens: Sequence[Token], sign: str) -> list[list[Token]]:
    """`tokens` cut at every `sign` outside brackets."""
    out: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text == sign and not depth:
            out.append([])
        else:
            out[-1].append(token)
    return out


def _is_negative(step: Expr) -> bool:
    if isinstance(step, Unary):
        return step.op == "-"
    return isinstance(step, Num) and step.value < 0
