"""The C ABI of a kernel's argument struct, told from the module's fields.

A tensor is a pointer and four strides in elements, outermost dimension first; numbers are plain, in
natural alignment (C++17, x86-64 and AArch64: both lay it out so). From the same fields come the
struct's C text, its ctypes twin, and the assertions that a translation unit compiles, so that a
disagreement cannot be built.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cuir.nodes import Field

MAX_RANK = 4
TENSOR_C = "struct TensorArg { void* data; long long stride[4]; };"


class TensorArg(ctypes.Structure):
    """A tensor of the C ABI: `stride` counts elements, outermost dimension first."""

    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_int64 * MAX_RANK)]


CTYPES: Mapping[str, Any] = {
    "tensor": TensorArg,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
}
_C_TYPES = {"tensor": "TensorArg", "i32": "int", "i64": "long long", "f32": "float"}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one field lies: byte offset and size."""

    name: str
    type: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole struct."""

    slots: tuple[Slot, ...]
    size: int
    alignment: int


def layout(fields: Sequence[Field]) -> Layout:
    """Offsets and size in natural alignment. An empty struct has size 1, as in C++."""
    offset, widest = 0, 1
    slots: list[Slot] = []
    for field in fields:
        kind = CTYPES[field.type]
        size, align = ctypes.sizeof(kind), ctypes.alignment(kind)
        offset = -(-offset // align) * align
        slots.append(Slot(field.name, field.type, offset, size))
        offset += size
        widest = max(widest, align)
    return Layout(tuple(slots), max(-(-offset // widest) * widest, 1), widest)


def args_class(fields: Sequence[Field], name: str = "Args") -> type[ctypes.Structure]:
    """The ctypes twin of the struct: one attribute per field."""
    return type(name, (ctypes.Structure,), {"_fields_": [(f.name, CTYPES[f.type]) for f in fields]})


def fill(cls: type[ctypes.Structure], values: Mapping[str, Any]) -> ctypes.Structure:
    """An instance with every field set.

    A tensor's value is `(address, strides)`, with at most four strides in elements; a number's is
    the number. Raises `ValueError` when a field is missing, unknown, or does not fit.
    """
    names = [item[0] for item in cls._fields_]
    if set(names) != set(values):
        missing = sorted(set(names) - set(values))
        unknown = sorted(set(values) - set(names))
        raise ValueError(f"{cls.__name__}: missing {missing}, unknown {unknown}")
    made = cls()
    for name, kind in ((item[0], item[1]) for item in cls._fields_):
        value = values[name]
        if kind is TensorArg:
            address, strides = value
            if len(strides) > MAX_RANK:
                raise ValueError(f"{name}: a tensor has at most {MAX_RANK} dimensions")
            held = [*strides, *[0] * (MAX_RANK - len(strides))]
            setattr(made, name, TensorArg(address or None, (ctypes.c_int64 * MAX_RANK)(*held)))
            continue
        if kind is not ctypes.c_float and getattr(kind(value), "value", None) != value:
            raise ValueError(f"{name}: {value} does not fit into {8 * ctypes.sizeof(kind)} bits")
        setattr(made, name, value)
    return made


def struct_text(fields: Sequence[Field], name: str = "Args") -> str:
    """The struct in C, one declaration per field."""
    lines = "".join(f"  {_C_TYPES[f.type]} {f.name};\n" for f in fields)
    return f"struct {name} {{\n{lines}}};\n"


def static_asserts(fields: Sequence[Field], name: str = "Args") -> str:
    """C++ lines that fail to compile when the struct is laid out otherwise; need <cstddef>."""
    whole = layout(fields)
    lines = [f'static_assert(sizeof({name}) == {whole.size}, "size of {name}");']
    lines += [
        f'static_assert(offsetof({name}, {slot.name}) == {slot.offset}, "offset of {slot.name}");'
        for slot in whole.slots
    ]
    return "\n".join(lines) + "\n"
