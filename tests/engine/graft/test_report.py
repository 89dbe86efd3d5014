"""What was found, as text and as the session keeps it."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.places import Found, Hook, Loop, Meaning, Place
from engine.graft.report import found_text, lifted_text, read_found

FILE = Path("/k/a.cu")
PLACE = Place(FILE, 10, 3, "flash", "s", 4, "s[e]", {"i": "row", "j": "key + e"}, {"Nk": "n"}, "c")
FOUND = Found(
    (Hook((PLACE,), 1.0, 0.125, 2, "held each pair once"),),
    (Meaning("m", FILE, 4, "top", "the running maximum of 96 rows"),),
    (Loop(FILE, 2, "t", None, (5, 9), "<", 16, "t * 16", 1),),
    ("a.cu:9: o: holds nothing",),
    {"flash": 300},
    (FILE,),
)  # fmt: skip


def test_what_was_found_reads_back() -> None:
    assert read_found(found_text(FOUND)) == FOUND


def test_the_text_says_what_is_found_and_what_is_executed() -> None:
    text = lifted_text("a, executed as PTX", FOUND, {FILE: "a.cu"})
    assert "executed as PTX: flash, 300 instructions" in text
    assert "  a.cu:3  s (4 elements) in flash\n    i = row\n    j = key + e\n" in text
    assert "q . k, and c of it is the scaled score" in text
    assert "  a.cu:4  top is m: the running maximum of 96 rows" in text
    assert "not found:\n  a.cu:9: o: holds nothing" in text
