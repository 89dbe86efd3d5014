"""The machine on small PTX: divergence, collectives, barriers, memory, two worlds, order."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InputError
from engine.ptx.launch import Launch, Outcome, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.text.parser import parse_module

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 target)
{
	.reg .pred %p<8>;
	.reg .b32 %r<32>;
	.reg .f32 %f<16>;
	.reg .b64 %d<8>;
	.shared .align 16 .b8 held[512];
	.shared .align 8 .b64 barrier;
	ld.param.u64 %d0, [source];
	ld.param.u64 %d1, [target];
	mov.u32 %r0, %tid.x;
	mov.u32 %r31, %ctaid.x;
	mul.wide.u32 %d2, %r0, 4;
	add.s64 %d3, %d0, %d2;
	add.s64 %d4, %d1, %d2;
	mov.u32 %r1, held;
	shl.b32 %r2, %r0, 2;
	add.s32 %r2, %r2, %r1;
"""


def execute(
    body: str, threads: int = 64, blocks: int = 1, seed: int | None = None, most: int = 10_000
) -> tuple[np.ndarray, Outcome]:
    module = parse_module(HEAD + body + "\n\tret;\n}\n", "k.ptx")
    source = np.arange(128, dtype=np.uint32) + 100
    target = np.zeros(128, np.uint32)
    addresses = b"".join((GLOBAL + (i << WINDOW) + HALF).to_bytes(8, "little") for i in range(2))
    launch = Launch("k", (blocks, 1, 1), (threads, 1, 1), 0, addresses)
    done = run(module, launch, [Tensor("source", source), Tensor.output("target", target)], seed,
               most)  # fmt: skip
    return target, done


def kinds(done: Outcome) -> set[str]:
    return {f.kind for f in done.findings}


def test_a_kernel_that_asks_for_a_cluster_is_refused() -> None:
    text = HEAD.replace("u64 target)\n", "u64 target)\n.explicitcluster\n.reqnctapercluster {}\n")
    four, one = (
        parse_module(f"{text.replace('{}', blocks)}\tret;\n}}\n", "k")
        for blocks in ("2, 2, 1", "1, 1, 1")
    )
    launch = Launch("k", (2, 1, 1), (32, 1, 1), 0, bytes(16))
    with pytest.raises(InputError, match="a cluster of 4 blocks is not executed yet"):
        run(four, launch, [])
    assert one.kernels["k"].cluster == 1


COPY = "\tld.global.u32 %r3, [%d3];\n\tst.shared.u32 [%r2], %r3;\n"
TURNED = "\tsub.s32 %r4, 63, %r0;\n\tshl.b32 %r4, %r4, 2;\n\tadd.s32 %r4, %r4, %r1;\n"
READ = TURNED + "\tld.shared.u32 %r5, [%r4];\n\tst.global.u32 [%d4], %r5;\n"


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_barrier_orders_what_warps_exchange(seed: int | None) -> None:
    target, done = execute(COPY + "\tbar.sync 0;\n" + READ, seed=seed)
    assert not done.findings
    assert target[:64].tolist() == list(range(163, 99, -1))


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_without_it_the_race_is_found_in_every_order(seed: int | None) -> None:
    _, done = execute(COPY + READ, seed=seed)
    assert "race" in kinds(done)


NEIGHBOUR = """
	xor.b32 %r4, %r2, 4;
"""
SYNC = "\tbar.warp.sync -1;\n"


@pytest.mark.parametrize(
    ("body", "race"),
    [
        (COPY + "{}\tld.shared.u32 %r5, [%r4];\n", "reads"),
        (COPY + "{}\tst.shared.u32 [%r4], %r0;\n", "writes"),
        (COPY + SYNC + "\tld.shared.u32 %r5, [%r4];\n{}\tst.shared.u32 [%r2], %r0;\n", "writes"),
        # Two lanes read what one of them writes then.
        (COPY + SYNC + "\tand.b32 %r5, %r2, -5;\n\tld.shared.u32 %r6, [%r5];\n{}"
         "\tst.shared.u32 [%r2], %r0;\n", "writes"),
        ("\tst.global.u32 [%d4], %r0;\n\txor.b64 %d4, %d4, 4;\n{}"
         "\tst.global.u32 [%d4], %r0;\n", "writes"),
    ],
)  # fmt: skip
def test_lanes_of_a_warp_are_ordered_by_syncwarp_alone(body: str, race: str) -> None:
    _, done = execute(NEIGHBOUR + body.format(""))
    (finding,) = done.findings
    assert finding.kind == "race" and finding.words.startswith(race)
    assert "another lane of the warp" in finding.words or "another access read" in finding.words
    _, done = execute(NEIGHBOUR + body.format(SYNC))
    assert not done.findings


def test_a_lane_reads_what_it_wrote_itself_and_the_warp_reads_together() -> None:
    own = "\tld.shared.u32 %r5, [%r2];\n\tst.shared.u32 [%r2], %r5;\n\tld.shared.u32 %r6, [%r2];\n"
    _, done = execute(COPY + own)
    assert not done.findings
    matrix = "\tldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r1];\n"
    _, done = execute(COPY + "\tbar.sync 0;\n" + matrix, threads=32)
    assert not done.findings
    _, done = execute(COPY + matrix, threads=32)
    assert kinds(done) == {"race"}


def test_threads_that_parted_meet_again() -> None:
    target, done = execute("""
	and.b32 %r3, %r0, 1;
	setp.eq.u32 %p0, %r3, 0;
	mov.u32 %r4, 7;
	@%p0 bra even;
	mov.u32 %r4, 9;
	bra.uni join;
even:
	add.s32 %r4, %r4, 1;
join:
	shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;
	st.global.u32 [%d4], %r5;""")
    assert not done.findings
    assert target[:4].tolist() == [9, 8, 9, 8]


