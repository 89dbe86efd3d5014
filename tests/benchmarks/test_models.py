"""The bench of packages in models: what failed is its exit status, and what it compares with."""

from __future__ import annotations

import importlib
import math
import sys
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
