"""Warps of a block, and blocks, that meet at flags and counters, with fences and without."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.ptx.launch import Launch, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.text.parser import parse_module
from tests.engine.ptx.test_machine import HEAD, execute, kinds, meeting

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


def in_global(text: str) -> str:
    """The same with its flag in global memory."""
    made = text.replace("[held+256]", "[%d1+508]").replace(
        "st.shared.u32 [%d1", "st.global.u32 [%d1"
    )
    return made.replace("atom{order}.shared", "atom{order}.global")


@pytest.mark.parametrize("where", [lambda text: text, in_global])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(
    "words",
    [FENCED, ORDERED, FENCED | {"acquire": "fence.acq_rel.cta;", "release": "membar.gl;"},
     FENCED | {"poll": "ld.relaxed.cta.shared", "set": "st.relaxed.cta.shared"},
     FENCED | {"poll": "ld.acquire.cta.shared", "acquire": ""},
     FENCED | {"set": "st.release.gpu.shared", "release": ""}],
)  # fmt: skip
def test_a_flag_with_fences_orders_what_is_before_it(
    words: dict[str, str], seed: int | None, where: Callable[[str], str]
) -> None:
    words = {k: w.replace(".shared", "") for k, w in words.items()} if where is in_global else words
    assert not flag(where(FLAG), seed, **words)


@pytest.mark.parametrize("where", [lambda text: text, in_global])
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
def test_and_without_one_of_them_nothing_does(
    words: dict[str, str], seed: int | None, where: Callable[[str], str]
) -> None:
    if where is in_global:
        words = {k: w if k == "late" else w.replace(".shared", "") for k, w in words.items()}
    assert flag(where(FLAG), seed, **words) == {"race"}


def test_a_flag_that_another_lane_set_without_a_fence_orders_nothing() -> None:
    early = "\tsetp.eq.u32 %p2, %r0, 1;\n\t@%p2 st.volatile.shared.u32 [held+256], 1;\npoll:"
    assert "race" in flag(FLAG.replace("poll:", early), None, **FENCED)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_numbers_that_are_handed_on_without_an_order_are_data(seed: int | None) -> None:
    """What is read once is one number or another by when it is; what is read again until it is
    there, is there (PTX ISA, "Data-races": strong accesses that see each other have none)."""
    used = FLAG.replace("st.global.u32 [%d4], %r6;", "st.global.u32 [%d4], %r5;")
    assert not flag(used, seed, **FENCED)
    once = used.replace("@%p1 bra poll;", "")
    assert flag(once, seed, **FENCED) == {"race"}
    moved = used.replace("@%p1 bra poll;", "add.s32 %r1, %r1, 4;\n\t@%p1 bra poll;")
    moved = moved.replace("{poll}.u32 %r5, [held+256]", "{poll}.u32 %r5, [%r1+256]")
    assert "race" in flag(moved, seed, **FENCED)  # each time another one


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_who_has_seen_a_flag_may_set_it_back(seed: int | None) -> None:
    back = FLAG.replace("{acquire}", "{acquire}\n\tbar.warp.sync -1;\n\t@!%p0 st.shared.u32 "
                        "[held+256], 2;")  # fmt: skip
    alone = back.replace("setp.ge.u32 %p0, %r0, 32;\n\t@%p0 bra leave;",
                         "setp.ge.u32 %p0, %r0, 32;\n\t@%p0 bra leave;"
                         "\n\tsetp.ne.u32 %p0, %r0, 0;\n\t@%p0 bra end;")  # fmt: skip
    assert alone != back
    assert not flag(alone + "end:\n", seed, **FENCED)
    early = alone.replace("poll:\n", "\t@!%p0 st.shared.u32 [held+256], 2;\npoll:\n")
    assert "race" in flag(early + "end:\n", seed, **FENCED)


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


@pytest.mark.parametrize("where", [lambda text: text, in_global])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_last_that_counts_itself_reads_what_the_others_left(
    seed: int | None, where: Callable[[str], str]
) -> None:
    fence, last = "fence.acq_rel.cta;", where(LAST)
    assert not flag(last, seed, release=fence, acquire=fence, order="")
    assert not flag(last, seed, release="", acquire="", order=".acq_rel.cta")
    assert not flag(last, seed, release=fence, acquire="", order=".acquire.cta")
    assert flag(last, seed, release="", acquire=fence, order="") == {"race"}
    assert flag(last, seed, release=fence, acquire="", order="") == {"race"}
    assert flag(last, seed, release="", acquire="", order=".release.cta") == {"race"}


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


# Each warp leaves words in global memory and takes those of the other, all of them volatile.
WORDS = """
	st.volatile.global.u32 [%d4], %r0;
	membar.gl;
	{order}
	xor.b32 %r4, %r0, 32;
	mul.wide.u32 %d5, %r4, 4;
	add.s64 %d5, %d5, %d1;
	ld.volatile.global.{type} {into}, [%d5];
	st.shared.{type} [%r2], {into};
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(("type", "into"), [("u32", "%r5"), ("f32", "%f5")])
def test_volatile_words_of_global_memory_are_data(type: str, into: str, seed: int | None) -> None:
    assert flag(WORDS, seed, order="", type=type, into=into) == {"race"}
    assert not flag(WORDS, seed, order="bar.sync 0;", type=type, into=into)


