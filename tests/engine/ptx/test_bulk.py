"""Bulk copies: where they read and write, and what they see of what the kernel wrote."""

from __future__ import annotations

import numpy as np
import pytest

from engine.ptx.launch import Launch, Outcome, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.tensor_maps import TensorMap, encode
from engine.ptx.text.parser import parse_module
from tests.engine.ptx.test_machine import HEAD, execute, kinds

# A row that the kernel writes into global memory, and copies from there.
WRITTEN = """
	.shared .align 128 .b8 row[256];
	mov.u32 %r6, barrier;
	mov.u32 %r7, row;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
	st.global.u32 [%d4], %r0;
	{fence}
	bar.sync 0;
	@!%p1 bra wait;
	{late}
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 256;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d1], 256, [%r6];
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], 0;
	@!%p3 bra wait;
	mad.lo.s32 %r4, %r0, 4, %r7;
	ld.shared.u32 %r5, [%r4];
	st.global.u32 [%d4+256], %r5;
"""


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize(
    ("fence", "late"),
    [("fence.proxy.async;", ""), ("fence.proxy.async.global;", ""), ("", "fence.proxy.async;")],
)
def test_what_was_written_and_fenced_is_copied(fence: str, late: str, seed: int | None) -> None:
    target, done = execute(WRITTEN.format(fence=fence, late=late), seed=seed)
    assert not done.findings and target[64:].tolist() == list(range(64))


@pytest.mark.parametrize("fence", ["", "fence.proxy.async.shared::cta;", "membar.gl;"])
def test_without_a_fence_of_global_memory_it_is_not(fence: str) -> None:
    (found,) = execute(WRITTEN.format(fence=fence, late=""))[1].findings
    assert found.kind == "missing proxy fence" and found.at.has("bulk")


MAPPED = """
	.param .align 64 .b8 map[128]
)
{{
	.reg .pred %p<4>;
	.reg .b32 %r<8>;
	.reg .b64 %d<4>;
	.shared .align 128 .b8 box[512];
	.shared .align 8 .b64 barrier;
	.local .align 64 .b8 mine[128];
	mov.u32 %r0, %tid.x;
	mov.u32 %r1, box;
	mov.u32 %r6, barrier;
	shl.b32 %r2, %r0, 2;
	add.s32 %r2, %r2, %r1;
	mov.b64 %d0, map;
	cvta.param.u64 %d0, %d0;
	mov.u64 %d1, mine;
	cvta.local.u64 %d1, %d1;
	cvt.u64.u32 %d2, %r1;
	cvta.shared.u64 %d2, %d2;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], 1;
	st.shared.u32 [%r2], %r0;
	st.shared.u32 [%r2+128], %r0;
	st.shared.u32 [%r2+256], %r0;
	st.shared.u32 [%r2+384], %r0;
	fence.proxy.async;
	bar.sync 0;
	add.s32 %r1, %r1, {at};
	mov.u32 %r3, %ctaid.x;
	mul.lo.u32 %r3, %r3, 2;
	@!%p1 ret;
	{copy}
	ret;
}}
"""
STORE = """
	cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [{map}, {{0, %r3}}], [%r1];
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
"""
LOAD = """
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], 256;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
		[%r1], [{map}, {{0, %r3}}], [%r6];
wait:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r6], 0;
	@!%p3 bra wait;
"""


def mapped(copy: str, at: int = 0, map: str = "%d0", kept: bool = True) -> Outcome:
    """Two blocks copy boxes of two rows of 32 numbers of a tensor of four."""
    head = HEAD[: HEAD.index("(.param")] + "(\n"
    text = head + MAPPED.lstrip("\n").format(at=at, copy=copy.format(map=map))
    tensor = Tensor("o", np.zeros((4, 32), np.uint32))
    place = GLOBAL + (0 << WINDOW) + HALF
    made = encode(TensorMap(place, 4, (32, 4), (4, 128), (32, 2), 0), 2)
    block = made if kept else bytes(128)
    return run(parse_module(text, "k"), Launch("k", (2, 1, 1), (32, 1, 1), 0, block), [tensor])


@pytest.mark.parametrize("copy", [LOAD, STORE])
def test_a_box_lies_at_128_bytes_in_the_blocks_own_memory(copy: str) -> None:
    assert not mapped(copy).findings and not mapped(copy, 256).findings
    for at, kind in ((16, "misaligned"), (384, "out of bounds"), (640, "out of bounds")):
        found = mapped(copy, at).findings[0]
        assert found.kind == kind and found.at.has("tensor")
        assert {f.kind for f in mapped(copy, at).findings} <= {kind, "deadlock"}


@pytest.mark.parametrize("copy", [LOAD, STORE])
def test_a_tensor_map_is_a_parameter_or_in_global_memory(copy: str) -> None:
    for map, words in (("%d1", "const __grid_constant__ CUtensorMap"), ("%d2", "shared memory")):
        found = mapped(copy, map=map).findings[0]
        assert found.kind == "no tensor map" and words in found.words
    found = mapped(copy, kept=False).findings[0]
    assert found.kind == "no tensor map" and "cuTensorMapEncodeTiled" in found.words


PART = """
	mul.wide.u32 %d2, %r0, {far};
	add.s64 %d3, %d0, %d2;
	shl.b32 %r2, %r0, 4;
	add.s32 %r2, %r2, %r1;
	mov.u32 %r4, {bytes};
	cp.async.cg.shared.global [%r2], [%d3], 16, %r4;
	cp.async.wait_all;
"""


@pytest.mark.parametrize(
    ("far", "bytes", "found"),
    [(16, 4, set()), (16, 16, set()), (4, 0, set()), (4, 4, {"misaligned"}),
     (8, 8, {"misaligned"})],
)  # fmt: skip
def test_a_copy_of_16_bytes_is_aligned_to_them_however_many_it_reads(
    far: int, bytes: int, found: set[str]
) -> None:
    assert kinds(execute(PART.format(far=far, bytes=bytes), 32)[1]) == found