@pytest.mark.parametrize("choose", [0x3210, 0x7654, 0x0426, 0x4180, 0xFFFF])
def test_bytes_that_a_constant_chooses_are_those_that_a_register_chooses(choose: int) -> None:
    target, done = execute(f"""
	mul.lo.u32 %r3, %r0, 0x9E3779B1;
	mul.lo.u32 %r4, %r0, 0x85EBCA6B;
	mov.u32 %r5, {choose};
	prmt.b32 %r6, %r3, %r4, %r5;
	prmt.b32 %r7, %r3, %r4, {choose};
	sub.u32 %r5, %r6, %r7;
	st.global.u32 [%d4], %r5;
""")
    assert not done.findings and not target[:64].any()


def test_a_barrier_that_not_all_reach_is_a_deadlock() -> None:
    _, done = execute("\tsetp.lt.u32 %p0, %r0, 32;\n\t@%p0 bar.sync 1, 64;\n")
    assert kinds(done) == {"deadlock"}


def test_threads_that_ended_are_not_waited_for() -> None:
    target, done = execute(
        "\tsetp.ge.u32 %p0, %r0, 32;\n\t@%p0 ret;\n\tbar.sync 0;\n\tst.global.u32 [%d4], %r0;\n"
    )
    assert not done.findings and target[31] == 31


def test_a_loop_that_nothing_ends_is_a_finding() -> None:
    _, done = execute("again:\n\tadd.s32 %r3, %r3, 1;\n\tbra again;\n")
    assert kinds(done) == {"deadlock"}


SPIN = """
	mov.u32 %r3, 0;
	st.global.u32 [%d4], 7;
	bar.sync 0;
	{before}
again:
	ld.volatile.global.u32 %r4, [%d1+508];
	setp.eq.u32 %p0, %r4, 0;
	@%p0 bra again;
	bra end;
set:
	st.volatile.global.u32 [%d1+508], 1;
end:
	bar.warp.sync -1;
"""


FIRST = """
	setp.eq.u32 %p1, %r0, 0;
	@%p1 st.global.u32 [%d1+508], 0;
	membar.gl;
	bar.sync 0;
"""


def test_a_loop_that_waits_for_nothing_ends_soon() -> None:
    """Nothing changes from round to round: that is seen long before so many instructions."""
    _, done = execute(SPIN.format(before=FIRST), most=20_000_000)
    assert kinds(done) == {"deadlock"} and done.instructions < 100_000
    assert "a loop that nothing ends" in done.findings[0].words


@pytest.mark.parametrize("who", [0, 5, 63])
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_threads_that_spin_let_the_others_go_on(who: int, seed: int | None) -> None:
    """The one that ends the loop stands behind it, in the same warp or in another."""
    fill = f"{FIRST}\tsetp.eq.u32 %p2, %r0, {who};\n\t@%p2 bra set;"
    _, done = execute(SPIN.format(before=fill), seed=seed, most=20_000_000)
    assert not done.findings


MBARRIER = """
	mov.u32 %r6, barrier;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], {count};
	bar.sync 0;
	setp.ge.u32 %p2, %r0, 32;
	@%p2 bra producer;
again:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], {parity};
	@!%p3 bra again;
	ld.shared.u32 %r5, [%r2+128];
	st.global.u32 [%d4], %r5;
	ret;
producer:
	st.shared.u32 [%r2], %r0;
	{arrive}
"""
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r6];"


def test_an_mbarrier_orders_its_two_sides() -> None:
    body = MBARRIER.format(count=32, parity=0, arrive=ARRIVE)
    for seed in (None, 0, 1):
        target, done = execute(body, seed=seed)
        assert not done.findings and target[5] == 37


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"parity": 1}, "race"), ({"count": 33}, "deadlock"), ({"arrive": ""}, "deadlock"),
     ({"arrive": ARRIVE * 2, "count": 48}, "barrier misuse"), ({"count": 0}, "barrier misuse")],
)  # fmt: skip
def test_an_mbarrier_used_wrongly(change: dict[str, object], kind: str) -> None:
    given = {"count": 32, "parity": 0, "arrive": ARRIVE} | change
    assert kind in kinds(execute(MBARRIER.format(**given))[1])


LATE = """
	mov.u32 %r6, barrier;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
	bar.sync 0;
	setp.ge.u32 %p2, %r0, 32;
	@%p2 bra other;
	@!%p1 bra all;
again:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], 0;
	@!%p3 bra again;
all:
	bar.sync 1, 64;
	shfl.sync.idx.b32 %r3, %r0, 5, 31, -1;
	st.global.u32 [%d4], %r3;
	ret;
other:
	bar.arrive 1, 64;
	setp.eq.u32 %p2, %r0, 40;
	@%p2 mbarrier.arrive.shared::cta.b64 _, [%r6];
"""


def test_a_lane_that_waits_elsewhere_comes_to_a_barrier_with_its_warp() -> None:
    """The barrier is not complete before, though the other lanes stand there."""
    for seed in (None, 0, 1):
        target, done = execute(LATE, seed=seed)
        assert not done.findings and target[0] == 5


ASYNC = """
	cp.async.ca.shared.global [%r2], [%d3], 4;
	cp.async.commit_group;
	{wait}
	ld.shared.u32 %r5, [%r2];
	st.global.u32 [%d4], %r5;
"""


