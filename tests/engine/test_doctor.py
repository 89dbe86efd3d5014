"""The doctor: each thing there, missing, too old or broken, and what to type."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

import pytest

from engine.service.upkeep import doctor
from engine.service.upkeep.doctor import Status


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def examine(environ: dict[str, str], store: Path) -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.examine(environ, store)}


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty PATH folder."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), "TERM": "xterm"}


def test_a_bare_machine_lacks_git_and_says_what_to_type(
    bare: dict[str, str], tmp_path: Path
) -> None:
    checks = examine(bare, tmp_path / "store.git")
    assert checks["git"].status is Status.MISSING
    assert checks["git"].fix == "sudo apt install git"
    assert not doctor.whole(list(checks.values()))


def test_everything_missing_has_a_fix(bare: dict[str, str], tmp_path: Path) -> None:
    checks = examine(bare, tmp_path / "store.git")
    assert all(check.fix for check in checks.values() if check.status is not Status.OK)


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.39.5", Status.OK), ("2.36.0", Status.OK), ("2.35.1", Status.ABSENT)],
)
def test_git_versions(bare: dict[str, str], tmp_path: Path, version: str, status: Status) -> None:
    put(tmp_path / "bin" / "git", f"echo git version {version}")
    assert examine(bare, tmp_path)["git"].status is status


def test_a_git_that_does_not_run_is_missing(bare: dict[str, str], tmp_path: Path) -> None:
    put(tmp_path / "bin" / "git", "exit 1")
    assert examine(bare, tmp_path)["git"].status is Status.MISSING


def test_a_configuration_that_git_cannot_read_is_no_missing_git(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[core\nbroken")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    found = examine(environ, tmp_path)["git"]
    assert found.status is Status.ABSENT and "configuration" in found.detail
    assert found.fix.startswith("git version")


class FakeTorch:
    def __init__(self, folder: Path, version: str) -> None:
        self.folder, self.version = folder, version

    def locate_file(self, name: str) -> Path:
        return self.folder / name


def torch_check(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str) -> doctor.Check:
    monkeypatch.setattr(metadata, "distribution", lambda name: FakeTorch(folder, version))
    return doctor._torch()


def test_torch_from_its_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch"
    assert torch_check(monkeypatch, tmp_path, "2.13.0").status is Status.MISSING
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    assert torch_check(monkeypatch, tmp_path, "2.13.0").status is Status.OK
    (package / "version.py").write_text("cuda: Optional[str] = '13.0'\n")
    assert torch_check(monkeypatch, tmp_path, "2.13.0").detail == "2.13.0 (CUDA 13.0)"
    (package / "version.py").write_text("cuda: Optional[str] = None\n")
    assert torch_check(monkeypatch, tmp_path, "2.13.0").detail == "2.13.0 (CPU build)"
    assert torch_check(monkeypatch, tmp_path, "2.5.1").status is Status.MISSING


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    check = doctor._torch()
    assert check.status is Status.MISSING
    assert "pip install" in check.fix


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("textual", "numpy"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    check = doctor._libraries()
    assert (check.status, check.detail) == (Status.MISSING, "missing: textual, numpy")


def test_a_gpu_is_named_and_none_is_no_fault(bare: dict[str, str], tmp_path: Path) -> None:
    assert examine(bare, tmp_path)["gpu"].status is Status.ABSENT
    put(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA H100, 9.0, 81559 MiB, 580.1'")
    gpu = examine(bare, tmp_path)["gpu"]
    assert (gpu.status, gpu.detail) == (Status.OK, "NVIDIA H100, 9.0, 81559 MiB, 580.1")
    put(tmp_path / "bin" / "nvidia-smi", "echo no devices >&2; exit 9")
    assert examine(bare, tmp_path)["gpu"].status is Status.ABSENT


@pytest.mark.parametrize(
    ("environ", "status", "fix"),
    [
        ({"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}, Status.OK, ""),
        ({"TERM": "xterm-256color", "LC_ALL": "C"}, Status.ABSENT, "export LANG=C.UTF-8"),
        ({"TERM": "dumb"}, Status.ABSENT, "start"),
        ({"TERM": ""}, Status.ABSENT, "start"),
    ],
)
def test_terminals(environ: dict[str, str], status: Status, fix: str) -> None:
    check = doctor._terminal(environ)
    assert check.status is status
    assert check.fix.startswith(fix)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"CUBRIDGE_STORE": "/a/s.git", "XDG_DATA_HOME": "/x"}, "/a/s.git"),
        ({"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/cubridge/store.git"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/cubridge/store.git"),
        ({"HOME": "/h"}, "/h/.local/share/cubridge/store.git"),
    ],
)
def test_where_the_store_is(environ: dict[str, str], place: str) -> None:
    assert doctor.default_store(environ) == Path(place)


def test_stores_that_cannot_be_used(bare: dict[str, str], tmp_path: Path) -> None:
    def status(path: Path) -> Status:
        return examine(bare, path)["store"].status

    assert status(tmp_path / "new" / "store.git") is Status.OK
    assert status(tmp_path) is Status.MISSING, "a folder that is no repository"
    (tmp_path / "file").write_text("")
    assert status(tmp_path / "file") is Status.MISSING
    assert status(tmp_path / "file" / "store.git") is Status.MISSING
    (tmp_path / "store.git").mkdir()
    (tmp_path / "store.git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert status(tmp_path / "store.git") is Status.OK


def test_the_command_line_shows_the_same_and_its_exit_code_says_whether_all_is_there(
    cubridge, bare: dict[str, str]
) -> None:
    result = cubridge("doctor", "--json", environ=bare)
    shown = json.loads(result.stdout)
    assert result.returncode == 3
    assert shown["whole"] is False
    names = [check["name"] for check in shown["checks"]]
    text = cubridge("doctor", environ=bare).stdout
    assert all(name in text for name in names)
    assert "type: sudo apt install git" in text


def test_an_ok_line_never_says_to_type_something(cubridge) -> None:
    for check in json.loads(cubridge("doctor", "--json").stdout)["checks"]:
        assert bool(check["fix"]) == (check["status"] != "ok"), check


def test_ray_is_optional_and_named(
    bare: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version
    versions = {"ray": "2.60.0"}

    def version(name: str) -> str:
        if name != "ray":
            return real(name)
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    found = examine({**bare, "RAY_ADDRESS": "head:6379"}, tmp_path)["ray"]
    assert found.status is Status.OK and "2.60.0" in found.detail and "head:6379" in found.detail
    versions.clear()
    found = examine(bare, tmp_path)["ray"]
    assert found.status is Status.ABSENT and "ray" in found.fix
