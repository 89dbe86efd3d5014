"""A launcher's signature: which parameter is which tensor, size or scalar, by its name.

The launcher is one C++ function of the source. Pointers are named as the tensors (`q`, `k`, `v`,
`o`, `lse`, or the inputs of a reference), whole numbers as the dimensions (`B`, `Hq`, `Hkv`, `Nq`,
`Nk`, `D`, `Dv`), the scale of the scores `scale`, the stream `stream`, other numbers as the
reference's own scalars. `torch::Tensor` stands for a pointer with its dimensions; what is returned
is the output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from engine.errors import InputError, Where
from engine.foreign.functions import defined, host_functions, macros_of, written_out

# What a pointer's element type is called, and the type that is meant.
_ELEMENTS = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "half_t": "f16",
    "Half": "f16", "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "bf16": "bf16",
    "bfloat16_t": "bf16", "BFloat16": "bf16", "int": "i32", "int32_t": "i32", "uint32_t": "i32",
    "unsigned": "i32", "unsigned int": "i32", "int64_t": "i64", "uint64_t": "i64", "long": "i64",
    "long long": "i64", "unsigned char": "u8", "uint8_t": "u8", "bool": "u8", "int8_t": "i8",
    "signed char": "i8", "void": "",
}  # fmt: skip
_WHOLE = re.compile(r"bool|u?int(\d+_t)?|s?size_t|((un)?signed|long|short|char)( \w+)*")
MOST_BYTES = 1 << 30  # of a case's tensors, and of what its launcher allocates
SIZES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "u8": 1, "i8": 1}

# The usual tensors, for a launcher that comes without a reference.
SHAPES = {
    "q": "B Hq Nq D", "k": "B Hkv Nk D", "v": "B Hkv Nk Dv", "o": "B Hq Nq Dv", "lse": "B Hq Nq",
}  # fmt: skip
OUTPUTS = ("o", "lse")
OTHER_NAMES = {"out": "o", "output": "o", "query": "q", "key": "k", "value": "v"}
# What launchers call the dimensions besides, without underscores.
_OTHER_SIZES = {
    "B": "batch batchsize batches bs numbatches", "D": "dim headdim headsize",
    "Hq": "heads headsq qheads numheads nheads numheadsq", "N": "n length seqlen seqlength",
    "Hkv": "headskv headsk kvheads numheadskv numheadsk numkvheads nheadskv nheadsk",
    "Nq": "lenq seqlenq qlen", "Nk": "lenk seqlenk klen lenkv seqlenkv kvlen",
}  # fmt: skip
OTHER_SIZES = {other: name for name, others in _OTHER_SIZES.items() for other in others.split()}
EXAMPLE = (
    "void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int Hkv, "
    "int Nq, int Nk, int D, float scale)"
)
DIMENSIONS = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: a tensor with its element type and dimensions, a size, a scalar, a stream."""

    name: str
    kind: str  # tensor, size, scalar, stream
    means: str  # the tensor's or the dimension's name
    dtype: str = ""
    dims: tuple[str, ...] = ()
    output: bool = False
    torch: bool = False  # a torch::Tensor, which has its dimensions with it


@dataclass(frozen=True, slots=True)
class Launcher:
    """The function by its full name, as a caller behind the source writes it, what its parameters
    are, in their order, and the tensors that it returns."""

    name: str
    parameters: tuple[Parameter, ...]
    returned: tuple[Parameter, ...] = ()

    @property
    def tensors(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.kind == "tensor")

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        return (*(p for p in self.tensors if p.output), *self.returned)

    @property
    def sizes(self) -> frozenset[str]:
        """The dimensions that it is told."""
        told = {d for p in self.parameters if p.torch for d in p.dims}
        return frozenset({p.means for p in self.parameters if p.kind == "size"} | told)


