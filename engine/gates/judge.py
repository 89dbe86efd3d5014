"""G1 and G2 on the CPU: run a module in both modes and compare it with the spec itself.

Exact mode (every value float64) judges the algebra: O, LSE and the keep set. Typed mode judges the
rounding by FlashAttention's rule: the error is at most twice that of the spec run in low precision
by PyTorch, plus rounding. The comparison never uses the kernel's own index or mask code: the
expected values come from the spec's function.

Runs in the torch child only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cuir.check import check
from engine.cuir.execute import Schedule, run_program
from engine.cuir.nodes import Module, Name, Num, walk_expr
from engine.cuir.parser import parse_module
from engine.cuir.scalar import Mode
from engine.gates.deck import (
    MAX_SQUARE,
    MOST_TILES,
    Case,
    beyond,
    constants,
    listed,
    past,
    quick,
)
from engine.gates.diagnose import diagnose, lse_path
from engine.gates.low_precision import run_spec
from engine.gates.overflow import overflow
from engine.gates.sizes import (
    affordable,
    cases_past,
    compared,
    first_met,
    thresholds,
    tiles_of,
    unmet,
)
from engine.spec import Input, Recipe, recipe_from_json
from engine.spec.declared import declared
from engine.spec.derived import derive_inputs
from engine.spec.inputs import extent, make_inputs, violated
from engine.spec.oracle import as_bhnd, expected, oracle, output_as_bhnd
from engine.spec.source import read_source
from engine.transfer.binding import SLOTS, Binding
from engine.transfer.fill import fill_arguments, unpermuted
from engine.transfer.ranges import reads_pairs
from engine.transfer.rewrite import free_names
from engine.transfer.workspace import launch_constants

EXACT_TOLERANCE = 1e-10  # of each row's largest magnitude
MAX_DIAGNOSED = 400  # keys: beyond that a failure keeps its numbers only
LSE_TOLERANCE = 5e-3  # typed mode: scores are products of rounded inputs, summed in float32
REMOVED = 130  # keys that a bias of -inf takes in one go: more than any tile has
# A mask that reads inputs: batches that differ, several blocks of rows and tiles of keys; two runs
# in a row, of which one has its mask's bits for one tile only.
# Sorted runs, as models mostly have them; then each batch in a way of its own.
DATA_CASES = tuple(
    Case(b, 2, 1, n, n, modes=("exact",), turn=turn)
    for b, n, turn in ((2, 260, 0), (2, 261, 0), (3, 259, 2))
)
BIAS_CASE = Case(1, 2, 1, 70, 200, values="bias-inf", modes=("exact",))
# Findings about values: the comparison with the spec says more about them.
NUMERIC = frozenset({"nan_output", "unwritten_output"})
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a gate fails: in words, with the op and a counterexample where there is one."""

    reason: str
    op: str | None = None
    counterexample: Mapping[str, Any] | None = None

    def details(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.op is not None:
            out["op"] = self.op
        if self.counterexample is not None:
            out["counterexample"] = dict(self.counterexample)
        return out


def judge_json(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """`judge` on JSON: module, recipe, binding, spec, options -> ok, reason, details, seconds.

    A recipe of None means that none could be read: the spec's own function judges alone. `cases`
    are sizes to judge besides the deck's; `explain` asks for the weights of a wrong row.
    """
    begin = time.monotonic()
    spec, options = Path(payload["spec"]), payload.get("options") or {}
    read = payload["recipe"] is not None
    subject = Subject(
        parse_module(payload["module"], "target.cuir"),
        recipe_from_json(payload["recipe"]) if read else _declared(spec, options),
        Binding.from_json(payload["binding"]),
        spec,
        options,
        tuple(
            Case(**{**sizes, "modes": tuple(sizes["modes"])}) for sizes in payload.get("cases", ())
        ),
    )
    passed = "{} runs equal the spec"
    if read:
        deck = _legal_cases(subject)
        failure, done = judge(subject, report)
        words = (
            beyond(_constants(subject)), unmet(thresholds(subject.module), deck),
            _unlisted(subject, deck),
        )  # fmt: skip
        unreached = "; ".join(filter(None, words))
    else:
        from engine.gates.judge_spec import COMPARED, judge_by_spec, legal_deck, written

        deck = legal_deck(subject)
        failure, done = judge_by_spec(subject, report)
        passed += f" ({COMPARED})"
        missed = (beyond(written(subject)), unmet(thresholds(subject.module), deck))
        unreached = "; ".join(filter(None, missed))
    if unreached:
        passed += f"; {unreached}"
    rows = done
    if failure is None:
        from engine.gates.judge_spec import drawn
        from engine.gates.starve import starved

        failure, late = starved(subject, _inputs if read else drawn, report)
        rows = [*done, *late]
    details: dict[str, Any] = {"runs": rows}
    if failure is not None:
        details |= failure.details()
        if payload.get("explain") and rows:
            from engine.gates.explain import explained

            details |= explained(subject, deck, rows[-1], failure)
    return {
        "ok": failure is None,
        "reason": failure.reason if failure is not None else passed.format(len(done)),
        "details": details,
        "seconds": time.monotonic() - begin,
    }


@dataclass(frozen=True, slots=True)
class Subject:
    """A module and what it must compute."""

    module: Module
    recipe: Recipe
    binding: Binding
    spec: Path
    options: Mapping[str, Any]
    extra_cases: tuple[Case, ...] = ()

    @property
    def head_dim(self) -> int:
        values = dict(self.module.spec)
        size = values.get("D")
        return size.value if isinstance(size, Num) and isinstance(size.value, int) else 64

    @property
    def dtype(self) -> torch.dtype:
        kind = dict(self.module.spec).get("T")
        return torch.float16 if kind == Name("f16") else torch.bfloat16


def _declared(spec: Path, options: Mapping[str, Any]) -> Recipe:
    """What an unread spec says about its inputs; its score and mask are not to be asked for."""
    return declared(read_source(spec, options)).as_recipe("no recipe was read")


def judge(subject: Subject, report: Report) -> tuple[Failure | None, list[dict[str, Any]]]:
    """The first failure (or None), and what every run measured."""
    static = check(subject.module)
    if static:
        return Failure(static[0].message, op=_op(static[0].path)), []
    unfilled = without_value(subject)
    if unfilled is not None:
        return unfilled, []
    wide = overflow(subject.module)
    if wide is not None:
        return Failure(wide.message, op=_op(wide.path)), []
    done: list[dict[str, Any]] = []
    deck = _legal_cases(subject)
    if not any(c.Nq and c.Nk and "exact" in c.modes for c in deck):
        return Failure("no case of the deck fits the sizes that the spec allows"), []
    for number, case in enumerate(deck):
        report(f"{number + 1} of {len(deck)}: {case}")
        for run in _runs(subject, case, number):
            failure, row = run()
            done.append(row)
            if failure is not None:
                report("finding the first wrong op")
                return _located(subject, deck, number, failure), done
    return None, done


def without_value(subject: Subject) -> Failure | None:
    """A field of the argument struct that the binding fills with nothing."""
    binding, space = subject.binding, subject.binding.workspace
    filled = {t.field for t in binding.tensors} | {s.field for s in binding.sizes}
    filled |= {s.field for s in binding.scalars}
    if space is not None:
        filled |= {space.field, space.planned, space.slots}
    for index, field in enumerate(subject.module.fields):
        if field.name not in filled:
            reason = f"args.{field.name} is filled by no input, output or size of the spec"
            return Failure(reason, op=_op(("Args", index)))
    return None


def _legal_cases(subject: Subject) -> list[Case]:
    """The quick deck, its cases bent to what the spec allows (Nq == Nk, one head count, ...)."""
    tiles = tiles_of(subject.module)
    deck = (*quick(tiles), *past(_constants(subject)), *subject.extra_cases)
    if any(i.name in _biases(subject.recipe) for i in subject.recipe.inputs):
        deck = (*deck, BIAS_CASE)
    if reads_pairs(subject.recipe.keep):
        deck = (*deck, *DATA_CASES)
    lists = listed(_listed_tile(subject))
    farther = cases_past(thresholds(subject.module), deck, tiles)
    deck = (*deck, *lists, *farther)
    fixed = {"D": subject.head_dim, "Dv": subject.head_dim}
    out: list[Case] = []
    for case in deck:
        square = max(case.Nq, case.Nk)
        for bent in (
            case,
            replace(case, Nq=case.Nk, Nk=case.Nq),
            replace(case, Nq=square, Nk=square),
            replace(case, Hkv=case.Hq),
            replace(case, Nq=square, Nk=square, Hkv=case.Hq),
        ):
            if violated(subject.recipe, bent.sizes | fixed) is None:
                costly = (case in lists and bent.Nq > MAX_SQUARE) or (
                    case in farther and not affordable(bent)
                )
                if not costly:
                    out.append(bent)
                break
    return list(dict.fromkeys(out))


def _constants(subject: Subject) -> list[int]:
    """The constants of the recipe, and those that the module compares with and the recipe lacks.

    A rewritten comparison (`<= c - 1`, `< c + 1`) is the recipe's own.
    """
    own = constants(subject.recipe.expressions())
    more = constants(compared(subject.module))
    return sorted({*own, *(c for c in more if not any(abs(c - o) <= 1 for o in own))})


def _listed_tile(subject: Subject) -> int | None:
    """Keys in a tile of the lists that the target makes; None where it makes none."""
    if subject.binding.workspace is None:
        return None
    return launch_constants(subject.module, subject.binding).get("BN")


def _unlisted(subject: Subject, deck: list[Case]) -> str:
    """Words where no run lists as many tiles as there are warps for, because it must be square."""
    tile = _listed_tile(subject)
    most = max((-(-c.Nk // tile) for c in deck), default=0) if tile else MOST_TILES
    return "" if most >= MOST_TILES else f"no run lists more than {most} tiles"


Run = Callable[[], tuple[Failure | None, dict[str, Any]]]


def _runs(subject: Subject, case: Case, seed: int) -> list[Run]:
    runs: list[Run] = []
    if "exact" in case.modes:
        runs.append(lambda: _exact(subject, case, seed))
    if "typed" in case.modes:
        runs.append(lambda: _typed(subject, case, seed))
    if case.probe_keep:
        runs.append(lambda: _probe(subject, case, seed))
    return runs


def _inputs(subject: Subject, case: Case, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    sizes = case.sizes | {"D": subject.head_dim, "Dv": subject.head_dim}
    turn = seed if case.turn is None else case.turn
    inputs = make_inputs(subject.recipe, sizes, seed, case.values, turn=turn)
    for scalar in subject.binding.scalars:
        if scalar.value != Name(scalar.field):  # what multiplies q.k: callers promise it positive
            for name in free_names(scalar.value) & inputs.keys():
                inputs[name] = inputs[name].abs()
    if case.values == "bias-inf":
        _remove_tiles(subject.recipe, inputs)
    sizes |= _named_sizes(subject.recipe, inputs)
    if case.Nq and case.Nk:
        inputs |= derive_inputs(subject.spec, subject.recipe, inputs, subject.options)
    else:
        inputs |= _nothing_derived(subject.recipe, sizes)
    return inputs, sizes


def _biases(recipe: Recipe) -> frozenset[str]:
    """Float inputs with a value per key that a softmax's score reads: these may be -inf."""
    if recipe.weight is not None:
        return frozenset()
    read = {n.id for n in walk_expr(recipe.score) if isinstance(n, Name)}
    return frozenset(
        i.name
        for i in recipe.extra()
        if i.derive is None and i.dtype in ("T", "f32", "f16", "bf16")
        and i.name in read and len(i.dims) >= 2 and "Nk" in i.dims
    )  # fmt: skip


def _remove_tiles(recipe: Recipe, inputs: Mapping[str, Any]) -> None:
    """-inf over whole tiles of keys: the first ones of some rows, the last ones of others."""
    for item in recipe.inputs:
        if item.name in _biases(recipe):
            dims = list(item.dims)
            bias = inputs[item.name].movedim(dims.index("Nk"), -1)
            dims.append(dims.pop(dims.index("Nk")))
            if "Nq" in dims:
                bias = bias.movedim(dims.index("Nq"), -2)
                bias[..., :20, :REMOVED] = -math.inf
                bias[..., 20:40, -REMOVED:] = -math.inf
            else:
                bias[..., :REMOVED] = -math.inf


def _nothing_derived(recipe: Recipe, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Tables that no pair of rows will read: specs need not build them for empty sizes."""
    kinds = {"i32": torch.int64, "i64": torch.int64, "bool": torch.bool}
    return {
        i.name: torch.zeros(
            [extent(d, sizes) for d in i.dims], dtype=kinds.get(i.dtype, torch.float64)
        )
        for i in recipe.inputs
        if i.derive is not None
    }


def _named_sizes(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Every dimension's size, read off the inputs."""
    out: dict[str, int] = {}
    for item in recipe.inputs:
        if item.name in inputs and isinstance(inputs[item.name], Tensor):
            out |= dict(zip(item.dims, inputs[item.name].shape, strict=True))
    return {name: size for name, size in out.items() if not name.isdigit()}


def _execute(
    subject: Subject, inputs: Mapping[str, Any], sizes: Mapping[str, int], mode: Mode, seed: int
) -> tuple[Failure | None, dict[str, Tensor]]:
    """The module's outputs in the spec's layout ("O", "LSE"), or why it does not run."""
    kind = torch.float64 if mode == "exact" else subject.dtype
    lse = torch.float64 if mode == "exact" else torch.float32
    given = {
        n: t.to(kind) if isinstance(t, Tensor) and _is_element(subject.recipe, n) else t
        for n, t in inputs.items()
    }
    known = {**launch_constants(subject.module, subject.binding), **sizes}
    # Every other run has its mask's bits for one tile only: the way without them is judged too.
    slots = SLOTS if seed % 2 else 1
    arguments = fill_arguments(subject.binding, given, known, kind, lse, slots)
    space = subject.binding.workspace
    outcome = run_program(
        subject.module, arguments.fields, mode, Schedule(seed=seed),
        # A caller's workspace holds anything: a word that no kernel wrote may not be read.
        unfilled=() if space is None else (space.field,),
    )  # fmt: skip
    failure: Failure | None = None
    if outcome.findings:
        first = next((f for f in outcome.findings if f.kind not in NUMERIC), outcome.findings[0])
        failure = Failure(f"{first.kind}: {first.message}", op=_op(first.path))
        if first.kind not in NUMERIC:
            return failure, {}
    elif outcome.status != "ran":
        return Failure(outcome.reason or outcome.status, op=_op(outcome.stopped_at or ())), {}
    out: dict[str, Tensor] = {}
    for item in subject.binding.tensors:
        if item.output:
            out[item.source] = unpermuted(outcome.outputs[item.field], item)
    return failure, out


def _is_element(recipe: Recipe, name: str) -> bool:
    return any(i.name == name and i.dtype == "T" for i in recipe.inputs)


def _exact(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, dict[str, Any]]:
    """Every value float64: O within 1e-10 of each row's largest magnitude, and LSE."""
    inputs, sizes = _inputs(subject, case, seed)
    found, out = _execute(subject, inputs, sizes, "exact", seed)
    row: dict[str, Any] = {"case": str(case), "mode": "exact"}
    if found is not None and not out:
        return found, row
    if case.Nq == 0 or case.Nk == 0:
        # Specs need not run on nothing; the convention is O = 0 and LSE = -inf.
        failure = _is_nothing(subject, out, case)
        if found is not None and failure is not None:
            failure = replace(failure, op=found.op)
        return failure or found, row
    want = expected(subject.recipe, inputs)
    spec_o = output_as_bhnd(subject.recipe, oracle(subject.spec, inputs, subject.options))
    # Rows without a kept key: our convention is O = 0; what the spec gives there is its own affair.
    o_want = torch.where(want.empty[..., None], torch.zeros_like(want.o), spec_o)
    o = output_as_bhnd(subject.recipe, out["O"])
    if case.values == "bias-inf":
        # Where -inf took every key, or made the spec NaN, there is nothing to hold a kernel to.
        sound = torch.isfinite(spec_o).all(-1) & torch.isfinite(o_want).all(-1)
        o, o_want = (t.masked_fill(~sound[..., None], 0.0) for t in (o, o_want))
        row["rows"] = int(sound.sum())
        failure, row["O"] = _rows_equal(o, o_want, "O")
        return failure, row
    failure, worst = _rows_equal(o, o_want, "O")
    row["O"] = worst
    if failure is None and want.lse is not None and "LSE" in out:
        failure, row["LSE"] = _lse_equal(out["LSE"], want.lse)
    if found is not None and failure is not None:
        # The executor says where NaN was written; the comparison says for which row.
        failure = replace(failure, op=found.op)
    return failure or found, row


def _is_nothing(subject: Subject, out: Mapping[str, Tensor], case: Case) -> Failure | None:
    """Without keys every row of O is 0 and every LSE is -inf."""
    o = output_as_bhnd(subject.recipe, out["O"])
    failure, _ = _rows_equal(o, torch.zeros_like(o), "O without keys")
    if failure is None and "LSE" in out:
        lse = out["LSE"]
        failure, _ = _lse_equal(lse, torch.full_like(lse, -math.inf), "LSE without keys")
        if failure is not None and (path := lse_path(subject.module)) is not None:
            failure = replace(failure, op=_op(path))
    if failure is None:
        return None
    return replace(failure, counterexample={**(failure.counterexample or {}), "case": str(case)})


def _rows_equal(got: Tensor, want: Tensor, what: str) -> tuple[Failure | None, float]:
    """Largest error over each row's largest magnitude."""
    if want.numel() == 0:
        return None, 0.0
    scale = want.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    error = ((got - want).abs() / scale).nan_to_num(math.inf, math.inf)
    worst = float(error.max())
    if worst <= EXACT_TOLERANCE:
        return None, worst
    # The row first: a wrong mask clusters by row.
    rows = error.amax(-1)
    b, h, i = (int(x) for x in torch.unravel_index(rows.argmax(), rows.shape))
    d = int(error[b, h, i].argmax())
    wrong = int((rows > EXACT_TOLERANCE).sum())
    example = {
        "b": b, "h": h, "i": i, "d": d,
        "expected": float(want[b, h, i, d]), "got": float(got[b, h, i, d]),
        "wrong_rows": wrong, "rows": rows.numel(),
    }  # fmt: skip
    reason = (
        f"{what} is wrong in {wrong} of {rows.numel()} rows: at b={b}, h={h}, i={i} expected "
        f"{example['expected']:.6g}, got {example['got']:.6g}"
    )
    return Failure(reason, counterexample=example), worst


def _lse_equal(got: Tensor, want: Tensor, what: str = "LSE") -> tuple[Failure | None, float]:
    if want.numel() == 0:
        return None, 0.0
    both = torch.isneginf(got) & torch.isneginf(want)
    error = ((got - want).abs() / want.abs().clamp_min(1.0)).nan_to_num(math.inf, math.inf)
    error = error.masked_fill(both, 0.0)
    worst = float(error.max())
    if worst <= EXACT_TOLERANCE:
        return None, worst
    b, h, i = (int(x) for x in torch.unravel_index(error.argmax(), error.shape))
    example = {"b": b, "h": h, "i": i, "expected": float(want[b, h, i]), "got": float(got[b, h, i])}
    reason = (
        f"{what} is wrong: at b={b}, h={h}, i={i} expected {example['expected']:.6g}, "
        f"got {example['got']:.6g}"
    )
    return Failure(reason, counterexample=example), worst


def _typed(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, dict[str, Any]]:
    """Declared types: at most twice the error of PyTorch in low precision, plus rounding."""
    inputs, sizes = _inputs(subject, case, seed)
    low = {
        n: t.to(subject.dtype) if isinstance(t, Tensor) and _is_element(subject.recipe, n) else t
        for n, t in inputs.items()
    }
    failure, out = _execute(subject, low, sizes, "typed", seed)
    row: dict[str, Any] = {"case": str(case), "mode": "typed"}
    if failure is not None:
        return failure, row
    wide = {
        n: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t
        for n, t in low.items()
    }
    want = expected(subject.recipe, wide)
    reference = output_as_bhnd(subject.recipe, oracle(subject.spec, wide, subject.options))
    plain = output_as_bhnd(subject.recipe, run_spec(subject.spec, low, subject.options)).double()
    kept = ~want.empty[..., None].expand_as(reference)
    got = output_as_bhnd(subject.recipe, out["O"]).double()
    if bool((got.masked_select(~kept) != 0).any()):
        return Failure("a row without a kept key is not 0"), row
    zero = torch.zeros(1, dtype=torch.float64)
    error = torch.cat([(got - reference).abs().masked_select(kept), zero])
    error = error.nan_to_num(math.inf, math.inf)
    allowed = torch.cat([(plain - reference).abs().masked_select(kept), zero])
    # Where PyTorch itself overflows it is no yardstick: such an element allows nothing.
    allowed = allowed.nan_to_num(0.0, 0.0, 0.0)
    largest = torch.cat([reference.abs().masked_select(kept), zero]).nan_to_num(0.0, 0.0, 0.0)
    bound = 2 * float(allowed.max()) + 2 * roundoff(subject.dtype) * float(largest.max())
    row |= {"error": float(error.max()), "bound": bound}
    if row["error"] > bound:
        reason = f"the rounding error {row['error']:.3g} is over FlashAttention's bound {bound:.3g}"
        return Failure(reason, counterexample={"case": str(case)}), row
    if want.lse is not None and "LSE" in out:
        failure, row["LSE"] = _typed_lse(out["LSE"].double(), want.lse)
        return failure, row
    return None, row


def roundoff(dtype: torch.dtype) -> float:
    """The unit roundoff of a format. What the largest |O| may meet by it is allowed, as in G4, and
    not what it happened to meet: where O is V itself (one key) PyTorch is exact, and a kernel that
    rounds weights before it normalises them is not."""
    return float(torch.finfo(dtype).eps) / 2


def _typed_lse(got: Tensor, want: Tensor) -> tuple[Failure | None, float]:
    both = torch.isneginf(got) & torch.isneginf(want)
    error = (got - want).abs().masked_fill(both, 0.0).nan_to_num(math.inf, math.inf)
    worst = float(error.max()) if error.numel() else 0.0
    bound = LSE_TOLERANCE * max(
        1.0, float(want.masked_fill(both, 0.0).abs().max()) if want.numel() else 1.0
    )
    if worst > bound:
        return Failure(f"LSE is off by {worst:.3g} in typed mode"), worst
    return None, worst


def _probe(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, dict[str, Any]]:
    """The keep set, exactly: one-hot V gives back every weight."""
    inputs, sizes = _inputs(subject, case, seed)
    want = expected(subject.recipe, inputs)
    keep = want.keep
    if subject.recipe.weight is not None:
        keep = keep & (want.weights != 0)  # relu gives kept pairs the weight of removed ones
    row: dict[str, Any] = {"case": str(case), "mode": "keep set"}
    failure, got = _weights(subject, inputs, sizes, seed)
    if failure is not None or got is None:
        return failure, row
    row["kept"] = int(keep.sum())
    wrong = (got != 0) != keep
    if not bool(wrong.any()):
        return None, row
    b, h, i, j = (int(x) for x in wrong.nonzero()[0])
    kept = bool(keep[b, h, i, j])
    example = {"b": b, "h": h, "i": i, "j": j, "expected": kept, "got": not kept}
    words, other = ("keeps", "masks") if kept else ("masks", "keeps")
    reason = (
        f"the keep set differs: at b={b}, h={h}, i={i}, j={j} the spec {words} the pair, "
        f"the target {other} it"
    )
    return Failure(reason, counterexample=example), row


def _weights(
    subject: Subject, inputs: Mapping[str, Any], sizes: Mapping[str, int], seed: int
) -> tuple[Failure | None, Tensor | None]:
    """[B, Hq, Nq, Nk]: every weight of the target, from one-hot V, head_dim keys at a time."""
    v = next(i for i in subject.recipe.inputs if i.role == "v")
    width = subject.head_dim
    parts: list[Tensor] = []
    for first in range(0, sizes["Nk"], width):
        columns = min(width, sizes["Nk"] - first)
        hot = as_bhnd(v, torch.zeros_like(inputs[v.name]))
        for d in range(columns):
            hot[:, :, first + d, d] = 1.0
        probe = dict(inputs) | {v.name: hot_like(v, hot, inputs[v.name])}
        failure, out = _execute(subject, probe, sizes, "exact", seed)
        if failure is not None:
            return failure, None
        parts.append(output_as_bhnd(subject.recipe, out["O"])[..., :columns])
    return None, torch.cat(parts, -1)


def _located(subject: Subject, deck: Sequence[Case], seed: int, failure: Failure) -> Failure:
    """The failure of a case with the first wrong op, where the numbers or the case tell it."""
    case = deck[seed]
    new = first_met(thresholds(subject.module), deck[:seed], case)
    if new is not None:
        one, outcome = new
        reason = f"{failure.reason}; it is the first run with {one.words(outcome)}"
        return replace(failure, reason=reason, op=_op(one.path))
    if failure.op is not None or not case.Nk or case.Nk > MAX_DIAGNOSED:
        return failure
    inputs, sizes = _inputs(subject, case, seed)
    fault, got = _weights(subject, inputs, sizes, seed)
    if fault is not None or got is None:
        return failure if fault is None else replace(failure, op=fault.op)
    want = expected(subject.recipe, inputs)
    weights = want.weights
    if want.lse is not None:
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    found = diagnose(subject.module, got, weights, sizes)
    if found is None:
        path = lse_path(subject.module) if failure.reason.startswith("LSE") else None
        return failure if path is None else replace(failure, op=_op(path))
    return replace(
        failure,
        reason=f"{failure.reason}; {found.words}",
        op=_op(found.path),
        counterexample={**found.example, "compared": "weights of one-hot V"},
    )


def hot_like(item: Input, hot: Tensor, like: Tensor) -> Tensor:
    """`hot` ([B, H, N, D], a view of a tensor in the spec's layout) back in that layout."""
    out = torch.zeros_like(like)
    as_bhnd(item, out).copy_(hot)
    return out


def _op(path: tuple[str | int, ...]) -> str:
    return "/".join(map(str, path))
