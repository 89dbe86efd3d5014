"""Pack a job: a folder that verifies and times one kernel on any machine with a GPU.

JOB/run.py            python3 JOB/run.py [--out result.json]
JOB/job.json          names, hashes of every file, what to build and what to time
JOB/kernel/           kernel.cu and its headers; of someone else's kernel docs/gpu.md says what
JOB/spec/             the spec and the modules beside it
JOB/reference/        someone else's kernel's own
JOB/recipe.json or JOB/signature.json, JOB/binding.json, JOB/module.cuir (of ours)
JOB/worker/engine/    the modules of ours that run there
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from engine.closure import ROOT, beside, closure, foreign, local_modules
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import InputError, Where
from engine.files import read_spec
from engine.gates.analysis.tile_sizes import section_of
from engine.spec.python.signature import Asked, Signature, recipe_of, signature_to_json
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.binding import Binding
from engine.types import sha256_of
from engine.worker.orchestration.manifest import (
    KERNEL,
    MANIFEST,
    MODULE,
    RECIPE,
    REFERENCE,
    SCHEMA,
    SIGNATURE,
    SOURCE,
    key_of,
)
from engine.worker.problems.terms import Terms

WORKER_ROOTS = (
    "engine.worker.orchestration.main", "engine.worker.verification.verify",
    "engine.worker.verification.sanitize", "engine.worker.contests.bench",
)  # fmt: skip
LENGTHS = (2048, 8192)
SAMPLES = 30


@dataclass(frozen=True, slots=True)
class LiftedJob:
    """Of a kernel of ours: any specialisation of the lowered program; its argument struct and its
    kernels' names are those of all."""

    module: Module
    fast_tanh: ClassVar[bool] = False  # the text itself says so

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        return tuple((f.name, f.type) for f in self.module.fields)

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.module.functions if f.kind == "kernel")

    @property
    def section(self) -> int:
        return section_of(self.module)

    def files(self) -> dict[str, bytes]:
        # What the cost model predicts from, beside what is measured; the worker hands it through.
        return {MODULE: print_module(self.module).encode()}

    def manifest(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """Of someone else's kernel: the launcher's fields, the kernels that it was seen to launch, its
    own reference, and what the worker is told of it (`engine.worker.orchestration.manifest`)."""

    fields: tuple[tuple[str, str], ...]
    kernels: tuple[str, ...]
    reference: Path
    flags: tuple[str, ...]
    includes: tuple[str, ...]
    source_includes: tuple[str, ...]
    terms: Terms
    options: Mapping[str, Any]
    asked: Asked
    fast_tanh: bool = False
    section: int = 1

    def files(self) -> dict[str, bytes]:
        return _spec_files(self.reference, REFERENCE)

    def manifest(self) -> dict[str, Any]:
        name, asked = _asked(self.asked)
        return {
            "flags": list(self.flags), "includes": list(self.includes),
            "source_includes": list(self.source_includes), "terms": self.terms.to_json(),
            "fast_tanh": self.fast_tanh,
            "reference": self.reference.name, "options": dict(self.options),
            **{n.removesuffix(".json"): json.loads(asked) if n == name else None
               for n in (RECIPE, SIGNATURE)},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contents:
    """What a job is made of.

    `specialisations` are bindings of the launch template's parameters, `declared` the keys of all
    that the kernel has (a job may hold fewer), `primary` the key of the one that is judged on the
    whole deck and timed. `kind` is what is known of ours or of theirs. `constants` are those of the
    launcher that the workspace's size depends on, by arch and key. `asked` is the recipe, or the
    signature alone where no rule reads the spec: its function then judges by itself.
    """

    name: str
    title: str
    source: bytes
    headers: tuple[tuple[str, bytes], ...]
    headers_sha256: str
    entry: str
    archs: tuple[str, ...]
    specialisations: tuple[Mapping[str, str], ...]
    primary: str
    kind: LiftedJob | ForeignJob
    spec: Path
    options: Mapping[str, Any]
    asked: Asked
    binding: Binding
    declared: tuple[str, ...] = ()
    constants: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    bench: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = [key_of(s) for s in self.specialisations]
        if self.primary not in keys:
            raise InputError(
                f"{self.name} has no specialisation {self.primary}",
                fix=f"name one of: {', '.join(keys)}",
            )


def hashes_of(contents: Contents) -> dict[str, str]:
    """What a G4 verdict hangs on, SHA-256 in hex.

    `recipe` or `signature`, as the case may be: a result by one is never one by the other.
    `spec_modules` where the spec imports modules beside it, `theirs` of someone else's kernel.
    """
    name, asked = _asked(contents.asked)
    hashes = {
        "kernel": sha256_of(contents.source),
        "headers": contents.headers_sha256,
        "spec": sha256_of(read_spec(contents.spec)),
        name.removesuffix(".json"): sha256_of(asked),
        "binding": sha256_of(_json(contents.binding.to_json())),
        "options": sha256_of(_json(dict(contents.options))),
    }
    theirs = contents.kind.manifest()
    if theirs is not None:
        hashes["theirs"] = sha256_of(_json(theirs))
    modules = {n: sha256_of(read_spec(p)) for n, p in beside(contents.spec).items()}
    return hashes | ({"spec_modules": sha256_of(_json(modules))} if modules else {})


def compares_lse(contents: Contents) -> bool:
    """Whether the kernel gives an LSE, and a recipe says what it must be."""
    recipe = recipe_of(contents.asked)
    given = any(t.output and t.source == "LSE" for t in contents.binding.tensors)
    return recipe is not None and recipe.weight is None and given


def pack(contents: Contents, target: Path) -> Path:
    """Write the job to `target`: a new or empty folder, an earlier job, or a new .tar file.

    It is written aside and put in place whole: what fails leaves nothing there.

    Raises:
        InputError: the target holds something else or cannot be written, or the spec needs what a
            job cannot bring.
    """
    tar = target.suffix == ".tar"
    where = Where(str(target))
    if tar and target.exists():
        raise InputError("is there already", where=where, fix="name a new file")
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not _is_job(target))):
        raise InputError("is there already, and it is no job", where=where, fix="name a new folder")
    files = _files(contents)
    files[MANIFEST] = _manifest(contents, files)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".cubridge-job-") as aside:
            made = Path(aside) / "job"
            if tar:
                _write_tar(files, made, target.stem)
            else:
                _write_folder(files, made)
            if not tar and _is_job(target):
                _renew(made, target)
            else:
                made.replace(target)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            where=where,
            fix="free space on that disk, or name another place",
        ) from error
    return target


