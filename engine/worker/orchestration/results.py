"""The result of a job: rows as they come, kept on disk, and the whole as one JSON object."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.worker.orchestration.checklist import (
    BY_RUN,
    BY_SPEC,
    CHECKS,
    SHORT,
    UNREACHED,
    WHOLE,
    explained,
    required,
)
from engine.worker.orchestration.manifest import Job
from engine.worker.orchestration.races import OF_SOURCE

SCHEMA = 1
MOST_NAMED = 8  # checks in one verdict's reason
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
        self.samples: list[dict[str, Any]] = []
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
        if any(row_key(r) == key and outlives(r, row) for r in rows):
            return
        rows[:] = [r for r in rows if row_key(r) != key]
        rows.append(row)

    def add(self, which: str, row: dict[str, Any]) -> None:
        """Keep a row in one of the lists above, replacing one of the same key but where that
        outlives it."""
        with self._lock:
            self._keep(which, row)
            entry = {"hashes": dict(self.job.hashes), "list": which, "row": row}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def has_checks(self, key: str) -> bool:
        """Whether a verifying child need not run again for a specialisation: its rows are there,
        of the primary those of the whole deck. Rows that name no deck are of an earlier version,
        and made anew."""
        softmax, read, primary = has_lse(self.job), self.job.recipe is not None, self.job.primary
        rows = {
            r["check"]: r
            for r in self.checks
            if r["specialisation"] == key and (r.get("deck") == WHOLE or key != primary)
        }
        theirs = self.job.theirs is not None
        wanted = set(required(key, primary, softmax, read, theirs)) - {"build"}
        told = set(explained(key, primary, read, has_lists(self.job), theirs)) - set(BY_RUN)
        return all(rows.get(c, {}).get("verdict") == "pass" for c in wanted) and all(
            c in rows and rows[c]["verdict"] != "fail" and says_why(rows[c]) for c in told
        )

    def result(self, state: str) -> dict[str, Any]:
        """The whole result; `state` is "complete" or why it is not."""
        softmax, read = has_lse(self.job), self.job.recipe is not None
        lists = has_lists(self.job)
        verdict, reason = judge(
            self.checks, self.job.keys, self.job.primary, softmax, self.job.declared, read, lists,
            self.job.theirs is not None,
        )  # fmt: skip
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
            "lists": lists,
            "cuir": self.job.module_text,
            "device": self.device,
            "method": METHOD if read else METHOD_BY_SPEC,
            "state": state,
            "verdict": verdict,
            "reason": reason,
            "checks": self.checks,
            "self_test": self.self_test,
            "times": self.times,
            "samples": self.samples,
            "events": self.events[-50:],
        }


def has_lse(job: Job) -> bool:
    """Whether the kernel gives an LSE that a recipe says the value of."""
    given = any(t["output"] and t["source"] == "LSE" for t in job.binding["tensors"])
    return job.recipe is not None and job.recipe["weight"] is None and given


def has_lists(job: Job) -> bool:
    """Whether the kernel makes tile lists, in a workspace."""
    return job.binding.get("workspace") is not None


def row_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes two rows the same measurement."""
    names = ("check", "specialisation", "mutant", "case", "name", "seed")
    return tuple(f"{n}={row[n]}" for n in names if n in row)


