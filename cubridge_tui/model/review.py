"""The target as a review: the base with every hunk's old and new lines, and what is decided.

The rows are made from the diff of the base and the proposed text; taken rows, read in order, are
the target. `gives` checks just that, so nobody decides on a difference that is not the real one.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cubridge_tui.model.rows import DRAFT, SEPARATOR, UNDECIDED, Key, Row, RowKind
from engine.cuir.changes.diff import diff
from engine.cuir.changes.edits import SPEC, Diff, EditKind, hunks
from engine.cuir.nodes import Module, Path
from engine.cuir.parser import Parsed, parse_block, parse_module, parse_with_tables
from engine.cuir.printer import print_module, print_stmts
from engine.errors import CuBridgeError, CuirError
from engine.types import Decision, DecisionKind, Hunk, Proposal
from sessions.state import SessionState

WORDS = {
    DecisionKind.ACCEPTED: "accepted",
    DecisionKind.REJECTED: "rejected",
    DecisionKind.EDITED: "accepted with your edit",
    None: UNDECIDED,
}


@dataclass(frozen=True, slots=True)
class Review:
    """One proposal against its base, as lines; independent of decisions."""

    proposal: Proposal
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that stay (`hunk` is None), or one hunk's lines of one place: `before` -> `after`."""

    hunk: Hunk | None
    before: tuple[tuple[str, Key | None], ...]
    after: tuple[tuple[str, Key | None], ...] = ()
    first: bool = True  # the hunk's first place: its head is shown here


def of_hunks(proposal: Proposal) -> Review:
    """A proposal's hunks one after the other, of a kernel that has no text to stand in between."""
    return Review(proposal, tuple(
        Block(hunk, tuple((line, None) for line in hunk.before.split("\n") if hunk.before),
              tuple((line, None) for line in hunk.after.split("\n") if hunk.after))
        for hunk in proposal.hunks
    ))  # fmt: skip


def review(
    base: Module, proposed: Module, proposal: Proposal, name: Callable[[Path], Key]
) -> Review:
    """The review of a proposal; `name` gives the key of a path of the base."""
    base_text, new_text = print_module(base), print_module(proposed)
    old, new = parse_with_tables(base_text), parse_with_tables(new_text)
    difference = diff(old.module, new.module)
    back = {n: o for o, n in difference.pairs.items()}
    old_keys = {line: name(path) for path, line in old.lines.items()}
    new_keys = {
        line: name(back[path]) if path in back else (proposal.id, path)
        for path, line in new.lines.items()
    }
    old_of, new_of = _owners(difference, len(proposal.hunks), old, new, base_text, new_text)
    a, b = base_text.split("\n")[:-1], new_text.split("\n")[:-1]
    blocks: list[Block] = []
    seen: set[int] = set()
    # Lines are the same only where they show the same statement, not where they read alike.
    moved = {e.old_path for e in difference.edits if e.kind is EditKind.MOVE}
    same = {n: o for n, o in back.items() if not any(o[:k] in moved for k in range(1, len(o) + 1))}
    ours = _told_apart(a, old, {o: o for o in same.values()}, -1)
    theirs = _told_apart(b, new, same, 1)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            blocks.append(Block(None, tuple((a[i], old_keys.get(i + 1)) for i in range(i1, i2))))
            continue
        olds = _runs(range(i1, i2), old_of)
        news = _runs(range(j1, j2), new_of)
        order = sorted({h for h in (*olds, *news) if h is not None})
        fallback = order[0] if order else 0
        for lines in (olds, news):
            lost = lines.pop(None, [])
            lines.setdefault(fallback, []).extend(lost)
        for index in order or [fallback]:
            hunk = proposal.hunks[index] if index < len(proposal.hunks) else None
            before = tuple((a[i], old_keys.get(i + 1)) for i in sorted(olds.get(index, [])))
            after = tuple((b[j], new_keys.get(j + 1)) for j in sorted(news.get(index, [])))
            if before or after:
                blocks.append(Block(hunk, before, after, index not in seen))
            seen.add(index)
    return Review(proposal, tuple(blocks))