def _write_tar(files: Mapping[str, bytes], path: Path, folder: str) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(data))


def _write_folder(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _renew(made: Path, job: Path) -> None:
    """Put a job's files in the place of an earlier one's; results and builds in `work` stay."""
    for name in (KERNEL, "spec", REFERENCE, "worker"):
        shutil.rmtree(job / name, ignore_errors=True)
    for name in (RECIPE, SIGNATURE, MODULE):
        (job / name).unlink(missing_ok=True)
    # The manifest last: until it is there, the job is the earlier one with files that do not match.
    for path in sorted(made.iterdir(), key=lambda p: p.name == MANIFEST):
        path.replace(job / path.name)


def _files(contents: Contents) -> dict[str, bytes]:
    """Every file of the job but its manifest."""
    files: dict[str, bytes] = {f"{KERNEL}/{SOURCE}": contents.source}
    files |= {f"{KERNEL}/{name}": data for name, data in contents.headers}
    files |= _spec_files(contents.spec, "spec") | contents.kind.files()
    name, asked = _asked(contents.asked)
    files[name] = asked.encode()
    files["binding.json"] = _json(contents.binding.to_json()).encode()
    files |= {f"worker/{name}": path.read_bytes() for name, path in worker_files().items()}
    files["run.py"] = (ROOT / "engine/worker/orchestration/run.py").read_bytes()
    return files


@cache
def worker_files() -> Mapping[str, Path]:
    """Our own modules that the worker is made of: file name in the job -> file here. To find them
    takes 0.6 s, and they stay the same as long as this process runs.

    Raises `InputError` where one of them imports what a GPU machine may lack.
    """
    worker = closure(WORKER_ROOTS)
    lacking = foreign(worker.values())
    if lacking:
        name, path = next(iter(lacking.items()))
        raise InputError(
            f"the worker imports {name}, which a GPU machine may lack",
            where=Where(str(path)),
            fix="import it in the function that needs it, outside the worker",
        )
    return worker


def _asked(asked: Asked) -> tuple[str, str]:
    """The name and the text of what says what is asked."""
    if isinstance(asked, Signature):
        return SIGNATURE, _json(signature_to_json(asked))
    return RECIPE, _json(recipe_to_json(asked))


def _spec_files(spec: Path, folder: str) -> dict[str, bytes]:
    modules = local_modules(spec)
    files = {f"{folder}/{name}": read_spec(path) for name, path in modules.items()}
    files[f"{folder}/{spec.name}"] = read_spec(spec)
    return files


def worker_hash(contents: Contents) -> str:
    """The hash of what would run a job of these contents, as its result names it."""
    return _worker_hash(_files(contents))


def _worker_hash(files: Mapping[str, bytes]) -> str:
    worker = hashlib.sha256()
    for name in sorted(n for n in files if n.startswith("worker/") or n == "run.py"):
        worker.update(f"{name} {len(files[name])}\n".encode() + files[name])
    return worker.hexdigest()


def _manifest(contents: Contents, files: Mapping[str, bytes]) -> bytes:
    data = {
        "schema": SCHEMA,
        "name": contents.name,
        "title": contents.title,
        "entry": contents.entry,
        "archs": list(contents.archs),
        "specialisations": [dict(s) for s in contents.specialisations],
        "declared": list(contents.declared or keys_of(contents.specialisations)),
        "primary": contents.primary,
        "fields": [list(f) for f in contents.kind.fields],
        "constants": {a: dict(keys) for a, keys in contents.constants.items()},
        "section": contents.kind.section,
        "kernels": list(contents.kind.kernels),
        "spec": contents.spec.name,
        "options": dict(contents.options),
        "bench": {"lengths": list(LENGTHS), "samples": SAMPLES, **contents.bench},
        "hashes": hashes_of(contents),
        "theirs": contents.kind.manifest(),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        "worker": _worker_hash(files),
    }
    # Unsorted: the order of a specialisation's parameters is the template's.
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _is_job(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and (folder / "run.py").is_file()


def _json(data: object) -> str:
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def keys_of(specialisations: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """`bf16_128` and its like, in order."""
    return tuple(key_of(s) for s in specialisations)
