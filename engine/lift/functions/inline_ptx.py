"""Inline PTX: single instructions that the catalogue knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.cuir.nodes import Call, Expr, Num
from engine.cuir.ops.spelling import hole_of
from engine.lift.cpp.syntax import Node
from engine.lift.cpp.tokens import Token
from engine.lift.functions.expressions import Translator, Unknown
from engine.lift.names.catalogue import asm_words, fill

Parse = Callable[[Sequence[Token]], Node]


def read_asm(tokens: Sequence[Token], parse: Parse, translator: Translator) -> Call:
    """The op of one PTX instruction that the catalogue knows. Raises `Unknown`."""
    inner = [t for t in tokens[1:] if t.text not in ("volatile", "__volatile__")]
    if len(inner) < 3 or inner[0].text != "(" or inner[-1].text != ")":
        raise Unknown("inline PTX")
    inner = inner[1:-1]
    split = next((at for at, t in enumerate(inner) if t.text in (":", "::", ":::")), len(inner))
    if any(t.kind != "string" or not t.text.startswith('"') for t in inner[:split]):
        raise Unknown("inline PTX")
    text = "".join(t.text[1:-1] for t in inner[:split])
    for escape in ("\\n", "\\t"):
        text = text.replace(escape, " ")
    words = asm_words(text)
    operands = _inputs(inner[split:], parse)
    for pattern in translator.program.catalogue.asm:
        if len(pattern.words) != len(words):
            continue
        holes: dict[str, Expr | tuple[Expr, ...]] = {}
        for wanted, word in zip(pattern.words, words, strict=True):
            hole = hole_of(wanted)
            if hole is None:
                if wanted != word:
                    break
            elif word.lstrip("-").isdigit() and hole not in pattern.constraints:
                holes[hole] = Num(int(word))
            elif word.startswith("%") and word[1:].isdigit() and int(word[1:]) < len(operands):
                operand = translator.translate(operands[int(word[1:])])
                if operand.kind.split(":")[0] != pattern.constraints.get(hole, operand.kind):
                    break
                holes[hole] = operand.expr
            else:
                break
        else:
            call = fill(pattern.cuir, holes)
            assert isinstance(call, Call)
            return call
    raise Unknown(f"inline PTX: {' '.join(words)[:60]}")


def _inputs(tokens: Sequence[Token], parse: Parse) -> list[Node]:
    """The operands of an asm without outputs: `:: "n"(N), "r"(x) : "memory"`."""
    if not tokens:
        return []
    texts = [t.text for t in tokens]
    start = 2 if texts[:2] == [":", ":"] else 1 if texts[0] == "::" else None
    if start is None:
        raise Unknown("inline PTX with outputs")
    out: list[Node] = []
    at = start
    while at + 1 < len(tokens) and tokens[at].kind == "string" and texts[at + 1] == "(":
        depth, end = 1, at + 2
        while end < len(tokens) and depth:
            depth += (texts[end] == "(") - (texts[end] == ")")
            end += 1
        out.append(parse(tokens[at + 2 : end - 1]))
        at = end + 1 if texts[end : end + 1] == [","] else end
    if at < len(tokens) and texts[at] != ":":
        raise Unknown("inline PTX with operands of another form")
    return out
