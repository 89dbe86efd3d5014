"""Equivalent writings of one variant, assembled from the ways in which people write its parts.

A family has parts (how heads are shared, how scores are made, how the mask is applied, how weights
are normalised); writing number n takes part n modulo the number of ways of each, so that all ways
occur and no two writings are alike.
"""

# ruff: noqa: E501  (a spec in a table reads better on few lines)

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int32
from torch import Tensor

{helpers}

def attention(
    q: Float[Tensor, "B Hq Nq D"],
    k: Float[Tensor, "B Hkv Nk D"],
    v: Float[Tensor, "B Hkv Nk D"],{extras}
):
    B, H, Nq, D = q.shape
    Nk = k.size(2)
    off = {off}
"""

GROUPS = [
    "k = k.repeat_interleave(H // k.size(1), dim=1)\nv = v.repeat_interleave(H // v.size(1), dim=1)",
    "g = H // k.size(1)\n"
    "k = k[:, :, None].expand(B, H // g, g, Nk, D).reshape(B, H, Nk, D)\n"
    "v = v[:, :, None].expand(-1, -1, g, -1, -1).reshape(B, H, Nk, -1)",
    "owner = torch.arange(H) // (H // k.size(1))\nk, v = k[:, owner], v[:, owner]",
    "g = H // k.size(1)\nk = torch.repeat_interleave(k, g, 1)\n"
    "v = torch.stack([v] * g, dim=2).flatten(1, 2)",
    "owner = torch.arange(H).div(H // k.size(1), rounding_mode='floor')\n"
    "k, v = k.index_select(1, owner), v.index_select(1, owner)",
]

SCORES = [
    "s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
    "s = torch.einsum('bhid,bhjd->bhij', q, k) * q.shape[-1] ** -0.5",
    "s = torch.matmul(q * (1 / D**0.5), k.mT).float()",
    "s = (q * D**-0.25) @ (k * D**-0.25).permute(0, 1, 3, 2)",
    "s = torch.baddbmm(torch.empty(B * H, Nq, Nk), q.reshape(B * H, Nq, D),\n"
    "                  k.reshape(B * H, Nk, D).transpose(1, 2), beta=0, alpha=1 / math.sqrt(D))\n"
    "s = s.view(B, H, Nq, Nk)",
    "s = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).unflatten(0, (B, H))\n"
    "s = s.div(math.sqrt(D)).to(torch.float32)",
    "s = (q.unsqueeze(3) * k.unsqueeze(2)).sum(-1) * torch.rsqrt(torch.tensor(float(D)))",
]

SOFTMAXES = [
    "return torch.softmax(s.float(), -1).to(q.dtype) @ v",
    "return F.softmax(s, dim=-1, dtype=torch.float32).type_as(q) @ v",
    "m = s.amax(-1, keepdim=True)\np = torch.exp(s - m)\n"
    "return torch.einsum('bhij,bhjd->bhid', p / p.sum(-1, keepdim=True), v)",
    "return (s - torch.logsumexp(s, -1, keepdim=True)).exp() @ v",
    "e = torch.exp(s - s.max(-1, keepdim=True).values)\n"
    "return (e @ v) / e.sum(dim=-1, keepdim=True)",
    "return torch.log_softmax(s, -1).exp().matmul(v)",
    "m = s.max(-1, keepdim=True)[0]\nm = torch.where(m == -math.inf, 0.0, m)\n"
    "e = torch.exp2((s - m) * math.log2(math.e))\n"
    "return (e / e.sum(-1, keepdim=True)) @ v",
    "return torch.nan_to_num(s.softmax(-1), nan=0.0).bmm(v) if s.dim() == 3 else "
    "torch.nan_to_num(s.softmax(-1)) @ v",
]

# `ok(i, j)` is the predicate of a family: each way applies it to s. KEEP builds a bool [Nq, Nk].
APPLY = [
    "s = s.masked_fill(~keep, float('-inf'))",
    "s = torch.where(keep, s, torch.tensor(-math.inf))",
    "s = s + torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)",
    "s = s.masked_fill(keep.logical_not(), torch.finfo(s.dtype).min)",
    "s += (1.0 - keep.float()) * -1e9",
    "s.masked_fill_(torch.logical_not(keep), -torch.inf)",
    "s = s + keep.float().log()",
    "s = torch.where(keep == 0, -1e30, s)",
    "s = torch.minimum(s, torch.where(keep, math.inf, -math.inf))",
]

I_J = "i = torch.arange(Nq)[:, None] + off\nj = torch.arange(Nk)[None, :]"


@dataclass(frozen=True)
class Family:
    """Ways to write the parts of a variant; `twins` differ from it by one."""

    name: str
    middles: list[str]
    twins: list[str]
    off: str = "Nk - Nq"
    extras: str = ""
    helpers: str = ""
    endings: tuple[str, ...] = tuple(SOFTMAXES)
    apply: tuple[str, ...] = tuple(APPLY)
    count: int = 24

    def writing(self, n: int, middle: str | None = None) -> str:
        parts = [
            GROUPS[n % len(GROUPS)], SCORES[n % len(SCORES)],
            self.middles[n % len(self.middles)] if middle is None else middle,
        ]  # fmt: skip
        if self.apply and "keep =" in parts[-1]:
            parts.append(self.apply[n % len(self.apply)])
        parts.append(self.endings[n % len(self.endings)])
        body = "\n".join(parts).replace("\n", "\n    ")
        head = HEAD.format(helpers=self.helpers, extras=self.extras, off=self.off)
        return f"{head}    {body}\n"

    def texts(self) -> list[str]:
        return [self.writing(n) for n in range(self.count)]

    def twin_texts(self) -> list[str]:
        return [self.writing(0, middle) for middle in self.twins]


CAUSAL = [
    f"{I_J}\nkeep = j <= i",
    "keep = torch.ones(Nq, Nk, dtype=torch.bool).tril(off)",
    "keep = ~torch.ones(Nq, Nk, dtype=torch.bool).triu(off + 1)",
    "keep = torch.tril(torch.ones(Nq, Nk), diagonal=off) == 1",
    f"{I_J}\nkeep = torch.logical_not(j > i)",
    "i, j = torch.meshgrid(torch.arange(Nq), torch.arange(Nk), indexing='ij')\nkeep = i + off - j >= 0",
    "i = torch.arange(off, off + Nq)\nj = torch.arange(Nk)\nkeep = i.view(-1, 1).ge(j)",
    "i = torch.ones(Nq).cumsum(0) - 1 + off\nj = torch.arange(0.0, Nk)\nkeep = j[None] - i[:, None] < 0.5",
    "keep = torch.zeros(Nq, Nk, dtype=torch.bool)\n"
    "for row in range(Nq):\n    keep[row, : max(0, row + off + 1)] = True",
    "keep = torch.tensor([[j <= i + off for j in range(Nk)] for i in range(Nq)])",
    "keep = torch.from_numpy(np.tril(np.ones((Nq, Nk), dtype=bool), off))",
    "keep = causal(Nq, Nk, off)",
    f"{I_J}\nkeep = (j < i + 1) & (j >= 0) & (j < Nk)",
    f"{I_J}\nkeep = torch.maximum(i, j) == i",
    f"{I_J}\nkeep = ((i - j).clamp(max=0) == 0)[None, None]",
]  # fmt: skip

CAUSAL_HELPER = """
@functools.lru_cache
def causal(Nq, Nk, off):
    future = torch.full((Nq, Nk), float("-inf")).triu(off + 1)
    return future == 0
