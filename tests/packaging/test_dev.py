"""`./dev` and `.ci/run`, with pip and torch replaced by what records that it was asked."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import venv
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("pyproject.toml", "constraints.txt", "constraints-torch.txt")


def load(path: Path) -> ModuleType:
    loader = SourceFileLoader("dev_under_test", str(path))
    spec = importlib.util.spec_from_loader("dev_under_test", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def put_distribution(site: Path, name: str, version: str, text: str = "") -> Path:
    """Write a package and its metadata as pip leaves them."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(text)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{info.name}/METADATA,,\n")
    return info


class Workshop:
    """A checkout in a temporary folder, its `dev`, and a pip that only says what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder
        for name in (*INPUTS, "dev"):
            shutil.copy(ROOT / name, folder / name)
        self.dev = load(folder / "dev")
        self.checkout = self.dev.Checkout(str(folder))
        self.asked: list[list[str]] = []
        self.answer: Callable[[list[str]], int] = lambda arguments: 0
        monkeypatch.setattr(self.dev, "pip", self.pip)
        # A pip in name only makes a venv in a blink.
        monkeypatch.setattr(self.dev, "bootstrap_pip", self.bootstrap_pip)
        self.only_torch_of([], monkeypatch)

    def bootstrap_pip(self, checkout: object) -> int:
        put_distribution(self.site, "pip", "99")
        return 0

    def pip(self, checkout: object, arguments: list[str]) -> int:
        self.asked.append(arguments)
        code = self.answer(arguments)
        if code == 0 and arguments[-1] == "torch" and not self.dev.installed_torch(str(self.site)):
            put_distribution(self.site, "torch", "2.13.0")
        return code

    def only_torch_of(self, folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the starting interpreter have these site folders and no others."""
        others = [path for path in sys.path if not self.dev.is_site_folder(path)]
        monkeypatch.setattr(sys, "path", [*others, *map(str, folders)])

    def set_up(self, **options: bool) -> None:
        self.dev.set_up(self.checkout, **options)

    @property
    def site(self) -> Path:
        return Path(self.checkout.site_packages())

    @property
    def record(self) -> dict[str, str]:
        return json.loads((self.root / ".venv" / "cubridge-setup.json").read_text())


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    return Workshop(tmp_path, monkeypatch)


def test_a_fresh_checkout_gets_torch_first_then_the_rest(workshop: Workshop) -> None:
    workshop.set_up()
    torch, rest = workshop.asked
    install = ["install", "--no-compile"]
    assert torch == [*install, "-c", "constraints-torch.txt", "torch"]
    assert rest == [*install, "-c", "constraints.txt", "-e", ".[test]"]
    assert (workshop.root / ".venv" / "bin" / "python").exists()
    assert list((workshop.site / "torch" / "__pycache__").glob("__init__.*.pyc"))


def test_a_file_that_python_cannot_compile_stops_nothing(workshop: Workshop) -> None:
    def answer(arguments: list[str]) -> int:
        if arguments[-1] == "torch":
            site = workshop.site
            put_distribution(site, "templates", "1.0", "class {name}:")
            put_distribution(site, "torch", "2.13.0", "x = 1")
        return 0

    workshop.answer = answer
    workshop.set_up()
    assert workshop.record["done"]
    assert list((workshop.site / "torch" / "__pycache__").glob("__init__.*.pyc"))