# Blocks 0 and 1 leave words for each other.
BETWEEN = """
	shl.b32 %r3, %r31, 6;
	add.s32 %r3, %r3, %r0;
	mul.wide.u32 %d5, %r3, 4;
	add.s64 %d5, %d5, %d1;
	add.s32 %r7, %r0, 1;
	{set}.global.u32 [%d5], %r7;
	{fence}
	xor.b32 %r3, %r3, 64;
	mul.wide.u32 %d5, %r3, 4;
	add.s64 %d5, %d5, %d1;
poll:
	ld.volatile.global.u32 %r5, [%d5];
	setp.eq.u32 %p0, %r5, 0;
	{again}
	st.shared.u32 [%r2], %r5;
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_words_that_blocks_hand_on_are_data_where_nobody_waits_for_them(seed: int | None) -> None:
    def found(set: str, again: str) -> set[str]:
        text = BETWEEN.replace("{set}", set).replace("{again}", again)
        return kinds(meeting("membar.gl;\n\tbar.sync 0;", "", seed, text))

    assert found("st.volatile", "") == {"race"}
    assert not found("st.volatile", "@%p0 bra poll;")  # a word that is its own flag: look-back
    assert "race" in found("st", "@%p0 bra poll;")


# Each block leaves a number and its flag; the next one waits for the flag, as look-back does.
LOOK_BACK = """
	shl.b32 %r3, %r31, 6;
	add.s32 %r3, %r3, %r0;
	mul.wide.u32 %d5, %r3, 4;
	add.s64 %d5, %d5, %d1;
	st.global.u32 [%d5], %r0;
	{release}
	bar.sync 0;
	setp.ne.u32 %p0, %r0, 0;
	mul.wide.u32 %d6, %r31, 4;
	add.s64 %d6, %d6, %d1;
	@!%p0 {set}.u32 [%d6+1024], 1;
	setp.eq.u32 %p1, %r31, 0;
	@%p1 ret;
	@%p0 bra told;
poll:
	{poll}.u32 %r5, [%d6+1020];
	setp.eq.u32 %p2, %r5, 0;
	@%p2 bra poll;
	{acquire}
told:
	bar.sync 0;
	ld.global.u32 %r6, [%d5+-256];
	st.shared.u32 [%r2], %r6;
