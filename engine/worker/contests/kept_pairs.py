"""The pairs that a spec's own function keeps, counted at the sizes that are timed.

Where no recipe says which pairs are kept, one-hot V shows them: in float64 a pair that is not kept
has the weight 0 exactly. A batch and a group of heads are run at a time, where the function lets
them be.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.worker.contests.rivals import Mask
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import NOT_LINEAR, UNCOUNTED
from engine.worker.problems.one_head import cut, separable
from engine.worker.problems.specrun import one_hot

SECONDS = 60.0  # that counting one shape may take; past it the time stands alone


def mask_by_spec(
    subject: Subject, inputs: Mapping[str, Tensor], sizes: Mapping[str, int],
    seconds: float = SECONDS,
) -> Mask:  # fmt: skip
    """The kept pairs over all (b, h) and their kind; `pairs` is None where they are not counted."""
    run = subject.run
    if not subject.linear:
        return Mask(None, f"{UNCOUNTED}: {NOT_LINEAR}")
    axes = separable(run, subject.d, subject.dv)
    group = max(1, sizes["Hq"] // max(1, sizes["Hkv"]))
    batches = range(sizes["B"] if "B" in axes else 1)
    heads = range(0, sizes["Hq"] if "heads" in axes else 1, group)
    deadline = time.monotonic() + seconds
    pairs, full, causal = 0, True, sizes["Nq"] == sizes["Nk"]
    i = torch.arange(sizes["Nq"], device=run.device)[:, None]
    try:
        for b in batches:
            for h in heads:
                part, _, _ = cut(run, inputs, sizes, b, h, axes)
                v = run.canonical(part, "v")
                for first in range(0, sizes["Nk"], subject.dv):
                    if time.monotonic() > deadline:
                        return Mask(None, f"{UNCOUNTED}: counting takes longer than {seconds:g} s")
                    hot = run.replaced(part, "v", one_hot(v, first, subject.dv))
                    keep = run.exact(hot)[..., : sizes["Nk"] - first]
                    keep = (keep != 0) & ~keep.isnan()
                    pairs += int(keep.sum())
                    j = first + torch.arange(keep.shape[-1], device=run.device)
                    full = full and bool(keep.all())
                    causal = causal and bool((keep == (j <= i)).all())
    except (SpecError, torch.OutOfMemoryError):
        return Mask(None, f"{UNCOUNTED}: the spec's function in float64 does not fit")
    finally:
        if run.device.type == "cuda":
            torch.cuda.empty_cache()
    return Mask(pairs, "full" if full else "causal" if causal else "other")
