"""Lowerings from a model: new text for the regions of the source that an accepted edit may change.

The regions are computed from the op diff and the provenance beforehand (`engine.lower.spans`): an
answer cannot even name anything outside of them. What it writes is judged by G3 as what the
templates write: lifted again it must be the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import after_text, before_text, hunks
from engine.cuir.nodes import Module
from engine.cuir.ops import SPELLINGS
from engine.cuir.ops.spelling import WORDS, both
from engine.lift.cpp.provenance import Lifted, Range
from engine.lift.cpp.tokens import Tokens
from engine.llm.types import Message
from engine.lower.patches.source_patch import Patch, apply_patches
from engine.lower.spans import allowed_spans
from engine.lower.spelling.legal import legal
from engine.transfer.llm.answer import AnswerError, addressed
from engine.transfer.llm.prompt import fenced, instruction_text, render
from engine.transfer.llm.sources import without_comments

MAX_REGION = 20_000  # characters of one region's new text


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of the source that may change, under a name (`r1`). An empty one is a place where
    bytes may come: whole lines where it stands at the start of a line."""

    name: str
    place: Range

    @property
    def empty(self) -> bool:
        return self.place.start == self.place.end


@dataclass(frozen=True, slots=True)
class LowerTask:
    """All that a prompt is made of."""

    kernel: str
    lifted: Lifted
    target: Module
    regions: tuple[Region, ...]
    why: str
    instruction: str = ""

    @classmethod
    def of(
        cls, kernel: str, lifted: Lifted, target: Module, why: str, instruction: str = ""
    ) -> LowerTask:
        return cls(kernel, lifted, legal(target), regions_of(lifted, target), why, instruction)

    def text(self, region: Region) -> str:
        """The region's bytes as text."""
        data = region.place.of(self.lifted.source)
        return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def regions_of(lifted: Lifted, target: Module) -> tuple[Region, ...]:
    """The allowed spans as regions. Of several places between the same two neighbours one is kept,
    at the start of a line where there is one."""
    source = lifted.source
    comments = Tokens(source).comments
    spans = allowed_spans(lifted, target)
    out = [s for s in spans if s.start < s.end]
    group: list[Range] = []

    def close() -> None:
        if group:
            out.append(next((p for p in group if _starts_line(source, p.start)), group[0]))
            group.clear()

    for point in (s for s in spans if s.start == s.end):
        if group and without_comments(source, comments, group[-1].start, point.start).strip():
            close()
        group.append(point)
    close()
    return tuple(Region(f"r{n}", place) for n, place in enumerate(sorted(out), start=1))


def _starts_line(source: bytes, at: int) -> bool:
    return at == 0 or source[at - 1 : at] == b"\n"


# --- prompts --------------------------------------------------------------------------------------


def lower_messages(task: LowerTask, manual: str) -> tuple[Message, ...]:
    """The first prompt."""
    return (
        Message("system", render("lower_system", manual=manual, table=spellings())),
        Message(
            "user",
            render(
                "lower_task",
                kernel=task.kernel,
                source=fenced(marked_source(task), "cuda"),
                changes=_changes(task),
                why=fenced(task.why),
                instruction=instruction_text(task.instruction),
            ),
        ),
    )


def marked_source(task: LowerTask) -> str:
    """The source without comments, with the regions marked."""
    source = task.lifted.source
    patches = []
    for start, end in Tokens(source).comments:
        patches.append(Patch(start, end, b""))
    for region in task.regions:
        name = region.name.encode()
        at = region.place
        if region.empty and _starts_line(source, at.start):
            patches.append(Patch(at.start, at.start, b"/*%s: new lines may come here*/\n" % name))
        elif region.empty:
            patches.append(Patch(at.start, at.start, b"/*%s: new words may come here*/" % name))
        else:
            patches.append(Patch(at.start, at.start, b"/*%s[*/" % name))
            patches.append(Patch(at.end, at.end, b"/*]%s*/" % name))
    patches = [p for p in patches if not _cut_by_a_comment(p, patches)]
    text = apply_patches(source, patches).decode("utf-8", "replace").replace("\r\n", "\n")
    out: list[str] = []
    for line in text.split("\n"):
        if line.strip() or (out and out[-1]):
            out.append(line.rstrip())
    return "\n".join(out)


def _cut_by_a_comment(patch: Patch, others: Sequence[Patch]) -> bool:
    """A mark inside a comment has no place once the comment is gone; it never happens for spans,
    which end at tokens or line starts outside of comments."""
    return patch.start == patch.end and any(o.start < patch.start < o.end for o in others)


def spellings() -> str:
    """The lifter's own table of C++ spellings, as rows for a prompt."""
    rows = [f"{cxx}  ->  {w.name}" for w in WORDS for cxx in w.lift if cxx != w.name]
    rows += [
        f"{cxx}  ->  {cuir}" for spelling in SPELLINGS for cxx, cuir in map(both, spelling.lift)
        if cuir is not None
    ]  # fmt: skip
    return fenced("\n".join(rows))


def _changes(task: LowerTask) -> str:
    difference = diff(task.lifted.module, task.target)
    parts = []
    for number, hunk in enumerate(hunks(difference), start=1):
        before = before_text(hunk, task.lifted.module).rstrip("\n")
        after = after_text(hunk, task.target).rstrip("\n")
        lines = [f"-{line}" for line in before.split("\n") if line]
        lines += [f"+{line}" for line in after.split("\n") if line]
        parts.append(f"{number}. in `{hunk.function}`\n\n{fenced(chr(10).join(lines), 'diff')}")
    return "\n\n".join(parts)


# --- answers --------------------------------------------------------------------------------------


def read_regions(text: str, task: LowerTask) -> dict[str, str]:
    """New texts by region.

    Raises:
        AnswerError: a part about no region, or an answer that changes nothing.
        AnswerRefused: hidden characters.
    """
    known = {r.name: r for r in task.regions}
    out: dict[str, str] = {}
    for name, lines in addressed(text, "cuda").items():
        if name not in known:
            raise AnswerError(f"{name} is no region; the regions are {', '.join(known)}")
        new = "".join(f"{line}\n" for line in lines)
        if len(new) > MAX_REGION:
            raise AnswerError(f"{name}: more than {MAX_REGION} characters")
        new = fitted(new, known[name], task)
        if new != task.text(known[name]):
            out[name] = new
    if not out:
        raise AnswerError("no region is changed")
    return out


def fitted(new: str, region: Region, task: LowerTask) -> str:
    """A region's new text with the line ends and the first indentation that its place has."""
    source, place = task.lifted.source, region.place
    begins = _starts_line(source, place.start)
    if region.empty and begins and new.strip():
        # Lines of their own: the blank ones around them set a new function apart.
        return new if new.endswith("\n") else f"{new}\n"
    new = new.strip("\n")
    if not begins:
        new = new.lstrip(" \t")
    return f"{new}\n" if source[place.start : place.end].endswith(b"\n") and new.strip() else new


def lowered_source(texts: Mapping[str, str], task: LowerTask) -> bytes:
    """The source with regions replaced; every other byte is the expert's."""
    source = task.lifted.source
    eol = "\r\n" if b"\r\n" in source else "\n"
    patches = [
        Patch(
            region.place.start, region.place.end,
            texts[region.name].replace("\n", eol).encode("utf-8", "surrogateescape"),
        )
        for region in task.regions
        if region.name in texts
    ]  # fmt: skip
    return apply_patches(source, patches)