def test_a_copy_is_there_when_it_was_waited_for() -> None:
    target, done = execute(ASYNC.format(wait="cp.async.wait_group 0;"))
    assert not done.findings and target[3] == 103


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;", "bar.sync 0;"])
def test_and_not_before(wait: str) -> None:
    found = kinds(execute(ASYNC.format(wait=wait))[1])
    assert "early read" in found and "undefined value" in found


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("\tst.global.u32 [%d4+512], %r0;\n", "out of bounds"),
        ("\tld.global.u32 %r3, [%d3+-4];\n", "out of bounds"),
        ("\tst.shared.u32 [%r2+520], %r0;\n", "out of bounds"),
        ("\tst.global.u32 [%d4+2], %r0;\n", "misaligned"),
        ("\tld.shared.u32 %r3, [%r2];\n\tst.global.u32 [%d4], %r3;\n", "undefined value"),
        ("\tst.global.u32 [%d4], %r9;\n", "undefined value"),
        ("\tsetp.lt.s32 %p0, %r9, 0;\n\t@%p0 ret;\n", "undefined value"),
        ("\tst.global.u32 [%d1], %r0;\n", "race"),
        ("\tst.shared.u32 [held], %r0;\n", "race"),
        ("\ttrap;\n", "trap"),
    ],
)
def test_what_memory_says(body: str, kind: str) -> None:
    _, done = execute(body)
    assert kind in kinds(done)
    assert done.findings[0].block == (0,) and len(done.findings[0].thread) == 1


@pytest.mark.parametrize("wide", ["u32 %r3", "v2.u32 {%r3, %r4}"])
def test_a_load_of_what_is_read_only_reads_nothing_that_the_kernel_writes(wide: str) -> None:
    again = f"\tand.b64 %d4, %d4, -8;\n\tld.global.nc.{wide}, [%d4+AT];\n"
    wrote = "\tst.global.u32 [%d4], %r0;\n\tbar.sync 0;\n"
    _, done = execute(wrote + again.replace("AT", "0"))
    (found,) = done.findings
    assert found.kind == "race" and found.at.has("nc") and found.other is not None
    assert not execute(wrote + again.replace("AT", "256"))[1].findings
    # Written after it was read: the load has its value.
    assert not execute("\tld.global.nc.u32 %r3, [%d4];\n" + wrote)[1].findings


def test_a_finding_names_its_thread_by_the_launchs_own_dimensions() -> None:
    text = HEAD + "\tmov.u32 %r3, %ctaid.z;\n\tmov.u32 %r4, %tid.y;\n"
    text += (
        "\tadd.s32 %r3, %r3, %r4;\n\tsetp.ne.s32 %p0, %r3, 7;\n\t@%p0 ret;\n\ttrap;\n\tret;\n}\n"
    )
    launch = Launch("k", (2, 3, 5), (8, 4, 1), 0, bytes(16))
    (finding,) = run(parse_module(text, "k"), launch, []).findings
    assert (finding.block, finding.thread) == ((0, 0, 4), (0, 3))
    assert "the kernel stops itself (block (0, 0, 4), thread (0, 3))" in str(finding)


@pytest.mark.parametrize("at", ["[%d5+8]", "[%d6+8]"])  # one byte for all lanes, or one for each
def test_local_memory_is_each_threads_own(at: str) -> None:
    own = """
	.local .align 16 .b8 mine[32];
	mov.u64 %d5, mine;
	and.b32 %r3, %r0, 3;
	mul.wide.u32 %d6, %r3, 4;
	add.s64 %d6, %d5, %d6;
	{store}
	setp.ge.u32 %p0, %r0, 32;
	@%p0 bra $there;
	ld.local.v2.u32 {{%r4, %r5}}, [%d5+16];
	bra $end;
$there:
	ld.local.u32 %r4, {at};
$end:
	st.global.u32 [%d4], %r4;
"""
    store = f"st.local.u32 {at}, %r0;\n\tst.local.v2.u32 [%d5+16], {{%r0, %r0}};"
    values, done = execute(own.format(store=store, at=at))
    assert not done.findings and values[:32].tolist() == list(range(32))
    assert values[32:64].tolist() == list(range(32, 64))
    _, done = execute(own.format(store="", at=at))
    (finding, *_) = done.findings
    assert "local memory was read before a defined value was written" in finding.words
    _, done = execute(own.format(store=store, at=at).replace("+8]", "+32]"))
    assert "out of bounds" in kinds(done)


def test_lanes_in_several_state_spaces_are_refused() -> None:
    body = """
	cvta.shared.u64 %d5, %d2;
	setp.lt.u32 %p0, %r0, 32;
	selp.b64 %d5, %d5, %d4, %p0;
	st.u32 [%d5], %r0;"""
    with pytest.raises(InputError, match="lanes at several state spaces"):
        execute(body)


def test_an_undefined_value_that_decides_nothing_is_none() -> None:
    target, done = execute("\tand.b32 %r9, %r9, 0;\n\tst.global.u32 [%d4], %r9;\n")
    assert not done.findings and not target[:64].any()


@pytest.mark.parametrize("by", ["0f00000000", "0f80000000"])
@pytest.mark.parametrize("unset", ["", "ld.shared.f32 %f1, [%r2];"])
def test_a_weight_of_0_does_not_hide_what_nothing_defined(unset: str, by: str) -> None:
    """A tile's tail that nobody wrote holds NaN, on the day that it does."""
    body = f"\t{unset}\n\tfma.rn.f32 %f0, %f1, {by}, 0f3F800000;\n\tst.global.f32 [%d4], %f0;\n"
    _, done = execute(body)
    assert ["an output" in f.words for f in done.findings] == [True]


@pytest.mark.parametrize(
    ("over", "then", "words"),
    [
        ("add.s32 %r3, %r3, 2;", "and.b32 %r3, %r3, 1;", ""),  # 9 or 7 is odd
        ("add.s32 %r3, %r3, 2;", "", "an output"),
        ("st.shared.u32 [%r2], %r3;", "and.b32 %r3, %r3, 1;", "a branch"),
        ("bar.sync 0;", "", "a branch"),
        ("@%p1 add.s32 %r3, %r3, 2;", "and.b32 %r3, %r3, 1;", ""),
        (17 * "add.s32 %r3, %r3, 2;\n\t", "and.b32 %r3, %r3, 1;", ""),
    ],
)
def test_a_branch_over_registers_alone_is_each_worlds_own(over: str, then: str, words: str) -> None:
    body = f"""
	setp.gt.s32 %p0, %r9, 0;
	mov.u32 %r3, 7;
	setp.lt.u32 %p1, %r0, 32;
	@%p1 mov.u32 %r9, 0;
	@%p0 bra $there;
	{over}
$there:
	{then}
	st.global.u32 [%d4], %r3;
"""
    values, done = execute(body)
    assert [words in f.words for f in done.findings] == [True] * bool(words)
    assert words or (values[:64] == 1).all()


