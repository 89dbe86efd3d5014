"""The part of the engine that a package carries, to run its spec: found by following imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[1]
SPEC_ROOTS = (
    "engine.spec.derived",  # tables that a spec builds itself
    "engine.spec.inputs",  # inputs for a deck
    "engine.spec.oracle",  # the spec in float64
    "engine.spec.signature",  # what a spec declares, from its JSON
    "engine.spec.text",  # the recipe from its JSON
    "engine.spec.unread",  # inputs of a spec that no rule reads
)


def vendored(roots: Sequence[str] = SPEC_ROOTS) -> dict[str, bytes]:
    """Every file of the engine that the modules `roots` import, by its path above `engine/`.

    Imports in function bodies count; those under `TYPE_CHECKING` do not.
    """
    found: dict[str, bytes] = {}
    pending = list(roots)
    while pending:
        module = pending.pop()
        path = _file(module)
        if path is None:
            continue
        name = path.relative_to(ENGINE.parent).as_posix()
        if name in found:
            continue
        found[name] = path.read_bytes()
        if "." in module:
            pending.append(module.rsplit(".", 1)[0])
        pending += _imported(ast.parse(found[name]))
    return dict(sorted(found.items()))


def _file(module: str) -> Path | None:
    base = ENGINE.parent.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "engine")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "engine":
            yield str(node.module)
            # A name may be a submodule; one that is not has no file.
            yield from (f"{node.module}.{a.name}" for a in node.names)
        else:
            yield from _imported(node)
