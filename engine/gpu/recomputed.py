"""What can be said of a GPU's result without a GPU: its samples computed again, its rows judged
again, its worker's hash beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.gpu.job import Contents, worker_hash
from engine.spec.python.signature import recipe_of, signature_of, signature_to_json
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.worker.orchestration.manifest import names_fast_tanh

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
