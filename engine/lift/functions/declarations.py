"""Aliases and assertions: what a source declares without computing anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tree_sitter import Node as Tree

from engine.lift.cpp.source_text import Source
from engine.lift.cpp.syntax import NotAnExpression, parse_expression
from engine.lift.cpp.tokens import Token, join
from engine.lift.functions.expressions import Translator, Typed, Unknown
from engine.lift.names.catalogue import fill
from engine.lift.names.constants import Constant, Evaluator, NotConstant
from engine.lift.names.scope import UNKNOWN, Program


def read_alias(
    tokens: Sequence[Token], translator: Translator, program: Program
) -> tuple[str, Typed]:
    """`using Name = Type;`. Raises `Unknown`."""
    if len(tokens) < 5 or tokens[2].text != "=" or tokens[-1].text != ";":
        raise Unknown("an alias of another form")
    typed = translator.translate(parse_expression(tokens[3:-1], program.templates))
    if typed.kind not in ("type", "layout"):
        raise Unknown("an alias of what is no type")
    # A copy without ranges: where the alias is used, its parts stand nowhere.
    return tokens[1].text, Typed(fill(typed.expr, {}), typed.kind)


def check_static_assert(
    source: Source,
    tree: Tree,
    translator: Translator,
    program: Program,
    evaluator: Evaluator,
    instantiations: Sequence[Mapping[str, Constant]],
) -> None:
    """Passes over an assertion that holds. Raises `LiftError` on one that does not."""
    condition = tree.child_by_field_name("condition") or tree
    text = join(source.within(condition))
    try:
        node = parse_expression(source.within(condition), program.templates)
        expr = replace(translator, compiles=True).condition(node)
        held = [evaluator.value(expr, known) for known in instantiations if UNKNOWN not in known]
    except (Unknown, NotAnExpression, NotConstant) as error:
        raise source.fail(
            tree.start_byte,
            f"static_assert({text}) cannot be evaluated: {error}",
            "assert on template parameters, constexpr values and sizes of element types",
        ) from None
    if not all(held):
        raise source.fail(
            tree.start_byte,
            f"static_assert({text}) fails for this specialisation",
            "choose a specialisation that the kernel allows",
        )
