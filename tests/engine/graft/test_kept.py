"""What was found, as the session keeps it."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.probe.places import Found, Hook, Loop, Meaning, Place, Row
from engine.graft.kept import found_json, read_found

FILE = Path("/k/a.cu")
PLACE = Place(
    FILE, 10, 3, "flash", "s", 4, "s[@]", {"i": "row", "j": "key + @"}, {"Nk": "n"}, "c", "",
    ("i",), ("0.5f",),
)  # fmt: skip
FOUND = Found(
    (Hook((PLACE,), 1.0, 0.125, 2, "held each pair once"),),
    (Meaning("m", FILE, 4, "top", "the running maximum of 96 rows"),),
    (Loop(FILE, 2, "t", None, (5, 9), "<", 16, "t * 16", 1),),
    ("a.cu:9: o: holds nothing",),
    {"flash": 300},
    (FILE,),
    (Row("m", FILE, 9, 4, "flash", "top", 1, "top", "  ", "1", "raised"),),
    (Hook((PLACE,), 1.0, 0.125, 2, "held each pair once", {"N": 96}, {"Nk": 96}),),
)  # fmt: skip


def test_what_was_found_reads_back() -> None:
    assert read_found(found_json(FOUND)) == FOUND
    before = found_json(FOUND).replace('"dropped": ""', '"whole": true')
    assert {h.dropped for h in read_found(before).edited} == {"score"}
    numbered = found_json(FOUND).replace("s[@]", "s[e]").replace("key + @", "key + e")
    assert read_found(numbered) == FOUND
