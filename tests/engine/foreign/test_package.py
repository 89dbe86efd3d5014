"""The folder that an import writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.package import write_package
from engine.resources import spec_path


def test_nothing_is_left_of_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "theirs.cu"
    source.write_text("void launch() {}\n")
    asked = Asked(source, Flags("sm_80"), reference=spec_path("full"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(InputError, match="No space left on device") as error:
        write_package(asked, tmp_path / "kept")
    assert "--out" in (error.value.fix or "")
    assert not (tmp_path / "kept").exists()
