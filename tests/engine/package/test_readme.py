"""The README of an export: one screen, and every sentence of it true of its verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.package.evidence import known, not_known, shortened, speed
from engine.package.export import Content, package_files
from engine.types import Gate, Level, Verdict, VerdictKind
from tests.engine.package.models import planned

ROWS, COLUMNS = 49, 160  # of a terminal of 50 by 160, where less has the last row
GOALS = (
    *[("the tile schedule", f"goal {n}") for n in range(6)],
    *[("the order of work", f"goal {n}") for n in range(6)],
)
PROOFS = [{"about": about, "goal": goal, "answer": "proven"} for about, goal in GOALS]
SIZES = (
    "B 1, heads 2/1, Nq 5, Nk 7",
    "B 2, heads 17/17, Nq 573, Nk 7395",
    "B 1, heads 1/1, Nq 3, Nk 0",
)
RUNS = [
    *[{"case": f"{case}, peaked", "mode": "exact", "O": 1e-15} for case in (*SIZES, SIZES[0])],
    {"case": SIZES[0], "mode": "typed", "error": 0.1, "bound": 0.2},
    {"case": SIZES[0], "mode": "keep set", "kept": 9},
    {"case": SIZES[1], "mode": "under mask", "hidden": 3},
    {"case": SIZES[1], "mode": "a late warp", "warps": 8},
    {"case": "B 9, heads 9/9, Nq 9999, Nk 9999", "mode": "exact", "skipped": "the spec raises"},
    {"case": "B 8, heads 8/8, Nq 8888, Nk 8888", "mode": "exact", "rows": 0},
]
UNKNOWN = "its tiles are listed by what the inputs hold"
SPEED = {"us": 2419.6, "bare_us": 3384.8, "attentions": 1, "where": "NVIDIA H100 SXM5, S 8192 B 2",
         "examples": False, "problem": ""}  # fmt: skip
CASE = "S 8192 B 2 heads 32 D 128"
TIMES: list[dict[str, Any]] = [
    {"case": CASE, "name": "CuBridge", "ms": 0.7393},
    {"case": CASE, "name": "CuBridge, lists held", "ms": 0.7},
    {"case": CASE, "name": "FlashAttention-4", "ms": 1.0858},
    {"case": CASE, "name": "FlexAttention FLASH", "ms": 1.0409},
    {"case": CASE, "name": "FlexAttention", "ms": 1.5631},
    {"case": CASE, "name": "eager PyTorch", "ms": 59.687, "note": "14.9 ms on S 8; scaled"},
    *[{"case": CASE, "name": f"SDPA {name}", "kind": "lacks", "reason": "no parameter"}
      for name in ("FlashAttention-2", "cuDNN", "memory-efficient")],
    *[{"case": CASE, "name": name, "kind": "not installed", "reason": "is not installed"}
      for name in ("FlashAttention-3", "FlashInfer")],
    {"case": "S 2048 B 8", "name": "CuBridge", "ms": 0.2},
    {"case": "S 2048 B 8", "name": "FlexAttention", "ms": 0.3},
    {"case": "S 2048 B 8", "name": "CuBridge, lists held", "ms": 0.1},
    {"case": "S 4096 B 4", "name": "CuBridge", "ms": 0.3},
    {"case": "S 4096 B 4", "name": "FlexAttention", "ms": 0.36},
]  # fmt: skip


def verdicts(level: Level, **of_g2: Any) -> tuple[Verdict, ...]:
    """As the gates write them."""
    build = {
        "compiler": "nvcc 13.0.88 cuda_13.0.r13.0/compiler.36424714_0",
        "arch": "sm_90a",
        "specialisations": [{"key": "f16_64"}, {"key": "bf16_128"}],
    }
    conformance = {"unproven": [{"primitive": "map"}, {"primitive": "store"}]}
    lowered = {
        "build": build,
        "conformance": conformance,
        "speed": SPEED,
        "changed_lines": 217,
        "total_lines": 308,
    }
    checks = [{"check": "accuracy", "cases": 64}]
    on_gpu = {"device": {"name": "NVIDIA H200"}, "times": TIMES, "checks": checks}
    ran = level is Level.GPU_VERIFIED
    return (
        Verdict(Gate.G1, VerdictKind.PASS, "27 runs equal the kernel's own reference; 12 goals are "
                "proven for all sizes"),
        Verdict(Gate.G2, VerdictKind.PASS, "30 runs equal the spec", 1.0, (),
                {"runs": RUNS, "proofs": PROOFS, **of_g2}),
        Verdict(Gate.G3, VerdictKind.PASS, "lifts to the target again", 1.0, (), lowered),
        Verdict(Gate.G4, VerdictKind.PASS, "NVIDIA H200 (sm_90a): 21 checks on 685 cases; of 10 "
                "specialisations only bf16_128", 1.0, (), on_gpu) if ran else
        Verdict(Gate.G4, VerdictKind.NOT_RUN, "not run on a GPU yet"),
    )  # fmt: skip


def rows(text: str) -> int:
    """What a terminal shows of a text."""
    return sum(max(1, math.ceil(len(line) / COLUMNS)) for line in text.splitlines())


def said(text: str) -> str:
    return " ".join(text.split())


ADAPTED = (
    ("softcap_causal", "sm80", ""), ("softcap_causal", "sm90", ""),
    ("causal_document", "sm80", ""), ("causal_document", "sm90", ""), ("sigmoid", "sm80", ""),
    ("alibi_causal", "sm90", ""), ("mla_causal", "sm90", "bf16_192"),
)  # fmt: skip


@pytest.fixture(scope="module")
def adapted(root: Path) -> dict[str, Content]:
    """Specs on kernels: with tile lists, with a table of the spec's own, with fixed sizes."""
    specs = root / "kernels" / "specs"
    return {
        f"{spec}_{kernel}": planned(root, specs / f"{spec}.py", f"flash_fwd_{kernel}", fixed)[0]
        for spec, kernel, fixed in ADAPTED
    }


