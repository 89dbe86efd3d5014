"""Load a spec's module: fresh each time, annotations and their imports stripped."""

from __future__ import annotations

import ast
import builtins
import os
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from engine.errors import CuBridgeError, SpecError, Where
from engine.spec.python.dimension_sizes import USUAL, slots
from engine.spec.python.size_values import EXTREMA
from engine.spec.python.spec_file import SpecSource

_OURS = frozenset(("engine", "sessions", "cubridge_tui", "tests", "__main__"))
_TYPING_ONLY = frozenset(("jaxtyping", "beartype", "typeguard"))
MAX_WORDS = 300


class _Strip(ast.NodeTransformer):
    """Removes annotations, and the imports and decorators that serve only them."""

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def visit_Import(self, node: ast.Import) -> ast.AST:
        kept = [a for a in node.names if a.name.split(".")[0] not in _TYPING_ONLY]
        self.gone |= {(a.asname or a.name).split(".")[0] for a in node.names if a not in kept}
        node.names = kept
        return node if kept else ast.copy_location(ast.Pass(), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.level == 0 and (node.module or "").split(".")[0] in _TYPING_ONLY:
            self.gone |= {a.asname or a.name for a in node.names}
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [d for d in node.decorator_list if not self._typing(d)]
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def _typing(self, decorator: ast.expr) -> bool:
        names = {n.id for n in ast.walk(decorator) if isinstance(n, ast.Name)}
        return bool(names & self.gone)


class _Annotation(type):
    def __getitem__(cls, item: object) -> object:
        return object


class _Shim(types.ModuleType):
    """Stands for jaxtyping while a module beside the spec is imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "jaxtyped":
            return lambda *a, **k: a[0] if a and callable(a[0]) else (lambda fn: fn)
        return _Annotation(name, (), {})


@contextmanager
def surroundings(source: SpecSource) -> Iterator[None]:
    """The spec's folder is importable after all else; what it imported is forgotten again."""
    folder = str(source.path.parent)
    shim = "jaxtyping" not in sys.modules
    if shim:
        try:
            import jaxtyping  # type: ignore[import-not-found]  # noqa: F401
        except ImportError:
            sys.modules["jaxtyping"] = _Shim("jaxtyping")
    compile_, default = torch.compile, torch.get_default_dtype()
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # not in the user's folder
    sys.path.append(folder)
    torch.compile = _not_compiled
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(default)
        torch.compile = compile_
        sys.dont_write_bytecode = bytecode
        sys.path.remove(folder)
        _forget_neighbours(source)
        if shim and isinstance(sys.modules.get("jaxtyping"), _Shim):
            del sys.modules["jaxtyping"]


def _forget_neighbours(source: SpecSource) -> None:
    """Forget the modules that the spec imported from its own folder: they may hold cached masks."""
    folder = str(source.path.parent)
    beside, known = set(), _elsewhere(folder)
    for name in list(sys.modules):  # of pairs, thousands at a time would wake the collector
        if "." in name or name in _OURS:
            continue
        module = sys.modules.get(name)
        if known.get(name) is module:
            continue  # nearly all of them
        file = getattr(module, "__file__", None)
        if type(file) is str and not file.startswith(folder):
            known[name] = module
            continue
        here = (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py")
        if file in here or (file is None and f"{folder}/{name}" in getattr(module, "__path__", ())):
            beside.add(name)
    if beside:
        for name in [n for n in sys.modules if n.split(".")[0] in beside]:
            del sys.modules[name]


@lru_cache(maxsize=4)
def _elsewhere(folder: str) -> dict[str, object]:
    """Modules whose files were seen to lie elsewhere: a spec is loaded some forty times."""
    return {}


def _not_compiled(model: Any = None, **options: Any) -> Any:
    return (lambda fn: fn) if model is None else model


class _Vary(ast.NodeTransformer):
    """Other values for integer literals."""

    def __init__(self, values: Mapping[int, int]) -> None:
        self.values = values

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and node.value in self.values:
            return ast.copy_location(ast.Constant(self.values[node.value]), node)
        return node


def load_function(source: SpecSource, varied: Mapping[int, int] | None = None) -> Any:
    """The spec's function from a fresh module. Call it inside `surroundings`.

    `varied` replaces integer literals, see `program.variations`.
    """
    _forget_neighbours(source)
    module = types.ModuleType(source.path.stem)
    module.__file__ = str(source.path)
    module.__dict__["__builtins__"] = {**vars(builtins), **EXTREMA}
    with explained(source):
        code = _compiled(source.text, str(source.path), tuple(sorted((varied or {}).items())))
        exec(code, module.__dict__)
    return module.__dict__[source.function]


@lru_cache(maxsize=64)
def _compiled(text: str, path: str, varied: tuple[tuple[int, int], ...]) -> types.CodeType:
    """A spec is loaded some twenty times to be read, and once for each run of a gate."""
    tree = _Strip().visit(ast.parse(text, filename=path))
    if varied:
        tree = _Vary(dict(varied)).visit(tree)
    code: types.CodeType = compile(ast.fix_missing_locations(tree), path, "exec")
    return code


@contextmanager
def explained(source: SpecSource) -> Iterator[None]:
    """Whatever the user's code raises becomes one `SpecError` at the line that raised it. A copy of
    this process that it forked off ends as it comes out of it: else it would read on, and fork."""
    own = os.getpid()
    try:
        yield
    except CuBridgeError:
        raise
    except BaseException as error:
        if type(error).__module__.startswith("engine."):
            raise  # our own way out of a run that has shown enough
        line = line_of(error, source.path)
        kind = type(error).__name__
        fix = "the spec must run on the sizes that its annotations allow" + _taken_as(source)
        if isinstance(error, (ImportError, ModuleNotFoundError)):
            fix = "install the module, or put it beside the spec"
        elif isinstance(error, MemoryError) or "can't allocate memory" in said(error):
            fix = "build smaller tensors, and give large fixed dimensions names"
        elif isinstance(error, SystemExit):
            fix = "remove what ends Python: a spec only returns its output"
        raise SpecError(
            f"the spec raised {kind}: {said(error)}", where=Where(str(source.path), line), fix=fix
        ) from error
    finally:
        if os.getpid() != own:
            os._exit(0)


def _taken_as(source: SpecSource) -> str:
    """What dimensions with other names than the usual ones were taken for; "" if there are none."""
    slot = slots(source.tensors)
    others = {name: usual for name, usual in slot.items() if name not in USUAL}
    if not others:
        return ""
    parts = [
        f"{name} was taken for {usual}"
        if usual in USUAL
        else f"{name} was taken for a size of its own"
        for name, usual in sorted(others.items(), key=lambda item: item[1] not in USUAL)
    ]
    free = [usual for usual in USUAL if usual not in slot.values()]
    rename = f"; usual names that are free: {', '.join(free)}" if free else ""
    return f". Sizes follow the annotations' names: {', '.join(parts)}{rename}"


def said(error: BaseException) -> str:
    """The first line of what an exception says, not longer than a screen's line or two."""
    try:
        text = str(error).strip()
    except Exception:
        text = ""
    first = (text or type(error).__name__).split("\n")[0]
    return first if len(first) <= MAX_WORDS else first[:MAX_WORDS] + "..."


def line_of(error: BaseException, path: Path) -> int | None:
    """The innermost line of `path` in the error's traceback."""
    found = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return found[-1] if found else None
