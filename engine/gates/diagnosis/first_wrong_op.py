"""The first wrong op of a target that computes other numbers than its spec.

One-hot V gives back every weight of the target. Their zero pattern shows a wrong mask or schedule,
which are blamed where evaluating them at that pair gives the same; their ratios within a row show a
wrong score, their sum a wrong normaliser; what is left is LSE. Each has its op in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Do,
    Expr,
    If,
    Lambda,
    Module,
    Name,
    Num,
    Path,
    walk,
    walk_expr,
)
from engine.cuir.ops.traits import MAPS, ROW_STORES
from engine.cuir.rewrite import map_expr, substitute
from engine.cuir.scalar import evaluate
from engine.errors import CuBridgeError
from engine.gates.deck import Case
from engine.gates.runs.subject import Subject
from engine.gates.schedules.schedule_at_size import ScheduleAt
from engine.gates.schedules.schedule_calls import asked_schedule
from engine.transfer.match import Attention, Site, block_at, find_attention

RATIO_TOLERANCE = 1e-8


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where the target goes wrong first, and how that shows."""

    path: Path
    words: str
    example: Mapping[str, Any]


def diagnose(
    subject: Subject, case: Case, got: Tensor, want: Tensor, sizes: Mapping[str, int]
) -> Diagnosis | None:
    """The op behind a difference of weights [B, Hq, Nq, Nk] (normalised, as O shows them).

    None when the program is not one that the rules know, or when the weights agree.
    """
    module = subject.module
    try:
        found = find_attention(module)
    except CuBridgeError:
        return None
    site = found.sites[-1]
    kept, should = got != 0, want != 0
    if bool((kept != should).any()):
        return _mask(subject, case, found, site, got, want, sizes)
    both = should & kept
    if not bool(both.any()):
        return None
    return _score(module, site, got, want, both) or _normaliser(module, found, got, want, both)


def _mask(
    subject: Subject,
    case: Case,
    found: Attention,
    site: Site,
    got: Tensor,
    want: Tensor,
    sizes: Mapping[str, int],
) -> Diagnosis:
    module, kept, should = subject.module, got != 0, want != 0
    b, h, i, j = (int(x) for x in (kept != should).nonzero()[0])
    wanted = bool(should[b, h, i, j])
    example: dict[str, float] = {"b": b, "h": h, "i": i, "j": j}
    example |= {"expected": wanted, "got": not wanted}
    path, predicate = _keep(module, site)
    known = _defined(module, site)
    verdict = _holds(predicate, {"b": b, "h": h, "i": i, "j": j}, found, sizes, known)
    if wanted and verdict is not False:
        # A weight may also be 0 because it underflows: wrong ratios elsewhere in the rows say so.
        off = _score(module, site, got, want, kept & should)
        if off is not None:
            return off
    pair = f"the pair i={i}, j={j}"
    if verdict is not None and verdict != wanted:
        does = "masks" if wanted else "keeps"
        return Diagnosis(path, f"the keep predicate {does} {pair}, the spec does not", example)
    visited, full = _asked(subject, case, b, h, i, j)
    if wanted and visited is False:
        last = len(module.function(found.schedule.count).body) - 1
        return Diagnosis(
            (found.schedule.count, last), f"the schedule never visits the tile of {pair}", example
        )
    if not wanted and full:
        last = len(module.function(found.schedule.full).body) - 1
        return Diagnosis(
            (found.schedule.full, last),
            f"the tile of {pair} counts as full, so it is not masked",
            example,
        )
    # The mask and the schedule are right there, or only a run knows: what was seen is the weight.
    example |= {"expected": float(want[b, h, i, j]), "got": float(got[b, h, i, j])}
    words = f"the weight of {pair} is {example['got']:.6g}, in the spec {example['expected']:.6g}"
    if wanted and not bool(kept[b, h, i].any()):
        total = float(want[b, h, i].sum())
        words = f"all weights of row i={i} are 0, those of the spec add up to {total:.6g}"
        path = _divided(module, found) if verdict and visited else path
    return Diagnosis(path, words, example)


def _asked(
    subject: Subject, case: Case, b: int, h: int, i: int, j: int
) -> tuple[bool | None, bool | None]:
    """Whether a pair's tile is visited, and whether it is called full; None where only a run knows,
    as where tiles come from lists."""
    try:
        return ScheduleAt(subject, asked_schedule(subject.module), case).of_pair(b, h, i, j)
    except (CuBridgeError, ArithmeticError, LookupError, TypeError, ValueError):
        return None, None


def _keep(module: Module, site: Site) -> tuple[Path, Lambda | None]:
    assert site.mask is not None
    stmt = block_at(module, site.block)[site.mask]
    path: Path = (*site.block, site.mask)
    if isinstance(stmt, If):
        path = (*path, "then", len(stmt.then) - 1)
        stmt = stmt.then[-1]
    if isinstance(stmt, Assign) and isinstance(stmt.value, Call):
        for argument in stmt.value.args:
            if isinstance(argument, Lambda):
                return path, argument
    return path, None


