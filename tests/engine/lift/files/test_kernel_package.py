"""Kernel packages: what is read, what is refused, what the hashes hang on."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from engine.cuir.static.legal_sizes import USUAL
from engine.errors import InputError, LiftError
from engine.lift import lift, load_package, specialisation_key
from engine.resources import include_dir, list_kernels
from tests.engine.lift.sources import CONTRACT

MANIFEST = """\
name = "mine"
title = "My kernel"
entry = "launch"
archs = ["sm_80", "sm_90"]
reference = "reference.py"

[specialisations]
T = ["bf16", "f16"]
D = [128, 64]

[refusals]
sm_75 = "no cp.async"
"""
DOMAIN = """
[domain]
B = 2
Hq = 6
Hkv = 3
Nq = 9
Nk = 8
"B * Hq" = 3
strides = 99
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "kernel.toml").write_text(MANIFEST)
    (folder / "kernel.cu").write_bytes(CONTRACT)
    (folder / "reference.py").write_text("def attention(q, k, v): ...\n")
    return folder


def test_a_package_is_read(package: Path):
    kernel = load_package(package)
    assert (kernel.name, kernel.title, kernel.entry) == ("mine", "My kernel", "launch")
    assert kernel.source == CONTRACT
    assert kernel.archs == ("sm_80", "sm_90")
    keys = [specialisation_key(s) for s in kernel.specialisations]
    assert keys == ["bf16_128", "bf16_64", "f16_128", "f16_64"]
    assert kernel.reference == package / "reference.py"
    names = [name for name, _ in kernel.headers]
    assert names == sorted(names)
    assert "cubridge/sm80.cuh" in names and "cubridge/scalar.cuh" in names
    for path in (package / "kernel.toml", package / "kernel.cu"):
        assert load_package(path) == kernel


@pytest.mark.parametrize("name", list_kernels())
def test_bundled_packages_are_read_by_name(name: str):
    kernel = load_package(name)
    assert kernel.name == name
    assert kernel.specialisations and kernel.headers and kernel.reference is not None


def test_lift_takes_a_package_a_path_a_name_or_bytes(package: Path):
    kernel = load_package(package)
    first = lift(kernel)
    assert first.specialisation == {"arch": "sm_80", "T": "bf16", "D": "128"}
    assert lift(package).module == lift(str(package)).module == first.module
    assert lift(kernel, "f16_64", "sm_90").specialisation["D"] == "64"
    assert lift(kernel, {"T": "f16", "D": "64"}).specialisation["T"] == "f16"
    assert lift(CONTRACT).module == first.module


def test_further_numbers_are_legal_where_one_is_asked_for(package: Path):
    manifest = package / "kernel.toml"
    manifest.write_text(MANIFEST + "\n[further]\nD = { multiple = 8, to = 256 }\n")
    kernel = load_package(package)
    assert len(kernel.specialisations) == 4
    wanted = {"T": "f16", "D": "80"}
    assert kernel.specialisation("f16_80") == wanted
    assert kernel.specialisation({"D": "80", "T": "f16"}) == wanted
    built = kernel.building(wanted)
    assert [*built.specialisations] == [*kernel.specialisations, wanted]
    assert built.building(wanted) is built
    assert built.building({"T": "bf16", "D": "64"}) is built
    assert lift(kernel, "f16_80").specialisation["D"] == "80"
    for key in (
        "f16_84",
        "f16_264",
        "f16_0",
        "f16_-8",
        "f16_080",
        "f16_x",
        "f32_80",
        "80",
        "f16_80_",
    ):
        with pytest.raises(InputError, match="multiple of 8 from 8 to 256"):
            kernel.specialisation(key)
    with pytest.raises(InputError):
        kernel.specialisation({"D": "80"})


