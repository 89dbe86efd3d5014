"""The top level of a source: the argument struct, the functions, and what else stands there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node as Tree

from engine.cuir.nodes import Field, Param
from engine.cuir.static.conversions import NUMBERS
from engine.errors import LiftError
from engine.lift.cpp import ignored_words as ignored
from engine.lift.cpp.provenance import Range
from engine.lift.cpp.source_text import Source, braces_match
from engine.lift.cpp.syntax import KEYWORDS
from engine.lift.cpp.tokens import Token
from engine.lift.names.scope import C_TYPES, FIELD_TYPES, MAPS, Signature, safe

ARGS = "Args"
_KIND_WORDS = frozenset({"__global__", "__device__", "__host__"})
_PARAM_WORDS = frozenset({"const", "__grid_constant__", "__restrict__"})


@dataclass(frozen=True, slots=True)
class FunctionItem:
    """One function definition, read as far as its header."""

    tree: Tree  # with its `template <...>`
    definition: Tree
    body: Tree
    signature: Signature
    params: tuple[Param, ...]
    # C++ name and kind of every parameter, the stream and the argument struct among them.
    names: tuple[tuple[str, str], ...]
    launch_bounds: tuple[list[Token], ...]
    ranges: dict[str, Range]


@dataclass(frozen=True, slots=True)
class OtherItem:
    """What has no meaning here: kept whole, under a name, so that nothing is dropped."""

    tree: Tree
    name: str
    reason: str


class Unsupported(Exception):
    """A function header that the kernel language has not; `args[0]` says why."""


def items(root: Tree) -> Iterator[Tree]:
    """The top-level items in order; namespaces and `extern "C"` are looked into."""
    for child in root.children:
        if child.type in ("namespace_definition", "linkage_specification") and not child.has_error:
            body = child.child_by_field_name("body")
            if body is not None and body.type == "declaration_list":
                yield from items(body)
                continue
        if child.type not in ("comment", ";", "{", "}"):
            yield child


# --- the argument struct -----------------------------------------------------------------------


def is_struct(tree: Tree, name: str) -> bool:
    if tree.type != "struct_specifier":
        return False
    found = tree.child_by_field_name("name")
    return found is not None and found.text == name.encode()


def read_args(source: Source, tree: Tree) -> tuple[Field, ...]:
    """The fields of the argument struct, with their spans. Raises `LiftError`."""
    body = tree.child_by_field_name("body")
    name = tree.child_by_field_name("name")
    if body is None or name is None or tree.has_error:
        raise source.fail(tree.start_byte, f"struct {ARGS} does not parse", "mend its syntax")
    path = (ARGS,)
    source.note(path, tree.start_byte, tree.end_byte)
    parts = source.parts
    parts[path, "name"] = Range(name.start_byte, name.end_byte)
    parts[path, "body"] = Range(body.start_byte, body.end_byte)
    parts[path, "body.open"] = Range(body.start_byte, body.start_byte + 1)
    parts[path, "body.close"] = Range(body.end_byte - 1, body.end_byte)
    fields: list[Field] = []
    for child in body.children:
        if child.type in ("{", "}", "comment"):
            continue
        tokens = source.within(child)
        kind, names = _field_line(source, child, tokens)
        for token in names:
            here = (ARGS, len(fields))
            if any(f.name == token.text for f in fields):
                raise source.fail(token.start, f"field {token.text} stands twice", "rename one")
            fields.append(Field(token.text, kind))
            source.note(here, child.start_byte, child.end_byte)
            parts[here, "name"] = Range(token.start, token.end)
            parts[here, "type"] = Range(tokens[0].start, names[0].start)
    return tuple(fields)


def _field_line(source: Source, tree: Tree, tokens: list[Token]) -> tuple[str, list[Token]]:
    kinds = ", ".join(FIELD_TYPES)
    words: list[Token] = []
    for token in tokens:
        if token.kind != "word":
            break
        words.append(token)
    rest = tokens[len(words) :]
    kind = FIELD_TYPES.get(" ".join(w.text for w in words[:-1]))
    names = [words[-1], *rest[1::2]] if words else []
    commas = [t.text for t in rest[0::2]]
    plain = commas == [","] * (len(commas) - 1) + [";"] and all(map(is_name, names))
    if tree.type != "field_declaration" or kind is None or not plain:
        raise source.fail(
            tree.start_byte,
            f"a field of struct {ARGS} that is not a {kinds}",
            f"declare plain fields of the types {kinds}; TensorArg holds a pointer and strides",
        )
    for token in names:
        if token.text in source.macros or safe(token.text) != token.text:
            raise source.fail(token.start, f"a field may not be named {token.text}", "rename it")
    return kind, names


# --- functions ---------------------------------------------------------------------------------


def definition_of(tree: Tree) -> Tree | None:
    """The function definition in a top-level item, inside its template or not."""
    if tree.type == "function_definition":
        return tree
    if tree.type == "template_declaration":
        return next((c for c in tree.children if c.type == "function_definition"), None)
    return None


def function_name(definition: Tree) -> str:
    node = definition.child_by_field_name("declarator")
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator")
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def read_function(source: Source, tree: Tree, definition: Tree) -> FunctionItem:
    """The header of a function. Raises `Unsupported`."""
    declarator = definition.child_by_field_name("declarator")
    body = definition.child_by_field_name("body")
    name_node = None if declarator is None else declarator.child_by_field_name("declarator")
    params_node = None if declarator is None else declarator.child_by_field_name("parameters")
    if (
        declarator is None or body is None or name_node is None or params_node is None
        or declarator.type != "function_declarator" or name_node.type != "identifier"
        or body.type != "compound_statement"
    ):  # fmt: skip
        raise Unsupported("a function of another form")
    header = source.tokens.inside(tree.start_byte, body.start_byte)
    if not header:
        raise Unsupported("its header does not parse")
    for token in header:
        if token.text in source.macros:
            raise Unsupported(f"the macro `{token.text}` in a function's header")
    ranges = {
        "header": Range(tree.start_byte, header[-1].end),
        "name": Range(name_node.start_byte, name_node.end_byte),
        "params": Range(params_node.start_byte + 1, params_node.end_byte - 1),
        "body": Range(body.start_byte, body.end_byte),
        "body.open": Range(body.start_byte, body.start_byte + 1),
        "body.close": Range(body.end_byte - 1, body.end_byte),
    }
    data = source.data
    between = source.tokens.inside(name_node.end_byte, params_node.start_byte)
    closed = data[params_node.end_byte - 1 : params_node.end_byte] == b")"
    if between or not closed or not braces_match(body):
        raise Unsupported("its header or its braces do not parse")
    consts, const_kinds = _consts(source, tree, definition, ranges)
    kind, result, bounds = _qualifiers(source, definition, name_node, ranges)
    after = source.tokens.inside(params_node.end_byte, body.start_byte)
    if after:
        raise Unsupported(f"`{after[0].text}` after a function's parameters")
    params, names = _params(source, params_node, ranges)
    if kind == "kernel" and result != "none":
        raise Unsupported("a kernel that is not void")
    signature = Signature(
        function_name(definition),
        kind,
        tuple(k for _, k in names if k != "stream"),
        consts,
        const_kinds,
        result,
    )
    return FunctionItem(tree, definition, body, signature, params, names, bounds, ranges)


def _consts(
    source: Source, tree: Tree, definition: Tree, ranges: dict[str, Range]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and kinds of the template parameters."""
    node = tree.child_by_field_name("parameters") if tree.type == "template_declaration" else None
    if node is None:
        return (), ()
    before = [t.text for t in source.tokens.inside(tree.start_byte, node.start_byte)]
    after = source.tokens.inside(node.end_byte, definition.start_byte)
    closed = source.data[node.end_byte - 1 : node.end_byte] == b">"
    if before != ["template"] or after or not closed:
        raise Unsupported("its template parameters do not parse")
    ranges["template"] = Range(tree.start_byte, node.end_byte)
    ranges["consts"] = Range(node.start_byte + 1, node.end_byte - 1)
    consts: list[str] = []
    kinds: list[str] = []
    for piece in _commas(source.tokens.inside(node.start_byte + 1, node.end_byte - 1)):
        words = [t.text for t in piece]
        if len(words) == 2 and words[0] in ("typename", "class"):
            kind = "type"
        elif len(words) >= 2 and C_TYPES.get(" ".join(words[:-1])) in ("i32", "i64", "bool"):
            kind = C_TYPES[" ".join(words[:-1])]
        else:
            raise Unsupported("a template parameter that is not `typename T`, `int N` or `bool B`")
        if safe(words[-1]) != words[-1] or not is_name(piece[-1]):
            raise Unsupported(f"a template parameter named {words[-1]}")
        ranges[f"const{len(consts)}"] = Range(piece[0].start, piece[-1].end)
        consts.append(words[-1])
        kinds.append(kind)
    return tuple(consts), tuple(kinds)


