"""Draws and bounds of a reference's case: a kernel that is off by one key is off by far more than
what it may be, one that rounds as kernels do is not; and references that say nothing are told."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.errors import SpecError
from engine.gates.g1_g2.reference_case import wanted
from engine.ptx.floats import from_half
from engine.resources import specs_dir
from engine.spec.read import read_recipe
from engine.spec.recipes.recipe_json import recipe_to_json

SPEC = """
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]
) -> Float[Tensor, "B H Nq D"]:
    o = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
    return {}
"""
TYPES = {"q": "bf16", "k": "bf16", "v": "bf16"}
Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def asked(spec: Path, folder: Path, sizes: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"spec": str(spec), "options": {}, "recipe": None, "sizes": sizes, "values": "marked",
            "seed": 0, "unit": 2.0**-24, "types": TYPES, "folder": str(folder), **more}  # fmt: skip


def more(k: Tensor, v: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([k, key], 2), torch.cat([v, value], 2)


def last_zero(tensor: Tensor) -> Tensor:
    out = tensor.clone()
    out[:, :, -1] = 0
    return out


WRONG: dict[str, Change] = {
    "a key of zeros more": lambda k, v: more(k, v, 0 * k[:, :, :1], 0 * v[:, :, :1]),
    "a key of zeros more, with a value": lambda k, v: more(k, v, 0 * k[:, :, :1], v[:, :, -1:]),
    "the next head's first key more": lambda k, v: more(
        k, v, k.roll(-1, 1)[:, :, :1], v.roll(-1, 1)[:, :, :1]
    ),
    "the last key twice": lambda k, v: more(k, v, k[:, :, -1:], v[:, :, -1:]),
    "a tile's key again": lambda k, v: more(k, v, k[:, :, -4:-3], v[:, :, -4:-3]),
    "no last key": lambda k, v: (k[:, :, :-1], v[:, :, :-1]),
    "no first key": lambda k, v: (k[:, :, 1:], v[:, :, 1:]),
    "a last key of zeros": lambda k, v: (last_zero(k), v),
    "a last value of zeros": lambda k, v: (k, last_zero(v)),
    "heads in another order": lambda k, v: (k.flip(1), v.flip(1)),
}


def of_a_kernel(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """O as kernels compute it: scores and sums in float32, weights and O in bf16."""
    s = (q @ k.transpose(-2, -1)) * scale
    p = torch.exp(s - s.amax(-1, keepdim=True))
    return ((p.bfloat16().float() @ v) / p.sum(-1, keepdim=True)).bfloat16().float()


@pytest.mark.parametrize(("rows", "keys", "dim"), [(5, 7, 16), (9, 33, 32), (20, 257, 64)])
def test_one_key_more_or_less_is_far_beyond_the_bound(
    tmp_path: Path, rows: int, keys: int, dim: int
) -> None:
    spec = specs_dir() / "full.py"
    sizes = {"B": 2, "Hq": 2, "Hkv": 2, "Nq": rows, "Nk": keys, "D": dim, "Dv": dim}
    recipe = recipe_to_json(read_recipe(spec, {}))
    wanted(asked(spec, tmp_path, sizes, recipe=recipe))
    q, k, v = (
        torch.from_numpy(from_half(np.load(tmp_path / f"{n}.npy"), "bf16").astype(np.float32))
        for n in "qkv"
    )
    o, bound = (torch.from_numpy(np.load(tmp_path / f"{n}.npy")) for n in ("o", "o_bound"))

    def share(k: Tensor, v: Tensor) -> float:
        """The largest error, in bounds."""
        error = (of_a_kernel(q, k, v, 1 / math.sqrt(dim)).double() - o).abs()
        return float((error / bound[..., None]).max())

    assert share(k, v) < 1
    least = min((share(*change(k, v)), name) for name, change in WRONG.items())
    assert least[0] > 4, least


def test_logits_are_beyond_what_exp_takes(tmp_path: Path) -> None:
    sizes = {"B": 1, "Hq": 1, "Hkv": 1, "Nq": 9, "Nk": 7, "D": 128, "Dv": 128}
    spec = specs_dir() / "full.py"
    wanted(asked(spec, tmp_path, sizes, recipe=recipe_to_json(read_recipe(spec, {}))))
    lse = np.load(tmp_path / "lse.npy")
    assert lse.max() > 89 and lse.min() < -104  # exp(float32) is inf, and 0


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("o + torch.randn_like(o) / 100", "gives another output for the same inputs"),
        ("torch.zeros(3, 4)", r"returns \[3, 4\], and \[1, 1, 5, 8\] is declared: B Hq Nq D"),
    ],
)
def test_a_reference_that_is_no_function_of_its_inputs(
    tmp_path: Path, result: str, message: str
) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(SPEC.format(result))
    sizes = {"B": 1, "H": 1, "Nq": 5, "Nk": 7, "D": 8, "Hq": 1, "Hkv": 1, "Dv": 8}
    with pytest.raises(SpecError, match=message):
        wanted(asked(spec, tmp_path, sizes))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("o * float('nan')", "the reference is NaN in every row"),
        (
            "torch.cat([o[..., :-1], o[..., -1:] * float('nan')], -1)",
            "nan at b=0, h=0, i=0, d=7, where keys",
        ),
    ],
)
def test_a_reference_that_is_not_finite_is_told_as_that(
    tmp_path: Path, result: str, message: str
) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(SPEC.format(result))
    sizes = {"B": 1, "H": 1, "Nq": 5, "Nk": 7, "D": 8, "Hq": 1, "Hkv": 1, "Dv": 8}
    assert message in wanted(asked(spec, tmp_path, sizes))["skipped"]