@pytest.mark.parametrize("level", [Level.CPU_VERIFIED, Level.GPU_VERIFIED])
def test_a_readme_is_one_screen_and_says_what_to_type(
    adapted: dict[str, Content], level: Level
) -> None:
    for name, made in adapted.items():
        listed = made.binding.workspace is not None
        sampled = [{"about": "the tile schedule", "why": UNKNOWN, "sizes": 0}] * 3 * listed
        made = replace(made, level=level, verdicts=verdicts(level, sampled=sampled))
        text = package_files(made, name)["README.md"].decode()
        assert rows(text) <= ROWS, (name, rows(text))
        call = ", ".join(i.name for i in made.asked.inputs if not i.derive)
        for words in (
            f"pip install ./{name}", f"import {name}\n", f"{name}.attention({call})",
            f"{name}.check()", f"Level: {level.value}.", "a backward pass, dropout",
*(f"`{i.name}`" for i in made.asked.inputs),
            *(f" [{', '.join(i.dims)}]" for i in made.asked.inputs),
        ):  # fmt: skip
            assert words in text or words in said(text), (name, words)
        unproven = f"**Not proven**, the tile schedule: judged in runs alone, {UNKNOWN}."
        assert ("held = " in text) == listed == said(text).count(unproven), name


def test_what_was_run_is_what_the_verdict_has() -> None:
    """Each number is counted; what was skipped, or had nothing to compare, is no run."""
    text = "\n".join(known(verdicts(Level.CPU_VERIFIED), "bf16_128"))
    for words in (
        "(G2), goals: 6 of the tile schedule, 6 of the order of work (",
        "as `bf16_128`, at 3 sizes (B 1 to 2, Hq/Hkv 1/1 to 17/17, Nq 3 to 573, Nk 0 to 7395), "
        "some with several inputs: 4 in float64 equal",
        "1 in its own types",
        "1 compare which",
        "1 have NaN",
        "1 has each warp",
        "by nvcc 13.0.88 for sm_90a, 2 types and head sizes, with no more spills",
        "2 primitives that it calls were proven on no GPU.",
        "217 of its lines changed",
        "**The kernel before the edit** (G1): 27 runs equal the kernel's own reference",
    ):
        assert words in text, words
    assert "9999" not in text and "8888" not in text and "Run on a GPU" not in text
    text = "\n".join(known(verdicts(Level.GPU_VERIFIED)))
    assert "**Run on a GPU** (G4): NVIDIA H200 (sm_90a): 21 checks on 685 cases" in text


