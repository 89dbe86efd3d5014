"""A wheel in a clean venv, run from `/`, holds the same kernels and specs as the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

PARTS = ("cubridge_tui", "engine", "sessions", "kernels", "themes", "docs")
FILES = ("pyproject.toml", ".gitignore", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def checkout(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is built from, so that an edit during the test changes nothing."""
    copy = tmp_path_factory.mktemp("wheel") / "checkout"
    for part in PARTS:
        # As git has it: without byte code and without folders that hold no file.
        for path in (root / part).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                target = copy / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    for name in FILES:
        shutil.copy(root / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    out = checkout.parent / "dist"
    run([sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], checkout)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The `cubridge` of a venv that holds nothing else: lists and versions need nothing else."""
    folder = wheel.parent / "venv"
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-I", "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run([*pip, "install", "-q", "--no-index", "--no-deps", str(wheel)], folder)
    return folder / "bin" / "cubridge"


def run(command: list[str], cwd: Path, **environ: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command,
        cwd=cwd,
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def listed(command: list[str], kind: str, cwd: Path, **environ: str) -> dict[str, object]:
    shown = json.loads(run([*command, kind, "list", "--json"], cwd, **environ))
    del shown["folder"]
    return shown


@pytest.mark.parametrize("kind", ["kernels", "specs"])
def test_the_same_lists_and_hashes(checkout: Path, installed: Path, kind: str) -> None:
    from_wheel = listed([str(installed)], kind, Path("/"))
    in_checkout = listed(
        [sys.executable, "-P", "-m", "cubridge_tui"], kind, Path("/"), PYTHONPATH=str(checkout)
    )
    assert from_wheel == in_checkout
    assert in_checkout[kind]


HASHES = """
import json
from engine.errors import MissingTool
from engine.resources import content_hash, docs_dir, themes_dir

def hashed(folder, name=""):
    try:
        return content_hash(folder() / name)
    except MissingTool:
        return None

print(json.dumps([hashed(themes_dir), hashed(docs_dir, "cuir.md")]))
"""


def test_themes_and_documents_are_the_same_bytes(checkout: Path, installed: Path) -> None:
    python = str(installed.parent / "python")
    from_wheel = json.loads(run([python, "-P", "-c", HASHES], Path("/")))
    in_checkout = json.loads(
        run([sys.executable, "-P", "-c", HASHES], Path("/"), PYTHONPATH=str(checkout))
    )
    assert from_wheel == in_checkout
    there = [any((checkout / "themes").glob("*.toml")), (checkout / "docs" / "cuir.md").exists()]
    assert [value is not None for value in from_wheel] == there


def test_the_wheel_holds_only_our_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "cubridge_tui",
        "engine",
        "sessions",
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_every_module_of_the_checkout_is_in_the_wheel(checkout: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {
        path.relative_to(checkout).as_posix()
        for part in ("cubridge_tui", "engine", "sessions")
        for path in (checkout / part).rglob("*.py")
    }
    assert ours - names == set()


def test_version_and_metadata(installed: Path) -> None:
    shown = run([str(installed), "--version"], Path("/"))
    python = str(installed.parent / "python")
    code = "import importlib.metadata as m; print('cubridge', m.version('cubridge-tui'))"
    assert shown == run([python, "-c", code], Path("/"))
