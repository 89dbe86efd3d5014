"""The rules: each one turns a clause of the recipe into an edit of the module.

A rule is a pure function Module -> Module with a reason. Rules never look at names or at the
spec's text: they match the attention that `match` found and the expressions of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Bool,
    Call,
    Compare,
    Do,
    Expr,
    Field,
    Function,
    If,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Select,
    Stmt,
    Tuple,
    blocks,
    walk_expr,
)  # fmt: skip
from engine.errors import TransferError
from engine.spec.recipe import Input, Recipe
from engine.transfer import schedule as intervals
from engine.transfer.binding import SIZES, Binding, ScalarField, SizeField, TensorField
from engine.transfer.linear import tidy
from engine.transfer.match import Attention, Site, block_at, find_attention
from engine.transfer.rewrite import (
    Block,
    drop_newly_dead,
    free_names,
    map_blocks,
    map_expr,
    map_function,
    map_stmt_exprs,
    read_names,
    stmt_exprs,
    substitute,
    with_block,
)  # fmt: skip

X = Name("x")
NEG_INF = Num(float("-inf"))


@dataclass(frozen=True, slots=True)
class Step:
    """One rule at work: what it changes and why, in words."""

    title: str
    reason: str
    clause: str  # kind of the recipe's clause
    apply: Callable[[Module], Module]


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in order, and how the target's arguments are filled."""

    steps: tuple[Step, ...]
    binding: Binding


def plan(module: Module, recipe: Recipe) -> Plan:
    """The steps that carry `recipe` to `module`. Raises `TransferError` when no rule does."""
    found = find_attention(module)
    _check_heads(module, found, recipe)
    words = _Words(module, found, recipe)
    steps: list[Step] = []
    factor, rest = words.split_scale(recipe.score)
    read = [rest, recipe.keep, recipe.weight, recipe.output_factor]
    used = [i for i in recipe.extra() if _is_read(i.name, read)]
    if used:
        steps.append(
            Step(
                "Pass " + ", ".join(i.name for i in used) + " to the kernel",
                "the spec reads extra inputs: each gets a field in the argument struct and a view",
                "inputs",
                lambda m: _add_inputs(m, found, used),
            )
        )
    if rest is not None and recipe.weight is None:
        steps += _score_steps(found, recipe, words, rest)
    if recipe.keep != Num(True):
        steps += _mask_steps(found, recipe, words)
    if recipe.weight is None and _rows_may_be_empty(recipe):
        steps.append(
            Step(
                "Guard rows without a kept key",
                "a row whose keys are all masked so far has row max -inf, and -inf - (-inf) is NaN",
                "empty_rows",
                lambda m: _guard_empty_rows(m, found),
            )
        )
    if recipe.weight is not None:
        score = rest if rest is not None else Binary("*", X, words.scale)
        steps.append(
            Step(
                "Replace softmax by the spec's own weight",
                "the spec does not normalise over keys: row max, row sum, rescaling and LSE go away",
                "normaliser",
                lambda m: _replace_softmax(m, found, words, recipe, score, factor),
            )
        )
    if recipe.output_factor is not None:
        value = words.of_kernel(recipe.output_factor)
        steps.append(
            Step(
                "Scale the output",
                "the spec multiplies the result by a factor",
                "output",
                lambda m: _scale_output(m, found, value),
            )
        )
    return Plan(tuple(steps), _binding(module, found, recipe, used, factor))


def apply(module: Module, steps: tuple[Step, ...]) -> Iterator[tuple[Step, Module]]:
    """The module after each step."""
    for step in steps:
        module = step.apply(module)
        yield step, module


# --- names of the recipe in the kernel ----------------------------------------------------------