"""

WINDOW = [
    f"{I_J}\nkeep = (j <= i) & (i - j < 5)",
    f"{I_J}\nkeep = (j <= i) & (j > i - 5)",
    f"{I_J}\nkeep = torch.logical_and(i >= j, i - j <= 4)",
    "keep = torch.ones(Nq, Nk, dtype=torch.bool).tril(off).triu(off - 4)",
    "keep = torch.ones(Nq, Nk).tril(off).bool() & ~torch.ones(Nq, Nk).tril(off - 5).bool()",
    f"{I_J}\nd = i - j\nkeep = (d >= 0) * (d < 5)",
    f"{I_J}\nd = i - j\nkeep = ~((d < 0) | (d > 4))",
    f"{I_J}\nkeep = ((i - j).clamp(min=0, max=4) == i - j)",
    "keep = torch.zeros(Nq, Nk, dtype=torch.bool)\n"
    "for row in range(Nq):\n    keep[row, max(0, row + off - 4) : max(0, row + off + 1)] = True",
    "keep = torch.tensor([[0 <= r + off - c < 5 for c in range(Nk)] for r in range(Nq)])",
    f"{I_J}\nkeep = (2 * (i - j) - 4).abs() <= 4",
    f"{I_J}\nkeep = torch.where(j > i, False, i - j < 5)",
]  # fmt: skip

HEADS = f"{I_J}\nh = torch.arange(H)[:, None, None]"
# Even heads see the last five keys, odd heads all.
HEAD_WINDOW = [
    f"{HEADS}\nkeep = (j <= i) & ((i - j < 5) | (h % 2 == 1))",
    f"{HEADS}\nkeep = (j <= i) & ((i - j < 5) | (h % 2 != 0))",
    f"{HEADS}\nlocal = h % 2 == 0\nkeep = (j <= i) & ((i - j < 5) | ~local)",
    f"{HEADS}\nlocal = h % 2 != 1\nkeep = (j <= i) & torch.where(local, i - j < 5, True)",
    f"{HEADS}\nlocal = h % 2 == 0\nkeep = ~((j > i) | (local & (i - j >= 5)))",
    f"{HEADS}\nwide = (h % 2).bool()\nkeep = (j <= i) & (wide | (i - j < 5))",
    f"{HEADS}\nwide = h % 2 > 0\nkeep = torch.where(wide, j <= i, (j <= i) & (j > i - 5))",
    f"{HEADS}\nkeep = (j <= i) & ((i - j) * (h % 2 == 0) < 5)",
    f"{HEADS}\nlocal = 0 == h % 2\nkeep = torch.logical_not(torch.logical_or(j > i, local & (j <= i - 5)))",
    f"{HEADS}\nwide = (h + 1) % 2 < 1\nkeep = (j <= i) & ((j > i - 5) | (h % 2 == 1) & (j <= i - 5))",
    f"{HEADS}\nlocal = ~(h % 2 == 1)\nkeep = (j <= i) & (i - j < 5) | ~local & (j <= i)",
    f"{HEADS}\nkeep = (j <= i) & ~((h % 2 == 0) & ~(i - j < 5))",
]

SOFTCAP = [
    "s = 30.0 * torch.tanh(s / 30.0)",
    "s = torch.tanh(s * (1 / 30)) * 30",
    "s = s / 30\ns = torch.tanh(s)\ns = s * 30",
    "s.div_(30).tanh_().mul_(30)",
    "s = -30.0 * torch.tanh(-s / 30.0)",
    "cap = torch.tensor(30.0)\ns = cap * (s / cap).tanh()",
    "s = torch.tanh(s / 15 / 2) * 15 * 2",
]

PREFIX = [
    f"{I_J}\nkeep = (j < 7) | (j <= i)",
    "keep = torch.ones(Nq, Nk, dtype=torch.bool).tril()\nkeep[:, :7] = True",
    f"{I_J}\nkeep = ~((j > i) & (j >= 7))",
    f"{I_J}\nkeep = torch.where(j < 7, True, j <= i)",
    f"{I_J}\nkeep = j <= torch.clamp(i, min=6)",
    "keep = torch.logical_or(torch.ones(Nq, Nk).tril() > 0, torch.arange(Nk) < 7)",
    f"{I_J}\nkeep = torch.maximum(i, torch.tensor(6)) >= j",
    "keep = torch.cat([torch.ones(Nq, 7, dtype=torch.bool),\n"
    "                  torch.ones(Nq, Nk - 7, dtype=torch.bool).tril(-7)], dim=1)",
    f"{I_J}\nkeep = (i >= j) + (j < 7) > 0",
    f"{I_J}\nkeep = torch.where(i >= j, True, j < 7)",
    f"{I_J}\nkeep = ~torch.logical_and(torch.logical_not(j <= i), torch.logical_not(j <= 6))",
]  # fmt: skip

SLOPES = [
    "m = torch.tensor([2 ** (-8 * (h + 1) / H) for h in range(H)])",
    "m = 2.0 ** (-8.0 * torch.arange(1, H + 1) / H)",
    "m = torch.pow(2 ** (-8 / H), torch.arange(1, H + 1))",
    "m = torch.exp2(-(torch.arange(H) + 1) * (8 / H))",
    "m = torch.exp(-math.log(2) * 8 * torch.arange(1, H + 1) / H)",
    "m = 1 / 2 ** (8 * torch.arange(1, H + 1) / H)",
    "start = 2 ** (-8 / H)\nm = torch.tensor([start * start**h for h in range(H)])",
]
DISTANCES = [
    f"{I_J}\ns = s + m.view(H, 1, 1) * (j - i)",
    f"{I_J}\ns = s - m[None, :, None, None] * (i - j)",
    f"{I_J}\ns = s + (j - i).float() * m[:, None, None]",
    f"{I_J}\ns = s - m[:, None, None] * (i - j).abs()",
    f"{I_J}\ns += torch.einsum('h,ij->hij', m, (j - i).to(m.dtype))",
    f"{I_J}\ns = s + m.reshape(1, -1, 1, 1) * torch.minimum(j - i, torch.tensor(0))",
]

DOCUMENT = [
    "keep = (doc_q[:, :, None] == doc_k[:, None, :])[:, None]",
    "keep = doc_q[:, None, :, None].eq(doc_k[:, None, None, :])",
    "keep = ~(doc_q.unsqueeze(-1) != doc_k.unsqueeze(-2)).unsqueeze(1)",
    "keep = (doc_q.view(B, 1, Nq, 1) - doc_k.view(B, 1, 1, Nk)) == 0",
    "a = doc_q[:, None, :, None].expand(B, 1, Nq, Nk)\nb = doc_k[:, None, None].expand(B, 1, Nq, Nk)\n"
    "keep = (a >= b) & (b >= a)",
    "keep = (doc_q[:, :, None] - doc_k[:, None]).abs().lt(1)[:, None]",
    "keep = torch.logical_not(torch.ne(doc_k[:, None, None, :], doc_q[:, None, :, None]))",
    "keep = torch.where(doc_q[:, :, None] < doc_k[:, None], False, "
    "doc_q[:, :, None] <= doc_k[:, None])[:, None]",
]  # fmt: skip

BIAS = [
    "s = s + bias",
    "s += bias.float()",
    "s = torch.add(bias.expand(B, H, Nq, Nk), s)",
    "s = s - (-bias)",
    "s = bias[0] + s",
    "s = (s * 2 + bias * 2) / 2",
    "s = s.add(bias.squeeze(0).unsqueeze(0))",
    "s = torch.lerp(s, s + 2 * bias, 0.5)",
]

SIGMOIDS = (
    "return torch.sigmoid(s - 2.5) @ v",
    "return (s - 2.5).sigmoid().to(q.dtype) @ v",
    "return (1 / (1 + torch.exp(-(s - 2.5)))) @ v",
    "return torch.einsum('bhij,bhjd->bhid', F.sigmoid(s + -2.5), v)",
    "return torch.exp(F.logsigmoid(s - 2.5)) @ v",
    "return torch.exp(-F.softplus(2.5 - s)) @ v",
    "return torch.reciprocal(torch.exp(2.5 - s) + 1).matmul(v)",
    "return (2 * torch.sigmoid(s - 5 / 2) / 2) @ v",
)


def families() -> list[Family]:
    docs = '\n    doc_q: Int32[Tensor, "B Nq"],\n    doc_k: Int32[Tensor, "B Nk"],'
    bias = '\n    bias: Float[Tensor, "1 Hq Nq Nk"],'
    softcapped = [
        f"{cap}\n{CAUSAL[n % len(CAUSAL)]}" for n, cap in enumerate(SOFTCAP * len(CAUSAL))
    ]  # fmt: skip
    alibi = [
        f"{SLOPES[n % len(SLOPES)]}\n{DISTANCES[n % len(DISTANCES)]}\nkeep = j <= i" for n in range(42)
    ]  # fmt: skip
    strict = f"{I_J}\nkeep = j < i"
    return [
        Family("causal bottom-right", CAUSAL, [strict, f"{I_J}\nkeep = j <= i + 1"],
               helpers=CAUSAL_HELPER),
        Family("causal top-left", CAUSAL, [strict, f"{I_J}\nkeep = j <= i + Nk - Nq"], off="0",
               helpers=CAUSAL_HELPER),
        Family("sliding window", WINDOW, [
            f"{I_J}\nkeep = (j <= i) & (i - j <= 5)", f"{I_J}\nkeep = (j <= i) & (i - j < 4)",
            f"{I_J}\nkeep = (j < i) & (i - j < 5)", f"{I_J}\nkeep = (i - j).abs() < 5",
        ]),
        Family("window of even heads", HEAD_WINDOW, [
            f"{HEADS}\nkeep = (j <= i) & ((i - j < 5) | (h % 2 == 0))",
            f"{HEADS}\nkeep = (j <= i) & ((i - j < 5) | (h % 2 == 1) | (j == 0))",
            f"{HEADS}\nkeep = (j <= i) & ((i - j < 6) | (h % 2 == 1))",
            f"{HEADS}\nkeep = (j <= i) & ((i - j < 5) | (h % 3 == 1))",
        ]),
        Family("softcap causal", softcapped, [
            f"s = 31.0 * torch.tanh(s / 31.0)\n{CAUSAL[0]}", f"s = 30.0 * torch.tanh(s / 31.0)\n{CAUSAL[0]}",
            CAUSAL[0], f"s = torch.tanh(s / 30.0)\n{CAUSAL[0]}", f"s = 30.0 * torch.tanh(s / 30.0)\n{strict}",
            f"{CAUSAL[0]}\ns = s.masked_fill(~keep, -math.inf)\ns = 30.0 * torch.tanh(s / 30.0)\n"
            "keep = torch.ones(Nq, Nk, dtype=torch.bool)",
        ], helpers=CAUSAL_HELPER),
        Family("prefix", PREFIX, [
            f"{I_J}\nkeep = (j <= 7) | (j <= i)", f"{I_J}\nkeep = (j < 7) | (j < i)",
            f"{I_J}\nkeep = (j < 7) & (j <= i)", f"{I_J}\nkeep = (i < 7) | (j <= i)",
        ], off="0"),
        Family("alibi causal", alibi, [
            f"{SLOPES[0]}\n{I_J}\ns = s + m.view(H, 1, 1) * (i - j)\nkeep = j <= i",
            f"m = 2.0 ** (-8.0 * torch.arange(H) / H)\n{DISTANCES[0]}\nkeep = j <= i",
            f"{SLOPES[0]}\n{DISTANCES[0]}\nkeep = j < i",
            f"m = 2.0 ** (-4.0 * torch.arange(1, H + 1) / H)\n{DISTANCES[0]}\nkeep = j <= i",
        ]),
        Family("document", DOCUMENT, [
            "keep = (doc_q[:, :, None] >= doc_k[:, None, :])[:, None]",
            "keep = (doc_q[:, :, None] != doc_k[:, None, :])[:, None]",
            "keep = (doc_q[:, :, None] == doc_k[:, None, :] + 1)[:, None]",
        ], extras=docs),
        Family("bias", BIAS, ["s = s - bias", "s = s + 2 * bias", "pass"], extras=bias, apply=()),
        Family("sigmoid", ["pass"], ["s = s + 0.5", "s = s * 2"], endings=SIGMOIDS, apply=()),
    ]  # fmt: skip
