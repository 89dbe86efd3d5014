"""The layout of the kernels hub: its own tools read it, and the runtime calls the extension."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import torch

from engine.errors import InputError
from engine.package.export import export
from engine.package.hub import hub_files
from engine.types import Level
from tests.engine.package.conftest import content

OPS = """
import types
def launch(args, size, specialisation, stream):
    launched.append((size, specialisation, stream))
    return status[0]
launched, status = [], [0]
ops = types.SimpleNamespace(args_size=lambda: 224, launch=launch, error_text=lambda s: f"no {s}")
"""


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hub") / "full_hub"
    return export(content(root, level=Level.CPU_VERIFIED), place, hub_files)


def test_it_says_what_to_build_and_carries_the_evidence(folder: Path) -> None:
    build = tomllib.loads((folder / "build.toml").read_text())
    kernel = build["kernel"]["full_hub"]
    for name in (*build["torch"]["src"], *kernel["src"]):
        assert (folder / name).is_file(), name
    assert kernel["cuda-capabilities"] == ["8.0"] and "-DCUBRIDGE_ARCH=800" in kernel["cuda-flags"]
    verdicts = json.loads((folder / "torch-ext" / "full_hub" / "verdicts.json").read_text())
    assert kernel["cuda-flags"][1:] == verdicts["build"]["compile"]
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: kernels\n---\n")
    assert 'get_kernel("OWNER/full-hub", version=1, trust_remote_code=True)' in card
    assert "pip install" not in card and "-C arch" not in card
    assert "Level: cpu-verified" in card


def test_an_older_one_is_replaced_and_nothing_else(folder: Path, root: Path) -> None:
    assert export(content(root), folder, hub_files) == folder
    other = folder.with_name("another")
    other.mkdir()
    (other / "build.toml").write_text("[general]")
    with pytest.raises(InputError, match="something else"):
        export(content(root), other, hub_files)


@pytest.mark.parametrize("name", ["Full_hub", "a"])
def test_a_name_that_the_hub_does_not_take(root: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="the hub names no kernel"):
        export(content(root), tmp_path / name, hub_files)
    assert not (tmp_path / name).exists()


@pytest.mark.extras
def test_the_hub_s_own_reader_takes_it(folder: Path) -> None:
    # Not `kernels` alone: the checkout's own folder is called so.
    rust = pytest.importorskip(
        "kernels._rust", reason="optional: pip install -e '.[hosts]' brings kernels"
    )
    build = rust.Build.open(folder)
    assert [str(backend).lower() for backend in build.general.backends] == ["cuda"]


def test_the_runtime_calls_the_extension_that_lies_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "torch-ext" / "full_hub" / "_ops.py").write_text(OPS)
    monkeypatch.syspath_prepend(str(folder / "torch-ext"))
    module = importlib.import_module("full_hub")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    ours = module._OPERATOR
    library = module._runtime.library(torch.device("cuda", 0), ours.filler.struct)
    ops = importlib.import_module("full_hub._ops")
    assert library.cubridge_args_size() == 224
    module._runtime.launch(library, ours.filler.struct(), "f16_64", 7)
    assert ops.launched[0][1:] == ("f16_64", 7)
    ops.status[0] = 2
    with pytest.raises(RuntimeError, match=re.escape("failed: no 2 (status 2)")):
        module._runtime.launch(library, ours.filler.struct(), "f16_64", 7)
    q = torch.ones(1, 2, 3, 64, dtype=torch.float16)
    assert module.attention(q, q, q).shape == q.shape  # the spec travels too