def read_launcher(
    source: str, path: str, name: str, shapes: Mapping[str, str], dtype: str,
    scalars: Collection[str] = (), types: Mapping[str, str] = {}, sizes: Collection[str] = (),
) -> Launcher:  # fmt: skip
    """The launcher `name` of a source.

    Args:
        shapes: dimensions of tensors by name, beside the usual ones.
        sizes: names of further whole numbers that have a value.
        dtype: of tensors that the launcher takes as `void*` or `torch::Tensor`.
        scalars: names of numbers that have a value.
        types: elements of tensors by name that are not of `dtype`, where C++ does not say them.

    Raises:
        InputError: there is no such function, or a parameter has a name that says nothing.
    """
    function, called = _one(source, path, name)
    known = _Known({**SHAPES, **shapes}, dtype, frozenset(scalars), types, frozenset(sizes),
                   {**_ELEMENTS, **_named_elements(source)})  # fmt: skip
    parameters: list[Parameter] = []
    unknown: list[_Unknown] = []
    for text, line in written_out(function, source):
        try:
            parameters.append(_parameter(text, Where(path, line), known))
        except _Unknown as one:
            unknown.append(one)
    if unknown:
        raise _refusal(unknown, known)
    result = function.child_by_field_name("type")
    returned = _returned((result.text or b"").decode() if result else "", known)
    return Launcher(called, tuple(parameters), returned)


def _one(source: str, path: str, name: str) -> tuple[Node, str]:
    """The definition of a launcher, and its name with the namespaces and classes that it is in.

    Raises:
        InputError: there is none, or several, or it cannot be called by that name.
    """
    found = defined(source, name)
    if len(found) != 1:
        macros = macros_of(source)
        others = [n for n in host_functions(source) if n not in macros]
        words = f"{path} has {'several functions' if found else 'no function'} named {name}"
        if listed := sorted({full for _, full in found} - {name}) or ([] if found else others):
            words += f"; it has {', '.join(listed[:8])}"
        raise InputError(
            words,
            fix=f"write one C++ function that launches the kernel, such as `{EXAMPLE}`, or name "
            "yours with --launcher; what a macro or a condition of the preprocessor makes of a "
            "name is not looked at",
        )
    ((function, called),) = found
    where = Where(path, function.start_point[0] + 1)
    parent = function.parent
    if parent is not None and parent.type == "template_declaration" and ">" not in called:
        raise InputError(f"{called} is a template", where=where,
                         fix=f'say its arguments: --launcher "{called}<...>"')  # fmt: skip
    before = (function.text or b"").split(b"(")[0].split()
    if parent is not None and parent.type == "field_declaration_list" and b"static" not in before:
        raise InputError(f"{called} needs an object to be called for", where=where,
                         fix="make it static, or write a function that calls it")  # fmt: skip
    return function, called


@dataclass(slots=True)
class _Unknown(Exception):
    """A parameter whose name does not say what it is: a size, a tensor or another number."""

    name: str
    kind: str
    where: Where


def _refusal(unknown: Sequence[_Unknown], known: _Known) -> InputError:
    """One message about all of them, with words that can be typed as they stand."""
    kinds: dict[str, tuple[str, Callable[[list[str]], str]]] = {
        "size": (f"a whole number is one of {', '.join(DIMENSIONS)}, N",
                 lambda names: f'--sizes "{" ".join(f"{n}=1" for n in names)}" keeps the usual '
                 "cases with that value; rename what is a dimension"),
        "tensor": (f"a tensor is one of {', '.join(known.shapes)}",
                   lambda names: " ".join(f'--tensor {n}="B Hq Nq"' for n in names) +
                   " gives its shape"),
        "number": ("a float is `scale`", lambda names: f"set {', '.join(names)} in the launcher"),
    }  # fmt: skip
    said: list[str] = []
    fixes: list[str] = []
    for kind, (words, fix) in kinds.items():
        if names := list(dict.fromkeys(one.name for one in unknown if one.kind == kind)):
            said.append(f"what {'is' if len(names) == 1 else 'are'} {', '.join(names)}? {words}")
            fixes.append(fix(names))
    return InputError("; ".join(said), where=unknown[0].where, fix="; ".join(fixes))


