"""Bad input ends in one clear error: exit code, empty standard output, no traceback, a fix."""

from __future__ import annotations

import json
import re
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


def test_what_takes_long_before_the_first_line_is_said(cubridge: Run) -> None:
    done = cubridge("recipe", str(specs_dir() / "causal.py"))
    assert done.returncode == 0 and "reading causal.py with torch" in done.stderr
    assert "reading" not in done.stdout.splitlines()[0]


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


def test_a_link_to_nothing(tmp_path: Path, cubridge: Run) -> None:
    for name, command in (("kernel.cu", "lift"), ("spec.py", "recipe")):
        (tmp_path / name).symlink_to(tmp_path / "gone")
        done = cubridge(command, str(tmp_path / name), "--json")
        check_error(done, 2, name, "fix:")
        assert "do you mean" not in done.stderr


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


CUIR = """specialisation(arch='sm_80')


class Args:
    N: i32


@host
def launch(args):
    n = args.N
"""


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ("args.N\0", ":10:", "a null byte"),
        ("(" * 3000 + "args.N" + ")" * 3000, ":10:", "nested"),
        ("-" * 20000 + "args.N", ":10:", "nested too deeply"),
        ("1" * 5000, ":10:", "a whole number of more than 64 bits"),
        ("1" * 400, ":10:", "a whole number of more than 64 bits"),
        ("args.", ":10:", "invalid syntax"),
    ],
    ids=["null", "brackets", "signs", "digits", "wide", "unfinished"],
)
def test_cuir_that_cannot_be_read_is_told_with_its_place_and_a_fix(
    value: str, place: str, words: str, tmp_path: Path, cubridge: Run
) -> None:
    path = tmp_path / "module.cuir"
    path.write_text(CUIR.replace("args.N", value))
    check_error(cubridge("check", str(path)), 2, f"{path}{place}", words, "fix:")