class _Words:
    """Translates recipe names to the kernel's: sizes to fields, b and h to its coordinates."""

    def __init__(self, module: Module, found: Attention, recipe: Recipe) -> None:
        self.fields = {f.name for f in module.fields}
        self.found = found
        self.scale = Attr(Name("args"), found.fields["scale"])
        kernel = module.function(found.kernel)
        self.sizes: dict[str, Expr] = {
            s: Attr(Name("args"), s) for s in SIZES if s in self.fields and s not in ("D", "Dv")
        }
        for size in ("D", "Dv"):
            if size in kernel.consts:
                self.sizes[size] = Name(size)
        # A scalar input may be the scale: the caller passes it, so it is as good as a constant.
        self.scalars = {i.name for i in recipe.extra() if not i.dims}
        if "Dv" not in self.sizes and "D" in self.sizes:
            self.sizes["Dv"] = self.sizes["D"]

    def of_kernel(self, expr: Expr) -> Expr:
        """A recipe expression inside the kernel's body (x, i, j stay lambda parameters)."""
        return substitute(expr, {**self.sizes, "b": self.found.batch, "h": self.found.head})

    def of_schedule(self, expr: Expr, function: Function) -> Expr:
        """A recipe expression inside a schedule function: (args, b, h, q0, step or n)."""
        names = [p.name for p in function.params]
        renamed = {"b": Name(names[1]), "h": Name(names[2])}
        out = substitute(expr, {**self.sizes, **renamed})
        known = set(names) | set(function.consts) | {"i", "j", "args"}
        unknown = free_names(out) - known
        if unknown:
            raise TransferError(f"the schedule cannot read {', '.join(sorted(unknown))}")
        return out

    def split_scale(self, score: Expr) -> tuple[Expr, Expr | None]:
        """(the factor that multiplies x first, the rest): score = rest[x := x * factor].

        `rest` is None when the score is exactly a positive factor times x, which the kernel
        folds into its exponential. The factor then stands for `args.scale` in `rest`.
        """
        factors: list[Expr] = []

        def scaled(node: Expr) -> Expr | None:
            match node:
                case Binary("*", Name("x"), factor) | Binary("*", factor, Name("x")) if (
                    self.is_known(factor)
                ):
                    factors.append(factor)
                    return Binary("*", X, self.scale)
                case Binary("/", Name("x"), divisor) if self.is_known(divisor):
                    factors.append(Binary("/", Num(1.0), divisor))
                    return Binary("*", X, self.scale)
                case Lambda():
                    raise TransferError("a score with a lambda in it")
            return None

        rest = map_expr(score, scaled)
        reads = sum(1 for e in walk_expr(rest) if e == X)
        same = all(f == factors[0] for f in factors[1:])
        if not factors or not same or reads != len(factors):
            # x is used bare somewhere: keep the spec's own expression, and no scale.
            return Num(1.0), (None if score == X else score)
        if rest == Binary("*", X, self.scale) and _is_positive(factors[0], self.scalars):
            return factors[0], None
        return factors[0], rest

    def is_known(self, expr: Expr) -> bool:
        """True for numbers, scalar inputs and functions of them and of the sizes: what a caller
        knows before the launch."""
        known = set(SIZES) | self.scalars
        return free_names(expr) <= known and not any(isinstance(e, Index) for e in walk_expr(expr))


def _is_positive(expr: Expr, promised: Set[str] = frozenset()) -> bool:
    """True when the value is certainly positive; `promised` names are checked by the caller."""
    if isinstance(expr, Name) and expr.id in promised:
        return True
    match expr:
        case Num(value):
            return value > 0
        case Binary("*" | "/" | "+", left, right):
            return _is_positive(left, promised) and _is_positive(right, promised)
        case Call("sqrt" | "rsqrt" | "exp" | "exp2", (inner,)):
            return _is_positive(inner, promised)
        case Call("f32", (inner,)):
            return _is_positive(inner, promised)
        case Name("D" | "Dv"):
            return True
    return False


def _is_read(name: str, exprs: list[Expr | None]) -> bool:
    return any(n == Name(name) for e in exprs if e is not None for n in walk_expr(e))


def _check_heads(module: Module, found: Attention, recipe: Recipe) -> None:
    """The kernel's own map from query head to key/value head must be the spec's."""
    kernel = module.function(found.kernel)
    own = found.kv_head
    for stmt in _all(kernel.body):
        if isinstance(stmt, Assign) and own == Name(stmt.target):
            own = stmt.value
    sizes = {"Hq": Attr(Name("args"), "Hq"), "Hkv": Attr(Name("args"), "Hkv")}
    wanted = substitute(recipe.kv_head, {**sizes, "h": found.head})
    for hq, hkv in ((1, 1), (4, 1), (4, 2), (6, 3), (8, 8), (12, 4)):
        for head in range(hq):
            values = {sizes["Hq"]: Num(hq), sizes["Hkv"]: Num(hkv), found.head: Num(head)}
            results = [_fold(map_expr(e, lambda n: values.get(n))) for e in (own, wanted)]
            if results[0] != results[1]:
                raise TransferError(
                    f"the spec reads key/value head {results[1]} for query head {head} of {hq} "
                    f"(with {hkv} key/value heads); the kernel reads {results[0]}"
                )