@pytest.mark.parametrize("threads", [64, 1024])
def test_two_blocks_on_one_output(threads: int) -> None:
    """Blocks that execute together, and blocks of different batches."""
    body = "\tsetp.ge.u32 %p0, %r0, 64;\n\t@%p0 ret;\n\tst.global.u32 [%d4], 5;\n"
    assert kinds(execute(body, threads, blocks=3)[1]) == {"race"}


def test_blocks_that_only_read_one_place() -> None:
    assert not execute("\tld.global.u32 %r3, [%d0];\n", blocks=3)[1].findings


@pytest.mark.parametrize(
    ("grid", "block", "more", "words"),
    [
        ((1, 70000, 1), (32, 1, 1), {}, "gridDim.y is 70000: 1 to 65535 are allowed"),
        ((1, 1, 0), (32, 1, 1), {}, "gridDim.z is 0"),
        ((1, 1, 1), (1, 1, 128), {}, "blockDim.z is 128: 1 to 64 are allowed"),
        ((1, 1, 1), (64, 32, 1), {}, "2048 threads a block, of 1024"),
        ((1, 1, 1), (128, 1, 1), {}, "128 threads a block, and its launch bounds are 96"),
        ((1, 1, 1), (96, 1, 1), {"registers": 255}, ""),
        ((1, 1, 1), (96, 1, 1), {"registers": 520}, "520 registers for each of 96 threads"),
        ((1, 1, 1), (32, 1, 1), {"shared": 40000}, ""),
        ((1, 1, 1), (32, 1, 1), {"shared": 50000}, ""),  # what was allowed is not looked at
        ((1, 1, 1), (32, 1, 1), {"shared": 50000, "allowed": 50000}, ""),
        ((1, 1, 1), (32, 1, 1), {"shared": 50000, "allowed": 0}, "was not called"),
        ((1, 1, 1), (32, 1, 1), {"shared": 50000, "allowed": 49999}, "allows 49999"),
        ((1, 1, 1), (32, 1, 1), {"shared": 300000}, "bytes of shared memory a block, of "),
    ],
)
def test_launches_that_the_runtime_refuses(
    grid: tuple[int, int, int], block: tuple[int, int, int], more: dict[str, int], words: str
) -> None:
    text = HEAD.replace("u64 target)\n", "u64 target)\n.maxntid 96, 1, 1\n")
    if "2048" in words or "blockDim" in words:
        text = HEAD
    module = parse_module(text + "\n\tret;\n}\n", "k")
    rest = {name: value for name, value in more.items() if name != "shared"}
    done = run(module, Launch("k", grid, block, more.get("shared", 0), bytes(16), **rest), [])
    assert [f.kind for f in done.findings] == ["refused launch"] * bool(words)
    assert all(words in f.words for f in done.findings)


def test_registers_that_do_not_fit_together() -> None:
    body = "\tsetmaxnreg.inc.sync.aligned.u32 {};\n"
    assert not execute(body.format(128), 512)[1].findings
    assert kinds(execute(body.format(136), 512)[1]) == {"too many resources"}


@pytest.mark.parametrize(
    "line", ["add.cc.u32 %r3, %r0, %r0;", "vadd.s32.s32.s32 %r3, %r0, %r0, %r0;",
             "ld.global.u32.surprise %r3, [%d3];", "fma.rz.f64 %d1, %d1, %d1, %d1;"],
)  # fmt: skip
def test_what_is_not_executed_is_refused_by_name_and_line(line: str) -> None:
    with pytest.raises(InputError, match=rf"PTX line \d+: {line.split()[0]}"):
        execute("\t" + line)


def test_a_refusal_names_the_lines_that_it_was_inlined_at() -> None:
    text = '\t.file 1 "k.cu"\n\t.file 2 "dp.hpp"\n'
    body = "\t.loc 2 7 1, function_name $L__a, inlined_at 1 30 5\n\tadd.cc.u32 %r3, %r0, %r0;"
    module = parse_module(text + HEAD + body + "\n\tret;\n}\n", "k.ptx")
    with pytest.raises(InputError, match=r"^dp.hpp:7 in k.cu:30: PTX line \d+: add.cc.u32: "):
        run(module, Launch("k", (1, 1, 1), (32, 1, 1), 0, bytes(16)), [])


MATMUL = """
	.reg .f32 %c<4>;
	.reg .b64 %m;
	st.shared.u32 [%r2], 0;
	{proxy}
	bar.sync 0;
	mov.f32 %c0, 0f00000000; mov.f32 %c1, 0f00000000;
	mov.f32 %c2, 0f00000000; mov.f32 %c3, 0f00000000;
	add.f32 %c0, %c0, %c1;
	shr.u32 %r7, %r1, 4;
	cvt.u64.u32 %m, %r7;
	setp.eq.u32 %p1, 0, 0;
	{fence}
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%c0, %c1, %c2, %c3}},
		%m, %m, %p1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	{wait}
	st.global.f32 [%d4], %c0;
"""
GOOD = {"proxy": "fence.proxy.async;", "fence": "wgmma.fence.sync.aligned;",
        "wait": "wgmma.wait_group.sync.aligned 0;"}  # fmt: skip


