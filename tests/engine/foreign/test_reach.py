"""Which kernels a launcher reaches, and the sizes at which it launches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError, InputError
from engine.foreign.cases import Case, complete
from engine.foreign.compile import Flags
from engine.foreign.launcher import read_launcher
from engine.foreign.reach import Launches, preprocessed, reached_functions
from engine.foreign.record import Endless

SOURCE = """\
template <int kD> __global__ void fixed() {}
__global__ void brief() {}
__global__ void plain() {}
__global__ void unused() {}
template <int kD> void with_head() { fixed<kD><<<1, 1>>>(); }
void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N, int D) {
  if (N <= 48 && D == 80) brief<<<1, 1>>>();
  else if (D == 96) with_head<96>();
  else plain<<<1, 1>>>();
}
void other() { unused<<<1, 1>>>(); }
"""


def _nvcc() -> bool:
    try:
        find_toolchain()
    except CuBridgeError:
        return False
    return True


BASE = Case({"B": 1, "Hq": 2, "N": 64, "D": 64})


def launches(of: Callable[[dict[str, int]], str]) -> Launches:
    entry = read_launcher(SOURCE, "theirs.cu", "launch", {}, "f32")
    return Launches(entry, lambda case: frozenset({of(dict(case.sizes))}), lambda sizes: True)


def chosen(sizes: dict[str, int]) -> str:
    if sizes["N"] <= 48 and sizes["D"] == 80:
        return "brief"
    return "fixed<96>" if sizes["D"] == 96 else "plain"


def test_what_a_launcher_reaches() -> None:
    assert reached_functions([SOURCE.encode()], "launch") == {
        "fixed",
        "brief",
        "plain",
        "with_head",
    }


@pytest.mark.skipif(not _nvcc(), reason="nvcc preprocesses the source")
def test_what_constants_bar_is_not_reached(tmp_path: Path) -> None:
    source = tmp_path / "theirs.cu"
    source.write_text(
        "__global__ void one() {}\n__global__ void two() {}\n__global__ void three() {}\n"
        "void launch() {\n  if (WHICH == 1) one<<<1, 1>>>();\n  else two<<<1, 1>>>();\n"
        "#if WHICH > 1\n  three<<<1, 1>>>();\n#endif\n}\n"
    )
    for which, names in ((1, {"one"}), (2, {"two", "three"})):
        flags = Flags("sm_80", macros=(f"WHICH={which}",))
        text = preprocessed(source, flags, find_toolchain(), tmp_path)
        assert b"cudaError" not in text
        assert reached_functions([text], "launch") == names


def test_sizes_are_found_by_one_dimension_and_by_two() -> None:
    found = launches(chosen)
    left = found.never({"brief", "fixed<96>", "fixed<128>", "plain"}, [BASE])
    assert left == {"brief", "fixed<96>", "fixed<128>"}
    cases = found.showing(left, [BASE], [SOURCE.encode()])
    assert [dict(c.sizes) for c in cases] == [
        {"B": 1, "Hq": 2, "N": 64, "D": 96},
        {"B": 1, "Hq": 2, "N": 32, "D": 80},  # of whole tiles as far as it may be
    ]
    assert found.never(left, cases) == {"fixed<128>"}


def test_a_size_that_the_launcher_does_not_take_launches_nothing() -> None:
    def refused(sizes: dict[str, int]) -> str:
        if sizes["D"] % 16:
            raise InputError("no such head size")
        return "brief" if sizes["D"] == 40 else "plain"

    found = launches(refused)
    assert found.showing({"brief"}, [BASE], []) == []


def test_a_launcher_that_does_not_end_is_not_asked_again() -> None:
    asked = []

    def endless(sizes: dict[str, int]) -> str:
        asked.append(sizes)
        raise Endless("launch failed: it did not end within 60 s")

    with pytest.raises(Endless):
        launches(endless).never({"brief"}, [BASE])
    assert len(asked) == 1


def test_a_size_is_named_as_the_launcher_has_it_and_none_is_0() -> None:
    source = "void launch(const float* a, float* o, int n) {}"
    shapes = {"a": "N", "o": "N"}
    found = read_launcher(source, "a.cu", "launch", shapes, "f32")
    assert complete(found, {"n": 70})["N"] == 70
    with pytest.raises(InputError, match="no size for N"):
        complete(found, {"D": 8})
