"""What is declared where in a function of a CUDA source."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from engine.foreign.cuda_tree import descend, text


def scope(at: Node, function: Node) -> Iterator[tuple[str, tuple[str, int]]]:
    """What is declared before a statement, from the outside in: its type and how many extents."""
    chain: list[Node] = []
    node: Node | None = at
    while node is not None and node != function:
        chain.append(node)
        node = node.parent
    declarator = function.child_by_field_name("declarator")
    for parameter in descend(declarator) if declarator is not None else ():
        if parameter.type == "parameter_declaration":
            yield from declared(parameter)
    for inner in reversed(chain):
        outer = inner.parent
        if outer is None:
            continue
        if outer.type == "compound_statement":
            for before in outer.named_children:
                if before.start_byte >= inner.start_byte:
                    break
                if before.type == "declaration":
                    yield from declared(before)
        elif outer.type == "for_statement":
            first = outer.child_by_field_name("initializer")
            if first is not None and first.type == "declaration":
                yield from declared(first)


def declared(node: Node) -> Iterator[tuple[str, tuple[str, int]]]:
    kind = " ".join(text(c) for c in node.children if "declarator" not in c.type
                    and c.type != "identifier")  # fmt: skip
    for declarator in node.children_by_field_name("declarator"):
        if declarator.type == "init_declarator":
            declarator = declarator.child_by_field_name("declarator") or declarator
        extents = sum(n.type == "array_declarator" for n in descend(declarator))
        name = next((n for n in descend(declarator) if n.type == "identifier"), None)
        if name is not None:
            yield text(name), (kind, extents)
