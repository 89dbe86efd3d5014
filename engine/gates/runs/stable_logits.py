"""Where a spec's own numbers mean something: at logits of thousands not every function's do.

A weight of exp(x) without a maximum overflows, and in a softmax of x**2 the last bit of a product
is worth more than the bound. There is nothing to hold a kernel to in such rows.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.gates.runs.output_comparison import EXACT_TOLERANCE
from engine.spec.decks.extreme_biases import PATTERNS
from engine.spec.decks.logit_levels import EVEN, FAR, LEVEL

UNUSUAL = frozenset({LEVEL, FAR, EVEN, *PATTERNS})  # values that a spec need not be made for
UNSOUND = "the spec gives no finite numbers at such logits"
_MOVES = EXACT_TOLERANCE / 10  # of a row's largest magnitude
_SMALL = 2.0**-7

Spec = Callable[[Mapping[str, Any]], Tensor | str]


def finite_as_ever(spec: Spec, inputs: Mapping[str, Any], q: str, want: Tensor) -> bool:
    """Whether the spec's output is finite where it is with a small q: its mask takes other rows."""
    usual = spec({**inputs, q: torch.full_like(inputs[q], _SMALL)})
    return isinstance(usual, Tensor) and bool((usual.isfinite() == want.isfinite()).all())


def overflows(plain: Tensor, want: Tensor) -> bool:
    """Whether the spec itself, in the element type, leaves numbers behind that float64 has: then
    the type has no room for such logits, and says nothing of a kernel that leaves them too."""
    return bool((want.isfinite() & ~plain.isfinite()).any())


def steady(spec: Spec, inputs: Mapping[str, Any], q: str, want: Tensor) -> Tensor:
    """[B, Hq, Nq]: rows that the next float64 after each element of q leaves as they are."""
    toward = torch.full_like(inputs[q], torch.inf)
    moved = spec({**inputs, q: torch.nextafter(inputs[q], toward)})
    if isinstance(moved, str):
        return torch.zeros(want.shape[:-1], dtype=torch.bool)
    scale = want.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    there = want.isfinite() & moved.isfinite()
    return (~there | ((moved - want).abs() <= _MOVES * scale)).all(-1)
