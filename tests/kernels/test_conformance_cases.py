"""Every primitive that the lifter reads or the lowerer writes has a conformance case."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.cuir.functions import FUNCTIONS
from engine.cuir.ops import SPELLINGS
from engine.cuir.ops.spelling import Spelling, both
from engine.cuir.static.host_constants import host_constants
from engine.gates.g3_source.conformance import primitives
from engine.gates.g3_source.header_hashes import defined
from engine.lift import lift, load_package
from engine.lift.names.catalogue import catalogue, default_catalogue
from engine.transfer.rules.elements.dense_tiles import KEYS, KEYS_ALONE

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SUITES = ("sm80", "sm90")
ELEMENTS = ("f16", "bf16", "float", "int", "bool")
# What the catalogues write as a call and no header and no device function of CUDA defines.
# CUDA's names of scalar functions for floats: their ops are tried under their own names.
WORDS = {"dim3", "__syncthreads", "rcp"}.union(*(fn.also for fn in FUNCTIONS.values()))


@pytest.fixture(scope="module")
def cases() -> dict[str, list[dict[str, Any]]]:
    def listed(suite: str) -> list[dict[str, Any]]:
        script = str(KERNELS / "conformance" / f"{suite}.py")
        done = subprocess.run([sys.executable, script, "--list"], capture_output=True, check=True)
        return list(json.loads(done.stdout))

    return {suite: listed(suite) for suite in SUITES}


def tried(cases: dict[str, list[dict[str, Any]]]) -> set[str]:
    return {name for suite in cases.values() for case in suite for name in case["primitives"]}


def written() -> set[str]:
    """The functions that the lowerer's templates call."""
    found: set[str] = set()
    for text in (text for spelling in SPELLINGS for text in spelling.lower):
        cuir, cxx = both(text)
        found |= set(re.findall(r"(\w+)(?:\[[^(]*\]|<[^(]*>)?\(", cxx or cuir))
    return found


IN_HEADERS = {
    name for path in (KERNELS / "include" / "cubridge").glob("*.cuh")
    for name in defined(path.read_bytes())
}  # fmt: skip


def test_every_call_of_the_catalogues_has_a_case(cases: dict[str, list[dict[str, Any]]]) -> None:
    """Also CUDA's own scalar functions, on whose error bounds the IR relies."""
    read = set(primitives(default_catalogue()))
    assert {"gemm", "tma_load", "at", "exp2_approx", "run"} <= read & written() & IN_HEADERS
    assert (read | written()) - WORDS - {"sizeof", "same_type", "tile"} - tried(cases) == set()
    assert not WORDS & IN_HEADERS


def test_a_pattern_without_a_case_is_found(cases: dict[str, list[dict[str, Any]]]) -> None:
    settle = Spelling("none", ("settle({s:tile})",), ())
    read = set(primitives(catalogue((settle, *SPELLINGS))))
    assert read - WORDS - tried(cases) == {"settle"}
    assert "settle" in IN_HEADERS


@pytest.mark.parametrize("suite", SUITES)
def test_a_case_calls_what_it_is_said_to_try(
    cases: dict[str, list[dict[str, Any]]], suite: str
) -> None:
    bodies = functions((KERNELS / "conformance" / f"{suite}.cu").read_text())
    for case in cases[suite]:
        function = re.match(r"[a-z_]+?(?=_(?:f16|bf16|float|int|bool)_|<| )", case["case"])
        assert function is not None
        pending, text, seen = [function[0], "start"], "", set()
        while pending:
            name = pending.pop()
            if name in bodies and name not in seen:
                seen.add(name)
                text += bodies[name]
                pending += re.findall(r"\b\w+\b", bodies[name])
        for name in case["primitives"]:
            assert re.search(rf"\b{name}\b\s*[<(]", text), f"{case['case']}: {name}"


def functions(text: str) -> dict[str, str]:
    """The functions at the top level of a text: name and body, overloads together."""
    found: dict[str, str] = {}
    for part in re.split(r"\n\};?\n", text):
        head, _, body = part.partition(" {\n")
        names = re.findall(r"\b(\w+)\(", re.sub(r"//.*|__launch_bounds__\(.*?\)", "", head))
        if names:
            found[names[0]] = found.get(names[0], "") + body
    assert "load" in found or "start" in found
    return found