@pytest.mark.parametrize(
    "line",
    [
        "S = { multiple = 8, to = 256 }",
        "D = 8",
        "D = { multiple = 8 }",
        "D = { multiple = 8, to = 256, more = 1 }",
        "D = { multiple = 8, to = true }",
        "D = { multiple = 0, to = 256 }",
        "D = { multiple = 8, to = 4 }",
        'D = { multiple = "8", to = 256 }',
    ],
)
def test_a_bad_further_is_named(package: Path, line: str):
    (package / "kernel.toml").write_text(MANIFEST + f"\n[further]\n{line}\n")
    with pytest.raises(InputError, match="further") as caught:
        load_package(package)
    assert caught.value.fix


def test_refusals_give_their_reason(package: Path):
    kernel = load_package(package)
    with pytest.raises(InputError, match=r"no cp\.async"):
        lift(kernel, arch="sm_75")
    with pytest.raises(InputError, match="not for sm_120"):
        lift(kernel, arch="sm_120")
    with pytest.raises(InputError, match="bf16_256") as caught:
        lift(kernel, "bf16_256")
    assert "bf16_128" in (caught.value.fix or "")
    manifest = package / "kernel.toml"
    manifest.write_text(manifest.read_text() + 'arch = "no other machine"\n')
    for arch, why in (("sm_75", r"no cp\.async"), ("sm_120", "no other machine")):
        with pytest.raises(InputError, match=f"not for {arch}: {why}"):
            lift(load_package(package), arch=arch)


def test_hashes_hang_on_the_bytes(package: Path, tmp_path: Path):
    include = tmp_path / "include"
    shutil.copytree(include_dir(), include)
    before = load_package(package, include).hashes
    assert before == load_package(package).hashes
    (include / "cubridge" / "scalar.cuh").open("ab").write(b"\n")
    header = load_package(package, include).hashes
    assert header["source"] == before["source"] and header["headers"] != before["headers"]
    (package / "kernel.cu").open("ab").write(b"\n")
    source = load_package(package, include).hashes
    assert source["source"] != before["source"] and source["headers"] == header["headers"]
    assert len({h["package"] for h in (before, header, source)}) == 3
    (include / "cubridge" / "unused.cuh").write_text("")
    assert load_package(package, include).hashes == source


def test_headers_beside_the_source_and_nested_ones(package: Path):
    (package / "own.cuh").write_text('#include "deeper.cuh"\n')
    (package / "deeper.cuh").write_text('// #include "comment.cuh"\n#include "own.cuh"\n')
    (package / "kernel.cu").write_bytes(b'#include "own.cuh"\n' + CONTRACT)
    names = [name for name, _ in load_package(package).headers]
    assert {"own.cuh", "deeper.cuh", "cubridge/sm80.cuh"} <= set(names)


def test_no_file_beside_the_source_stands_for_a_header_of_kernel_text(package: Path):
    (package / "cubridge").mkdir()
    (package / "cubridge" / "scalar.cuh").write_text("")
    load_package(package)
    (package / "cubridge" / "sm80.cuh").write_text("")
    with pytest.raises(InputError, match="would stand for the header"):
        load_package(package)


def test_a_missing_header_names_its_line(package: Path):
    (package / "kernel.cu").write_bytes(b'// a\n#include "nowhere.cuh"\n' + CONTRACT)
    with pytest.raises(InputError, match=r"nowhere\.cuh") as caught:
        load_package(package)
    assert caught.value.where is not None and caught.value.where.line == 2


