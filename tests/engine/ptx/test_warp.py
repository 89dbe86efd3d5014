"""Exchange within a warp: by the mask that a lane names itself."""

from __future__ import annotations

import pytest

from tests.engine.ptx.test_machine import execute, kinds

HALVES = """
	setp.lt.u32 %p0, %r0, 16;
	selp.b32 %r3, 0xffff, 0xffff0000, %p0;
	mov.u32 %r4, %r0;
	{body}
	st.global.u32 [%d4], %r5;
"""
STEP = "\tshfl.sync.bfly.b32 %r6, %r4, {}, 31, %r3;\n\tadd.u32 %r4, %r4, %r6;\n"


def halves(body: str) -> tuple[list[int], set[str]]:
    target, done = execute(HALVES.format(body=body), 32)
    return target[:32].tolist(), kinds(done)


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("".join(map(STEP.format, (8, 4, 2, 1))) + "\tmov.u32 %r5, %r4;\n", 120, 376),
        ("redux.sync.add.u32 %r5, %r4, %r3;", 120, 376),
        ("setp.ge.u32 %p1, %r0, 12;\n\tvote.sync.ballot.b32 %r5, %p1, %r3;", 0xF000, 0xFFFF0000),
        ("setp.ge.u32 %p1, %r0, 16;\n\tvote.sync.all.pred %p2, %p1, %r3;\n"
         "\tselp.u32 %r5, 1, 0, %p2;", 0, 1),
        ("and.b32 %r4, %r4, 15;\n\tmatch.any.sync.b32 %r5, 3, %r3;", 0xFFFF, 0xFFFF0000),
        ("elect.sync %r5|%p1, %r3;", 0, 16),
    ],
)  # fmt: skip
def test_half_a_warp_by_itself(body: str, first: int, second: int) -> None:
    target, found = halves(body)
    assert not found and target == [first] * 16 + [second] * 16


def test_of_a_lane_that_the_mask_lacks_nothing_is_known() -> None:
    body = "".join(map(STEP.format, (16, 8))) + "\tmov.u32 %r5, %r4;\n"
    _, done = execute(HALVES.format(body=body), 32)
    (found,) = done.findings
    assert found.kind == "undefined value" and "a lane was read that takes no part" in found.words
    assert found.other is not None and found.other.name == "shfl"
    # A result that nobody uses may be any.
    assert not halves("".join(map(STEP.format, (16,))) + "\tmov.u32 %r5, %r0;\n")[1]
