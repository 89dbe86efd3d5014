"""A kernel made of torch, right or broken on purpose: the checks are tried on it without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.cuir.parser import parse_expr
from engine.spec.python.signature import Asked
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.binding import Binding, ScalarField, SizeField, TensorField
from engine.worker.launches.result_rows import Tallies
from engine.worker.launches.specialisation import Subject
from engine.worker.problems.specrun import SpecRun

QUERY, KEY = ("B", "Hq", "Nq", "D"), ("B", "Hkv", "Nk", "D")

CAUSAL_SPEC = """
import math
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"]
) -> Float[Tensor, "B Hq Nq D"]:
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    n_q, n_k = q.size(-2), k.size(-2)
    scores = (q @ k.transpose(-2, -1)).float() / math.sqrt(q.size(-1))
    future = torch.ones(n_q, n_k, dtype=torch.bool, device=q.device).triu(n_k - n_q + 1)
    scores = scores.masked_fill(future, float("-inf"))
    return torch.softmax(scores, dim=-1).to(q.dtype) @ v
"""


def causal_recipe(keep: str = "j <= i + Nk - Nq", score: str = "x / sqrt(float(D))") -> Recipe:
    """The recipe of CAUSAL_SPEC; a test may misread it."""
    return Recipe(
        source="eager",
        inputs=(
            Input("q", "q", "T", QUERY),
            Input("k", "k", "T", KEY),
            Input("v", "v", "T", KEY),
        ),
        score=parse_expr(score),
        keep=parse_expr(keep),
        weight=None,
        kv_head=parse_expr("h // (Hq // Hkv)"),
        output_dims=QUERY,
        empty_rows="nan",
    )


def causal_binding() -> Binding:
    tensors = tuple(
        TensorField(field, source, dims, dims, dtype, output)
        for field, source, dims, dtype, output in (
            ("q", "q", QUERY, "T", False),
            ("k", "k", KEY, "T", False),
            ("v", "v", KEY, "T", False),
            ("o", "O", QUERY, "T", True),
            ("lse", "LSE", QUERY[:3], "f32", True),
        )
    )
    sizes = tuple(SizeField(s, s) for s in ("B", "Hq", "Hkv", "Nq", "Nk"))
    return Binding(tensors, sizes, (ScalarField("scale", parse_expr("1.0 / sqrt(float(D))")),))


@dataclass
class Fake:
    """Causal attention as a kernel computes it: float32 scores, P rounded to the inputs' format.

    Each hook breaks one thing; `calls` counts launches.
    """

    keep: Callable[[Tensor, Tensor, int, int], Tensor] = lambda i, j, nq, nk: j <= i + nk - nq
    scale: Callable[[float], float] = lambda s: s
    head: Callable[[Tensor, int, int], Tensor] = lambda h, hq, hkv: h // (hq // hkv)
    lse: Callable[[Tensor], Tensor] = lambda x: x
    finish: Callable[[Fake, Mapping[str, Any]], None] = lambda fake, fields: None
    status: Callable[[Mapping[str, Any]], int] = lambda fields: 0
    empty: float = 0.0
    calls: int = 0
    memory: dict[str, Any] = field(default_factory=dict)

    def __call__(self, fields: Mapping[str, Any]) -> int:
        self.calls += 1
        if status := self.status(fields):
            return status
        q, k, v, o = (fields[n] for n in ("q", "k", "v", "o"))
        if o.numel():
            self.attend(fields, q, k, v, o)
        self.finish(self, fields)
        return 0

    def attend(self, fields: Mapping[str, Any], q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> None:
        hq, hkv, nq, nk = (fields[n] for n in ("Hq", "Hkv", "Nq", "Nk"))
        head = self.head(torch.arange(hq), hq, hkv)
        s = q.float() @ k.float()[:, head].transpose(-1, -2) * self.scale(fields["scale"])
        i, j = torch.arange(nq)[:, None], torch.arange(nk)[None, :]
        s = s.masked_fill(~self.keep(i, j, nq, nk), float("-inf"))
        top = s.amax(-1, keepdim=True) if nk else s.new_full((*s.shape[:-1], 1), float("-inf"))
        p = torch.exp(s - torch.where(torch.isneginf(top), 0.0, top))
        total = p.sum(-1, keepdim=True)
        out = p.to(q.dtype).float() @ v.float()[:, head]
        o.copy_(torch.where(total > 0, out / total.clamp(min=1e-30), self.empty))
        value = torch.where(total > 0, top + total.log(), float("-inf"))[..., 0]
        fields["lse"].copy_(self.lse(value))


def subject(
    tmp_path: Path,
    fake: Fake,
    dtype: torch.dtype = torch.bfloat16,
    recipe: Asked | None = None,
    spec: str = CAUSAL_SPEC,
    short: bool = True,
) -> Subject:
    """A subject of D 64 on the CPU."""
    torch.set_num_threads(1)
    path = tmp_path / "spec.py"
    path.write_text(spec)
    run = SpecRun(path, {}, recipe or causal_recipe(), torch.device("cpu"))
    return Subject(
        "bf16_64",
        run,
        causal_binding(),
        fake,
        dtype,
        64,
        64,
        short,
        Tallies("bf16_64"),
        lambda s: None,
    )
