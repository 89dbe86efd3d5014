"""A lifted kernel that reads another input than its reference: said at the statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.gates.analysis.reference_mismatch import Fault, another_head, unfilled_field
from engine.lift import lift_source, load_package
from engine.lift.cpp.provenance import Lifted
from engine.spec.read import read_recipe
from engine.transfer.rules import plan

KEYS = "const auto K = gmem<T>(args.k,"
LOAD = "copy_async(sV[ahead % STAGES], V.tile("
HEAD = "h / (args.Hq / args.Hkv)"


def lifted_with(old: str, new: str) -> Lifted:
    package = load_package("flash_fwd_sm80")
    text = package.source.decode()
    assert text.count(old) == 1
    return lift_source(
        text.replace(old, new).encode(), package.specialisations[0], package.archs[0],
        entry=package.entry,
    )  # fmt: skip


def line(lifted: Lifted, fault: Fault | None) -> str:
    assert fault is not None
    number = lifted.provenance[fault.path].start_line
    return lifted.source.decode().splitlines()[number - 1].strip()


def reference() -> Path:
    found = load_package("flash_fwd_sm80").reference
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (KEYS, KEYS.replace("args.k", "args.q"), "K is a view of args.q"),
        (LOAD, LOAD.replace("V.tile", "K.tile"), "sV is loaded from K here"),
    ],
)
def test_an_input_read_for_another(old: str, new: str, words: str) -> None:
    lifted = lifted_with(old, new)
    planned = plan(lifted.module, read_recipe(reference(), {}))
    fault = unfilled_field(lifted.module, planned.binding)
    assert new in line(lifted, fault)
    assert fault is not None and words in fault.reason


def test_another_head_is_a_fault_at_its_statement() -> None:
    lifted = lifted_with(HEAD, "h % args.Hkv")
    fault = another_head(lifted.module, read_recipe(reference(), {}))
    assert "h % args.Hkv" in line(lifted, fault)


def test_the_right_kernel_has_no_fault() -> None:
    lifted = lifted_with(KEYS, KEYS)
    planned = plan(lifted.module, read_recipe(reference(), {}))
    assert unfilled_field(lifted.module, planned.binding) is None
