"""Edits of one version of a kernel's files, moved onto another: a three-way merge by tokens.

Blanks and comments take no part, functions are found wherever they stand by now, and what only is
called otherwise is the same. An edit is moved where the new version has the tokens that it replaces
and those on both sides of it next to each other; else the two meet, and it has no place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from tree_sitter import Node

from engine.foreign.cuda_tree import parsed
from engine.graft.edits import Edit, Files, apply
from engine.lift.cpp.tokens import Token, Tokens

Names = Mapping[str, str]
Differing = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]
Same = tuple[Path, int, int, tuple[str, ...]]
_UNIT = frozenset(";{}\n")  # the signs that end a statement
_TYPES = frozenset({"struct_specifier", "class_specifier", "union_specifier"})
_WRAPPERS = frozenset({"translation_unit", "namespace_definition", "declaration_list",
                       "linkage_specification", "preproc_if", "preproc_ifdef", "preproc_else",
                       "preproc_elif"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Item:
    """A stretch of one file's tokens: a function or a type with its name, or what is left."""

    name: str
    at: tuple[int, ...]
    words: frozenset[str]


class Moved:
    """One file's old text beside its new one: which token of the first is which of the second.

    `changes` counts what else differs, by kind; `renamed` the names that have others.
    """

    def __init__(self, old: bytes, new: bytes, file: Path) -> None:
        self.file = file  # the new version's
        self.old, self.new = old, new
        self.was, self.now = Tokens(old).all, Tokens(new).all
        self.pairs: dict[int, int] = {}
        self.names: dict[int, Names] = {}  # by a token's place: new names by old ones around it
        self.changes: Counter[str] = Counter()
        self.renamed = 0
        before, after = _items(old, self.was), _items(new, self.now)
        for a, b in _partners(before, after):
            self._align(a, b)

    def _align(self, a: _Item, b: _Item) -> None:
        gone, came = a.words - b.words, b.words - a.words
        blank = dict.fromkeys((*gone, *came), "%")
        was = _units(a.at, self.was, blank)
        now = _units(b.at, self.now, blank)
        found: list[tuple[int, int]] = []
        votes: Counter[tuple[str, str]] = Counter()
        for what, i, i_end, j, j_end in _differ([t for _, t in was], [t for _, t in now]):
            mine = [n for at, _ in was[i:i_end] for n in at]
            theirs = [n for at, _ in now[j:j_end] for n in at]
            if what == "equal":  # a statement that changed besides says nothing of names
                same = list(zip(mine, theirs, strict=True))
                found += same
                votes.update((self.was[n].text, self.now[m].text) for n, m in same)
                continue
            self.changes["change" if what == "replace" else what] += 1
            texts = ([_text(self.was[n], blank) for n in mine],
                     [_text(self.now[n], blank) for n in theirs])  # fmt: skip
            for kind, p, p_end, q, q_end in _differ(*texts):
                if kind == "equal":
                    found += zip(mine[p:p_end], theirs[q:q_end], strict=True)
        names = _chosen(votes, set(gone), set(came))
        self.renamed += len(names)
        for n in a.at:
            self.names[n] = names
        for n, m in found:
            if _text(self.was[n], names) == self.now[m].text:
                self.pairs[n] = m

    def __call__(self, edit: Edit) -> Edit | None:
        """The edit on the new version; None where the new version changed its place, too."""
        start, end, i, j = _whole(edit, self.was)
        first, last = self._paired(i - 1), self._paired(j)
        inside = [self.pairs.get(n) for n in range(i, j)]
        if first is None or last != first + 1 + j - i or inside != list(range(first + 1, last)):
            return None
        old = (_end(self.was, i - 1), _start(self.was, j, self.old))
        new = (_end(self.now, first), _start(self.now, last, self.new))
        front = _decoded(self.old[start : edit.start])
        back = _decoded(self.old[edit.end : end])
        text = self._called(f"{front}{edit.text}{back}", i)
        if i < j:
            at, upto = self.now[first + 1].start, self.now[last - 1].end
        else:
            at = upto = new[1] if start == old[1] > old[0] else new[0]
            if self.old[slice(*old)] == self.new[slice(*new)]:
                at = upto = new[0] + start - old[0]
        made = replace(edit, file=self.file, start=at, end=upto, text=text)
        # A comment or a directive beside it may take in what was put there.
        merged = [t.text for t in Tokens(apply({self.file: self.new}, [made])[self.file]).all]
        own = [t.text for t in Tokens(text.encode("utf-8", "surrogateescape")).all]
        rest = [t.text for t in self.now]
        return made if merged == [*rest[: first + 1], *own, *rest[last:]] else None

    def _paired(self, n: int) -> int | None:
        """The new place of an old token; the file's ends are each other's."""
        if n < 0:
            return n
        return len(self.now) if n == len(self.was) else self.pairs.get(n)

    def _called(self, text: str, at: int) -> str:
        """The text with the new version's names around a token."""
        names = self.names.get(at, self.names.get(at - 1, {}))
        data, out = text.encode("utf-8", "surrogateescape"), b""
        last = 0
        for token in Tokens(data).all:
            if token.kind == "word" and token.text in names:
                out += data[last : token.start] + names[token.text].encode()
                last = token.end
        return _decoded(out + data[last:])


