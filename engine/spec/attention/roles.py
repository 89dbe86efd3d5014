"""Find the two matmuls in a traced output: which inputs are q, k and v, the score, the mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Call,
    Expr,
    Index,
    Lambda,
    Name,
    Num,
    Select,
    walk_expr,
)  # fmt: skip
from engine.scalar_algebra.rewrite import (
    TRUE,
    contains,
    load_names,
    map_children,
    rename,
    substitute,
)
from engine.spec.attention.columns import without_columns
from engine.spec.attention.combined import Combined, combined
from engine.spec.attention.parts import joined
from engine.spec.attention.prologue import (
    Product,
    Side,
    Unprepared,
    by_key_head,
    of_heads,
    product_of,
    products,
    sides_of,
)
from engine.spec.attention.relative import relative_of, tidied
from engine.spec.attention.weights import (
    LLM,
    NotAttention,
    elementwise,
    split_numbers,
    weights_of,
)  # fmt: skip
from engine.spec.expressions import build
from engine.spec.expressions.factors import (
    Factor,
    alike,
    cancelled,
    factors,
    has_reduction,
    mentions,
    product,
    split_mask,
    without_guards,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """One trace, read: expressions over b, h, i, j, x (s in `weight`) with numbers for sizes."""

    q: Index
    k: Index
    v: Index
    score: Expr
    keep: Expr
    late_masks: tuple[Expr, ...]  # of weights that are zeroed after they are normalised
    late: Expr | None  # what else a weight is multiplied by then
    weight: Expr | None
    sink: Expr | None
    after: Expr  # the output over o: b, h, i and d are its indices
    kv_head: Expr
    output: tuple[str, ...]  # the role of each output dimension: b, h, i, d
    scores: int  # how many keys the sum runs over
    made_q: Expr | None  # what an element of q becomes before the product, over b, h, i and dd
    made_k: Expr | None  # and of k, over b, j, dd and its own head h
    sides: tuple[Expr, Expr]  # both as they were traced, for the lines of clauses
    columns: int  # how many the product of q and k runs over
    other: OtherReading | None = None


@dataclass(frozen=True, slots=True)
class OtherReading:
    """A second attention beside the one that was read: what it loads as q and as k, and what `o`
    and `o2` become together."""

    q: Index
    k: Index
    value: Expr


def read_output(
    expr: Expr,
    outputs: tuple[str, ...],
    inputs: Mapping[str, tuple[str, ...]],
    floats: frozenset[str],
    sizes: frozenset[int],
) -> Reading:
    """Read the element `expr` of the output whose index variables are `outputs`.

    `inputs` are the tensors' annotated dimensions, `floats` the names of float tensors,
    `sizes` those of all dimensions.
    """
    try:
        return _read_output(expr, outputs, inputs, floats, sizes)[0]
    except NotAttention as problem:
        both = combined(expr, outputs, floats)
        if both is not None:
            return _read_both(both, outputs, inputs, floats, sizes)
        try:
            return _read_output(alike(expr), outputs, inputs, floats, sizes)[0]
        except NotAttention:
            raise problem from None  # which knows the spec's own lines


def _read_both(
    both: Combined,
    outputs: tuple[str, ...],
    inputs: Mapping[str, tuple[str, ...]],
    floats: frozenset[str],
    sizes: frozenset[int],
) -> Reading:
    """An attention and another one, which differ in q and k alone."""
    one, place = _read_output(both.one, outputs, inputs, floats, sizes)
    other, _ = _read_output(both.other, outputs, inputs, floats, sizes)
    if one.made_q or one.made_k or other.made_q or other.made_k:
        raise Unprepared(
            "q or k of two attentions that are combined is changed before the product",
            "normalise and rotate them before the function: pass all four as they are multiplied",
        )
    if one.q.base == other.q.base or other.k.base not in (one.k.base, *_apart(one, other)):
        raise Unprepared(
            "two attentions are combined that read q or k from one input",
            "pass each as an input of its own: views such as q[:, 0::2] and q[:, 1::2] will do",
        )
    keys = frozenset(e.id for v in (one.v, other.v) for e in v.index if isinstance(e, Name))
    known = dict.fromkeys(keys - {*outputs}, Name("j"))
    apart = ["values"] * (rename(one.v, known) != rename(other.v, known))
    apart += [what for what, part in _ALIKE.items() if part(one) != part(other)]
    if apart:
        raise Unprepared(
            f"two attentions are combined whose {apart[0]} differ",
            "a kernel runs twice with another q and k: write each as a spec of its own",
        )
    value = tidied(rename(both.value, place))
    return replace(one, other=OtherReading(other.q, other.k, value))


def _apart(one: Reading, other: Reading) -> tuple[Expr, ...]:
    """The other one's k, where it is none of the inputs of the first."""
    return () if other.k.base in (one.q.base, one.v.base, other.q.base) else (other.k.base,)


