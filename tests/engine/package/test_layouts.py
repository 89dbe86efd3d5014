"""What a package says of layouts and integers that its kernel cannot read."""

from __future__ import annotations

import contextlib
import importlib
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from engine.worker.verification.checks import LAYOUT_REFUSED
from tests.engine.package.conftest import Import, content


@pytest.fixture(scope="module")
def full(root: Path, import_package: Import) -> ModuleType:
    return import_package(content(root), "full_layouts")


def operator_of(module: ModuleType) -> Any:
    return module._OPERATOR


def test_a_refused_layout_names_the_tensor(
    full: ModuleType, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    """What a launch with status 12 becomes; the status is the header's own."""
    checks = operator_of(full).checks
    runtime = importlib.import_module("full_layouts._runtime")
    header = (root / "kernels/include/cubridge/sm90_host.cuh").read_text(encoding="utf-8")
    assert "LAYOUT_REFUSED = cudaErrorInvalidPitchValue" in header
    assert runtime.LAYOUT_REFUSED == LAYOUT_REFUSED == 12
    k, q = (torch.zeros(2, 2, 100, 64).half() for _ in range(2))
    given = {"q": q, "k": k, "v": k}
    assert checks.refused_layout(given) is None
    pitch = torch.zeros(2, 2, 100, 68).half()[..., :64]
    shifted = torch.zeros(q.numel() + 1).half()[1:].view(q.shape)
    for name, tensor, said in (
        (
            "k",
            pitch,
            r"k has stride 68 along Nk; .* multiple of 8 elements: call k\.contiguous\(\)",
        ),
        ("v", shifted, r"v starts 2 bytes past a multiple of 16 bytes, .* call v\.clone\(\)"),
    ):
        assert re.match(said, checks.refused_layout({**given, name: tensor}))
        fix = tensor.contiguous() if name == "k" else tensor.clone()
        assert checks.refused_layout({**given, name: fix}) is None  # the fix is one
    one = torch.zeros(1, 1, 1, 68).half()[..., :64]  # strides of dimensions of size 1 say nothing
    assert checks.refused_layout({"q": one, "k": one, "v": one}) is None

    class Library:
        status = 12

        def cubridge_launch(self, *given: object) -> int:
            return self.status

        def cubridge_error_text(self, status: int) -> bytes:
            return b"invalid pitch argument"

    args = operator_of(full).filler.struct()
    with pytest.raises(runtime.LayoutRefused, match=r"invalid pitch argument \(status 12\)"):
        runtime.launch(Library(), args, "f16_64", 0)
    Library.status = 2
    with pytest.raises(RuntimeError) as caught:
        runtime.launch(Library(), args, "f16_64", 0)
    assert type(caught.value) is RuntimeError
    # Through the operator: the message where a tensor is to blame, else CUDA's own.
    Library.status = 12
    op = importlib.import_module("full_layouts._runtime")
    monkeypatch.setattr(op, "library", lambda device, struct: Library())
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    with pytest.raises(ValueError, match="k has stride 68 along Nk"):
        operator_of(full).forward(q, pitch, k)
    with pytest.raises(runtime.LayoutRefused):
        operator_of(full).forward(q, k, k)


def test_what_the_kernel_gets_of_wide_integers(full: ModuleType) -> None:
    narrow = importlib.import_module("full_layouts._spec").for_kernel
    ids = torch.tensor([0, 2**31 - 1, -(2**31)])
    assert narrow("ids", ids, "i64").dtype == torch.int32
    assert narrow("ids", ids, "i64").tolist() == ids.tolist()
    for past in (2**31, 2**32, -(2**31) - 1):
        with pytest.raises(ValueError, match="ids holds integers that do not fit"):
            narrow("ids", torch.tensor([past]), "i64")
    q = torch.zeros(2).half()
    assert narrow("q", q, "T") is q


def test_the_limits_tell_what_the_tma_needs(root: Path, import_package: Import) -> None:
    words = {}
    for name in ("flash_fwd_sm80", "flash_fwd_sm90"):
        source = (root / "kernels" / name / "kernel.cu").read_bytes()
        module = import_package(content(root, source=source), f"limits_{name}")
        text = Path(module.__file__ or "").with_name("README.md").read_text(encoding="utf-8")
        words[name] = " ".join(text.split()).partition("Limits: ")[2]
    assert "any strides elsewhere" in words["flash_fwd_sm80"]
    assert "multiples of 16 bytes" in words["flash_fwd_sm90"]
