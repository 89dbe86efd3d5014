"""The functions that a CUDA source defines, as they are written: names, parameters, macros."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator

from tree_sitter import Node

from engine.foreign.cuda_tree import parsed

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\(?)((?:\\\n|.)*)", re.MULTILINE)


def has_function(source: str, name: str) -> bool:
    return bool(defined(source, name))


def declaration(source: str, name: str) -> str:
    """How a function that the source defines is called, on one line, in the namespaces and classes
    that its name and its parameters' types are of."""
    node, _ = defined(source, name)[0]
    body = node.child_by_field_name("body")
    text = (node.text or b"")[: body.start_byte - node.start_byte if body else None]
    said = " ".join(text.decode("utf-8", "replace").split()) + ";"
    for around, named in _around(node):
        end = " };" if around.type != "namespace_definition" else " }"
        said = f"{_KEYWORDS[around.type]} {named}".rstrip() + f" {{ {said}{end}"
    return said


def defined(source: str, name: str) -> list[tuple[Node, str]]:
    """The definitions of a function, each with the name in full: what qualifies it may be left out
    of `name`, and its arguments, if it is a template, stand there as a caller writes them."""
    found = [(f, _in_full(f)) for f in functions_of(parsed(source.encode()))]
    for words in dict.fromkeys((name, without_arguments(name))):
        if same := [(f, full.removesuffix(words) + name) for f, full in found
                    if f"::{full}".endswith(f"::{words}")]:  # fmt: skip
            return same
    return []


def _in_full(function: Node) -> str:
    """A function's name with the namespaces and classes that it is defined in."""
    names = [name_of(function), *(named for _, named in _around(function) if named)]
    return "::".join(reversed(names))


_KEYWORDS = {"namespace_definition": "namespace", "class_specifier": "class",
             "struct_specifier": "struct"}  # fmt: skip


def _around(function: Node) -> Iterator[tuple[Node, str]]:
    """The namespaces and classes that a function is defined in with their names, from within."""
    node = function.parent
    while node is not None:
        if node.type in _KEYWORDS:
            name = node.child_by_field_name("name")
            yield node, (name.text or b"").decode() if name is not None else ""
        node = node.parent


def host_functions(source: str) -> list[str]:
    """The names of the functions that a CPU could call, in their order."""
    device = (b"__global__", b"__device__")
    found = (f for f in functions_of(parsed(source.encode()))
             if not any(word in (f.text or b"").split(b"{")[0] for word in device))  # fmt: skip
    return list(dict.fromkeys(_in_full(f) for f in found if name_of(f)))


def written_out(function: Node, source: str) -> list[tuple[str, int]]:
    """The parameters of a function, each with its line, and macros that the source defines once as
    one text replaced. A list that a macro was in counts as one line."""
    declarator = declarator_of(function)
    listed = declarator.child_by_field_name("parameters") if declarator else None
    text = (listed.text or b"").decode("utf-8", "replace") if listed else ""
    plain = text
    for name, body in macros_of(source).items():
        if body is not None:
            plain = re.sub(rf"\b{name}\b", body.replace("\\", r"\\"), plain)
    if plain == text:
        return [((n.text or b"").decode(), n.start_point[0] + 1) for n in _parameters(listed)]
    made = next(functions_of(parsed(f"void f{plain} {{}}".encode())))
    declarator, line = declarator_of(made), function.start_point[0] + 1
    listed = declarator.child_by_field_name("parameters") if declarator else None
    return [((n.text or b"").decode(), line) for n in _parameters(listed)]


def _parameters(listed: Node | None) -> Iterator[Node]:
    for node in listed.named_children if listed else ():
        if node.type in ("parameter_declaration", "optional_parameter_declaration"):
            yield node


def macros_of(source: str) -> dict[str, str | None]:
    """What each macro of a source stands for, the last that is defined first; None: it has
    parameters, or several definitions."""
    out: dict[str, str | None] = {}
    for name, opens, body in reversed(_DEFINE.findall(source)):
        out[name] = None if opens or name in out else re.sub(r"\\\n|//.*", " ", body).strip()
    return out


def functions_of(node: Node) -> Iterator[Node]:
    """The functions that a source defines, also in namespaces and as templates."""
    if node.type == "function_definition":
        yield node
        return
    for child in node.named_children:
        yield from functions_of(child)


def declarator_of(function: Node) -> Node | None:
    node = function.child_by_field_name("declarator")
    while node is not None and node.type != "function_declarator":
        node = node.child_by_field_name("declarator")
    return node


def name_of(function: Node) -> str:
    declarator = declarator_of(function)
    name = declarator.child_by_field_name("declarator") if declarator else None
    return name.text.decode() if name is not None and name.text else ""


def without_arguments(name: str) -> str:
    """A function's name without the arguments of templates in it."""
    return name if "operator" in name else re.sub(r"<.*?>+(?=::|$)", "", name)


def plain(name: str) -> str:
    """A function's name without what qualifies it, and without a template's arguments."""
    return without_arguments(name).rsplit("::", 1)[-1]


def names_in(source: bytes) -> Iterator[tuple[str, frozenset[str]]]:
    """Each function that a file defines, and the names that it spells; those that are spelled
    outside of all functions under no name."""
    root = parsed(source)
    yield "", frozenset(_names(root, True))
    for function in functions_of(root):
        yield plain(name_of(function)), frozenset(_names(function, False))


def _names(node: Node, outside: bool) -> Iterator[str]:
    if node.type.endswith("identifier"):
        yield (node.text or b"").decode("utf-8", "replace")
    dead = _dead(node)
    for child in node.named_children:
        if child != dead and not (outside and child.type == "function_definition"):
            yield from _names(child, outside)


def _dead(node: Node) -> Node | None:
    """The branch of an if that a comparison of two numbers bars."""
    if node.type != "if_statement":
        return None
    condition = node.child_by_field_name("condition")
    words = (condition.text or b"").decode("utf-8", "replace") if condition else ""
    found = re.fullmatch(r"\(\s*(\d+)\s*(==|!=|<|>|<=|>=)\s*(\d+)\s*\)", words)
    if found is None:
        return None
    holds = _COMPARED[found[2]](int(found[1]), int(found[3]))
    return node.child_by_field_name("alternative" if holds else "consequence")


_COMPARED = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
             "<=": operator.le, ">=": operator.ge}  # fmt: skip
