"""The gates judge the files that a session names: others on the disk are not judged instead."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.package.export import export
from engine.resources import kernel_dir
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.disk_inputs import (
    MODULES,
    inputs_of,
    kernel_moved,
    modules_hash,
    modules_text,
    spec_moved,
)
from engine.service.session.gpu_verdict import contents_of
from engine.service.session.package_export import content_of
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import Gate, Level, VerdictKind, sha256_of
from sessions.events import InputsSet
from sessions.store import Store

HELPED = """
import torch
import masks
def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]
):
    keep = masks.causal(q.size(-2), k.size(-2))
    return torch.softmax((q @ k.mT * 0.125).masked_fill(~keep, float("-inf")), -1) @ v
"""
MASKS = """
import torch
from shapes import ends
def causal(n_q, n_k):
    return torch.arange(n_k) <= torch.arange(n_q)[:, None] + ends(n_q, n_k)
"""
SHAPES = "def ends(n_q, n_k):\n    return n_k - n_q\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(Store.open(tmp_path_factory.mktemp("service") / "store.git")) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a kernel package and a spec that imports its helpers."""
    shutil.copytree(kernel_dir("flash_fwd_sm80"), tmp_path / "kernel")
    (tmp_path / "spec.py").write_text(HELPED)
    (tmp_path / "masks.py").write_text(MASKS)
    (tmp_path / "shapes.py").write_text(SHAPES)
    return tmp_path


@pytest.fixture
def work(own: Path, bench: Bench) -> Iterator[Adaptation]:
    package = find_kernel(str(own / "kernel"))
    options = choose_options(package, specialisation={"D": "64"})
    session = start(bench, package, find_spec(str(own / "spec.py")), options, "tester")
    with bench.store.writer(session, wait=5) as writer:
        yield Adaptation(bench, writer, "tester")


def edit(path: Path, old: str, new: str) -> Callable[[], None]:
    """Change a file; what is returned puts it back."""
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))
    return lambda: path.write_text(before) and None


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("reference.py", "softmax", "sigmoid", "reference"),
        ("kernel.toml", '"f16", ', "", "kernel.toml"),
        ("kernel.cu", "commit_async", "commit_later", "source"),
    ],
)
def test_another_package_on_disk_is_not_judged(
    file: str, old: str, new: str, named: str, work: Adaptation, own: Path
) -> None:
    assert work.lift().kind is VerdictKind.PASS
    work.accept_all(work.propose_by_rules())
    work.lower()
    back = edit(own / "kernel" / file, old, new)
    if file == "kernel.toml":
        work = Adaptation(work.bench, work.writer, "tester")  # as a new run has it
    for verdict in (work.judge_lifted(), work.judge_lowered()):
        assert verdict.kind is VerdictKind.NOT_RUN
        assert re.search(rf"\b{named} .*of flash_fwd_sm80 changed on disk", verdict.reason)
    for carried in (contents_of, lambda w: content_of(w, Level.CPU_VERIFIED)):
        with pytest.raises(InputError, match=rf"\b{named} .*of flash_fwd_sm80 changed on disk"):
            carried(work)
    # What was judged stays judged: the session's own content did not change.
    assert (given := work.state.verdict(Gate.G1)) is not None and given.kind is VerdictKind.PASS
    back()
    assert kernel_moved(Adaptation(work.bench, work.writer, "tester")) is None


def test_a_kernel_that_is_gone(work: Adaptation, own: Path) -> None:
    work.lift()
    (own / "kernel" / "reference.py").unlink()
    verdict = work.judge_lifted()
    assert verdict.kind is VerdictKind.NOT_RUN and "reference" in verdict.reason


def test_what_a_spec_imports_is_part_of_it(work: Adaptation, own: Path) -> None:
    kept = {t.name: t.sha256 for t in work.state.transcripts if t.about == "spec"}
    assert kept == {"spec.py": work.state.hashes["spec"],
                    "spec_modules.json": work.state.hashes[MODULES]}  # fmt: skip
    texts = json.loads(work.session.content(kept["spec_modules.json"]))
    assert texts == {"masks.py": MASKS, "shapes.py": SHAPES}
    work.lift()
    work.accept_all(work.propose_by_rules())
    first = work.judge_target()
    assert (
        first.kind is VerdictKind.PASS
        and dict(first.subject)[MODULES] == (work.state.hashes[MODULES])
    )
    back = edit(own / "shapes.py", "n_k - n_q", "n_k - n_q + 1")
    second = work.judge_target()
    assert second.kind is VerdictKind.NOT_RUN
    assert "a module that spec.py imports changed on disk" in second.reason
    work.lower()
    for carried in (contents_of, lambda w: content_of(w, Level.CPU_VERIFIED)):
        with pytest.raises(InputError, match="no longer the spec"):
            carried(work)
    # Taken in, the old verdict is stale and the new text is judged.
    changed = {MODULES: modules_hash(work.spec)}
    work.writer.append([InputsSet(changed)], actor="tester")
    given = work.state.verdict(Gate.G2)
    assert given is not None and given.kind is VerdictKind.STALE
    assert work.judge_target().kind is VerdictKind.FAIL
    work.undo()  # another target, made after the spec was taken in
    work.redo()
    assert work.judge_target().kind is VerdictKind.FAIL
    back()
    assert spec_moved(work) == "a module that spec.py imports"


def test_hashes_of_inputs(own: Path) -> None:
    package = find_kernel(str(own / "kernel"))
    first = inputs_of(package, own / "spec.py")
    assert set(first) == {"reference", "manifest", "headers", MODULES}
    assert first == inputs_of(package, own / "spec.py")
    (own / "unrelated.py").write_text("x = 1\n")
    assert first == inputs_of(package, own / "spec.py")
    (own / "masks.py").rename(own / "covers.py")
    assert first[MODULES] != inputs_of(package, own / "spec.py")[MODULES]
    (own / "spec.py").write_text("def attention(:\n")
    assert inputs_of(package, own / "spec.py")[MODULES] == sha256_of(modules_text({}))


def test_a_package_brings_what_its_spec_imports(work: Adaptation, tmp_path: Path) -> None:
    work.lift()
    work.accept_all(work.propose_by_rules())
    work.lower()
    folder = export(content_of(work, Level.CPU_VERIFIED), tmp_path / "out" / "helped_attention")
    assert (folder / "spec" / "masks.py").read_text() == MASKS
    assert (folder / "spec" / "shapes.py").read_text() == SHAPES
    code = (
        "import torch, helped_attention\n"
        "q = torch.randn(1, 2, 5, 64).half()\n"
        "o = helped_attention.attention(q, q, q); assert o.shape == q.shape\n"
        "assert torch.allclose(o[:, :, 0], q[:, :, 0])\n"
    )
    # Plain Python in a clean folder: neither CuBridge nor the spec's own folder is there.
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
