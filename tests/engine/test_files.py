"""Paths from outside: whatever stands there, one error at once."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cubridge_tui.commands import check
from cubridge_tui.commands.kernels import describe
from cubridge_tui.config import load_config
from cubridge_tui.model.lists import _kernel_words, own_specs
from cubridge_tui.themes import load_theme
from engine import files, resources
from engine.closure import parsed
from engine.errors import InputError, SpecError
from engine.files import read_file, read_text
from engine.gpu.job import _spec_files
from engine.gpu.result import read_results
from engine.lift import load_package
from engine.llm.record import Replayer
from engine.llm.settings import read_config
from engine.resources import kernel_dir, spec_path
from engine.service.session.adaptation import beginning
from engine.service.session.disk_inputs import spec_modules
from engine.service.session.session_options import choose_options
from engine.service.views.session_cost import module_of_file
from engine.spec.python.spec_file import read_source


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)
        try:  # a socket's name is short: through the folder's descriptor it always fits
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a device": endless,
    "No such device or address": bound,
}
READERS: dict[str, Callable[[Path], object]] = {
    "bytes": lambda p: read_file(p, "give a file"),
    "text": lambda p: read_text(p, "give a file"),
    "result": read_results,
    "spec": lambda p: read_source(p, {}),
    "module": module_of_file,
    "model server": read_config,
    "theme": load_theme,
    "check": lambda p: check._check_file(p, check_args(p)),
}


def check_args(path: Path) -> argparse.Namespace:
    return argparse.Namespace(what=str(path), json=False)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_one_error(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "thing"
    ODD[kind](path)
    with pytest.raises(InputError, match=f"cannot be read: .*{kind}") as found:
        READERS[reader](path)
    assert str(path.name) in str(found.value) or kind == "a device"
    assert found.value.fix


@pytest.mark.parametrize("kind", ODD)
def test_the_files_of_a_kernel_package_are_read_as_all_others(kind: str, tmp_path: Path) -> None:
    for name in ("kernel.cu", "kernel.toml", "reference.py"):
        folder = tmp_path / name.replace(".", "_")
        shutil.copytree(kernel_dir("flash_fwd_sm80"), folder)
        (folder / name).unlink()
        ODD[kind](folder / name)
        with pytest.raises(InputError, match=f"cannot be read: .*{kind}") as found:
            load_package(folder)
        assert name in str(found.value) and found.value.fix


@pytest.mark.parametrize("kind", ODD)
def test_what_takes_a_spec_in_reads_it_as_all_others(kind: str, tmp_path: Path) -> None:
    """A file may have changed its kind since it was found."""
    path = tmp_path / "spec.py"
    ODD[kind](path)
    package = load_package(kernel_dir("flash_fwd_sm80"))
    options = choose_options(package)
    for read in (
        parsed,
        lambda p: _spec_files(p, "spec"),
        lambda p: beginning(package, p, options),
    ):
        with pytest.raises(InputError, match=f"cannot be read: .*{kind}"):
            read(path)
    assert spec_modules(path) == {}


def test_a_loop_of_links_and_a_name_that_is_none_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to("b.py")
    (tmp_path / "b.py").symlink_to("a.py")
    for name in (str(tmp_path / "a.py"), "a\0b.py"):
        for read in (lambda p: read_source(p, {}), parsed, lambda p: _spec_files(p, "spec")):
            with pytest.raises(InputError, match="cannot be read") as found:
                read(Path(name))
            assert found.value.fix


@pytest.mark.parametrize("kind", ODD)
def test_a_bundled_kernel_s_title_is_read_so_too(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    ODD[kind](folder / "kernel.toml")
    monkeypatch.setattr(resources, "kernel_dir", lambda name: folder)
    with pytest.raises(InputError, match=f"cannot be read: .*{kind}"):
        describe("k")
    assert _kernel_words("k") == ""


def test_a_bundled_kernel_s_archs_are_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "kernel_dir", lambda name: tmp_path)
    (tmp_path / "kernel.toml").write_text("archs = 80")
    with pytest.raises(InputError, match="archs: not a list"):
        describe("k")


@pytest.mark.parametrize("kind", ODD)
def test_settings_and_lists_go_on_without_it(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "cubridge"
    home.mkdir()
    ODD[kind](home / "config.toml")
    ODD[kind](tmp_path / "spec.py")
    config = load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)}, folder=home)
    (warning,) = config.warnings
    assert "config.toml is left out: cannot be read" in warning and kind in warning
    assert own_specs(tmp_path) == []
    with pytest.raises(InputError) as found:
        spec_path(str(tmp_path / "spec.py"))
    assert "do you mean" not in str(found.value)


def test_more_than_the_limit_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # holds nothing: no disk would have it
    with pytest.raises(InputError, match="more than 16 MiB"):
        read_text(path, "give a file")
    path.rename(tmp_path / "0001-abc.json")
    with pytest.raises(InputError, match="more than 16 MiB"):
        Replayer(tmp_path)
    path.write_bytes(bytes(files.TEXT_LIMIT))
    assert len(read_file(path, "give a file")) == files.TEXT_LIMIT


def test_a_source_is_refused_before_each_of_its_tokens_is_an_object(tmp_path: Path) -> None:
    for name, text, read in (
        ("kernel.cu", "#", load_package),
        ("spec.py", "x = 1\n", lambda p: read_source(p, {})),
        ("module.py", "x = 1\n", parsed),
    ):
        path = tmp_path / name
        path.write_text(text * (files.SOURCE_LIMIT // len(text) + 1))
        with pytest.raises(InputError, match="more than 1 MiB") as found:
            read(path)
        assert name in str(found.value) and found.value.fix


def test_a_header_of_a_kernel_has_the_same_limit(tmp_path: Path) -> None:
    (tmp_path / "large.cuh").write_bytes(b"#" * (files.SOURCE_LIMIT + 1))
    (tmp_path / "kernel.cu").write_text('#include "large.cuh"\n')
    with pytest.raises(InputError, match=r"large\.cuh: .*more than 1 MiB"):
        load_package(tmp_path / "kernel.cu")


def test_keys_that_are_no_table_are_told_what_they_must_be(tmp_path: Path) -> None:
    (tmp_path / "cubridge.toml").write_text('keys = "x"\n')
    config = load_config(environment={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)
    (warning,) = config.warnings
    assert "keys must be a table" in warning and "do you mean" not in warning


@pytest.mark.parametrize("text", ["x = " + "-" * 100_000 + "1", "x = " + "(" * 150 + ")" * 150])
def test_a_spec_nested_too_deeply_says_why(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.py"
    path.write_text(text)
    with pytest.raises(SpecError) as found:
        read_source(path, {})
    assert "not Python: " in found.value.message or "no attention" in found.value.message
    assert not found.value.message.endswith(": ")


def test_bytes_that_are_no_text_and_names_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes(b"ab\xe4")
    with pytest.raises(InputError, match="not UTF-8: byte 2"):
        read_text(path, "give a file")
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(InputError, match="cannot be read"):
            read_text(tmp_path / name, "give a file")
