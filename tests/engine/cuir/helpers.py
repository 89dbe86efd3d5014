"""Programs, inputs and an oracle that shares no code with the executor."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.cuir.findings import Finding
from engine.cuir.nodes import Module, walk
from engine.cuir.parser import parse_module
from engine.cuir.printer import first_line
from engine.cuir.static.check import check

GOLDEN = Path(__file__).parents[2] / "golden" / "cuir"
torch.set_num_threads(1)


def golden_text(name: str) -> str:
    return (GOLDEN / f"{name}.cuir").read_text(encoding="utf-8")


def golden(name: str) -> Module:
    return parse_module(golden_text(name), f"{name}.cuir")


def faults(module: Module) -> tuple[Finding, ...]:
    """What is wrong with a module that is only run: it may have what no primitive does."""
    return tuple(f for f in check(module) if f.kind != "no_primitive")


def attention(q, k, v, scale):
    """Full attention in float64: O and natural-log LSE; rows without keys give 0 and -inf."""
    q, k, v = (t.double() for t in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) * scale
    lse = (
        torch.logsumexp(scores, -1) if k.shape[2] else torch.full(q.shape[:3], -torch.inf).double()
    )
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return weights @ v, lse


def low_precision(q, k, v, scale, dtype):
    """What PyTorch gives when it computes in `dtype`: FlashAttention's yardstick."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (t.to(dtype) for t in (q, k, v))
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("bhid,bhjd->bhij", q * scale, k)
    return torch.softmax(scores.float(), -1).to(dtype).nan_to_num(0.0) @ v


def make_inputs(B=1, Hq=2, Hkv=None, Nq=128, Nk=128, D=64, seed=0, dtype=torch.bfloat16):
    """Inputs of a flash forward; q, k, v exactly representable in `dtype`."""
    Hkv = Hkv or Hq
    make = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(shape, generator=make).to(dtype)

    tensors = {
        "q": randn(B, Hq, Nq, D),
        "k": randn(B, Hkv, Nk, D),
        "v": randn(B, Hkv, Nk, D),
        "o": torch.zeros(B, Hq, Nq, D),
        "lse": torch.zeros(B, Hq, Nq),
    }
    return tensors | {"B": B, "Hq": Hq, "Hkv": Hkv, "Nq": Nq, "Nk": Nk, "scale": D**-0.5}


def exact_error(outputs, inputs):
    """Largest error of O relative to its row's largest magnitude, and of LSE."""
    o, lse = attention(inputs["q"], inputs["k"], inputs["v"], inputs["scale"])
    if o.numel() == 0:
        return 0.0, 0.0
    row = o.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    error = ((outputs["o"].double() - o).abs() / row).nan_to_num(float("inf")).max().item()
    got = outputs["lse"].double()
    same = torch.where(got == lse, 0.0, (got - lse).abs()).nan_to_num(float("inf"))
    return error, same.max().item()


def typed_ok(outputs, inputs, dtype=torch.bfloat16):
    """FlashAttention's rule: at most twice the error of low-precision PyTorch, plus rounding."""
    o, _ = attention(inputs["q"], inputs["k"], inputs["v"], inputs["scale"])
    if o.numel() == 0:
        return True
    low = low_precision(inputs["q"], inputs["k"], inputs["v"], inputs["scale"], dtype).double()
    allowed = 2 * (low - o).abs().max().item() + torch.finfo(dtype).eps * o.abs().max().item()
    return (outputs["o"].double() - o).abs().max().item() <= allowed


def path_of(module, statement):
    """Paths of the statements that print like this."""
    hits = [path for path, stmt in walk(module) if first_line(stmt) == statement]
    assert hits, statement
    return hits
