"""Who may import what, by reading every file and by importing in fresh processes."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.packaging.rooms import (
    CIRCLES,
    PACKAGES,
    PAGE,
    ROOMS,
    ROOT,
    all_modules,
    circles,
    folder_of,
    graph,
    imported,
    imports,
    modules,
    page,
    reduced,
    room_of,
    rooms,
    within,
)  # fmt: skip

HAS_TORCH = importlib.util.find_spec("torch") is not None


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


def test_a_room_imports_what_it_says_and_only_rooms_below_it() -> None:
    """Every folder of the engine is a room; what one imports is declared in `ROOMS`."""
    assert rooms() == {room: {*below} for room, below in ROOMS.items()}
    order = list(ROOMS)
    above = [(a, b) for a, names in ROOMS.items() for b in names if order.index(b) > order.index(a)]
    assert above == []


def test_no_folders_import_each_other_but_those_that_are_named() -> None:
    """Whoever reads one folder of a circle has to read them all."""
    assert circles().keys() == CIRCLES.keys()


# More files side by side than one sees at a glance. No folder is added.
CROWDED = {
    "cubridge_tui": 21, "cubridge_tui.commands": 21, "cubridge_tui.model": 40,
    "cubridge_tui.screens": 19, "engine.ptx": 17, "sessions": 17,
}  # fmt: skip
AT_A_GLANCE = 15


def test_a_folder_is_seen_at_a_glance() -> None:
    paths = all_modules()
    count = Counter(folder_of(name, paths) for name in paths if paths[name].name != "__init__.py")
    crowded = {folder: number for folder, number in count.items() if number > AT_A_GLANCE}
    assert {f: n for f, n in crowded.items() if n > CROWDED.get(f, AT_A_GLANCE)} == {}
    assert CROWDED.keys() <= crowded.keys()


def test_no_name_of_a_file_stands_twice_in_a_room_of_the_engine() -> None:
    paths = {n: p for n, p in modules("engine").items() if not p.name.startswith("__")}
    count = Counter((room_of(name), path.name) for name, path in paths.items())
    assert [name for name, number in count.items() if number > 1] == []


def test_the_picture_shows_what_follows_from_nothing_else() -> None:
    chain = {"a": (), "b": ("a",), "c": ("a", "b"), "d": ("a", "c"), "e": ("a", "d", "b")}
    assert reduced(chain) == {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["d"]}


def test_the_page_shows_the_rooms_as_they_are() -> None:
    """`python -m tests.packaging.rooms` writes them."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


def test_only_what_serves_a_session_imports_the_service() -> None:
    """The app and the command line do."""
    wrong = [
        line
        for line in offences("engine", ["engine.service"])
        if not within(line.split()[0], ["engine.service"])
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Nor inside a function: whoever reads one module of a circle has to read them all."""
    left = dict(graph())
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


def test_the_first_screen_reads_no_kernels() -> None:
    """What lifts and compiles takes a tenth of a second, which the first frame has not."""
    loaded = loaded_by(["cubridge_tui.app", "cubridge_tui.screens.start"])
    assert heavy(loaded, ["torch", "z3", "tree_sitter", "engine.lift", "engine.foreign"]) == set()


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


def test_the_first_frame_waits_for_no_session_and_no_other_screen() -> None:
    loaded = loaded_by(["cubridge_tui.app", "cubridge_tui.screens.start"])
    late = ["sessions.events", "sessions.store", "engine.service", "cubridge_tui.desk", "argparse"]
    screens = ["cubridge_tui.screens.adaptation", "cubridge_tui.screens.dialogs", "git"]
    assert heavy(loaded, [*late, *screens]) == set()


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_no_module_of_the_engine_loads_textual() -> None:
    loaded = loaded_by(runnable(modules("engine")))
    assert heavy(loaded, ["textual", "rich", "cubridge_tui"]) == set()
