"""New statements and functions as C++ in the kernel's own idiom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.cuir.nodes import (
    Assign,
    Binary,
    Do,
    Expr,
    For,
    Function,
    If,
    Name,
    Num,
    Opaque,
    Path,
    Return,
    Stmt,
    Unary,
    next_of,
)
from engine.cuir.static.conversions import NUMBERS
from engine.errors import LowerError
from engine.lower.patches.source_patch import fit
from engine.lower.spelling.cpp_kinds import ARGS, UNKNOWN, Kinds
from engine.lower.spelling.emit import C_TYPES, Emitter
from engine.lower.spelling.forms import Form

FIELD_TYPES = {"tensor": "TensorArg", "i32": "int", "i64": "long long", "f32": "float"}
MAPS = {"tensor_map": "TensorMap", "row_map": "RowMap"}
_RESULTS = {**C_TYPES, "status": "cudaError_t", "none": "void", UNKNOWN: "void"}

# The text of a block: given its path, its statements and the indentation of its lines.
BlockText = Callable[[Path, tuple[Stmt, ...], str], str]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the statements of one function; nested blocks come from `block`."""

    emitter: Emitter
    forms: Mapping[Path, Form]
    unit: str
    block: BlockText

    def stmt(self, stmt: Stmt, path: Path, indent: str) -> str:
        """The statement's lines; the first has no indentation, and no line ending follows."""
        match stmt:
            case For(var, start, stop, step, body):
                head = self.for_header(var, start, stop, step)
                inner = self.block((*path, "body"), body, indent + self.unit)
                return f"{fit(head, indent, self.unit)} {{{inner}\n{indent}}}"
            case If(cond):
                return self.if_(stmt, path, indent, f"if ({self.emitter.text(cond)})")
        return fit(self.leaf(stmt, path), indent, self.unit)

    def leaf(self, stmt: Stmt, path: Path) -> str:
        match stmt:
            case Assign(target, value):
                return f"{self.assigned(target, path)} = {self.emitter.text(value)};"
            case Do(call):
                return f"{self.emitter.text(call)};"
            case Return(value):
                return "return;" if value is None else f"return {self.emitter.text(value)};"
            case Opaque(text):
                return text
        raise LowerError(f"{type(stmt).__name__} is no plain statement")

    def if_(self, stmt: If, path: Path, indent: str, head: str) -> str:
        then = self.block((*path, "then"), stmt.then, indent + self.unit)
        text = f"{fit(head, indent, self.unit)} {{{then}\n{indent}}}"
        return text + self.else_(stmt, path, indent)

    def else_(self, stmt: If, path: Path, indent: str) -> str:
        """` else {...}`, ` else if ...`, or nothing."""
        if not stmt.other:
            return ""
        inner = self.block((*path, "other"), stmt.other, indent + self.unit)
        if len(stmt.other) == 1 and isinstance(stmt.other[0], If):
            nested = stmt.other[0]
            head = f"if ({self.emitter.text(nested.cond)})"
            return f" else {self.if_(nested, (*path, 'other', 0), indent, head)}"
        return f" else {{{inner}\n{indent}}}"

    # --- pieces ------------------------------------------------------------------------------

    def assigned(self, target: str, path: Path) -> str:
        """The left side: a declaration, or the name."""
        form = self.forms[path]
        name = self.emitter.names.of(target)
        return f"{self.type(target, form)} {name}" if form.declares else name

    def type(self, target: str, form: Form) -> str:
        """`const auto`, `const int`, `float`, `constexpr int`..."""
        kind = self.emitter.kinds.locals.get(target, UNKNOWN)
        word = C_TYPES.get(kind, "auto")
        if form.constant and not form.reassigned:
            return f"constexpr {word}"
        return word if form.reassigned else f"const {word}"

    def for_header(self, var: str, start: Expr, stop: Expr, step: Expr) -> str:
        name = self.emitter.names.of(var)
        first = self.emitter.text(start)
        condition, update = self.condition(name, stop, step), self.update(name, step)
        return f"for (int {name} = {first}; {condition}; {update})"

    def condition(self, name: str, stop: Expr, step: Expr) -> str:
        if not downwards(step):
            return f"{name} < {self.emitter.text(stop, _AFTER_ORDER)}"
        if isinstance(stop, Num) and isinstance(stop.value, int):
            return f"{name} >= {stop.value + 1}"
        return f"{name} > {self.emitter.text(stop, _AFTER_ORDER)}"

    def update(self, name: str, step: Expr) -> str:
        follows = next_of(step)
        if follows is not None:
            return f"{name} = {self.emitter.names.of(follows)}"
        match step:
            case Num(1):
                return f"++{name}"
            case Num(-1):
                return f"--{name}"
            case Num(int() as value) if value < 0:
                return f"{name} -= {-value}"
            case Unary("-", inner):
                return f"{name} -= {self.emitter.text(inner)}"
        return f"{name} += {self.emitter.text(step)}"


