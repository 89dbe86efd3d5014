"""What a recipe asks for, clause by clause, in plain words beside the lines that caused it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from engine.cuir.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    Unary,
    children,
    names_in,
    walk_expr,
)  # fmt: skip
from engine.cuir.printer import print_expr
from engine.scalar_algebra.canonical import polynomial
from engine.scalar_algebra.kinds import Kinds
from engine.scalar_algebra.polynomial import Poly, to_expr
from engine.scalar_algebra.rewrite import TRUE, contains, disjuncts, load_names, loads, map_children
from engine.spec.attention.parts import parts_of
from engine.spec.expressions.build import is_reduction, value_of
from engine.spec.expressions.factors import factors, is_row_sum, mentions, product
from engine.spec.recipes.recipe import OUTPUT, Clause, Other, Recipe, sums_over_heads

Noted = Mapping[Expr, set[int]]
Lines = Mapping[str, tuple[int, ...]]
X = Name("x")
_EMPTY = {
    "nan": "the spec gives NaN there",
    "mean": "the spec gives the mean of v there",
    "zero": "the spec gives 0 there",
    "spec-defined": "the spec gives values of its own there",
}
_NORMALISERS = ("exp", "exp2", "sigmoid", "max", "erf")


# --- which line made what ------------------------------------------------------------------------


def lines_of(expr: Expr, noted: Noted) -> tuple[int, ...]:
    """The spec lines behind any part of an expression."""
    return tuple(sorted({n for e in walk_expr(expr) for n in noted.get(e, ())}))


def lines_by_kind(
    expr: Expr, noted: Noted, floats: frozenset[str], operands: frozenset[Expr]
) -> dict[str, tuple[int, ...]]:
    """The spec lines behind each kind of clause, from the traced output itself. `operands` are what
    is loaded as q and k."""
    found: dict[str, set[int]] = {}
    holds: dict[Expr, bool] = {}

    def note(kind: str, e: Expr) -> None:
        found.setdefault(kind, set()).update(noted.get(e, ()))

    def has_dot(e: Expr) -> bool:
        if e not in holds:
            holds[e] = _is_dot(e, operands) or any(has_dot(c) for c in children(e))
        return holds[e]

    def has_weights(e: Expr) -> bool:
        """Whether weights are in it: an exponential of the head alone is none (ALiBi's slopes)."""
        calls = (p for p in walk_expr(e) if isinstance(p, Call) and p.fn in _NORMALISERS)
        return any(map(has_dot, calls))

    def after(e: Expr) -> bool:
        """Whether it holds the second matmul: it reads q, k and v."""
        return has_weights(e) and any(
            is_row_sum(p) and len(floats & load_names(p)) > 2 for p in walk_expr(e)
        )

    seen: set[Expr] = set()
    for e in _each_once(expr, seen):
        inner = has_dot(e)
        match e:
            case Select(_, then, other) if has_dot(then) != has_dot(other) and not (
                isinstance(then, Num) or isinstance(other, Num)
            ):
                note("sink", e)  # a column beside the scores
            case Select(cond, _, _):
                note("mask", e)
                for part in walk_expr(cond):
                    if isinstance(part, (Compare, Bool, Unary, Index)):
                        note("mask", part)
            case _ if _is_dot(e, operands):
                note("qk", e)
                for part in _in_product(e):
                    note("scale", part)
            case Call("tanh", _) if inner:
                note("softcap", e)
            case Call("sum_over", _) if inner and len(floats & load_names(e)) <= 2:
                note("normaliser", e)
            case Call(fn, _) if fn in _NORMALISERS and inner:
                note("normaliser", e)
            case Binary("/", left, right) if has_dot(left) and has_dot(right):
                note("normaliser", e)
            case Binary("*" | "/", left, right) if has_dot(left) != has_dot(right) and after(e):
                note("output", e)
                for part in walk_expr(right if has_dot(left) else left):
                    note("output", part)
            case Binary("+", left, right) if has_dot(left) != has_dot(right) and _adds_to_sum(e):
                note("sink", e)
            case Binary("*" | "/", left, right) if inner and not (has_dot(left) and has_dot(right)):
                other = right if has_dot(left) else left
                if not _holds_load(other) and not has_weights(e):
                    note("scale", e)
            case Binary("+" | "-", left, right) if inner and not (has_dot(left) and has_dot(right)):
                if not has_weights(e):
                    note("bias", e)
                    for part in walk_expr(right if has_dot(left) else left):
                        if not isinstance(part, (Name, Num)):
                            note("bias", part)
    return {kind: tuple(sorted(lines)) for kind, lines in found.items()}


def _adds_to_sum(expr: Binary) -> bool:
    """Whether one side is a sum over keys."""
    return is_row_sum(expr.left) or is_row_sum(expr.right)


def _each_once(expr: Expr, seen: set[Expr]) -> Iterator[Expr]:
    if expr in seen:
        return
    seen.add(expr)
    yield expr
    for child in children(expr):
        yield from _each_once(child, seen)


def _is_dot(e: Expr, operands: frozenset[Expr]) -> bool:
    """A sum along both q and k."""
    match e:
        case Call("sum_over", (Lambda((var,), body), _)):
            return operands <= {load.base for load in loads(body) if mentions(load, var)}
    return False


def _in_product(dot: Expr) -> Iterator[Expr]:
    """Multiplications of q or k as they are before the matmul."""
    if any(is_reduction(e) or isinstance(e, Select) for e in walk_expr(dot) if e is not dot):
        return
    for e in walk_expr(dot):
        if isinstance(e, Binary) and (
            value_of(e.left) is not None or value_of(e.right) is not None
        ):
            yield e


def _holds_load(expr: Expr) -> bool:
    return any(isinstance(e, Index) for e in walk_expr(expr))


# --- words ---------------------------------------------------------------------------------------


def clauses_of(
    recipe: Recipe, lines: Lines, kinds: Kinds, rounded: tuple[int, ...] = ()
) -> tuple[Clause, ...]:
    """The clauses in the order in which the values are computed.

    `rounded` are the lines that count positions in a type that does not hold them all.
    """
    found = [
        _layout(recipe), *_heads(recipe), *_before(recipe, lines), *_score(recipe, lines, kinds),
        *_extras(recipe), _mask(recipe, lines), _normaliser(recipe, lines),
    ]  # fmt: skip
    if recipe.late is not None:
        words = (
            f"weights are multiplied by {print_expr(recipe.late)} after their row is normalised: "
            "what that drops is in the sum all the same"
        )
        found.append(Clause("late", words, lines.get("normaliser", ())))
    if recipe.sink is not None:
        found.append(_sink(recipe.sink, lines.get("sink", lines.get("normaliser", ()))))
    if recipe.other is not None:
        found.append(_other(recipe.other, lines.get("output", ())))
    if recipe.output != OUTPUT:
        found.append(_output(recipe.output, lines.get("output", ())))
    for constraint in recipe.constraints:
        words = f"the spec is defined for {print_expr(constraint)} only"
        found.append(Clause("sizes", words))
    if recipe.empty_rows != "never":
        lse = "-inf" if recipe.sink is None else print_expr(recipe.sink)
        given = "O = 0" + ("" if recipe.weight is not None else f" and LSE = {lse}")
        words = (
            f"rows that keep no key exist: {_EMPTY[recipe.empty_rows]}, the kernel gives {given}"
        )
        found.append(Clause("empty_rows", words))
    if rounded:
        words = (
            "positions are counted in a low type: bfloat16 rounds whole numbers past 256, float16 "
            "past 2048, so the spec itself is off there; the kernel counts them exactly"
        )
        found.append(Clause("rounding", words, rounded))
    return tuple(found)


def _layout(recipe: Recipe) -> Clause:
    named = {i.role: f"{i.name}[{', '.join(i.dims)}]" for i in recipe.inputs if i.role != "extra"}
    inputs = "; ".join(f"{role} is {named[role]}" for role in ("q", "k", "v"))
    return Clause("layout", f"{inputs}; the output is [{', '.join(recipe.returned_dims)}]")


def _heads(recipe: Recipe) -> Iterator[Clause]:
    if recipe.kv_head != Name("h"):
        yield Clause("heads", f"query head h reads key/value head {print_expr(recipe.kv_head)}")


def _before(recipe: Recipe, lines: Lines) -> Iterator[Clause]:
    for role, made in (("q", recipe.q), ("k", recipe.k)):
        if made is None:
            continue
        name = next(i.name for i in recipe.inputs if i.role == role)
        sums = [e for e in walk_expr(made) if is_reduction(e)]
        inside = {load for s in sums for load in loads(s)}
        columns = {e.index for e in loads(made) if e.base == Name(name) and e not in inside}
        parts = parts_of(made)
        how = [f"joined from {', '.join(parts[:-1])} and {parts[-1]}"] if parts else []
        all_heads = any(map(sums_over_heads, sums))
        over = "the columns of all heads" if all_heads else "its columns"
        how += [f"normalised over {over}"] * bool(sums) + ["rotated"] * (len(columns) > 1)
        found: dict[Expr, Expr] = {}
        short = made if all_heads else _named_sums(made, found)
        sums_in_words = "".join(f", {print_expr(n)} = {print_expr(e)}" for e, n in found.items())
        words = (
            f"{role} is {' and '.join(how) or 'changed'} before the product: its element at column "
            f"dd becomes {print_expr(short)}{sums_in_words}"
        )
        yield Clause("before", words, lines.get(role, ()))


def _named_sums(expr: Expr, found: dict[Expr, Expr]) -> Expr:
    """`expr` with names for its reductions, which `found` then has."""
    expr = map_children(expr, lambda e: _named_sums(e, found))
    if is_reduction(expr):
        return found.setdefault(expr, Name(f"t{len(found) + 1}" if found else "t"))
    return expr


def _score(recipe: Recipe, lines: Lines, kinds: Kinds) -> Iterator[Clause]:
    steps = list(_steps(recipe.score, kinds))
    cap = _cap(steps)
    for step in reversed(steps):
        if isinstance(step, Poly):
            scale = _coefficient(step)
            if scale is not None and cap is not None:
                scale = scale * cap
            if scale is not None and scale != Poly.number(1):
                words = f"the dot product is multiplied by {print_expr(to_expr(scale, kinds))}"
                yield Clause("scale", words, lines.get("scale", ()))
            rest = Poly({m: c for m, c in step.terms.items() if not _mono_has_x(m)})
            if rest.terms:
                number = Num(float(rest.const)) if rest.is_number else to_expr(rest, kinds)
                words = f"then {print_expr(number)} is added"
                yield Clause("bias", words, lines.get("bias", ()))
        elif cap is not None:
            c = print_expr(to_expr(cap, kinds) if not cap.is_number else Num(float(cap.const)))
            words = f"then capped softly at {c}: {c} * tanh(s / {c})"
            yield Clause("softcap", words, lines.get("softcap", ()))
        else:
            yield Clause("map", f"then {step} is taken", lines.get("softcap", ()))
    words = f"the score is {print_expr(recipe.score)} with x = <q_i, k_j>"
    yield Clause("score", words, lines.get("qk", ()))


def _steps(expr: Expr, kinds: Kinds) -> Iterator[Poly | str]:
    """Sums and functions around x, outermost first."""
    poly = polynomial(expr, kinds)
    yield poly
    for atom in poly.atoms():
        if atom != X and contains(atom, X):
            if isinstance(atom, Call) and len(atom.args) == 1:
                yield atom.fn
                yield from _steps(atom.args[0], kinds)
            return


def _cap(steps: list[Poly | str]) -> Poly | None:
    """c of c * tanh(s / c), when the one function around x is such a cap."""
    match steps:
        case [Poly() as outer, "tanh", Poly()]:
            for mono, coefficient in outer.terms.items():
                if _mono_has_x(mono):
                    return Poly({tuple(t for t in mono if not contains(t[0], X)): coefficient})
    return None


def _mono_has_x(mono: tuple[tuple[Expr, object], ...]) -> bool:
    return any(contains(atom, X) for atom, _ in mono)


def _coefficient(poly: Poly) -> Poly | None:
    """What multiplies x itself, when x stands in this sum."""
    for mono, coefficient in poly.terms.items():
        if (X, Fraction(1)) in mono:
            return Poly({tuple(t for t in mono if t[0] != X): coefficient})
    return None


def _extras(recipe: Recipe) -> Iterator[Clause]:
    for item in recipe.extra():
        dims = f"[{', '.join(item.dims)}]" if item.dims else " (one number)"
        words = f"extra input {item.name}{dims}, {item.dtype}"
        if item.derive is None:
            yield Clause("input", words)
        else:
            line = item.derive.split(":")[0]
            lines = (int(line),) if line.isdigit() else ()
            yield Clause("input", f"{words}, built by the spec's own code before the launch", lines)


def _mask(recipe: Recipe, lines: Lines) -> Clause:
    if recipe.keep == TRUE:
        return Clause("mask", "every key is kept")
    words = f"key j is kept where {' or '.join(print_expr(d) for d in disjuncts(recipe.keep))}"
    note = alignment(recipe.keep)
    return Clause("mask", words + (f" ({note})" if note else ""), lines.get("mask", ()))


def alignment(keep: Expr) -> str:
    """How a mask over i and j is aligned when Nq and Nk differ."""
    if not any(_positions(e) for e in walk_expr(keep) if isinstance(e, Compare)):
        return ""
    if {"Nq", "Nk"} <= names_in(keep):
        return "aligned bottom-right: the last query stands at the last key"
    return "aligned top-left: query 0 stands at key 0"


def _positions(compare: Compare) -> bool:
    names = names_in(compare)
    return {"i", "j"} <= names and not _holds_load(compare)


def _sink(sink: Expr, lines: tuple[int, ...]) -> Clause:
    one = value_of(sink) == 0
    what = "1 is added" if one else f"exp({print_expr(sink)}) is added"
    words = f"{what} to the softmax's sum, for no key (a sink); LSE is the logarithm with it"
    return Clause("sink", words, lines)


def _other(other: Other, lines: tuple[int, ...]) -> Clause:
    words = (
        f"another attention is combined with it: of {other.q} and {other.k}, with the same score, "
        f"mask and values; with its output as o2, an element of the output becomes "
        f"{print_expr(other.value)}"
    )
    return Clause("other", words, lines)


def _output(output: Expr, lines: tuple[int, ...]) -> Clause:
    factor = product([f for f in factors(output) if f.base != OUTPUT])
    return Clause("output", f"the output is multiplied by {print_expr(factor)}", lines)


def _normaliser(recipe: Recipe, lines: Lines) -> Clause:
    where = lines.get("normaliser", ())
    if recipe.weight is None:
        base = "a logarithm in base 2" if recipe.lse == "2" else "a natural logarithm"
        words = f"softmax over the kept keys; LSE is {base}"
        if recipe.lse is not None:
            words += f", the second output [{', '.join(recipe.lse_dims)}]"
        return Clause("normaliser", words, where)
    words = f"no softmax: the weight of score s is {print_expr(recipe.weight)}, of a removed key 0"
    return Clause("normaliser", words, where)