def _fold(expr: Expr) -> int:
    match expr:
        case Num(int() as value):
            return value
        case Binary(op, left, right):
            a, b = _fold(left), _fold(right)
            return (
                {"+": a + b, "-": a - b, "*": a * b}.get(op)
                if op in "+-*"
                # type: ignore[return-value]
                else (a // b if op == "//" else a % b)
            )
        case Call("floor_div", (left, right)):
            return _fold(left) // _fold(right)
        case Call("floor_mod", (left, right)):
            return _fold(left) % _fold(right)
    raise TransferError("the map from query head to key/value head is not integer arithmetic")


def _all(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        for _, inner in blocks(stmt):
            yield from _all(inner)


# --- inputs -------------------------------------------------------------------------------------


def _field_type(item: Input) -> str:
    return (
        "tensor"
        if item.dims
        else {"i32": "i32", "i64": "i64", "bool": "i32"}.get(item.dtype, "f32")
    )


def _element(dtype: str) -> Expr:
    return Name(
        {"T": "T", "f32": "f32", "f16": "f16", "bf16": "bf16", "bool": "bool"}.get(dtype, "i32")
    )


def _size(dim: str) -> Expr:
    return Num(int(dim)) if dim.isdigit() else Attr(Name("args"), dim)


def _add_inputs(module: Module, found: Attention, used: list[Input]) -> Module:
    have = {f.name for f in module.fields}
    fields = list(module.fields)
    views: list[Stmt] = []
    for item in used:
        for dim in item.dims:
            if not dim.isdigit() and dim not in have and dim not in ("D", "Dv"):
                fields.append(Field(dim, "i32"))
                have.add(dim)
        if item.name in have:
            raise TransferError(f"the spec's input {item.name} has the name of a field of Args")
        fields.append(Field(item.name, _field_type(item)))
        have.add(item.name)
        if item.dims:
            args = (Attr(Name("args"), item.name), *map(_size, item.dims))
            views.append(Assign(item.name, Call("gmem", args, (), (_element(item.dtype),))))

    def change(function: Function) -> Function:
        last = max(i for i, s in enumerate(function.body) if _is_view(s))
        body = function.body[: last + 1] + tuple(views) + function.body[last + 1 :]
        return replace(function, body=body)

    return map_function(replace(module, fields=tuple(fields)), found.kernel, change)


def _is_view(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Call) and stmt.value.fn == "gmem"


def _scalar_inputs(expr: Expr, recipe: Recipe) -> Expr:
    """Scalar inputs are read from the argument struct."""
    scalars = {i.name: Attr(Name("args"), i.name) for i in recipe.extra() if not i.dims}
    return substitute(expr, scalars)


# --- score --------------------------------------------------------------------------------------


def _edit_site(module: Module, found: Attention, edit: Callable[[Site, Block], Block]) -> Module:
    """`edit` applied to the statement list of every site (found again: indices may have moved)."""
    for number in range(len(found.sites)):
        site = find_attention(module).sites[number]
        body = block_at(module, site.block)
        module = _put_block(module, site.block, edit(site, body))
    return module


def _put_block(module: Module, block: tuple[str | int, ...], body: Block) -> Module:
    def put(stmts: Block, path: tuple[str | int, ...]) -> Block:
        if not path:
            return body
        index, branch = path[0], path[1]
        assert isinstance(index, int)
        stmt = stmts[index]
        inner = dict(blocks(stmt))[str(branch)]
        return (
            *stmts[:index],
            with_block(stmt, str(branch), put(inner, path[2:])),
            *stmts[index + 1 :],
        )

    return map_function(module, str(block[0]), lambda f: replace(f, body=put(f.body, block[1:])))


def _score_steps(found: Attention, recipe: Recipe, words: _Words, rest: Expr) -> list[Step]:
    body = words.of_kernel(_scalar_inputs(rest, recipe))
    return [
        Step(
            "Compute the spec's score",
            "the score is more than a positive multiple of q.k, so it is computed per element "
            "before masking and the row maximum",
            "score",
            lambda m: _insert_score(m, found, body),
        ),
        Step(
            "Take the scale out of the exponential",
            "the multiplier is no longer the last thing that happens to the score, so it cannot be "
            "folded into exp2",
            "scale",
            lambda m: _unfold_scale(m, found, words),
        ),
    ]


def _score_map(site: Site, body: Expr) -> Assign:
    reads = free_names(body)
    if {"i", "j"} & reads:
        params, kwargs = ("x", "i", "j"), (("at", Tuple((site.rows, site.keys))),)
    else:
        params, kwargs = ("x",), ()
    return Assign(site.score, Call("map", (Name(site.score), Lambda(params, body)), kwargs))


def _insert_score(module: Module, found: Attention, body: Expr) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None
        return (*stmts[: site.mask], _score_map(site, body), *stmts[site.mask :])

    return _edit_site(module, found, edit)


def _unfold_scale(module: Module, found: Attention, words: _Words) -> Module:
    """Everywhere but in the inserted score maps, the scale becomes 1."""

    def change(expr: Expr) -> Expr:
        return _drop_ones(substitute_expr(expr, words.scale, Num(1.0)))

    def edit(body: Block) -> Block:
        return tuple(s if _is_score_map(s, found) else map_stmt_exprs(s, change) for s in body)

    return map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))


