"""The command line's contract: exit codes, one JSON object, one clear message, no surprises."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import types
from pathlib import Path

import pytest

from cubridge_tui import __version__, cli
from cubridge_tui.console import printable
from engine import errors


def test_version(cubridge_process) -> None:
    result = cubridge_process("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"cubridge {__version__}\n", "")


def test_version_takes_less_than_four_bare_pythons(root: Path) -> None:
    def spent() -> float:  # processor seconds: what else the machine does is no part of it
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def fastest(*arguments: str) -> float:
        def once() -> float:
            began = spent()
            subprocess.run(
                [sys.executable, "-P", *arguments],
                env={**os.environ, "PYTHONPATH": str(root)},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            return spent() - began

        return min(once() for _ in range(12))

    assert fastest("-m", "cubridge_tui", "--version") < 4 * fastest("-c", "pass")


def test_help_names_every_command_and_imports_none(cubridge_process) -> None:
    result = cubridge_process("--help")
    assert result.returncode == 0
    assert all(name in result.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_of_the_table_explains_itself(cubridge_process, name: str) -> None:
    result = cubridge_process(name, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: cubridge {name}")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["kernels"], ["kernels", "list", "--nonsense"]]
)
def test_wrong_usage_exits_2_with_an_empty_standard_output(
    cubridge_process, arguments: list[str]
) -> None:
    result = cubridge_process(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("command", "key"), [("kernels", "kernels"), ("specs", "specs")])
def test_lists_are_one_json_object(cubridge_process, command: str, key: str) -> None:
    result = cubridge_process(command, "list", "--json")
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    plain = cubridge_process(command, "list").stdout.splitlines()
    names = [line.split()[0] for line in plain if not line.startswith(" ")]
    assert [entry["name"] for entry in shown[key]] == names
    assert all(len(entry["sha256"]) == 64 for entry in shown[key])


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules end the process that imports one of them."""
    for name in ("torch", "ast", "json", "argparse", "tomllib", "hashlib", "tempfile"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(66)\n")
    for name in ("engine", "sessions", "nvidia"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import os; os._exit(66)\n")
    (tmp_path / "kernels" / "mine").mkdir(parents=True)
    (tmp_path / "kernels" / "mine" / "kernel.cu").write_text("// not ours\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cubridge-tui"\n')
    return tmp_path


@pytest.mark.parametrize("arguments", [["--version"], ["kernels", "list", "--json"], ["doctor"]])
def test_the_current_folder_is_never_ours(
    cubridge_process, hostile: Path, arguments: list[str]
) -> None:
    here = cubridge_process(*arguments, cwd=hostile)
    elsewhere = cubridge_process(*arguments, cwd=Path("/"))
    assert here.returncode == elsewhere.returncode, here.stderr
    assert here.stdout == elsewhere.stdout
    assert "mine" not in here.stdout


def test_starting_it_as_a_module_also_leaves_the_current_folder_out(
    root: Path, hostile: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "cubridge_tui", "specs", "list", "--json"],
        cwd=hostile,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["folder"] == str(root / "kernels" / "specs")


@pytest.mark.parametrize("name", cli.OURS)
@pytest.mark.parametrize("arguments", [["kernels", "list"], ["nonsense"], []])
def test_a_namesake_on_the_python_path_is_said_before_it_is_imported(
    root: Path, tmp_path: Path, name: str, arguments: list[str]
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("import os; os._exit(66)\n")
    result = subprocess.run(
        [sys.executable, "-P", "-m", "cubridge_tui", *arguments],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (2, "")
    assert str(tmp_path / name) in result.stderr and "PYTHONPATH" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_leaves_is_no_error_message(root: Path) -> None:
    script = f"{sys.executable} -P -m cubridge_tui doctor --json | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    # 0 or 3 when the whole answer fitted into the pipe before the reader left.
    assert int(result.stdout) in (0, 3, cli.READER_GONE)


def run_raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """The exit code of a command that ends with `error`."""

    def run(args: object) -> int:
        raise error

    module = types.ModuleType("raising")
    module.configure = lambda parser: None  # type: ignore[attr-defined]
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "raising", module)
    monkeypatch.setitem(cli.COMMANDS, "raising", ("raising", "raises"))
    return cli.main(["raising"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError("bad", where=errors.Where("s.py", 3), fix="do"), 2),
        (errors.SpecError("bad"), 2),
        (errors.TransferError("bad"), 1),
        (errors.MissingTool("bad", fix="type this"), 3),
        (errors.Interrupted("bad"), 130),
        (FileNotFoundError(2, "No such file or directory", "gone.cu"), 2),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), cli.READER_GONE),
        (ZeroDivisionError("a fault"), cli.INTERNAL_ERROR),
    ],
)
def test_every_error_is_one_message_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    written = {1, sys.stdout.fileno()}  # a reader that is gone has the null device put there
    kept = {number: os.dup(number) for number in written}
    try:
        assert run_raising(monkeypatch, error) == code
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    if isinstance(error, errors.CuBridgeError):
        assert err == f"cubridge: {error}\n"


def test_messages_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    error = errors.InputError("\x1b]0;title\x07 \x1b[2J [bold]x[/] \u202etxt\u2069 \x9b31m é")
    run_raising(monkeypatch, error)
    err = capfd.readouterr().err
    assert not set(err) & set("\x1b\x07\x9b\u202e\u2069")
    assert "\\x1b]0;title\\x07" in err
    assert "[bold]x[/]" in err
    assert "é" in err


def test_printable_keeps_what_is_printable() -> None:
    assert printable("softmax(q·kᵀ)\tλ\n") == "softmax(q·kᵀ)\tλ\n"
    assert printable("a\rb\x00") == "a\\rb\\x00"


@pytest.mark.parametrize("missing", ["stdin", "stdout", "stderr"])
def test_the_app_needs_all_three_streams_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    """It draws on standard error: one that goes to a file would leave the screen empty."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda name=name: name != missing)
    assert cli.main([]) == 2
    assert "needs a terminal" in capsys.readouterr().err
