"""Read a job's result, merge partial ones, and turn one into G4's verdict for exact bytes; and what
can be said of it without a GPU: its samples computed again, its worker's hash beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import InputError, Where
from engine.files import MIB, read_text
from engine.gpu.job import Contents, worker_hash
from engine.gpu.predicted import OURS, resources_of, with_predictions
from engine.gpu.schema import fault
from engine.spec.python.signature import recipe_of, signature_of, signature_to_json
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.types import Gate, Verdict, VerdictKind
from engine.worker.orchestration.checklist import LISTS
from engine.worker.orchestration.device import Rate, matmul_of, rate_of
from engine.worker.orchestration.manifest import names_fast_tanh
from engine.worker.orchestration.results import KIND, SCHEMA, judge, outlives, row_key

MANY = "cubridge-gpu-results"
# How a person calls what a hash is of.
WORDS = {
    "kernel": "kernel.cu", "headers": "the kernel's headers", "spec": "the spec",
    "recipe": "the recipe", "signature": "what the spec declares", "binding": "the binding",
    "options": "the spec's options", "spec_modules": "a module that the spec imports",
}  # fmt: skip
_LISTS = ("checks", "times", "self_test", "samples")
MOST_BYTES = 64 * MIB
PLANNED = "\n    planned: i32\n"  # the field of a launch that goes by lists of an earlier one


def read_results(path: Path) -> tuple[dict[str, Any], ...]:
    """The result or results in a file.

    Raises:
        InputError: not a result that this version reads; the file and what is wrong with it.
    """
    where, fix = Where(str(path)), "give the JSON file that JOB/run.py wrote"
    text = read_text(path, fix, MOST_BYTES)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError("not JSON", where=where, fix=fix) from None
    if isinstance(data, dict) and data.get("kind") == MANY:
        found = data.get("results")
        if not isinstance(found, list) or not found:
            raise InputError("holds no results", where=where, fix=fix)
    else:
        found = [data]
    return tuple(checked(item, path) for item in found)


def checked(data: object, path: Path) -> dict[str, Any]:
    """`data` as a result. Raises `InputError`."""
    where = Where(str(path))
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise InputError(
            "not a GPU result", where=where, fix="give the JSON file that JOB/run.py wrote"
        )
    if data.get("schema") != SCHEMA:
        raise InputError(
            f"result schema {data.get('schema')!r} is not {SCHEMA}", where=where,
            fix="run the job again with this version",
        )  # fmt: skip
    if wrong := fault(data):
        raise InputError(f"a damaged result: {wrong}", where=where, fix="run the job again")
    return data


def matching(
    results: Sequence[Mapping[str, Any]], expected: Mapping[str, str], path: Path
) -> Mapping[str, Any]:
    """The merged result for exactly the expected bytes.

    Raises:
        InputError: none of them is for these bytes; what differs is named.
    """
    ours = [r for r in results if not differing(r, expected)]
    if not ours:
        nearest = min(results, key=lambda r: len(differing(r, expected)))
        names = differing(nearest, expected)
        what = ", ".join(WORDS.get(n, n) for n in names)
        raise InputError(
            f"the result of {nearest.get('name')} is for other bytes: {what} differ"
            f"{'s' if len(names) == 1 else ''} "
            f"({_short(nearest['hashes'].get(names[0]))} there, {_short(expected[names[0]])} here)",
            where=Where(str(path)),
            fix="pack the job again from this session, run it, and import that result",
        )
    cards = {r["device"].get("name") for r in ours}
    if len(cards) > 1:
        newest = max(ours, key=lambda r: str(r["device"].get("when", "")))
        ours = [r for r in ours if r["device"].get("name") == newest["device"].get("name")]
    return merge(ours)


def differing(result: Mapping[str, Any], expected: Mapping[str, str]) -> list[str]:
    """Names of the hashes that are not as expected; one that is missing differs."""
    return [name for name, value in expected.items() if result["hashes"].get(name) != value]


def merge(results: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Partial results of the same bytes on the same card as one; a failure is never merged away.

    Raises:
        InputError: results of different bytes or cards: rows of one never fill holes of another.
    """
    found = list(results)
    first = found[0]
    for other in found[1:]:
        if other["hashes"] != first["hashes"]:
            raise InputError("results of different bytes do not merge", fix="import each by itself")
        if other["device"].get("name") != first["device"].get("name"):
            raise InputError(
                f"results of {first['device'].get('name')} and "
                f"{other['device'].get('name')} do not merge",
                fix="import the results of one card",
            )
    out: dict[str, Any] = dict(found[-1])
    for name in _LISTS:
        rows: dict[tuple[str, ...], Any] = {}
        for result in found:
            for row in result.get(name, ()):
                kept = rows.get(row_key(row))
                stays = kept is not None and (kept.get("verdict") == "fail" or outlives(kept, row))
                if not stays:
                    rows[row_key(row)] = row
        out[name] = list(rows.values())
    out["verdict"], out["reason"] = verdict_of(out)
    return out