_ALIKE: Mapping[str, Callable[[Reading], object]] = {
    "scores": lambda one: one.score,
    "masks": lambda one: (one.keep, one.late_masks),
    "weights": lambda one: (one.weight, one.late, one.sink),
    "heads": lambda one: (one.kv_head, one.columns),
}


def _read_output(
    expr: Expr,
    outputs: tuple[str, ...],
    inputs: Mapping[str, tuple[str, ...]],
    floats: frozenset[str],
    sizes: frozenset[int],
) -> tuple[Reading, Mapping[str, Expr]]:
    """The reading, and the output's variables as b, h, i and d."""
    plain = with_own_rows(without_guards(expr), outputs, floats)
    parts = cancelled(factors(without_columns(plain, sizes)))
    found = [f for f in parts if not f.inverse and _value_load(f.base, outputs, floats)]
    if len(found) != 1:
        merged = _merged_output(expr, outputs)
        if merged is not None:
            raise NotAttention(
                "one dimension of the output holds two (heads and columns, or batch and heads)",
                "say so in the annotation of what is returned, -> Float[Tensor, \"B Nq Hq*D\"], or "
                "return the output before they are merged, such as [B, Nq, Hq, D]", merged,
            )  # fmt: skip
        raise _no_matmul(expr, floats)
    summed = found[0].base
    assert isinstance(summed, Call) and isinstance(summed.args[0], Lambda)
    (j,), body = summed.args[0].params, summed.args[0].body
    v, d = _value_load(summed, outputs, floats)  # type: ignore[misc]
    inner = factors(body)
    inner.remove(Factor(v))
    outer = [f for f in parts if f is not found[0]]
    if any(mentions(f.base, d) for f in inner):
        raise NotAttention("the weights depend on the column of v", LLM)
    found_weights = weights_of(inner, outer, j, summed.args[1])
    weights, outer, normalised = found_weights.own, found_weights.outer, found_weights.normalised
    raw = product([*inner])
    for f in outer:
        if has_reduction(f.base) and not all(map(is_of_own_row, walk_expr(f.base))):
            raise NotAttention(
                "rows are normalised by something else than the sum of their weights, or the "
                "output is scaled by a row's own values", LLM, f.base,
            )  # fmt: skip
    weights = [Factor(joined(f.base, outputs, j, floats), f.inverse) for f in weights]
    found_products = products(product(weights), j, floats)
    if not found_products:
        raise _no_matmul(expr, floats)
    q_side, k_side = _operands(found_products, outputs, j, floats)
    q, k = q_side.load, k_side.load
    if len({q.base, k.base, v.base}) != 3:
        raise NotAttention(
            "the same input serves as two of q, k and v", "pass it as two inputs of the spec"
        )
    place = _places(q, k, v, outputs, d, j, inputs)
    kv_head, v_head = _head(k, place), _head(v, place)
    if v_head != kv_head:
        raise NotAttention("k and v use different heads for the same query head", LLM)

    def placed(value: Expr) -> Expr:
        return rename(_with_x(value, j, floats), place)

    masks: list[Expr] = []
    rest: list[Factor] = []
    for factor in weights:
        match factor.base:
            case Select(cond, Num(1), Num(0)) if not (factor.inverse or products(cond, j, floats)):
                masks.append(placed(cond))
            case _:
                rest.append(factor)
    if normalised:
        if len(rest) != 1 or not (isinstance(rest[0].base, Call) and rest[0].base.fn == "exp"):
            raise NotAttention(
                "the weights are normalised, but they are not exponentials", LLM, raw
            )
        raw_score = placed(rest[0].base.args[0])
        keep, score = split_mask(raw_score)
        weight = None
        kept_outer = outer
    else:
        free = [f for f in rest if not mentions(f.base, j)]
        raw_score = placed(product([f for f in rest if mentions(f.base, j)]))
        unscaled, scaled = split_numbers(outer + free)
        keep, weight, score, took = elementwise(raw_score, product(scaled))
        kept_outer = unscaled if took else outer + free
    keep = _all([*masks, keep])
    after = tidied(rename(product([Factor(Name("o")), *kept_outer]), {**place, d: Name("d")}))
    sink = None if found_weights.sink is None else rename(found_weights.sink, place)
    late = placed(product(found_weights.scaled)) if found_weights.scaled else None
    score = tidied(score)
    assert isinstance(q.base, Name) and isinstance(k.base, Name)
    names = q.base.id, k.base.id
    for value, name in ((score, "score"), (keep, "mask"), (after, "output")):
        sums = (e for e in walk_expr(value) if build.is_reduction(e))
        if name == "output":
            sums = (e for e in sums if not is_of_own_row(e))
        bad = next((e for e in sums if name != "score" or relative_of(e, *names) is None), None)
        if bad is not None:
            raise NotAttention(f"the {name} reduces over a whole row or head", LLM, bad)

    def made_of(role: str, side: Side) -> Expr | None:
        """What an element of q or k becomes, by canonical names, and `h` for its own head."""
        if side.made is None:
            return None
        made, load = (rename(e, place) for e in (side.made, side.load))
        if role == "k":
            made, load = (by_key_head(e, kv_head) for e in (made, load))
        assert isinstance(load, Index)
        return of_heads(role, made, load)

    order = tuple(p.id if isinstance(p := place.get(o), Name) else "d" for o in outputs)
    reading = Reading(
        q, k, v, score, keep, tuple(map(placed, found_weights.late)), late, weight, sink, after,
        rename(kv_head, place), order, build.integer(summed.args[1]),
        made_of("q", q_side), made_of("k", k_side),
        (found_products[0].q, found_products[0].k), build.integer(found_products[0].extent),
    )  # fmt: skip
    return reading, {**place, d: Name("d")}


