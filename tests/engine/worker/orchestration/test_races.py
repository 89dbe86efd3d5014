"""Races that racecheck reports, of a patched kernel and of its unedited source."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.worker.launches.result_rows import PASS
from engine.worker.orchestration import sanitizer
from engine.worker.orchestration.races import OF_SOURCE, Access, Race, only_in, races
from engine.worker.orchestration.sanitizer import sanitizer_rows

SOURCE = b"a\nshared[0] = x;\nsync();\nread(shared);\nb\n"
PATCHED = b"a\nnew(shared);\nshared[0] = x;\nsync();\nread(shared);\nb\n"


def said(*pairs: tuple[int, int], errors: int | None = None, file: str = "x.cuh") -> str:
    """What the tool says of races between a read and a write at two lines."""
    out = "========= COMPUTE-SANITIZER\n"
    for read, write in pairs:
        out += (
            "========= Error: Race reported between Read access at f<(int)1>(T &)+0x9100 in "
            f"{file}:{read}\n"
            f"=========     and Write access at g(int)+0x10 in {file}:{write} [8 hazards]\n"
            "========= \n"
        )
    count = len(pairs) if errors is None else errors
    return (f"{out}launched a\n========= RACECHECK SUMMARY: {count} hazards displayed "
            f"({count} errors, 0 warnings)\n")  # fmt: skip


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    for root, text in (("root0", PATCHED), ("source/root0", SOURCE)):
        folder = tmp_path / "kernel" / root
        folder.mkdir(parents=True)
        (folder / "x.cuh").write_bytes(text)
    return tmp_path / "kernel"


def test_a_race_is_two_accesses_with_their_lines() -> None:
    found = races(said((5, 3)))
    assert found == {Race(Access("Read", "x.cuh", 5), Access("Write", "x.cuh", 3))}
    assert races("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)") == set()


@pytest.mark.parametrize(
    "output",
    [
        said((5, 3), errors=2),  # one more than is seen
        said(*((n, n) for n in range(1, 101))),  # as many as the tool tells
        said((5, 3)).replace(" in x.cuh:5", ""),  # no line
        said((5, 3)).split("RACECHECK")[0],  # no summary: it did not end
    ],
)
def test_what_may_be_more_than_is_seen_is_not_told_apart(output: str) -> None:
    assert races(output) is None


@pytest.mark.parametrize(
    ("patched", "own"),
    [
        ((5, 3), False),  # lines 4 and 2 of the author's file
        ((4, 2), True),  # the numbers of the source's race, on other lines
        ((5, 2), True),  # with the line that the patch put there
        ((3, 5), True),  # the write reads, and the read writes
    ],
)
def test_a_race_is_the_sources_where_its_lines_are(
    kernel: Path, patched: tuple[int, int], own: bool
) -> None:
    ours, theirs = races(said(patched)), races(said((4, 2)))
    assert ours is not None and theirs is not None
    assert bool(only_in(ours, theirs, kernel)) == own


def test_files_that_were_not_patched_have_the_authors_lines(kernel: Path) -> None:
    found = races(said((7, 9), file="scheduler.hpp"))
    assert found is not None and not only_in(found, found, kernel)


@pytest.mark.parametrize(
    ("theirs", "verdict", "words"),
    [
        (said((4, 2)), "pass", ""),
        (said((4, 2), errors=2), "fail", "Race reported"),  # not told apart
        (said(), "fail", "race: Read x.cuh:5, Write x.cuh:3"),
        ("", "fail", "Race reported"),  # the source was not built
    ],
)
def test_a_row_passes_where_the_source_has_each_race(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, theirs: str, verdict: str, words: str
) -> None:
    folder = kernel.parent
    for name, text in (("ours", said((5, 3))), ("theirs", theirs)):
        (folder / name).write_text(text)
    tool = folder / "compute-sanitizer"
    tool.write_text('#!/bin/sh\ncat "$5"\ncase "$2" in memcheck) exit 0;; esac\nexit 9\n')
    tool.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: str(tool))
    (folder / "dump.json").write_text("[]")
    source = [str(folder / "theirs")] if theirs else []
    rows = list(sanitizer_rows([str(folder / "ours")], "bf16_64", folder / "dump.json", folder,
                               20.0, lambda: source))  # fmt: skip
    assert [r["verdict"] for r in rows] == [PASS, verdict]
    assert words in " ".join(rows[1].get("failures", ()))
    shared = rows[1].get("notes", {}).get(OF_SOURCE, [])
    assert shared == (["Read x.cuh:5, Write x.cuh:3"] if verdict == PASS else [])


def test_what_memcheck_reports_is_wrong_whoever_wrote_it(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kernel.parent
    tool = folder / "compute-sanitizer"
    tool.write_text("#!/bin/sh\necho '========= Invalid __global__ read of size 2'\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: str(tool))
    (folder / "dump.json").write_text("[]")
    memory, _ = sanitizer_rows(["x"], "k", folder / "dump.json", folder, 20.0, lambda: ["x"])
    assert memory["verdict"] == "fail"