def verdict_of(result: Mapping[str, Any]) -> tuple[str, str]:
    """Verdict and reason from the rows of a result."""
    return judge(
        result["checks"], result["keys"], result["primary"], bool(result.get("softmax", True)),
        tuple(result.get("declared", ())), "recipe" in result["hashes"], lists_of(result),
        "theirs" in result["hashes"],
    )  # fmt: skip


def lists_of(result: Mapping[str, Any]) -> bool:
    """Whether the kernel makes tile lists. A result of before it was said: whether its rows or its
    CuIR know any."""
    said = result.get("lists")
    if isinstance(said, bool):
        return said
    known = any(row["check"] in LISTS for row in result["checks"])
    return known or PLANNED in (result.get("cuir") or "")


def import_result(
    result: Mapping[str, Any],
    expected: Mapping[str, str],
    subject: Sequence[tuple[str, str]],
    path: Path,
) -> Verdict:
    """G4's verdict from a result that is for exactly the expected bytes.

    The verdict is computed from the rows; what the file says of itself is not believed. `subject`
    are the content hashes that the verdict will belong to.

    Raises:
        InputError: the result is for other bytes.
    """
    matching([result], expected, path)
    result = with_predictions(result)
    kind, reason = verdict_of(result)
    device = result["device"]
    card = f"{device.get('name')} ({device.get('arch')})"
    seconds = sum(float(r.get("seconds", 0.0)) for r in result["checks"])
    details = {
        "device": dict(device),
        "checks": list(result["checks"]),
        "times": list(result["times"]),
        "self_test": list(result["self_test"]),
        "method": result["method"],
        "state": result["state"],
        "worker": result.get("worker", ""),
        "samples": list(result.get("samples", ())),
    }
    return Verdict(
        Gate.G4, VerdictKind(kind), f"{card}: {reason}", round(seconds, 3), tuple(subject), details
    )


def report(result: Mapping[str, Any]) -> list[str]:
    """A result as lines for a terminal: verdict, checks, self-test, times."""
    kind, reason = verdict_of(result)
    device = result["device"]
    out = [
        f"{result['name']}: {kind}: {reason}",
        f"  {device.get('name')}, {device.get('arch')}, driver {device.get('driver')}, torch "
        f"{device.get('torch')}, {device.get('compiler')}",
    ]
    for row in result["checks"]:
        worst = row.get("worst")
        measured = f", at most {worst:.2g} of what is allowed" if isinstance(worst, float) else ""
        why = row.get("reason") or (row.get("failures") or [""])[0]
        out.append(
            f"  {row['verdict']:<8} {row.get('specialisation', '')!s:<9} {row['check']:<17} "
            f"{row.get('cases', 0)} cases{measured} {why}".rstrip()
        )
    for row in result["self_test"]:
        out.append(
            f"  self-test {row.get('verdict')}: mutant {row.get('mutant')}: {row.get('reason')}"
        )
    return [*out, *(f"  {line}" for line in table(result))]


