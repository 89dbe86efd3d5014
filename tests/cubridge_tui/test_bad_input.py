"""Bad input ends in one clear error: exit code, empty standard output, no traceback, a fix."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.resources import kernel_dir, specs_dir

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

HEAD = """import torch
from jaxtyping import Float
from torch import Tensor

"""
QKV = 'q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]'
SPECS = {
    "syntax error": "def attention(q, k, v:\n    return q\n",
    "never multiplies q and k": HEAD + f"def attention({QKV}):\n    return v[..., :1, :] + 0 * q\n",
    "extra input without annotation": HEAD
    + f"def attention({QKV}, bias):\n    return torch.softmax(q @ k.mT + bias, -1) @ v\n",
    "data-dependent control flow": HEAD
    + f"def attention({QKV}):\n    s = q @ k.mT\n    if s.max() > 1:\n        s = s / 2\n"
    + "    return torch.softmax(s, -1) @ v\n",
    "no attention function": HEAD + "def something(q):\n    return q\n",
    "an empty file": "",
}


def check_error(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("name", sorted(SPECS))
def test_specs(name: str, tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "spec.py"
    path.write_text(SPECS[name])
    check_error(cubridge("recipe", str(path), "--json"), 2, "spec.py:")


def test_a_spec_that_does_not_exist(cubridge: Run) -> None:
    check_error(cubridge("recipe", "nowhere/spec.py"), 2, "fix:")
    check_error(cubridge("adapt", "--kernel", "flash_fwd_sm80", "--spec", "no_such"), 2, "fix:")


def test_a_kernel_that_is_not_cuda(tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "kernel.cu"
    texts = ("Dear reader, this is a letter.\n", "", "\x00\x01\x02", "int main() { return 0; }\n")
    for text in texts:
        path.write_text(text)
        check_error(cubridge("lift", str(path), "--json"), 2, "kernel.cu")
    spec = str(specs_dir() / "causal.py")
    check_error(cubridge("adapt", "--kernel", str(path), "--spec", spec), 2, "fix:")


def test_a_kernel_that_is_a_device(cubridge: Run) -> None:
    check_error(cubridge("lift", "/dev/zero", "--json"), 2, "/dev/zero", "fix:")


def test_an_arch_that_the_kernel_refuses(cubridge: Run) -> None:
    spec = str(specs_dir() / "causal.py")
    done = cubridge("adapt", "--kernel", "flash_fwd_sm80", "--spec", spec, "--arch", "sm_75")
    check_error(done, 2, "sm_75", "Turing")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("specialisation(arch='sm_80'\n", "1"),
        ("import os\n", "import"),
        ("specialisation(arch='sm_80')\n\n\nclass Args:\n    q: tensor\n\n\n"
         "@host\ndef launch(args):\n    eval('1')\n", "eval"),
        ("while True:\n    pass\n", "1"),
    ],
)  # fmt: skip
def test_cuir_that_is_none(text: str, word: str, tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "module.cuir"
    path.write_text(text)
    done = cubridge("check", str(path))
    assert done.returncode in (1, 2) and "Traceback" not in done.stderr
    assert word in done.stdout + done.stderr
    assert "module.cuir:" in done.stdout + done.stderr


def test_a_missing_nvcc_is_not_run_with_the_fix(tmp_path: Path, cubridge: Run) -> None:
    """Without a compiler the gates before it still run; G3 says what to install."""
    spec = str(specs_dir() / "full.py")
    environ = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(tmp_path)}
    done = cubridge(
        "adapt", "--kernel", "flash_fwd_sm80", "--head-dim", "64", "--spec", spec, "--json",
        environ=environ,
    )  # fmt: skip
    stages = {row["name"]: row for row in json.loads(done.stdout)["stages"]}
    assert stages["target"]["verdict"] == "pass"
    assert stages["lowered"]["verdict"] in ("not_run", "pass")
    if stages["lowered"]["verdict"] == "not_run":
        assert "nvcc" in stages["lowered"]["reason"]


def test_a_folder_that_is_not_our_store(tmp_path: Path, cubridge: Run) -> None:
    (tmp_path / "thesis.txt").write_text("chapter one")
    check_error(cubridge("sessions", "list", "--store", str(tmp_path)), 2, "not a CuBridge store")
    assert (tmp_path / "thesis.txt").read_text() == "chapter one"


def test_sessions_that_do_not_exist(cubridge: Run) -> None:
    for words in (
        ("sessions", "show", "nothing"), ("replay", "nothing"), ("export", "nothing", "/tmp/x"),
        ("lower", "nothing"), ("check", "nothing"), ("verify", "nothing"),
        ("sessions", "show"), ("sessions", "show", "--upload-pack=x"),
    ):  # fmt: skip
        done = cubridge(*words)
        assert done.returncode == 2 and done.stdout == "", (words, done.stderr)
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("streams", "code", "errors"),
    [(">&-", 0, ""), ("2>&-", 0, ""), ("<&- >&- 2>&-", 0, ""), (">/dev/full", 2, "no space left")],
)
def test_streams_that_are_closed_or_full(streams: str, code: int, errors: str) -> None:
    program = "import sys; from cubridge_tui.cli import main; sys.exit(main(['kernels', 'list']))"
    shell = ["sh", "-c", f'exec "$0" -c "{program}" {streams}', sys.executable]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == code, done.stderr
    assert errors in done.stderr and "internal error" not in done.stderr


def test_narration_without_standard_error_is_no_output() -> None:
    program = "import sys; from cubridge_tui.cli import main; sys.exit(main(['lift', 'nothing']))"
    shell = ["sh", "-c", f'exec "$0" -c "{program}" 2>&-', sys.executable]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_hostile_current_folder(tmp_path: Path, cubridge: Run) -> None:
    for name in ("torch.py", "ast.py", "json.py", "numpy.py"):
        (tmp_path / name).write_text("raise SystemExit('hijacked')\n")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('hijacked')\n")
    spec = tmp_path / "mine.py"
    spec.write_bytes((specs_dir() / "causal.py").read_bytes())
    done = cubridge("recipe", str(spec), "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recipe"]


def test_a_kernel_package_with_a_wrong_key(tmp_path: Path, cubridge: Run) -> None:
    import shutil

    package = tmp_path / "mine"
    shutil.copytree(kernel_dir("flash_fwd_sm80"), package)
    manifest = package / "kernel.toml"
    manifest.write_text(manifest.read_text().replace("archs =", "arches ="))
    check_error(cubridge("lift", str(package), "--json"), 2, "kernel.toml", "arches")
