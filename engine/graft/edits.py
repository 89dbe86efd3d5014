"""Edits of a foreign kernel's files: what is put where, in which hunk, and why."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from engine.errors import TransferError
from engine.types import Hunk, Origin

Files = Mapping[Path, bytes]
_NEAR = 2  # lines between edits of one hunk


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` of a file become `text`.

    Args:
        title: what it does, in a few words; neighbours of one title are one hunk.
        clause: the recipe's clauses that it carries, with ", " between them.
    """

    file: Path
    start: int
    end: int
    text: str
    title: str
    reason: str
    clause: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "file": str(self.file)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Edit:
        return Edit(**{**data, "file": Path(data["file"])})


def apply(files: Files, edits: Iterable[Edit]) -> dict[Path, bytes]:
    """The files that the edits change, with them; bytes outside of the edits' spans are kept, and
    lines end as they do there.

    Raises:
        TransferError: two edits overlap, or one is of a file that is not there.
    """
    by_file: dict[Path, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.file, []).append(edit)
    out: dict[Path, bytes] = {}
    for file, its in by_file.items():
        if file not in files:
            raise TransferError(f"{file} is not among the kernel's files")
        data, at, parts = files[file], 0, []
        for edit in sorted(its, key=lambda e: (e.start, e.end)):
            if edit.start < at or edit.end > len(data):
                raise TransferError(f"two edits of {file.name} overlap")
            parts += [data[at : edit.start], _written(edit, data)]
            at = edit.end
        out[file] = b"".join([*parts, data[at:]])
    return out


def only_spans_changed(old: bytes, new: bytes, edits: Sequence[Edit]) -> bool:
    """Whether `new` is `old` but for what lies in the edits' spans: read from the front, without
    what `apply` does."""
    at = shift = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if old[at : edit.start] != new[at + shift : edit.start + shift]:
            return False
        grown = len(_written(edit, old)) - (edit.end - edit.start)
        at, shift = edit.end, shift + grown
    return old[at:] == new[at + shift :]


def grouped(edits: Sequence[Edit], files: Files) -> list[list[Edit]]:
    """The edits hunk by hunk: those of one title in neighbouring lines, in the order of the file;
    files and titles in the order of the edits."""
    groups: dict[tuple[str, Path], list[Edit]] = {}
    for edit in edits:
        groups.setdefault((edit.title, edit.file), []).append(edit)
    out: list[list[Edit]] = []
    for (_, file), group in groups.items():
        last: Edit | None = None
        for edit in sorted(group, key=lambda e: e.start):
            if last is not None and files[file].count(b"\n", last.end, edit.start) <= _NEAR:
                out[-1].append(edit)
            else:
                out.append([edit])
            last = edit
    return out


def hunks_of(files: Files, edits: Sequence[Edit], name: Mapping[Path, str]) -> tuple[Hunk, ...]:
    """What a person reviews: the lines of each group as they are, and as they become."""
    out: list[Hunk] = []
    for number, group in enumerate(grouped(edits, files), start=1):
        first = group[0]
        data = files[first.file]
        before, after = _lines(files, group)
        line = data.count(b"\n", 0, first.start) + 1
        place = f"{name.get(first.file, first.file.name)}:{line}"
        out.append(
            Hunk(f"h{number}", f"{first.title} ({place})", first.reason, first.clause, before,
                 after, (), Origin.RULES)
        )  # fmt: skip
    return tuple(out)


