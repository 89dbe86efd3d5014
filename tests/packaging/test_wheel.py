"""A wheel in a clean venv, run from `/`, holds the same kernels and specs as the checkout."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import textual

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


def test_every_file_of_our_packages_is_in_the_wheel(checkout: Path, wheel: Path) -> None:
    """Modules, and what they read beside themselves: styles, tables of arches, prompt templates."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    ours = {
        path.relative_to(checkout).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("cubridge_tui", "engine", "sessions")
        for path in (checkout / part).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"  # of a command that ran there
    }
    assert {name for name, sha256 in ours.items() if held.get(name) != sha256} == set()
    assert {Path(name).suffix for name in ours} >= {".py", ".toml", ".md"}


@pytest.fixture(scope="module")
def complete(installed: Path) -> list[str]:
    """The same `cubridge` with the libraries that it needs, those of this Python's environment.

    Only their folder is added: the editable install's own hook there is not run.
    """
    site = next((installed.parent.parent / "lib").glob("python*/site-packages"))
    libraries = Path(textual.__file__).resolve().parents[1]
    found = importlib.util.find_spec("torch")  # it may be another installation's
    folders = {libraries}
    if found is not None and found.origin is not None:
        folders.add(Path(found.origin).resolve().parents[1])
    (site / "libraries.pth").write_text("".join(f"{folder}\n" for folder in folders))
    return [str(installed.parent / "python"), "-P", "-m", "cubridge_tui"]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("lift", "flash_fwd_sm90"), "cuir"),
        (("recipe", "softcap_causal"), "recipe"),
        (("lift", "flash_fwd_sm80", "--ids"), "lines"),
    ],
)
def test_it_works_from_anywhere_and_gives_the_same(
    words: tuple[str, ...], key: str, checkout: Path, complete: list[str]
) -> None:
    pytest.importorskip("torch")
    here = [sys.executable, "-P", "-m", "cubridge_tui"]
    from_wheel = json.loads(run([*complete, *words, "--json"], Path("/")))
    in_checkout = run([*here, *words, "--json"], Path("/"), PYTHONPATH=str(checkout))
    assert from_wheel[key] == json.loads(in_checkout)[key]


CONFORMANCE = """
import json
from engine.gates.g3_source.conformance import read_records, told, unproven
from engine.lift import load_package

records = read_records()
found = {}
for name in ("flash_fwd_sm80", "flash_fwd_sm90"):
    package = load_package(name)
    items = unproven(package.source, dict(package.headers), records)
    found[name] = [told(items, records), [item.to_json() for item in items]]
print(json.dumps([[record.suite, len(record.cases)] for record in records] + [found]))
"""


def test_conformance_records_travel_and_give_the_same(checkout: Path, complete: list[str]) -> None:
    from_wheel = json.loads(run([*complete[:2], "-c", CONFORMANCE], Path("/")))
    here = [sys.executable, "-P", "-c", CONFORMANCE]
    assert from_wheel == json.loads(run(here, Path("/"), PYTHONPATH=str(checkout)))
    assert [suite for suite, _ in from_wheel[:-1]] == ["sm80", "sm90"]


PROMPTS = """
import hashlib, json
from importlib.resources import files
from engine.resources import docs_dir
from engine.transfer.llm.prompt import instruction_text

folder = files("engine.transfer.llm").joinpath("templates")
texts = {t.name: t.read_bytes() for t in folder.iterdir() if t.name.endswith(".md")}
texts["manual"] = (docs_dir() / "cuir.md").read_bytes()
texts["rendered"] = instruction_text("keep the mask as it is").encode()
print(json.dumps({name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}))
"""


def test_prompts_are_the_same(checkout: Path, complete: list[str]) -> None:
    """What a model is asked is made of templates and of the manual: both come with the wheel."""
    from_wheel = json.loads(run([*complete[:2], "-c", PROMPTS], Path("/")))
    here = run([sys.executable, "-P", "-c", PROMPTS], Path("/"), PYTHONPATH=str(checkout))
    assert from_wheel == json.loads(here) and {"system.md", "task.md", "repair.md"} < set(
        from_wheel
    )


def test_version_and_metadata(installed: Path) -> None:
    shown = run([str(installed), "--version"], Path("/"))
    python = str(installed.parent / "python")
    code = "import importlib.metadata as m; print('cubridge', m.version('cubridge-tui'))"
    assert shown == run([python, "-c", code], Path("/"))