def _told_apart(
    lines: Sequence[str], parsed: Parsed, same: Mapping[Path, Path], side: int
) -> list[tuple[str, Path | int]]:
    """Each line with the base's path of what it shows, or its own number where the other text does
    not have that; a line of no statement (blank, decorator, `else:`) goes with the next one."""
    at = {line: path for path, line in parsed.lines.items()}
    out: list[tuple[str, Path | int]] = []
    beside: Path | int = ()
    for number in range(len(lines), 0, -1):
        path = at.get(number)
        if path is not None:
            beside = same.get(path, side * number)
        out.append((lines[number - 1], beside))
    return out[::-1]


def _owners(
    difference: Diff, count: int, old: Parsed, new: Parsed, base_text: str, new_text: str
) -> tuple[dict[int, int], dict[int, int]]:
    """Line (1-based) -> hunk number, in the base and in the proposed text."""
    old_of: dict[int, int] = {}
    new_of: dict[int, int] = {}
    old_fields, new_fields = _field_lines(base_text), _field_lines(new_text)
    for number, hunk in enumerate(hunks(difference, count)):
        for edit in hunk.edits:
            whole_old = edit.kind in (EditKind.DELETE, EditKind.MOVE)
            whole_new = edit.kind in (EditKind.INSERT, EditKind.MOVE)
            for path, parsed, owner, fields, whole in (
                (edit.old_path, old, old_of, old_fields, whole_old),
                (edit.new_path, new, new_of, new_fields, whole_new),
            ):
                if path is None:
                    continue
                if path[0] not in {f.name for f in parsed.module.functions}:
                    place = path[-1]
                    if isinstance(place, int) and place + 1 < len(fields):
                        owner[fields[place + 1]] = number
                    elif path[0] == SPEC:
                        owner[1] = number
                    continue
                line = parsed.lines.get(path)
                if line is not None:
                    owner.setdefault(line, number)
                if whole:
                    for inner, place in parsed.lines.items():
                        if inner[: len(path)] == path:
                            owner.setdefault(place, number)
                    if line is not None and len(path) == 1:  # with its decorator, set apart
                        owner.update(dict.fromkeys(range(line - 3, line), number))
    return old_of, new_of


def _field_lines(text: str) -> list[int]:
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if line.startswith("class Args")), None)
    if start is None:
        return []
    out = [start + 1]
    while out[-1] < len(lines) and lines[out[-1]].startswith("    "):
        out.append(out[-1] + 1)
    return out


def _runs(lines: range, owner: Mapping[int, int]) -> dict[int | None, list[int]]:
    """0-based lines by hunk; a line of no edit (`else:`, a decorator) goes with its neighbour."""
    known = [owner.get(i + 1) for i in lines]
    for order in (range(len(known)), reversed(range(len(known)))):
        last: int | None = None
        for at in order:
            if known[at] is None:
                known[at] = last
            last = known[at]
    out: dict[int | None, list[int]] = {}
    for i, hunk in zip(lines, known, strict=True):
        out.setdefault(hunk, []).append(i)
    return out


def review_rows(
    made: Review, decisions: Mapping[str, Decision], drafts: Mapping[str, str]
) -> tuple[Row, ...]:
    """The rows; numbers are those of the target's lines. `drafts` are hunk id -> error."""
    rows: list[Row] = []
    number = 0
    proposal = made.proposal

    def stay(text: str, key: Key | None, hunk: str, kind: RowKind, sign: str = "") -> None:
        nonlocal number
        number += 1
        rows.append(Row(text, kind, number, "expert", hunk, key, sign))

    for block in made.blocks:
        hunk = block.hunk
        if hunk is None:
            for text, key in block.before:
                stay(text, key, "", RowKind.SAME)
            continue
        decision = decisions.get(hunk.id)
        kind = decision.kind if decision else None
        name = f"{proposal.id}/{hunk.id}"
        if block.first:
            rows.append(Row(head_of(hunk, decision, drafts.get(hunk.id, "")), RowKind.HEAD,
                            None, hunk.origin.value, name, _first_key(block)))  # fmt: skip
        taken = kind in (DecisionKind.ACCEPTED, DecisionKind.EDITED)
        for text, key in block.before:
            if taken:
                rows.append(Row(text, RowKind.DEL, None, "expert", name, key))
            elif kind is DecisionKind.REJECTED:
                stay(text, key, name, RowKind.SAME)
            else:
                stay(text, key, name, RowKind.DEL)
        origin = "person" if kind is DecisionKind.EDITED else hunk.origin.value
        for text, key in _after(block, decision):
            if taken:
                number += 1
                sign = "~" if kind is DecisionKind.EDITED else "+"
                rows.append(Row(text, RowKind.ADD, number, origin, name, key, sign))
            elif kind is DecisionKind.REJECTED:
                rows.append(Row(text, RowKind.OUT_ADD, None, origin, name, key, "x"))
            else:
                rows.append(Row(text, RowKind.ADD, None, origin, name, key))
    return tuple(rows)


