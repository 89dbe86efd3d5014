"""Which blocks of a launch execute together."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InputError
from engine.ptx.launch import Launch, Outcome, run
from engine.ptx.memory import GLOBAL, HALF, Tensor
from engine.ptx.text.parser import parse_module
from tests.engine.ptx.test_machine import HEAD, kinds

# Each block counts itself, and waits for all others.
ALL = """
	setp.ne.u32 %p0, %r0, 0;
	@%p0 ret;
	mov.u32 %r4, %nctaid.x;
	membar.gl;
	atom.global.add.u32 %r3, [%d0], 1;
wait:
	ld.volatile.global.u32 %r3, [%d0];
	setp.lt.u32 %p1, %r3, %r4;
	@%p1 bra wait;
"""


def barrier(blocks: int, cooperative: bool) -> Outcome:
    module = parse_module(HEAD + ALL + "\tret;\n}\n", "k")
    block = (GLOBAL + HALF).to_bytes(8, "little") * 2
    launch = Launch("k", (blocks, 1, 1), (32, 1, 1), 0, block, cooperative=cooperative)
    return run(module, launch, [Tensor("count", np.zeros(1, np.uint32))])


def test_blocks_of_a_cooperative_launch_wait_for_each_other() -> None:
    assert not barrier(140, True).findings  # more than otherwise execute together
    assert kinds(barrier(140, False)) == {"deadlock"}


def test_more_than_can_execute_together_are_refused_as_that() -> None:
    with pytest.raises(InputError, match="all of them have to execute together") as refused:
        barrier(1 << 13, True)
    assert "give smaller sizes" in str(refused.value.fix)