def _qualifiers(
    source: Source, definition: Tree, name: Tree, ranges: dict[str, Range]
) -> tuple[str, str, tuple[list[Token], ...]]:
    """Kind, result and launch bounds, from the words before the name."""
    tokens = source.tokens.inside(definition.start_byte, name.start_byte)
    kinds: set[str] = set()
    words: list[str] = []
    bounds: tuple[list[Token], ...] = ()
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == "__launch_bounds__":
            depth, end = 0, at + 1
            while end < len(tokens):
                depth += (tokens[end].text == "(") - (tokens[end].text == ")")
                end += 1
                if not depth:
                    break
            bounds = tuple(_commas(tokens[at + 2 : end - 1]))
            ranges["launch_bounds"] = Range(token.start, tokens[end - 1].end)
            for role, piece in zip(("threads", "min_blocks"), bounds, strict=False):
                ranges[role] = Range(piece[0].start, piece[-1].end)
            at = end
            continue
        if token.text in _KIND_WORDS:
            kinds.add(token.text)
        elif token.kind != "word":
            raise Unsupported(f"`{token.text}` before a function's name")
        elif token.text not in ignored.QUALIFIERS:
            words.append(token.text)
        at += 1
    result = C_TYPES.get(" ".join(w for w in words if w != "const"))
    if result is None:
        raise Unsupported(f"a function that returns `{' '.join(words)}`")
    kind = "kernel" if "__global__" in kinds else "device" if "__device__" in kinds else "host"
    if len(bounds) > 2 or (bounds and kind != "kernel"):
        raise Unsupported("launch bounds of another form")
    return kind, result, bounds


