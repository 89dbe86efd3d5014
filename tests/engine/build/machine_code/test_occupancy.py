"""Resident blocks, against NVIDIA's occupancy calculator and as a monotone function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.build.machine_code.occupancy import resident_blocks
from engine.cuir.arch import arch, archs


@pytest.mark.parametrize(
    ("name", "threads", "registers", "shared", "blocks", "limit"),
    [
        ("sm_80", 128, 239, 65536, 2, "registers"),
        ("sm_80", 128, 168, 65536, 2, "shared"),
        ("sm_80", 128, 128, 81920, 2, "shared"),
        ("sm_80", 128, 128, 82944, 2, "shared"),
        ("sm_80", 128, 128, 82945, 1, "shared"),
        ("sm_80", 256, 32, 0, 8, "warps"),
        ("sm_80", 32, 16, 0, 32, "blocks"),
        ("sm_86", 128, 24, 0, 12, "warps"),
        ("sm_86", 32, 16, 0, 16, "blocks"),
        ("sm_90a", 384, 168, 212992, 1, "registers"),
        ("sm_90a", 256, 64, 0, 4, "registers"),
        ("sm_80", 2048, 16, 0, 0, "warps"),
        ("sm_80", 128, 256, 0, 0, "registers"),
        ("sm_80", 128, 64, 166913, 0, "shared"),
        ("sm_80", 1024, 65, 0, 0, "registers"),
    ],
)
def test_known_values(
    name: str, threads: int, registers: int, shared: int, blocks: int, limit: str
) -> None:
    found = resident_blocks(arch(name), threads, registers, shared)
    assert (found.blocks, found.limit) == (blocks, limit)


sizes = st.tuples(st.integers(1, 1024), st.integers(0, 255), st.integers(0, 233472))


@given(st.sampled_from(sorted(archs())), sizes, sizes)
def test_more_of_anything_never_fits_more_blocks(
    name: str, one: tuple[int, int, int], two: tuple[int, int, int]
) -> None:
    low = tuple(map(min, one, two))
    high = tuple(map(max, one, two))
    assert resident_blocks(arch(name), *high).blocks <= resident_blocks(arch(name), *low).blocks


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        resident_blocks(arch("sm_80"), 0, 1, 0)
