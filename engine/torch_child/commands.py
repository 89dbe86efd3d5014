"""What the child can be asked: each command is payload -> result, both plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Report = Callable[[str], None]
Command = Callable[[dict[str, Any], Report], dict[str, Any]]


def recipe(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Trace a spec: {"path", "options"} -> {"recipe"}; "head_sizes" may add pairs (D, Dv)."""
    from engine.child.spec_process import SpecProcess
    from engine.spec import recipe_to_json

    report("tracing the spec")
    sizes = [(int(d), int(dv)) for d, dv in payload.get("head_sizes", ())]
    with SpecProcess(Path(payload["path"]), payload.get("options") or {}) as spec:
        return {"recipe": recipe_to_json(spec.recipe(sizes))}


def judge(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Run a module against a spec: G1 and G2. See engine.gates.g1_g2.arch_choices."""
    from engine.gates.g1_g2.arch_choices import judge_choices

    return judge_choices(payload, report)


def recompute(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Compute the samples of a GPU's result again. See engine.gates.g1_g2.recomputed_samples."""
    from engine.gates.g1_g2.recomputed_samples import recompute as compute_again

    return compute_again(payload, report)


def wanted(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """What a reference asks of a kernel as it is. See engine.gates.g1_g2.reference_case."""
    from engine.gates.g1_g2.reference_case import wanted as want

    return want(payload)


def ping(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Answer with the versions in use."""
    import sys

    import torch

    return {"torch": torch.__version__, "python": sys.version.split()[0]}


COMMANDS: Mapping[str, Command] = {
    "recipe": recipe, "judge": judge, "recompute": recompute, "wanted": wanted, "ping": ping,
}  # fmt: skip