def test_what_is_not_proven_is_said_goal_by_goal() -> None:
    open_ = {"about": "the tile schedule", "goal": "goal 1", "answer": "unknown", "arch": "sm_90"}
    found = verdicts(Level.CPU_VERIFIED, proofs=[*PROOFS, open_], unreached=["Nk = 4096"])
    assert "5 of the tile schedule, 6 of the order" in "\n".join(known(found))
    assert not_known(found, "bf16_128", ["bf16_64", "bf16_128", "f16_64"]) == [
        "**Not proven**, of the tile schedule: goal 1.",
        "**Never run**: G4 (on a GPU); 2 of the 3 types and head sizes, on a CPU; a case of "
        "Nk = 4096; other sizes; nothing is proven of them but the goals above.",
    ]
    assert "G4" not in "\n".join(not_known(verdicts(Level.GPU_VERIFIED)))
    none = verdicts(Level.CPU_VERIFIED, proofs=[])
    assert "Proven" not in "\n".join(known(none))
    assert "goals above" not in "\n".join(not_known(none))


def test_a_gate_that_failed_was_run_and_says_why() -> None:
    failed = (Verdict(Gate.G3, VerdictKind.FAIL, "spills: 8 bytes stored"),)
    assert known(failed) == ["G3 (its source and machine code): **fail**: spills: 8 bytes stored"]
    assert (
        "**Never run**: G1 (the kernel before the edit) and G2 (the edited program) and G4"
        in (not_known(failed)[-1])
    )


def test_how_fast_is_measured_or_predicted_and_beside_what() -> None:
    assert speed(verdicts(Level.GPU_VERIFIED)) == (
        f"median milliseconds on an NVIDIA H200, {CASE}: **this** 0.739, with a plan 0.7, "
        "FlexAttention FLASH 1.04, FlashAttention-4 1.09, FlexAttention 1.56, eager PyTorch 59.7 "
        "(scaled). At 2 other shapes the fastest of the others takes 1.20 to 1.50 times as long as "
        "this. Not timed: SDPA FlashAttention-2, SDPA cuDNN, SDPA memory-efficient (has no "
        "parameter for it); FlashAttention-3, FlashInfer (not installed)."
    )
    assert speed(verdicts(Level.CPU_VERIFIED)) == (
        "predicted by a model, not measured: 2,420 us on an NVIDIA H100 SXM5, S 8192 B 2. "
        "Predicted for the kernel before the edit, which computes something else: 3,385 us."
    )
    guess = SPEED | {"examples": True, "attentions": 2}
    made = Verdict(Gate.G3, VerdictKind.PASS, "", 1.0, (), {"speed": guess})
    assert "by example values of what the mask reads (of ids: 8 documents" in speed((made,))
    assert speed((made,)).endswith("6,770 us for 2 calls.")
    for nothing in ((), (replace(made, details={"speed": SPEED | {"problem": "no card"}}),)):
        assert speed(nothing) == "nothing was timed."


def test_a_long_reason_ends_with_a_clause_or_a_word() -> None:
    """A number that is cut in two is another number."""
    reason = "lifts to the target again; predicted to take 457 us, the bare kernel 3,385 us"
    assert shortened(reason, len(reason)) == reason
    for most in range(30, len(reason)):
        assert shortened(reason, most) == "lifts to the target again; …"
    assert shortened("it takes 3,385 us or more of it", 14) == "it takes …"
