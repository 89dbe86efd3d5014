"""What a call's kernels hand to each other: made for each call, of q's type."""

from __future__ import annotations

import torch

from engine.package.runtime._args import Filler
from engine.package.runtime._plan import Workspaces
from engine.transfer.rules import plan
from tests.engine.transfer.recipes import lifted, recipe


def test_a_call_makes_its_own() -> None:
    base = lifted("flash_fwd_sm80")
    planned = plan(base, recipe(q="q[b, h, i, dd] * 2.0", k="k[b, h, j, dd] * 3.0"))
    binding = planned.binding.to_json()
    info = {"op": "name", "binding": binding, "constants": {}, "mask_inputs": []}
    sizes = {"B": 2, "Hq": 6, "Hkv": 3, "Nq": 5, "Nk": 7, "D": 64, "Dv": 64}
    query = torch.empty(2, 6, 5, 64, dtype=torch.float16)
    made = Workspaces(info).passing(sizes, query)
    assert {n: tuple(t.shape) for n, t in made.items()} == {
        "q_ready": (2, 6, 5, 64),
        "k_ready": (2, 3, 7, 64),
    }
    assert all(t.dtype == torch.float16 and t.is_contiguous() for t in made.values())
    fields = [["q_ready", "tensor"], ["k_ready", "tensor"]]
    filled = Filler(fields, binding).fill(made, {})
    assert filled.q_ready.data == made["q_ready"].data_ptr()
    assert list(filled.k_ready.stride) == [1344, 448, 64, 1]