@dataclass(frozen=True, slots=True)
class _Known:
    """What names mean: dimensions of tensors, the element type where C++ has none, scalars."""

    shapes: Mapping[str, str]
    dtype: str
    scalars: frozenset[str]
    types: Mapping[str, str]
    sizes: frozenset[str]
    elements: Mapping[str, str]


def _named_elements(source: str) -> dict[str, str]:
    """What the source calls element types by names of its own: `typedef float fp32;`, `using`."""
    said = [(m[1], m[2]) for m in re.finditer(r"\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;", source)]
    said += [(m[2], m[1]) for m in re.finditer(r"\busing\s+(\w+)\s*=\s*([\w:\s]+?)\s*;", source)]
    bare = ((type.split("::")[-1].strip(), name) for type, name in said)
    return {name: _ELEMENTS[type] for type, name in bare if type in _ELEMENTS}


def _returned(type: str, known: _Known) -> tuple[Parameter, ...]:
    """The outputs that a function of this type returns: `o`, then `lse`."""
    if not re.search(r"\bTensor\b", type):
        return ()
    count = 1 if re.fullmatch(r"(\w+::)*Tensor", type) else len(OUTPUTS)
    return tuple(
        Parameter(n, "tensor", n, "", tuple(known.shapes[n].split()), True, True)
        for n in OUTPUTS[:count]
    )


def _parameter(text: str, where: Where, known: _Known) -> Parameter:
    plain = re.sub(r"\b(const|__restrict__|restrict|__restrict|struct)\b", " ", text.split("=")[0])
    m = re.fullmatch(r"\s*([\w:\s]+?)\s*(\**)\s*&?\s*\b(\w+)\s*", plain)
    if m is None:
        bare = re.fullmatch(r"\s*[\w:]+[\s*&]*", plain)
        raise InputError(f"a parameter {'without a name' if bare else 'that is not plain'}: {text}",
                         where=where, fix="take pointers, whole numbers, floats and a stream, each "
                         "with its name; macros of other files are not replaced")  # fmt: skip
    type, stars, name = m[1].split("::")[-1].strip(), m[2], m[3]
    if type == "cudaStream_t":
        return Parameter(name, "stream", "stream")
    if stars or type == "Tensor":
        return _tensor(name, type, where, known)
    if name in known.scalars or name.lower() in ("scale", "softmax_scale", "sm_scale"):
        return Parameter(name, "scalar", name if name in known.scalars else "scale")
    if type in ("float", "double"):
        raise _Unknown(name, "number", where)
    words = (*" ".join(known.shapes.values()).split(), *DIMENSIONS)
    lower, own = name.lower(), {n.lower(): n for n in known.sizes}
    means = {d.lower(): d for d in words}.get(lower) or OTHER_SIZES.get(lower.replace("_", ""))
    means = means or own.get(lower)
    if means is None and not _WHOLE.fullmatch(type):
        raise InputError(f"a parameter of a type that is not known: {text}", where=where,
                         fix="take pointers, whole numbers, floats and a stream")  # fmt: skip
    if means is None:
        raise _Unknown(name, "size", where)
    return Parameter(name, "size", means)


def _tensor(name: str, type: str, where: Where, known: _Known) -> Parameter:
    plain = re.sub(r"^(d_|g_)|(_ptr|_d)$", "", name.lower())
    names = {n.lower(): n for n in known.shapes}
    means = names.get(plain) or OTHER_NAMES.get(plain)
    if means is None:
        raise _Unknown(name, "tensor", where)
    torch = type == "Tensor"
    if not torch and type not in known.elements:
        raise InputError(f"elements of type {type} are not known", where=where,
                         fix=f"write it out: {', '.join(filter(None, _ELEMENTS))}")  # fmt: skip
    said = "" if torch else known.elements[type]
    element = said or known.types.get(means, known.dtype)
    return Parameter(name, "tensor", means, element, tuple(known.shapes[means].split()),
                     means in OUTPUTS, torch)  # fmt: skip
