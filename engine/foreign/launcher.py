"""A launcher's signature: which parameter is which tensor, size or scalar, by its name.

The launcher is one C++ function of the source. Pointers are named as the tensors (`q`, `k`, `v`,
`o`, `lse`, or the inputs of a reference), whole numbers as the dimensions (`B`, `Hq`, `Hkv`, `Nq`,
`Nk`, `D`, `Dv`), the scale of the scores `scale`, the stream `stream`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from engine.errors import InputError, Where

# What a pointer's element type is called, and the type that is meant.
_ELEMENTS = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16", "bf16": "bf16", "bfloat16_t": "bf16", "half_t": "f16", "int": "i32",
    "int32_t": "i32", "int64_t": "i64", "unsigned char": "u8", "uint8_t": "u8", "bool": "u8",
    "int8_t": "i8", "void": "",
}  # fmt: skip
SIZES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "i8": 1}

# The usual tensors, for a launcher that comes without a reference.
SHAPES = {
    "q": "B Hq Nq D", "k": "B Hkv Nk D", "v": "B Hkv Nk Dv", "o": "B Hq Nq Dv", "lse": "B Hq Nq",
}  # fmt: skip
OUTPUTS = ("o", "lse")
_OTHER_NAMES = {"out": "o", "output": "o", "query": "q", "key": "k", "value": "v"}
DIMENSIONS = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: a tensor with its element type and dimensions, a size, a scale, a stream."""

    name: str
    kind: str  # tensor, size, scale, stream
    means: str  # the tensor's or the dimension's name
    dtype: str = ""
    dims: tuple[str, ...] = ()
    output: bool = False


@dataclass(frozen=True, slots=True)
class Launcher:
    """The function and what its parameters are, in their order."""

    name: str
    parameters: tuple[Parameter, ...]

    @property
    def tensors(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.kind == "tensor")


def read_launcher(
    source: str, path: str, name: str, shapes: Mapping[str, str], dtype: str
) -> Launcher:
    """The launcher `name` of a source.

    Args:
        shapes: dimensions of tensors by name, beside the usual ones.
        dtype: of tensors that the launcher takes as `void*`.

    Raises:
        InputError: there is no such function, or a parameter has a name that says nothing.
    """
    text = source.encode()
    tree = Parser(Language(tree_sitter_cuda.language())).parse(text)
    found = [n for n in _functions(tree.root_node) if _name(n) == name]
    if len(found) != 1:
        many = "several functions" if found else "no function"
        raise InputError(
            f"{path} has {many} named {name}",
            fix="write one C++ function that launches the kernel, such as `void launch("
            "const float* q, const float* k, const float* v, float* o, int B, int Hq, int Hkv, "
            "int Nq, int Nk, int D, float scale)`, or name yours with --launcher",
        )
    declarator = _declarator(found[0])
    listed = declarator.child_by_field_name("parameters") if declarator else None
    parameters = [
        _parameter(node, path, {**SHAPES, **shapes}, dtype)
        for node in (listed.named_children if listed else ())
        if node.type in ("parameter_declaration", "optional_parameter_declaration")
    ]
    return Launcher(name, tuple(parameters))


def _functions(node: Node) -> Iterator[Node]:
    if node.type == "function_definition":
        yield node
        return
    for child in node.named_children:
        yield from _functions(child)


def _declarator(function: Node) -> Node | None:
    node = function.child_by_field_name("declarator")
    while node is not None and node.type != "function_declarator":
        node = node.child_by_field_name("declarator")
    return node


def _name(function: Node) -> str:
    declarator = _declarator(function)
    name = declarator.child_by_field_name("declarator") if declarator else None
    return name.text.decode() if name is not None and name.text else ""


def _parameter(node: Node, path: str, shapes: Mapping[str, str], dtype: str) -> Parameter:
    text = (node.text or b"").decode()
    where = Where(path, node.start_point[0] + 1)
    plain = re.sub(r"\b(const|__restrict__|restrict|__restrict|struct)\b", " ", text.split("=")[0])
    m = re.fullmatch(r"\s*([\w:\s]+?)\s*(\**)\s*(\w+)\s*", plain)
    if m is None:
        raise InputError(f"a parameter that is not plain: {text}", where=where,
                         fix="take pointers, whole numbers, floats and a stream")  # fmt: skip
    type, stars, name = m[1].split("::")[-1].strip(), m[2], m[3]
    if type == "cudaStream_t":
        return Parameter(name, "stream", "stream")
    if stars:
        return _tensor(name, type, where, shapes, dtype)
    if type in ("float", "double"):
        if "scale" not in name:
            raise InputError(f"what is {name}? a float parameter is `scale`", where=where,
                             fix="leave it out of the launcher, or set it inside")  # fmt: skip
        return Parameter(name, "scale", "scale")
    dimension = {d.lower(): d for d in {*DIMENSIONS, *(" ".join(shapes.values()).split())}}
    if name.lower() == "n":
        return Parameter(name, "size", "N")
    if name.lower() not in dimension:
        raise InputError(f"what is {name}? a whole number is one of {', '.join(DIMENSIONS)}",
                         where=where, fix="rename it, or set it inside the launcher")  # fmt: skip
    return Parameter(name, "size", dimension[name.lower()])


def _tensor(name: str, type: str, where: Where, shapes: Mapping[str, str], dtype: str) -> Parameter:
    plain = re.sub(r"^(d_|g_)|(_ptr|_d)$", "", name.lower())
    known = {n.lower(): n for n in shapes}
    means = known.get(plain) or _OTHER_NAMES.get(plain)
    if means is None:
        raise InputError(
            f"what is {name}? it is none of {', '.join(shapes)}", where=where,
            fix=f'say its shape with --tensor {name}="B Hq Nq", or allocate it in the launcher',
        )  # fmt: skip
    if type not in _ELEMENTS:
        raise InputError(f"elements of type {type} are not known", where=where,
                         fix=f"one of {', '.join(filter(None, _ELEMENTS))}")  # fmt: skip
    return Parameter(name, "tensor", means, _ELEMENTS[type] or dtype,
                     tuple(shapes[means].split()), means in OUTPUTS)  # fmt: skip
