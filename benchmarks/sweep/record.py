"""The sums of a sweep's log: what became of how many, each survivor, each kind of refusal."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.sweep.drawn import FAULTS
from benchmarks.sweep.pool import lines_of
from benchmarks.sweep.tasks import TARGETS

Line = Mapping[str, Any]
SHORT = 200
MUTANTS = "mutants"  # the step, and what another set of them is named by: "mutants, another set"


def write_record(log: Path, to: Path) -> int:
    """Write the record of the steps that are in the log, and leave others as they are; 1 where the
    log holds a fault or a survivor without a reason."""
    lines = lines_of(log)
    by_step: dict[str, dict[str, Line]] = defaultdict(dict)
    for item, line in lines.items():
        step, of, number = item.split("/", 2)
        name = step if step.startswith(MUTANTS) else f"{step} of {of}s"
        by_step[name][f"{of}/{number}"] = line
    record: dict[str, Any] = json.loads(to.read_text()) if to.exists() else {}
    wrong = 0
    for step, judged in sorted(by_step.items()):
        mutants = step.startswith(MUTANTS)
        outcomes = sorted((item, str(line["outcome"])) for item, line in judged.items())
        record[step] = {
            "outcomes_hash": hashlib.sha256(repr(outcomes).encode()).hexdigest()[:16],
            "judged_by": dict(Counter(str(line["tree"]) for line in judged.values())),
            "cpu_seconds": round(sum(line.get("cpu", 0) for line in judged.values())),
            **(_mutants(judged) if mutants else _drawn(judged)),
        }
        print(step, json.dumps(record[step].get("by") or record[step]["read"]))
        wrong += len(record[step]["open" if mutants else "faults"])
    to.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if wrong else 0


def _mutants(judged: Mapping[str, Line]) -> dict[str, Any]:
    there = {n: line for n, line in judged.items() if line["outcome"] != "none"}
    by: Counter[str] = Counter()
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    for line in there.values():
        outcome = line["outcome"]
        operators[line.get("operator", "?")][outcome] += 1
        by[_part(line) if outcome in ("killed", "survived") else outcome] += 1
    told = {
        n: f"{x['operator']}, {x['function']}: {x['change']}"
        for n, x in there.items()
        if "change" in x
    }
    return {
        "mutants": len(there),
        "outcomes": dict(Counter(x["outcome"] for x in there.values()).most_common()),
        "by": dict(by.most_common()),
        "operators": {n: dict(c) for n, c in sorted(operators.items())},
        "refusals": _kinds(x["why"] for x in there.values() if x["outcome"] == "refused"),
        "survivors": {
            n: f"{told[n]} [{x['why']}]"[: SHORT * 2]
            for n, x in there.items()
            if x["outcome"] == "survived"
        },
        "open": {
            n: f"{told.get(n, '')}: {x['why']}"
            for n, x in there.items()
            if x["outcome"] in ("open", "internal")
        },
    }


def _part(line: Line) -> str:
    """By which part of which gate it fell, or why it is right."""
    return str(line["why"]).split(":")[0]


def _drawn(judged: Mapping[str, Line]) -> dict[str, Any]:
    outcomes = {"read": Counter(x["outcome"] for x in judged.values())}
    refusals, faults = [], {}
    for name, line in judged.items():
        parts = {"read": line, **{k: line[k] for k in TARGETS if k in line}}
        for part, found in parts.items():
            if part != "read":
                outcomes.setdefault(part, Counter())[found["outcome"]] += 1
            if found["outcome"] == "refused":
                refusals.append(found["why"])
            elif found["outcome"] in FAULTS:
                faults[f"{name} {part}"] = f"{found['outcome']}: {found['why']}"[:400]
    return {
        "drawn": len(judged),
        **{part: dict(c.most_common()) for part, c in outcomes.items()},
        "refusals": _kinds(refusals),
        "faults": faults,
    }


def _kinds(messages: Iterable[str]) -> dict[str, int]:
    """Messages without their numbers and names, and how many there are of each."""
    return dict(Counter(_kind(m) for m in messages).most_common())


def _kind(message: str) -> str:
    first = message.splitlines()[0] if message else ""
    first = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "…", first)
    return re.sub(r"\d+", "N", first)[:SHORT]
