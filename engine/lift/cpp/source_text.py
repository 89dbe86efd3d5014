"""One source text while it is lifted: its bytes, its tokens, and the tables that lifting fills."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node as Tree

from engine.cuir.nodes import Path
from engine.errors import LiftError
from engine.lift.cpp.provenance import Lines, OpaqueOp, Range, Span
from engine.lift.cpp.tokens import Token, Tokens, join


@dataclass
class Source:
    """One source text with its tokens, and the tables that lifting fills."""

    data: bytes
    file: str
    tokens: Tokens
    lines: Lines
    provenance: dict[Path, Span] = field(default_factory=dict)
    parts: dict[tuple[Path, str], Range] = field(default_factory=dict)
    opaque: list[OpaqueOp] = field(default_factory=list)
    macros: set[str] = field(default_factory=set)

    def note(self, path: Path, start: int, end: int) -> None:
        self.provenance[path] = self.lines.span(start, end)
        self.parts[path, "statement"] = Range(start, end)
        indent = self.lines.indent(start)
        if indent is not None:
            self.parts[path, "indent"] = indent

    def within(self, tree: Tree) -> list[Token]:
        return self.tokens.inside(tree.start_byte, tree.end_byte)

    def plain_text(self, tree: Tree) -> str:
        """The text of `tree` as its formatting leaves it no say."""
        text = join(self.within(tree)).strip("\n")
        return text or " ".join((tree.text or b"").decode("utf-8", "replace").split())

    def fail(self, offset: int, message: str, fix: str) -> LiftError:
        return LiftError(message, where=self.lines.where(self.file, offset), fix=fix)


def braces_match(tree: Tree) -> bool:
    """Whether a compound statement's own braces stand in the source."""
    ends = (tree.children[:1] + tree.children[-1:]) if tree.child_count > 1 else []
    return bool(ends) and not any(child.is_missing for child in ends)


def declared(tree: Tree) -> list[str]:
    """The names that a declaration declares."""
    out: list[str] = []
    for at, child in enumerate(tree.children):
        if tree.field_name_for_child(at) != "declarator":
            continue
        node: Tree | None = child
        while node is not None and node.type not in ("identifier", "field_identifier"):
            inner = node.child_by_field_name("declarator")
            if inner is None:
                inner = next((c for c in node.children if c.is_named), None)
            node = inner
        if node is not None and node.text is not None:
            out.append(node.text.decode("utf-8", errors="replace"))
    return out
