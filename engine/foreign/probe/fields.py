"""The numbers that structs of a CUDA source have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tree_sitter import Node

from engine.foreign.cuda_tree import descend, parsed, text

INTEGERS = {"int", "unsigned", "unsigned int", "bool", "char", "size_t", "int64_t", "uint32_t",
            "int32_t", "uint64_t", "long", "long long", "short", "void"}  # fmt: skip
_FLOATS = {"float", "double"}
Fields = Mapping[tuple[str, str], tuple[str, ...]]


def fields(sources: Iterable[bytes]) -> Fields:
    """The members of structs that are declared as numbers, by the name of the class around a struct
    ("": none) and its own."""
    out: dict[tuple[str, str], tuple[str, ...]] = {}
    for source in sources:
        for node in descend(parsed(source)):
            if node.type != "field_declaration" or node.parent is None:
                continue
            static = any(c.type == "storage_class_specifier" for c in node.children)
            if static or text(node.child_by_field_name("type")) not in INTEGERS | _FLOATS:
                continue
            struct, outer = _class_of(node.parent), ""
            if struct is not None:
                outer = _class_name(_class_of(struct))
            key = outer, _class_name(struct)
            if not key[1]:
                continue
            names = [text(n) for n in node.children_by_field_name("declarator")
                     if n.type == "field_identifier"]  # fmt: skip
            out[key] = (*out.get(key, ()), *names)
    return out


def _class_of(node: Node) -> Node | None:
    """The struct or class that something is declared in."""
    at = node.parent
    while at is not None and at.type not in ("struct_specifier", "class_specifier"):
        at = at.parent
    return at


def _class_name(node: Node | None) -> str:
    return text(node.child_by_field_name("name")) if node is not None else ""


def last_word(type: str) -> str:
    """A type's own name, without what it is a member of, and template arguments."""
    words = re.findall(r"\w+", type.split("<")[0])
    return words[-1] if words else ""


def own_fields(found: Fields, function: Node) -> dict[str, tuple[str, ...]]:
    """By a struct's name its numbers: of the one in the function's own class, else of the only one
    that is called so."""
    by_name: dict[str, list[tuple[str, ...]]] = {}
    for (_, name), numbers in found.items():
        by_name.setdefault(name, []).append(numbers)
    out = {name: some[0] for name, some in by_name.items() if len(some) == 1}
    own = _class_name(_class_of(function))
    return out | {name: numbers for (outer, name), numbers in found.items() if own and outer == own}
