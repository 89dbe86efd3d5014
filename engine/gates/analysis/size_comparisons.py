"""What a module's comparisons of sizes ask of the deck.

A kernel goes wrong past the numbers that it compares its sizes with (`if (args.B > 4) return`).
They are not in the spec: they are read from the CuIR. Each comparison of sizes must come out true
in one run and false in another; where no affordable run does that, the verdict says which
comparison, and how, was never met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product

from engine.cuir.nodes import (
    CONTRARY,
    Assign,
    Attr,
    Call,
    Compare,
    Expr,
    For,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    free_names,
    stmt_exprs,
    walk,
    walk_expr,
)
from engine.cuir.printer import print_expr
from engine.cuir.rewrite import map_expr, substitute
from engine.cuir.scalar import CASTS, FUNCTIONS, evaluate
from engine.cuir.static.host_constants import host_constants
from engine.errors import CuBridgeError
from engine.gates.deck import MAX_CONSTANT, Case, Tiles
from engine.transfer.match import find_attention

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk")
SMALL = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": 3, "Nk": 5}
MAX_KEYS = 2 * MAX_CONSTANT + 8  # of one row: 2 s
MAX_BLOCKS = 100  # 2 s of blocks with one tile each
MAX_CASES = 5
ROUNDS = 8  # how deep a name may stand for names
MAX_NODES = 4000
_SCALAR = frozenset({"ceil_div", "min", "max", "abs", "floor_div", "floor_mod"})


@dataclass(frozen=True, slots=True)
class Threshold:
    """A comparison whose outcome follows from the sizes (and the batch and head of a block).

    `expr` is the comparison with all names resolved but those of batch and head; `at` is the text
    as it stands, and where.
    """

    expr: Compare
    text: Compare
    path: Path
    batch: str | None
    head: str | None

    def outcomes(self, sizes: Mapping[str, int]) -> frozenset[bool]:
        """What it comes out as in a run: for some block true, for some false."""
        if not sizes["B"] * sizes["Hq"]:
            return frozenset()
        values: dict[Expr, Expr] = {Attr(Name("args"), n): Num(v) for n, v in sizes.items()}
        body = map_expr(self.expr, values.get)
        read = free_names(body)
        batches = range(sizes["B"] if self.batch in read else 1)
        heads = range(sizes["Hq"] if self.head in read else 1)
        out: set[bool] = set()
        for b, h in product(batches, heads):
            places = {n: v for n, v in ((self.batch, b), (self.head, h)) if n is not None}
            try:
                out.add(bool(evaluate(body, places)))
            except (CuBridgeError, KeyError, ValueError, TypeError, ZeroDivisionError):
                return frozenset()
        return frozenset(out)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The whole numbers of at least 2 that stand in it, constants by their value."""
        return tuple(sorted(_integers([self.expr])))

    def words(self, outcome: bool) -> str:
        """`args.Nk > 65536` (tile_count), or its contrary."""
        met = self.text if outcome else replace(self.text, op=CONTRARY[self.text.op])
        return f"{print_expr(met)} ({self.path[0]})"


@lru_cache(maxsize=8)
def thresholds(module: Module) -> tuple[Threshold, ...]:
    """Every comparison of sizes with a number, in the order of the text."""
    try:
        found = find_attention(module)
        batch, head = (e.id if isinstance(e, Name) else None for e in (found.batch, found.head))
    except CuBridgeError:
        batch = head = None
    places = {batch, head} - {None}
    out: dict[tuple[Expr, object], Threshold] = {}
    for path, expr, known, own in expressions_in(module):
        constants: dict[str, Expr] = {n: Num(v) for n, v in known[str(path[0])].items()}
        inner = {n: e for n, e in own.items() if n not in places}
        for node in walk_expr(expr):
            if not isinstance(node, Compare):
                continue
            whole = substitute(resolved(node, inner), constants)
            if not isinstance(whole, Compare) or not _integers([substitute(node, constants)]):
                continue  # `blocks == 0` is no threshold
            if (
                free_names(whole) - {"args"} <= places
                and _only_sizes(whole)
                and _reads(whole, places)
            ):
                one = Threshold(whole, node, path, batch, head)
                out.setdefault((whole, path[0]), one)
    return tuple(out.values())