def _is_score_map(stmt: Stmt, found: Attention) -> bool:
    """A map of one score tile whose lambda's first parameter is x: only rules write those."""
    match stmt:
        case Assign(target, Call("map", (Name(name), Lambda(params, _)))):
            return target == name and params[0] == "x" and name in {s.score for s in found.sites}
    return False


def substitute_expr(expr: Expr, old: Expr, new: Expr) -> Expr:
    return map_expr(expr, lambda node: new if node == old else None)


def _drop_ones(expr: Expr) -> Expr:
    """x * 1.0 and 1.0 * x become x, anywhere in the expression."""
    match expr:
        case Binary("*", left, right):
            a, b = _drop_ones(left), _drop_ones(right)
            if a == Num(1.0):
                return b
            return a if b == Num(1.0) else Binary("*", a, b)
    return map_expr(
        expr,
        lambda n: (
            _drop_ones(n) if isinstance(n, Binary) and n.op == "*" and n is not expr else None
        ),
    )


# --- mask ---------------------------------------------------------------------------------------


def _mask_steps(found: Attention, recipe: Recipe, words: _Words) -> list[Step]:
    pred = words.of_kernel(_scalar_inputs(recipe.keep, recipe))
    keep = _scalar_inputs(recipe.keep, recipe)
    return [
        Step(
            "Keep what the spec keeps",
            "the keep predicate of partial tiles gets the spec's mask",
            "mask",
            lambda m: _edit_keep(m, found, pred),
        ),
        Step(
            "Visit only tiles that hold a kept pair",
            "interval analysis of the mask over a block of rows gives the range of key tiles, and "
            "which of them need no mask",
            "mask",
            lambda m: _edit_schedule(m, found, words, keep),
        ),
    ]


def _edit_keep(module: Module, found: Attention, pred: Expr) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        assert site.mask is not None

        def change(expr: Expr) -> Expr | None:
            match expr:
                case Call("keep", (score, Lambda(("i", "j"), body)), kwargs, params):
                    return Call(
                        "keep", (score, Lambda(("i", "j"), Bool("and", body, pred))), kwargs, params
                    )
                case Call("keep"):
                    raise TransferError("the kernel's keep has an unexpected lambda")
            return None

        stmt = stmts[site.mask]
        if isinstance(stmt, If):
            inner = tuple(map_stmt_exprs(s, lambda e: map_expr(e, change)) for s in stmt.then)
            stmt = If(stmt.cond, inner, stmt.other)
        else:
            stmt = map_stmt_exprs(stmt, lambda e: map_expr(e, change))
        return (*stmts[: site.mask], stmt, *stmts[site.mask + 1 :])

    return _edit_site(module, found, edit)