def _params(
    source: Source, node: Tree, ranges: dict[str, Range]
) -> tuple[tuple[Param, ...], tuple[tuple[str, str], ...]]:
    """The CuIR parameters, and the C++ name and kind of every parameter."""
    params: list[Param] = []
    names: list[tuple[str, str]] = []
    for at, piece in enumerate(
        _commas(source.tokens.inside(node.start_byte + 1, node.end_byte - 1))
    ):
        words = [t.text for t in piece if t.text not in _PARAM_WORDS]
        reference = "&" in words
        constant = any(t.text == "const" for t in piece)
        plain = [w for w in words if w != "&"]
        if len(plain) < 2 or not is_name(piece[-1]) or words.count("&") > 1:
            raise Unsupported("a parameter of another form")
        if reference and (words[-2] != "&" or not constant):
            raise Unsupported("a parameter passed by reference that is not const")
        text, name = " ".join(plain[:-1]), plain[-1]
        ranges[f"param{at}"] = Range(piece[0].start, piece[-1].end)
        if text == ARGS:
            names.append((name, "args"))
            params.append(Param("args"))
            continue
        kind = C_TYPES.get(text)
        if kind == "stream":
            names.append((name, "stream"))
            continue
        if kind not in (*NUMBERS, *MAPS.values()):
            raise Unsupported(f"a parameter of type `{text}`")
        names.append((name, kind))
        params.append(Param(safe(name), kind))
    if len({p.name for p in params}) != len(params):
        raise Unsupported("two parameters of one name")
    return tuple(params), tuple(names)


def _commas(tokens: list[Token]) -> list[list[Token]]:
    out: list[list[Token]] = []
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{", "<")) - (token.text in (")", "]", "}", ">"))
        if not out:
            out.append([])
        if token.text == "," and not depth:
            out.append([])
        else:
            out[-1].append(token)
    if any(not piece for piece in out):
        raise Unsupported("an empty parameter")
    return out


def is_name(token: Token) -> bool:
    """Whether a variable may be named so."""
    return token.kind == "word" and token.text not in KEYWORDS


def other_name(tree: Tree, taken: set[str], numbers: dict[str, int]) -> str:
    """A name for an item without meaning: its own where it has one.

    `numbers` keeps the last number given to each name that stands more than once.
    """
    name = ""
    node: Tree | None = tree
    while node is not None and not name:
        found = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        if found is not None and found.child_count == 0 and found.text is not None:
            name = found.text.decode("utf-8", "replace")
        if found is None and node.type == "template_declaration":
            found = next((c for c in node.children if c.child_by_field_name("name") or
                          c.child_by_field_name("declarator")), None)  # fmt: skip
        node = found
    plain = safe(name) if name.isidentifier() and name.isascii() else "top_level"
    chosen = plain
    while chosen in taken:
        numbers[plain] = numbers.get(plain, 0) + 1
        chosen = f"{plain}_{numbers[plain]}"
    return chosen


_INSIDE = frozenset({"parameters", "arguments", "value", "default_value", "size"})
_BODIES = frozenset({"compound_statement", "field_declaration_list"})


def defined_names(tree: Tree) -> set[str]:
    """The names that a top-level item declares: of a function its own, not its parameters'; those
    of everything in an item that cannot be read. Of a specialisation, what it specialises."""
    out: set[str] = set()
    pending = [tree]
    while pending:
        node = pending.pop()
        for at, child in enumerate(node.children):
            role = node.field_name_for_child(at)
            used = role == "type" and not child.type.endswith("_specifier")
            if role in _INSIDE or used or child.type in _BODIES:
                continue
            if role in ("name", "declarator") and child.child_count == 0 and child.text:
                out.add(child.text.decode("utf-8", "replace"))
            pending.append(child)
    return out


def not_liftable(source: Source, root: Tree, message: str, fix: str) -> LiftError:
    """The error for a text as a whole: at its first syntax error, if there is one."""
    offset = root.start_byte
    node: Tree | None = root if root.has_error else None
    while node is not None:
        if node.type == "ERROR" or node.is_missing:
            offset = node.start_byte
            break
        node = next((c for c in node.children if c.has_error or c.is_missing), None)
    return source.fail(offset, message, fix)