def _defined(module: Module, site: Site) -> dict[str, Expr]:
    """What the kernel's scalar variables stand for, each in terms of what is no such variable."""
    out: dict[str, Expr] = {}
    for stmt in module.function(str(site.block[0])).body:
        match stmt:
            case Assign(str(target), value) if not any(
                isinstance(node, Call | Lambda) for node in walk_expr(value)
            ):
                out[target] = substitute(value, out)
    return out


def _holds(
    predicate: Lambda | None,
    pair: Mapping[str, int],
    found: Attention,
    sizes: Mapping[str, int],
    known: Mapping[str, Expr],
) -> bool | None:
    """The predicate at one pair; None when it reads what only a run knows."""
    if predicate is None:
        return None
    own = {name: expr for name, expr in known.items() if name not in predicate.params}
    values: dict[Expr, Expr] = {Attr(Name("args"), n): Num(v) for n, v in sizes.items()}
    values |= {found.batch: Num(pair["b"]), found.head: Num(pair["h"])}
    places = {found.batch, found.head}
    own = {name: expr for name, expr in own.items() if Name(name) not in places}
    body = map_expr(substitute(predicate.body, own), lambda node: values.get(node))
    try:
        return bool(evaluate(body, {"i": pair["i"], "j": pair["j"]}, "exact"))
    except (CuBridgeError, KeyError, ValueError, ZeroDivisionError):
        return None


def _score(module: Module, site: Site, got: Tensor, want: Tensor, both: Tensor) -> Diagnosis | None:
    """Ratios within a row are exp of score differences, whatever the normaliser."""
    log_got = torch.where(both, got.clamp_min(1e-300).log(), torch.zeros_like(got))
    log_want = torch.where(both, want.clamp_min(1e-300).log(), torch.zeros_like(want))
    gap = torch.where(both, log_got - log_want, torch.full_like(got, torch.nan))
    middle = gap.nanmedian(-1, keepdim=True).values
    off = torch.where(both, (gap - middle).abs(), torch.zeros_like(gap)).nan_to_num(0.0)
    if float(off.max()) <= RATIO_TOLERANCE:
        return None
    b, h, i, j = (int(x) for x in torch.unravel_index(off.argmax(), off.shape))
    example = {
        "b": b, "h": h, "i": i, "j": j,
        "expected": float(want[b, h, i, j]), "got": float(got[b, h, i, j]),
    }  # fmt: skip
    path = _first(module, site, lambda s: _is_map_of(s, site.score))
    words = f"the weight of i={i}, j={j} has another ratio to its row than the spec's score gives"
    return Diagnosis(path, words, example)


def _is_map_of(stmt: object, score: str) -> bool:
    match stmt:
        case Assign(target, Call(fn, (Name(first), *_))):
            return fn in MAPS and target == first == score
    return False


def _first(module: Module, site: Site, wanted: Callable[[object], bool]) -> Path:
    """The first wanted statement before the row maximum, else that itself."""
    body = block_at(module, site.block)[: site.row_max]
    index = next((n for n, stmt in enumerate(body) if wanted(stmt)), site.row_max)
    return (*site.block, index)


def _normaliser(
    module: Module, found: Attention, got: Tensor, want: Tensor, both: Tensor
) -> Diagnosis | None:
    sums, wanted = got.sum(-1), want.sum(-1)
    off = ((sums - wanted).abs() / wanted.abs().clamp_min(1e-30)).masked_fill(~both.any(-1), 0.0)
    if float(off.max()) <= RATIO_TOLERANCE:
        return None
    b, h, i = (int(x) for x in torch.unravel_index(off.argmax(), off.shape))
    example = {
        "b": b, "h": h, "i": i, "expected": float(wanted[b, h, i]), "got": float(sums[b, h, i]),
    }  # fmt: skip
    words = f"the weights of row i={i} do not add up to what the spec's do"
    return Diagnosis(_divided(module, found), words, example)


def _divided(module: Module, found: Attention) -> Path:
    """The op that gives O its last value, which divides by the sum of a row."""
    return next(
        (
            p
            for p, s in reversed(list(walk(module)))
            if isinstance(s, Assign) and s.target == found.accumulator
        ),
        (*found.sites[-1].block, found.sites[-1].row_max),
    )


def lse_path(module: Module) -> Path | None:
    """The op that computes what is stored as LSE."""
    stored = [s for _, s in walk(module) if isinstance(s, Do) and s.call.fn in ROW_STORES]
    names = {s.call.args[1].id for s in stored if isinstance(s.call.args[1], Name)}
    return next(
        (p for p, s in reversed(list(walk(module))) if isinstance(s, Assign) and s.target in names),
        None,
    )
