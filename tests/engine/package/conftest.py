"""A package exported from a bundled kernel: the base kernel, and one with extra inputs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine.cuir.parser import parse_expr
from engine.lift.files.kernel_package import load_package
from engine.package.export import Content, export
from engine.spec.recipes.recipe import Clause, Input, Recipe
from engine.transfer.binding import Binding, ScalarField, SizeField, TensorField

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk")
FIELDS = (
    *((name, "tensor") for name in ("q", "k", "v", "o", "lse")),
    *((name, "i32") for name in SIZES),
    ("scale", "f32"),
)
HEADS = ("B", "Hq", "Nq", "D")
QKV = (
    Input("q", "q", "T", HEADS),
    Input("k", "k", "T", ("B", "Hkv", "Nk", "D")),
    Input("v", "v", "T", ("B", "Hkv", "Nk", "D")),
)


def recipe(extra: Sequence[Input] = (), **change: Any) -> Recipe:
    made = Recipe(
        source="eager",
        inputs=(*QKV, *extra),
        score=parse_expr("x * rsqrt(D)"),
        keep=parse_expr("True"),
        weight=None,
        kv_head=parse_expr("h // (Hq // Hkv)"),
        output_dims=HEADS,
        empty_rows="never",
        clauses=(Clause("mask", "every key is kept"),),
    )
    return replace(made, **change)


def binding(extra: Sequence[TensorField] = (), scale: str = "rsqrt(D)") -> Binding:
    kernel = {"q": HEADS, "k": ("B", "Hkv", "Nk", "D"), "v": ("B", "Hkv", "Nk", "Dv")}
    tensors = [TensorField(i.name, i.name, i.dims, kernel[i.name], "T") for i in QKV]
    rows = ("B", "Hq", "Nq")
    tensors += [
        TensorField("o", "O", HEADS, ("B", "Hq", "Nq", "Dv"), "T", output=True),
        TensorField("lse", "LSE", rows, rows, "f32", output=True),
    ]
    return Binding(
        (*tensors, *extra),
        tuple(SizeField(s, s) for s in SIZES),
        (ScalarField("scale", parse_expr(scale)),),
    )


def content(root: Path, **change: Any) -> Content:
    """The base kernel and the spec of full attention."""
    package = load_package(root / "kernels" / "flash_fwd_sm80")
    spec = root / "kernels" / "specs" / "full.py"
    made = Content(
        kernel=package.name,
        source=package.source,
        headers=package.headers,
        entry=package.entry,
        archs=package.archs,
        specialisations=package.specialisations,
        fields=FIELDS,
        asked=recipe(),
        binding=binding(),
        spec_name=spec.name,
        spec=spec.read_bytes(),
    )
    return replace(made, **change)


# The fields alone decide how arguments are filled, so these need no adapted source.
EXTRAS = (
    Input("doc", "extra", "i64", ("B", "Nk")),
    Input("bias", "extra", "T", ("1", "Hq", "Nq", "Nk")),
    Input("table", "extra", "f32", ("2 * Nk - 1",)),
    Input("slopes", "extra", "f32", ("Hq",), derive="30:torch.tensor:0"),
)


def content_with_extras(root: Path) -> Content:
    """As an adaptation with four extra inputs would have it, one of them built by its spec."""
    spec = root / "kernels" / "specs" / "alibi_causal.py"
    return content(
        root,
        asked=recipe(EXTRAS, constraints=(parse_expr("Nq <= Nk"),)),
        binding=binding([TensorField(i.name, i.name, i.dims, i.dims, i.dtype) for i in EXTRAS]),
        fields=(*FIELDS, *((i.name, "tensor") for i in EXTRAS)),
        spec_name=spec.name,
        spec=spec.read_bytes(),
    )


Import = Callable[[Content, str], ModuleType]


@pytest.fixture(scope="module")
def import_package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Import]:
    """Export a content under a name and import it."""
    place = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))

        def run(made: Content, name: str) -> ModuleType:
            export(made, place / name)
            importlib.invalidate_caches()
            return importlib.import_module(name)

        yield run
        for name in list(sys.modules):
            if (place / name.split(".")[0]).exists():
                del sys.modules[name]
