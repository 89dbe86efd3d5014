"""FlexAttention written out: `flex_attention` in a spec runs its mods element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engine.spec.python.spec_file import SpecSource

Mod = Callable[..., Any]
# (q, k, v, score mods, mask mods, scale) -> output
ModsRunner = Callable[..., torch.Tensor]


class MaskOnly:
    """A block mask that keeps its mask mod and no blocks."""

    def __init__(self, mask_mod: Mod, *sizes: Any, **options: Any) -> None:
        self.mask_mod = mask_mod


@contextmanager
def written_out(source: SpecSource, runner: ModsRunner) -> Iterator[None]:
    """Inside, PyTorch's `flex_attention` and `create_block_mask` go through `runner`."""
    if "flex_attention" not in source.text:
        yield
        return
    import torch.nn.attention.flex_attention as module

    def flex_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: Mod | None = None,
        block_mask: Any = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        **options: Any,
    ) -> torch.Tensor:
        if options.get("return_lse") or options.get("return_aux"):
            raise ValueError("a spec returns the output alone, without the LSE")
        if not enable_gqa and query.size(1) != key.size(1):
            raise ValueError("q and k have different numbers of heads: pass enable_gqa=True")
        score_mods = () if score_mod is None else (score_mod,)
        mask_mods = () if block_mask is None else (block_mask.mask_mod,)
        return runner(query, key, value, score_mods, mask_mods, scale)

    plain = module.flex_attention, module.create_block_mask
    patched: Any = module
    patched.flex_attention, patched.create_block_mask = flex_attention, MaskOnly
    try:
        yield
    finally:
        patched.flex_attention, patched.create_block_mask = plain
