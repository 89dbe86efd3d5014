"""Warps of a block that meet at flags and counters in shared memory, with fences and without."""

from __future__ import annotations

import pytest

from tests.engine.ptx.test_machine import execute, kinds

# Warp 1 leaves numbers for warp 0, which waits for a flag.
FLAG = """
	setp.ne.u32 %p0, %r0, 0;
	@!%p0 st.shared.u32 [held+256], 0;
	bar.sync 0;
	setp.ge.u32 %p0, %r0, 32;
	@%p0 bra leave;
poll:
	{poll}.u32 %r5, [held+256];
	setp.eq.u32 %p1, %r5, 0;
	@%p1 bra poll;
	{acquire}
	ld.shared.u32 %r6, [%r2+128];
	st.global.u32 [%d4], %r6;
	ret;
leave:
	st.shared.u32 [%r2], %r0;
	{release}
	{late}
	bar.warp.sync -1;
	setp.ne.u32 %p0, %r0, 32;
	@!%p0 {set}.u32 [held+256], 1;
"""
FENCED = {"poll": "ld.volatile.shared", "set": "st.volatile.shared", "acquire": "membar.cta;",
          "release": "membar.cta;", "late": ""}  # fmt: skip
ORDERED = FENCED | {"poll": "ld.acquire.cta.shared", "set": "st.release.cta.shared", "acquire": "",
                    "release": ""}  # fmt: skip


def flag(text: str = FLAG, seed: int | None = None, **words: str) -> set[str]:
    return kinds(execute(text.format(**words), seed=seed)[1])


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(
    "words",
    [FENCED, ORDERED, FENCED | {"acquire": "fence.acq_rel.cta;", "release": "membar.gl;"},
     FENCED | {"poll": "ld.relaxed.cta.shared", "set": "st.relaxed.cta.shared"},
     FENCED | {"poll": "ld.acquire.cta.shared", "acquire": ""},
     FENCED | {"set": "st.release.gpu.shared", "release": ""}],
)  # fmt: skip
def test_a_flag_with_fences_orders_what_is_before_it(
    words: dict[str, str], seed: int | None
) -> None:
    assert not flag(seed=seed, **words)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(
    "words",
    [
        FENCED | {"release": ""},
        FENCED | {"acquire": ""},
        FENCED | {"poll": "ld.shared"},
        FENCED | {"set": "st.shared"},
        FENCED | {"late": "st.shared.u32 [%r2], %r1;"},  # behind the fence
        FENCED | {"release": "fence.proxy.async;"},
        ORDERED | {"poll": "ld.relaxed.cta.shared"},
        ORDERED | {"set": "st.relaxed.cta.shared"},
    ],
)
def test_and_without_one_of_them_nothing_does(words: dict[str, str], seed: int | None) -> None:
    assert flag(seed=seed, **words) == {"race"}


def test_a_flag_that_another_lane_set_without_a_fence_orders_nothing() -> None:
    early = "\tsetp.eq.u32 %p2, %r0, 1;\n\t@%p2 st.volatile.shared.u32 [held+256], 1;\npoll:"
    assert "race" in flag(FLAG.replace("poll:", early), **FENCED)


def test_numbers_that_are_handed_on_without_an_order_are_data() -> None:
    """What a poll reads decides nothing but when to go on: any other use depends on when it was."""
    used = FLAG.replace("st.global.u32 [%d4], %r6;", "st.global.u32 [%d4], %r5;")
    assert flag(used, **FENCED) == {"race"}


# Each warp leaves numbers and counts itself; the last one reads those of both.
LAST = """
	setp.ne.u32 %p0, %r0, 0;
	@!%p0 st.shared.u32 [held+256], 0;
	bar.sync 0;
	st.shared.u32 [%r2], %r0;
	{release}
	bar.warp.sync -1;
	and.b32 %r4, %r0, 31;
	setp.ne.u32 %p0, %r4, 0;
	@!%p0 atom{order}.shared.add.u32 %r5, [held+256], 1;
	shfl.sync.idx.b32 %r5, %r5, 0, 31, -1;
	setp.ne.u32 %p0, %r5, 1;
	@%p0 ret;
	{acquire}
	xor.b32 %r4, %r2, 128;
	ld.shared.u32 %r6, [%r4];
	st.global.u32 [%d4], %r6;
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_last_that_counts_itself_reads_what_the_others_left(seed: int | None) -> None:
    fence = "fence.acq_rel.cta;"
    assert not flag(LAST, seed, release=fence, acquire=fence, order="")
    assert not flag(LAST, seed, release="", acquire="", order=".acq_rel.cta")
    assert not flag(LAST, seed, release=fence, acquire="", order=".acquire.cta")
    assert flag(LAST, seed, release="", acquire=fence, order="") == {"race"}
    assert flag(LAST, seed, release=fence, acquire="", order="") == {"race"}
    assert flag(LAST, seed, release="", acquire="", order=".release.cta") == {"race"}


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_sum_by_atomics_is_read_behind_a_barrier(seed: int | None) -> None:
    add = "\tred.shared.add.u32 [held], %r0;\n"
    read = "\tld.shared.u32 %r5, [held];\n\tst.global.u32 [%d4], %r5;\n"
    clear = "\tsetp.ne.u32 %p0, %r0, 0;\n\t@!%p0 st.shared.u32 [held], 0;\n"
    wait = "\tbar.sync 0;\n"
    target, done = execute(clear + wait + add + wait + read, seed=seed)
    assert not done.findings and target[5] == 64 * 63 // 2
    assert kinds(execute(clear + wait + add + read, seed=seed)[1]) >= {"race"}
    assert kinds(execute(clear + add + wait + read, seed=seed)[1]) >= {"race"}
