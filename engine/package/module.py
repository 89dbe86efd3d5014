"""The pages of `runtime` as the few modules that a package carries."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from engine.package.vendor import vendored

PAGES = Path(__file__).with_name("runtime")
RUNTIME = ("_abi", "_expr", "_args", "_checks", "_library", "_op")
PLAN = ("_plan",)
SPEC = ("_recipe", "_spec", "_check")
HOSTS, SDPA = ("_hosts",), ("_sdpa",)
TABLES = ("_reads", "_tables")
_OF_MODULE = {
    "_runtime": (*RUNTIME, *PLAN), "_spec": SPEC, "_hosts": (*HOSTS, *SDPA), "_tables": TABLES,
}  # fmt: skip
_OF_PAGE = {page: module for module, pages in _OF_MODULE.items() for page in pages}


def runtime_text(plans: bool) -> str:
    """`_runtime.py`: all that a call on a GPU needs; with `plans` of a kernel that lists tiles."""
    return _joined(
        (*RUNTIME, *PLAN) if plans else RUNTIME,
        "What a call runs: its checks, the argument struct, the launch, the torch operator.\n\n"
        "The same in every package of CuBridge that has these parts.",
    )


def spec_text() -> str:
    """`_spec.py`: the spec without the kernel, and beside it."""
    return _joined(
        SPEC,
        "The spec in plain torch: what the operator is on a CPU, and what `check` compares the\n"
        "kernel with. The same in every package of CuBridge.",
    )


def hosts_text(sdpa: bool) -> str:
    """`_hosts.py`: what transformers calls, and with `sdpa` what PyTorch and diffusers call."""
    return _joined(
        (*HOSTS, *SDPA) if sdpa else HOSTS,
        "The kernel in the place of a library's own attention; the same in every package of\n"
        "CuBridge that has these functions.",
    )


def tables_text() -> str:
    """`_tables.py`: what makes a spec's tables, with the part of CuBridge that reads the spec."""
    head = _joined(TABLES, "The tables that the spec's own code makes; CuBridge's reader is below.")
    parts = []
    for name, data in vendored().items():
        lines = "".join(f"#|{line}\n" for line in data.decode().splitlines())
        parts.append(f"\n# === {name}\n{lines}")
    return head + "".join(parts)


def _joined(pages: Sequence[str], words: str) -> str:
    """Several pages as one module: their imports first, each page under its own first words."""
    imports: set[str] = set()
    bodies = []
    defined: dict[str, str] = {}
    for page in pages:
        text = (PAGES / f"{page}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = text.splitlines(keepends=True)
        assert isinstance(tree.body[0], ast.Expr)
        title = ast.get_docstring(tree, clean=True) or ""
        gone = _lines(tree.body[0])
        for node in tree.body[1:]:
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= set(_import(node, pages))
                gone |= _lines(node)
            for name in _names(node):
                if defined.setdefault(name, page) != page:
                    raise ValueError(f"{name} is defined in {defined[name]} and in {page}")
        for inner in ast.walk(tree):
            local = isinstance(inner, ast.ImportFrom) and inner.level and inner.module in pages
            if local and inner not in tree.body:
                raise ValueError(f"{page} imports a page of its own module inside of a function")
        body = "".join(line for n, line in enumerate(lines, 1) if n not in gone).strip()
        comment = "".join(f"# {line}".rstrip() + "\n" for line in title.splitlines())
        bodies.append(f"\n\n# {'-' * 98}\n{comment}\n\n{body}\n")
    first = "from __future__ import annotations"
    listed = sorted(imports - {first}, key=_order)
    return f'"""{words}"""\n\n{first}\n\n' + "\n".join(listed) + "\n" + "".join(bodies)


def _order(line: str) -> tuple[bool, bool, bool, str]:
    """Python's own modules, torch, the package's; plain imports before those of names."""
    local, torch = line.startswith("from ."), line.split()[1].split(".")[0] == "torch"
    return local, torch, line.startswith("from"), line


def _lines(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _import(node: ast.Import | ast.ImportFrom, pages: Sequence[str]) -> list[str]:
    """The import as lines of the joined module: none for what is on one of its own pages."""
    if isinstance(node, ast.Import):
        return [f"import {ast.unparse(alias)}" for alias in node.names]
    module = node.module or ""
    if node.level and module in pages:
        return []
    where = "." * node.level + (_OF_PAGE.get(module, module) if node.level else module)
    return [f"from {where} import {ast.unparse(alias)}" for alias in node.names]


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement defines at the top of a module."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [t.id for t in targets if isinstance(t, ast.Name)]