def _edit_schedule(module: Module, found: Attention, words: _Words, keep: Expr) -> Module:
    names = found.schedule
    count, index, full = (module.function(n) for n in (names.count, names.index, names.full))
    tile_rows, tile_keys = (Name(c) for c in count.consts[:2])
    keys = Attr(Name("args"), "Nk")
    queries = Attr(Name("args"), "Nq")

    def rows_of(function: Function) -> intervals.Rows:
        first = Name(function.params[3].name)
        return intervals.Rows(first, Name("last"))

    def last_row(function: Function) -> Assign:
        first = Name(function.params[3].name)
        value = Binary("-", Call("min", (Binary("+", first, tile_rows), queries)), Num(1))
        return Assign("last", value)

    def finish(function: Function, body: Block) -> Function:
        needs_last = any("last" in free_names(e) for s in body for e in stmt_exprs(s))
        return replace(function, body=((last_row(function),) if needs_last else ()) + body)

    ranges = intervals.key_ranges(words.of_schedule(keep, count), rows_of(count), keys)
    new: dict[str, Function] = {}
    zero = Num(0)

    def tiles_until(high: Expr) -> Expr:
        return intervals.maximum(
            zero, Call("ceil_div", (tidy(Binary("+", high, Num(1))), tile_keys))
        )

    def tile_of(key: Expr) -> Expr:
        return Binary("//", key, tile_keys)

    step: Expr = Name(index.params[4].name)
    if _descends(index):
        arguments = tuple(Name(p.name) for p in index.params[:4])
        visits = Call(count.name, arguments, (), tuple(Name(c) for c in index.consts))
        step = Binary("-", Binary("-", visits, Num(1)), step)
    if ranges.rest is None:
        high = ranges.prefix.high if ranges.prefix else Num(-1)
        new[count.name] = finish(count, (Return(tiles_until(high)),))
        new[index.name] = finish(index, (Return(step),))
    else:
        ranges_i = intervals.key_ranges(words.of_schedule(keep, index), rows_of(index), keys)
        assert ranges_i.rest is not None
        if ranges.prefix is None:
            beyond = Binary("-", tiles_until(ranges.rest.high), Name("first"))
            body: Block = (
                Assign("first", tile_of(ranges.rest.low)),
                Return(intervals.maximum(zero, beyond)),
            )
            new[count.name] = finish(count, body)
            first = tile_of(ranges_i.rest.low)
            new[index.name] = finish(index, (Return(Binary("+", first, step)),))
        else:
            assert ranges_i.prefix is not None
            prefix = Name("prefix")
            first = intervals.maximum(prefix, tile_of(ranges.rest.low))
            beyond = Binary("-", tiles_until(ranges.rest.high), Name("first"))
            body = (
                Assign("prefix", tiles_until(ranges.prefix.high)),
                Assign("first", first),
                Return(Binary("+", prefix, intervals.maximum(zero, beyond))),
            )
            new[count.name] = finish(count, body)
            first_i = intervals.maximum(prefix, tile_of(ranges_i.rest.low))
            visit = Name("visit")
            later = Binary("+", first_i, Binary("-", visit, prefix))
            body = (
                Assign("prefix", tiles_until(ranges_i.prefix.high)),
                Assign("visit", step),
                Return(Select(Compare("<", visit, prefix), visit, later)),
            )
            new[index.name] = finish(index, body)
    tile = Name(full.params[4].name)
    first_key = Binary("*", tile, tile_keys)
    last_key = Binary("-", Binary("+", first_key, tile_keys), Num(1))
    extra = intervals.tile_full(words.of_schedule(keep, full), rows_of(full), first_key, last_key)
    new[full.name] = finish(full, _and_return(full, extra))
    return replace(module, functions=tuple(new.get(f.name, f) for f in module.functions))


def _descends(index: Function) -> bool:
    """True when the kernel visits its tiles from the last to the first."""
    from engine.transfer.linear import linear

    last = index.body[-1]
    if not isinstance(last, Return) or last.value is None:
        raise TransferError(f"{index.name} does not end in a return")
    slope = linear(last.value).coefficient(Name(index.params[4].name))
    if abs(slope) != 1:
        raise TransferError(f"{index.name} visits tiles in an order that no rule reads")
    return slope < 0


