"""G3: the lowered source is the target again, changed only where it may, and compiles as well.

Needs nvcc for its last step; without one that step, and so the gate, is not_run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.build import BuildResult, compare, compile_only
from engine.build.toolchain import find_toolchain
from engine.cuir.nodes import Module
from engine.errors import MissingTool
from engine.lift.package import KernelPackage
from engine.lift.provenance import Lifted
from engine.lower import Lowered, lower
from engine.lower.spans import allowed_spans, verify_relift, verify_spans
from engine.types import VerdictKind

Lowering = Lowered


@dataclass(frozen=True, slots=True)
class G3:
    """What G3 found. `compiler` is the identity of the nvcc that was used, or empty."""

    kind: VerdictKind
    reason: str
    details: Mapping[str, Any]
    compiler: str = ""


def lower_target(package: KernelPackage, lifted: Lifted, target: Module, arch: str) -> Lowering:
    """The target as a patch of the expert's source. Raises `LowerError`."""
    return lower(lifted, target)


def judge_lowered(
    package: KernelPackage,
    lifted: Lifted,
    target: Module,
    lowered: bytes,
    arch: str,
    *,
    cancel: threading.Event | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> G3:
    """Spans, relift, compile, resources: the first thing wrong, or a pass."""
    raise NotImplementedError
