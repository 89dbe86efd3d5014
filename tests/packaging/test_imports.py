"""Who may import what, by reading every file and by importing in fresh processes."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "sessions", "cubridge_tui")
HAS_TORCH = importlib.util.find_spec("torch") is not None


def imports(source: str | ast.Module, module: str) -> Iterator[str]:
    """Dotted names that a module's source imports, wherever in it, relative ones resolved.

    `from a import b` yields both `a` and `a.b`, since `b` may be a module. An `import_module` or
    `__import__` with a literal counts too.
    """
    for node in ast.walk(ast.parse(source) if isinstance(source, str) else source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            first = node.args[0]
            if name in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield str(first.value)


def modules(package: str) -> dict[str, Path]:
    """Every module of a package of ours, by dotted name."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "_data" in parts:
            continue
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported(path: Path, module: str) -> frozenset[str]:
    """What a file imports; read once, since every rule below asks for it."""
    return frozenset(imports(path.read_text(encoding="utf-8"), module))


def runs_with(source: str, module: str) -> Iterator[str]:
    """`imports`, less those that only a type checker follows."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        test = node.test if isinstance(node, ast.If) else None
        if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    yield from imports(tree, module)


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def offences(package: str, forbidden: Iterable[str]) -> list[str]:
    """`module imports name` for each import that the rule forbids."""
    return sorted(
        f"{module} imports {name}"
        for module, path in modules(package).items()
        for name in imported(path, module)
        if within(name, forbidden)
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import textual.app", "textual.app"),
        ("from textual import app", "textual"),
        ("def f():\n    from textual.widget import Widget", "textual.widget"),
        ("import importlib\nimportlib.import_module('textual')", "textual"),
        ("from ..cubridge_tui import cli", "engine.cubridge_tui.cli"),
        ("from . import x", "engine.sub.x"),
    ],
)
def test_the_reader_of_imports_sees_each_way_to_import(source: str, name: str) -> None:
    assert name in set(imports(source, "engine.sub.module"))


def test_the_engine_never_imports_the_user_interface() -> None:
    assert offences("engine", ["textual", "cubridge_tui", "rich"]) == []


def test_the_store_imports_only_the_shared_vocabulary_of_the_engine() -> None:
    allowed = ("engine.types", "engine.errors", "engine.files")
    wrong = [
        line
        for line in offences("sessions", ["engine", "cubridge_tui", "textual", "torch"])
        if not (within(line.split()[-1], allowed) or line.endswith(" imports engine"))
    ]
    assert wrong == []


# What each of the engine's lower folders may know; see docs/architecture.md. `errors`, `files`,
# `priority`, `types` and `resources` are modules that any may import.
LAYERS: dict[str, tuple[str, ...]] = {
    "cuir": (),
    "report": (),
    "llm": (),
    "scalar_algebra": ("cuir",),
    "prove": ("cuir",),
    "lift": ("cuir",),
    "lower": ("cuir", "lift"),
    "build": ("cuir", "lift"),
    "cost": ("cuir", "build"),
}


@pytest.mark.parametrize("folder", LAYERS)
def test_a_lower_folder_of_the_engine_knows_only_what_is_below_it(folder: str) -> None:
    known = ("errors", "files", "priority", "types", "resources", folder, *LAYERS[folder])
    allowed = [f"engine.{name}" for name in known]
    wrong = [
        line
        for line in offences(f"engine/{folder}", ["engine"])
        if not (within(line.split()[-1], allowed) or line.endswith(" imports engine"))
    ]
    assert wrong == []


def test_only_what_serves_a_session_imports_the_service() -> None:
    """The app and the command line do; in the engine, what ties a job to a session."""
    wrong = [
        line
        for line in offences("engine", ["engine.service"])
        if not within(line.split()[0], ["engine.service", "engine.service.session.gpu_verdict"])
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Nor inside a function: whoever reads one module of a circle has to read them all."""
    paths = {n: p for package in PACKAGES for n, p in modules(package).items()}
    found = {n: set(runs_with(p.read_text(encoding="utf-8"), n)) for n, p in paths.items()}
    # `from a import b` names the package too: it counts where b is no module, so b lies in it.
    left = {
        name: {
            other
            for other in names & paths.keys() - {name}
            if not any(within(more, [other]) and more != other and more in paths for more in names)
        }
        for name, names in found.items()
    }
    while ends := {name for name, names in left.items() if not names & left.keys()}:
        left = {name: names for name, names in left.items() if name not in ends}
    assert sorted(left) == []


def test_the_app_and_the_command_line_never_import_torch() -> None:
    assert offences("cubridge_tui", ["torch"]) == []


def test_no_package_imports_tests_or_benchmarks() -> None:
    for package in PACKAGES:
        assert offences(package, ["tests", "benchmarks", "kernels"]) == []


def kernel_python() -> dict[str, Path]:
    return {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "kernels").rglob("*.py")}


def test_kernels_hold_no_python_but_specs() -> None:
    """A kernel's `reference.py` is a spec too; conformance jobs run where we are not installed."""
    spec = re.compile(r"kernels/(specs/[^/]+|[^/]+/reference|conformance/[^/]+)\.py")
    assert [name for name in kernel_python() if not spec.fullmatch(name)] == []


def test_specs_run_where_we_are_not_installed() -> None:
    for name, path in kernel_python().items():
        imported = set(imports(path.read_text(encoding="utf-8"), "spec"))
        assert not [i for i in imported if within(i, ["engine", "sessions", "cubridge_tui"])], name


def test_cuir_is_interpreted_and_never_handed_to_python() -> None:
    for module, path in modules("engine.cuir".replace(".", "/")).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                where = f"{module}:{node.lineno}"
                assert node.func.id not in ("eval", "exec", "__import__"), where


def loaded_by(names: Iterable[str]) -> set[str]:
    """What a fresh process has loaded after importing `names`: all of `sys.modules`."""
    code = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, json.dumps(sorted(names))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def heavy(loaded: set[str], names: Iterable[str]) -> set[str]:
    return {name for name in names if name in loaded}


def test_the_command_line_loads_nothing_heavy() -> None:
    loaded = loaded_by(["cubridge_tui.cli"])
    assert heavy(loaded, ["textual", "torch", "openai", "mcp", "git", "rich", "argparse"]) == set()


def test_the_packages_load_nothing_heavy() -> None:
    loaded = loaded_by(["engine", "sessions", "cubridge_tui"])
    assert heavy(loaded, ["textual", "torch", "openai", "rich"]) == set()


def runnable(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.endswith("__main__")]


def test_no_module_of_the_store_loads_torch_or_textual() -> None:
    loaded = loaded_by(runnable(modules("sessions")))
    assert heavy(loaded, ["torch", "textual", "openai"]) == set()


def test_no_module_of_the_app_loads_torch_or_an_extra() -> None:
    assert heavy(loaded_by(runnable(modules("cubridge_tui"))), ["torch", "mcp"]) == set()


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_no_module_of_the_engine_loads_textual() -> None:
    loaded = loaded_by(runnable(modules("engine")))
    assert heavy(loaded, ["textual", "rich", "cubridge_tui"]) == set()
