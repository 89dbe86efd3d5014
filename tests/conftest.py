"""What every test shares: a store of its own, the command line, the CUDA compiler."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from engine.build.tools.toolchain import Origin, Toolchain, find_toolchain
from engine.child import client
from engine.errors import MissingTool
from tests import judged_once
from tests.forked_commands import Forks

ROOT = Path(__file__).resolve().parent.parent

# Examples share two cores with compilers and torch, so time per example says nothing.
settings.register_profile("cubridge", deadline=None, print_blob=True)
settings.load_profile("cubridge")

# Thousands of tests and their modules stay until the end: the collector need not walk them for
# every test again, which took a tenth of the suite's time.
gc.disable()

# Two workers with a thread pool per core each only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker runs all tests of a file that share what was made once for the file.

    Singly, they would go to every worker, and each would build its wheel and compile its kernels.
    """
    if "extras" in config.getoption("markexpr") and nvcc_is_from_wheels():
        for item in items:
            if "toolchain" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.extras)
    for item in items:
        if shares_with_its_file(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.stem}"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m extras` collects the few files that have the mark, or will have it because they ask for
    the compiler: all of them take every worker 10 s."""
    if config.getoption("markexpr") != "extras" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_bytes()
    marked = b"mark.extras" in text or (b"toolchain" in text and nvcc_is_from_wheels())
    return None if marked else True


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


@cache
def nvcc_is_from_wheels() -> bool:
    """Whether the tests that compile do so only thanks to the `cuda` extra."""
    try:
        return find_toolchain().nvcc.origin is Origin.WHEELS
    except MissingTool:
        return False


def shares_with_its_file(item: pytest.Item) -> bool:
    """Whether the test asks for a fixture of its module's or its class's scope."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return False
    return any(made[-1].scope in ("class", "module") for made in info.name2fixturedefs.values())


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def _stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders by number: pytest's own way looks through all that are there for each new one."""
    folder = tmp_path_factory.mktemp("stores")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_store(_stores: Iterator[Path]) -> Iterator[None]:
    """No test, and no process that a test starts, writes into the store of the person."""
    with pytest.MonkeyPatch.context() as patch:
        folder = next(_stores)
        folder.mkdir()
        patch.setenv("CUBRIDGE_STORE", str(folder / "store.git"))
        yield


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The CUDA compiler; a test that needs it is skipped where there is none."""
    try:
        return find_toolchain()
    except MissingTool as error:
        pytest.skip(str(error))


RunCubridge = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def _forks(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    base = tmp_path_factory.getbasetemp()
    answers = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "answers"
    answers.mkdir(exist_ok=True)
    judged_once.remember_in(answers)
    forks = Forks(root, answers)
    client.start_server = forks.judging
    yield forks
    forks.close()


@pytest.fixture
def cubridge(_forks: Forks) -> RunCubridge:
    """Run `cubridge` of this checkout: `cubridge("kernels", "list", cwd=folder)`."""

    def run(
        *arguments: str, cwd: Path | None = None, environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        inherited = {**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}
        return _forks.run(arguments, cwd, inherited)

    return run


@pytest.fixture
def cubridge_process(root: Path) -> RunCubridge:
    """`cubridge` as a process from its very start, for tests of how it starts."""

    def run(
        *arguments: str, cwd: Path | None = None, environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        inherited = {**os.environ, "PYTHONPATH": str(root), **(environ or {})}
        return subprocess.run(
            [sys.executable, "-P", "-m", "cubridge_tui", *arguments],
            cwd=cwd,
            env=inherited,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
