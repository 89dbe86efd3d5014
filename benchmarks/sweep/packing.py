"""A folder that sweeps on a machine with Python, torch and nvcc, and without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

WHEELS = ("z3-solver", "tree-sitter", "tree-sitter-cuda")  # torch brings the rest
PYTHONS = ("3.11", "3.12", "3.13")
GLIBC = (39, 35, 34, 31, 28, 27, 24, 17)
TREE = ("engine", "kernels", "tests/engine/lower", "tests/engine/lift", "tests/engine/spec",
        "tests/mutants", "benchmarks/sweep", "pyproject.toml")  # fmt: skip
RUN = '''\
"""The sweep from this folder: python3 run.py run --jobs 16 --seconds 540 --log LOG."""
import os
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
SITE = HERE / f"site-{TAG}"
if not SITE.exists():
    for wheel in sorted((HERE / "wheels").glob("*.whl")):
        if TAG in wheel.name or "abi3" in wheel.name or "py3-none" in wheel.name:
            zipfile.ZipFile(wheel).extractall(SITE.with_suffix(".part"))
    os.replace(SITE.with_suffix(".part"), SITE)
os.chdir(HERE / "tree")
paths = [str(HERE / "tree"), str(SITE), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
os.environ["OMP_NUM_THREADS"] = "1"
os.execv(sys.executable, [sys.executable, "-m", "benchmarks.sweep", *sys.argv[1:]])
'''


def pack(root: Path, folder: Path, log: Path) -> None:
    """The tree at `root`, its wheels and, where there is one, the log so far."""
    shutil.rmtree(folder / "tree", ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *TREE],
        cwd=root, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        to = folder / "tree" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, to)
    # A machine may have packages of these names; a folder without this file would stand back.
    for package in ("benchmarks", "tests", "tests/engine"):
        (folder / "tree" / package / "__init__.py").write_text("")
    if not list((folder / "wheels").glob("*.whl")):
        _fetch(folder / "wheels")
    (folder / "run.py").write_text(RUN)
    if log.exists():
        shutil.copyfile(log, folder / "sweep.jsonl")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 2**20:.0f} MiB; python3 {folder}/run.py run --help")


def _fetch(folder: Path) -> None:
    """The wheels that this venv has, for each Python."""
    platforms = [f"--platform=manylinux_2_{n}_x86_64" for n in GLIBC]
    platforms += ["--platform=manylinux2014_x86_64"]
    for python in PYTHONS:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
             f"--python-version={python}", "--implementation=cp", *platforms, "-d", str(folder),
             *(f"{name}=={version(name)}" for name in WHEELS)],
            check=True,
        )  # fmt: skip
