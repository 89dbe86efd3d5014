"""The syntax tree of a CUDA source, whatever is written in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser


@lru_cache(maxsize=1)
def _language() -> Language:
    return Language(tree_sitter_cuda.language())


def parsed(source: bytes) -> Node:
    """The root of a source's tree; what does not parse stands there as an error."""
    return Parser(_language()).parse(source).root_node


def text(node: Node | None) -> str:
    return (node.text or b"").decode("utf-8", "replace") if node is not None else ""


def descend(node: Node) -> Iterator[Node]:
    yield node
    for child in node.named_children:
        yield from descend(child)
