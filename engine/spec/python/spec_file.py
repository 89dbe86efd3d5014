"""Read a spec's file: its function, parameters and annotations, without running anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.cuir.functions import CASTS, CONSTANTS, FUNCTIONS
from engine.cuir.nodes import names_in
from engine.cuir.parser import parse_expr
from engine.errors import CuirError, InputError, SpecError, Where, advice, nearest
from engine.files import read_spec
from engine.scalar_algebra.kinds import INDEX_NAMES, SIZE_NAMES

EAGER, FLEX = "attention", "attention_mods"
SIZE_PARAMETERS = ("Nq", "Nk", "D", "Hq", "Hkv", "B")
OWN_NAMES = frozenset(("x", "s", "o", "o2", "d", "dd", "c", "c2", "c3", *INDEX_NAMES, *SIZE_NAMES))
"""What recipes mean by themselves: product, score, output, columns, places, sizes."""
_DTYPES = {
    "Float": "T", "Float16": "T", "BFloat16": "T", "Float32": "f32", "Float64": "f32",
    "Int": "i32", "Int32": "i32", "Int64": "i64", "Int16": "i32", "Int8": "i32", "UInt8": "i32",
    "Integer": "i32", "Bool": "bool", "Num": "T", "Shaped": "T", "Inexact": "T",
}  # fmt: skip
Scalar = int | float | bool | str | None
_RANGE = re.compile(r"[^#]*#\s*([^.#]+?)\s*\.\.\s*([^.#]+?)\s*")
EXAMPLE = 'q: Float[Tensor, "B Hq Nq D"]'
_ROLES = {"q": "q", "query": "q", "k": "k", "key": "k", "v": "v", "value": "v"}


@dataclass(frozen=True, slots=True)
class TensorParameter:
    """A tensor input: `dims` are the annotation's words, `dtype` as in `recipe.Input`.

    `parameter` is what the spec's function calls it, where expressions cannot.
    """

    name: str
    dtype: str
    dims: tuple[str, ...]
    line: int
    parameter: str = ""
    between: tuple[str, str] | None = None  # the least and the greatest value, as declared

    @property
    def keyword(self) -> str:
        """The name of the function's parameter."""
        return self.parameter or self.name


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A scalar with the value it is bound to, or a size that the factory asks for."""

    name: str
    value: Scalar
    size: bool
    line: int


@dataclass(frozen=True, slots=True)
class SpecSource:
    """What the file declares."""

    path: Path
    text: str
    tree: ast.Module
    kind: Literal["eager", "flex"]
    function: str
    line: int
    tensors: tuple[TensorParameter, ...]
    scalars: tuple[ScalarParameter, ...]
    returns: tuple[str, ...] | None
    merged: bool = False  # whether the last two of `returns` come as one dimension, `Hq*D`

    def error(self, message: str, line: int | None = None, fix: str | None = None) -> SpecError:
        return SpecError(message, where=Where(str(self.path), line), fix=fix)


def roles_by_place(tensors: Sequence[TensorParameter]) -> dict[str, str]:
    """Which tensors are q, k and v by their names, else by their order."""
    named = {t.name: _ROLES[t.name.lower()] for t in tensors if t.name.lower() in _ROLES}
    if sorted(named.values()) != ["k", "q", "v"]:
        named = dict(zip([t.name for t in tensors], "qkv", strict=False))
    return named


def read_source(path: Path, options: Mapping[str, object]) -> SpecSource:
    """Parse the spec at `path`; `options` override its scalars. Raises `SpecError`."""
    where = Where(str(path))
    try:
        text = read_spec(path).decode("utf-8-sig")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SpecError("not UTF-8 text", where=where, fix="save the spec as UTF-8") from None
    except InputError as error:
        raise SpecError(f"the spec {error.message}", where=where, fix=error.fix) from None
    path = path.resolve()  # of a file that was read: a loop of links has no place
    try:
        tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        reason = getattr(error, "msg", None) or str(error)
        if isinstance(error, RecursionError | MemoryError):  # often without a word
            reason = "an expression is nested too deeply to be read"
        elif "\0" in text:
            line = text.partition("\0")[0].count("\n") + 1
            reason = "a null byte, which no text holds"
        raise SpecError(
            f"not Python: {reason}", where=Where(str(path), line, getattr(error, "offset", None)),
            fix="correct the syntax at this place",
        ) from None  # fmt: skip
    found = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    eager, flex = found.get(EAGER), found.get(FLEX)
    if eager is not None and flex is not None:
        raise SpecError(f"both {EAGER} and {FLEX} are defined", where=Where(str(path), flex.lineno),
                        fix="keep one of them per file")  # fmt: skip
    node = eager or flex
    if node is None:
        slip = next((n for n in found if nearest(n, (EAGER, FLEX))), "")
        raise SpecError(
            "no attention function",
            where=Where(str(path), found[slip].lineno) if slip else where,
            fix=f"call it {nearest(slip, (EAGER, FLEX))}, not {slip}" if slip else
            f"define `def {EAGER}(q, k, v, ...)`, or a FlexAttention factory `def {FLEX}(...)`",
        )  # fmt: skip
    return _Reader(path, text, tree, node, options).read()


class _Reader:
    def __init__(
        self,
        path: Path,
        text: str,
        tree: ast.Module,
        node: ast.FunctionDef,
        options: Mapping[str, object],
    ) -> None:
        self.path, self.text, self.tree, self.node = path, text, tree, node
        self.options = dict(options)
        self.sizes: set[str] = set()  # that the annotations name
        self.aliases = _import_aliases(tree)

    def fail(self, message: str, node: ast.AST, fix: str) -> SpecError:
        return SpecError(
            message, where=Where(str(self.path), getattr(node, "lineno", None)), fix=fix
        )

    def read(self) -> SpecSource:
        a = self.node.args
        if a.vararg:  # **kwargs is never given anything
            raise self.fail("a spec has named parameters only", self.node, "remove *args")
        kind: Literal["eager", "flex"] = "eager" if self.node.name == EAGER else "flex"
        plain = [*a.posonlyargs, *a.args]
        defaults: dict[str, ast.expr] = dict(
            zip([p.arg for p in plain[len(plain) - len(a.defaults) :]], a.defaults, strict=True)
        )
        for parameter, default in zip(a.kwonlyargs, a.kw_defaults, strict=True):
            if default is not None:
                defaults[parameter.arg] = default
        parameters = [*plain, *a.kwonlyargs]
        annotations = [self.declared(p.annotation) for p in parameters]
        self.sizes = {d for found in annotations if found is not None for d in found[1]}
        tensors: list[TensorParameter] = []
        scalars: list[ScalarParameter] = []
        for parameter, declared in zip(parameters, annotations, strict=True):
            if declared is not None:
                if parameter.arg in defaults and parameter.arg not in self.options:
                    default = defaults[parameter.arg]
                    if isinstance(default, ast.Constant) and default.value is None:
                        raise self.fail(
                            f"tensor input {parameter.arg} may be None", parameter,
                            "a spec states one variant: remove the default, or the parameter",
                        )  # fmt: skip
                name = self.free_name(parameter.arg, {p.arg for p in parameters})
                between = self.between(parameter) if declared[0] in ("i32", "i64") else None
                tensors.append(
                    TensorParameter(name, *declared, parameter.lineno, parameter.arg, between)
                )
            else:
                scalars.append(
                    self.scalar(parameter, defaults.get(parameter.arg), kind, len(tensors))
                )
        unknown = set(self.options) - {s.name for s in scalars}
        if unknown:
            names, wrong = [s.name for s in scalars], sorted(unknown)[0]
            raise SpecError(
                f"--set {wrong}: the spec has no scalar parameter of this name",
                where=Where(str(self.path)),
                fix=advice(wrong, names, f"name one of: {', '.join(names) or '(it has none)'}"),
            )  # fmt: skip
        returned = self.declared(_first(self.node.returns), returned=True)
        dims = None if returned is None else returned[1]
        merged = dims is not None and "*" in dims[-1]
        if dims is not None and merged:
            dims = (*dims[:-1], *dims[-1].split("*"))
        return SpecSource(
            self.path, self.text, self.tree, kind, self.node.name, self.node.lineno, tuple(tensors),
            tuple(scalars), dims, merged,
        )  # fmt: skip

    def between(self, parameter: ast.arg) -> tuple[str, str] | None:
        """The range in the comment behind an integer's annotation, as in `# 0..9` or `# 1..Nk - 1`;
        both ends are among its values. None where there is no such comment."""
        line = self.text.splitlines()[(parameter.end_lineno or parameter.lineno) - 1]
        found = _RANGE.fullmatch(line[parameter.end_col_offset or 0 :])
        if found is None:
            return None
        for end in found.groups():
            try:
                names = names_in(parse_expr(end))
            except CuirError:
                names = frozenset((end,))
            unknown = sorted(names - self.sizes - set(SIZE_NAMES))
            if unknown:
                raise self.fail(
                    f"the range of {parameter.arg} reads {unknown[0]}, which is no dimension",
                    parameter, "write it of numbers and dimensions, such as `# 0..9` or `# 1..Nk`",
                )  # fmt: skip
        return found[1], found[2]

    def free_name(self, parameter: str, taken: set[str]) -> str:
        """What expressions call an input: its own name, unless that means something in them."""
        means = parameter in OWN_NAMES or parameter in FUNCTIONS or parameter in CONSTANTS
        if not means and parameter not in CASTS and parameter.isascii():
            return parameter
        name = f"{parameter}_input" if parameter.isascii() else "input"
        number = 2
        while name in taken:
            name, number = f"{name}_{number}", number + 1
        taken.add(name)
        return name

    def scalar(
        self, parameter: ast.arg, default: ast.expr | None, kind: str, tensors: int
    ) -> ScalarParameter:
        name, line = parameter.arg, parameter.lineno
        if name in self.options:
            return ScalarParameter(name, self.option(parameter, default), False, line)
        if kind == "flex" and (name in SIZE_PARAMETERS or name in self.sizes) and default is None:
            return ScalarParameter(name, None, True, line)
        if default is None:
            annotation = parameter.annotation
            if annotation is not None and _text(annotation).split(".")[-1] in (
                "int",
                "float",
                "bool",
            ):
                raise self.fail(
                    f"scalar {name} has no value", parameter,
                    f"give it a default, or pass the option {name}=...",
                )  # fmt: skip
            if kind == "eager" and tensors < 3:
                raise self.fail(
                    f"input {name} has no annotation, so its layout is unknown", parameter,
                    f"declare the dimensions, such as {EXAMPLE.replace('q:', name + ':')}",
                )  # fmt: skip
            raise self.fail(
                f"extra input {name} has no annotation", parameter,
                f'declare it, such as {name}: Float[Tensor, "Hq"], or give a scalar its default',
            )  # fmt: skip
        value = self.default_of(default)
        if not isinstance(value, (int, float, bool, str, type(None))):
            raise self.fail(
                f"the default of {name} is not a number", parameter,
                f"write a number, or pass the option {name}=...",
            )  # fmt: skip
        return ScalarParameter(name, value, False, line)

    def option(self, parameter: ast.arg, default: ast.expr | None) -> Scalar:
        """The value that the caller gave a scalar, of the kind that the spec declares."""
        name, value = parameter.arg, self.options[parameter.arg]
        usual = self.default_of(default)
        kinds = _scalar_kinds(parameter.annotation) or (
            {type(usual)} if usual not in (None, ...) else {int, float, bool, str, type(None)}
        )
        given = "nan" if value != value else type(value).__name__
        fits = type(value) in kinds or (type(value) is int and float in kinds)
        if fits and given != "nan" and isinstance(value, (int, float, str, type(None))):
            return value
        words = " or ".join(sorted("None" if k is type(None) else k.__name__ for k in kinds))
        examples = {float: 0.5, int: 64, bool: True, str: "text"}
        example = (
            usual if type(usual) in kinds else next(e for k, e in examples.items() if k in kinds)
        )
        raise SpecError(
            f"--set {name}={value}: the spec's {name} is {words}, not {given}",
            where=Where(str(self.path)), fix=f"for example --set {name}={example}",
        )  # fmt: skip

    def default_of(self, default: ast.expr | None) -> object:
        """A default's value; `...` where there is none that is known without running the file."""
        if default is None:
            return ...
        try:
            return ast.literal_eval(default)
        except ValueError:
            return _constant(default, self.tree)

    def declared(
        self, annotation: ast.expr | None, returned: bool = False
    ) -> tuple[str, tuple[str, ...]] | None:
        """dtype and dimensions of a jaxtyping annotation; None for anything else. The last of what
        is `returned` may be heads and columns in one, `Hq*D`."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
        if not isinstance(annotation, ast.Subscript):
            return None
        head = _text(annotation.value).split(".")[-1]
        dtype = _DTYPES.get(self.aliases.get(head, head))
        if dtype is None:
            return None
        match annotation.slice:
            case ast.Tuple([_, ast.Constant(str() as words)]):
                dims = tuple(words.split())
            case _:
                raise self.fail(
                    "this annotation has no dimensions", annotation, f"write it as in {EXAMPLE}"
                )
        for place, dim in enumerate(dims):
            merged = returned and place == len(dims) - 1 and dim.count("*") == 1
            names = dim.split("*") if merged else [dim]
            if not all(n.isidentifier() or (n.isdigit() and int(n) > 0) for n in names):
                raise self.fail(
                    f"dimension {dim!r} is not one name or number", annotation,
                    "name every dimension; write 1 for a broadcast one",
                )  # fmt: skip
        return dtype, dims


def _first(annotation: ast.expr | None) -> ast.expr | None:
    """What is said of the first of a tuple's items, where a tuple is returned."""
    match annotation:
        case ast.Subscript(ast.Name("tuple" | "Tuple"), ast.Tuple([first, _])):
            return first
    return annotation