@pytest.mark.parametrize(
    ("lost", "kind"),
    [("", ""), ("proxy", "missing proxy fence"), ("fence", "missing wgmma fence"),
     ("wait", "early read")],
)  # fmt: skip
def test_a_matmul_of_a_warpgroup(lost: str, kind: str) -> None:
    body = MATMUL.format(**(GOOD | ({lost: ""} if lost else {})))
    found = kinds(execute(body, 128)[1])
    assert kind in found if kind else not found


ROWS = """
	.shared .align 128 .b8 left[2048];
	.shared .align 128 .b8 right[256];
	.reg .f32 %c<4>;
	.reg .b64 %m<4>;
	mov.u32 %r8, right;
	shl.b32 %r9, %r0, 1;
	add.s32 %r9, %r9, %r8;
	mov.b16 %h0, 0;
	st.shared.b16 [%r9], %h0;
	fence.proxy.async;
	{barrier}
	mov.u32 %r7, left;
	add.s32 %r6, %r0, {rows};
	and.b32 %r6, %r6, 127;
	shl.b32 %r6, %r6, 4;
	add.s32 %r6, %r6, %r7;
	st.shared.v4.b32 [%r6], {{%r31, %r31, %r31, %r31}};
	fence.proxy.async;
	bar.warp.sync -1;
	shr.u32 %r7, %r7, 4;
	shr.u32 %r8, %r8, 4;
	cvt.u64.u32 %m0, %r7;
	cvt.u64.u32 %m1, %r8;
	or.b64 %m0, %m0, 68720001024;
	or.b64 %m1, %m1, 68720001024;
	mov.f32 %c0, 0f00000000; mov.f32 %c1, 0f00000000;
	mov.f32 %c2, 0f00000000; mov.f32 %c3, 0f00000000;
	setp.eq.u32 %p1, 0, 0;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%c0, %c1, %c2, %c3}},
		%m0, %m1, %p1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	st.global.f32 [%d4], %c0;
"""


@pytest.mark.parametrize(
    ("rows", "barrier", "kind"),
    [(0, "bar.sync 0;", ""), (32, "bar.sync 0;", "race"), (0, "", "race")],
    ids=["own rows of A", "another warp's rows of A", "B without a barrier"],
)
def test_a_warp_reads_its_own_rows_of_a_and_all_of_b(rows: int, barrier: str, kind: str) -> None:
    body = "\t.reg .b16 %h<2>;\n" + ROWS.format(rows=rows, barrier=barrier)
    found = kinds(execute(body, 128)[1])
    assert found == ({kind} if kind else set())


CHOICE = """
	ld.shared.u32 %r3, [%r2];
	setp.lt.s32 %p0, %r3, 0;
	mov.u32 %r4, 7;
	@%p0 bra over;
	mov.u32 %r4, 9;
	add.s32 %r4, %r4, {add};
over:
	st.global.u32 [%d4], {out};
"""


def test_a_branch_over_arithmetic_alone_is_a_choice_of_values() -> None:
    """A row that is never stored may be divided by anything (FlashAttention-2's row sums)."""
    target, done = execute(CHOICE.format(add=1, out="%r0"))
    assert not done.findings and target[5] == 5
    target, done = execute(CHOICE.format(add=-2, out="%r4"))  # both ways give 7
    assert not done.findings and (target[:64] == 7).all()
    _, done = execute(CHOICE.format(add=1, out="%r4"))
    (finding,) = done.findings
    assert finding.kind == "undefined value" and "an output depends" in finding.words


def test_a_branch_over_anything_else_is_not() -> None:
    _, done = execute(CHOICE.format(add="1;\n\tst.shared.u32 [%r2], %r4", out="%r0"))
    assert any("a branch depends" in f.words for f in done.findings)


@pytest.mark.parametrize("threads", [1, 20, 33, 48])
@pytest.mark.parametrize("seed", [None, 0])
def test_a_blocks_last_warp_may_be_a_part_of_one(threads: int, seed: int | None) -> None:
    body = COPY + "\tbar.sync 0;\n\tmov.u32 %r7, %ntid.x;\n\tsub.s32 %r7, %r7, 1;\n" + TURNED
    body = body.replace("63", "%r7") + READ.removeprefix(TURNED)
    target, done = execute(body, threads, seed=seed)
    assert not done.findings
    assert target[:threads].tolist() == [100 + threads - 1 - t for t in range(threads)]
    vote = "\tvote.sync.ballot.b32 %r5, 1, -1;\n\tredux.sync.add.u32 %r6, %r0, -1;\n"
    target, done = execute(vote + "\tst.global.u32 [%d4], %r5;\n", threads)
    last = threads % 32 or 32
    assert not done.findings and target[threads - 1] == (1 << last) - 1


STATES = """
	.reg .b64 %s<4>;
	mov.u32 %r6, barrier;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], {count};
	bar.sync 0;
	st.shared.u32 [%r2], %r0;
	mbarrier.{arrive}.shared::cta.b64 %s0, [%r6];
again:
	mbarrier.{wait}.shared::cta.b64 %p3, [%r6], {state};
	@!%p3 bra again;
	xor.b32 %r4, %r2, 128;
	ld.shared.u32 %r5, [%r4];
	st.global.u32 [%d4], %r5;
"""


@pytest.mark.parametrize("arrive", ["arrive", "arrive_drop"])
@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_a_wait_for_an_arrivals_state(arrive: str, wait: str) -> None:
    given = {"count": 64, "arrive": arrive, "wait": wait, "state": "%s0"}
    for seed in (None, 0, 1):
        target, done = execute(STATES.format(**given), seed=seed)
        assert not done.findings and target[:64].tolist() == [t ^ 32 for t in range(64)]
    assert kinds(execute(STATES.format(**given | {"count": 65}))[1]) == {"deadlock"}
    # A state of a phase that is over waits for nothing.
    early = STATES.format(**given | {"state": "-1"})
    assert "race" in kinds(execute(early, seed=0)[1])


