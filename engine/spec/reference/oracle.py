"""The oracle: a spec in float64, what its recipe expects element by element, and the spec in low
precision, which is the yardstick of FlashAttention's rule.

`oracle` runs the user's own function with every float kept in float64. `expected` computes the
recipe straightforwardly in torch; it shares no index or mask code with any kernel, and
`engine.spec.validation.validate` holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cuir.scalar import evaluate
from engine.spec.python.flex_attention import Mod
from engine.spec.python.load import surroundings
from engine.spec.python.modes import OnCpu, Widen
from engine.spec.python.program import Program, index_grid, program_of
from engine.spec.python.signature import Described, fixed_sizes
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import OTHER, OUTPUT, Input, Recipe, places_of
from engine.spec.reference.sums import evaluated


def oracle(
    path: Path,
    inputs: Mapping[str, torch.Tensor],
    options: Mapping[str, object] | None = None,
) -> torch.Tensor:
    """The output of the spec's own function in float64, in the spec's own layout.

    `inputs` are the spec's tensors by name, in its layout, any dtype; casts inside the spec keep
    float64. Runs the user's code: call it in a child process only. Raises `SpecError`.
    """
    source = read_source(Path(path), options or {})
    program = program_of(source)
    with surroundings(source):
        return run_wide(program, inputs)


def run_wide(program: Program, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """`oracle` inside `surroundings`."""
    return wide_outputs(program, inputs)[0]


def wide_outputs(
    program: Program, inputs: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`run_wide`, and the spec's second output where it returns one."""
    wide = {t.name: widened(inputs[t.name]) for t in program.tensors}
    with OnCpu(), Widen():  # type: ignore[no-untyped-call]
        return program.outputs(wide, vmapped_mods)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Floats as float64, strides kept; the rest as it is."""
    return tensor.to(torch.float64) if tensor.dtype.is_floating_point else tensor


def vmapped_mods(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    score_mods: tuple[Mod, ...],
    mask_mods: tuple[Mod, ...],
    scale: float | None = None,
) -> torch.Tensor:
    """FlexAttention by its definition: each mod is vmapped over key, query, head and batch."""
    group = q.size(1) // k.size(1)
    head = torch.arange(q.size(1)) // group
    scores = torch.einsum("bhid,bhjd->bhij", q, k[:, head])
    scores = scores / q.size(-1) ** 0.5 if scale is None else scores * scale
    b, h, i, j = (t.reshape(-1) for t in index_grid(q, k))
    keep = torch.ones_like(scores, dtype=torch.bool)
    with _indexing():
        for mod in score_mods:
            scores = _over_all(mod, 5)(scores, b, h, i, j)
        for mod in mask_mods:
            keep = keep & _over_all(mod, 4)(b, h, i, j)
    scores = scores.masked_fill(~keep, float("-inf"))
    weights = torch.softmax(scores, -1).masked_fill(~keep.any(-1, keepdim=True), 0.0)
    # A mod that multiplies an index by a float leaves another type behind; so does PyTorch's own.
    return torch.einsum("bhij,bhjd->bhid", weights.to(v.dtype), v[:, head])


def _indexing() -> AbstractContextManager[object]:
    """What lets a vmapped index stand in brackets, as in `doc[j]`: PyTorch 2.6 needs what its own
    `create_mask` uses, newer ones nothing."""
    if _indexes_plainly():
        return nullcontext()
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    mode: AbstractContextManager[object] = TransformGetItemToIndex()
    return mode


@cache
def _indexes_plainly() -> bool:
    numbers = torch.arange(2)
    try:
        torch.vmap(lambda at: numbers[at])(numbers)
    except RuntimeError:
        return False
    return True


def _over_all(mod: Mod, parameters: int) -> Any:
    def call(*values: torch.Tensor) -> torch.Tensor:
        out = mod(*values)
        return out if isinstance(out, torch.Tensor) else torch.full((), out)

    fn: Any = call
    for place in (3, 2, 1, 0):  # key first, batch last
        dims: list[int | None] = [None] * 4
        dims[place] = 0
        fn = torch.vmap(fn, in_dims=((0, *dims) if parameters == 5 else tuple(dims)))
    return fn


# --- the recipe, element by element ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expected:
    """What the recipe says, float64, in the order [B, Hq, ...] whatever the spec's layout.

    `o` [B, Hq, Nq, Dv] with rows that keep nothing 0; `lse` [B, Hq, Nq], the logarithm of the
    softmax's sum, a sink included, natural or in the base that the spec has, for such rows -inf or
    the sink, None without softmax; `keep`, `weights`, and of each pair q . k and the score made of
    it (`products`, `scores`) [B, Hq, Nq, Nk].
    """

    o: torch.Tensor
    lse: torch.Tensor | None
    keep: torch.Tensor
    weights: torch.Tensor
    products: torch.Tensor
    scores: torch.Tensor

    @property
    def empty(self) -> torch.Tensor:
        """[B, Hq, Nq]: rows that keep no key."""
        return ~self.keep.any(-1)

    @property
    def taken(self) -> torch.Tensor:
        """[B, Hq, Nq]: rows that keep keys, each with a score of -inf. What a function gives there
        hangs on how it drops keys: filled with a number, the dropped ones take all weight."""
        gone = torch.zeros_like(self.empty) if self.lse is None else torch.isneginf(self.lse)
        return gone & ~self.empty


def expected(recipe: Recipe, inputs: Mapping[str, torch.Tensor], rounded: bool = False) -> Expected:
    """The recipe on `inputs` (the spec's tensors by name and layout, derived ones included).

    `rounded`: q and k, where something happens to them before their product, go into it in their
    own type, as kernels have them; what else is said is of float64 alone.
    """
    env, q, k, v = _multiplied(recipe, inputs, rounded)
    env["x"] = q @ k.transpose(-1, -2)
    keep, scores, weights, lse = weighed(recipe, env | _rows(recipe, inputs))
    if lse is not None and recipe.lse == "2":
        lse = lse / math.log(2.0)
    o = _kept_sum(weights, keep, v)
    row = {**of_row(env), "d": torch.arange(o.size(-1))}
    if recipe.other is not None:
        other = expected(recipe.alone(other=True), inputs, rounded).o
        value = evaluated(recipe.other.value, {**row, OUTPUT.id: o, OTHER.id: other})
        o = _broadcast(value, tuple(o.shape)).to(torch.float64)
    if recipe.output != OUTPUT:
        value = evaluated(recipe.output, {**row, OUTPUT.id: o})
        o = _broadcast(value, tuple(o.shape)).to(torch.float64)
    o = o.masked_fill(~keep.any(-1, keepdim=True), 0.0)
    return Expected(o, lse, keep, weights, env["x"], scores)


def _multiplied(
    recipe: Recipe, inputs: Mapping[str, torch.Tensor], rounded: bool
) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor, torch.Tensor]:
    """What expressions read, and q, k and v as they are multiplied, k and v of each query head."""
    given = {role: canonical_layout(recipe, role, inputs) for role in ("q", "k", "v")}
    env = environment(recipe, inputs, **given)
    q, k = (operand(recipe, role, inputs, env) for role in ("q", "k"))
    v = given["v"].to(torch.float64)
    if rounded:
        q = q.to(given["q"].dtype).to(torch.float64)
        k = k.to(given["k"].dtype).to(torch.float64)
    head = _broadcast(evaluate(recipe.kv_head, {**env, "h": torch.arange(q.size(1))}), (q.size(1),))
    head = head.to(torch.int64)
    return env, q, k[:, head], v[:, head]


def _rows(recipe: Recipe, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {i.name: widened(inputs[i.name]) for i in recipe.inputs if i.role in ("q", "k")}


def weighed(
    recipe: Recipe, env: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """What is kept, the scores, and the weights in the output's sum, 0 where nothing is, of the
    products `x` [..., rows, keys] in `env`; and the natural logarithm of the softmax's sum
    [..., rows]. All float64."""
    shape = tuple(env["x"].shape)
    keep = _broadcast(evaluate(recipe.keep, env), shape).to(torch.bool)
    score = _broadcast(evaluated(recipe.score, env), shape).to(torch.float64)
    if recipe.weight is not None:
        weights = _broadcast(evaluate(recipe.weight, {**env, "s": score}), shape).to(torch.float64)
        return keep, score, weights.masked_fill(~keep, 0.0), None
    masked = _with_sink(recipe, env, score.masked_fill(~keep, -torch.inf))
    lse = torch.logsumexp(masked, -1) if masked.size(-1) else torch.full(shape[:-1], -torch.inf)
    lse = lse.to(torch.float64)
    # Not exp(masked - lse): beside scores of a type's smallest number lse loses log(sum).
    nothing = torch.isneginf(lse)[..., None]
    weights = torch.where(nothing, 0.0, torch.softmax(masked, -1))[..., : shape[-1]]
    if recipe.late is not None:
        weights = weights * _broadcast(evaluated(recipe.late, env), shape).to(torch.float64)
    return keep, score, weights.masked_fill(~keep, 0.0), lse


def rounding_of_lse(
    recipe: Recipe, inputs: Mapping[str, torch.Tensor], lse: torch.Tensor, live: torch.Tensor
) -> float:
    """How far `expected`'s `lse` moves, at most over the rows `live`, where q and k are rounded to
    their type before their product; 0 where nothing happens to them."""
    if not (recipe.changes_operands and bool(live.any())):
        return 0.0
    rounded = expected(recipe, inputs, rounded=True).lse
    assert rounded is not None
    return float((rounded - lse).abs()[live].max())


def arithmetic_of_lse(
    recipe: Recipe, inputs: Mapping[str, torch.Tensor], unit: float
) -> torch.Tensor:
    """[B, Hq, Nq]: how far a kernel's LSE may be from `expected`'s by its arithmetic alone.

    Each product q . k is off by up to sqrt(D) units of the sum of its terms' sizes (Higham and
    Mary 2019: rounding errors of a sum add up as a walk), and LSE by what that moves it. The rest
    is in float32: a few roundings of each score, of the maximum and of the logarithm, and one of
    the sum with each key. Weights are off by a unit of their own.

    Args:
        unit: the unit roundoff of the arithmetic that q . k is made in.
    """
    env, q, k, _ = _multiplied(recipe, inputs, rounded=False)
    rows = _rows(recipe, inputs)
    x = q @ k.transpose(-1, -2)
    off = unit * math.sqrt(max(q.size(-1), 1)) * (q.abs() @ k.abs().transpose(-1, -2))
    _, scores, weights, lse = weighed(recipe, {**env, "x": x} | rows)
    assert lse is not None
    moved = torch.zeros_like(lse)
    for x_off in (x + off, x - off):
        other = weighed(recipe, {**env, "x": x_off} | rows)[3]
        assert other is not None
        moved = torch.maximum(moved, (other - lse).abs().nan_to_num(0.0, 0.0, 0.0))
    keys = x.size(-1)
    size = (weights * scores.nan_to_num(0.0, 0.0, 0.0).abs()).sum(-1)
    size = size + lse.nan_to_num(0.0, 0.0, 0.0).abs() + math.log(keys + 1)
    eps = torch.finfo(torch.float32).eps
    out = moved + 2 * unit + eps * (keys / 2 + 2 * (size + 1))
    return out / math.log(2.0) if recipe.lse == "2" else out


def operand(
    recipe: Recipe, role: str, inputs: Mapping[str, torch.Tensor], env: Mapping[str, Any]
) -> torch.Tensor:
    """q or k as it is multiplied, [B, heads, rows, D]; `env` has sizes and extra inputs."""
    raw = canonical_layout(recipe, role, inputs).to(torch.float64)
    made = recipe.q if role == "q" else recipe.k
    if made is None:
        return raw
    name = next(i.name for i in recipe.inputs if i.role == role)
    axes = ("b", "h", "i" if role == "q" else "j", "dd")
    shape = (*raw.shape[:3], int(env["D"]))  # of which the input itself may be a part
    at = {
        name: torch.arange(size, device=raw.device).reshape(-1, *[1] * (3 - place))
        for place, (name, size) in enumerate(zip(axes, shape, strict=True))
    }
    value = torch.as_tensor(evaluated(made, {**env, name: widened(inputs[name]), **at}))
    return value.to(torch.float64).broadcast_to(shape)


def _kept_sum(weights: torch.Tensor, keep: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """weights @ v where a removed pair is left out, not multiplied by zero: its v may be NaN."""
    strange = ~torch.isfinite(v)
    if not bool(strange.any()):
        return weights @ v
    o = weights @ v.masked_fill(strange, 0.0)
    touched = keep.to(torch.float64) @ strange.to(torch.float64) > 0
    return o.masked_fill(touched, torch.nan)


def _with_sink(recipe: Recipe, env: Mapping[str, Any], masked: torch.Tensor) -> torch.Tensor:
    """Masked scores [..., rows, keys], the sink as one more column behind them."""
    if recipe.sink is None:
        return masked
    value = evaluate(recipe.sink, of_row(env))
    column = _broadcast(value, (*masked.shape[:-1], 1)).to(torch.float64)
    return torch.cat([masked, column], -1)


def of_row(env: Mapping[str, Any]) -> dict[str, Any]:
    """What a row knows without its keys."""
    return {n: e for n, e in env.items() if n not in ("j", "x")}


def environment(
    recipe: Recipe,
    inputs: Mapping[str, torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
) -> dict[str, Any]:
    """Sizes, indices and extra inputs by name, to evaluate the recipe's expressions with."""
    b, h, i, j = index_grid(q, k)
    env: dict[str, Any] = {"b": b, "h": h, "i": i, "j": j}
    env |= sizes_of(q, k, v) | fixed_sizes(recipe.constraints)
    for item in recipe.extra():
        tensor = inputs[item.name]
        env[item.name] = tensor.item() if not item.dims else widened(tensor)
        for name, size in zip(item.dims, tensor.shape, strict=True):
            env.setdefault(name, size)
    return env


