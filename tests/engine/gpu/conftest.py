"""A job of the causal fake, and programs that stand for nvcc and the GPU."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cuir.nodes import Field, Function, Module
from engine.gpu.job import Contents, LiftedJob, pack
from tests.engine.gpu.fakes import CAUSAL_SPEC, causal_binding, causal_recipe

SOURCE = b"""#include "cubridge/sm80.cuh"
// s = keep(s, at(q0, n * BN), [&](int i, int j) { return j < args.Nk; });
"""
FIELDS = (
    *(Field(name, "tensor") for name in ("q", "k", "v", "o", "lse")),
    *(Field(name, "i32") for name in ("B", "Hq", "Hkv", "Nq", "Nk")),
    Field("scale", "f32"),
)


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    """A job's contents: two specialisations, two headers."""
    spec = tmp_path / "specs" / "causal.py"
    spec.parent.mkdir()
    spec.write_text(CAUSAL_SPEC)
    kernel = Function("kernel", "flash_fwd", (), (), (), ())
    return Contents(
        name="flash-causal",
        title="causal on flash",
        source=SOURCE,
        headers=(("cubridge/a.cuh", b"// a\n"), ("cubridge/sm80.cuh", b'#include "a.cuh"\n')),
        headers_sha256="0" * 64,
        entry="launch",
        archs=("sm_80", "sm_90"),
        specialisations=({"T": "f16", "D": "64"}, {"T": "bf16", "D": "64"}),
        primary="bf16_64",
        kind=LiftedJob(Module((), FIELDS, (kernel,))),
        spec=spec,
        options={},
        asked=causal_recipe(),
        binding=causal_binding(),
        declared=("f16_64", "bf16_64"),
    )


@pytest.fixture
def job(contents: Contents, tmp_path: Path) -> Path:
    return pack(contents, tmp_path / "job")


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write an executable script."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "programs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return write


def replace_file(job: Path, name: str, data: bytes) -> None:
    """Change a packed file and its hash, as if it had been packed so."""
    (job / name).write_bytes(data)
    manifest = json.loads((job / "job.json").read_text())
    manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (job / "job.json").write_text(json.dumps(manifest))
