"""A package's own check finds sizes that its spec takes, with the spec itself as the kernel."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.parser import parse_expr
from tests.engine.package.conftest import Import, content, recipe

SPEC = """\
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"]
) -> Float[Tensor, "B Hq Nq D"]:
    {refusal}
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    return torch.softmax(q @ k.mT / q.size(-1) ** 0.5, -1) @ v
"""
CASES = {
    # What the recipe knows, and what only the function does.
    "squares": ("Nq == Nk", "pass"),
    "twice as many keys": ("Nk == 2 * Nq", "pass"),
    "steps of 128": ("Nk % 128 == 0", "pass"),
    "raises on short rows": (None, "assert k.size(2) > 100"),
    "raises off a square": (None, "assert q.size(2) == k.size(2)"),
}


@pytest.mark.parametrize("case", CASES)
def test_at_least_eight_cases_of_sizes_that_the_spec_takes(
    case: str, root: Path, import_package: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraint, refusal = CASES[case]
    name = case.replace(" ", "_")
    made = content(root)
    only = tuple(s for s in made.specialisations if set(s.values()) == {"f16", "64"})
    asked = recipe(constraints=() if constraint is None else (parse_expr(constraint),))
    module = import_package(
        content(
            root, asked=asked, specialisations=only, spec_name=f"{name}.py",
            spec=SPEC.format(refusal=refusal).encode(),
        ),
        name,
    )  # fmt: skip
    check = importlib.import_module(f"{name}._spec")
    operator = module._OPERATOR
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def of_spec(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        wide = {name: tensor.float() for name, tensor in values.items()}
        return {"O": operator.spec.output(wide, {}).half()}

    monkeypatch.setattr(operator, "call_named", of_spec)
    rows: list[dict[str, Any]] = check.run_deck(operator, device="cpu")
    ran = [row for row in rows if "passed" in row]
    assert len(ran) >= 8 and all(row["passed"] for row in ran)
    assert all(row["sizes"]["Nk"] for row in rows)
    skipped = [row["skipped"] for row in rows if "skipped" in row]
    assert all("AssertionError" in said for said in skipped)
    assert bool(skipped) == (constraint is None)


def test_a_spec_that_takes_nothing_says_so(
    root: Path, import_package: Import, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made = content(root, spec=SPEC.format(refusal="raise ValueError").encode())
    module = import_package(made, "takes_nothing")
    check = importlib.import_module("takes_nothing._spec")
    monkeypatch.setattr(check, "TRIES", 3)
    monkeypatch.setattr(check, "run_deck", partial(check.run_deck, device="cpu"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    assert not module.check()
    said = capsys.readouterr().out
    assert "FAILED: 0 cases on a card, for the spec takes none of the sizes that were tried" in said
