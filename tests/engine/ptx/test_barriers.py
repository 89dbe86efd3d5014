"""Named barriers with a count: who comes to which phase has to be told by order."""

from __future__ import annotations

import pytest

from tests.engine.ptx.test_machine import execute, kinds

# The neighbour's number, of the other half of a group of 64 threads.
SWAP = """
	st.shared.u32 [%r2], %r0;
	{barrier}
	xor.b32 %r4, %r2, 128;
	ld.shared.u32 %r5, [%r4];
	st.global.u32 [%d4], %r5;
"""
OWN = "\tshr.u32 %r7, %r0, 6;\n\tadd.u32 %r7, %r7, 1;\n"
# Two warps fill a buffer again and again, two others empty it.
PIPE = """
	setp.lt.u32 %p0, %r0, 64;
	mov.u32 %r3, 0;
	@%p0 bra consume;
fill:
	bar.sync 2, 128;
	st.shared.u32 [%r2+-256], %r3;
	bar.arrive 1, {count};
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p1, %r3, 3;
	@%p1 bra fill;
	ret;
consume:
	bar.arrive 2, 128;
empty:
	bar.sync 1, {count};
	ld.shared.u32 %r5, [%r2];
	st.global.u32 [%d4], %r5;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p1, %r3, 3;
	@!%p1 ret;
	{back}
	bra empty;
"""
BACK = "bar.arrive 2, 128;"
SEEDS = pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])


@SEEDS
def test_two_groups_at_barriers_of_their_own(seed: int | None) -> None:
    target, done = execute(SWAP.format(barrier=OWN + "\tbar.sync %r7, 64;"), 128, seed=seed)
    assert not done.findings and target.tolist() == [t ^ 32 for t in range(128)]


@SEEDS
def test_two_groups_at_one_barrier_are_not_told_apart(seed: int | None) -> None:
    _, done = execute(SWAP.format(barrier="bar.sync 1, 64;"), 128, seed=seed)
    (found,) = [f for f in done.findings if f.kind == "barrier misuse"]
    assert found.at.opcode == "bar.sync" and "barrier 1 is full with 64 threads" in found.words


@SEEDS
def test_one_group_after_the_other_may_use_one_barrier(seed: int | None) -> None:
    turns = """
	setp.ge.u32 %p0, %r0, 64;
	@%p0 bra second;
	bar.sync 1, 64;
	bar.sync 0;
	bra both;
second:
	bar.sync 0;
	bar.sync 1, 64;
both:
"""
    target, done = execute(SWAP.format(barrier=turns), 128, seed=seed)
    assert not done.findings and target.tolist() == [t ^ 32 for t in range(128)]


@SEEDS
def test_more_threads_than_the_count_wait_for_ever(seed: int | None) -> None:
    _, done = execute("\tbar.sync 1, 64;\n", 96, seed=seed)
    assert kinds(done) == {"barrier misuse", "deadlock"}


def test_a_barrier_of_one_warp_is_its_own() -> None:
    assert not execute("\tbar.sync 1, 32;\n", 96)[1].findings


@SEEDS
def test_a_buffer_that_is_filled_and_emptied(seed: int | None) -> None:
    target, done = execute(PIPE.format(count=128, back=BACK), 128, seed=seed)
    assert not done.findings and target[:64].tolist() == [2] * 64
    # The fillers' three warps are a count that three arrivals of their own make full.
    assert "barrier misuse" in kinds(execute(PIPE.format(count=96, back=BACK), 128, seed=seed)[1])
    assert "deadlock" in kinds(execute(PIPE.format(count=128, back=""), 128, seed=seed)[1])
