"""Packages of bundled specs, for tests that never launch a kernel."""

from __future__ import annotations

from pathlib import Path

from engine.package.export import Content
from engine.spec.read import read_recipe
from engine.transfer.binding import TensorField
from tests.engine.package.conftest import FIELDS, binding, content

DOCUMENTS = [TensorField(n, n, ("B", d), ("B", d), "i32") for n, d in
             (("doc_q", "Nq"), ("doc_k", "Nk"))]  # fmt: skip


def of_spec(root: Path, name: str) -> Content:
    """A bundled spec with the base kernel, which no test here launches."""
    spec = root / "kernels" / "specs" / f"{name}.py"
    extra = DOCUMENTS if "document" in name else []
    return content(
        root, asked=read_recipe(spec, {}), spec_name=spec.name, spec=spec.read_bytes(),
        binding=binding(extra), fields=(*FIELDS, *((t.field, "tensor") for t in extra)),
    )  # fmt: skip
