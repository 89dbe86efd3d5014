"""The result of a job: rows as they come, kept on disk, and the whole as one JSON object."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.gpu.worker.checklist import BY_SPEC, UNREACHED, UNREAD, required
from engine.gpu.worker.manifest import Job

SCHEMA = 1
KIND = "cubridge-gpu-result"
METHOD = (
    "Verification: candidate before oracle, the spec's own function in float64 on the same inputs, "
    "all elements. Timing: CUDA events around each call, a buffer larger than L2 rewritten before "
    "every call (cold L2), the card held until the call is queued, all contestants in one process "
    "and interleaved call by call, several "
    "input sets in rotation, median and interquartile range; every contestant's output checked "
    "first and ours again after its timed calls. TFLOP/s = 2 (D + Dv) B Hq (kept pairs) / time."
)
METHOD_BY_SPEC = METHOD.replace(
    "(kept pairs) / time.",
    "Nq Nk / time: every pair is counted, since no recipe says which are kept.",
)


class Store:
    """Rows of one job on one card, appended to a file as they are found."""

    def __init__(self, job: Job, device: Mapping[str, Any], fresh: bool) -> None:
        self.job = job
        self.device = dict(device)
        card = hashlib.sha256(json.dumps([device.get("name"), device.get("arch")]).encode())
        self.path = job.work / f"rows-{card.hexdigest()[:10]}.jsonl"
        self._lock = threading.Lock()
        self.checks: list[dict[str, Any]] = []
        self.times: list[dict[str, Any]] = []
        self.self_test: list[dict[str, Any]] = []
        self.timed: list[dict[str, Any]] = []  # cases whose timing came to its end
        self.events: list[str] = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            self.path.unlink(missing_ok=True)
        self._load()

    def _load(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line cut short by the end of an earlier run
            if entry.get("hashes") == dict(self.job.hashes):
                self._keep(entry["list"], entry["row"])

    def _keep(self, which: str, row: dict[str, Any]) -> None:
        rows: list[dict[str, Any]] = getattr(self, which)
        key = row_key(row)
        rows[:] = [r for r in rows if row_key(r) != key]
        rows.append(row)

    def add(self, which: str, row: dict[str, Any]) -> None:
        """Keep a row in one of the lists above, replacing one of the same key."""
        with self._lock:
            self._keep(which, row)
            entry = {"hashes": dict(self.job.hashes), "list": which, "row": row}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def has_checks(self, key: str) -> bool:
        """Whether every required check of a specialisation is there and passed."""
        softmax, read = has_lse(self.job), self.job.recipe is not None
        good = {
            r["check"] for r in self.checks if r["specialisation"] == key and r["verdict"] == "pass"
        }
        return all(c in good for c in required(key, self.job.primary, softmax, read))

    def result(self, state: str) -> dict[str, Any]:
        """The whole result; `state` is "complete" or why it is not."""
        softmax, read = has_lse(self.job), self.job.recipe is not None
        verdict, reason = judge(
            self.checks, self.job.keys, self.job.primary, softmax, self.job.declared, read
        )
        return {
            "kind": KIND,
            "schema": SCHEMA,
            "name": self.job.name,
            "title": self.job.title,
            "hashes": dict(self.job.hashes),
            "worker": self.job.worker,
            "keys": list(self.job.keys),
            "declared": list(self.job.declared),
            "primary": self.job.primary,
            "softmax": softmax,
            "cuir": self.job.module_text,
            "device": self.device,
            "method": METHOD if read else METHOD_BY_SPEC,
            "state": state,
            "verdict": verdict,
            "reason": reason,
            "checks": self.checks,
            "self_test": self.self_test,
            "times": self.times,
            "events": self.events[-50:],
        }


def has_lse(job: Job) -> bool:
    """Whether the kernel gives an LSE that a recipe says the value of."""
    given = any(t["output"] and t["source"] == "LSE" for t in job.binding["tensors"])
    return job.recipe is not None and job.recipe["weight"] is None and given


def row_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes two rows the same measurement."""
    names = ("check", "specialisation", "mutant", "case", "name")
    return tuple(f"{n}={row[n]}" for n in names if n in row)


def judge(
    checks: Iterable[Mapping[str, Any]],
    keys: Iterable[str],
    primary: str,
    softmax: bool,
    declared: Sequence[str] = (),
    read: bool = True,
) -> tuple[str, str]:
    """The verdict that the rows earn: any failure fails, any missing required row is not_run.

    Without a recipe (`read`) what cannot be judged must be there with its reason, and the verdict
    names it. The reason names the specialisations where `keys` are fewer than the kernel's
    `declared` ones.
    """
    keys = tuple(keys)
    if primary not in keys:
        return "not_run", f"incomplete: {primary}, which takes the whole deck, was not judged"
    rows = {(str(r["specialisation"]), str(r["check"])): r for r in checks}
    failed = [r for r in rows.values() if r["verdict"] == "fail"]
    if failed:
        first = failed[0]
        what = (first.get("failures") or [first.get("reason", "")])[0]
        more = f" (and {len(failed) - 1} more checks)" if len(failed) > 1 else ""
        return "fail", f"{first['specialisation']} {first['check']}: {what}{more}"
    missing = [
        f"{key} {check}"
        for key in keys
        for check in required(key, primary, softmax, read)
        if rows.get((key, check), {}).get("verdict") != "pass"
    ]
    if not read:
        missing += [f"{k} {c}" for k in keys for c in UNREAD if (k, c) not in rows]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return "not_run", f"incomplete: no pass for {missing[0]}{more}"
    cases = sum(int(r.get("cases", 0)) for r in rows.values())
    extras = sorted({str(r["check"]) for r in rows.values() if r["verdict"] == "not_run"})
    note = f"; not run: {', '.join(extras)}" if extras else ""
    if not read:
        note = f"; {BY_SPEC}{note}"
    notes = rows.get((primary, "accuracy"), {}).get("notes")
    far = notes.get(UNREACHED) if isinstance(notes, Mapping) else None
    if isinstance(far, list) and far:
        note += f"; no run reaches past {', '.join(str(c) for c in far)}"
    if len(keys) < len(declared):
        note += f"; of {len(declared)} specialisations only {', '.join(keys)}"
    return "pass", f"{len(rows)} checks on {cases} cases{note}"


def write_result(path: Path, data: Any) -> None:
    """Write whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