def test_the_size_of_torch_is_said_before_it_is_fetched(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    said_before: list[str] = []

    def answer(arguments: list[str]) -> int:
        if arguments[-1] == "torch":
            said_before.append(capsys.readouterr().err)
        return 0

    workshop.answer = answer
    workshop.set_up()
    assert re.search(r"torch 2\.13\.0: about .* GB", said_before[0])


def test_compiling_is_said_before_it_begins(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes more than a minute on a small machine, after pip's own last words."""
    said_before: list[str] = []
    run = workshop.dev.python

    def python(checkout: object, arguments: list[str], **options: bool) -> int:
        if "compileall" in arguments:
            said_before.append(capsys.readouterr().err)
        code: int = run(checkout, arguments, **options)
        return code

    monkeypatch.setattr(workshop.dev, "python", python)
    workshop.set_up()
    assert len(said_before) == 1 and "compiling what was installed" in said_before[0]


def test_a_second_run_does_nothing(workshop: Workshop) -> None:
    workshop.set_up()
    workshop.asked.clear()
    workshop.set_up()
    assert workshop.asked == []


@pytest.mark.parametrize("name", INPUTS)
def test_a_changed_input_is_installed(workshop: Workshop, name: str) -> None:
    workshop.set_up()
    workshop.asked.clear()
    with open(workshop.root / name, "a") as file:
        file.write("\n# changed\n")
    workshop.set_up()
    assert [asked[-1] for asked in workshop.asked] == [".[test]"]


def test_the_cuda_extra_is_added_and_stays(workshop: Workshop) -> None:
    workshop.set_up()
    workshop.asked.clear()
    workshop.set_up(cuda=True, again=True)
    assert workshop.asked[-1][-1] == ".[test,cuda]"
    with open(workshop.root / "constraints.txt", "a") as file:
        file.write("# changed\n")
    workshop.set_up()
    assert workshop.asked[-1][-1] == ".[test,cuda]"


def lender(folder: Path, version: str) -> Path:
    site = folder / "elsewhere" / "site-packages"
    put_distribution(site, "torch", version, "def zeros(n): return n")
    return site


def test_the_torch_of_the_starting_python_is_used(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = lender(workshop.root, "2.7.1+cu128")
    workshop.only_torch_of([site], monkeypatch)
    workshop.set_up()
    assert [asked[-1] for asked in workshop.asked] == [".[test]"]
    where = [workshop.checkout.python, "-I", "-c", "import torch; print(torch.__file__)"]
    assert subprocess.check_output(where, text=True).strip() == str(site / "torch" / "__init__.py")

    workshop.only_torch_of([], monkeypatch)
    workshop.asked.clear()
    with open(workshop.root / "constraints.txt", "a") as file:
        file.write("# changed\n")
    workshop.set_up()
    assert [asked[-1] for asked in workshop.asked] == [".[test]"], "another Python keeps it"

    shutil.rmtree(site)
    workshop.only_torch_of([], monkeypatch)
    workshop.asked.clear()
    workshop.set_up()
    assert workshop.asked[0][-1] == "torch", "a lent torch that went away is noticed"
    assert not list(workshop.site.glob("*borrowed*"))


@pytest.mark.parametrize("version", ["2.5.1", "1.13.0"])
def test_an_old_torch_is_not_used(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    workshop.only_torch_of([lender(workshop.root, version)], monkeypatch)
    workshop.set_up()
    assert workshop.asked[0][-1] == "torch"


def test_a_torch_that_does_not_import_is_not_used(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = lender(workshop.root, "2.7.1")
    (site / "torch" / "__init__.py").write_text("raise ImportError('libcudart is missing')")
    workshop.only_torch_of([site], monkeypatch)
    workshop.set_up()
    assert workshop.asked[0][-1] == "torch"
    assert not list(workshop.site.glob("*borrowed*"))


def test_a_torch_that_cannot_be_installed_blocks_nothing_else(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.answer = lambda arguments: int(arguments[-1] == "torch")
    workshop.set_up()
    _, rest, ours = workshop.asked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    assert rest[:4] == ["install", "--no-compile", "-c", "constraints.txt"]
    assert rest[4:] == [line for line in wanted if not line.startswith("torch>")]
    assert ours == ["install", "--no-compile", "--no-deps", "-e", "."]
    assert "going on without it" in capsys.readouterr().err

    workshop.asked.clear()
    workshop.set_up()
    assert workshop.asked == [], "a plain run does not fetch gigabytes again by itself"
    assert "`./dev setup` tries again" in capsys.readouterr().err

    workshop.answer = lambda arguments: 0
    workshop.set_up(again=True)
    assert [asked[-1] for asked in workshop.asked] == ["torch", ".[test]"]
    assert workshop.record["torch"] == "there"


def test_a_failed_install_is_tried_again(workshop: Workshop) -> None:
    workshop.answer = lambda arguments: 2 * int(arguments[-1] == ".[test]")
    with pytest.raises(workshop.dev.SetupError, match="exit code 2"):
        workshop.set_up()
    workshop.answer = lambda arguments: 0
    workshop.asked.clear()
    workshop.set_up()
    assert [asked[-1] for asked in workshop.asked] == [".[test]"]


def test_what_an_interrupted_pip_left_half_is_installed_anew(workshop: Workshop) -> None:
    def stopped(arguments: list[str]) -> int:
        if arguments[-1] == ".[test]":
            put_distribution(workshop.site, "whole", "1.0")
            info = put_distribution(workshop.site, "lost", "1.0")
            (workshop.site / "lost" / "__init__.py").unlink()
            assert info.is_dir()
            (put_distribution(workshop.site, "unrecorded", "1.0") / "RECORD").unlink()
            raise KeyboardInterrupt
        return 0

    workshop.answer = stopped
    with pytest.raises(KeyboardInterrupt):
        workshop.set_up()
    workshop.answer = lambda arguments: 0
    workshop.set_up()
    left = {path.name for path in workshop.site.glob("*.dist-info")}
    assert left == {"pip-99.dist-info", "torch-2.13.0.dist-info", "whole-1.0.dist-info"}
    assert workshop.asked[-1][-1] == ".[test]"


def test_a_venv_that_was_only_half_made_is_made_anew(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(checkout: object) -> int:
        put_distribution(workshop.site, "pip", "99")
        (workshop.root / ".venv" / "junk").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(workshop.dev, "bootstrap_pip", stopped)
    with pytest.raises(KeyboardInterrupt):
        workshop.set_up()
    monkeypatch.setattr(workshop.dev, "bootstrap_pip", workshop.bootstrap_pip)
    workshop.set_up()
    assert not (workshop.root / ".venv" / "junk").exists()
    assert workshop.record["venv"] == "made"


def test_a_venv_of_the_person_that_works_is_kept(workshop: Workshop) -> None:
    venv.EnvBuilder().create(workshop.root / ".venv")
    workshop.bootstrap_pip(workshop.checkout)
    put_distribution(workshop.site, "mine", "1.0")
    workshop.set_up()
    assert (workshop.site / "mine").is_dir()


def test_a_venv_whose_python_is_gone_is_made_anew(workshop: Workshop) -> None:
    workshop.set_up()
    python = workshop.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/gone/python")
    workshop.set_up()
    assert python.exists()


def test_without_ensurepip_one_line_says_what_to_install(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str) -> object:
        return None if name == "ensurepip" else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(workshop.dev.SetupError) as caught:
        workshop.set_up()
    assert re.search(r"apt install python3\.\d+-venv", str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_second_run_waits_for_the_first_and_then_has_nothing_to_do(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.set_up()
    record = workshop.record
    workshop.asked.clear()
    (workshop.root / ".venv" / "cubridge-setup.json").unlink()
    first = os.open(workshop.root, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    second = threading.Thread(target=workshop.set_up)
    second.start()
    try:
        second.join(0.3)
        assert second.is_alive()
        assert workshop.asked == []
        workshop.checkout.save(record)
    finally:
        os.close(first)
    second.join(10)
    assert not second.is_alive()
    assert workshop.asked == []
    assert "waiting" in capsys.readouterr().err


def test_a_pip_that_outlives_its_run_keeps_the_next_one_waiting(
    workshop: Workshop, capfd: pytest.CaptureFixture[str]
) -> None:
    workshop.set_up()
    record = workshop.record
    (workshop.root / ".venv" / "cubridge-setup.json").unlink()
    # What a killed run leaves behind: a child that holds the lock, and nobody else.
    folder = os.open(workshop.root, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    workshop.checkout.lock = folder
    done = workshop.root / "done"
    child = f"import time, pathlib; time.sleep(0.6); pathlib.Path({str(done)!r}).touch()"
    orphan = threading.Thread(target=workshop.dev.python, args=(workshop.checkout, ["-c", child]))
    orphan.start()
    time.sleep(0.2)
    os.close(folder)
    workshop.checkout.lock = None
    workshop.checkout.save(record)
    with open(workshop.root / "constraints.txt", "a") as file:
        file.write("# changed\n")
    workshop.set_up()
    assert done.exists()
    orphan.join()
    assert "waiting" in capfd.readouterr().err


@pytest.fixture
def installed(workshop: Workshop) -> Workshop:
    """A checkout that is set up, whose programs print how they were called."""
    workshop.set_up()
    for name in ("cubridge", "python"):
        program = workshop.root / ".venv" / "bin" / name
        program.unlink(missing_ok=True)
        program.write_text(f'#!/bin/sh\necho {name} "$@"\npwd\nexit 7\n')
        program.chmod(0o755)
    return workshop


def dev(workshop: Workshop, *arguments: str, cwd: Path | None = None) -> tuple[int, list[str]]:
    result = subprocess.run(
        [sys.executable, str(workshop.root / "dev"), *arguments],
        cwd=cwd or workshop.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout.splitlines()


def test_run_passes_everything_on_from_the_current_folder(
    installed: Workshop, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    code, lines = dev(installed, "run", "kernels", "list", "--json", cwd=folder)
    assert (code, lines) == (7, ["cubridge kernels list --json", str(folder)])


def test_without_a_terminal_it_is_one_headless_adaptation(installed: Workshop) -> None:
    spec = installed.root / "kernels" / "specs" / "softcap_causal.py"
    code, lines = dev(installed)
    assert code == 7
    assert lines[0] == f"cubridge adapt --kernel flash_fwd_sm80 --spec {spec} --accept"


def test_test_runs_pytest_in_the_checkout(installed: Workshop) -> None:
    code, lines = dev(installed, "test", "dev", cwd=Path("/"))
    assert (code, lines) == (7, ["python -m pytest dev", str(installed.root)])


@pytest.mark.parametrize(
    ("arguments", "parallel"),
    [
        ([], True),
        (["-q"], True),
        (["-q", "--durations", "30", "-x"], True),
        (["-k", "swizzle"], True),
        (["-m", "engine"], True),
        (["-n", "0"], True),  # pytest takes the last -n
        (["--ignore=engine"], True),
        (["engine"], False),
        (["-q", "engine/test_it.py::test_one[a/b]"], False),
        (["-k", "engine", "engine/test_it.py"], False),
        (["-x", "engine/test_it.py"], False),
        (["--pdb"], False),
        (["-s", "-q"], False),
    ],
)
def test_only_a_path_or_a_terminal_makes_the_suite_one_process(
    installed: Workshop, arguments: list[str], parallel: bool
) -> None:
    (installed.root / "engine").mkdir()
    (installed.root / "engine" / "test_it.py").write_text("")
    workers = len(os.sched_getaffinity(0)) * 3 // 2
    spread = ["-n", str(workers), "--dist", "loadgroup"] if parallel else []
    ran = " ".join(["python -m pytest", *spread, *arguments])
    assert dev(installed, "test", *arguments)[1][0] == ran


def test_lint_runs_all_checks_also_after_one_failed(installed: Workshop) -> None:
    code, lines = dev(installed, "lint")
    assert code == 1
    assert [line for line in lines if line.startswith("python")] == [
        "python -m ruff check .",
        "python -m mypy --num-workers auto",
        "python -m pytest -q tests/packaging/test_imports.py",
    ]


@pytest.mark.parametrize("arguments", [["nonsense"], ["lint", "x"], ["setup", "--nonsense"]])
def test_wrong_usage_exits_2(installed: Workshop, arguments: list[str]) -> None:
    assert dev(installed, *arguments) == (2, [])


def test_a_run_with_nothing_to_set_up_costs_less_than_300_ms(installed: Workshop) -> None:
    def once() -> float:
        began = time.perf_counter()
        dev(installed, "run", "--version")
        return time.perf_counter() - began

    assert min(once() for _ in range(5)) < 0.3


def test_no_index_address_is_written_anywhere() -> None:
    for name in (*INPUTS, "dev", ".ci/run"):
        text = (ROOT / name).read_text()
        assert not re.search(r"https?://|index-url|find-links|file://", text), name


def test_every_dependency_says_why_it_is_there_and_is_pinned() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {name.lower().replace("_", "-") for name in pinned} | {"torch"}
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *extras["test"], *extras["cuda"]]:
        assert re.search(rf'^ +"{re.escape(requirement)}", +# \w', text, re.MULTILINE), requirement
        name = re.match(r"[\w.-]+", requirement)[0]
        assert name in pinned, f"{name} has no line in constraints.txt"


TESTS = "test --ignore=tests/packaging/test_imports.py"  # which are what `lint` tests


@pytest.fixture
def ci(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Run `.ci/run` over a `dev` that records its arguments and fails where told to, and where
    no byte code may be written."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "dev").write_text(
        '#!/bin/sh\necho "$*" >> log\n[ -z "$PYTHONDONTWRITEBYTECODE" ] || exit 5\n'
        'case "$FAILING" in *"[$*]"*) exit 5 ;; esac\n'
    )
    (tmp_path / "dev").chmod(0o755)

    def run(*failing: str) -> tuple[int, list[str]]:
        failures = "".join(f"[{command}]" for command in failing)
        environ = {**os.environ, "FAILING": failures, "PYTHONDONTWRITEBYTECODE": "1"}
        result = subprocess.run(
            ["bash", ".ci/run"], cwd=tmp_path, env=environ, capture_output=True, check=False
        )
        return result.returncode, (tmp_path / "log").read_text().splitlines()

    return run


@pytest.mark.parametrize(
    ("failing", "code"),
    [
        ((), 0),
        (("setup --cuda",), 0),
        (("lint",), 5),
        ((TESTS,), 5),
        (("test -m extras",), 5),
    ],
)
def test_ci_tests_what_the_readme_says_then_the_extras_and_fails_when_any_fails(
    ci: Callable[..., tuple[int, list[str]]], failing: tuple[str, ...], code: int
) -> None:
    assert ci(*failing) == (code, [TESTS, "lint", "setup --cuda", "test -m extras"])
