"""Properties of lowering: any legal edit of any kernel, and any writing of the same text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuir.canonical import equal
from engine.lift.cpp.provenance import Lifted
from engine.lower.lower import lift_for, lower
from engine.lower.spelling.legal import legal
from tests.engine.lower.fixtures import VARIANTS, checked, lifted, source
from tests.engine.lower.random_edits import QUICK, edits

KERNELS = ("odd", "flash_fwd_sm80", "flash_fwd_sm90")
LIFTED: dict[str, Lifted] = {}


def given_kernel(name: str) -> Lifted:
    if name not in LIFTED:
        LIFTED[name] = lifted(name)
    return LIFTED[name]


@pytest.mark.parametrize("name", KERNELS)
@settings(QUICK, max_examples=25)
@given(data=st.data())
def test_a_legal_edit_lowers_and_lifts_back(name: str, data: st.DataObject) -> None:
    kernel = given_kernel(name)
    target = data.draw(edits(kernel.module))
    done = checked(kernel, target)
    assert equal(done.target, legal(target))
    assert 0 <= done.share <= 1
    # The places of statements that stayed are where lifting finds them again.
    again = lift_for(done.source, target)
    for path, place in done.provenance.items():
        if path in again.provenance:
            assert place == again.provenance[path].range, path


@pytest.mark.parametrize("name", KERNELS)
@settings(QUICK, max_examples=8)
@given(data=st.data(), variant=st.sampled_from(sorted(VARIANTS)))
def test_lowering_keeps_the_writing_of_the_file(
    name: str, data: st.DataObject, variant: str
) -> None:
    """CRLF stays CRLF, tabs stay tabs: lowering and rewriting the text commute."""
    kernel = given_kernel(name)
    target = data.draw(edits(kernel.module))
    change = VARIANTS[variant]
    other = lifted(name, change(source(name)))
    assert equal(other.module, kernel.module)
    done = checked(other, target)
    wanted = change(checked(kernel, target).source)
    if variant == "tabs":  # a tab counts as one column, so lines may break elsewhere
        assert done.source.split() == wanted.split()
        assert not any(line.startswith(b"  ") for line in done.source.split(b"\n") if line.strip())
    elif variant != "cjk":  # new text has no such comments
        assert done.source == wanted


@pytest.mark.parametrize("name", KERNELS)
@settings(QUICK, max_examples=5)
@given(data=st.data())
def test_taking_the_edit_back_lifts_to_the_expert_again(name: str, data: st.DataObject) -> None:
    kernel = given_kernel(name)
    target = data.draw(edits(kernel.module))
    done = checked(kernel, target)
    again = lift_for(done.source, target)
    back = checked(again, kernel.module)
    assert equal(lift_for(back.source, kernel.module).module, kernel.module)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("variant", ["plain", *VARIANTS])
def test_no_edit_gives_the_same_bytes(name: str, variant: str) -> None:
    data = source(name) if variant == "plain" else VARIANTS[variant](source(name))
    kernel = lifted(name, data)
    done = lower(kernel, kernel.module)
    assert done.source == data
    assert done.changed_lines == 0 and done.share == 0
    assert legal(kernel.module) == kernel.module