def _and_return(function: Function, extra: Expr) -> Block:
    """The function's body with `extra` added to what it returns."""
    *head, last = function.body
    if not isinstance(last, Return) or last.value is None:
        raise TransferError(f"{function.name} does not end in a return")
    return (*head, Return(intervals.normal(Bool("and", last.value, extra))))


# --- rows without a kept key --------------------------------------------------------------------


def _rows_may_be_empty(recipe: Recipe) -> bool:
    reads_float = any(
        isinstance(n, Index) and n.base == Name(i.name)
        for i in recipe.extra()
        if i.dtype in ("T", "f32", "f16", "bf16")
        for n in walk_expr(recipe.score)
    )
    return recipe.keep != Num(True) or reads_float


def _guard_empty_rows(module: Module, found: Attention) -> Module:
    def edit(site: Site, stmts: Block) -> Block:
        top = site.row_max_name
        safe = f"{top}_safe"
        guard = Assign(
            safe,
            Call(
                "map",
                (
                    Name(top),
                    Lambda(("x",), Select(Compare("==", Name("x"), NEG_INF), Num(0.0), Name("x"))),
                ),
            ),
        )
        head, tail = stmts[: site.row_max + 1], stmts[site.row_max + 1 :]
        out: list[Stmt] = []
        for stmt in tail:
            out.append(map_stmt_exprs(stmt, lambda e: _guard_use(e, top, safe)))
        return (*head, guard, *out)

    return _edit_site(module, found, edit)


def _guard_use(expr: Expr, top: str, safe: str) -> Expr:
    """Uses of the row max as an operand of `map` in the same iteration read the guarded one."""
    match expr:
        case Call("map", args, kwargs, params):
            return Call(
                "map", tuple(Name(safe) if a == Name(top) else a for a in args), kwargs, params
            )
    return expr


# --- other normalisers --------------------------------------------------------------------------


def _replace_softmax(
    module: Module, found: Attention, words: _Words, recipe: Recipe, score: Expr, factor: Expr
) -> Module:
    """Score and weight per element; everything that only served the softmax goes away."""
    assert recipe.weight is not None
    weight = words.of_kernel(_scalar_inputs(recipe.weight, recipe))
    body = words.of_kernel(_scalar_inputs(score, recipe))
    # A masked score is -inf. Where the score is x times a positive factor plus the rest, -inf stays
    # -inf and one map computes both; otherwise the score is computed before the mask.
    if not _keeps_minus_infinity(score, words.scale, factor):
        module = _insert_score(module, found, body)
        body = X
    value = substitute(weight, {"s": body})
    if not _vanishes_at_minus_infinity(recipe.weight):
        value = Select(Compare("==", X, NEG_INF), Num(0.0), value)
    kernel = module.function(found.kernel)
    was_read = read_names(kernel.body)
    vectors = _row_vectors(kernel.body)

    def weigh(site: Site, stmts: Block) -> Block:
        return tuple(
            _score_map(site, value) if _is_exponential(s, site.score, vectors) else s for s in stmts
        )

    def clean(stmts: Block) -> Block:
        kept = tuple(s for s in stmts if not _serves_softmax(s, vectors))
        return kept if len(kept) != len(stmts) else stmts

    module = _edit_site(module, found, weigh)
    module = map_function(
        module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, clean))
    )
    module = map_function(module, found.kernel, lambda f: drop_newly_dead(f, was_read))
    lse = found.fields.get("lse")
    return replace(module, fields=tuple(f for f in module.fields if f.name != lse))


def _is_exponential(stmt: Stmt, score: str, vectors: frozenset[str]) -> bool:
    """`s = map(s, m, ...)`: the score tile against its row maximum."""
    match stmt:
        case Assign(target, Call("map", (Name(first), *rest))):
            return target == first == score and any(
                isinstance(a, Name) and a.id in vectors for a in rest
            )
    return False


