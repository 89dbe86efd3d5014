"""One reading of "which place is which dimension": the CPU gates, the GPU worker, the packages."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.package.runtime._args import axes
from engine.transfer.binding import TensorField
from engine.transfer.fill import permuted, places, unpermuted

NAMES = st.sampled_from(["1", "1", "B", "Hq", "N", "N", "Nk", "W"])
SIZES = {"1": 1, "B": 2, "Hq": 3, "N": 4, "Nk": 5, "W": 6}


@st.composite
def fields(draw: st.DrawFn) -> TensorField:
    """Any order of the source's dimensions, with a few that it lacks among them."""
    source = tuple(draw(st.lists(NAMES, min_size=1, max_size=4)))
    order = list(draw(st.permutations(source)))
    for _ in range(4 - len(order)):
        if draw(st.booleans()):
            order.insert(draw(st.integers(0, len(order))), "absent")
    return TensorField("x", "x", source, tuple(order), "f32")


@given(fields())
def test_views_agree_with_the_struct_that_packages_fill(item: TensorField) -> None:
    shape = [SIZES[d] for d in item.source_dims]
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    view = permuted(tensor, item)
    assert list(view.shape) == [1 if d == "absent" else SIZES[d] for d in item.dims]
    strides = [
        0 if p is None else tensor.stride(p) for p in axes([*item.source_dims], [*item.dims])
    ]
    assert list(view.stride()) == strides
    assert view.data_ptr() == tensor.data_ptr()
    assert torch.equal(unpermuted(view, item), tensor)


@given(fields())
def test_each_place_is_used_once(item: TensorField) -> None:
    found = [p for p in places(item.source_dims, item.dims) if p is not None]
    assert sorted(found) == list(range(len(item.source_dims)))
    assert places(item.source_dims, item.source_dims) == list(range(len(item.source_dims)))


def test_a_dimension_that_stands_twice() -> None:
    item = TensorField("x", "x", ("1", "1", "Nq", "Nk"), ("1", "1", "Nq", "Nk"), "f32")
    assert permuted(torch.zeros(1, 1, 3, 5), item).stride() == (15, 15, 5, 1)
    item = TensorField("x", "x", ("N", "N"), ("N", "N"), "f32")
    assert axes([*item.source_dims], [*item.dims]) == [0, 1]
