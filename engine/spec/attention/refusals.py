"""What a spec holds that no rule reads, in the words of the field.

A traced output that is not attention as a recipe says it is looked through once more, for what
published attention functions have: a paged cache, a second product in the score, scores of several
heads mixed, a choice by the scores themselves, a gate on the output, two attentions. The first that
is found is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.cuir.nodes import Call, Expr, Index, Lambda, Name, Select, walk_expr
from engine.scalar_algebra.rewrite import load_names, loads
from engine.spec.expressions.factors import mentions

LLM = "write it outside the spec, or use --transfer llm"
OPS = {
    "topk": "the highest scores of a row are chosen (top-k)",
    "kthvalue": "the highest scores of a row are chosen (top-k)",
    "sort": "the scores of a row are sorted",
    "argsort": "the scores of a row are sorted",
    "argmax": "the highest score of a row is chosen",
    "native_group_norm": "{} is normalised (a group norm)",
    "convolution": "a convolution of {}",
    "cumsum": "a running sum of {}",
    "cumprod": "a running product of {}",
    "scatter": "{} is written to places that depend on values (a scatter)",
    "scatter_add": "{} is written to places that depend on values (a scatter)",
    "index_put": "{} is written to places that depend on values",
}
"""What an op that no rule reads is, of the inputs that it depends on."""
CHOICES = ("topk", "kthvalue", "sort", "argsort", "argmax")
PASS_MASK = (
    "a kernel sees one tile of keys at a time: choose the keys beforehand, and pass the choice as "
    "a Bool input"
)


@dataclass(frozen=True, slots=True)
class Reason:
    """What it is, what to do, and the part of the output that shows it."""

    words: str
    fix: str
    part: Expr | None = None


@dataclass(frozen=True, slots=True)
class Product:
    """A sum over `var` in which inputs are multiplied."""

    call: Call
    var: str
    body: Expr
    loads: tuple[Index, ...]

    @property
    def bases(self) -> frozenset[str]:
        return frozenset(map(_base, self.loads))


def unread_op(op: str, inputs: frozenset[str]) -> Reason:
    """The reason why a value of `inputs` is not read, by the op that made it."""
    name = op.removeprefix("aten.")
    of = " and ".join(sorted(inputs))
    if name not in OPS:
        return Reason(f"no rule reads {op} of {of}", "write it in elementwise ops, or " + LLM)
    words = f"{OPS[name].format(sorted(inputs)[0])}: no rule reads {op} of {of}"
    return Reason(words, PASS_MASK if name in CHOICES else LLM)


def reason_of(expr: Expr, floats: frozenset[str]) -> Reason | None:
    """The first reason in a traced output of the float inputs `floats`."""
    found = list(_products(expr, floats))
    calls = {p.call for p in found}
    scores = [p for p in found if not any(e in calls for e in walk_expr(p.body))]
    for product in (*scores, *(p for p in found if p not in scores)):
        inner = product in scores
        reason = _paged(product) or _joined(product, inner)
        if reason is not None:
            return reason
    return _chosen(expr, floats) or _several(expr, scores, floats) or _mixed(scores, found)


def _products(expr: Expr, floats: frozenset[str]) -> Iterator[Product]:
    seen: set[Expr] = set()
    for e in walk_expr(expr):
        match e:
            case Call("sum_over", (Lambda((var,), body), _)) if e not in seen:
                seen.add(e)
                found = (x for x in loads(body) if _base(x) in floats and mentions(x, var))
                product = Product(e, var, body, tuple(found))
                if len(product.bases) > 1:
                    yield product


def _base(load: Index) -> str:
    assert isinstance(load.base, Name)
    return load.base.id


# --- q, k and v ----------------------------------------------------------------------------------


def _paged(product: Product) -> Reason | None:
    for load in product.loads:
        through = [inner for e in load.index for inner in loads(e)]
        if through:
            return Reason(
                f"rows of {_base(load)} are gathered through {_base(through[0])} (a paged cache, "
                "or a gather of keys)",
                "pass k and v as they are multiplied: gather them before the attention",
                load,
            )
    return None


def _joined(product: Product, columns: bool) -> Reason | None:
    """Two inputs in one operand, told apart by a place: by the column where the sum is over
    `columns`."""
    for e in walk_expr(product.body):
        if not isinstance(e, Select):
            continue
        sides = [load_names(side) & product.bases for side in (e.then, e.other)]
        if not all(sides) or sides[0] & sides[1]:
            continue
        names = " and ".join(sorted(sides[0] | sides[1]))
        if mentions(e.cond, product.var) and columns:
            what = f"q or k is joined from parts along the head dimension ({names})"
            return Reason(what, "join them before the attention, and pass the whole", e)
        return Reason(
            f"rows are joined from two inputs ({names}): a second set of keys or queries",
            "join them before the attention, and pass the whole", e,
        )  # fmt: skip
    return None


# --- the score and the output --------------------------------------------------------------------


def _chosen(expr: Expr, floats: frozenset[str]) -> Reason | None:
    """A mask that asks for the scores themselves."""
    for e in walk_expr(expr):
        if isinstance(e, Select) and any(_products(e.cond, floats)):
            return Reason(
                "which keys are kept depends on the scores themselves (a threshold or top-k)",
                PASS_MASK,
                e.cond,
            )
    return None


def _several(expr: Expr, scores: list[Product], floats: frozenset[str]) -> Reason | None:
    """More than one pair of inputs is multiplied in scores."""
    pairs = list(dict.fromkeys(p.bases for p in scores))
    if len(pairs) < 2:
        return None
    rows = {
        frozenset(p.bases for p in scores if p.call in set(walk_expr(e)))
        for e in walk_expr(expr)
        if isinstance(e, Call) and e.fn == "exp"
    }
    rows = {r for r in rows if r}
    said = ", ".join(" with ".join(sorted(p)) for p in pairs)
    if len(rows) > 1 and not frozenset.intersection(*rows):
        return Reason(
            f"two attentions are combined ({said})",
            "write each as a spec of its own, and combine their outputs", scores[-1].call,
        )  # fmt: skip
    if all(p & pairs[0] for p in pairs[1:]):
        more = "; ".join(" with ".join(sorted(p)) for p in pairs[1:])
        return Reason(
            f"the score holds more than one product: {more} is added (as relative position "
            "embeddings are)",
            "compute that part before the attention, and pass it as a bias per pair",
            scores[-1].call,
        )
    return Reason(
        f"the score is a sum of products of several inputs ({said})",
        "join their parts along the head dimension before the attention", scores[-1].call,
    )  # fmt: skip


def _mixed(scores: list[Product], found: list[Product]) -> Reason | None:
    """A sum over heads of scores."""
    for outer in found:
        inside = [p for p in scores if p is not outer and p.call in set(walk_expr(outer.body))]
        if any(mentions(x, outer.var) for p in inside for x in p.loads) and not any(
            isinstance(e, Call) and e.fn == "exp" for e in walk_expr(outer.body)
        ):
            return Reason(
                "scores of several heads are mixed (talking heads)",
                "a kernel computes each head by itself; no rule carries this", outer.call,
            )  # fmt: skip
    return None
