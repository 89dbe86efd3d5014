"""Verify and time kernels on a GPU for every bundled spec, beside the best rivals.

    python benchmarks/attention.py pack DIR [--kernel flash_fwd_sm80] [--specs softcap_causal ...]
    # on the GPU machine, DIR carried there whole:
    python3 DIR/FIRST/run.py DIR/*/ --out result.json
    python benchmarks/attention.py record result.json   # into benchmarks/results/
    python benchmarks/attention.py table                # of what is recorded

`pack` carries each spec over to the kernel by the rules and packs one job per spec; the kernel's
own reference is one of them. What is recorded is what the machine said: device, versions, hashes,
method, verdicts with what each check measured, times.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from engine.errors import CuBridgeError  # noqa: E402
from engine.gpu.job import pack  # noqa: E402
from engine.gpu.result import read_results, verdict_of  # noqa: E402
from engine.gpu.session import contents_by_rules, contents_of_kernel  # noqa: E402
from engine.gpu.worker.options import shape  # noqa: E402
from engine.gpu.worker.shapes import FORM  # noqa: E402
from engine.resources import list_specs, spec_path  # noqa: E402
from engine.service.bench import Bench, find_kernel  # noqa: E402
from sessions.store import Store  # noqa: E402

RIVALS = ("sdpa", "fa4", "flex", "eager")


def pack_all(
    folder: Path,
    kernel: str,
    specs: Sequence[str],
    only: Sequence[str],
    primary: str | None,
    times: Mapping[str, Any],
) -> list[Path]:
    """One job per spec, and one of the kernel's own reference (the empty name).

    `times` goes into the jobs' plans: `shapes` and `rivals`.
    """
    package = find_kernel(kernel)
    jobs: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as store, Bench(Store.open(Path(store) / "s.git")) as bench:
        for name in specs:
            try:
                if name:
                    spec = spec_path(name)
                    contents = contents_by_rules(bench, package, spec, primary, only, times)
                else:
                    contents = contents_of_kernel(bench, package, primary, only, times)
            except CuBridgeError as error:
                print(f"{kernel} {name}: left out: {error.message}", file=sys.stderr)
                continue
            jobs.append(pack(contents, folder / f"{contents.name}-{contents.primary}"))
            print(f"packed {jobs[-1].name}", file=sys.stderr)
    return jobs


def record(path: Path, out: Path) -> dict[str, Any]:
    """The results in one file as a record, one entry per kernel and spec."""
    results = read_results(path)
    entries = [entry_of(result) for result in results]
    data = {
        "what": "G4 and times of adapted kernels",
        "method": results[0]["method"],
        "device": results[0]["device"],
        "entries": sorted(entries, key=lambda e: str(e["name"])),
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(data, indent=1) + "\n")
    return data


def entry_of(result: Mapping[str, Any]) -> dict[str, Any]:
    kind, reason = verdict_of(result)
    kept = ("check", "specialisation", "verdict", "cases", "worst", "failures", "reason", "notes")
    return {
        "name": result["name"],
        "verdict": kind,
        "reason": reason,
        "hashes": result["hashes"],
        "specialisations": result["keys"],
        "checks": [{n: row[n] for n in kept if n in row} for row in result["checks"]],
        "self_test": result["self_test"],
        "times": result["times"],
    }


def table(data: Mapping[str, Any]) -> list[str]:
    """Markdown: TFLOP/s of ours and of each rival per variant and length."""
    device = data["device"]
    timed = [r["name"] for entry in data["entries"] for r in entry["times"] if "ms" in r]
    names = sorted(dict.fromkeys(timed), key=lambda n: n != "CuBridge")
    lines = [
        f"{device['name']}, torch {device['torch']}, driver {device['driver']}, TFLOP/s",
        "",
        "| kernel and spec | G4 | case | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for entry in data["entries"]:
        for case in dict.fromkeys(r["case"] for r in entry["times"]):
            found = {r["name"]: r for r in entry["times"] if r["case"] == case and "ms" in r}
            cells = [f"{found[n]['tflops']:.0f}" if n in found else "" for n in names]
            lines.append(
                f"| {entry['name']} | {entry['verdict']} | {case} | " + " | ".join(cells) + " |"
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    packing = actions.add_parser("pack", help="write one job per spec")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--kernel", default="flash_fwd_sm80")
    packing.add_argument(
        "--specs", nargs="*", help="default: every bundled spec, and the kernel's own `reference`"
    )
    packing.add_argument("--only", nargs="*", default=[], help="specialisations to take along")
    packing.add_argument("--primary", help="the specialisation that is judged whole and timed")
    packing.add_argument("--shapes", nargs="*", type=shape, metavar="SHAPE", help=FORM)
    packing.add_argument("--rivals", nargs="*", choices=RIVALS, help="default: all")
    recording = actions.add_parser("record", help="keep a result under benchmarks/results")
    recording.add_argument("result", type=Path)
    recording.add_argument("--out", type=Path, default=RESULTS / "attention.json")
    showing = actions.add_parser("table", help="print a record as a table")
    kept = sorted(RESULTS.glob("attention*.json"))
    showing.add_argument("records", type=Path, nargs="*", default=kept)
    options = parser.parse_args()
    try:
        if options.action == "pack":
            specs = ["", *list_specs()] if options.specs is None else options.specs
            names = ["" if name == "reference" else name for name in specs]
            plans = {"shapes": options.shapes, "rivals": options.rivals}
            times = {name: plan for name, plan in plans.items() if plan is not None}
            jobs = pack_all(
                options.folder, options.kernel, names, options.only, options.primary, times
            )
            if not jobs:
                return 1
            words = ["python3", str(jobs[0] / "run.py"), *map(str, jobs[1:])]
            print(shlex.join([*words, "--out", "result.json"]))
            return 0
        if options.action == "record":
            data = [record(options.result, options.out)]
        else:
            data = [json.loads(path.read_text()) for path in options.records]
    except CuBridgeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for kept_record in data:
        print("\n".join(table(kept_record)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