"""
LOOKS = {"release": "membar.gl;", "acquire": "membar.gl;", "set": "st.volatile.global",
         "poll": "ld.volatile.global"}  # fmt: skip


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(
    ("change", "right"),
    [({}, True),
     ({"set": "st.release.gpu.global", "release": ""}, True),
     ({"set": "red.release.gpu.global.add", "release": ""}, True),
     ({"poll": "ld.acquire.gpu.global", "acquire": ""}, True),
     ({"release": ""}, False), ({"acquire": ""}, False), ({"release": "membar.cta;"}, False),
     ({"set": "st.global"}, False), ({"poll": "ld.global"}, False),
     ({"set": "st.release.cta.global", "release": ""}, False),
     ({"poll": "ld.acquire.cta.global", "acquire": ""}, False)],
)  # fmt: skip
def test_a_block_waits_for_the_flag_of_another(
    change: dict[str, str], right: bool, seed: int | None
) -> None:
    text = LOOK_BACK.format(**LOOKS | change)
    assert kinds(meeting("", "", seed, text)) == (set() if right else {"race"})


# A maximum of all threads by a compare-and-swap, which judges what was read before.
SWAP = """
	ld.global.u32 %r5, [%d1+508];
again:
	max.u32 %r6, %r5, %r0;
	atom.global.cas.b32 %r7, [%d1+508], %r5, %r6;
	setp.ne.u32 %p0, %r5, %r7;
	mov.u32 %r5, %r7;
	@%p0 bra again;
	{use}
"""


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_compare_and_swap_judges_what_was_read_before(seed: int | None) -> None:
    assert not kinds(meeting("", "", seed, SWAP.format(use="")))
    told = SWAP.format(use="st.shared.u32 [%r2], %r5;")
    assert kinds(meeting("", "", seed, told)) == {"race"}
    added = "\tred.global.add.u32 [%d1+508], %r0;\n{use}\tld.global.u32 %r5, [%d1+508];\n"
    assert kinds(meeting("", "", seed, added.format(use=""))) == {"race"}


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_last_at_a_counter_sets_it_back(seed: int | None) -> None:
    last = """
	setp.ne.u32 %p0, %r0, 0;
	@%p0 ret;
	atom.global.add.u32 %r4, [%d1+508], 1;
	setp.ne.u32 %p0, %r4, 1;
	@%p0 ret;
	st.global.u32 [%d1+508], 0;
"""
    assert not kinds(meeting("", "", seed, last))
    assert kinds(meeting("", "", seed, last.replace("setp.ne.u32 %p0, %r4, 1", "setp.gt.u32 %p0, "
                                                    "%r4, 1"))) == {"race"}  # fmt: skip


def test_what_nothing_defined_may_lie_in_a_workspace_until_it_is_used() -> None:
    copy = "\tld.shared.u32 %r5, [%r2];\n\tst.global.u32 [%d4], %r5;\n"
    module = parse_module(HEAD + copy + "\tret;\n}\n", "k")
    addresses = b"".join((GLOBAL + (i << WINDOW) + HALF).to_bytes(8, "little") for i in range(2))
    launch = Launch("k", (1, 1, 1), (64, 1, 1), 0, addresses)

    def found(workspace: bool) -> tuple[set[str], Tensor]:
        held = Tensor("o", np.zeros(64, np.uint32), np.zeros(256, np.bool_), workspace=workspace)
        return kinds(run(module, launch, [Tensor("s", np.zeros(1, np.uint32)), held])), held

    assert found(False)[0] == {"undefined value"}
    none, held = found(True)
    assert not none and held.set is not None and not held.set.any()
    # A launch that uses it: in an output, or to decide.
    for use in ("st.global.u32 [%d4], %r5;", "setp.lt.s32 %p0, %r5, 0;\n\t@%p0 trap;"):
        text = f"\tadd.s64 %d5, %d0, %d2;\n\tld.global.u32 %r5, [%d5];\n\t{use}\n"
        later = parse_module(HEAD + text + "\tret;\n}\n", "k")
        out = Tensor.output("o", np.zeros(64, np.uint32))
        assert "undefined value" in kinds(run(later, launch, [held, out]))
