"""How a verifying child ended, as a row: a fault of the kernel fails, an error of ours does not."""

from __future__ import annotations

import pytest

from engine.worker.orchestration.children import Ended
from engine.worker.orchestration.trouble import End, trouble_of
from engine.worker.verification.verify import of_the_card

CRASHED = Ended(1, "", 1.0)
SILENT = Ended(-9, "", 1.0, silent=True)


@pytest.mark.parametrize(
    ("end", "verdict"),
    [
        (End(CRASHED, "repeats: B1", "KeyError: 'E'", internal=True), "not_run"),
        (End(CRASHED, "repeats: B1", "AcceleratorError: CUDA error: misaligned address"), "fail"),
        (End(CRASHED, "repeats: B1"), "fail"),  # without a word: a signal, say
        (End(SILENT, "repeats: B1", "KeyError: 'E'", internal=True), "fail"),  # and then it hung
    ],
)
def test_only_a_fault_of_the_kernel_fails(end: End, verdict: str) -> None:
    row = trouble_of(end, [], "bf16_64", 60.0)
    assert row is not None
    assert (row["check"], row["verdict"]) == ("repeats", verdict)
    assert "B1" in (row.get("reason") or row["failures"][0])


def test_a_child_that_ended_well_is_no_trouble() -> None:
    assert trouble_of(End(Ended(0, "", 1.0), "done"), [], "bf16_64", 60.0) is None
    assert trouble_of(End(None, "starting"), [], "bf16_64", 60.0) is None


@pytest.mark.parametrize(
    ("error", "cards"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA error: unspecified launch failure"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), False),
        (RuntimeError("The size of tensor a (3) must match"), False),
        (KeyError("E"), False),
        (ValueError("CUDA"), False),
    ],
)
def test_what_says_something_of_a_launch(error: Exception, cards: bool) -> None:
    assert of_the_card(error) is cards
