"""Which of our modules a job must carry: everything that the worker imports, directly or not.

Read from the source text, so that packing imports neither torch nor the worker itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import InputError, Where
from engine.files import read_spec

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "engine"
# What a GPU machine has beside the standard library.
ALLOWED = frozenset({"torch", "jaxtyping"})


def closure(roots: Iterable[str], folder: Path = ROOT) -> dict[str, Path]:
    """File name in the job -> file here, for the modules `roots` and all of ours they import.

    Imports inside functions count; those under `if TYPE_CHECKING` do not. Parent packages come
    along.
    """
    out: dict[str, Path] = {}
    pending = list(roots)
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        path = module_file(name, folder)
        if path is None:
            continue
        out[path.relative_to(folder).as_posix()] = path
        parent = name.rpartition(".")[0]
        if parent:
            pending.append(parent)
        pending += [n for n in imported(path) if n.split(".")[0] == PACKAGE]
    return dict(sorted(out.items()))


def module_file(name: str, folder: Path = ROOT) -> Path | None:
    """The file of module `name`, None where `name` is no module (an attribute of one)."""
    base = folder.joinpath(*name.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def imported(path: Path) -> Iterator[str]:
    """Module names that a file imports; `from a import b` gives both a and a.b."""
    for node in _statements(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def foreign(files: Iterable[Path]) -> dict[str, Path]:
    """Top-level packages that the files import at load time and that a GPU machine may lack.

    Imports inside a function or a `try` are the module's own business.
    """
    import sys

    known = ALLOWED | sys.stdlib_module_names | {PACKAGE, "__future__"}
    out: dict[str, Path] = {}
    for path in files:
        for node in parsed(path).body:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                if top not in known:
                    out.setdefault(top, path)
    return out


def local_modules(spec: Path) -> dict[str, Path]:
    """The modules beside a spec that it imports, directly or not: file name -> file.

    Raises:
        InputError: an import that is neither beside the spec, nor torch, nor the standard library;
            what is missing on the GPU machine is named here rather than there.
    """
    out, missing = _beside(spec)
    if missing:
        name, (path, line) = next(iter(missing.items()))
        raise InputError(
            f"the spec imports {name}, which a GPU job cannot bring along",
            where=Where(str(path), line),
            fix=f"put {name} beside the spec as a module, or write what it needs in the spec",
        )
    return out


def beside(spec: Path) -> dict[str, Path]:
    """The same, whatever else the spec imports.

    Raises:
        InputError: the spec, or a module beside it, is no Python.
    """
    return _beside(spec)[0]


def _beside(spec: Path) -> tuple[dict[str, Path], dict[str, tuple[Path, int]]]:
    """The modules beside a spec, and what else it imports that a GPU machine may lack."""
    out: dict[str, Path] = {}
    missing: dict[str, tuple[Path, int]] = {}
    pending = [spec]
    while pending:
        path = pending.pop()
        for node in _statements(parsed(path)):
            for name in _top_names(node):
                beside = module_file(name, spec.parent)
                if beside is None:
                    if not _known(name):
                        missing.setdefault(name, (path, getattr(node, "lineno", 1)))
                    continue
                for file in _whole(beside, spec.parent):
                    relative = file.relative_to(spec.parent).as_posix()
                    if relative not in out:
                        out[relative] = file
                        pending.append(file)
    return out, missing


def _whole(file: Path, folder: Path) -> list[Path]:
    """A module, or all Python files of a package."""
    if file.name == "__init__.py" and file.parent != folder:
        return sorted(file.parent.rglob("*.py"))
    return [file]


def _top_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.split(".")[0]]
    return []


def _known(name: str) -> bool:
    import sys

    return (
        name in ALLOWED
        or name in sys.stdlib_module_names
        or name in ("numpy", "beartype", "typeguard")
    )


def parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(read_spec(path), filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(
            f"not Python: {error}", where=Where(str(path), line), fix="correct it"
        ) from None


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements, without the bodies of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _statements(other)
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)