def edited(group: Sequence[Edit], files: Files, after: str) -> list[Edit]:
    """The edits that make a group's lines a person's own text: what stays is in none of them, so
    that a place before what was put there is still before it."""
    data = files[group[0].file]
    start, end = _span(data, group)
    inside = "\r" if data[start:end].endswith(b"\r") else ""  # the span's end is before a "\n"
    after = _ended(after.removesuffix("\r"), _line_end(data, start)) + inside
    old = [f"{line}\n" for line in _text(data[start:end]).split("\n")]
    new = [f"{line}\n" for line in after.split("\n")]
    out: list[Edit] = []
    for what, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        if i and j and (i == i_end or j == j_end):  # from the end of the line before
            i, j = i - 1, j - 1
        was, now = "".join(old[i:i_end]), "".join(new[j:j_end])
        if was and now:  # the last end of a line may be the file's end
            was, now = was[:-1], now[:-1]
        first = _shared(was, now)
        first -= was[:first].endswith("\r")  # no end of a line is cut in two
        last = _shared(was[first:][::-1], now[first:][::-1])
        last -= was[len(was) - last :].startswith("\n") and "\r" in (
            was[len(was) - last - 1 :][:1], now[len(now) - last - 1 :][:1])  # fmt: skip
        at = start + len(_bytes("".join(old[:i]) + was[:first]))
        upto = at + len(_bytes(was[first : len(was) - last]))
        out.append(replace(group[0], start=at, end=upto, text=now[first : len(now) - last]))
    return out


def _shared(a: str, b: str) -> int:
    """How many characters at the front are the same."""
    short = min(len(a), len(b))
    return next((n for n in range(short) if a[n] != b[n]), short)


def _span(data: bytes, group: Sequence[Edit]) -> tuple[int, int]:
    """The whole lines that a group touches."""
    start = data.rfind(b"\n", 0, group[0].start) + 1
    end = data.find(b"\n", group[-1].end)
    return start, len(data) if end < 0 else end


def lines_with(files: Files, group: Sequence[Edit], own: Sequence[Edit]) -> str | None:
    """The lines of a group with other edits in its place; None where one is not within them."""
    file = group[0].file
    start, end = _span(files[file], group)
    if any(e.file != file or e.start < start or e.end > end for e in own):
        return None
    made = apply(files, own).get(file, files[file])
    return _text(made[start : end + len(made) - len(files[file])])


def _lines(files: Files, group: Sequence[Edit]) -> tuple[str, str]:
    after = lines_with(files, group, group)
    assert after is not None
    return lines_with(files, group, ()) or "", after


def _written(edit: Edit, data: bytes) -> bytes:
    """The edit's text with the ends of lines that the file has there."""
    return _bytes(_ended(edit.text, _line_end(data, edit.start)))


def _line_end(data: bytes, at: int) -> str:
    """How the line at `at` ends; the last one as the one before it."""
    end = data.find(b"\n", at)
    end = end if end >= 0 else data.rfind(b"\n")
    return "\r\n" if end > 0 and data[end - 1 : end] == b"\r" else "\n"


def _ended(text: str, end: str) -> str:
    return re.sub(r"\r?\n", end, text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def patch_text(files: Files, changed: Files, name: Mapping[Path, str]) -> str:
    """A unified diff against the author's files."""
    out: list[str] = []
    for file, new in sorted(changed.items()):
        if new == files[file]:
            continue
        shown = name.get(file, file.name)
        out += _diff(_text(files[file]), _text(new), f"a/{shown}", f"b/{shown}")
    return "".join(out)


def _diff(old: str, new: str, was: str, now: str) -> list[str]:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), was, now
    )
    return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines]  # fmt: skip


def changed_lines(files: Files, changed: Files) -> int:
    """Lines that a patch adds or removes."""
    text = patch_text(files, changed, {})
    return sum(1 for line in text.splitlines()
               if line[:1] in "+-" and not line.startswith(("+++ ", "--- ")))  # fmt: skip


def fresh(name: str, *texts: bytes) -> str:
    """The name, with _ at its end until it is no word of the texts."""
    plain = (re.sub(rb"//[^\n]*|/\*.*?\*/", b"", text, flags=re.DOTALL) for text in texts)
    words = {word for text in plain for word in re.findall(rb"\w+", text)}
    while name.encode() in words:
        name += "_"
    return name
