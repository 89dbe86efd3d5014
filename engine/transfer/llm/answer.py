"""A model's answer as edits: strict reading, nothing guessed.

An answer holds fenced blocks: `edit` (search/replace blocks addressed by op id), or one `cuir`
block (a whole module), or one `diff` block (a unified diff of the module); and perhaps a `bind`
block that says which input fills which new field. Everything else is prose.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from engine.errors import CuBridgeError

Place = Literal["at", "before", "after"]
ARGS = "Args"
MAX_BLOCKS = 200
MAX_REASON = 500
_OPENS = r"^[ \t]*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\])"
_CLOSES = r"(?:</(?:think|thinking|thought|reasoning)>|\[/THINK\])"
# Whole thoughts, the end of one, the start of one, and all before the channel of the answer.
_THOUGHTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE | re.DOTALL)
    for pattern in (
        rf"{_OPENS}.*?{_CLOSES}",
        rf"\A.*{_CLOSES}",
        rf"{_OPENS}.*\Z",
        r"\A.*<\|channel\|>final<\|message\|>",
    )
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[ \t]*([^`]*)$")
_HEAD = re.compile(r"^<{7}\s+(?:(before|after|at)\s+)?(?:#@)?(\S+)\s*$")
MARK = re.compile(r"\s*#@[sf]\d+\s*$")
_TARGETS = frozenset({"", "target", "target.cuir"})
_KINDS = ("edit", "cuir", "diff", "bind")
_WRAPPERS = ("", "markdown", "md", "text")
_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs"})


LONGEST_LINE = 300  # of a message that quotes an answer


class AnswerError(CuBridgeError):
    """The answer cannot be used as it is; the message goes back to the model.

    A line of an answer may have any length: what a message quotes of one is cut in the middle.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def shortened(text: str) -> str:
    """`text` with every line that is longer cut in the middle, and how much was left out."""

    def short(line: str) -> str:
        if len(line) <= LONGEST_LINE:
            return line
        half = LONGEST_LINE // 2 - 20
        left_out = len(line) - 2 * half
        return f"{line[:half]} ... {left_out} characters ... {line[-half:]}"

    return "\n".join(map(short, text.split("\n")))


class NothingProposed(AnswerError):
    """The answer holds no edit at all."""


class AnswerRefused(AnswerError):
    """The answer tries what no answer may do."""


@dataclass(frozen=True, slots=True)
class Block:
    """One search/replace block. `op` is a statement's or function's id, or "Args"."""

    op: str
    place: Place
    search: tuple[str, ...]
    replace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer proposes: exactly one of blocks, module and diff is there."""

    reason: str
    blocks: tuple[Block, ...] = ()
    module: str | None = None
    diff: str | None = None
    bind: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Fenced:
    kind: str
    target: str
    text: str
    line: int


def read_answer(text: str) -> Answer:
    """The edits in `text`. Raises `AnswerError` (how to answer), `AnswerRefused` (what not to)."""
    text = text.replace("\r\n", "\n")
    fenced, prose = _unwrapped(text)
    used = [b for b in fenced if b.kind in _KINDS]
    for block in used:
        if block.target not in _TARGETS:
            raise AnswerRefused(
                f"the block at line {block.line} edits {visible(block.target)!r}: only the target "
                "module can be edited; specs, recipes, decks, gates and files cannot"
            )
        _no_hidden(block)
    edits = [b for b in used if b.kind == "edit"]
    modules = [b for b in used if b.kind == "cuir"]
    diffs = [b for b in used if b.kind == "diff"]
    kinds = [k for k, found in (("edit", edits), ("cuir", modules), ("diff", diffs)) if found]
    if not kinds:
        raise NothingProposed("the answer holds no ```edit block (nor ```cuir, nor ```diff)")
    if len(kinds) > 1 or len(modules) > 1 or len(diffs) > 1:
        raise AnswerError(
            "the answer mixes ways to edit: use ```edit blocks only, or one ```cuir block, or one "
            "```diff block"
        )
    return Answer(
        _reason(prose),
        tuple(b for block in edits for b in _search_replace(block)),
        modules[0].text if modules else None,
        diffs[0].text if diffs else None,
        tuple(pair for block in used if block.kind == "bind" for pair in _bind(block)),
    )


def addressed(text: str, kind: str) -> dict[str, tuple[str, ...]]:
    """The parts of an answer's one fence of this kind, by the op that each is about.

    Raises:
        AnswerError: no such fence, or one that is not made of parts.
    """
    fenced, _ = _unwrapped(text.replace("\r\n", "\n"))
    used = [b for b in fenced if b.kind == kind]
    if len(used) != 1:
        raise AnswerError(f"the answer needs exactly one ```{kind} block, and has {len(used)}")
    block = used[0]
    _no_hidden(block)
    out: dict[str, tuple[str, ...]] = {}
    op: str | None = None
    body: list[str] = []
    for offset, line in enumerate(block.text.split("\n"), start=1):
        where = f"line {block.line + offset}"
        head = _HEAD.match(line)
        if head:
            if op is not None or head[1]:
                raise AnswerError(f"{where}: a part opens with `<<<<<<< ID` after the last one")
            op, body = head[2], []
        elif re.match(r">{7}(\s|$)", line):
            if op is None:
                raise AnswerError(f"{where}: >>>>>>> without <<<<<<< before it")
            if op in out:
                raise AnswerError(f"{where}: {op} is answered twice")
            out[op] = tuple(body)
            op = None
        elif op is not None:
            body.append(MARK.sub("", line).rstrip())
        elif line.strip():
            raise AnswerError(f"{where}: text outside of a part; a part opens with `<<<<<<< ID`")
    if op is not None:
        raise AnswerError(f"the last part in the fence at line {block.line} is not closed")
    return out


def reason_of(text: str) -> str:
    """The answer's first paragraph outside of its fences, on one line."""
    return _reason(_unwrapped(text.replace("\r\n", "\n"))[1])