def _serves_softmax(stmt: Stmt, vectors: frozenset[str]) -> bool:
    """Statements that only compute, apply or store row statistics."""
    match stmt:
        case Assign(target, _) if target in vectors:
            return True
        case Do(Call("store_rows", (_, Name(name)))):
            return name in vectors
        case Assign(_, Call("map", (_, *rest))):
            return any(isinstance(a, Name) and a.id in vectors for a in rest)
        case If(_, (), ()):
            return True
    return False


def _row_vectors(body: Block) -> frozenset[str]:
    """Names that hold row statistics: row max, row sum and what is computed from them alone."""
    out: set[str] = set()
    while True:
        before = len(out)
        for stmt in _all(body):
            match stmt:
                case Assign(target, Call("row_max" | "row_sum" | "row_reduce")):
                    out.add(target)
                case Assign(target, Call("map", (Name(first), *_))) if first in out:
                    out.add(target)
                case Assign(target, Name(source)) if source in out:
                    out.add(target)
        if len(out) == before:
            return frozenset(out)


def _keeps_minus_infinity(score: Expr, scale: Expr, factor: Expr) -> bool:
    """True when score(x = -inf) is -inf: a positive multiple of x plus terms without x."""
    match score:
        case Binary("*", Name("x"), other):
            return other == scale and _is_positive(factor)
        case Name("x"):
            return True
        case Binary("+", left, right):
            for part, rest in ((left, right), (right, left)):
                if "x" not in free_names(rest):
                    return _keeps_minus_infinity(part, scale, factor)
        case Binary("-", left, right):
            return "x" not in free_names(right) and _keeps_minus_infinity(left, scale, factor)
    return False


def _vanishes_at_minus_infinity(weight: Expr) -> bool:
    """True when weight(-inf) is exactly 0 (sigmoid, relu), so that masked pairs vanish."""
    from engine.cuir.scalar import evaluate

    if free_names(weight) != {"s"}:
        return False
    return bool(evaluate(weight, {"s": float("-inf")}, "exact") == 0.0)


def _scale_output(module: Module, found: Attention, value: Expr) -> Module:
    """Multiply the accumulator just before it is stored."""
    factor = Assign(
        found.accumulator,
        Call("map", (Name(found.accumulator), Lambda(("x",), Binary("*", X, value)))),
    )

    def edit(stmts: Block) -> Block:
        for position, stmt in enumerate(stmts):
            match stmt:
                case Do(Call("store", (_, Name(name)))) if name == found.accumulator:
                    return (*stmts[:position], factor, *stmts[position:])
        return stmts

    return map_function(module, found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit)))


# --- binding ------------------------------------------------------------------------------------


def _binding(
    module: Module, found: Attention, recipe: Recipe, used: list[Input], factor: Expr
) -> Binding:
    dims = {
        "q": ("B", "Hq", "Nq", "D"),
        "k": ("B", "Hkv", "Nk", "D"),
        "v": ("B", "Hkv", "Nk", "Dv"),
    }
    tensors = [
        TensorField(found.fields[i.role], i.name, i.dims, dims[i.role], "T")
        for i in recipe.inputs
        if i.role != "extra"
    ]
    tensors.append(
        TensorField(
            found.fields["o"], "O", recipe.output_dims, ("B", "Hq", "Nq", "Dv"), "T", output=True
        )
    )
    if recipe.weight is None and "lse" in found.fields:
        lse = ("B", "Hq", "Nq")
        tensors.append(TensorField(found.fields["lse"], "LSE", lse, lse, "f32", output=True))
    scalars = [ScalarField(found.fields["scale"], factor)]
    own = {f.name for f in module.fields}
    new_sizes: list[str] = []
    for item in used:
        if item.dims:
            tensors.append(TensorField(item.name, item.name, item.dims, item.dims, item.dtype))
            new_sizes += [
                d for d in item.dims if not d.isdigit() and d not in own and d not in new_sizes
            ]
        else:
            scalars.append(ScalarField(item.name, Name(item.name)))
    sizes = [
        SizeField(f.name, f.name) for f in module.fields if f.type == "i32" and f.name in SIZES
    ]
    sizes += [SizeField(d, d) for d in new_sizes if d not in ("D", "Dv")]
    return Binding(tuple(tensors), tuple(sizes), tuple(scalars))