def with_own_rows(expr: Expr, outputs: tuple[str, ...], floats: frozenset[str]) -> Expr:
    """`expr` where sums over the columns of the output itself, as a norm of it has them, read its
    element at column c as `o[c]`."""
    found = ((e, _value_load(e, outputs, floats)) for e in walk_expr(expr))
    value, load = next(((e, load) for e, load in found if load is not None), (None, None))
    if value is None or load is None:
        return expr

    def visit(e: Expr) -> Expr:
        match e:
            case _ if e == value:
                return e
            case Call(fn, (Lambda((column,), body), extent)) if build.is_reduction(e):
                own = substitute(body, {rename(value, {load[1]: Name(column)}): own_row(column)})
                return Call(fn, (Lambda((column,), own if own != body else visit(body)), extent))
        return map_children(e, visit)

    return visit(expr)


def own_row(column: str) -> Expr:
    """The output's element at a column, before what happens to it."""
    return Index(Name("o"), (Name(column),))


def is_of_own_row(e: Expr) -> bool:
    """Whether a sum is over columns of the output alone; true for what is no sum."""
    if not build.is_reduction(e):
        return True
    return any(n == Name("o") for n in walk_expr(e)) and load_names(e) == {"o"}


def _all(parts: list[Expr]) -> Expr:
    out: Expr = TRUE
    for part in parts:
        out = build.both(out, part)
    return out


def _no_matmul(expr: Expr, floats: frozenset[str]) -> NotAttention:
    loads = {
        e: e.base.id for e in walk_expr(expr) if isinstance(e, Index) and isinstance(e.base, Name)
    }
    merged = [e for e, name in loads.items() if name in floats and _of_two(e.index[-1])]
    if merged:
        names = ", ".join(sorted({loads[e] for e in merged}))
        return NotAttention(
            f"heads and columns of {names} come as one dimension (as a projection gives them)",
            'take them apart before the attention, and declare them so: "B N H D"', merged[0],
        )  # fmt: skip
    read = sorted(set(loads.values()))
    return NotAttention(
        "the output is not a product of weights and v, with weights made of q times k"
        + (f" (it reads {', '.join(read)})" if read else " (it reads no input)"),
        "compute O = weights(q @ k^T) @ v; the roles are found from the two matmuls",
    )


def _of_two(place: Expr) -> bool:
    """Whether a place that is loaded is made of two of the output's."""
    return len({e.id for e in walk_expr(place) if isinstance(e, Name) and e.id[:2] == "%o"}) > 1


def _merged_output(expr: Expr, outputs: tuple[str, ...]) -> Expr | None:
    """A load at `o % D` for an output variable o: dimensions merged after the second matmul."""
    for e in walk_expr(expr):
        for part in e.index if isinstance(e, Index) else ():
            match part:
                case Call("floor_mod", (Name(o), _)) if o in outputs:
                    return e
    return None


def _value_load(
    expr: Expr, outputs: tuple[str, ...], floats: frozenset[str]
) -> tuple[Index, str] | None:
    """The load of v in a sum over keys, and the output variable that is its column."""
    if not (isinstance(expr, Call) and expr.fn == "sum_over" and isinstance(expr.args[0], Lambda)):
        return None
    (j,), body = expr.args[0].params, expr.args[0].body
    parts = factors(body)
    found: list[tuple[Index, str]] = []
    for part in parts:
        base = part.base
        if part.inverse or not (isinstance(base, Index) and isinstance(base.base, Name)):
            continue
        if base.base.id not in floats or Name(j) not in base.index:
            continue
        others = [p.base for p in parts if p is not part]
        for o in outputs:
            if Name(o) in base.index and not any(mentions(other, o) for other in others):
                found.append((base, o))
                break
    if len(found) != 1 or len(parts) < 2:
        return None
    return found[0]