@lru_cache(maxsize=8)
def compared(module: Module) -> tuple[Expr, ...]:
    """Comparisons that a run decides (`j < 5000` in a mask): their literals may be windows."""
    kernels = {f.name for f in module.functions if f.kind != "host"}
    decided = {t.text for t in thresholds(module)}
    return tuple(
        node
        for path, expr, known, _ in expressions_in(module)
        if path[0] in kernels
        for node in walk_expr(expr)
        if isinstance(node, Compare)
        and node not in decided
        and free_names(node) - known[str(path[0])].keys()
    )


def cases_past(found: Sequence[Threshold], deck: Sequence[Case], tiles: Tiles | None) -> list[Case]:
    """Cases in which the comparisons come out as in no case of the deck, where affordable."""
    out: list[Case] = []
    for one in found:
        for outcome in (True, False):
            if outcome in met(one, (*deck, *out)) or len(out) == MAX_CASES:
                continue
            case = next(
                (c for c in _candidates(one, tiles) if outcome in one.outcomes(c.sizes)), None
            )
            if case is not None:
                out.append(case)
    return out


def met(one: Threshold, deck: Iterable[Case]) -> frozenset[bool]:
    """The outcomes that a deck's exact runs on something give."""
    return frozenset().union(*(one.outcomes(c.sizes) for c in deck if "exact" in c.modes))


def unmet(found: Sequence[Threshold], deck: Sequence[Case]) -> str:
    """The comparisons that no run of the deck meets one way, in words; empty where all are."""
    words = []
    for one in found:
        seen = met(one, deck)
        if seen:  # both ways unknown: not a comparison of sizes after all
            words += [one.words(o) for o in (True, False) if o not in seen]
    return "no run has " + ", nor ".join(words) if words else ""


def first_met(
    found: Sequence[Threshold], before: Sequence[Case], case: Case
) -> tuple[Threshold, bool] | None:
    """The comparison that comes out in `case` as in no case before it, and as what."""
    for one in found:
        new = one.outcomes(case.sizes) - met(one, before)
        if new and met(one, before):
            return one, max(new)
    return None