_AFTER_ORDER = 9  # an operand of `<`: anything from shifts on, as the emitter counts


def downwards(step: Expr) -> bool:
    """Whether a loop with this step counts down, as C++ must know from its text."""
    if isinstance(step, Unary):
        return step.op == "-"
    return isinstance(step, Num) and isinstance(step.value, int) and step.value < 0


def compound(stmt: Assign) -> tuple[str, Expr] | None:
    """`x = x + e` as (`+`, e)."""
    match stmt.value:
        case Binary("+" | "-" | "*" as op, Name(id), right) if id == stmt.target:
            return op, right
    return None


# --- functions -------------------------------------------------------------------------------


def const_text(name: str, kinds: Kinds) -> str:
    """A template parameter."""
    return f"typename {name}" if kinds.locals.get(name) == "type" else f"int {name}"


def param_text(function: Function, name: str, kind: str | None) -> str:
    """A parameter of a function of this kind."""
    if name == ARGS:
        whole = "const __grid_constant__ Args args"
        return whole if function.kind == "kernel" else "const Args& args"
    if kind in MAPS:
        whole = f"const __grid_constant__ {MAPS[kind]} {name}"
        return whole if function.kind == "kernel" else f"const {MAPS[kind]}& {name}"
    if kind is None:
        return f"int {name}"
    word = C_TYPES.get(kind)
    if word is None:
        raise LowerError(
            f"{function.name}: a parameter of type {kind} cannot be written in C++",
            fix=f"use one of {', '.join((*NUMBERS, *MAPS))}",
        )
    return f"{word} {name}"


def result_text(kind: str) -> str:
    """The C++ type of a function's result."""
    return _RESULTS.get(kind, "auto")


def header_text(function: Function, writer: Writer, kinds: Kinds) -> str:
    """From `template` to before the brace, over several lines."""
    lines: list[str] = []
    if function.consts:
        lines.append(f"template <{', '.join(const_text(c, kinds) for c in function.consts)}>")
    params = [
        param_text(function, writer.emitter.names.of(p.name), p.type) for p in function.params
    ]
    match function.kind:
        case "kernel":
            lead = f"__global__ void{bounds_text(function, writer)}"
        case "device":
            lead = f"__device__ {result_text(kinds.results.get(function.name, UNKNOWN))}"
        case _:
            lead = result_text(kinds.results.get(function.name, UNKNOWN))
            params.append(f"cudaStream_t {writer.emitter.stream}")
    name = writer.emitter.names.of(function.name)
    lines.append(fit(f"{lead} {name}({', '.join(params)})", "", writer.unit))
    return "\n".join(lines)


def bounds_text(function: Function, writer: Writer) -> str:
    """` __launch_bounds__(threads, min_blocks)`, or nothing."""
    options = dict(function.options)
    unknown = set(options) - {"threads", "min_blocks"}
    if unknown:
        raise LowerError(f"{function.name}: nothing in C++ says {', '.join(sorted(unknown))}=")
    if "threads" not in options:
        return ""
    shown = [options[key] for key in ("threads", "min_blocks") if key in options]
    return f" __launch_bounds__({', '.join(writer.emitter.text(e) for e in shown)})"
