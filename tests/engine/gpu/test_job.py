"""A packed job is whole, says what it is of, and takes nothing from the folder it runs in."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.closure import ROOT, closure, foreign, local_modules
from engine.errors import InputError
from engine.gpu.job import WORKER_ROOTS, Contents, hashes_of, pack
from engine.types import sha256_of
from engine.worker.orchestration.manifest import JobError, arch_for, head_sizes, read_job
from engine.worker.orchestration.run import CHILDREN


def test_the_closure_holds_what_is_imported_and_nothing_foreign() -> None:
    found = closure(WORKER_ROOTS)
    assert "engine/worker/verification/checks.py" in found
    assert "engine/spec/reference/oracle.py" in found and "engine/build/folder/units.py" in found
    assert "engine/__init__.py" in found and "engine/spec/__init__.py" in found
    assert foreign(found.values()) == {}
    for name in ("engine/lift", "engine/service", "engine/lower", "engine/llm"):
        assert not any(file.startswith(name) for file in found)


def test_the_closure_needs_python_3_10_only() -> None:
    newer = ("StrEnum", "import Self", "tomllib", "ExceptionGroup", "except*", "datetime.UTC")
    for name, path in closure(WORKER_ROOTS).items():
        text = path.read_text()
        assert not [word for word in newer if word in text], name


def test_the_orchestrator_needs_no_torch(job: Path) -> None:
    code = (
        f"import sys; sys.path[0] = {str(job / 'worker')!r}; "
        "import engine.worker.orchestration.main; import engine; "
        "print(engine.__file__); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=job, capture_output=True, text=True, check=True
    )
    where, torch_loaded = done.stdout.split()
    assert where.startswith(str(job)) and torch_loaded == "False"


def test_the_carried_modules_are_enough_for_every_child(job: Path, tmp_path: Path) -> None:
    """Each child's module imports from the job alone, in a folder full of traps."""
    hostile = tmp_path / "hostile"
    (hostile / "engine").mkdir(parents=True)
    for name in ("engine/__init__.py", "ast.py", "json.py"):
        (hostile / name).write_text("raise SystemExit('the trap')\n")
    for kind in CHILDREN.values():
        code = (
            f"import sys; sys.path.insert(0, {str(job / 'worker')!r}); "
            f"import engine.worker.{kind} as m; print(m.__file__)"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", code],
            cwd=hostile,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-800:]
        assert done.stdout.strip().startswith(str(job))