def _after(block: Block, decision: Decision | None) -> Sequence[tuple[str, Key | None]]:
    if decision is None or decision.replacement is None:
        return block.after
    if not block.first:
        return ()
    sample = block.after[0][0] if block.after else (block.before[0][0] if block.before else "")
    indent = sample[: len(sample) - len(sample.lstrip())]
    text = canonical(decision.replacement)
    return [((indent + line) if line else line, None) for line in text.split("\n") if text]


def canonical(text: str) -> str:
    """A hunk's text as the target prints it; as it is where it does not parse by itself."""
    plain = textwrap.dedent(text).strip("\n")
    try:
        if plain.startswith("@"):
            head = "specialisation()\n\n\nclass Args:\n    pass\n\n\n"
            module = parse_module(head + plain + "\n", "hunk")
            return print_module(module)[len(head) :].rstrip("\n")
        return "\n".join(print_stmts(parse_block(plain), 0, (), {})) if plain else ""
    except CuirError:
        return plain


def _first_key(block: Block) -> Key | None:
    return next((k for _, k in (*block.after, *block.before) if k is not None), None)


def with_comments(rows: Sequence[Row], state: SessionState) -> tuple[Row, ...]:
    """The rows with what was said of each hunk behind its head line."""
    out = []
    for row in rows:
        proposal, _, hunk = row.hunk.partition("/")
        said = state.comment(proposal, hunk) if row.kind is RowKind.HEAD else None
        out.append(row if said is None else replace(row, text=f"{row.text} · “{said.text}”"))
    return tuple(out)


def head_of(hunk: Hunk, decision: Decision | None, draft: str = "") -> str:
    """A hunk's head line: its title, its origin and the decision first."""
    state = WORDS[decision.kind if decision else None]
    title = hunk.title.replace(SEPARATOR, " - ")
    parts = [f"{hunk.id} {title}", hunk.origin.value, state]
    if draft:
        parts.append(f"{DRAFT}, not applied: {draft.splitlines()[0]}")
    if hunk.clause:
        parts.append(f"clause: {hunk.clause}")
    return SEPARATOR.join(parts)


def taken_text(rows: Sequence[Row]) -> str:
    """The target that the rows say."""
    taken = [r.text for r in rows if r.number is not None]
    return "".join(line + "\n" for line in taken)


def gives(rows: Sequence[Row], target: str) -> bool:
    """Whether the rows, as decided, are the target."""
    return taken_text(rows) == target


def renumbered(rows: Sequence[Row], target: Sequence[Key | None]) -> tuple[Row, ...]:
    """Rows with the target's own keys on the lines that are in it."""
    return tuple(
        replace(r, key=target[r.number - 1] or r.key)
        if r.number is not None and r.number <= len(target)
        else r
        for r in rows
    )


def same_program(rows: tuple[Row, ...], target: str) -> bool:
    """Whether the taken rows are the target up to how conversions are written."""
    from engine.lower.spelling.legal import legal

    try:
        return print_module(legal(parse_module(taken_text(rows), "shown"))) == target
    except CuBridgeError:
        return False


def hunks_by_op(
    rows: tuple[Row, ...], hunks: tuple[tuple[Proposal, Hunk, Decision | None], ...]
) -> tuple[dict[Key, str], dict[Key, str], dict[str, str]]:
    """Op -> hunk, op -> origin, hunk -> head line, from the review's rows."""
    hunk_of: dict[Key, str] = {}
    origins: dict[Key, str] = {}
    for row in rows:
        if row.key is None or not row.hunk:
            continue
        if row.kind is RowKind.ADD and row.number is not None:
            hunk_of[row.key], origins[row.key] = row.hunk, row.origin
        elif row.kind is RowKind.DEL and row.number is None:
            hunk_of.setdefault(row.key, row.hunk)
    heads = {f"{p.id}/{h.id}": head_of(h, d) for p, h, d in hunks}
    return hunk_of, origins, heads
