"""Kernels of public projects adapted in their own source: imported, probed, patched, judged.

The projects' sources are no part of this repository (see wild.py, which says how each is compiled):

    CUBRIDGE_WILD=... CUBRIDGE_CUTLASS=... python benchmarks/wild_adapt.py [NAME ...] [--spec SPEC]

writes benchmarks/results/wild_adapt.json: for each kernel and spec the verdicts with the sizes that
were run, the seconds, the lines that the patch changes; or where and why it was refused.

    python benchmarks/wild_adapt.py record RESULT ...

puts what a GPU found beside them, and beside wild.json's rows where a job was of a kernel unedited.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.wild import KERNELS, SPECS, Wild  # noqa: E402
from benchmarks.wild import RESULTS as UNEDITED  # noqa: E402
from engine.gpu.result import read_results, verdict_of  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "wild_adapt.json"


@dataclass(frozen=True, slots=True)
class Adapted:
    """A kernel of wild.py, with switches of its own off, and the specs it is carried to."""

    kernel: Wild
    specs: tuple[tuple[str, ...], ...]


USUAL = (("softcap_causal",), ("sliding_window_causal", "--set", "window=40"), ("alibi_causal",))
DOCUMENTS = ("flex_causal_document",)  # no source has a switch for these
ADAPTED = {
    "minimal_fp32": Adapted(KERNELS["minimal_fp32"], (*USUAL, DOCUMENTS)),
    "llmc_1": Adapted(KERNELS["llmc_1"], ((f"{SPECS}/rows_first_softcap_causal.py",),)),
    "thunderkittens": Adapted(KERNELS["thunderkittens"], (*USUAL, DOCUMENTS)),
    "fa2_64_causal": Adapted(KERNELS["fa2_64_causal"], (*USUAL, DOCUMENTS)),
    "fa3_128_causal": Adapted(KERNELS["fa3_128_causal"], (("alibi_causal",), DOCUMENTS)),
}


def run(words: list[str], folder: Path) -> tuple[int, str, str]:
    """`cubridge` with these words: its exit status and what it wrote. What it says is recorded, so
    PATH has the program: its sentences name `cubridge`, not where this checkout is."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = {**os.environ, "PATH": path, "CUBRIDGE_STORE": str(folder / "store.git"),
               "PYTHONPATH": str(ROOT)}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "cubridge_tui", *words], cwd=folder, env=environ,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def import_words(wild: Wild, name: str) -> list[str]:
    """`cubridge import` of a kernel, from `cubridge check` of it."""
    words = wild.command()
    rest = [w for w in words[words.index("check") + 1 :] if w != "--json"]
    return ["import", *rest, "--out", name]


def adapt(name: str, spec: tuple[str, ...], folder: Path, jobs: Path | None) -> dict[str, Any]:
    """One spec: what each stage gave, and the patch's size; an accepted session's job in `jobs`."""
    begin = time.perf_counter()
    code, out, err = run(
        ["adapt", "--kernel", f"./{name}", "--spec", *spec, "--accept", "--json"], folder
    )
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - begin), "exit": code}
    if not out:
        return row | {"refused": err.strip().splitlines()[-2:]}
    found = json.loads(out)
    row |= {"level": found["level"], "stages": {s["name"]: [s["verdict"], s["reason"], s["seconds"]]
                                                for s in found["stages"]}}  # fmt: skip
    session = found["session"]
    if jobs is not None and found["accepted"]:
        job = jobs.absolute() / f"{name}-{Path(spec[0]).stem}"
        packed = run(["gpu", "pack", session, str(job)], folder)
        print(packed[1] or packed[2], flush=True)
    shown = json.loads(run(["sessions", "show", session, "--json"], folder)[1])
    verdicts = {v["gate"]: v["details"] for v in shown["verdicts"]}
    row["hunks"] = [h["title"] for h in shown["hunks"]]
    row["changed_lines"] = verdicts.get("G3", {}).get("changed_lines")
    row["spilled"] = {w: spilled(verdicts["G3"][w]) for w in ("was", "now")
                      if w in verdicts.get("G3", {})}  # fmt: skip
    row["work"] = {g: verdicts[g].get("instructions") for g in ("G1", "G2") if g in verdicts}
    row["cases"] = [c["case"] for c in verdicts.get("G2", {}).get("cases", [])]
    return row


def spilled(built: dict[str, Any]) -> dict[str, int]:
    """Bytes of registers that each kernel of a build spills, by its symbol."""
    return {k["symbol"]: k["spill_store_bytes"]
            for s in built["specialisations"] for k in s["kernels"]}  # fmt: skip


def recorded(result: dict[str, Any]) -> dict[str, Any]:
    """What a row keeps of a job's result."""
    kind, reason = verdict_of(result)
    kept = ("case", "name", "ms", "iqr_ms", "ours_is", "tflops", "clocks", "reason")
    return {
        "device": result["device"]["name"], "verdict": kind, "reason": reason,
        "hashes": result["hashes"],
        "checks": {f"{c['check']} {c['specialisation']}": c["verdict"] for c in result["checks"]},
        "times": [{n: t[n] for n in kept if n in t} for t in result["times"]],
    }  # fmt: skip


def record(paths: list[Path], adapted: Path = RESULTS, unedited: Path = UNEDITED) -> None:
    """Each result in its kernel's row: a job is named KERNEL-SPEC, its spec `reference` where the
    kernel was not edited."""
    for result in (r for path in paths for r in read_results(path)):
        name, spec = result["name"].split("-", 1)
        out = unedited if spec == "reference" else adapted
        rows = json.loads(out.read_text(encoding="utf-8"))
        row = rows[name] if spec == "reference" else rows[name][spec]
        row["gpu"] = recorded(result)
        out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(name, spec, row["gpu"]["verdict"], row["gpu"]["reason"])


def main() -> int:
    if sys.argv[1:2] == ["record"]:
        record([Path(word) for word in sys.argv[2:]])
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--spec")
    parser.add_argument("--jobs", type=Path, help="where GPU jobs of accepted sessions go")
    parser.add_argument("--folder", type=Path, help="where imported kernels and sessions stay")
    args = parser.parse_args()
    failed = False
    for name in args.names or ADAPTED:
        with tempfile.TemporaryDirectory(prefix="cubridge-wild-") as held:
            folder = Path(held) if args.folder is None else args.folder.absolute()
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / name).is_dir():
                code, _, err = run(import_words(ADAPTED[name].kernel, name), folder)
                if code:
                    raise RuntimeError(f"{name} was not imported: {err.strip()}")
            for spec in ADAPTED[name].specs:
                name_of = Path(spec[0]).stem
                if args.spec not in (None, name_of):
                    continue
                row = adapt(name, spec, folder, args.jobs)
                failed = failed or bool(row["exit"])
                print(name, name_of, row.get("level"), row["seconds"], flush=True)
                print(json.dumps(row, indent=1), flush=True)
                results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
                results.setdefault(name, {})[name_of] = row
                RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
