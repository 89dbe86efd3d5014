"""Packages of bundled specs, for tests that never launch a kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.cuir.nodes import Module
from engine.lift import Lifted, lift, load_package
from engine.lower.lower import lower
from engine.lower.spelling.legal import legal
from engine.package.export import Content
from engine.spec.read import read_recipe
from engine.transfer.binding import TensorField
from engine.transfer.rules import apply, plan
from engine.transfer.workspace import constants_by_arch
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


def in_float32(made: Content) -> Content:
    """The package as one that is built for float32 and the heads of small models too, so that the
    spec, which stands in its place on a CPU, takes them as a GPU would."""
    small = [{"T": "f32", "D": str(size)} for size in (1, 2, 8, 16, 64)]
    return replace(made, specialisations=[*made.specialisations, *small])


def planned(
    root: Path, spec: Path, kernel: str = "flash_fwd_sm80", fixed: str = ""
) -> tuple[Content, Lifted, Module]:
    """A spec on a kernel with the inputs that the rules give it, but the kernel's own source; the
    kernel as it was lifted, and their target. `fixed` is the one specialisation that it fits."""
    package = load_package(root / "kernels" / kernel)
    built = [s for s in package.specialisations if fixed in ("", "_".join(s.values()))]
    lifted = lift(package, built[-1], package.archs[0])
    recipe = read_recipe(spec)
    made = plan(lifted.module, recipe)
    target = legal([*apply(lifted.module, made.steps)][-1][1])
    given = content(
        root, kernel=package.name, source=package.source, headers=package.headers,
        archs=package.archs, specialisations=built, judged="_".join(built[-1].values()),
        asked=recipe, binding=made.binding, fields=[(f.name, f.type) for f in target.fields],
        spec_name=spec.name, spec=spec.read_bytes(),
    )  # fmt: skip
    return given, lifted, target


def carried(root: Path, spec: Path) -> Content:
    """A spec on the sm_80 kernel, as the rules carry it."""
    made, lifted, target = planned(root, spec)
    source = lower(lifted, target).source
    package = load_package(root / "kernels" / made.kernel)
    constants = constants_by_arch(source, package, made.binding)
    return replace(made, source=source, constants=constants)