def _text(node: ast.expr) -> str:
    return ast.unparse(node)


def _scalar_kinds(annotation: ast.expr | None) -> set[type]:
    """The kinds that `int`, `float | None` or `Optional[int]` allow; empty for anything else."""
    if annotation is None:
        return set()
    named = {"int": int, "float": float, "bool": bool, "str": str}
    match annotation:
        case ast.Constant(None):
            return {type(None)}
        case ast.Name(name) if name in named:
            return {named[name]}
        case ast.BinOp(left, ast.BitOr(), right):
            parts = _scalar_kinds(left), _scalar_kinds(right)
            return parts[0] | parts[1] if all(parts) else set()
        case ast.Subscript(ast.Name("Optional"), inner):
            found = _scalar_kinds(inner)
            return found | {type(None)} if found else set()
    return set()


def _import_aliases(tree: ast.Module) -> dict[str, str]:
    """`from jaxtyping import Float as F` gives {"F": "Float"}."""
    out: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "jaxtyping":
            out |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return out


def _constant(node: ast.expr, tree: ast.Module) -> object:
    """The value of a default that names a module constant or computes with numbers."""
    constants: dict[str, object] = {}
    for item in tree.body:
        match item:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value) if (
                value
            ):
                try:
                    constants[name] = ast.literal_eval(value)
                except ValueError:
                    continue
    match node:
        case ast.Name(name):
            return constants.get(name, ...)
        case ast.BinOp(left, op, right):
            a, b = _operand(left, constants), _operand(right, constants)
            if isinstance(a, (int, float)) and isinstance(b, (int, float)):
                match op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.Div() if b:
                        return a / b
    return ...


def _operand(node: ast.expr, constants: Mapping[str, object]) -> object:
    if isinstance(node, ast.Name):
        return constants.get(node.id, ...)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...
