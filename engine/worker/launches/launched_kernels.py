"""Which kernels a call launches, by torch's profiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch


def traced_kernels(call: Callable[[], object]) -> list[str] | None:
    """Names of the device kernels that `call` launches; None where the profiler sees none at all.

    A known kernel of PyTorch is traced beside it: a profiler that does not see that one either is
    no witness.
    """
    from torch.profiler import ProfilerActivity, profile

    marker = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        call()
        torch.cuda.synchronize()
    ours = _kernels(recorded)
    with profile(activities=[ProfilerActivity.CUDA]) as witness:
        marker.add_(1)
        torch.cuda.synchronize()
    if not ours and not _kernels(witness):
        return None
    return ours


def _kernels(recorded: torch.profiler.profile) -> list[str]:
    return [
        event.name
        for event in recorded.events() or []  # type: ignore[no-untyped-call]
        if str(event.device_type).endswith("CUDA") and not event.name.startswith("Activity")
    ]


def foreign_kernels(names: Sequence[str], own: Sequence[str]) -> list[str]:
    """Names that are none of the module's kernels (a demangled name holds the plain one)."""
    wanted = [re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])") for name in own]
    return sorted({n for n in names if not any(w.search(n) for w in wanted)})