ARRIVING = """
	mov.u32 %r6, barrier;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], {count};
	bar.sync 0;
	cp.async.ca.shared.global [%r2], [%d3], 4;
	cp.async.mbarrier.arrive{counted}.shared::cta.b64 [%r6];
	{more}
again:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], {parity};
	@!%p3 bra again;
	xor.b32 %r4, %r2, 128;
	ld.shared.u32 %r5, [%r4];
	st.global.u32 [%d4], %r5;
"""
PLAIN = "mbarrier.arrive.shared::cta.b64 _, [%r6];"


@pytest.mark.parametrize(("counted", "more"), [(".noinc", ""), ("", PLAIN)])
def test_copies_arrive_at_an_mbarrier(counted: str, more: str) -> None:
    given = {"count": 64, "counted": counted, "more": more, "parity": 0}
    for seed in (None, 0):
        target, done = execute(ARRIVING.format(**given), seed=seed)
        assert not done.findings
        assert target[:64].tolist() == [100 + (t ^ 32) for t in range(64)]
    assert "early read" in kinds(execute(ARRIVING.format(**given | {"parity": 1}))[1])


def test_a_wait_for_groups_does_not_count_what_arrived_at_an_mbarrier() -> None:
    given = {"count": 64, "counted": ".noinc", "parity": 1, "more": "cp.async.commit_group;"}
    copies = ARRIVING.format(**given).replace("again:", "cp.async.wait_group {};\nagain:")
    copies = copies.replace("[%r4]", "[%r2]")  # what the lane copied itself
    assert "early read" in kinds(execute(copies.replace("{}", "1"))[1])
    assert not execute(copies.replace("{}", "0"))[1].findings


ROW = """
	.shared .align 128 .b8 row[256];
	mov.u32 %r6, barrier;
	mov.u32 %r7, row;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
	bar.sync 0;
	@!%p1 bra wait;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 256;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
		[%r7], [%d0{at}], {size}, [%r6];
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], {parity};
	@!%p3 bra wait;
	add.s32 %r4, %r7, 4;
	mad.lo.s32 %r4, %r0, 4, %r7;
	ld.shared.u32 %r5, [%r4];
	add.s32 %r5, %r5, 1;
	st.shared.u32 [%r4], %r5;
	{fence}
	bar.sync 0;
	@!%p1 ret;
	cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r7], 256;
	cp.async.bulk.commit_group;
	{wait}
"""
RIGHT = {"at": "", "size": 256, "parity": 0, "fence": "fence.proxy.async.shared::cta;",
         "wait": "cp.async.bulk.wait_group.read 0;"}  # fmt: skip


def test_rows_of_bytes_are_copied_in_and_out() -> None:
    for seed in (None, 0, 1):
        target, done = execute(ROW.format(**RIGHT), seed=seed)
        assert not done.findings and target[:64].tolist() == [101 + t for t in range(64)]


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"parity": 1}, "early read"), ({"fence": ""}, "missing proxy fence"),
     ({"wait": ""}, "early read"), ({"at": "+384"}, "out of bounds"), ({"at": "+4"}, "misaligned"),
     ({"size": 240}, "deadlock"), ({"size": 250}, "misaligned")],
)  # fmt: skip
def test_rows_that_are_copied_wrongly(change: dict[str, object], kind: str) -> None:
    assert kind in kinds(execute(ROW.format(**RIGHT | change))[1])


def test_copies_of_two_blocks_to_one_place_are_a_race() -> None:
    assert kinds(execute(ROW.format(**RIGHT), blocks=2)[1]) == {"race"}
    text = ROW.replace("[%d1]", "[%d5]").format(**RIGHT)
    own = "\tmul.wide.u32 %d5, %r31, 256;\n\tadd.s64 %d5, %d5, %d1;\n"
    assert not execute(own + text, blocks=2)[1].findings


# Lanes read what their neighbours hold; then each lane, or one for all, refills the buffer.
REFILL = """
	st.shared.u32 [%r2], %r0;
	bar.warp.sync -1;
	xor.b32 %r4, %r2, 4;
	ld.shared.u32 %r5, [%r4];
	{sync}
	{copy}
	st.global.u32 [%d4], %r5;
"""
EACH = "cp.async.ca.shared.global [%r2], [%d3], 4;\n\tcp.async.wait_all;"
ONE = """
	mov.u32 %r6, barrier;
	setp.eq.u32 %p1, %r0, 0;
	@!%p1 bra over;
	mbarrier.init.shared::cta.b64 [%r6], 1;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 128, [%r6];
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 128;
over:
"""


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("copy", [EACH, ONE])
def test_a_copy_over_what_other_lanes_read_waits_for_them(copy: str, seed: int | None) -> None:
    for sync, found in ("bar.warp.sync -1;", set()), ("", {"race"}):
        text = REFILL.format(sync=sync, copy=copy)
        assert kinds(execute(text, threads=32, seed=seed)[1]) == found
    own = REFILL.replace("xor.b32 %r4, %r2, 4", "mov.u32 %r4, %r2").format(sync="", copy=EACH)
    assert not execute(own, threads=32, seed=seed)[1].findings


ARRAYS = """
	.shared .align 16 .b8 _ZZ1kE1s[256];
	.shared .align 16 .b8 next[512];
	mov.u32 %r4, {name};
	shl.b32 %r5, %r0, 2;
	add.s32 %r4, %r4, %r5;
	st.shared.u32 [%r4{more}], %r0;
	st.shared.u32 [{name}{end}], %r0;
"""