def test_cuir_with_a_byte_order_mark_is_read(tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "module.cuir"
    path.write_text(CUIR, encoding="utf-8-sig")
    done = cubridge("check", str(path))
    assert done.returncode == 0 and "no findings" in done.stdout, done.stderr


def test_a_null_byte_in_a_spec_has_its_line(tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "spec.py"
    path.write_text("import torch\n\nx = 1\0\n")
    check_error(cubridge("recipe", str(path)), 2, f"{path}:3: not Python: a null byte", "fix:")


@pytest.mark.extras
def test_a_missing_nvcc_is_not_run_with_the_fix(tmp_path: Path, cubridge: Run) -> None:
    """Without a compiler the gates before it still run; G3 says what to install.

    The wheels of the `cuda` extra cannot be hidden from the command: with them it compiles.
    """
    spec = str(specs_dir() / "full.py")
    environ = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(tmp_path)}
    done = cubridge(
        "adapt", "--kernel", "flash_fwd_sm80", "--head-dim", "64", "--spec", spec, "--json",
        "--accept", environ=environ,
    )  # fmt: skip
    assert done.returncode == 0
    stages = {row["name"]: row for row in json.loads(done.stdout)["stages"]}
    assert stages["target"]["verdict"] == "pass"
    assert stages["lowered"]["verdict"] in ("not_run", "pass")
    if stages["lowered"]["verdict"] == "not_run":
        assert "nvcc" in stages["lowered"]["reason"]
        assert "not accepted" in done.stderr
        # As it is typed here: `cubridge` where PATH has it, `./dev run` in a checkout.
        assert re.search(r"`\S+( run| -m cubridge_tui)? doctor`", done.stderr), done.stderr


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
    [
        (">&-", 2, "standard output is closed"),
        ("2>&-", 0, ""),
        ("<&- >&- 2>&-", 2, ""),
        (">/dev/full", 2, "send standard output elsewhere"),
    ],
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


ENDS = {
    "os._exit": ("os._exit(0)", "exit code 0", False),
    "sys.exit": ("sys.exit('bye')", "SystemExit: bye", True),
    "a segmentation fault": ("ctypes.string_at(0)", "signal 11", True),
    # How Python ends without its streams differs: what is said of it does not.
    "no streams left": ("os.closerange(0, 256)", "the process that ran it (", False),
    "a text of megabytes": ("raise ValueError('x' * 10_000_000)", "ValueError: xxx", True),
    "an exception without a text": ("raise Mute", "Mute: Mute", True),
    "an interrupt of its own": ("raise KeyboardInterrupt", "KeyboardInterrupt", True),
}


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_spec_that_ends_its_process(name: str, tmp_path: Path, cubridge: Run) -> None:
    body, words, at_line = ENDS[name]
    path = tmp_path / "spec.py"
    mute = "class Mute(Exception):\n    def __str__(self): return 1 / 0\n"
    text = f"import ctypes, os, sys\n{HEAD}{mute}def attention({QKV}):\n    {body}\n"
    path.write_text(text)
    line = f":{text.count(chr(10))}:" if at_line else ": "
    done = cubridge("recipe", str(path), "--json")
    check_error(done, 2, f"{path}{line}", words, "fix:")
    assert len(done.stderr) < 2000
    if name in ("os._exit", "a segmentation fault"):  # the way of all of them
        words_of_adapt = ("--kernel", "flash_fwd_sm80", "--spec", str(path), "--json")
        check_error(cubridge("adapt", *words_of_adapt), 2, f"{path}{line}", words, "fix:")


def test_a_spec_that_patches_json_and_prints_is_read(tmp_path: Path, cubridge: Run) -> None:
    path = tmp_path / "spec.py"
    body = (
        "    import json, os\n    json.dumps = json.loads = json.JSONEncoder.encode = None\n"
        "    print('{}'); os.write(1, b'noise')\n"
        "    return torch.softmax(q @ k.mT, -1) @ v\n"
    )
    path.write_text(f"{HEAD}def attention({QKV}):\n{body}")
    done = cubridge("recipe", str(path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recipe"]


@pytest.mark.parametrize("value", ["window=abc", "window=2.5", "window=[1]", "widow=3"])
def test_an_option_that_does_not_fit_is_named(value: str, cubridge: Run) -> None:
    done = cubridge("recipe", "sliding_window_causal", "--set", value)
    check_error(done, 2, f"--set {value.split('=')[0]}", "fix:", "window")
    assert "sliding_window_causal.py: " in done.stderr  # the file, and none of its lines


def test_a_head_size_that_is_none(tmp_path: Path, cubridge: Run) -> None:
    for word in ("abc", "-1", "0", "1.5", "²"):
        done = cubridge("lift", "flash_fwd_sm80", f"--head-dim={word}")
        check_error(done, 2, "--head-dim", "is no head size: give a number, such as 128")
    done = cubridge("lift", "flash_fwd_sm80", "--head-dim", "63")
    check_error(done, 2, "has no specialisation bf16_63", "fix: name one of:")
    path = tmp_path / "bare.cu"
    path.write_bytes((kernel_dir("flash_fwd_sm80") / "kernel.cu").read_bytes())
    check_error(cubridge("lift", str(path), "--head-dim", "64"), 2, "--dtype bf16 --head-dim 128")


def test_fixes_name_commands_that_can_be_typed(tmp_path: Path, cubridge: Run) -> None:
    nowhere = {"PATH": str(tmp_path)}
    done = cubridge("sessions", "show", environ=nowhere)
    check_error(done, 2, "fix: ")
    command = done.stderr.split("fix: ")[1].split(" sessions list")[0]
    assert command == f"{ROOT / 'dev'} run" or command == "cubridge", done.stderr
    assert (
        "./dev run sessions list" in cubridge("sessions", "show", cwd=ROOT, environ=nowhere).stderr
    )
    (tmp_path / "cubridge").write_text("#!/bin/sh\n")
    (tmp_path / "cubridge").chmod(0o755)
    assert "fix: cubridge sessions list" in cubridge("sessions", "show", environ=nowhere).stderr


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
from cubridge_tui.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_store_that_cannot_be_written_is_said_before_the_work(
    proposed: tuple[Path, str], tmp_path: Path, cubridge: Run
) -> None:
    store, session = proposed
    adapt = ("adapt", "--kernel", "flash_fwd_sm80", "--spec", "causal", "--json")
    for words in (("check", session), ("lower", session), adapt):
        done = subprocess.run(
            [sys.executable, "-P", "-c", FULL, *words, "--store", str(store)],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=ROOT,
            timeout=60,
        )  # fmt: skip
        check_error(done, 2, "disk is full", f"fix: free space for {store}, then type:")
        before = done.stderr.partition("cubridge: ")[0].replace(str(store), "")
        assert "G1" not in before and "lower" not in before
    assert not (tmp_path / "other").exists()
    check_error(cubridge(*adapt, "--store", "/dev/null/store.git"), 2, "/dev/null", "fix:")
    check_error(cubridge(*adapt, "--store", "/proc/store.git"), 2, "/proc", "fix:")
