"""Waits for an mbarrier that are not made again: they may be without success."""

from __future__ import annotations

import pytest

from engine.ptx.isa.mbarrier import spins
from engine.ptx.text.parser import parse_module
from tests.engine.ptx.test_machine import HEAD, execute, kinds

# Warp 1 leaves numbers for warp 0.
LEFT = """
	mov.u32 %r6, barrier;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r6], 32;
	bar.sync 0;
	setp.ge.u32 %p2, %r0, 32;
	mov.u32 %r8, 0;
	@%p2 bra producer;
	{wait}
done:
	ld.shared.u32 %r5, [%r2+128];
	st.global.u32 [%d4], %r5;
	ret;
producer:
	st.shared.u32 [%r2], %r0;
	mbarrier.arrive.shared::cta.b64 _, [%r6];
"""
TEST, TRY = (f"mbarrier.{w}_wait.parity.shared::cta.b64 %p3, [%r6], 0;" for w in ("test", "try"))
TOKEN = """
	selp.b32 %r7, 1, 0, %p3;
	setp.ne.s32 %p4, %r7, 0;
	@%p4 bra done;
"""
LOOPS = [
    f"again:\n\t{TRY}\n\t@!%p3 bra again;\n",
    f"again:\n\t{TEST}\n\t@%p3 bra.uni done;\n\tbra.uni again;\n",
    f"again:\n\t{TEST}\n\tselp.u32 %r7, 1, 0, %p3;\n\tsetp.eq.s32 %p4, %r7, 0;\n"
    "\tnanosleep.u32 20;\n\t@%p4 bra again;\n",
    f"{TRY}{TOKEN}again:\n\t{TRY}\n\t@!%p3 bra again;\n",
]
# Loops that do more than wait: a count of the rounds, a look at something else.
BUSY = [
    f"again:\n\tadd.u32 %r8, %r8, 1;\n\t{TRY}\n\t@%p3 bra done;\n\tsetp.lt.u32 %p4, %r8, 99;\n"
    "\t@%p4 bra again;\n\ttrap;\n",
    f"again:\n\tld.global.u32 %r7, [%d0];\n\t{TRY}\n\t@!%p3 bra again;\n",
    f"{TRY}{TOKEN}ld.global.u32 %r7, [%d0];\nagain:\n\t{TRY}\n\t@!%p3 bra again;\n",
]
ONCE = [TEST, TRY, f"{TRY}\n\t@%p3 bra done;\n\tadd.u32 %r8, %r8, 1;\n", f"{TRY}{TOKEN}",
        f"{TRY}\n\t@!%p3 add.u32 %r8, %r8, 1;\n"]  # fmt: skip
SEEDS = pytest.mark.parametrize("seed", [None, 0, 1])


def first(wait: str) -> bool:
    kernel = parse_module(HEAD + LEFT.format(wait=wait) + "\tret;\n}\n", "k").kernels["k"]
    return spins(kernel, next(k for k, at in enumerate(kernel.code) if at.has("parity")))


@SEEDS
@pytest.mark.parametrize("wait", LOOPS + BUSY)
def test_a_loop_waits(wait: str, seed: int | None) -> None:
    target, done = execute(LEFT.format(wait=wait), seed=seed)
    assert not done.findings and target[:32].tolist() == list(range(32, 64))
    assert first(wait) is (wait in LOOPS)


@SEEDS
@pytest.mark.parametrize("wait", ONCE)
def test_a_wait_without_a_loop_waits_for_nothing(wait: str, seed: int | None) -> None:
    _, done = execute(LEFT.format(wait=wait), seed=seed)
    assert not first(wait) and "race" in kinds(done)


@SEEDS
def test_a_phase_that_is_known_to_be_complete_is_seen_at_once(seed: int | None) -> None:
    known = LEFT.replace("producer:", "\tbra out;\nproducer:").replace("\tret;\n", "", 1) + "out:\n"
    body = known.format(wait="bar.sync 1, 64;\n\t" + TEST + "\n\t@!%p3 trap;\n")
    body = body.replace("_, [%r6];", "_, [%r6];\n\tbar.arrive 1, 64;")
    target, done = execute(body, seed=seed)
    assert not done.findings and target[0] == 32
