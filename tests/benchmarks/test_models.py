"""The bench of packages in models: what failed is its exit status, and what it compares with."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bench; no model of transformers is made in these tests, so it need not be there."""
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    monkeypatch.delitem(sys.modules, "benchmarks.models", raising=False)
    yield importlib.import_module("benchmarks.models")
    del sys.modules["benchmarks.models"]


def of_logits(logits: dict[str, float]) -> Any:
    """In the place of `model`: those named here give one number, others raise."""

    def made(implementation: str, *_: Any) -> Any:
        if implementation not in logits:
            raise RuntimeError(f"{implementation} does not run")
        return lambda tokens, **_: SimpleNamespace(logits=torch.tensor(logits[implementation]))

    return made


def speed(bench: Any, ends: float = math.inf) -> dict[str, Any]:
    titles = ["ours", "eager", "sdpa"]
    found: dict[str, Any] = bench.speed(titles, 1, 4, False, None, "cpu", ends)
    return found


def test_logits_are_compared_with_the_package_s(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "model", of_logits({"ours": 1.0, "eager": 1.5}))
    rows = speed(bench)
    assert rows["eager"]["differs"] == 0.5
    assert rows["sdpa"] == {"not_run": "RuntimeError: sdpa does not run"}
    assert not bench.has_failed(rows)
    monkeypatch.setattr(bench, "model", of_logits({"eager": 1.5, "sdpa": 1.0}))
    rows = speed(bench)
    assert rows["ours"] == {"failed": "RuntimeError: ours does not run"}
    assert "differs" not in rows["eager"] | rows["sdpa"]
    assert bench.has_failed({"ours": {"speed": rows}})


def test_time_that_was_up_is_no_failure(bench: Any) -> None:
    rows = speed(bench, ends=-math.inf)
    assert all(row == {"not_run": bench.LATE} for row in rows.values())
    assert not bench.has_failed(rows)


@pytest.mark.parametrize(
    "row",
    [
        {"failed": "RuntimeError: no"},
        {"prefill": {"error": 1.0, "passed": False}},
        {"exit": [0, 0, 1, 0]},
        {"restored": False},
        {"backward": "not refused"},
    ],
)
def test_what_is_wrong_anywhere_is_the_exit_status(bench: Any, row: dict[str, Any]) -> None:
    right = {"prefill": {"error": 0.0, "passed": True}, "exit": [0, 0], "restored": True}
    assert not bench.has_failed({"package": {"check": right}})
    assert bench.has_failed({"package": {"check": right | row}})


def test_the_page_says_what_was_recorded(root: Path) -> None:
    """The table of docs/package.md, in thousands but for the steps after a prompt."""
    record = json.loads((root / "benchmarks/results/models_h200.json").read_text(encoding="utf-8"))
    page = (root / "docs" / "package.md").read_text(encoding="utf-8")
    titles = {"FlexAttention, FLASH": ("speed", "flex_attention FLASH"),
              "FlexAttention, Triton": ("flex", "flex_attention"),
              "SDPA": ("speed", "sdpa")}  # fmt: skip
    expected = []
    for name, said in (("softcap_causal", "soft cap: "), ("causal_document", "no cap: ")):
        of = record[name]
        rows = {said + name: ("speed", name), "eager": ("speed", "eager"), **titles}
        for title, (part, contestant) in rows.items():
            if contestant not in of[part]:
                continue
            short = of[part][contestant]
            long = of["long"].get(contestant, {}).get("prefill") if part == "speed" else None
            cells = [f"{n / 1000:.0f}" if n else ""
                     for n in (short["prefill"], long, short.get("padded prefill"))]  # fmt: skip
            cells.append(str(short.get("generate 32", "")))
            expected.append((title, *cells))
    table = page.split("tokens/s |\n", 1)[1].split("\n\n")[0].splitlines()[1:]
    shown = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table]
    assert sorted(shown) == sorted(expected)