def test_run_py_ignores_the_current_folder(job: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    (hostile / "engine").mkdir(parents=True)
    for name in ("engine/__init__.py", "torch.py", "argparse.py"):
        (hostile / name).write_text("raise SystemExit('the trap')\n")
    for words in (["--help"], ["--child", "nonsense"]):
        done = subprocess.run(
            [sys.executable, str(job / "run.py"), *words],
            cwd=hostile,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "trap" not in done.stdout + done.stderr
        assert done.returncode == (0 if words == ["--help"] else 2)


def test_a_job_says_what_it_is_of(contents: Contents, job: Path) -> None:
    read = read_job(job)
    assert read.hashes["kernel"] == sha256_of(contents.source)
    assert read.hashes["spec"] == sha256_of(contents.spec.read_bytes())
    assert read.keys == ("bf16_64", "f16_64")
    assert read.fields[0] == ("q", "tensor") and read.kernels == ("flash_fwd",)
    assert read.spec == "causal.py"
    assert (job / "kernel" / "cubridge" / "a.cuh").read_bytes() == b"// a\n"


def test_the_order_of_template_parameters_is_kept(contents: Contents, tmp_path: Path) -> None:
    assert list(read_job(pack(contents, tmp_path / "j")).specialisations[0]) == ["T", "D"]


@pytest.mark.parametrize("name", ["kernel/kernel.cu", "worker/engine/errors.py", "recipe.json"])
def test_a_changed_or_missing_file_is_refused(job: Path, name: str) -> None:
    path = job / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(JobError, match="not the file that was packed"):
        read_job(job)
    path.unlink()
    with pytest.raises(JobError, match="is missing"):
        read_job(job)


def test_run_py_refuses_a_damaged_job(job: Path) -> None:
    (job / "kernel" / "kernel.cu").write_text("int x;")
    done = subprocess.run(
        [sys.executable, str(job / "run.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "pack the job again" in done.stderr


def test_no_job_and_other_versions(tmp_path: Path, job: Path) -> None:
    with pytest.raises(JobError, match="is no job"):
        read_job(tmp_path)
    data = json.loads((job / "job.json").read_text())
    (job / "job.json").write_text(json.dumps({**data, "schema": 99}))
    with pytest.raises(JobError, match="schema 99"):
        read_job(job)
    (job / "job.json").write_text("{")
    with pytest.raises(JobError, match="not JSON"):
        read_job(job)


def test_packing_twice_is_the_same_and_keeps_the_work(contents: Contents, job: Path) -> None:
    before = (job / "job.json").read_bytes()
    (job / "work").mkdir()
    (job / "work" / "rows").write_text("x")
    (job / "kernel" / "stale.cuh").write_text("x")
    pack(contents, job)
    assert (job / "job.json").read_bytes() == before
    assert (job / "work" / "rows").exists() and not (job / "kernel" / "stale.cuh").exists()


def test_a_folder_that_is_no_job_is_left_alone(contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(InputError, match="it is no job"):
        pack(contents, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_a_tar_holds_the_same_job(contents: Contents, job: Path, tmp_path: Path) -> None:
    packed = pack(contents, tmp_path / "carry.tar")
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path / "there", filter="data")
    there = tmp_path / "there" / "carry"
    assert read_job(there).hashes == read_job(job).hashes
    with pytest.raises(InputError, match="there already"):
        pack(contents, packed)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 100 kB, less than a job has."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("needs the right to mount a small file system")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("name", ["job", "job.tar"])
def test_a_full_disk_leaves_nothing_and_the_next_try_works(
    contents: Contents, small_disk: Path, name: str
) -> None:
    target = small_disk / name
    with pytest.raises(InputError) as found:
        pack(contents, target)
    assert found.value.where is not None and found.value.where.file == str(target)
    assert "No space left" in str(found.value) and str(found.value).count(str(target)) == 1
    assert list(small_disk.iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    assert pack(contents, target) == target and list(small_disk.iterdir()) == [target]


def test_a_full_disk_leaves_an_earlier_job_as_it_was(contents: Contents, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    target = pack(contents, small_disk / "job")
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 65536)
    with pytest.raises(InputError, match="cannot be written"):
        pack(replace(contents, source=contents.source + b"// more\n"), target)
    assert read_job(target).hashes == hashes_of(contents)


def test_modules_beside_the_spec_come_along(contents: Contents, tmp_path: Path) -> None:
    folder = contents.spec.parent
    (folder / "masks.py").write_text("from helpers.deep import x\n")
    (folder / "helpers").mkdir()
    (folder / "helpers" / "__init__.py").write_text("")
    (folder / "helpers" / "deep.py").write_text("x = 1\n")
    (folder / "unused.py").write_text("import nowhere\n")
    contents.spec.write_text(
        "import masks\nimport math, torch, numpy\n" + contents.spec.read_text()
    )
    assert set(local_modules(contents.spec)) == {
        "masks.py",
        "helpers/__init__.py",
        "helpers/deep.py",
    }
    made = pack(contents, tmp_path / "j")
    assert (made / "spec" / "helpers" / "deep.py").exists()
    assert not (made / "spec" / "unused.py").exists()
    hashes = hashes_of(contents)
    (folder / "helpers" / "deep.py").write_text("x = 2\n")
    changed = hashes_of(contents)
    assert {n for n in hashes if hashes[n] != changed[n]} == {"spec_modules"}


def test_what_a_job_cannot_bring_is_named_when_packing(contents: Contents, tmp_path: Path) -> None:
    contents.spec.write_text("import torch\nimport flash_attn\n" + contents.spec.read_text())
    with pytest.raises(InputError) as found:
        pack(contents, tmp_path / "j")
    assert "flash_attn" in str(found.value) and found.value.where is not None
    assert found.value.where.line == 2
    assert not (tmp_path / "j").exists()


def test_an_unknown_primary_is_refused(contents: Contents) -> None:
    with pytest.raises(InputError, match="no specialisation bf16_96"):
        replace(contents, primary="bf16_96")


def test_hashes_follow_content(contents: Contents) -> None:
    base = hashes_of(contents)
    other = hashes_of(replace(contents, source=contents.source + b"\n"))
    assert {n for n in base if base[n] != other[n]} == {"kernel"}
    other = hashes_of(replace(contents, options={"window": 3}))
    assert {n for n in base if base[n] != other[n]} == {"options"}


def test_arch_for_a_card() -> None:
    assert arch_for((9, 0), ("sm_80", "sm_90")) == "sm_90"
    assert arch_for((9, 0), ("sm_90", "sm_90a")) == "sm_90a"
    assert arch_for((8, 9), ("sm_80", "sm_86")) == "sm_86"
    assert arch_for((9, 0), ("sm_80",)) is None
    assert arch_for((7, 5), ("sm_80",)) is None


def test_head_sizes() -> None:
    assert head_sizes({"T": "bf16", "D": "128"}) == (128, 128)
    assert head_sizes({"T": "bf16", "D": "192"}) == (192, 128)
    assert head_sizes({"T": "bf16", "D": "64", "DV": "32"}) == (64, 32)


def test_root_is_the_package_here() -> None:
    assert (ROOT / "engine" / "gpu" / "job.py").is_file()
