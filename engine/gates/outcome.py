"""What a gate found by looking at its subject: the only thing that becomes a pass or a fail.

An exception says nothing of a kernel. Where one ends a gate, the gate has not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from engine.child.wire import ChildFailed


@dataclass(frozen=True, slots=True)
class Found:
    """Whether nothing wrong was found, in words, with counterexample and measurements."""

    ok: bool
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> Self:
        """What `engine.gates.g1_g2.judge` answered. Raises `ChildFailed` for anything else."""
        ok, reason, details = (answer.get(name) for name in ("ok", "reason", "details"))
        if not (isinstance(ok, bool) and isinstance(reason, str) and isinstance(details, dict)):
            raise ChildFailed("internal error: what judges gave no verdict")
        return cls(ok, reason, details)


@dataclass(frozen=True, slots=True)
class Trial:
    """What a few runs of a target found, long before a gate judges it; never a verdict.

    `fault` is the first thing wrong, in a gate's words; empty where there was none at these
    `sizes`. `checks` is false where the target could not even be run. `problem` says why nothing
    was tried.
    """

    checks: bool = True
    fault: str = ""
    sizes: str = ""
    problem: str = ""