def told(edit: Edit, files: Files) -> Same:
    """What an edit is, wherever blanks and comments stand: two that are told alike are the same."""
    _, _, i, j = _whole(edit, Tokens(files[edit.file]).all)
    text = Tokens(edit.text.encode("utf-8", "surrogateescape")).all
    return edit.file, i, j, tuple(t.text for t in text)


def _whole(edit: Edit, tokens: Sequence[Token]) -> tuple[int, int, int, int]:
    """From and to which byte an edit goes if it replaces whole tokens, and which these are."""
    i = next((n for n, t in enumerate(tokens) if t.end > edit.start), len(tokens))
    j = next((n for n in range(i, len(tokens)) if tokens[n].start >= edit.end), len(tokens))
    if i == j:
        return edit.start, edit.end, i, j
    return min(edit.start, tokens[i].start), max(edit.end, tokens[j - 1].end), i, j


def _items(data: bytes, tokens: Sequence[Token]) -> list[_Item]:
    """The functions and types of a file by name, and what is between them as one without a name."""
    root = parsed(data)
    spans = {n.start_byte: (n.end_byte, _named(n)) for n in _tops(root)}
    where: dict[tuple[str, int], list[int]] = {}
    end, key = 0, ("", 0)
    for at, token in enumerate(tokens):
        if token.start >= end:
            end, name = spans.get(token.start, (0, ""))
            key = (name, token.start if name else 0)
        where.setdefault(key, []).append(at)
    return [
        _Item(name, tuple(at), frozenset(tokens[n].text for n in at if tokens[n].kind == "word"))
        for (name, _), at in where.items()
    ]


def _tops(node: Node) -> Iterator[Node]:
    for child in node.named_children:
        if child.type in _WRAPPERS:
            yield from _tops(child)
        else:
            yield child


def _named(node: Node) -> str:
    """The name of a function or a type that is defined there; "" where none is."""
    if node.type == "template_declaration":
        return next((name for child in node.named_children if (name := _named(child))), "")
    inner: Node | None
    if node.type == "function_definition":
        inner = node.child_by_field_name("declarator")
        while inner is not None and inner.type != "function_declarator":
            inner = inner.child_by_field_name("declarator")
        inner = inner.child_by_field_name("declarator") if inner is not None else None
    elif node.type in _TYPES and node.child_by_field_name("body") is not None:
        inner = node.child_by_field_name("name")
    else:
        return ""
    return _decoded(inner.text or b"") if inner is not None else ""


def _partners(before: Sequence[_Item], after: Sequence[_Item]) -> Iterator[tuple[_Item, _Item]]:
    """Items of one name, where there is one on each side; all the rest as one item."""
    once = [{x.name: x for x in side if x.name} for side in (before, after)]
    often = [Counter(x.name for x in side) for side in (before, after)]
    both = {n for n in once[0] if often[0][n] == often[1][n] == 1}
    for name in sorted(both):
        yield once[0][name], once[1][name]
    rest = (
        _Item(
            "",
            tuple(sorted(n for x in side if x.name not in both for n in x.at)),
            frozenset().union(*(x.words for x in side if x.name not in both)),
        )
        for side in (before, after)
    )
    yield next(rest), next(rest)


def _units(
    at: Sequence[int], tokens: Sequence[Token], names: Names
) -> list[tuple[list[int], tuple[str, ...]]]:
    """Tokens in stretches that end with a statement's last one."""
    out: list[tuple[list[int], tuple[str, ...]]] = []
    begin = 0
    for number, n in enumerate(at, start=1):
        if tokens[n].text in _UNIT or number == len(at):
            unit = list(at[begin:number])
            out.append((unit, tuple(_text(tokens[m], names) for m in unit)))
            begin = number
    return out


def _differ(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Differing]:
    return SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def _chosen(votes: Counter[tuple[str, str]], gone: set[str], came: set[str]) -> dict[str, str]:
    """Pairs of a name that is gone and one that came, those with the most votes first."""
    out: dict[str, str] = {}
    for (a, b), _ in sorted(votes.items(), key=lambda item: (-item[1], item[0])):
        if a in gone and b in came:
            out[a] = b
            gone.remove(a)
            came.remove(b)
    return out


def _text(token: Token, names: Names) -> str:
    return names.get(token.text, token.text) if token.kind == "word" else token.text


def _end(tokens: Sequence[Token], n: int) -> int:
    return tokens[n].end if n >= 0 else 0


def _start(tokens: Sequence[Token], n: int, data: bytes) -> int:
    return tokens[n].start if n < len(tokens) else len(data)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