def table(result: Mapping[str, Any]) -> list[str]:
    """The times as lines for a terminal: per case, ours first, then the rivals by speed.

    Beside ours: its share of the card's measured matmul rate, the prediction, registers, spills.
    """
    out: list[str] = []
    cases = list(dict.fromkeys(str(r.get("case")) for r in result["times"]))
    registers, spilled = resources_of(result)
    built = "" if registers is None else f", {registers} registers, {spilled} bytes spilled"
    for case in cases:
        rows = [r for r in result["times"] if r.get("case") == case]
        out.append(f"{case}  ({result['device'].get('name')}{built})")
        timed = [r for r in rows if isinstance(r.get("ms"), int | float)]
        matmul = matmul_of(timed)
        for row in sorted(timed, key=lambda r: (r.get("name") != OURS, float(r["ms"]))):
            found = rate_of(row, result["device"], matmul)
            beside = f"ours is {float(row['ours_is']):.2f} x" if "ours_is" in row else ""
            if row.get("name") == OURS:
                beside = _beside_ours(row, found)
            notes = "; ".join(filter(None, (beside, found.note, str(row.get("note") or ""))))
            rate = "" if found.tflops is None else f"{found.tflops:7.1f} TFLOP/s  "
            out.append(
                f"  {row.get('name')!s:<22} {float(row['ms']):9.3f} ms "
                f"(IQR {float(row['iqr_ms']):.3f})  {rate}{notes}".rstrip()
            )
        for row in rows:
            if row not in timed:
                out.append(f"  {row.get('name')!s:<22} {row.get('reason')}")
    return out


def _beside_ours(row: Mapping[str, Any], found: Rate) -> str:
    matmul = row.get("matmul_tflops")
    words = []
    if isinstance(matmul, int | float) and matmul and found.tflops is not None:
        words.append(f"{100 * found.tflops / float(matmul):.0f}% of the measured matmul")
    words.append(f"{100 * float(row.get('of_floor', 0)):.0f}% of the card's measured floor")
    made = row.get("prediction")
    if isinstance(made, Mapping) and "tflops" in made:
        words.append(f"predicted {float(made['tflops']):.0f} ({made.get('bound')})")
    return ", ".join(words)


def _short(digest: object) -> str:
    return str(digest)[:12] if digest else "absent"


MOST_SAMPLES = 8
Ask = Callable[[dict[str, Any]], dict[str, Any]]  # the child's answer to "recompute"


def recomputed(
    ask: Ask, contents: Contents, samples: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """For each sample whether its outputs are what the spec computes: `sample`, `found` (same,
    differs, not_run), `reason`."""
    if not samples:
        return []
    recipe = recipe_of(contents.asked)
    text = contents.source.decode("utf-8", "replace")
    payload = {
        "spec": str(contents.spec),
        "options": dict(contents.options),
        "recipe": None if recipe is None else recipe_to_json(recipe),
        "signature": signature_to_json(signature_of(contents.asked)),
        "fast_tanh": contents.kind.fast_tanh or names_fast_tanh(text),
        "samples": [dict(sample) for sample in samples[:MOST_SAMPLES]],
    }
    return [dict(row) for row in ask(payload)["rows"]]


def first_difference(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a result's outputs are not what the spec computes; None where they are."""
    wrong = next((row for row in rows if row.get("found") == "differs"), None)
    if wrong is None:
        return None
    return (
        f"the outputs that the result carries are not what the spec computes: sample "
        f"{wrong.get('sample')}: {wrong.get('reason')}"
    )


def worker_words(result: Mapping[str, Any], contents: Contents) -> str:
    """Whether the result says that this version's worker made it."""
    said = str(result.get("worker", ""))
    if said == worker_hash(contents):
        return "this version's worker"
    return f"another worker than this version's ({said[:12]})" if said else "a worker not named"
