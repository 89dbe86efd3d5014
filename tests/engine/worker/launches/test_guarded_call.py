"""Arguments of a launch: what the kernel's 32 bits do not hold is refused and never cut off."""

from __future__ import annotations

import pytest
import torch

from engine.errors import InputError
from engine.transfer.binding import Binding, TensorField
from engine.worker.launches.guard_bands import Layout
from engine.worker.launches.guarded_call import make_call

IDS = Binding((TensorField("ids", "ids", ("B", "Nk"), ("B", "Nk"), "i64", False),
               TensorField("o", "O", ("B", "Nk"), ("B", "Nk"), "T", True)), (), ())  # fmt: skip
SIZES = {"B": 1, "Nk": 3}


def launch(fields: object) -> int:
    return 0


@pytest.mark.parametrize("layouts", [{}, {"ids": Layout("padded", pad=3)}])
def test_int64_values_that_fit_are_carried(layouts: dict[str, Layout]) -> None:
    ids = torch.tensor([[-(2**31), 0, 2**31 - 1]])
    call = make_call(launch, IDS, {"ids": ids}, SIZES, torch.float16, layouts)
    assert call.fields["ids"].dtype == torch.int32
    assert call.fields["ids"].tolist() == ids.tolist()


@pytest.mark.parametrize("past", [2**31, 2**32, -(2**31) - 1, 2**63 - 1])
def test_int64_values_that_do_not_fit_are_refused(past: int) -> None:
    ids = torch.tensor([[0, past, 1]])
    with pytest.raises(InputError, match=r"ids holds integers from .* the kernel reads 32 bits"):
        make_call(launch, IDS, {"ids": ids}, SIZES, torch.float16)


def test_none_at_all_fits() -> None:
    ids = torch.zeros(1, 0, dtype=torch.int64)
    make_call(launch, IDS, {"ids": ids}, {"B": 1, "Nk": 0}, torch.float16)
