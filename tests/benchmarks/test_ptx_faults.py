"""The record of seeded faults: its reasons are of single rows, and the page has its numbers."""

from __future__ import annotations

import json
import re
from collections import Counter

from benchmarks.ptx_faults import MISSED, NO_LINE, ROOT, TOLD, UNSEEN

RECORD = json.loads((ROOT / "benchmarks/results/ptx_faults.json").read_text(encoding="utf-8"))


def test_the_page_says_what_the_record_does() -> None:
    rows = RECORD["faults"]
    assert Counter(row["verdict"] for row in rows) == RECORD["counts"]
    page = (ROOT / "docs/wild.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"of (\d+) faults ([^.]*)\.", page)
    kinds = Counter(row["why"] or row["verdict"] for row in rows)
    unseen = sum(kinds.pop(why) for why in UNSEEN.values())
    assert int(told[0]) == len(rows)
    assert sorted(map(int, re.findall(r"\b\d+\b", told[1]))) == sorted([*kinds.values(), unseen])


def test_a_fault_is_told_at_its_line_or_there_is_a_reason() -> None:
    excused = {}
    for row in RECORD["faults"]:
        assert bool(row["why"]) == (row["verdict"] not in ("at its line", TOLD, MISSED)), row
        if row["why"] in {*UNSEEN.values(), *NO_LINE.values()}:
            excused[row["operator"], row["line"]] = row["why"]
    assert excused == UNSEEN | NO_LINE


def test_what_is_taken_as_given_stands_where_it_is_named() -> None:
    for operator, place in UNSEEN:
        name, line = place.split(":")
        text = (ROOT / "tests/engine/ptx/kernels" / name).read_text(encoding="utf-8")
        assert operator.removeprefix("lost ") in text.splitlines()[int(line) - 1]
