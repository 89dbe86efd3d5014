"""Random masks over rows, keys, heads and tables, and what the rules make of each on a kernel."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass
from functools import reduce

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_expr
from engine.cuir.static.check import check
from engine.lift.cpp.provenance import Lifted
from engine.lower.lower import lower
from engine.lower.spans import allowed_spans, verify_spans
from engine.lower.spelling.legal import legal
from engine.scalar_algebra.canonical import canonical_predicate
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.rules import apply, plan
from tests.engine.lower.relift import verify_relift

QKV = (
    Input("q", "q", "T", ("B", "Hq", "Nq", "D")),
    Input("k", "k", "T", ("B", "Hkv", "Nk", "D")),
    Input("v", "v", "T", ("B", "Hkv", "Nk", "D")),
)
TABLES = {
    "valid": ("bool", ("B", "Nk")),
    "sink": ("bool", ("Hq", "Nk")),
    "early": ("bool", ("Nk",)),
    "live": ("bool", ("B", "Nq")),
    "wide": ("bool", ("Hq",)),
    "flags": ("bool", ("B", "1", "Nq", "Nk")),
    "doc": ("i32", ("B", "Nq")),
    "doc_k": ("i32", ("B", "Nk")),
    "pos": ("i32", ("B", "Nq")),
    "pos_k": ("i32", ("B", "Nk")),
    "turn": ("i32", ("Nk",)),
    "until": ("i32", ("B", "Nq")),
    "length": ("i32", ("B",)),
    "reach": ("i32", ("Hq",)),
}
"""Dtype and dimensions of what a mask may read."""

DIAGONAL = "i + (Nk - Nq)"
CONDITIONS = (
    "valid[b, j]", "sink[h, j]", "early[j]", "live[b, i]", "wide[h]", "flags[b, 0, i, j]",
    "doc[b, i] == doc_k[b, j]", "doc[b, i] != doc_k[b, j]", "pos[b, i] >= pos_k[b, j]",
    "pos[b, i] - pos_k[b, j] < {n}", "turn[j] > {n}", "turn[j] % 4 == {m}", "until[b, i] > j",
    "j < length[b]", f"{DIAGONAL} - j <= reach[h]", f"j <= {DIAGONAL}", f"j > {DIAGONAL} - {{n}}",
    "j < {n}", "i // {n} == j // {n}", "h < {m}", "abs(i - j) <= {n}", "(i + j) % 4 != {m}",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask's text and the inputs that it reads."""

    text: str
    inputs: tuple[Input, ...]


def random_mask(seed: int) -> Mask:
    """A mask of one to six conditions under `and`, `or` and `not`."""
    choice = random.Random(seed)

    def condition() -> str:
        text = choice.choice(CONDITIONS)
        return text.format(n=choice.choice((1, 7, 16, 100)), m=choice.choice((0, 1, 3)))

    def tree(leaves: int) -> str:
        if leaves == 1:
            text = condition()
        else:
            left = choice.randint(1, leaves - 1)
            op = choice.choice(("and", "or"))
            text = f"{tree(left)} {op} {tree(leaves - left)}"
        return f"(not ({text}))" if choice.random() < 0.2 else f"({text})"

    text = tree(choice.randint(1, 6))
    read = [name for name in TABLES if re.search(rf"\b{name}\[", text)]
    return Mask(text, tuple(Input(n, "extra", *TABLES[n]) for n in read))


def spec_text(mask: Mask) -> str:
    """The mask as a spec: a FlexAttention factory that takes what the mask reads."""
    annotations = {"bool": "Bool", "i32": "Int32"}
    inputs = "".join(
        f'{i.name}: {annotations[i.dtype]}[Tensor, "{" ".join(i.dims)}"], ' for i in mask.inputs
    )
    said = ast.unparse(_AsTensors().visit(ast.parse(mask.text, mode="eval")))
    return (
        "from jaxtyping import Bool, Int32\nfrom torch import Tensor\n\n\n"
        f"def attention_mods({inputs}Nq, Nk):\n"
        f"    def mask(b, h, i, j):\n        return {said}\n\n    return mask\n"
    )


class _AsTensors(ast.NodeTransformer):
    """`and`, `or` and `not` as `&`, `|` and `~`."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        parts = [self.visit(value) for value in node.values]
        return reduce(lambda a, b: ast.BinOp(a, operator, b), parts)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        assert isinstance(node.op, ast.Not)
        return ast.UnaryOp(ast.Invert(), self.visit(node.operand))


def recipe_of(mask: Mask) -> Recipe | None:
    """The recipe of softmax attention under the mask; None where it keeps all or nothing."""
    kinds = {"b": "int", "h": "int", "i": "int", "j": "int"}
    kinds |= {i.name: "bool" if i.dtype == "bool" else "int" for i in mask.inputs}
    kinds |= dict.fromkeys(("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv"), "int")
    keep = canonical_predicate(parse_expr(mask.text), kinds)  # type: ignore[arg-type]
    if keep in (parse_expr("True"), parse_expr("False")):
        return None
    return Recipe(
        "eager", (*QKV, *mask.inputs), parse_expr("x * rsqrt(D)"), keep, None,
        parse_expr("h // (Hq // Hkv)"), ("B", "Hq", "Nq", "D"), "nan",
    )  # fmt: skip


def lowered(kernel: Lifted, recipe: Recipe, narrower: int = 0) -> tuple[bytes, Module]:
    """The kernel's text with the mask, held to all of G2's and G3's checks that run nothing, by
    tiles that have `narrower` steps of keys fewer than rules choose.

    Raises:
        AssertionError: one of them fails.
    """
    steps = plan(kernel.module, recipe, narrower).steps
    trail = [kernel.module, *(module for _, module in apply(kernel.module, steps))]
    target = legal(trail[-1])
    findings = check(target)
    assert not findings, findings[0]
    done = lower(kernel, target)
    offence = verify_spans(kernel.source, done.source, allowed_spans(kernel, target))
    assert offence is None, str(offence)
    mismatch = verify_relift(done.source, [target])
    assert mismatch is None, str(mismatch)
    return done.source, target
