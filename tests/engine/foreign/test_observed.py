"""Which observation an error of the compiler is of."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.overlay import below
from engine.foreign.probe.boundaries import Boundary
from engine.foreign.probe.observed import Look, _blamed, _inserted


def test_headers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    source = tmp_path / "a.cu"
    source.write_text('#include "one/x.h"\n#include "two/x.h"\n')
    files = [tmp_path / name / "x.h" for name in ("one", "two")]
    for file in files:
        file.parent.mkdir()
        file.write_text("int a;\n")
    looks = [Look(Boundary(f, "f", 6, 1, "", (), (), ()), "a") for f in files]
    _, lines = _inserted(below(Asked(source, Flags("sm_80"))), looks)
    overlay = tmp_path / "overlay"
    error = f"{overlay}/root0/two/x.h(2): error: no"
    assert sorted(lines.values()) == [0, 1]
    assert _blamed(error, overlay, lines) == {1}
