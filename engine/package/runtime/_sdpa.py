"""The kernel under PyTorch's scaled_dot_product_attention, and in diffusers, which calls that."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ._hosts import Host, Refused
from ._op import Operator


class InSdpa(Host):
    """The operator as `scaled_dot_product_attention` is called."""

    def sdpa(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        """`scaled_dot_product_attention` by the kernel."""
        if attn_mask is not None:
            raise Refused(f"{self.name} takes no attn_mask: its own is in the kernel")
        self._plain(query, key, dropout_p, is_causal)
        return self.attend(query, key, value, scale)

    def flash(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0,
        is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """`aten::_scaled_dot_product_flash_attention`, which SDPA's FLASH back end calls."""
        self._plain(query, key, dropout_p, is_causal)
        out, lse = self.with_lse(query, key, value, scale)
        state = torch.zeros(2, dtype=torch.uint64, device=query.device)
        offset = torch.zeros((), dtype=torch.uint64, device=query.device)
        rows, keys = query.shape[2], key.shape[2]
        return out, lse, None, None, rows, keys, state, offset, query.new_empty(0)

    def no_backward(self, *given: Any, **options: Any) -> Any:
        """The backward of `flash`: there is none."""
        raise Refused(f"{self.name} is forward only: call it under torch.no_grad()")

    def _plain(self, query: torch.Tensor, key: torch.Tensor, dropout: float, causal: bool) -> None:
        """Refused where SDPA asks for what the kernel has not."""
        if dropout:
            raise Refused(f"{self.name} has no dropout")
        rows, keys = query.shape[2], key.shape[2]
        if causal and rows != keys:
            raise Refused(
                f"{self.name} is aligned bottom-right, and SDPA's is_causal top-left: they agree "
                f"where there are as many keys as queries, not {keys} and {rows}"
            )
        self._same_mask(causal, None, rows, keys)


def as_sdpa_implementation(operator: Operator, name: str) -> str:
    """Register the kernel with PyTorch, for `activate_flash_attention_impl(name)`: SDPA's FLASH
    back end on CUDA tensors is then this kernel; the name.

    ImportError where this PyTorch has no such registry.
    """
    from torch.nn.attention import register_flash_attention_impl

    host = InSdpa(operator)
    if "LSE" not in {row["source"] for row in operator.outputs}:
        raise Refused(f"{host.name} gives no log-sum-exp, which SDPA asks for")
    register_flash_attention_impl(name, register_fn=lambda: _Installed(host))
    return name


class _Installed:
    """The kernel under SDPA, until `remove` is called."""

    def __init__(self, host: InSdpa) -> None:
        library: Any = torch.library.Library  # untyped
        self.library = library("aten", "IMPL")
        flash = "_scaled_dot_product_flash_attention"
        self.library.impl(flash, host.flash, "CUDA")
        self.library.impl(f"{flash}_backward", host.no_backward, "CUDA")

    def remove(self) -> None:
        self.library = None


class _InPlaceOfSdpa(TorchFunctionMode):
    """Calls of `scaled_dot_product_attention` go to the kernel."""

    def __init__(self, host: InSdpa) -> None:
        super().__init__()
        self.host = host

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return self.host.sdpa(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def as_attention_processor(operator: Operator, processor: Any) -> Any:
    """An attention processor of diffusers that does what `processor` does, with the kernel where
    that calls `scaled_dot_product_attention`."""
    host = InSdpa(operator)
    plain = type(processor)

    @functools.wraps(plain.__call__)
    def call(self: Any, *given: Any, **options: Any) -> Any:
        with _InPlaceOfSdpa(host):
            return plain.__call__(self, *given, **options)

    made = copy.copy(processor)
    made.__class__ = type(plain.__name__, (plain,), {"__call__": call})
    return made