def affordable(case: Case) -> bool:
    """Whether a case past a threshold may be run: few blocks, and few pairs for the oracle."""
    blocks = case.B * case.Hq * -(-max(case.Nq, 1) // 64)
    pairs = case.B * case.Hq * case.Nq * case.Nk
    return blocks <= MAX_BLOCKS and case.Nk <= MAX_KEYS and pairs <= 4_000_000


def _candidates(one: Threshold, tiles: Tiles | None) -> Iterator[Case]:
    read = [n for n in SIZES if n in sizes_in(one.expr)]
    names = free_names(one.expr)
    read += [n for n, place in (("B", one.batch), ("Hq", one.head)) if place in names]
    for number, size in product(one.numbers, read):
        past = number + 1
        # A whole number of tiles hides what only the last tile of keys shows.
        past += tiles is not None and past % tiles.keys == 0
        for value in (past, number, number - 1, past + 1):
            sizes = SMALL | {size: value}
            heads = max(sizes["Hq"], sizes["Hkv"])
            case = Case(sizes["B"], heads, sizes["Hkv"], sizes["Nq"], sizes["Nk"], modes=("exact",))
            if value > 0 and affordable(case):
                yield case


def scalars_of(module: Module) -> dict[str, dict[str, Expr]]:
    """By function: the names that stand for one scalar expression throughout. A parameter that is
    assigned stands for two, what the function was given and what came after it."""
    scalars: dict[str, dict[str, Expr]] = {}
    assigned = Counter((f.name, p.name) for f in module.functions for p in f.params)
    for path, stmt in walk(module):
        if isinstance(stmt, Assign | For):
            name = stmt.target if isinstance(stmt, Assign) else stmt.var
            assigned[str(path[0]), name] += 1
    for path, stmt in walk(module):
        if (
            isinstance(stmt, Assign)
            and assigned[str(path[0]), stmt.target] == 1
            and not any(
                isinstance(n, Lambda | Index)
                or (isinstance(n, Call) and n.fn not in FUNCTIONS and n.fn not in CASTS)
                for n in walk_expr(stmt.value)
            )
        ):
            scalars.setdefault(str(path[0]), {})[stmt.target] = stmt.value
    return scalars


Row = tuple[Path, Expr, Mapping[str, Mapping[str, int]], Mapping[str, Expr]]


def expressions_in(module: Module) -> Iterator[Row]:
    """Every expression with its statement's path, all functions' constants, and its function's
    scalars."""
    known, scalars = known_constants(module), scalars_of(module)
    for path, stmt in walk(module):
        for expr in stmt_exprs(stmt):
            yield path, expr, known, scalars.get(str(path[0]), {})


@lru_cache(maxsize=8)
def known_constants(module: Module) -> Mapping[str, Mapping[str, int]]:
    """The whole numbers that names stand for at compile time, by function."""
    of_host = host_constants(module)
    out = {f.name: dict(of_host) if f.kind == "host" else {} for f in module.functions}
    functions = {f.name: f for f in module.functions}
    for _ in range(3):  # the launcher binds kernels, kernels bind device functions
        for path, stmt in walk(module):
            here = out[str(path[0])]
            if isinstance(stmt, Assign) and stmt.target not in here:
                value = whole_number(stmt.value, here)
                if value is not None:
                    here[stmt.target] = value
            for expr in stmt_exprs(stmt):
                for node in walk_expr(expr):
                    match node:
                        case Index(Name(callee), given) | Call(callee, _, _, given):
                            pass
                        case _:
                            continue
                    if callee in functions:
                        for const, actual in zip(functions[callee].consts, given, strict=False):
                            number = whole_number(actual, here)
                            if number is not None:
                                out[callee].setdefault(const, number)
    return out


def whole_number(expr: Expr, names: Mapping[str, int]) -> int | None:
    """What it is at compile time; None where that is unknown or no whole number."""
    try:
        value = evaluate(expr, names)
    except (CuBridgeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def resolved(expr: Expr, scalars: Mapping[str, Expr]) -> Expr:
    """`expr` with the function's scalar names replaced by what they stand for.

    Names that stand for names that stand for names may be a text of any length: what grows past
    `MAX_NODES` keeps its names.
    """
    for _ in range(ROUNDS):
        again = substitute(expr, scalars)
        if again == expr or len(list(islice(walk_expr(again), MAX_NODES + 1))) > MAX_NODES:
            break
        expr = again
    return expr


def sizes_in(expr: Expr) -> frozenset[str]:
    """The sizes that it reads from the arguments."""
    return frozenset(n.field for n in walk_expr(expr) if isinstance(n, Attr) and n.field in SIZES)


def _only_sizes(expr: Expr) -> bool:
    """Whether it reads nothing of the arguments but sizes, and nothing that a run decides."""
    return all(
        (not isinstance(n, Attr) or n.field in SIZES)
        and (not isinstance(n, Call) or n.fn in _SCALAR)
        and not isinstance(n, Index | Lambda)
        for n in walk_expr(expr)
    )


def _reads(expr: Expr, places: Iterable[str | None]) -> bool:
    return bool(sizes_in(expr) or free_names(expr) & set(places))


def _integers(expressions: Iterable[Expr]) -> set[int]:
    return {
        abs(n.value)
        for e in expressions
        for n in walk_expr(e)
        if isinstance(n, Num) and isinstance(n.value, int) and not isinstance(n.value, bool)
        and abs(n.value) >= 2
    }  # fmt: skip
