"""The spec's score, computed per element before masking and the row maximum."""

from __future__ import annotations

from functools import reduce

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Expr,
    Lambda,
    Module,
    Num,
    Stmt,
    map_stmt_exprs,
    rebuild,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import Block, map_expr, map_statements, substitute_expr
from engine.cuir.text.quote import expr as quoted
from engine.cuir.text.quote import matched
from engine.transfer.match import Attention, Site
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import edit_site, is_element_op, score_map
from engine.transfer.rules.elements.arithmetic import Positive, cheap, positive_multiple


def _score(case: Case) -> tuple[Expr, Positive | None]:
    """The score in the kernel's words, and as a positive multiple of something where it is one."""
    assert case.rest is not None
    score = case.words.of_kernel(scalar_inputs(case.rest, case.recipe))
    return score, positive_multiple(score)


def _body(case: Case) -> Expr:
    """What is computed per element."""
    return _element(*_score(case))


def _element(score: Expr, capped: Positive | None) -> Expr:
    return cheap(score) if capped is None else capped.value


def _reason(case: Case) -> str:
    return (
        "the score is more than a positive multiple of q.k: computed per element before mask and "
        "row maximum" + _how(*_score(case))
    )


def _how(score: Expr, capped: Positive | None) -> str:
    """The steps from the score's functions to the element's, where they are others."""
    left = {e.fn for e in walk_expr(_element(score, capped)) if isinstance(e, Call)}
    gone = {e.fn for e in walk_expr(score) if isinstance(e, Call)} - left
    steps = []
    if capped is not None:
        half = f"{capped.factor / 2:g}"
        steps.append(
            f"{half} tanh(u) = {capped.factor:g} sigmoid(2 u) - {half}, and the element holds "
            f"sigmoid(2 u) = 1 / (1 + 2^(-2 log2(e) u)), u = {print_expr(capped.inside)}"
        )
    elif "tanh" in gone:
        steps.append("tanh(u) = 1 - 2 / (1 + 2^(2 log2(e) u))")
    if "sigmoid" in gone:
        steps.append("sigmoid(u) = 1 / (1 + 2^(-log2(e) u))")
    if not steps:
        return ""
    return (
        f"; {'; '.join(steps)}: one exponential and one reciprocal, with an absolute error below "
        "2^-21"
    )


def _cap_reason(case: Case) -> str:
    capped = _score(case)[1]
    assert capped is not None
    return (
        f"the score is {capped.factor:g} times what the element holds, "
        f"{'plus' if capped.shift > 0 else 'less'} {abs(capped.shift):g}: the exponential "
        "multiplies anyway, so the factor goes there; the constant is the same for all keys of a "
        "row, so it cancels in the softmax and returns in the log-sum-exp"
    )


def insert_score(module: Module, found: Attention, body: Expr) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None
        return (*stmts[: site.mask], score_map(site, body), *stmts[site.mask :])

    return edit_site(module, found, edit)


def _unfold_scale(module: Module, case: Case, factor: float = 1.0, shift: float = 0.0) -> Module:
    """Everywhere but in the inserted score maps, the scale becomes `factor`; a logarithm of the row
    sum, which is absolute, also gets `shift`. The host's text may hold the scale too."""
    scale = case.words.scale

    def change(expr: Expr) -> Expr:
        if shift != 0.0:
            expr = map_expr(expr, lambda e: _shifted(e, scale, shift))
        return _drop_ones(substitute_expr(expr, scale, Num(factor)))

    def edit(stmt: Stmt) -> Stmt:
        return stmt if _is_score_map(stmt, case.found) else map_stmt_exprs(stmt, change)

    return reduce(lambda m, f: map_statements(m, f.name, edit), module.functions, module)


def _put_cap(module: Module, case: Case) -> Module:
    capped = _score(case)[1]
    assert capped is not None
    return _unfold_scale(module, case, capped.factor, capped.shift)


def _shifted(expr: Expr, scale: Expr, shift: float) -> Expr | None:
    """The natural log-sum-exp `top * scale + log(sum)` with the scores' constant added."""
    for pattern, made in (
        ("top * scale + log(sum)", "top * scale + shift + log(sum)"),
        ("log(sum) + top * scale", "log(sum) + (top * scale + shift)"),
    ):
        holes = matched(pattern, expr)
        if holes is not None and holes["scale"] == scale:
            made = made if shift > 0 else made.replace("+ shift", "- shift")
            return quoted(made, **holes, shift=abs(shift))
    return None


def _is_score_map(stmt: Stmt, found: Attention) -> bool:
    """A map of one score tile whose lambda's first parameter is x: only rules write those."""
    match stmt:
        case Assign(_, Call(_, (_, Lambda(("x", *_), _)))):
            return is_element_op(stmt, found, "map")
    return False


def _drop_ones(expr: Expr) -> Expr:
    """x * 1.0 and 1.0 * x become x, anywhere in the expression."""
    match rebuild(expr, _drop_ones):
        case Binary("*", other, Num(float(1.0))) | Binary("*", Num(float(1.0)), other):
            return other
        case made:
            return made


SCORE = Rule(
    "score",
    "Compute the spec's score",
    _reason,
    "score",
    applies=lambda case: case.rest is not None and case.softmax,
    edit=lambda module, case: insert_score(module, case.found, _body(case)),
    after=("tables",),
)
SCALE = Rule(
    "scale",
    "Take the scale out of the exponential",
    "the multiplier is no longer the last thing that happens to the score, so it cannot be "
    "folded into exp2",
    "scale",
    applies=lambda case: SCORE.applies(case) and _score(case)[1] is None,
    edit=_unfold_scale,
    after=("score",),
)
CAP = Rule(
    "cap",
    "Put the cap where the scale was",
    _cap_reason,
    "score, scale",
    applies=lambda case: SCORE.applies(case) and _score(case)[1] is not None,
    edit=_put_cap,
    after=("score", "scale"),
)
