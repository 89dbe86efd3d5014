"""The parts of a PTX module, as `parser` reads them (PTX ISA, "Syntax" and "Directives")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.errors import InputError

WIDTHS = {"pred": 1, **{f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)}}
WIDTHS |= {"b128": 16, "bf16": 2, "f16x2": 4, "bf16x2": 4, "e4m3x2": 2, "e5m2x2": 2}


def width(type: str) -> int:
    """Bytes of a value of a fundamental type (PTX ISA, "Fundamental Types")."""
    return WIDTHS[type]


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source, and where that was inlined, innermost first."""

    file: str
    line: int
    inlined_at: Location | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def chain(self) -> tuple[Location, ...]:
        """This place, then each place that it was inlined at."""
        return (self, *(self.inlined_at.chain() if self.inlined_at else ()))

    def within(self, folder: str) -> Location:
        """The innermost place in a file below `folder`; this one, where none is."""
        inside = folder.rstrip("/") + "/"
        return next((at for at in self.chain() if at.file.startswith(inside)), self)


@dataclass(frozen=True, slots=True)
class Register:
    """A register, `%r7`. `negated`: a predicate that is read as `!%p1`, a float as `-%f1`."""

    name: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Special:
    """A register that only the hardware writes: `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. Floats are kept as the bits of the `width` bytes that their text fixes."""

    value: int
    float_width: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of a variable, a function or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a result that nobody takes."""


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b}`: registers that one instruction reads or writes together."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; for a tensor copy `[base, {coordinates}]`."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two results of one instruction."""

    first: Operand
    second: Operand


Operand = Register | Special | Immediate | Symbol | Sink | Vector | Address | Pair


def registers(operands: Sequence[Operand], addresses: bool = False) -> Iterator[str]:
    """The registers among operands; those of addresses where asked for."""
    for operand in operands:
        match operand:
            case Register(name):
                yield name
            case Vector(items):
                yield from registers(items, addresses)
            case Pair(first, second):
                yield from registers((first, second), addresses)
            case Address(base, _, coordinates) if addresses:
                yield from registers((base, *coordinates))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `@guard name.modifiers operands`, and where it stands.

    `line` is the line of the PTX text, `source` the user's line where -lineinfo told it.
    """

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    line: int
    source: Location | None

    @property
    def opcode(self) -> str:
        return ".".join((self.name, *self.modifiers))

    @property
    def type(self) -> str:
        """The last modifier that is a type: what most instructions work on."""
        return next((m for m in reversed(self.modifiers) if m in WIDTHS), "")

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    def refused(self, words: str) -> InputError:
        """A refusal at the source line, and at each line that this was inlined at."""
        chain = self.source.chain() if self.source else ()
        where = " in ".join(map(str, chain))
        return InputError(f"{where}{': ' if where else ''}{self}: {words}")

    def __str__(self) -> str:
        return f"PTX line {self.line}: {self.opcode}"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space. `size` 0: extern, sized by the launch. `initial`: its bytes."""

    name: str
    space: str
    align: int
    size: int
    initial: bytes = b""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter and where it lies in the parameter block, in bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """An entry: its parameters, registers by name with their types, variables, and code.

    `labels` gives the index into `code` that a label stands before; `tables` the branch targets of
    `brx.idx`, `cluster` how many blocks of a cluster the kernel asks for itself.
    """

    name: str
    parameters: tuple[Parameter, ...]
    registers: Mapping[str, str]
    variables: tuple[Variable, ...]
    code: tuple[Instruction, ...]
    labels: Mapping[str, int]
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: int = 0
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class Module:
    """All that one PTX text holds."""

    target: str
    kernels: Mapping[str, Kernel]
    variables: tuple[Variable, ...]
