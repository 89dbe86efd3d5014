"""Products that somebody wrote with a free hand and that 32 bits may not hold.

CuIR runs on exact whole numbers and the kernel on `int`: a product that wraps far beyond the deck
(`block * 1000003 % (q_tiles * 1000003)`) is right in every run of a gate. So each product that an
edit brought is bounded, in kernels as in device functions: names by what they are assigned, loop
variables by their ends, parameters by the calls, lengths and heads by the numbers below. What
cannot be bounded counts as the largest `int`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.cuir.execute.outputs import written_fields
from engine.cuir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    For,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Return,
    Select,
    Unary,
    children,
    walk,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.scalar import CASTS, evaluate
from engine.errors import CuBridgeError
from engine.gates.kinds import Kinds, coordinates
from engine.gates.names import constants_in
from engine.gates.overflow import LARGEST, Overflow
from engine.gates.standings import climbs
from engine.transfer.match import find_attention
from engine.transfer.rewrite import stmt_exprs

LENGTH = 131_072  # rows and keys
HEADS = 4096  # and batches
THREADS = 1024  # of a block, and so more than its warps and warpgroups
WIDEST = 8  # bytes of an element
_OF_FIELD = {"B": HEADS, "Hq": HEADS, "Hkv": HEADS}


def wide_product(module: Module, base: Module) -> Overflow | None:
    """The first product of whole numbers that `base` lacks and that may leave 32 bits."""
    there = {
        (str(path[0]), node)
        for path, stmt in walk(base)
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
    }
    bounds = Bounds.of(module, base)
    for path, stmt in walk(module):
        function = str(path[0])
        if function in bounds.hosts:
            continue
        for expr in stmt_exprs(stmt):
            found = _first(expr, bounds, function, {}, there)
            if found is not None:
                words = (
                    f"{print_expr(found)} may be more than 32 bits hold: make one factor "
                    f"i64(..), or the product smaller; counted with {LENGTH} rows and keys, "
                    f"{HEADS} heads and batches"
                )
                return Overflow(path, words)
    return None


def _first(
    expr: Expr, bounds: Bounds, function: str, given: Mapping[str, bool],
    there: set[tuple[str, Expr]],
) -> Expr | None:  # fmt: skip
    """The outermost expression is looked at last: its parts say more."""
    inner: Mapping[str, bool] = given
    if isinstance(expr, Call):
        inner = {**given, **bounds.kinds.of_lambda(expr, function)}
    for part in (expr.body,) if isinstance(expr, Lambda) else children(expr):
        found = _first(part, bounds, function, inner, there)
        if found is not None:
            return found
    product = any(isinstance(n, Binary) and n.op in ("*", "<<") for n in walk_expr(expr))
    if not product or not isinstance(expr, Binary) or (function, expr) in there:
        return None
    bound = bounds.of_expr(expr, function, given)
    return expr if bound is not None and bound > LARGEST else None


@dataclass
class Bounds:
    """The largest magnitudes of a module's whole numbers; None for floats and 64-bit numbers."""

    kinds: Kinds
    constants: Mapping[str, Mapping[str, int]]
    hosts: frozenset[str]
    values: Mapping[tuple[str, str], list[Expr]]
    returned: Mapping[str, list[Expr]]
    calls: Mapping[str, list[tuple[str, Call]]]
    params: Mapping[str, tuple[str, ...]]
    written: frozenset[str]
    known: Mapping[tuple[str, Expr], int]
    places: frozenset[tuple[str, str]]
    _open: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, module: Module, base: Module) -> Bounds:
        constants = {
            function: {n: int(e.value) for n, e in known.items() if isinstance(e, Num)}
            for function, known in constants_in(module).items()
        }
        devices = {f.name for f in module.functions if f.kind == "device"}
        values: dict[tuple[str, str], list[Expr]] = {}
        returned: dict[str, list[Expr]] = {}
        calls: dict[str, list[tuple[str, Call]]] = {}
        places: set[tuple[str, str]] = set()
        for path, stmt in walk(module):
            function = str(path[0])
            match stmt:
                case Assign(target, value):
                    values.setdefault((function, target), []).append(value)
                case For(var):
                    values.setdefault((function, var), []).extend(_ends(stmt))
                case Return(value) if value is not None:
                    returned.setdefault(function, []).append(value)
            for expr in stmt_exprs(stmt):
                for node in walk_expr(expr):
                    if not isinstance(node, Call):
                        continue
                    places |= {(function, name) for name in coordinates(node)}
                    if node.fn in devices:
                        calls.setdefault(node.fn, []).append((function, node))
        return cls(
            Kinds(module),
            constants,
            frozenset(f.name for f in module.functions if f.kind == "host"),
            values,
            returned,
            calls,
            {f.name: tuple(p.name for p in f.params) for f in module.functions},
            frozenset(written_fields(module)),
            _batch_and_head(module) | _numbers_of_tiles(base, constants),
            frozenset(places - values.keys()),
        )

    def of_expr(self, expr: Expr, function: str, given: Mapping[str, bool]) -> int | None:
        """The largest magnitude of a scalar expression, as if nothing in it wrapped."""

        def go(inner: Expr) -> int | None:
            return self.of_expr(inner, function, given)

        if self.kinds.is_float(expr, function, given):
            return None
        if (function, expr) in self.known and not given:
            return self.known[function, expr]
        match expr:
            case Num(int() as value):
                return abs(int(value))
            case Name(id):
                return self._of_name(id, function, given)
            case Attr(_, name):
                return _OF_FIELD.get(name, LENGTH)
            case Unary("-", operand):
                return go(operand)
            case Call(fn, _) if CASTS.get(fn) == "i64":
                return None
            case Call("i32", (value,)):
                return min(go(value) or LARGEST, LARGEST)
            case Binary("//" | ">>", left, right) | Call("floor_div", (left, right)):
                top, by = go(left), self._constant(right, function)
                if top is None or not by or (isinstance(expr, Binary) and expr.op == ">>"):
                    return top
                return top // by
            case Call("ceil_div", (left, right)):
                top, by = go(left), self._constant(right, function)
                return None if top is None else top // by + 1 if by else top
            case Binary("%" | "&", left, right) | Call("floor_mod", (left, right)):
                a, b = go(left), go(right)
                return None if a is None or b is None else min(a, b)
            case Binary(op, left, right):
                a, b = go(left), go(right)
                if a is None or b is None:
                    return None
                return a * b if op == "*" else a << min(b, 64) if op == "<<" else a + b
            case Call("min", (left, right)):
                # A load that is far below 0 is no count, length or place.
                a, b = go(left), go(right)
                return None if a is None or b is None else min(a, b)
            case Index(Name(view), _) if self._is_written(view, function):
                return LENGTH  # what the module's own kernels put there: counts and places
            case Call("warpgroup_id"):
                return THREADS
            case Call("sizeof"):
                return WIDEST
            case Call("max", (left, right)) | Select(_, left, right):
                a, b = go(left), go(right)
                return None if a is None or b is None else max(a, b)
            case Call(fn, _) if fn in self.returned:
                return self._most([(fn, e) for e in self.returned[fn]], (fn, ""))
        return LARGEST  # block_id, a load, bits

    def _is_written(self, view: str, function: str) -> bool:
        return any(
            isinstance(v, Call) and v.fn == "gmem" and isinstance(v.args[0], Attr)
            and v.args[0].field in self.written
            for v in self.values.get((function, view), [])
        )  # fmt: skip

    def _of_name(self, id: str, function: str, given: Mapping[str, bool]) -> int | None:
        at = (function, id)
        if at in self.places:
            return LENGTH
        if id in given:
            return LARGEST
        if (function, Name(id)) in self.known:
            return self.known[function, Name(id)]
        number = self.constants.get(function, {}).get(id)
        if number is not None:
            return abs(number)
        found = [(function, e) for e in self.values.get(at, ())]
        if id in self.params.get(function, ()):
            if function not in self.calls:
                return LARGEST
            place = self.params[function].index(id)
            found += [(f, c.args[place]) for f, c in self.calls[function] if place < len(c.args)]
        return self._most(found, at)  # of nothing: LARGEST

    def _most(self, found: list[tuple[str, Expr]], at: tuple[str, str]) -> int | None:
        """The largest of several; what is held in an `int` is no larger than that."""
        if at in self._open:
            return LARGEST  # a counter, or a function that calls itself
        self._open.add(at)
        bounds = [self.of_expr(e, f, {}) for f, e in found]
        self._open.discard(at)
        known = [b for b in bounds if b is not None]
        return None if len(known) < len(bounds) else min(max(known, default=LARGEST), LARGEST)

    def _constant(self, expr: Expr, function: str) -> int:
        """A divisor's value where it is known at compile time, else 0."""
        try:
            value = evaluate(expr, self.constants.get(function, {}))
        except (CuBridgeError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return 0
        return abs(value) if isinstance(value, int) else 0


def _ends(loop: For) -> tuple[Expr, ...]:
    """What bounds the magnitude of a loop's variable."""
    match loop.start:
        case Num(start):
            below = start < 0
        case Call(fn):
            below = fn not in ("block_id", "warpgroup_id")
        case _:
            below = True
    return (loop.start, loop.stop) if below or not climbs(loop) else (loop.stop,)


def _batch_and_head(module: Module) -> dict[tuple[str, Expr], int]:
    """The names of batch and head in the attention's kernel."""
    try:
        found = find_attention(module)
    except CuBridgeError:
        return {}
    return {(found.kernel, e): HEADS for e in (found.batch, found.head) if isinstance(e, Name)}


def _numbers_of_tiles(
    base: Module, constants: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, Expr], int]:
    """What the base multiplies by a tile's size is a number of tiles: as many times less than a
    length."""
    out: dict[tuple[str, Expr], int] = {}
    for path, stmt in walk(base):
        function = str(path[0])
        for expr in stmt_exprs(stmt):
            for node in walk_expr(expr):
                match node:
                    case Binary("*", number, Name(tile)):
                        numbers = constants.get(function, {})
                        by = numbers.get(tile, 0)
                        for term in _terms(number) if by > 1 else ():
                            fixed = isinstance(term, Name) and term.id in numbers
                            if not isinstance(term, Num) and not fixed:
                                out[function, term] = LENGTH // by + 1
    return out


def _terms(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Binary("+" | "-", left, right):
            return (*_terms(left), *_terms(right))
    return (expr,)
