"""PTX text to a `Module`: the subset that nvcc emits, inline assembly included.

Anything else is refused with its line: an unknown directive must not be passed over in silence.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace

from engine.errors import InputError
from engine.ptx.syntax import (
    WIDTHS,
    Address,
    Immediate,
    Instruction,
    Kernel,
    Location,
    Module,
    Operand,
    Pair,
    Parameter,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
    width,
)
from engine.ptx.text.contraction import contracted
from engine.ptx.text.inline import Body, inlined

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SPACE = re.compile(r"\s+")
_LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:\s*,\s*function_name\s+[^\n,]*?,?\s*inlined_at\s+(\d+)\s+(\d+)"
    r"\s+\d+)?[^\n]*"
)
_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"[^\n]*')
_LABEL = re.compile(r"([$\w]+)\s*:(?!:)")
_STATEMENT = re.compile(r"[^;{}]*(?:\{[^{}]*\}[^;{}]*)*;")
_HEADER = re.compile(r"(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$.]+)\s*\(([^)]*)\)([^{;]*)\{")
_SIZES = re.compile(r"\.(reqntid|maxntid|reqnctapercluster)\s+(\d+(?:\s*,\s*\d+)*)")
_FUNCTION = re.compile(
    r"(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.func\b\s*(?:\.noreturn\s*)?(?:\(([^)]*)\)\s*)?"
    r"([\w$.]+)\s*(?:\(([^)]*)\))?[^{;]*[;{]"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(?:\.ptr\s*(?:\.\w+\s*)*(?:\.align\s+\d+)?\s*)?"
    r"([\w$]+)(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    r"(?:\.extern\s+|\.visible\s+|\.weak\s+)*\.(shared|local|global|const|param)\s+"
    r"(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?\s*(?:=\s*(.*))?$",
    re.S,
)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)$", re.S)
_RANGE = re.compile(r"([%\w$]+)<(\d+)>$")
_INSTRUCTION = re.compile(
    r"(?:@(!?)([%\w$]+)\s+)?([a-z][a-z0-9_]*)((?:\s*\.[\w:]+)*)\s*(.*)$", re.S
)
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_SPECIAL = re.compile(r"%(?:n?tid|n?ctaid|nctaid|cluster_n?ctaid|cluster_ctarank|cluster_nctarank|"
                      r"n?clusterid|is_explicit_cluster|laneid|warpid|nwarpid|smid|nsmid|clock|"
                      r"clock64|clock_hi|globaltimer|globaltimer_lo|globaltimer_hi|lanemask_\w+|dynamic_smem_size|total_smem_size|"
                      r"reserved_smem_offset_\w+|envreg\d+)"
                      r"(?:\.[xyz])?$")  # fmt: skip
_HEADERS = (".version", ".address_size", ".target", ".pragma", ".section", ".noreturn")


def parse_module(text: str, name: str = "PTX") -> Module:
    """Reads a whole PTX module.

    Raises:
        InputError: at the first statement that is not of the subset, with its line.
    """
    return _Parser(text, name).module()


@dataclass(slots=True)
class _Scope:
    """Names that a block `{ ... }` declares, each under a name of its own in the kernel."""

    renamed: dict[str, str] = field(default_factory=dict)


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        # Comments become blanks, so that places stay what they are.
        self.text = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        self.name = name
        self.starts = [0, *(m.end() for m in re.finditer("\n", self.text))]
        self.files = {int(m[1]): _path(m[2]) for m in _FILE.finditer(self.text)}
        self.blocks = 0
        self.functions: dict[str, tuple[re.Match[str], int]] = {}  # with where their bodies end
        self.bodies: dict[str, Body] = {}  # of those that are called

    def line(self, at: int) -> int:
        return bisect_right(self.starts, at)

    def error(self, at: int, words: str) -> InputError:
        return InputError(f"{self.name}:{self.line(at)}: {words}")

    def module(self) -> Module:
        text, at = self.text, 0
        kernels: list[tuple[re.Match[str], int]] = []
        variables: list[Variable] = []
        target = re.search(r"\.target\s+(\w+)", text)
        while at < len(text):
            if (m := _SPACE.match(text, at)) or (m := _FILE.match(text, at)):
                at = m.end()
            elif m := _HEADER.match(text, at):
                at = self.close(m.end())
                kernels.append((m, at))
            elif m := _FUNCTION.match(text, at):
                at = m.end()
                if m[0].endswith("{"):
                    at = self.close(at)
                    self.functions[m[2]] = m, at
            elif text.startswith(_HEADERS, at):
                at = self.header(at)
            elif m := _STATEMENT.match(text, at):
                variables.append(self.variable(m[0][:-1].strip(), at))
                at = m.end()
            else:
                raise self.error(at, f"not PTX that nvcc writes: {text[at : at + 40].strip()!r}")
        made = {m[1]: self.kernel(m, end) for m, end in kernels}
        return Module(target[1] if target else "", made, tuple(variables))

    def header(self, at: int) -> int:
        if self.text.startswith(".section", at):
            brace = self.text.index("{", at)
            return self.close(brace + 1)
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end

    def close(self, at: int) -> int:
        """The place after the brace that closes the one before `at`."""
        depth = 1
        for m in re.compile(r"[{}]").finditer(self.text, at):
            depth += 1 if m[0] == "{" else -1
            if not depth:
                return m.end()
        raise self.error(at, "a brace is never closed")

    def variable(self, text: str, at: int) -> Variable:
        m = _VARIABLE.match(text)
        if m is None:
            raise self.error(at, f"a directive that is not known: {text[:60]!r}")
        space, align, type, name, count, values = m.groups()
        if type not in WIDTHS:
            raise self.error(at, f"a type that is not known: .{type}")
        size = width(type) * (int(count) if count else 0 if count == "" else 1)
        initial = b""
        if values is not None:
            items = [self.immediate(v, at).value for v in values.strip(" {}\n\t").split(",")]
            initial = b"".join(
                (v & (1 << 8 * width(type)) - 1).to_bytes(width(type), "little") for v in items
            )
            initial = initial.ljust(size, b"\0")
        elif space in ("global", "const"):
            initial = bytes(size)
        return Variable(name, space, int(align or width(type)), size, initial)

    def immediate(self, text: str, at: int) -> Immediate:
        text = text.strip()
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
            return Immediate(int(text[2:], 16), 4)
        if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
            return Immediate(int(text[2:], 16), 8)
        if _INTEGER.match(text):
            digits = text.rstrip("U")
            octal = re.fullmatch(r"[-+]?0[0-7]+", digits)
            return Immediate(int(digits, 8 if octal else 0))
        if re.fullmatch(r"[-+]?\d+\.\d*", text) and float(text) == 0:
            return Immediate(0, 4)
        raise self.error(at, f"a constant that is not known: {text!r}")

    def kernel(self, header: re.Match[str], end: int) -> Kernel:
        body = inlined(_Body(self).read(header.end(), end - 1), self.function)
        sizes = {name: math.prod(map(int, numbers.split(",")))
                 for name, numbers in _SIZES.findall(header[3])}  # fmt: skip
        return Kernel(
            header[1],
            self.parameters(header[2], header.start(2)),
            body.registers,
            body.variables,
            contracted(body.code, body.labels),
            body.labels,
            body.tables,
            sizes.get("reqntid", sizes.get("maxntid", 0)),
            sizes.get("reqnctapercluster", 1),
        )

    def function(self, name: str) -> Body | None:
        """The body of one of the module's own functions, read when it is called first."""
        if name in self.functions and name not in self.bodies:
            m, end = self.functions[name]
            formal = [p.name for k in (1, 3) for p in self.parameters(m[k] or "", m.start())]
            body = _Body(self).read(m.end(), end - 1)
            self.bodies[name] = replace(body, formal=tuple(formal))
        return self.bodies.get(name)

    def parameters(self, text: str, at: int) -> tuple[Parameter, ...]:
        out: list[Parameter] = []
        end = 0
        for part in filter(str.strip, text.split(",")):
            m = _PARAMETER.search(part)
            if m is None or m[2] not in WIDTHS:
                raise self.error(at, f"a parameter that is not known: {part.strip()!r}")
            size = width(m[2]) * int(m[4] or 1)
            align = int(m[1] or width(m[2]))
            end = -(-end // align) * align
            out.append(Parameter(m[3], end, size))
            end += size
        return tuple(out)


class _Body:
    """The statements of one kernel or function."""

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.scopes: list[_Scope] = []
        self.places: dict[tuple[int, int], Location] = {}
        self.source: Location | None = None
        self.table = ""

    def read(self, at: int, end: int) -> Body:
        text = self.parser.text
        while at < end:
            if m := _SPACE.match(text, at):
                pass
            elif m := _LOC.match(text, at):
                self.source = self.location(m)
            elif m := _LABEL.match(text, at, end):
                self.table = name = self.local(m[1])
                self.labels[name] = len(self.code)
            elif text[at] == "{":
                self.scopes.append(self.scope(at))
                at += 1
                continue
            elif text[at] == "}":
                self.scopes.pop()
                at += 1
                continue
            elif m := _STATEMENT.match(text, at, end):
                self.statement(m[0][:-1].strip(), at)
            else:
                raise self.parser.error(at, f"not a statement: {text[at : at + 40].strip()!r}")
            at = m.end()
        return Body(self.registers, tuple(self.variables), tuple(self.code), self.labels,
                    self.tables)  # fmt: skip

    def location(self, m: re.Match[str]) -> Location | None:
        """A `.loc`; what it was inlined at was told by the `.loc` of that place before."""
        file, line = int(m[1]), int(m[2])
        if not line:
            return None
        outer = None
        if m[3] is not None:
            key = (int(m[3]), int(m[4]))
            outer = self.places.get(key) or Location(self.file(key[0]), key[1])
        place = Location(self.file(file), line, outer)
        self.places[file, line] = place
        return place

    def file(self, number: int) -> str:
        return self.parser.files.get(number, "?")

    def scope(self, at: int) -> _Scope:
        """A block: registers, variables and labels that it declares get names of their own."""
        parser = self.parser
        parser.blocks += 1
        inner = parser.text[at + 1 : parser.close(at + 1) - 1]
        names: list[str] = []
        for m in re.finditer(r"\.reg\s*\.\w+\s+([^;]*);", inner):
            names += [n.strip() for n in m[1].split(",") if not _RANGE.match(n.strip())]
        names += re.findall(r"\.(?:param|local|shared)\s+[^;]*?([\w$]+)(?:\[\d*\])?\s*;", inner)
        names += re.findall(r"(?:^|[\n;{}])\s*([\w$]+)\s*:(?!:)", inner)
        return _Scope({name: f"{name}#{parser.blocks}" for name in names})

    def local(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope.renamed:
                return scope.renamed[name]
        return name

    def statement(self, text: str, at: int) -> None:
        if not text or text.startswith(".pragma"):
            return
        if m := _REGISTERS.match(text):
            for name in (n.strip() for n in m[2].split(",")):
                if many := _RANGE.match(name):
                    self.registers |= {f"{many[1]}{k}": m[1] for k in range(int(many[2]))}
                else:
                    self.registers[self.local(name)] = m[1]
        elif text.startswith(".branchtargets"):
            targets = text.removeprefix(".branchtargets").split(",")
            self.tables[self.table] = tuple(self.local(t.strip()) for t in targets)
        elif text.startswith("."):
            variable = self.parser.variable(text, at)
            self.variables.append(
                Variable(self.local(variable.name), variable.space, variable.align, variable.size)
            )
        else:
            self.code.append(self.instruction(text, at))

    def instruction(self, text: str, at: int) -> Instruction:
        m = _INSTRUCTION.match(text)
        if m is None:
            raise self.parser.error(at, f"not an instruction: {text[:60]!r}")
        guard = Register(self.local(m[2]), m[1] == "!") if m[2] else None
        modifiers = tuple(p for p in re.sub(r"\s", "", m[4]).split(".") if p)
        operands = tuple(self.operand(part, at) for part in _split(m[5]))
        line = self.parser.line(at + len(text) - len(text.lstrip()))
        return Instruction(m[3], modifiers, operands, guard, line, self.source)

    def operand(self, text: str, at: int) -> Operand:
        text = text.strip()
        if text == "_":
            return Sink()
        if text.startswith(("{", "(")):
            return Vector(tuple(self.operand(p, at) for p in _split(text[1:-1])))
        if text.startswith("["):
            return self.address(text[1:-1], at)
        if "|" in text:
            first, second = text.split("|")
            return Pair(self.operand(first, at), self.operand(second, at))
        if text.startswith("!"):
            return Register(self.local(text[1:].strip()), True)
        if _SPECIAL.match(text):
            return Special(text)
        if text == "WARP_SZ":
            return Immediate(32)
        name = self.local(text)
        if name in self.registers:
            return Register(name)
        if re.fullmatch(r"[%$A-Za-z_][\w$#]*", text):
            if text.startswith("%"):
                raise self.parser.error(at, f"a register that is not declared: {text}")
            return Symbol(name)
        return self.parser.immediate(text, at)

    def address(self, text: str, at: int) -> Address:
        parts = _split(text)
        base, sign, offset = re.fullmatch(
            r"([^+]+?)(?:([+])\s*(-?\w+))?", parts[0].strip()
        ).groups()  # type: ignore[union-attr]
        operand = self.operand(base, at)
        if not isinstance(operand, Register | Symbol | Immediate):
            raise self.parser.error(at, f"an address that is not known: [{text}]")
        coordinates: tuple[Operand, ...] = ()
        if len(parts) > 1:
            vector = self.operand(parts[1], at)
            coordinates = vector.items if isinstance(vector, Vector) else (vector,)
        return Address(operand, int(offset, 0) if sign else 0, coordinates)


def _path(text: str) -> str:
    """A file's name as nvcc writes it: bytes beyond ASCII are octal numbers."""
    plain = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)
    plain = re.sub(r'\\(["\\])', r"\1", plain)
    return plain.encode("latin-1").decode("utf-8", "replace") if plain != text else text


def _split(text: str) -> list[str]:
    """Operands between commas that stand in no bracket."""
    out: list[str] = []
    depth = start = 0
    for k, c in enumerate(text):
        if c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
        elif c == "," and not depth:
            out.append(text[start:k])
            start = k + 1
    if text[start:].strip():
        out.append(text[start:])
    return out
