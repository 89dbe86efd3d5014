"""Where the kernels, specs, themes and documents that come with CuBridge are.

In a checkout (also an editable install of one) they are the checkout's own folders; in a wheel they
are installed as data beside `cubridge_tui`, since a top-level `kernels` would clash with other
libraries. Both give the same names and the same hashes, from any current folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tomllib
from functools import cache
from pathlib import Path

from engine.errors import InputError, MissingTool, advice

PROJECT = "cubridge-tui"
KERNEL_SOURCE = "kernel.cu"
SPECS = "specs"
INCLUDE = "include"


def data_root() -> Path:
    """The folder that holds `kernels`, `themes` and `docs`."""
    parent = Path(__file__).resolve().parent.parent
    return parent if _is_our_checkout(parent) else parent / "cubridge_tui" / "_data"


@cache
def _is_our_checkout(folder: Path) -> bool:
    """Asked for every name that is looked up, and the same as long as a process lives."""
    try:
        pyproject = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    project = pyproject.get("project")
    return isinstance(project, dict) and project.get("name") == PROJECT


def kernels_dir() -> Path:
    """`kernels/`: a folder per expert kernel, `include/`, `specs/`."""
    return _folder("kernels")


def include_dir() -> Path:
    """`kernels/include/`: the primitive headers that every kernel includes."""
    return kernels_dir() / INCLUDE


def specs_dir() -> Path:
    """`kernels/specs/`: the example specs."""
    return kernels_dir() / SPECS


def themes_dir() -> Path:
    """`themes/`: theme files (TOML)."""
    return _folder("themes")


def docs_dir() -> Path:
    """`docs/`: the documents that the program itself shows or sends (`cuir.md`)."""
    return _folder("docs")


def _folder(name: str) -> Path:
    folder = data_root() / name
    if not folder.is_dir():
        raise MissingTool(
            f"{folder} is missing, so this installation is not whole",
            fix="install again: pip install --force-reinstall cubridge-tui (or git checkout)",
        )
    return folder


def list_kernels() -> tuple[str, ...]:
    """The names of the bundled kernels, sorted: each folder that holds a `kernel.cu`."""
    return tuple(sorted(path.parent.name for path in kernels_dir().glob(f"*/{KERNEL_SOURCE}")))


def list_specs() -> tuple[str, ...]:
    """The names of the bundled specs, sorted: each `.py` file in `kernels/specs/`."""
    return tuple(sorted(path.stem for path in specs_dir().glob("[!_.]*.py")))


def kernel_dir(name: str) -> Path:
    """The folder of a bundled kernel: `kernel.cu` and what belongs to it."""
    names = list_kernels()
    if name not in names:
        raise InputError(
            f"there is no bundled kernel {name!r}",
            fix=advice(
                name,
                names,
                f"name one of: {', '.join(names) or '(none)'}; or give the path of a .cu file",
            ),
        )
    return kernels_dir() / name


def kernel_path(name: str) -> Path:
    """The source of a bundled kernel: `kernels/NAME/kernel.cu`."""
    return kernel_dir(name) / KERNEL_SOURCE


def spec_path(name_or_path: str) -> Path:
    """The file of a spec: a bundled spec's name, or the path of any Python file.

    A text with a folder separator or a `.py` ending is a path and never falls back to a name.
    """
    if "/" in name_or_path or name_or_path.endswith(".py"):
        path = Path(name_or_path).expanduser()
        if not os.path.isfile(path):  # false, too, where it may not be looked at
            raise InputError(
                _not_a_file(path, name_or_path),
                fix=advice(
                    name_or_path,
                    _beside(path),
                    "give the path of a Python file, or a name that `cubridge specs list` shows",
                ),
            )
        return path.resolve()
    names = list_specs()
    if name_or_path not in names:
        raise InputError(
            f"there is no bundled spec {name_or_path!r}",
            fix=advice(
                name_or_path,
                names,
                f"name one of: {', '.join(names) or '(none)'}; or give the path of a .py file",
            ),
        )
    return specs_dir() / f"{name_or_path}.py"


def _beside(path: Path) -> list[str]:
    """The Python files of a path's folder, as that path would name them; the bundled specs."""
    try:
        there = (p.name for p in path.parent.iterdir() if p.suffix == ".py")
        files = sorted(name for name in there if name != path.name)  # what it is not, said before
    except (OSError, ValueError):
        files = []
    return [*(str(path.parent / name) for name in files), *list_specs()]


def _not_a_file(path: Path, name: str) -> str:
    """What stands where a spec's file should: the words of the error."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"{name} is a symbolic link that leads back to itself"
        if error.errno == errno.ENAMETOOLONG:
            return f"the name of the spec file is too long: {name[:40]}..."
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"{name} may not be read: {error.strerror}"
        if path.is_symlink():
            return f"{name} is a symbolic link to {path.readlink()}, which does not exist"
        return f"there is no spec file {name}"
    except ValueError:  # a NUL in it
        return f"no file can be called {name!r}"
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"),
             (stat.S_ISSOCK, "a socket"))  # fmt: skip
    what = next((words for test, words in kinds if test(mode)), "a device")
    return f"{name} is {what}, not a spec file"


def content_hash(path: Path) -> str:
    """SHA-256, as hex, of a file's bytes, or of a folder's sorted relative names and bytes.

    Byte code and hidden files in a folder are not content: they come and go by themselves.
    """
    if not path.is_dir():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for name in sorted(_content_names(path)):
        data = (path / name).read_bytes()
        # Lengths keep apart what a name or a file's end could otherwise imitate.
        head = name.encode("utf-8")
        digest.update(b"%d %d\n" % (len(head), len(data)) + head + data)
    return digest.hexdigest()


def _content_names(folder: Path) -> list[str]:
    names = []
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            names.append(relative.as_posix())
    return names