# --- the first matmul ----------------------------------------------------------------------------


def _operands(
    found: list[Product], outputs: tuple[str, ...], j: str, floats: frozenset[str]
) -> tuple[Side, Side]:
    """q's side and k's side of the one product."""
    forms = {sides_of(item, outputs, j, floats) for item in found}
    if len(forms) > 1:
        raise NotAttention("the score holds more than one product of q and k", LLM)
    ((q, k),) = forms
    if Name(j) not in k.load.index or mentions(q.load, j):
        raise NotAttention(
            "one product of the score does not run over the keys of v", LLM, k.made or k.load
        )
    return q, k


def _with_x(value: Expr, j: str, floats: frozenset[str]) -> Expr:
    """Every product of q and k replaced by x, its scalar factors kept."""
    found = product_of(value, j, floats)
    if found is not None:
        return product([*found.scalars, Factor(Name("x"))])
    return map_children(value, lambda e: _with_x(e, j, floats))


# --- which variable is which ---------------------------------------------------------------------


def _places(
    q: Index, k: Index, v: Index, outputs: tuple[str, ...], d: str, j: str,
    inputs: Mapping[str, tuple[str, ...]],
) -> dict[str, Expr]:  # fmt: skip
    """Output variables and the key variable as b, h, i, j."""
    simple = [e.id for e in q.index if isinstance(e, Name) and e.id in outputs]
    alone = _only_one(q, outputs, d, inputs)
    shared = [o for o in simple if mentions(k, o) or mentions(v, o)]
    rows = [o for o in simple if o not in shared]
    if len(shared) == 2 and not rows:  # a batch and a head: it is one query
        alone = dict.fromkeys(alone, Name("i"))
    lost = [o for o in outputs if o != d and o not in simple and o not in alone]
    if (
        lost
        or len(simple) + len(alone) + 1 != len(outputs)
        or any(not isinstance(e, (Name, Num)) for e in q.index)
    ):
        raise NotAttention(
            "the output's dimensions are not those of q (heads merged, split or flattened)",
            "return the output with one dimension for each of batch, head, row and column",
        )
    assert isinstance(q.base, Name)
    names = inputs[q.base.id]
    place: dict[str, Expr] = {j: Name("j"), **alone}
    label = {e.id: names[n] for n, e in enumerate(q.index) if isinstance(e, Name)}
    if len(rows) != 1 and Name("i") not in alone.values():
        # A head of q that k does not have (one key head for all) looks like a row: by name then.
        heads = [o for o in rows if label[o].lower().startswith("h")]
        if len(rows) == 2 and len(heads) == 1:
            shared.append(heads[0])
            rows.remove(heads[0])
        else:
            raise NotAttention("which dimension of q holds the rows is unclear", LLM)
    place |= {row: Name("i") for row in rows}
    batch = [o for o in shared if label[o].lower().startswith("b")]
    if len(shared) == 2:
        b = batch[0] if len(batch) == 1 else next(o for o in simple if o in shared)
        place[b] = Name("b")
        place[next(o for o in shared if o != b)] = Name("h")
    elif len(shared) == 1:
        place[shared[0]] = Name("b" if batch else "h")
    elif shared:
        raise NotAttention("q has more than a batch and a head dimension beside rows", LLM)
    return place


def _only_one(
    q: Index, outputs: tuple[str, ...], d: str, inputs: Mapping[str, tuple[str, ...]]
) -> dict[str, Expr]:
    """The output's variable over a batch of one, one head or one query: q has a 1 there."""
    assert isinstance(q.base, Name)
    names = inputs[q.base.id]
    ones = [n for n, e in enumerate(q.index) if isinstance(e, Num) and names[n] == "1"]
    simple = {e.id for e in q.index if isinstance(e, Name)}
    lost = [o for o in outputs if o != d and o not in simple]
    if len(ones) != 1 or len(lost) != 1:
        return {}
    batched = any(name.lower().startswith("b") for name in names)
    return {lost[0]: Name("h" if batched else "b")}


def _head(load: Index, place: Mapping[str, Expr]) -> Expr:
    """The head index of k or v, in terms of h."""
    heads = [
        rename(e, place) for e in load.index
        if contains(rename(e, place), Name("h"))
    ]  # fmt: skip
    if len(heads) > 1:
        raise NotAttention("the head is used in two dimensions of k or v", LLM)
    return heads[0] if heads else Num(0)
