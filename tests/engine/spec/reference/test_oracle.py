"""The oracle in float64, what a recipe expects, derived tables, and inputs for decks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import InputError, SpecError
from engine.resources import specs_dir
from engine.spec import Recipe, derive_inputs, expected, make_inputs, read_recipe
from engine.spec.decks.deck_inputs import violated
from engine.spec.reference.oracle import oracle, run_spec

Read = Callable[..., Recipe]
SIZES = {"B": 2, "Hq": 6, "Hkv": 2, "Nq": 9, "Nk": 12, "D": 8, "Dv": 8}
IMPORTS = "import math\nimport torch\nfrom torch import Tensor\nfrom jaxtyping import *\n"
QKV = 'q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]'


def spec(name: str) -> Path:
    return specs_dir() / f"{name}.py"


def test_casts_inside_the_spec_do_not_round(write: Callable[[str], Path]) -> None:
    path = write(
        f"{IMPORTS}\ndef attention({QKV}):\n"
        "    s = (q.to(torch.bfloat16) @ k.mT.half().to(q.dtype)).float() * torch.tensor(0.1)\n"
        "    return torch.softmax(s, -1, dtype=torch.float32).to(torch.float16) @ v\n"
    )
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    exact = torch.softmax(q @ k.mT * 0.1, -1) @ v
    out = oracle(path, {"q": q, "k": k, "v": v})
    assert out.dtype == torch.float64
    assert float((out - exact).abs().max()) < 1e-14


def test_low_precision_inputs_are_taken_at_their_values() -> None:
    inputs = {n: torch.randn(1, 2, 6, 8).to(torch.bfloat16) for n in "qkv"}
    wide = {n: t.to(torch.float64) for n, t in inputs.items()}
    assert bool((oracle(spec("causal"), inputs) == oracle(spec("causal"), wide)).all())


def test_expected_lse_keep_and_weights_of_causal() -> None:
    recipe = read_recipe(spec("causal"))
    sizes = {**SIZES, "Nq": 5, "Nk": 2}
    inputs = make_inputs(recipe, sizes, 0)
    found = expected(recipe, inputs)
    kept = torch.tensor([[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]], dtype=torch.bool)
    assert bool((found.keep == kept).all())
    assert bool((found.o[:, :, :3] == 0).all())
    assert found.lse is not None
    assert bool(torch.isneginf(found.lse[:, :, :3]).all())
    x = inputs["q"][0, 5, 3] @ inputs["k"][0, 1, 0] / math.sqrt(8)
    assert float(found.lse[0, 5, 3]) == pytest.approx(float(x), abs=1e-14)
    assert bool((found.weights.sum(-1)[:, :, 3:] - 1).abs().max() < 1e-14)


def test_values_of_removed_keys_do_not_matter() -> None:
    recipe = read_recipe(spec("causal"))
    inputs = make_inputs(recipe, {**SIZES, "Nq": 4, "Nk": 4}, 0)
    clean = expected(recipe, inputs)
    inputs["v"][:, :, 3] = math.nan
    dirty = expected(recipe, inputs)
    # The first three rows drop key 3; weights times NaN would not.
    assert bool((dirty.weights == clean.weights).all())
    assert bool((dirty.o[:, :, :3] == clean.o[:, :, :3]).all())
    assert bool(dirty.o[:, :, 3].isnan().all())


def test_no_keys_at_all() -> None:
    recipe = read_recipe(spec("causal"))
    found = expected(recipe, make_inputs(recipe, {**SIZES, "Nk": 0}, 0))
    assert bool((found.o == 0).all()) and found.lse is not None
    assert bool(torch.isneginf(found.lse).all())


def test_alibi_slopes_for_any_number_of_heads() -> None:
    path = spec("alibi_causal")
    recipe = read_recipe(path)
    wanted = {
        4: [2**-2.0, 2**-4.0, 2**-6.0, 2**-8.0],
        6: [2**-2.0, 2**-4.0, 2**-6.0, 2**-8.0, 2**-1.0, 2**-3.0],
        1: [2**-8.0],
    }
    for heads, slopes in wanted.items():
        inputs = make_inputs(recipe, {**SIZES, "Hq": heads, "Hkv": 1}, 0)
        table = derive_inputs(path, recipe, inputs)["slopes"]
        assert table.tolist() == slopes


def test_tables_come_from_extras_without_running_the_attention(
    write: Callable[[str], Path],
) -> None:
    path = write(
        f'{IMPORTS}\ndef attention({QKV}, start: Bool[Tensor, "B Nk"]):\n'
        "    document = start.long().cumsum(-1)\n"
        "    rows = document[:, -q.size(2) :]\n"
        "    keep = (rows[:, :, None] == document[:, None])[:, None]\n"
        "    return (q @ k.mT).masked_fill(~keep, -math.inf).softmax(-1) @ v\n"
    )
    recipe = read_recipe(path)
    (table,) = recipe.extra()
    assert (table.name, table.dtype, table.dims) == ("document", "i32", ("B", "Nk"))
    assert table.derive is not None and table.derive.startswith("7:")
    # q and k could not be multiplied at this size on any machine.
    n = 1 << 18
    inputs = {name: torch.empty(1, 64, n, 128, device="meta") for name in "qkv"}
    inputs["start"] = torch.zeros(1, n, dtype=torch.bool)
    inputs["start"][0, [0, 5, 100]] = True
    document = derive_inputs(path, recipe, inputs)["document"]
    assert document.shape == (1, n) and document[0, [0, 4, 5, 99, 100]].tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("past", ["1 << 31", "-(1 << 31) - 1", "1 << 40"])
def test_a_table_that_32_bits_do_not_hold_is_refused(
    write: Callable[[str], Path], past: str
) -> None:
    text = (
        f'{IMPORTS}\ndef attention({QKV}, start: Bool[Tensor, "B Nk"]):\n'
        "    document = (start.long() * (PAST)).sort(-1).values\n"
        "    keep = (document != 0)[:, None, None]\n"
        "    return (q @ k.mT).masked_fill(~keep, -math.inf).softmax(-1) @ v\n"
    )
    inputs = {name: torch.empty(1, 1, 4, 8, device="meta") for name in "qkv"}
    inputs["start"] = torch.tensor([[True, False, False, True]])
    fits, wide = write(text.replace("PAST", "(1 << 31) - 1")), text.replace("PAST", past)
    recipe = read_recipe(fits)
    assert int(derive_inputs(fits, recipe, inputs)["document"].max()) == 2**31 - 1
    with pytest.raises(SpecError, match=r"table document holds .* kernels read 32 bits"):
        read_recipe(write(wide))


def test_inputs_of_decks() -> None:
    recipe = read_recipe(spec("bias_gqa"))
    flat, peaked = make_inputs(recipe, SIZES, 3), make_inputs(recipe, SIZES, 3, "peaked")
    assert bool((peaked["q"] == flat["q"] * 10).all())
    bias = make_inputs(recipe, SIZES, 3, "bias-inf")["bias"]
    assert bool(torch.isneginf(bias).any()) and not bool(torch.isneginf(flat["bias"]).any())
    low = make_inputs(recipe, SIZES, 3, dtype=torch.bfloat16)
    assert low["q"].dtype == torch.bfloat16 and low["bias"].dtype == torch.bfloat16


def test_documents_are_sorted_runs() -> None:
    recipe = read_recipe(spec("causal_document"))
    doc = make_inputs(recipe, {**SIZES, "Nk": 200}, 5)["doc_k"]
    assert doc.dtype == torch.int32 and bool((doc.diff(dim=-1) >= 0).all()) and int(doc.max()) > 1


def test_sizes_outside_the_spec_are_refused() -> None:
    recipe = read_recipe(spec("flex_causal_document"))
    assert violated(recipe, SIZES) is None
    with pytest.raises(InputError, match="Nq <= Nk"):
        make_inputs(recipe, {**SIZES, "Nq": 13}, 0)


def test_mods_are_vmapped_as_in_flex_attention(write: Callable[[str], Path]) -> None:
    # Broadcast, this mod would see every head's entry at once; vmapped, one: they must agree.
    path = write(
        f'{IMPORTS}\ndef attention_mods(gate: Float[Tensor, "Hq"], doc: Int32[Tensor, "Nk"]):\n'
        "    def score_mod(score, b, h, q, kv):\n        return score + gate[h] * (kv - q)\n"
        "    def mask_mod(b, h, q, kv):\n        return (doc[kv] > 0) | (kv == q)\n"
        "    return mask_mod, score_mod\n"
    )
    recipe = read_recipe(path)
    inputs = make_inputs(recipe, SIZES, 1)
    ours = expected(recipe, inputs)
    gap = (oracle(path, inputs) - ours.o).abs().amax(-1)
    assert float(gap[~ours.empty].max()) < 1e-13


def test_a_misread_recipe_cannot_leave(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.cuir.parser import parse_expr
    from engine.spec import read

    plain = read.canonical_predicate
    path = write(
        f"{IMPORTS}\ndef attention({QKV}):\n    i = torch.arange(q.size(2))[:, None]\n"
        "    s = (q @ k.mT).masked_fill(torch.arange(k.size(2)) > i, -math.inf)\n"
        "    return s.softmax(-1) @ v\n"
    )
    assert plain(parse_expr("j <= i"), {}) == read_recipe(path).keep
    monkeypatch.setattr(read, "canonical_predicate", lambda e, kinds: parse_expr("j < i"))
    assert plain(read_recipe(path).keep, {}) == parse_expr("j <= i")  # the solver tells them apart
    monkeypatch.setattr(read, "_simplified", lambda keep, kinds: parse_expr("j < i"))
    with pytest.raises(SpecError, match="misread"):
        read_recipe(path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    "line",
    [
        "score + (j - i) * torch.exp2(-((h + 1) * 8.0 / 6))",
        "score + (j - i) * ((h + 1) / 6)",
        "score - 0.1 * (i - j).abs()",
        "score * 2 + h.to(torch.float64)",
        "(score.float() + b / 3).double()",
    ],
)
def test_a_mod_may_leave_its_score_in_any_type_as_in_pytorch(
    line: str, dtype: torch.dtype, write: Callable[[str], Path]
) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    body = f"    def mod(score, b, h, i, j):\n        return {line}\n"
    path = write(f"{IMPORTS}\ndef attention_mods():\n{body}    return mod\n")
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def mod(score, b, h, i, j):\n    return {line}", scope)
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 6, n, 16).to(dtype) for n in (9, 12, 12))
    out = run_spec(path, {"q": q, "k": k, "v": v}, {})
    theirs = flex_attention(q, k, v, score_mod=scope["mod"])
    exact = flex_attention(q.double(), k.double(), v.double(), score_mod=scope["mod"])
    assert out.dtype == dtype
    allowed = 2 * float((theirs.double() - exact).abs().max()) + torch.finfo(dtype).eps
    assert float((out.double() - exact).abs().max()) <= allowed


def test_weights_beside_the_types_smallest_number_are_those_of_a_softmax() -> None:
    """log(sum) is lost beside a row max of -1.8e308: exp(s - lse) would be 1 for every key."""
    recipe = read_recipe(spec("bias_gqa"))
    sizes = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 3, "Nk": 5, "D": 8, "Dv": 8}
    inputs = make_inputs(recipe, sizes, 1)
    bias = next(i.name for i in recipe.extra())
    inputs[bias] = torch.full_like(inputs[bias], torch.finfo(torch.bfloat16).min)
    inputs[bias][..., 0, :] = -torch.inf  # a row that keeps its keys, and gives them no weight
    weights = expected(recipe, inputs).weights
    assert bool((weights[..., 0, :] == 0).all())
    assert torch.allclose(weights[..., 1:, :].sum(-1), torch.ones((), dtype=torch.float64))
