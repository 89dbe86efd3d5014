"""Kernels of five public projects, executed as PTX and compared with references.

The projects' sources are no part of this repository: CUBRIDGE_WILD names a folder that holds them
(minimal_fp32, llmc, thunderkittens, fa2, fa3), CUBRIDGE_CUTLASS CUTLASS's include folder.

    CUBRIDGE_WILD=... CUBRIDGE_CUTLASS=... python benchmarks/wild.py [NAME ...]

writes benchmarks/results/wild.json: what ran, at which sizes, how far off and in how many seconds.

    ... python benchmarks/wild.py pack DIR [NAME ...]

imports kernels and packs each, unedited, as a GPU job of its own reference.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from engine.build.machine_code.ptxas import function_name  # noqa: E402
from engine.child.client import Child  # noqa: E402
from engine.foreign.check import Asked, kernels_of_cases  # noqa: E402
from engine.gpu.job import pack  # noqa: E402
from engine.graft.kernel import load_executed  # noqa: E402
from engine.service.executed.gpu_job import contents_of, reference_of  # noqa: E402
from engine.spec.recipes.recipe_json import recipe_from_json  # noqa: E402

OURS = ROOT / "benchmarks" / "wild"
SPECS = ROOT / "benchmarks" / "specs"
RESULTS = ROOT / "benchmarks" / "results" / "wild.json"
FAST = "--nvcc=--use_fast_math"  # as the authors of these compile them
CUTE = ("--nvcc=-std=c++17", "--nvcc=--expt-relaxed-constexpr", "--nvcc=--expt-extended-lambda")


@dataclass(frozen=True, slots=True)
class Wild:
    """One kernel: its project, the source ({wild}, {cutlass}, {ours} are folders), options."""

    project: str
    source: str
    options: tuple[str, ...]
    sizes: tuple[str, ...]

    def command(self) -> list[str]:
        """`cubridge check` of it."""
        places = {"wild": os.environ["CUBRIDGE_WILD"], "ours": str(OURS), "specs": str(SPECS),
                  "cutlass": os.environ.get("CUBRIDGE_CUTLASS", "")}  # fmt: skip
        words = [self.source, *self.options, *(w for s in self.sizes for w in ("--sizes", s))]
        return [sys.executable, "-m", "cubridge_tui", "check", "--json",
                *(w.format(**places) for w in words)]  # fmt: skip


def _llmc(kernel: int) -> Wild:
    return Wild(
        "karpathy/llm.c", "{ours}/llmc.cu",
        ("--arch=sm_80", "--reference={specs}/rows_first_causal.py", "-I{wild}/llmc",
         f"-DKERNEL={kernel}", "--nvcc=-std=c++17", FAST),
        ("B=1 Hq=2 N=48 D=64", "B=2 Hq=2 N=33 D=32"),
    )  # fmt: skip


def _fa2(head: int, causal: bool) -> Wild:
    return Wild(
        "Dao-AILab/flash-attention 2", "{ours}/fa2.cu",
        ("--arch=sm_80", f"--reference={'causal' if causal else 'full'}", f"-DHEAD={head}",
         f"-DCAUSAL={str(causal).lower()}", "-I{wild}/fa2/src", "-I{wild}/fa2/stubs",
         "-I{cutlass}", *CUTE, FAST),
        (f"B=1 Hq=2 Hkv=1 Nq=128 Nk=128 D={head}", f"B=1 Hq=2 Hkv=1 Nq=130 Nk=200 D={head}",
         f"B=1 Hq=2 Hkv=2 Nq=100 Nk=70 D={head}"),
    )  # fmt: skip


def _fa3(head: int, causal: bool) -> Wild:
    return Wild(
        "Dao-AILab/flash-attention 3", "{ours}/fa3.cu",
        (f"--reference={'causal' if causal else 'full'}", f"-DHEAD={head}",
         f"-DCAUSAL={str(causal).lower()}", "-DFLASHATTENTION_DISABLE_SM8x", "-I{wild}/fa3",
         "-I{cutlass}", *CUTE, FAST),
        (f"B=1 Hq=2 Hkv=1 Nq=128 Nk=128 D={head}", f"B=1 Hq=2 Hkv=1 Nq=130 Nk=200 D={head}"),
    )  # fmt: skip


KERNELS = {
    "minimal_fp32": Wild(
        "tspeterkim/flash-attention-minimal", "{wild}/minimal_fp32/flash.cu",
        ("--arch=sm_80", "--launcher=forward", "--dtype=f32", "--reference=full"),
        ("B=1 Hq=2 Nq=64 Nk=64 D=32", "B=2 Hq=1 Nq=32 Nk=32 D=64"),
    ),
    "llmc_1": _llmc(1),
    "llmc_fused": _llmc(0),
    "thunderkittens": Wild(
        "HazyResearch/ThunderKittens", "{ours}/thunderkittens.cu",
        ("--reference=causal", "-I{wild}/thunderkittens", "-I{wild}/thunderkittens/include",
         "-DKITTENS_HOPPER", "-DKITTENS_SM90", "--nvcc=-std=c++20", *CUTE[1:], FAST),
        ("B=1 Hq=2 Hkv=1 N=384 D=64", "B=1 Hq=1 Hkv=1 N=192 D=128"),
    ),
    "fa2_64_causal": _fa2(64, True),
    "fa2_128": _fa2(128, False),
    "fa3_128_causal": _fa3(128, True),
    "fa3_64": _fa3(64, False),
}  # fmt: skip


def measure(name: str) -> dict[str, Any]:
    """Runs one kernel; raises where it gave no result.

    `seconds` and `processor_s` (of all processors) are of the whole command, `nvcc` and
    `nvcc_processor_s` are nvcc's share.
    """
    began, used = time.perf_counter(), _processor()
    done = subprocess.run(KERNELS[name].command(), cwd=ROOT, capture_output=True, text=True)
    if not done.stdout:
        raise RuntimeError(f"{name}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    nvcc, nvcc_processor = found["cases"][0]["nvcc"]
    return {
        "project": KERNELS[name].project, "g1": found["g1"],
        "seconds": round(time.perf_counter() - began, 1), "nvcc_s": round(nvcc, 1),
        "processor_s": round(_processor() - used, 1), "nvcc_processor_s": round(nvcc_processor, 1),
        "unproven": [u["opcode"] for u in found["unproven"]],
        "cases": [
            {"sizes": c["sizes"], "errors": c["errors"], "findings": len(c["findings"]),
             "executed_s": round(c["seconds"], 1)}
            for c in found["cases"]
        ],
    }  # fmt: skip


def pack_unedited(name: str, folder: Path) -> Path:
    """Imports a kernel, and packs it as it is; raises where it is not imported."""
    with tempfile.TemporaryDirectory(prefix="cubridge-wild-") as held, Child() as child:
        imported = Path(held) / name
        words = KERNELS[name].command()
        words[words.index("check") : words.index("--json") + 1] = ["import", "--out", str(imported)]
        subprocess.run(words, cwd=ROOT, check=True)
        package = load_executed(imported)
        assert package.reference is not None
        answer = child.call("recipe", {"path": str(package.reference), "options": {}})
        recipe = recipe_from_json(answer["recipe"])
        spec = reference_of(package.reference, recipe, {})
        kernels = sorted({k for row in launched_of(package.asked, child) for k in row})
        return pack(contents_of(package, {}, spec, recipe, kernels, child), folder / name)


def launched_of(asked: Asked, child: Child) -> list[set[str]]:
    """The kernels of each case, by their plain names."""
    return [{function_name(k) for k in kernels}
            for _, kernels in kernels_of_cases(asked, lambda text: None, child)]  # fmt: skip


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    if sys.argv[1:2] == ["pack"]:
        for name in sys.argv[3:] or KERNELS:
            print(pack_unedited(name, Path(sys.argv[2])), flush=True)
        return 0
    chosen = sys.argv[1:] or list(KERNELS)
    passed = True
    for name in chosen:
        row = measure(name)
        passed = passed and bool(row["g1"])
        rest = row["processor_s"] - row["nvcc_processor_s"]
        print(f"{name}: G1 {row['g1']}, {rest:.1f} s of processors beyond nvcc's", flush=True)
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        kept = {key: told for key, told in results.get(name, {}).items() if key == "gpu"}
        results = dict(sorted((results | {name: row | kept}).items()))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
