"""The sizes that a kernel is probed at."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.launcher import read_launcher
from engine.foreign.probe.codes import Codes
from engine.foreign.probe.run import Bench, longer_sizes, probing_sizes

LAUNCHER = """
void launch(const void* q, const void* k, const void* v, float* o, int B, int Hq, int Hkv, int Nq,
            int Nk, float scale) {}
"""


@pytest.mark.parametrize("hkv", [1, 2])
def test_what_differs_has_other_numbers_at_one_of_the_sizes(hkv: int) -> None:
    case = {"Hq": 2, "Hkv": hkv, "Nq": 128, "Nk": 160, "D": 64}
    entry = read_launcher(LAUNCHER, "theirs.cu", "launch", {}, "bf16", {}, {})
    bench = Bench(
        Asked(Path("theirs.cu"), Flags("sm_80"), sizes=(case,)), entry, None, None, Path()
    )
    for first, second in [*probing_sizes(bench), *longer_sizes(bench, 500, 128)]:
        Codes(first).inputs()  # all pairs are told apart
        runs = [{**s, "ratio": s["Hq"] // s["Hkv"]} for s in (first, second[0])]
        for a, b in [*combinations(("B", "Hq", "Nq", "Nk", "ratio"), 2), ("B", "Hkv")]:
            assert any(run[a] != run[b] for run in runs), (a, b)
        assert first["Nk"] % 64 == 0 or first["Nk"] % 160 == 0  # what the case says it takes
    for sizes in longer_sizes(bench, 700, 384)[0][1]:
        Codes(sizes).inputs()
    assert {160, 320} <= {first["Nk"] for first, _ in probing_sizes(bench)}
    (longer,) = longer_sizes(bench, 500, 128)
    assert longer[0]["Nk"] == 512
    assert all(s[n] % 128 == 0 and s["Nk"] > 512 for s in longer[1] for n in ("Nq", "Nk"))
