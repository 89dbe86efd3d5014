"""Verify and time kernels on a GPU for every bundled spec, beside the best rivals.

    python benchmarks/attention.py pack DIR [--kernel flash_fwd_sm80] [--specs softcap_causal ...]
    # on the GPU machine, DIR carried there whole:
    python3 DIR/FIRST/run.py DIR/*/ --out result.json
    python benchmarks/attention.py record result.json --out benchmarks/results/attention_h100.json
    python benchmarks/attention.py table                # of what is recorded
    python benchmarks/attention.py readme               # README.md, docs/, docs/plots
    python benchmarks/attention.py predict              # again, after the cost model changed
    python benchmarks/attention.py plot DIR             # plots alone

`pack` carries each spec over to the kernel by the rules and packs one job per spec; the kernel's
own reference is one of them. What is recorded is what the machine said: device, versions, hashes,
method, verdicts with what each check measured, times, and beside each time of ours what the cost
model predicts from the job's CuIR.
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

from benchmarks.attention_report import (  # noqa: E402
    PLOTS,
    load_records,
    table,
    timed_cases,
    write_plots,
    written,
)
from engine.errors import CuBridgeError, InputError  # noqa: E402
from engine.gpu.job import pack  # noqa: E402
from engine.gpu.predicted import with_predictions  # noqa: E402
from engine.gpu.result import lists_of, read_results, verdict_of  # noqa: E402
from engine.resources import list_specs, spec_path  # noqa: E402
from engine.service.session.gpu_verdict import contents_by_rules, contents_of_kernel  # noqa: E402
from engine.service.session.workbench import Bench, find_kernel  # noqa: E402
from engine.worker.orchestration.job_options import GROUPS, shape  # noqa: E402
from engine.worker.orchestration.results import outlives  # noqa: E402
from engine.worker.problems.problem_sizes import FORM  # noqa: E402
from sessions.store import Store  # noqa: E402


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


def record(paths: Sequence[Path], out: Path, drop_times: bool = False) -> dict[str, Any]:
    """The results in the files as a record, one entry per kernel, spec and specialisation.

    What `out` holds of the same card already stays, unless a result is of the same entry: then the
    new one takes its place, or, for the same bytes, is merged with it row by row. A result of other
    bytes that lacks a case of ours that the entry has timed takes its place with `drop_times` only.

    Raises:
        InputError: `out` is another card's record, or times would be lost; nothing is written then.
    """
    results = [r for path in paths for r in read_results(path)]
    device = results[0]["device"]
    known = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"entries": []}
    names = {r["device"]["name"] for r in results}
    names |= {known["device"]["name"]} if known["entries"] else set()
    if len(names) > 1:
        raise InputError(
            f"{out} and the results are of different cards: {', '.join(sorted(names))}",
            fix="record each card in a file of its own (--out)",
        )
    before = {(e["name"], e["primary"]): e for e in known["entries"]}
    entries = dict(before)
    for result in results:
        entry = entry_of(with_predictions(result))
        key = (entry["name"], entry["primary"])
        entries[key] = merged(entries[key], entry) if key in entries else entry
    lost = [
        f"{' '.join(key)}: {case}"
        for key, old in before.items()
        for case in sorted(timed_cases(old) - timed_cases(entries[key]))
    ]
    if lost and not drop_times:
        raise InputError(
            f"{out} would lose times of ours: {'; '.join(lost)}",
            fix="time these again, or say --drop-times to record what is without them",
        )
    data = {
        "what": "G4 and times of adapted kernels",
        "method": results[0]["method"],
        "device": device,
        "entries": [entries[key] for key in sorted(entries)],
    }
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(data, indent=1) + "\n")
    return data


def entry_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a result: all that a verdict is judged from, and why a time is not there."""
    kind, reason = verdict_of(result)
    kept = ("check", "specialisation", "verdict", "deck", "cases", "worst", "failures", "reason",
            "notes")  # fmt: skip
    return {
        "name": result["name"],
        "primary": result["primary"],
        "verdict": kind,
        "reason": reason,
        "when": result["device"].get("when", ""),
        "arch": result["device"].get("arch", ""),
        "hashes": result["hashes"],
        "specialisations": result["keys"],
        "declared": result.get("declared", []),
        "softmax": result.get("softmax", True),
        "lists": lists_of(result),
        "state": result["state"],
        "events": result.get("events", []),
        "checks": [{n: row[n] for n in kept if n in row} for row in result["checks"]],
        "self_test": result["self_test"],
        "times": result["times"],
        "cuir": result.get("cuir", ""),
    }


def predict_again(path: Path) -> int:
    """Predict a record's times again from its own CuIR, after the cost model has changed."""
    data = json.loads(path.read_text(encoding="utf-8"))
    count = 0
    for entry in data["entries"]:
        device = {**data["device"], "arch": entry.get("arch") or data["device"].get("arch")}
        known = with_predictions({**entry, "device": device})
        entry["times"] = known["times"]
        count += sum("prediction" in row for row in known["times"])
    path.write_text(json.dumps(data, indent=1) + "\n")
    return count


def merged(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`new`, with the rows of `old` that it lacks where both are of the same bytes."""
    if old["hashes"] != new["hashes"]:
        return new
    out = dict(new)
    for name, keys in (("checks", ("check", "specialisation")), ("times", ("case", "name"))):
        rows = {tuple(r.get(k) for k in keys): r for r in old[name]}
        for row in new[name]:
            key = tuple(row.get(k) for k in keys)
            if key not in rows or not outlives(rows[key], row):
                rows[key] = row
        out[name] = list(rows.values())
    both = (*new["specialisations"], *old["specialisations"])
    out["specialisations"] = list(dict.fromkeys(both))
    out["verdict"], out["reason"] = judged(out)
    return out


def judged(entry: Mapping[str, Any]) -> tuple[str, str]:
    """What an entry's rows earn today."""
    return verdict_of({**entry, "keys": entry["specialisations"]})


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
    packing.add_argument("--rivals", nargs="*", choices=GROUPS, help="default: all")
    recording = actions.add_parser("record", help="keep a result under benchmarks/results")
    recording.add_argument("results", type=Path, nargs="+")
    recording.add_argument("--out", type=Path, default=RESULTS / "attention.json")
    recording.add_argument(
        "--drop-times", action="store_true",
        help="replace a timed entry by a result of other bytes that lacks some of its cases",
    )  # fmt: skip
    showing = actions.add_parser("table", help="print records as tables")
    showing.add_argument("records", type=Path, nargs="*")
    actions.add_parser("readme", help="write the tables of README.md and docs, and plots")
    actions.add_parser("predict", help="predict every recorded time again")
    plotting = actions.add_parser("plot", help="write bars and predictions as SVG")
    plotting.add_argument("folder", type=Path, nargs="?", default=PLOTS)
    plotting.add_argument("--records", type=Path, nargs="*")
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
            print("\n".join(table(record(options.results, options.out, options.drop_times))))
        elif options.action == "readme":
            for path, text in written(load_records()).items():
                path.write_text(text, encoding="utf-8")
                print(path)
            for file in write_plots(load_records(), PLOTS):
                print(file)
        elif options.action == "predict":
            for path in sorted(RESULTS.glob("attention*.json")):
                print(f"{path}: {predict_again(path)} predictions")
        elif options.action == "plot":
            for file in write_plots(load_records(options.records or None), options.folder):
                print(file)
        else:
            for kept in load_records(options.records or None):
                print("\n".join(table(kept)) + "\n")
    except CuBridgeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
