"""The corpus says of each function whose it is and what it edits, and the record has them all."""

from __future__ import annotations

import json

from benchmarks.corpus import CORPUS, RESULTS, edits_of

SPECS = sorted(CORPUS.glob("*.py"))
PARTS = {"none", "before", "score", "mask", "inputs", "heads", "weight", "after"}


def test_every_function_names_its_source_and_its_edits() -> None:
    assert len(SPECS) >= 60
    for path in SPECS:
        assert "\nAfter: " in path.read_text(), path.name
        edits = edits_of(path)
        assert edits.startswith("refused (") or set(edits.split(", ")) <= PARTS, path.name


def test_the_record_is_of_this_corpus_and_holds_no_misreading() -> None:
    rows = json.loads(RESULTS.read_text())["rows"]
    assert [r["spec"] for r in rows] == [p.stem for p in SPECS]
    assert {r["outcome"] for r in rows} <= {"read", "refused"}
    beside = {"none", "score", "mask", "inputs", "heads", "weight"}
    carried = [r for r in rows if set(r["edits"].split(", ")) <= beside]
    assert all(r["outcome"] == "read" for r in carried)