BROKEN = {
    "syntax": ("name = ", "not TOML"),
    "not utf-8": (None, "not TOML"),
    "unknown key": (MANIFEST.replace("title", "titel"), "titel"),
    "missing key": (MANIFEST.replace('entry = "launch"\n', ""), "entry"),
    "name": (MANIFEST.replace('"mine"', "3"), "name"),
    "empty title": (MANIFEST.replace('"My kernel"', '" "'), "title"),
    "archs": (MANIFEST.replace('["sm_80", "sm_90"]', '"sm_80"'), "archs"),
    "arch": (MANIFEST.replace('"sm_80", ', '"sm_81", '), "sm_81"),
    "arch twice": (MANIFEST.replace('"sm_80", ', '"sm_90", '), "archs"),
    "no specialisations": (
        MANIFEST.replace('T = ["bf16", "f16"]\nD = [128, 64]\n', ""),
        "specialisations",
    ),
    "value": (MANIFEST.replace("[128, 64]", "[128.5]"), "specialisations.D"),
    "value twice": (MANIFEST.replace("[128, 64]", "[128, 128]"), "specialisations.D"),
    "type": (MANIFEST.replace('"f16"', '"fp8"'), "specialisations.T"),
    "reference outside": (MANIFEST.replace('"reference.py"', '"../reference.py"'), "reference"),
    "empty refusal": (MANIFEST.replace('"no cp.async"', '""'), "refusals.sm_75"),
    "refusals": (MANIFEST.replace("[refusals]\nsm_75", "refusals"), "refusals"),
    "domain": (f"{MANIFEST}{DOMAIN.replace('Nk = 8', '')}", "domain"),
    "no size": (f"{MANIFEST}{DOMAIN.replace('Nk = 8', 'Nk = 0')}", "domain.Nk"),
    "no number": (f"{MANIFEST}{DOMAIN.replace('Nk = 8', 'Nk = true')}", "domain.Nk"),
}


def test_the_sizes_are_those_that_it_declares(package: Path) -> None:
    assert load_package(package).sizes == USUAL
    (package / "kernel.toml").write_text(MANIFEST + DOMAIN)
    declared = load_package(package).sizes
    assert declared.length == 9 and declared.heads == 6 and declared.pairs == 3


@pytest.mark.parametrize("name", list_kernels())
def test_a_bundled_kernel_declares_its_domain(name: str) -> None:
    folder = load_package(name).folder
    assert "domain" in tomllib.loads((folder / "kernel.toml").read_text())


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_manifest_names_file_and_key(package: Path, name: str):
    text, words = BROKEN[name]
    data = b"name = '\xff'" if text is None else text.encode()
    if name == "refusals":
        data = (
            MANIFEST.split("[specialisations]")[0]
            + 'refusals = "x"\n[specialisations]\nT = ["f16"]'
        ).encode()
    (package / "kernel.toml").write_bytes(data)
    with pytest.raises(InputError) as caught:
        load_package(package)
    error = caught.value
    assert words in error.message and error.fix
    assert error.where is not None and error.where.file == str(package / "kernel.toml")


@pytest.mark.parametrize("name", ["kernel.cu", "reference.py", "kernel.toml"])
def test_a_missing_file_is_one_error(package: Path, name: str):
    (package / name).unlink()
    with pytest.raises(InputError) as caught:
        load_package(package)
    assert caught.value.where is not None and name in caught.value.where.file


def test_a_bare_file_is_a_package_without_reference(tmp_path: Path):
    path = tmp_path / "own.cu"
    path.write_bytes(CONTRACT)
    kernel = load_package(path)
    assert (kernel.name, kernel.reference, kernel.specialisations) == ("own", None, ())
    lifted = lift(path)
    assert lifted.specialisation == {"arch": "sm_80", "T": "bf16", "D": "128"}
    assert lifted.file == str(path)
    assert lift(path, {"T": "f16", "D": "64"}, "sm_90").specialisation["arch"] == "sm_90"


def test_errors_name_the_file(tmp_path: Path):
    path = tmp_path / "own.cu"
    path.write_bytes(b"int main() { return 0; }")
    with pytest.raises(LiftError) as caught:
        lift(path)
    assert caught.value.where is not None and caught.value.where.file == str(path)


def test_what_is_not_there_is_one_error(tmp_path: Path):
    for path in (tmp_path / "no.cu", "no_such_kernel", tmp_path):
        with pytest.raises(InputError) as caught:
            load_package(path)
        assert caught.value.fix
