"""The yardstick of typed mode is what PyTorch gives, with its own defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.errors import SpecError
from engine.spec.reference.oracle import run_spec

SPEC = """\
import torch
from jaxtyping import Float
from torch import Tensor


def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hq Nk D"],
              v: Float[Tensor, "B Hq Nk D"]):
    far = torch.arange(k.size(2)) / 3  # float32 where nobody says otherwise
    s = q @ k.mT - far
    return {what}
"""


def _run(tmp_path: Path, what: str) -> torch.Tensor:
    path = tmp_path / "spec.py"
    path.write_text(SPEC.format(what=what))
    q, k, v = (torch.randn(1, 1, 4, 8, dtype=torch.bfloat16) for _ in range(3))
    return run_spec(path, {"q": q, "k": k, "v": v}, {})


def test_what_has_no_type_is_float32(tmp_path: Path) -> None:
    assert _run(tmp_path, "s.softmax(-1) @ v.float()").dtype == torch.float32
    assert _run(tmp_path, "s.softmax(-1).to(v.dtype) @ v").dtype == torch.bfloat16
    assert torch.get_default_dtype() == torch.float32


def test_what_pytorch_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"(?i)float.*bfloat16"):
        _run(tmp_path, "s.softmax(-1) @ v")