def outlives(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a row stays where a later one of the same key, bytes and card comes.

    What was run or timed is not undone by a run that did not, nor the whole deck by the short one.
    A new failure always counts.
    """
    if new.get("verdict") == "fail":
        return False
    unrun = new.get("verdict") == "not_run" and old.get("verdict") != "not_run"
    untimed = "ms" in old and "ms" not in new
    return unrun or untimed or (old.get("deck") == WHOLE and new.get("deck") == SHORT)


def says_why(row: Mapping[str, Any]) -> bool:
    """Whether a row was run, or says why it was not."""
    return row["verdict"] != "not_run" or bool(row.get("reason"))


def judge(
    checks: Iterable[Mapping[str, Any]],
    keys: Iterable[str],
    primary: str,
    softmax: bool,
    declared: Sequence[str] = (),
    read: bool = True,
    lists: bool = True,
    theirs: bool = False,
) -> tuple[str, str]:
    """The verdict that the rows earn: any failure fails, any missing row is not_run.

    Required checks must have passed, on the primary over the whole deck; the others must be there,
    with their verdict or with the reason why they were not run. The verdict's reason names what is
    missing, what was not run and, where `keys` are fewer than the kernel's `declared` ones, those.
    `lists` says whether the kernel makes tile lists, `read` whether there is a recipe, `theirs`
    whether the launcher is someone else's.

    Rows that name no deck count as of the whole: those were made before rows named it. A short
    deck of that time passes for no whole one, since it left no row of far offsets.
    """
    keys = tuple(keys)
    if primary not in keys:
        return "not_run", f"incomplete: {primary}, which takes the whole deck, was not judged"
    every = list(checks)
    rows = {(str(r["specialisation"]), str(r["check"])): r for r in every}
    failed = [r for r in every if r["verdict"] == "fail"]
    if failed:
        first = failed[0]
        what = (first.get("failures") or [first.get("reason", "")])[0]
        more = f" (and {len(failed) - 1} more checks)" if len(failed) > 1 else ""
        return "fail", f"{first['specialisation']} {first['check']}: {what}{more}"
    lacking = _lacking(rows, keys, primary, softmax, read, lists, theirs)
    if lacking:
        return "not_run", f"incomplete: {'; '.join(lacking)}"
    cases = sum(int(r.get("cases", 0)) for r in rows.values())
    unrun = [str(r["check"]) for r in rows.values() if r["verdict"] == "not_run"]
    extras = sorted(set(unrun))
    note = f"; not run: {', '.join(extras)}" if extras else ""
    if not read:
        note = f"; {BY_SPEC}{note}"
    notes = rows.get((primary, "accuracy"), {}).get("notes")
    far = notes.get(UNREACHED) if isinstance(notes, Mapping) else None
    if isinstance(far, list) and far:
        note += f"; no run reaches past {', '.join(str(c) for c in far)}"
    notes = rows.get((primary, "racecheck"), {}).get("notes")
    shared = notes.get(OF_SOURCE) if isinstance(notes, Mapping) else None
    if isinstance(shared, list) and shared:
        note += f"; racecheck reports {len(shared)}, each {OF_SOURCE}"
    if len(keys) < len(declared):
        note += f"; of {len(declared)} specialisations only {', '.join(keys)}"
    return "pass", f"{len(rows) - len(unrun)} checks on {cases} cases{note}"


def _lacking(
    rows: Mapping[tuple[str, str], Mapping[str, Any]],
    keys: Sequence[str],
    primary: str,
    softmax: bool,
    read: bool,
    lists: bool,
    theirs: bool,
) -> list[str]:
    """What withholds a pass from rows of which none failed, in words."""
    out = []
    wanted = [(key, c) for key in keys for c in required(key, primary, softmax, read, theirs)]
    missing = [" ".join(at) for at in wanted if rows.get(at, {}).get("verdict") != "pass"]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        out.append(f"no pass for {missing[0]}{more}")
    if any(rows.get((primary, c), {}).get("deck") == SHORT for c in CHECKS):
        out.append(f"{primary} has only the short deck (--quick)")
    told = [(key, c) for key in keys for c in explained(key, primary, read, lists, theirs)]
    silent = [" ".join(at) for at in told if at not in rows or not says_why(rows[at])]
    if silent:
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        named = ", ".join(silent[:MOST_NAMED])
        out.append(f"neither a verdict nor a reason for {named}{more}")
    return out


def write_result(path: Path, data: Any) -> None:
    """Write whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
