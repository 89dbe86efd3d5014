"""`job.json`: what a job holds, and whether its files are still the ones that were packed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 4
MANIFEST = "job.json"
KERNEL = "kernel"
SOURCE = "kernel.cu"
RECIPE, SIGNATURE = "recipe.json", "signature.json"
MODULE = "module.cuir"


# Of someone else's kernel: the folder of its reference, and the page for its unedited source.
REFERENCE, UNEDITED = "reference", "unedited.cu"


class JobError(Exception):
    """A job that cannot be run: the message says why and what to do."""


@dataclass(frozen=True)
class ForeignManifest:
    """Of someone else's kernel: nvcc's flags and include folders below `kernel` in their order,
    those of the unedited source, the terms of its launcher, whether nvcc takes the approximate tanh
    for the one that the patch calls, and its own reference: the file's name, the options that a
    person set, and the recipe or signature as JSON."""

    flags: tuple[str, ...]
    includes: tuple[str, ...]
    source_includes: tuple[str, ...]
    terms: Mapping[str, Any]
    fast_tanh: bool
    reference: str
    options: Mapping[str, Any]
    recipe: Mapping[str, Any] | None
    signature: Mapping[str, Any] | None

    def words(self, kernel: Path, unedited: bool = False) -> tuple[str, ...]:
        """nvcc's flags, for the folder `kernel` of a job."""
        folders = self.source_includes if unedited else self.includes
        return (*(f"-I{kernel / name}" for name in folders), *self.flags)

    @staticmethod
    def of(data: Mapping[str, Any] | None) -> ForeignManifest | None:
        if data is None:
            return None
        lists = ("flags", "includes", "source_includes")
        return ForeignManifest(**{**data, **{name: tuple(data[name]) for name in lists}})


@dataclass(frozen=True)
class Job:
    """A job folder, read.

    `hashes` are SHA-256 in hex of what a verdict hangs on: `kernel` (the bytes of kernel.cu),
    `headers`, `spec`, `recipe` (or `signature`, where no recipe could be read), `binding`,
    `options`, `spec_modules` where the spec imports some, and `theirs` of someone else's kernel.
    `specialisations` are bindings of the launch template's parameters in order, some or all of the
    kernel's `declared` keys; `primary` is the key of the one that is judged on the whole deck.
    `fields` are name and type of the argument struct's fields. `constants` are those of the
    launcher that the workspace's size depends on, by arch and key. `section` is how many heads the
    kernel takes in turn before the next ones. `theirs` is None in a job of ours.
    """

    folder: Path
    name: str
    title: str
    entry: str
    archs: tuple[str, ...]
    specialisations: tuple[Mapping[str, str], ...]
    declared: tuple[str, ...]
    primary: str
    fields: tuple[tuple[str, str], ...]
    constants: Mapping[str, Mapping[str, Mapping[str, int]]]
    section: int
    kernels: tuple[str, ...]
    spec: str
    options: Mapping[str, Any]
    recipe: Mapping[str, Any] | None
    signature: Mapping[str, Any] | None
    binding: Mapping[str, Any]
    bench: Mapping[str, Any]
    hashes: Mapping[str, str]
    files: Mapping[str, str]
    worker: str
    theirs: ForeignManifest | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The specialisations' keys, the primary first."""
        keys = [key_of(s) for s in self.specialisations]
        return (self.primary, *(k for k in keys if k != self.primary))

    def specialisation(self, key: str) -> Mapping[str, str]:
        return next(s for s in self.specialisations if key_of(s) == key)

    @property
    def source(self) -> Path:
        return self.folder / KERNEL / SOURCE

    @property
    def unedited(self) -> bool:
        """Whether it is someone else's kernel as its author wrote it."""
        return (
            self.theirs is not None
            and self.theirs.includes == self.theirs.source_includes
            and self.files[f"{KERNEL}/{SOURCE}"] == self.files[f"{KERNEL}/{UNEDITED}"]
        )

    @property
    def module_text(self) -> str:
        """The primary specialisation's CuIR, for the cost model; empty if it is not there."""
        path = self.folder / MODULE
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @property
    def work(self) -> Path:
        """Where builds, rows and dumps go; safe to delete."""
        return self.folder / "work"


def names_fast_tanh(*texts: str) -> bool:
    """Whether a text takes the hardware's approximate tanh, or sigmoid through it."""
    names = ("tanh_approx", "sigmoid_approx", "tanh.approx")
    return any(name in text for name in names for text in texts)


def key_of(specialisation: Mapping[str, str]) -> str:
    """`bf16_128`: the values in the launch template's order."""
    return "_".join(specialisation.values())


def head_sizes(specialisation: Mapping[str, str]) -> tuple[int, int]:
    """D and Dv of a binding such as {"T": "bf16", "D": "128"}.

    A kernel for heads of 192 has values of 128 (the shape of multi-head latent attention) unless it
    names DV itself.
    """
    d = int(specialisation["D"])
    named = specialisation.get("DV") or specialisation.get("Dv")
    return d, int(named) if named else 128 if d == 192 else d


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_job(folder: Path) -> Job:
    """The job in `folder`, every packed file checked against its hash.

    Raises:
        JobError: no job, one of another version, or a file that is missing or changed.
    """
    folder = folder.resolve()
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise JobError(f"{folder} is no job: {MANIFEST}: {error.strerror}") from None
    except ValueError as error:
        raise JobError(f"{folder / MANIFEST} is not JSON: {error}; pack the job again") from None
    if data.get("schema") != SCHEMA:
        raise JobError(
            f"{folder}: job schema {data.get('schema')!r} is not {SCHEMA}; pack it again"
        )
    for name, wanted in data["files"].items():
        path = folder / name
        if not path.is_file():
            raise JobError(f"{folder}: {name} is missing; carry the whole folder")
        if file_hash(path) != wanted:
            raise JobError(f"{folder}: {name} is not the file that was packed; pack the job again")
    return Job(
        folder=folder,
        name=data["name"],
        title=data["title"],
        entry=data["entry"],
        archs=tuple(data["archs"]),
        specialisations=tuple(data["specialisations"]),
        declared=tuple(data["declared"]),
        primary=data["primary"],
        fields=tuple((n, t) for n, t in data["fields"]),
        constants=data["constants"],
        section=data["section"],
        kernels=tuple(data["kernels"]),
        spec=data["spec"],
        options=data["options"],
        recipe=_json(folder, RECIPE) if RECIPE in data["files"] else None,
        signature=_json(folder, SIGNATURE) if SIGNATURE in data["files"] else None,
        binding=json.loads((folder / "binding.json").read_text(encoding="utf-8")),
        bench=data["bench"],
        hashes=data["hashes"],
        files=data["files"],
        worker=data["worker"],
        theirs=ForeignManifest.of(data.get("theirs")),
    )


def _json(folder: Path, name: str) -> Mapping[str, Any]:
    data: Mapping[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return data


def arch_for(capability: tuple[int, int], archs: tuple[str, ...]) -> str | None:
    """The declared arch whose machine code runs on a card of this compute capability, or None.

    An arch-specific one ("sm_90a") is preferred where the kernel declares it. Machine code of a
    lower minor version of the same major runs too.
    """
    major, minor = capability
    for wanted in (f"sm_{major}{minor}a", f"sm_{major}{minor}f", f"sm_{major}{minor}"):
        if wanted in archs:
            return wanted
    lower = [f"sm_{major}{m}" for m in range(minor - 1, -1, -1)]
    return next((a for a in lower if a in archs), None)
