"""Sessions for the tests of the app, made in a second: the torch child is replaced by a table."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.types import Gate, Stage, Verdict, VerdictKind
from sessions.store import Store
from tests.engine.transfer.recipes import VARIANTS, recipe

ACTOR = "tester"
PLAIN = recipe("x * rsqrt(f32(D))")
CARD = {
    "name": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "driver": "580.1", "torch": "2.11.0",
    "compiler": "nvcc 13.0", "when": "2026-01-01T00:00:00+00:00",
}  # fmt: skip


@dataclass
class TableChild:
    """Answers `recipe` and `judge` as the torch child does, from what it was given."""

    wanted: Recipe
    failure: dict[str, Any] | None = None
    calls: list[str] = field(default_factory=list)
    gate: threading.Event | None = None

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> None:
        self.calls.append("close")

    def call(self, name: str, payload: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.calls.append(name)
        if name == "recipe":
            mine = "reference" not in Path(str(payload["path"])).stem
            return {"recipe": recipe_to_json(self.wanted if mine else PLAIN)}
        assert name == "judge"
        if self.failure is not None and "reference" not in Path(str(payload["spec"])).stem:
            return {"ok": False, **self.failure}
        runs = [{"case": "B 1, heads 2/1, Nq 150, Nk 150", "mode": "exact"}]
        return {"ok": True, "reason": "1 run equals the spec", "details": {"runs": runs}}


def bench_of(store: Store, variant: str = "softcap_causal", **more: Any) -> Bench:
    """A bench whose child is a table."""
    return Bench(store, child=TableChild(VARIANTS[variant], **more))  # type: ignore[arg-type]


def made(
    store: Store,
    upto: Stage = Stage.LOWERED,
    spec: str = "softcap_causal",
    kernel: str = "flash_fwd_sm80",
    **more: Any,
) -> str:
    """A session that has come as far as a stage; its id."""
    package = find_kernel(kernel)
    with bench_of(store, spec, **more) as bench:
        session = start(bench, package, find_spec(spec), choose_options(package), ACTOR)
        if upto is Stage.SOURCE:
            return session
        with store.writer(session) as writer:
            work = Adaptation(bench, writer, ACTOR)
            work.lift()
            if upto is Stage.LIFTED:
                return session
            work.accept_all(work.propose_by_rules())
            work.judge_target()
            if upto is Stage.TARGET:
                return session
            work.lower()
            work.give(verdict_of(work, Gate.G3, VerdictKind.PASS, "made for a test"))
            if upto is Stage.VERIFIED:
                passed = VerdictKind.PASS
                work.give(verdict_of(work, Gate.G4, passed, "38 checks", gpu_details()))
    return session


def verdict_of(
    work: Work, gate: Gate, kind: VerdictKind, reason: str, details: Mapping[str, Any] = {}
) -> Verdict:
    """A gate's verdict on what the session holds, as if it had come to it at once."""
    begin = time.monotonic()
    if kind is VerdictKind.NOT_RUN:
        return work.not_run(gate, begin, reason, details)
    assert kind in (VerdictKind.PASS, VerdictKind.FAIL)
    return work.found(gate, begin, Found(kind is VerdictKind.PASS, reason, details))


@cache
def _original(upto: Stage, spec: str) -> tuple[tempfile.TemporaryDirectory[str], str]:
    folder = tempfile.TemporaryDirectory(prefix="cubridge-test-")
    return folder, made(Store.open(Path(folder.name) / "store.git"), upto, spec)


def placed(path: Path, upto: Stage = Stage.LOWERED, spec: str = "softcap_causal") -> str:
    """A copy at `path` of a store with one session, which is made once; the session's id."""
    folder, session = _original(upto, spec)
    shutil.copytree(Path(folder.name) / "store.git", path)
    return session


def gpu_details() -> dict[str, Any]:
    """What G4's verdict keeps of a result."""
    case = "bf16 causal S 8192 B 2 heads 32 D 128"
    times = [
        {"case": case, "name": "CuBridge", "ms": 6.2, "iqr_ms": 0.02, "tflops": 352.0,
         "ours_is": 1.0, "of_floor": 0.61},
        {"case": case, "name": "FlexAttention", "ms": 8.0, "iqr_ms": 0.03, "tflops": 272.8,
         "ours_is": 1.29},
        {"case": case, "name": "eager [/] b[0]", "reason": "out of memory \x1b[2J"},
    ]  # fmt: skip
    checks = [
        {"check": "exact", "specialisation": "bf16_128", "verdict": "pass", "cases": 12,
         "worst": 0.31, "seconds": 1.0},
        {"check": "lse", "specialisation": "bf16_128", "verdict": "fail", "cases": 3,
         "failures": ["row 3 is off [/]"], "seconds": 0.1},
    ]  # fmt: skip
    return {
        "device": CARD, "checks": checks, "times": times, "self_test": [], "state": "complete",
        "method": "CUDA events, cold L2, median of 30",
    }  # fmt: skip