def hidden_in(text: str) -> str | None:
    """The first character that could steer a terminal or hide text, as an escape."""
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in _HIDDEN:
            return character.encode("unicode_escape").decode("ascii")
    return None


def visible(text: str) -> str:
    """`text` with such characters written as escapes."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in _HIDDEN
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )  # fmt: skip


def _no_hidden(block: _Fenced) -> None:
    found = hidden_in(block.text)
    if found is not None:
        raise AnswerRefused(
            f"the block at line {block.line} carries the character {found}: control and invisible "
            "characters have no place in CuIR"
        )


def _unwrapped(text: str) -> tuple[list[_Fenced], str]:
    """The fenced blocks and the prose, without what the model thought before it answered; a whole
    answer inside one fence, as some models write it, is read as if the fence were not there."""
    fenced, prose = _blocks(_without_thoughts(text))
    if len(fenced) == 1 and fenced[0].kind in _WRAPPERS:
        inner, inner_prose = _blocks(fenced[0].text)
        if inner:
            return inner, f"{prose}\n\n{inner_prose}"
    return fenced, prose


def _without_thoughts(text: str) -> str:
    """`text` with thoughts as empty lines, so that what is left keeps its line numbers.

    A server that is not told of a model's way to mark them leaves them in the answer: whole, or
    without the mark that opens them (a template wrote it), or without their end (cut off).
    """

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n")

    for pattern in _THOUGHTS:
        text = pattern.sub(blank, text)
    return text


def _blocks(text: str) -> tuple[list[_Fenced], str]:
    """The fenced blocks, and the prose around them."""
    out: list[_Fenced] = []
    prose: list[str] = []
    fence, kind, target, start = "", "", "", 0
    body: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        found = _FENCE.match(line)
        if not fence:
            if found:
                fence, kind, target, start = found[1], found[2].lower(), found[3].strip(), number
                body = []
            else:
                prose.append(line)
        elif found and found[1].startswith(fence) and not found[2]:
            out.append(_Fenced(kind, target, "\n".join(body), start))
            fence = ""
        else:
            body.append(line)
    if fence:
        raise AnswerError(f"the block that opens at line {start} is not closed")
    if len(out) > MAX_BLOCKS:
        raise AnswerError(f"more than {MAX_BLOCKS} fenced blocks")
    return out, "\n".join(prose)


def _reason(prose: str) -> str:
    """The first paragraph, on one line."""
    for paragraph in re.split(r"\n\s*\n", prose):
        words = " ".join(visible(paragraph).split())
        if words:
            return words if len(words) <= MAX_REASON else words[: MAX_REASON - 3] + "..."
    return "proposed by the model"


def _search_replace(block: _Fenced) -> list[Block]:
    out: list[Block] = []
    state, op, search, replace = "out", "", [], []  # type: ignore[var-annotated]
    place: Place = "at"
    for offset, line in enumerate(block.text.split("\n"), start=1):
        where = f"line {block.line + offset}"
        head = _HEAD.match(line)
        if head:
            if state != "out":
                raise AnswerError(f"{where}: a block opens inside another one")
            state, op, search, replace = "search", head[2], [], []
            place = head[1] or "at"  # type: ignore[assignment]
        elif re.fullmatch(r"={7}\s*", line) and state == "search":
            state = "replace"
        elif re.match(r">{7}(\s|$)", line):
            if state == "search" and place != "at":
                search, replace = [], search  # an insertion holds its new lines alone
            elif state != "replace":
                raise AnswerError(f"{where}: >>>>>>> without ======= before it")
            out.append(Block(op, place, tuple(search), tuple(replace)))
            state = "out"
        elif state == "search":
            search.append(line)
        elif state == "replace":
            replace.append(line)
        elif line.strip():
            raise AnswerError(
                f"{where}: text outside of a block; a block opens with `<<<<<<< ID`, where ID is "
                "an op id such as s12"
            )
    if state != "out":
        raise AnswerError(f"the last block in the fence at line {block.line} is not closed")
    if not out:
        raise AnswerError(f"the ```edit fence at line {block.line} holds no block")
    return out


def _bind(block: _Fenced) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for offset, line in enumerate(block.text.split("\n"), start=1):
        if not line.strip():
            continue
        field, equals, source = line.partition("=")
        if not equals or not field.strip().isidentifier() or not source.strip():
            raise AnswerError(f"line {block.line + offset}: a bind line is `field = input`")
        out.append((field.strip(), source.strip()))
    return out
