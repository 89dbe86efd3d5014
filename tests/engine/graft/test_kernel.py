"""An imported kernel as the service takes it."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.package import write_package
from engine.graft.kernel import load_executed
from engine.resources import spec_path

SOURCE = Path(__file__).with_name("plain.cu")


def test_a_library_of_large_headers_may_be_included(tmp_path: Path) -> None:
    large = tmp_path / "library" / "large.h"
    large.parent.mkdir()
    large.write_text(f"// {'x' * (1 << 21)}\n")
    source = tmp_path / "theirs.cu"
    source.write_bytes(b"#include <large.h>\n" + SOURCE.read_bytes())
    flags = Flags("sm_80", (str(large.parent),))
    sizes = ({"B": 1, "Hq": 2, "N": 64, "D": 16},)
    asked = Asked(source, flags, reference=spec_path("full"), dtype="f32", sizes=sizes)
    write_package(asked, tmp_path / "plain")
    was = load_executed(tmp_path / "plain").hashes["headers"]
    large.write_text(f"// {'y' * (1 << 21)}\n")
    assert load_executed(tmp_path / "plain").hashes["headers"] != was