def shapes_sm80(t: str, v: dict[str, int]) -> set[str]:
    rows, keys, columns, warps = v["BM"], v["BN"], v["D"], v["WARPS"]
    on = f" on {warps * 32} threads"
    return {
        f"copy_in<{t}, {rows}, {columns}>{on}",
        f"copy_in<{t}, {keys}, {columns}>{on}",
        f"matmul<{t}, {rows}, {keys}, {columns}, {warps}, 0>{on}",
        f"matmul<{t}, {rows}, {columns}, {keys}, {warps}, 3>{on}",
        f"maps<{rows}, {keys}, {warps}>{on}",
        f"maps<{rows}, {columns}, {warps}>{on}",
        f"reductions<{rows}, {keys}, {warps}>{on}",
        f"copy_out<{t}, {rows}, {columns}, {warps}>{on}",
        f"bits<MmaAcc<{rows}, {keys}, 4>, {rows}, {keys}>{on}",
        *(f"vectors<{e}, {rows}, {keys}, {warps}>{on}" for e in ELEMENTS),
        *(f"dense<{e}, {rows}, {keys}, {warps}>{on}" for e in ELEMENTS),
        *(f"classes<{64 * k}, {keys}> on 32 threads" for k in (1, 2)),
    }


def shapes_sm90(t: str, v: dict[str, int]) -> set[str]:
    """Also with the key tiles to which a dense tile narrows the launcher's."""
    columns, values = v["COLS"], v["COLS_V"]  # whole panels
    width, width_v = -(-v["D"] // 16) * 16, v["WIDTH_V"]  # what the matmuls take of them
    found = {f"load_{t}_64_{columns}", f"tile_{t}_{width_v}_0"}
    for keys in {v["BN"], min(v["BN"], KEYS_ALONE), min(v["BN"], KEYS)}:
        found |= {f"load_{t}_{keys}_{columns}", f"load_{t}_{keys}_{values}", f"tile_{t}_{keys}_0"}
        found |= {f"gemm_shared_{t}_{keys}_{width}", f"gemm_registers_{t}_{width_v}_{keys}"}
        found |= {f"dense_{e}_{keys}_0" for e in ELEMENTS} | {f"bits_bf16_{keys}_0"}
    return found


SHAPES = {"sm80": shapes_sm80, "sm90": shapes_sm90}


def needed(suite: str, binding: dict[str, str], arch: str) -> set[str]:
    """What a specialisation computes with, as its launcher chooses tiles on that arch."""
    module = lift(load_package(f"flash_fwd_{suite}"), binding, arch).module
    return SHAPES[suite](binding["T"], host_constants(module))


@pytest.mark.parametrize("suite", SUITES)
def test_the_shapes_of_the_bundled_kernels_are_tried(
    cases: dict[str, list[dict[str, Any]]], suite: str
) -> None:
    package = load_package(f"flash_fwd_{suite}")
    wanted = set[str]().union(
        *(needed(suite, dict(b), a) for b in package.specialisations for a in package.archs)
    )
    assert wanted - {case["case"] for case in cases[suite]} == set()


@pytest.mark.parametrize("columns", range(16, 257, 16))
def test_so_are_those_of_further_head_sizes(
    cases: dict[str, list[dict[str, Any]]], columns: int
) -> None:
    """Built where they are asked for; those between have the shapes of the next multiple of 16."""
    # 192 itself goes with values of 128 columns and is a declared specialisation.
    head = 184 if columns == 192 else columns
    wanted = needed("sm90", {"T": "bf16", "D": str(head)}, "sm_90a")
    assert wanted - {case["case"] for case in cases["sm90"]} == set()


def test_cases_have_names_of_their_own(cases: dict[str, list[dict[str, Any]]]) -> None:
    """All but the run of a kernel on other data, which has the same primitives."""
    for suite in cases.values():
        by_name = {case["case"]: case["primitives"] for case in suite}
        assert all(by_name[case["case"]] == case["primitives"] for case in suite)
