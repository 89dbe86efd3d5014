"""Resources: the checkout's folders or the installed data, their names and their hashes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import resources
from engine.errors import InputError, MissingTool


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root of our own: two kernels, headers, two specs."""
    files = {
        "kernels/beta/kernel.cu": "b",
        "kernels/alpha/kernel.cu": "a",
        "kernels/alpha/reference.toml": "r",
        "kernels/no_kernel/notes.txt": "n",
        "kernels/include/mma.cuh": "m",
        "kernels/specs/softcap.py": "s",
        "kernels/specs/alibi.py": "l",
        "kernels/specs/_helpers.py": "h",
        "themes/dark.toml": "t",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(resources, "data_root", lambda: tmp_path)
    return tmp_path


def test_a_checkout_uses_its_own_folders(root: Path) -> None:
    assert resources.data_root() == root
    assert resources.kernels_dir() == root / "kernels"
    assert resources.specs_dir() == root / "kernels" / "specs"


def test_kernels_are_folders_with_a_source(data: Path) -> None:
    assert resources.list_kernels() == ("alpha", "beta")
    assert resources.kernel_path("alpha") == data / "kernels" / "alpha" / "kernel.cu"
    assert resources.kernel_dir("beta") == data / "kernels" / "beta"


@pytest.mark.parametrize("name", ["gamma", "no_kernel", "include", "specs", "../kernels/alpha", ""])
def test_an_unknown_kernel_names_the_known_ones(data: Path, name: str) -> None:
    with pytest.raises(InputError, match="alpha, beta"):
        resources.kernel_path(name)


def test_specs_by_name_or_by_path(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources.list_specs() == ("alibi", "softcap")
    bundled = data / "kernels" / "specs" / "softcap.py"
    assert resources.spec_path("softcap") == bundled
    monkeypatch.chdir(data / "kernels")
    assert resources.spec_path("specs/softcap.py") == bundled
    assert resources.spec_path(str(bundled)) == bundled


def test_a_path_never_falls_back_to_a_name(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"there is no spec file softcap\.py"):
        resources.spec_path("softcap.py")
    with pytest.raises(InputError, match="alibi, softcap"):
        resources.spec_path("nonsense")


def test_what_is_missing_says_how_to_get_it(data: Path) -> None:
    with pytest.raises(MissingTool, match="pip install"):
        resources.docs_dir()


def copy_engine(root: Path, target: Path) -> Path:
    shutil.copytree(
        root / "engine", target / "engine", ignore=shutil.ignore_patterns("__pycache__")
    )
    return target


def data_root_of(installation: Path) -> str:
    code = "from engine.resources import data_root; print(data_root())"
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(installation)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize(
    ("pyproject", "is_checkout"),
    [
        ('[project]\nname = "cubridge-tui"\n', True),
        ('[project]\nname = "another"\n', False),
        ("not toml [", False),
        (None, False),
    ],
)
def test_only_a_pyproject_that_names_us_makes_a_checkout(
    root: Path, tmp_path: Path, pyproject: str | None, is_checkout: bool
) -> None:
    copy_engine(root, tmp_path)
    if pyproject is not None:
        (tmp_path / "pyproject.toml").write_text(pyproject)
    expected = tmp_path if is_checkout else tmp_path / "cubridge_tui" / "_data"
    assert data_root_of(tmp_path) == str(expected)


def test_byte_code_and_hidden_files_are_not_content(data: Path) -> None:
    folder = data / "kernels"
    before = resources.content_hash(folder)
    (folder / "specs" / "__pycache__").mkdir()
    (folder / "specs" / "__pycache__" / "softcap.cpython-311.pyc").write_bytes(b"x")
    (folder / ".DS_Store").write_bytes(b"x")
    assert resources.content_hash(folder) == before


def test_a_hash_sees_every_byte_and_name(data: Path) -> None:
    folder = data / "kernels" / "alpha"
    seen = {resources.content_hash(folder)}
    (folder / "kernel.cu").write_text("a\n")
    seen.add(resources.content_hash(folder))
    (folder / "kernel.cu").rename(folder / "other.cu")
    seen.add(resources.content_hash(folder))
    (folder / "empty").write_text("")
    seen.add(resources.content_hash(folder))
    assert len(seen) == 4


NAMES = st.text("ab1 \n", min_size=1, max_size=3).filter(lambda name: name.strip() == name)
FOLDERS = st.dictionaries(NAMES, st.binary(max_size=6), max_size=3)


@given(FOLDERS, FOLDERS)
def test_equal_hashes_mean_equal_folders(
    tmp_path_factory: pytest.TempPathFactory, left: dict[str, bytes], right: dict[str, bytes]
) -> None:
    def hashed(content: dict[str, bytes]) -> str:
        folder = tmp_path_factory.mktemp("folder")
        for name, data in content.items():
            (folder / name).write_bytes(data)
        return resources.content_hash(folder)

    assert (hashed(left) == hashed(right)) == (left == right)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "a.py").symlink_to("b.py")
    (tmp_path / "b.py").symlink_to("a.py")
    (tmp_path / "dangling.py").symlink_to("gone.py")
    for name, words in (
        ("pipe.py", "is a named pipe, not a spec file"),
        ("folder.py", "is a folder, not a spec file"),
        ("a.py", "is a symbolic link that leads back to itself"),
        ("dangling.py", r"is a symbolic link to gone\.py, which does not exist"),
        ("x" * 400 + ".py", "is too long"),
        ("nul\0.py", "no file can be called"),
    ):
        with pytest.raises(InputError, match=words):
            resources.spec_path(str(tmp_path / name))
    with pytest.raises(InputError, match="is a device, not a spec file"):
        resources.spec_path("/dev/null")


def test_the_checkout_is_recognised_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pyproject was read for every name: half of what the start screen cost."""
    read: list[str] = []

    real = tomllib.loads

    def loads(text: str) -> dict[str, object]:
        read.append(text)
        return real(text)

    resources._is_our_checkout.cache_clear()
    monkeypatch.setattr(tomllib, "loads", loads)
    for name in resources.list_specs():
        assert resources.spec_path(name).is_file()
    assert len(read) == 1
