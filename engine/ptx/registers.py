"""Registers of all threads of a batch, in two worlds.

Every register is an array [2, threads]. The two worlds execute the same instructions and differ
only where PTX leaves a value undefined: what was never written, and what an asynchronous operation
has not brought yet. A value that differs between them where it decides something (an address, a
branch, an output) is therefore a use of an undefined value, whichever way it took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.ptx.lanes import Lanes
from engine.ptx.syntax import (
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    width,
)

Values = np.ndarray[Any, Any]
Fetch = Callable[[Lanes], Values]
Store = Callable[[Lanes, Values], None]

# What each two undefined bytes hold in each world. No bit is the same, signed numbers are on either
# side of all small ones, and one is NaN in every format: a weight of 0 does not hide it.
UNDEFINED = tuple(np.frombuffer(word, np.uint8) for word in (b"\x00\x80", b"\xff\x7f"))

_KINDS = {"u": "u", "b": "u", "s": "i", "f": "f"}


def dtype(type: str) -> np.dtype[Any]:
    """The numpy type that holds a PTX type; packed and 16-bit floats are held as their bits."""
    if type == "pred":
        return np.dtype(np.bool_)
    if type in ("f16", "bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2"):
        return np.dtype(f"u{width(type)}")
    return np.dtype(f"{_KINDS[type[0]]}{width(type)}")


def undefined(shape: tuple[int, ...], type: np.dtype[Any]) -> Values:
    """An array [2, ...] of undefined values."""
    out = np.empty((2, *shape), type)
    if type == np.bool_:
        out[0], out[1] = False, True
        return out
    for world in (0, 1):
        out[world].fill(unknown(world, type))
    return out


def unknown(world: int, type: np.dtype[Any]) -> Any:
    """What an undefined number of a type is in a world."""
    return np.resize(UNDEFINED[world][-type.itemsize :], type.itemsize).view(type)[0]


class Registers:
    """The registers of a kernel, by name; `special` gives what only the hardware writes."""

    def __init__(
        self, types: Mapping[str, str], threads: int, special: Mapping[str, Values]
    ) -> None:
        self.types, self.threads, self.special = types, threads, special
        self.arrays: dict[str, Values] = {}
        self.views: dict[tuple[str, str], Values] = {}

    def array(self, name: str) -> Values:
        """The bits of a register, as an unsigned integer of its declared width (or a boolean)."""
        found = self.arrays.get(name)
        if found is None:
            type = self.types[name]
            shape = (self.threads, 2) if type == "b128" else (self.threads,)
            held = np.dtype(np.bool_ if type == "pred" else f"u{min(width(type), 8)}")
            found = self.arrays[name] = undefined(shape, held)
        return found

    def view(self, name: str, type: str) -> Values:
        """A register as a type of its own width. Writing to the view writes the register."""
        key = (name, type)
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = self.array(name).view(dtype(type))
        return found

    def width(self, name: str) -> int:
        return width(self.types[name])

    def constant(self, value: Any, type: str) -> Values:
        """One value for all threads, as an array that takes the place of a register's."""
        held = dtype(type)
        if held == np.bool_:
            one = np.array(bool(value))
        elif held.kind == "f":
            one = np.array(value).astype(held)
        else:
            bits = int(value) & ((1 << 8 * held.itemsize) - 1)
            one = np.array(bits, f"u{held.itemsize}").view(held)
        return np.broadcast_to(one, (2, self.threads))

    def fetch(self, operand: Operand, type: str, place: Instruction) -> Fetch:
        """How to read an operand as a type: [2, lanes].

        A wider register gives its low bytes, a narrower one is extended (PTX ISA, "Operand Size
        Exceeding Instruction-Type Size").
        """
        array = self.source(operand, type, place)
        if isinstance(operand, Register) and operand.negated:
            negative = np.negative if array.dtype.kind == "f" else np.invert
            return lambda lanes: negative(lanes.of(array))
        if isinstance(operand, Immediate):
            return lambda lanes: array[:, : len(lanes)]  # one value, wherever they are
        return lambda lanes: lanes.of(array)

    def source(self, operand: Operand, type: str, place: Instruction) -> Values:
        match operand:
            case Register(name) if self.types[name] == "pred" or type == "pred":
                if self.types[name] != type:
                    raise place.refused("a predicate where a number is needed, or the other")
                return self.array(name)
            case Register(name) if self.width(name) == width(type):
                return self.view(name, type)
            case Register(name) if self.width(name) > width(type):
                low = self.array(name).view(np.dtype(f"u{width(type)}"))
                return low[:, :: self.width(name) // width(type)].view(dtype(type))
            case Immediate(value, 4) if width(type) == 4:
                return self.constant(value, "b32").view(dtype(type))
            case Immediate(value, 8) if width(type) == 8:
                return self.constant(value, "b64").view(dtype(type))
            case Immediate(value, 0):
                return self.constant(value, type)
            case Special(name):
                return self.hardware(name, type, place)
            case Symbol(name):
                raise place.refused(f"{name} is no value here")
        raise place.refused(f"{operand} cannot be read as .{type}")

    def hardware(self, name: str, type: str, place: Instruction) -> Values:
        if name not in self.special:
            raise place.refused(f"{name} is not known here")
        return self.special[name].astype(dtype("b" + type[1:])).view(dtype(type))

    def store(self, operand: Operand, type: str, place: Instruction) -> Store:
        """How to write a result of a type: zero- or sign-extended in a wider register."""
        if isinstance(operand, Sink):
            return lambda lanes, values: None
        if not isinstance(operand, Register):
            raise place.refused(f"{operand} cannot be written")
        declared = self.types[operand.name]
        if (declared == "pred") != (type == "pred"):
            raise place.refused("a predicate where a number is needed, or the other")
        if type == "pred" or width(declared) == width(type):
            array = self.array(operand.name) if type == "pred" else self.view(operand.name, type)

            def same(lanes: Lanes, values: Values) -> None:
                lanes.put(array, values)

            return same
        if width(declared) < width(type):
            raise place.refused(f"{operand.name} is narrower than .{type}")
        signed = type[0] == "s"
        wide = self.view(operand.name, ("s" if signed else "u") + str(8 * width(declared)))
        held = dtype(type) if signed else dtype("b" + str(8 * width(type)))

        def extended(lanes: Lanes, values: Values) -> None:
            lanes.put(wide, np.asarray(values, dtype(type)).view(held))

        return extended