def sizes_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, int]:
    """B, Hq, Hkv, Nq, Nk, D and Dv of tensors in the order [B, heads, rows, columns]."""
    return {
        "B": q.size(0), "Hq": q.size(1), "Nq": q.size(2), "D": q.size(3),
        "Hkv": k.size(1), "Nk": k.size(2), "Dv": v.size(3),
    }  # fmt: skip


def canonical_layout(
    asked: Described, role: str, inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """q, k or v as [B, heads, rows, columns] (a view), whatever the spec's order of dimensions."""
    item = next(i for i in asked.inputs if i.role == role)
    return as_bhnd(item, inputs[item.name])


def as_bhnd(item: Input, tensor: torch.Tensor) -> torch.Tensor:
    places = places_of(item.dims)
    out = tensor.permute([p for p in places if p is not None])
    for axis, place in enumerate(places):
        if place is None:
            out = out.unsqueeze(axis)
    return out


def output_as_bhnd(asked: Described, o: torch.Tensor) -> torch.Tensor:
    """The spec's output as [B, Hq, Nq, Dv] (a view)."""
    return as_bhnd(Input("o", "extra", "T", asked.output_dims), o)


def _broadcast(value: Any, shape: tuple[int, ...]) -> torch.Tensor:
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    return tensor.broadcast_to(shape)


def run_spec(path: Path, inputs: Mapping[str, Any], options: Mapping[str, object]) -> Tensor:
    """The output of the spec's own function on `inputs` as they are, casts and all.

    Runs the user's code: call it in a child process only. Raises `SpecError`.
    """
    source = read_source(path, dict(options))
    program = program_of(source)
    with surroundings(source):
        return run_as_it_is(program, inputs)


def run_as_it_is(program: Program, inputs: Mapping[str, Any]) -> Tensor:
    """`run_spec` inside `surroundings`: what the spec makes without a type is float32, as in
    PyTorch where nobody says otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with OnCpu():
            given = {t.name: inputs[t.name].clone() for t in program.tensors}
            return program.run(given, vmapped_mods)
    finally:
        torch.set_default_dtype(before)