@pytest.mark.parametrize(
    ("name", "more", "end", "found"),
    [("_ZZ1kE1s", "", "", ""), ("next", "", "+508", ""), ("_ZZ1kE1s", "+4", "", "256 of s, "),
     ("_ZZ1kE1s", "", "+256", "256 of s, "), ("next", "+-4", "", "-4 of next, ")],
)  # fmt: skip
def test_a_static_array_has_bounds_of_its_own(name: str, more: str, end: str, found: str) -> None:
    body = ARRAYS.format(name=name, more=more, end=end)
    words = [f.words for f in execute(body)[1].findings if f.kind == "out of bounds"]
    assert len(words) == bool(found) and all(found in w for w in words)


def test_an_address_that_two_arrays_may_be_of_has_those_of_all() -> None:
    either = ARRAYS.replace(
        "mov.u32 %r4, {name};",
        "setp.eq.u32 %p0, %r0, 0;\n\tmov.u32 %r6, "
        "next;\n\tmov.u32 %r7, {name};\n\tselp.b32 %r4, %r6, %r7, %p0;",
    )
    body = either.format(name="_ZZ1kE1s", more="+4", end="+8")
    assert "out of bounds" not in kinds(execute(body)[1])


# Each block leaves a number; the last to come at the counter adds them up.
MEETING = """
	shl.b32 %r3, %r31, 7;
	add.s32 %r3, %r3, %r0;
	mul.wide.u32 %d5, %r3, 4;
	add.s64 %d5, %d5, %d1;
	st.global.u32 [%d5], %r0;
	{fence}
	{sync}
	setp.ne.u32 %p0, %r0, 0;
	@%p0 bra told;
	atom.global.add.u32 %r4, [%d1+508], 1;
	st.shared.u32 [%r1], %r4;
	{fence}
told:
	bar.sync 0;
	ld.shared.u32 %r4, [%r1];
	setp.ne.u32 %p0, %r4, 1;
	@%p0 ret;
	xor.b32 %r3, %r3, 128;
	mul.wide.u32 %d5, %r3, 4;
	add.s64 %d5, %d5, %d1;
	ld.global.u32 %r5, [%d5];
	setp.eq.u32 %p0, %r5, 1234;
	@%p0 trap;
"""


def meeting(fence: str, sync: str, seed: int | None, text: str = MEETING) -> Outcome:
    module = parse_module(HEAD + text.format(fence=fence, sync=sync) + "\tret;\n}\n", "k")
    addresses = b"".join((GLOBAL + (i << WINDOW) + HALF).to_bytes(8, "little") for i in range(2))
    tensors = [Tensor("source", np.zeros(1, np.uint32)), Tensor("o", np.zeros(512, np.uint32))]
    return run(module, Launch("k", (2, 1, 1), (64, 1, 1), 0, addresses), tensors, seed)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("fence", ["membar.gl;", "fence.acq_rel.gpu;", "fence.sc.sys;"])
def test_blocks_hand_on_by_fences_and_an_atomic(fence: str, seed: int | None) -> None:
    assert not meeting(fence, "bar.sync 1;", seed).findings


def test_and_race_without_either() -> None:
    assert kinds(meeting("", "bar.sync 1;", None)) == {"race"}
    assert kinds(meeting("membar.cta;", "bar.sync 1;", None)) == {"race"}
    # What warp 1 wrote is not behind warp 0's fence without a barrier of the two.
    assert any(kinds(meeting("membar.gl;", "", seed)) == {"race"} for seed in range(6))


def test_an_atomic_that_releases_does_so_in_its_scope() -> None:
    for scope, found in (("", set()), (".gpu", set()), (".cta", {"race"})):
        text = MEETING.replace("atom.global", f"atom.acq_rel{scope}.global")
        assert text != MEETING
        assert kinds(meeting("", "membar.gl;\n\tbar.sync 1;", None, text)) == found


def test_a_volatile_float_is_data_that_an_atomic_orders() -> None:
    """As in CUDA's guide: what is volatile needs no fence behind the atomic; but before it."""
    load, add = "ld.global.u32 %r5, [%d5];", "atom.global.add.u32 %r4, [%d1+508], 1;"
    volatile = MEETING.replace(load, "ld.volatile.global.f32 %f5, [%d5];\n\tmov.b32 %r5, %f5;")
    one = volatile.replace("{fence}\ntold", "\ntold")
    assert one != volatile != MEETING and add in one
    assert not meeting("membar.gl;", "bar.sync 1;", None, one).findings
    assert kinds(
        meeting("membar.gl;", "bar.sync 1;", None, MEETING.replace("{fence}\ntold", "\ntold"))
    ) == {"race"}
    assert kinds(meeting("", "bar.sync 1;", None, one)) == {"race"}
    alone = one.replace(add, "mov.u32 %r4, 1;")
    assert kinds(meeting("membar.gl;", "bar.sync 1;", None, alone)) == {"race"}


HALF_A_WARP = "\tsetp.gt.u32 %p0, %r0, 23;\n\t@%p0 bra over;\n"
APART = (
    "\t@%p0 bra one;\n\tbar.sync 0;\n\tbra over;\none:\n\tbar.sync 0;\nover:\n"
    "\tst.global.u32 [%d4], %r0;\n"
)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("\tshfl.sync.down.b32 %r3, %r0, 8, 31, 0xffff;\n", {"divergent collective"}),
        ("\tshfl.sync.down.b32 %r3, %r0, 8, 31, -1;\n\tst.global.u32 [%d4], %r3;\n", set()),
        (HALF_A_WARP + "\tshfl.sync.down.b32 %r3, %r0, 8, 31, 0xffffff;\n"
         "\tst.global.u32 [%d4], %r3;\nover:\n", {"undefined value"}),
        (HALF_A_WARP + "\tshfl.sync.down.b32 %r3, %r0, 8, 23, 0xffffff;\n"
         "\tst.global.u32 [%d4], %r3;\nover:\n", set()),
        ("\tand.b32 %r3, %r0, 1;\n\tsetp.eq.u32 %p0, %r3, 0;\n" + APART,
         {"divergent collective"}),
        ("\tsetp.lt.u32 %p0, %r0, 32;\n" + APART, set()),
        ("\tbar.arrive 1, 96;\n\tsetp.lt.u32 %p0, %r0, 32;\n\t@!%p0 bra over;\n"
         "\tbar.sync 1, 96;\nover:\n\tst.global.u32 [%d4], %r0;\n", set()),
    ],
)  # fmt: skip
def test_lanes_that_a_warp_has_to_execute_together(body: str, found: set[str]) -> None:
    assert kinds(execute(body)[1]) == found


