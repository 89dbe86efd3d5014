"""tma_load_rows, compiled and executed as PTX with the tensor map that its host makes."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.foreign.compile import Compiled, Flags, compile_kernel
from engine.foreign.launcher import Launcher, read_launcher
from engine.foreign.record import execute

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")

SOURCE = Path(__file__).with_name("load_rows.cu")
INCLUDE = Path(__file__).resolve().parents[2] / "kernels" / "include"
ROWS, MARGIN = 64, 70  # of load_rows.cu, as are the cases
NAN = 0x7FC0


def cases(rows: int) -> list[tuple[int, int, int]]:
    """The first row of the box, and the range."""
    out = []
    for first in (0, 128):
        places = (0, first + 1, first + 45, rows)
        out += [(first, begin, min(end, rows)) for begin, end in product(places, repeat=2)]
    return out


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Launcher, Compiled, Path]:
    folder = tmp_path_factory.mktemp("load_rows")
    shapes = {"v": "B Nk Hkv D", "o": "Nq Hq Dv"}
    launcher = read_launcher(SOURCE.read_text(), SOURCE.name, "launch", shapes, "bf16")
    flags = Flags("sm_90a", (str(INCLUDE),), ("CUBRIDGE_ARCH=900",),
                  ("-std=c++17", "--expt-relaxed-constexpr"))  # fmt: skip
    return launcher, compile_kernel(SOURCE, launcher, flags, find_toolchain(), folder), folder


@pytest.mark.parametrize(("rows", "columns"), [(150, 120), (1, 64)])
def test_a_range_of_rows_is_copied(
    compiled: tuple[Launcher, Compiled, Path], rows: int, columns: int
) -> None:
    """Ranges that begin, end or do both inside the tile, none and all; rows of other heads between
    two of a head; and NaN in every row that is not asked for, outside the tensor too."""
    launcher, program, folder = compiled
    wide = -(-columns // 64) * 64
    asked = cases(rows)
    v = np.random.default_rng(0).integers(0x3F80, 0x4080, (2, rows + 2 * MARGIN, 2, columns))
    v = v.astype(np.uint16)
    v[:, :MARGIN] = v[:, -MARGIN:] = NAN
    sizes = {"B": 2, "Hkv": 2, "Nk": v.shape[1], "D": columns, "Dv": wide,
             "Nq": len(asked), "Hq": ROWS}  # fmt: skip
    outputs, launches = execute(program, launcher, sizes, {"v": v}, {}, "sm_90a", folder)
    assert not [f for launch in launches for f in launch.findings]
    got = outputs["o"].data.view(np.uint16).reshape(len(asked), ROWS, wide)
    for (first, begin, end), box in zip(asked, got, strict=True):
        want = np.zeros((ROWS, wide), np.uint16)
        for key in range(max(begin, first, 0), min(end, first + ROWS)):
            want[key - first, :columns] = v[1, MARGIN + key, 1]
        assert np.array_equal(box, want), f"rows {begin} to {end} of the box from row {first}"
