"""A kernel that `cubridge import` wrote, as the service takes a kernel: executed as PTX."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from engine.cuir.static.legal_sizes import USUAL
from engine.errors import InputError, TransferError
from engine.files import SOURCE_LIMIT, read_file
from engine.foreign.check import Asked, launcher_of
from engine.foreign.includes import reached, read_included
from engine.foreign.package import MANIFEST, read_package
from engine.foreign.reference import Reference
from engine.lift.files.kernel_package import KernelPackage, hashes_of
from engine.spec.python.declarations import declared
from engine.spec.python.signature import Signature
from engine.spec.python.spec_file import read_source


@dataclass(frozen=True, slots=True)
class ExecutedKernel(KernelPackage):
    """A kernel of others: `asked` says how it is compiled, launched and compared. Its one
    specialisation is the type and the head size that its cases have."""

    asked: Asked

    @property
    def executed(self) -> bool:
        return True

    def with_source(self, path: Path) -> ExecutedKernel:
        """The kernel with the source at `path` for its own: what it includes is beside it, else
        where the kernel's own source finds it."""
        flags = self.asked.flags
        includes = tuple(dict.fromkeys((*flags.includes, str(self.folder))))
        asked = replace(self.asked, source=path, flags=replace(flags, includes=includes))
        parts = {
            "source": read_file(path, "give the path of a .cu file", SOURCE_LIMIT),
            "headers": _digest(path, asked),
        }
        kept = {part: self.hashes[part] for part in ("reference", "manifest")}
        return replace(self, file=str(path), source=parts["source"], asked=asked,
                       hashes=hashes_of(parts, kept))  # fmt: skip


def load_executed(folder: Path) -> ExecutedKernel:
    """The kernel in a folder that `cubridge import` wrote.

    Raises:
        InputError: a file of it is missing or not what it should be.
    """
    folder = folder.absolute()
    asked = read_package(folder)
    assert asked.reference is not None
    if not asked.sizes:
        raise InputError(
            f"{folder / MANIFEST} names no cases", fix="import the kernel again: its cases are kept"
        )
    source = read_file(asked.source, "write it", SOURCE_LIMIT)
    parts = {
        "source": source,
        "headers": _digest(asked.source, asked),
        "reference": read_file(asked.reference, "write it", SOURCE_LIMIT),
        "manifest": read_file(folder / MANIFEST, "import the kernel again"),
    }
    columns = str(asked.sizes[0].get("D", asked.head_dim))
    return ExecutedKernel(
        folder.name, f"{folder.name}, executed as PTX", folder, str(asked.source), asked.launcher,
        source, (), (asked.flags.arch,), ({"T": _dtype(asked, source), "D": columns},), {},
        asked.reference, {}, USUAL, hashes_of(parts), asked,
    )  # fmt: skip


_PLAIN = {"Hq": "H", "Hkv": "H", "Nq": "N", "Nk": "N", "Dv": "D"}


def same_layout(kernel: ExecutedKernel, asked: Signature) -> None:
    """Raises TransferError where a spec declares q, k, v or the output in another order of
    dimensions than the kernel's own reference does: the kernel reads memory in its own."""
    assert kernel.reference is not None
    own = _dims(Signature.of(declared(read_source(kernel.reference, {}))))
    for name, dims in _dims(asked).items():
        if [_PLAIN.get(d, d) for d in dims] != [_PLAIN.get(d, d) for d in own.get(name, dims)]:
            raise TransferError(
                f"the spec's {name} is [{', '.join(dims)}] and the kernel's "
                f"[{', '.join(own[name])}]",
                fix="declare the spec's tensors in the kernel's order",
            )


def _dims(said: Signature) -> dict[str, tuple[str, ...]]:
    return {i.role: i.dims for i in said.inputs if i.role != "extra"} | {"o": said.output_dims}


def _dtype(asked: Asked, source: bytes) -> str:
    """The element type of q."""
    assert asked.reference is not None
    said = declared(read_source(asked.reference, {}))
    reference = Reference(asked.reference, Signature.of(said), None, dict(said.scalars))
    launcher = launcher_of(asked, source.decode("utf-8", "surrogateescape"), reference)
    return next((p.dtype for p in launcher.tensors if p.means == "q"), asked.dtype)


def _digest(source: Path, asked: Asked) -> bytes:
    """What the source may include, of files and the folders that they are named in."""
    out = hashlib.sha256()
    for file, root in reached(source, asked.flags.includes).items():
        if file == source.resolve():
            continue
        data = read_included(file)
        name = file.relative_to(root).as_posix()
        out.update(f"{len(name)} {name} {len(data)}\n".encode() + data)
    return out.digest()