def test_a_barrier_of_the_grid_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="a barrier of the whole grid"):
        execute("\tmov.u32 %r3, %envreg2;\n")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("mov.b32 %r3, 0x01FF0203; dp4a.s32.s32 %r3, %r3, 0x02030405, 10;", 10 + 2 - 3 + 8 + 15),
        ("mov.b32 %r3, 0x01FF0203; dp4a.u32.u32 %r3, %r3, 0x02030405, 10;", 10 + 2 + 765 + 8 + 15),
        ("mov.b32 %r3, 0x0002FFFF; dp2a.lo.s32.s32 %r3, %r3, 0x04030201, 0;", 2 * 2 - 1),
        ("mov.b32 %r3, 0x0002FFFF; dp2a.hi.s32.s32 %r3, %r3, 0x04030201, 0;", 2 * 4 - 3),
        ("bfind.u32 %r3, 0x00F00000;", 23), ("bfind.shiftamt.u32 %r3, 0x00F00000;", 8),
        ("bfind.s32 %r3, -2;", 0), ("bfind.u32 %r3, 0;", 0xFFFFFFFF),
        ("mov.f32 %f0, 0f3F800000; set.gt.u32.f32 %r3, %f0, 0f00000000;", 0xFFFFFFFF),
        ("mov.b32 %r3, 0x3C004000; set.gt.u32.f16x2 %r3, %r3, 0x3C003C00;", 0x0000FFFF),
        ("mov.b32 %r3, 0x3F804000; set.ge.bf16x2.bf16x2 %r3, %r3, 0x3F803F80;", 0x3F803F80),
        ("shr.u32 %r4, %r0, 3; match.any.sync.b32 %r3, %r4, -1;", 0xFF),
        ("match.all.sync.b32 %r3|%p0, %r31, -1;", 0xFFFFFFFF),
        ("match.all.sync.b32 %r3|%p0, %r0, -1;", 0),
        ("mov.u32 %r3, %nwarpid;", 2),
        (".reg .f64 %e; mov.f64 %e, 0d7FF8000000000001; cvt.rpi.s32.f64 %r3, %e;", 0x80000000),
        ("mov.f32 %f0, 0f7FC00000; cvt.rpi.s32.f32 %r3, %f0;", 0),
    ],
)  # fmt: skip
def test_values_of_instructions(code: str, expected: int) -> None:
    target, done = execute(code + "\n\tst.global.u32 [%d4], %r3;\n")
    assert not done.findings and target[0] == expected


def test_time_goes_on() -> None:
    """A loop until some time has gone by ends."""
    body = """
	.reg .b64 %t<3>;
	mov.u64 %t0, %globaltimer;
wait:
	mov.u64 %t1, %globaltimer;
	sub.u64 %t1, %t1, %t0;
	setp.lt.u64 %p0, %t1, 50;
	@%p0 bra wait;
	st.global.u32 [%d4], 1;"""
    assert not execute(body)[1].findings


@pytest.mark.parametrize(
    ("op", "old", "operand", "new"),
    [("add.noftz.f16x2", 0x3C003C00, 0x3C004000, 0x40004200), ("exch.b32", 5, 9, 9),
     ("add.noftz.bf16x2", 0x3F803F80, 0x3F804000, 0x40004040), ("inc.u32", 7, 7, 0),
     ("inc.u32", 6, 7, 7), ("dec.u32", 0, 7, 7), ("dec.u32", 9, 7, 7), ("dec.u32", 5, 7, 4),
     ("cas.b32", 5, 5, 77), ("cas.b32", 5, 6, 5)],
)  # fmt: skip
def test_atomics(op: str, old: int, operand: int, new: int) -> None:
    swap = ", 77" if op.startswith("cas") else ""
    target, done = execute(f"""
	st.shared.u32 [%r2], {old};
	atom.shared.{op} %r3, [%r2], {operand}{swap};
	ld.shared.u32 %r4, [%r2];
	st.global.u32 [%d4], %r4;
	setp.ne.u32 %p0, %r3, {old};
	@%p0 trap;""")
    assert not done.findings and target[0] == new


def test_a_sum_in_a_tensor_that_nothing_set_is_undefined() -> None:
    _, done = execute("\tred.global.add.u32 [%d4], 1;\n")
    assert kinds(done) == {"undefined value"} and "an output" in done.findings[0].words


def test_a_modules_own_variables_last_from_launch_to_launch() -> None:
    text = HEAD.replace(".visible .entry", ".global .align 4 .u32 count[2] = {5};\n.visible .entry")
    body = "\tmov.u64 %d5, count;\n\tld.global.u32 %r3, [%d5];\n\tadd.s32 %r3, %r3, 1;\n"
    body += "\tbar.sync 0;\n\tsetp.ne.u32 %p0, %r0, 0;\n\t@%p0 ret;\n\tst.global.u32 [%d5], %r3;"
    module, own = parse_module(text + body + "\n\tret;\n}\n", "k"), dict[str, Tensor]()
    for n in range(3):
        launch = Launch("k", (1, 1, 1), (64, 1, 1), 0, bytes(16))
        assert not run(module, launch, [], own=own).findings
        assert own["count"].data.view(np.uint32).tolist() == [6 + n, 0]
