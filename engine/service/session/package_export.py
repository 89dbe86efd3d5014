"""An accepted session as a kernel package: the folder that builds and imports without us."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from engine.cuir.static.host_constants import head_sizes
from engine.errors import InputError
from engine.files import read_spec
from engine.lift import specialisation_key
from engine.lift.files.kernel_package import Specialisation
from engine.lift.files.lifter import lift_source
from engine.package.export import Content, Layout, export, files_for, package_files, write_files
from engine.package.hub import hub_files
from engine.package.texts import source_words
from engine.service.session.content import LOWERED
from engine.service.session.disk_inputs import check_kernel, check_spec, spec_modules
from engine.service.session.stage_work import Work
from engine.spec.python.spec_file import read_source
from engine.transfer.workspace import constants_by_arch
from engine.types import Level, Stage

PACKAGE_NAME = "cubridge_kernel"
SOURCES = frozenset({".cu", ".cuh"})  # a path with such a name is a file, any other a folder


LAYOUTS: dict[str, Layout] = {"package": package_files, "hub": hub_files}
"""What an export may be: a package that builds itself, or a source of the kernels hub."""


def export_session(work: Work, folder: Path, layout: str = "package") -> Path:
    """Write the session's accepted kernel into `folder`, as one of `LAYOUTS`; its path.

    Raises:
        InputError: nothing was accepted, or what was accepted is not what the session holds now.
    """
    level = _accepted_level(work)
    own = work.own_files(level)
    if own is None:
        return export(content_of(work, level), folder, LAYOUTS[layout])
    if layout != "package":
        raise InputError(
            f"{work.package.name} is executed as PTX: it has one layout, that of `cubridge import`",
            fix="leave --layout out",
        )
    return write_files(lambda _: own, folder)


def committed_files(work: Work, path: Path) -> dict[Path, bytes]:
    """What a commit of the session's accepted kernel as `path` holds, by absolute path.

    A folder is a kernel package. A CUDA file is the verified source as it is, with a Markdown file
    beside it that says what it is: its own first comment is the expert's, and a byte more in it
    would be another source than the one that was verified.

    Raises:
        InputError: as `export_session`; or a folder that cannot be a package's.
    """
    level = _accepted_level(work)
    path = path.expanduser().absolute()
    if path.suffix not in SOURCES:
        own = work.own_files(level)
        if own is not None:
            return {path / name: data for name, data in own.items()}
        return files_for(content_of(work, level), path)
    lowered = work.session.artifact(Stage.LOWERED, LOWERED)
    words = source_words(
        path.name, work.package.name, work.asked, work.state.verdicts, level,
        work.session.id, lowered.sha256,
    )  # fmt: skip
    return {path: lowered.data, path.with_suffix(".md"): words.encode()}


def package_name(session: str) -> str:
    """A session's name as a folder that Python can import."""
    name = session.replace("-", "_")
    return name if name[:1].isalpha() else f"attention_{name}"


def _accepted_level(work: Work) -> Level:
    """The level that the session's present content was accepted at; raises `InputError`."""
    state = work.state
    if state.acceptance is None or state.accepted_level is Level.NONE:
        raise InputError(
            f"session {work.session.id} has no accepted kernel",
            fix="accept it first: the app's accept key, or cubridge adapt --accept",
        )
    if not state.acceptance_is_current:
        raise InputError(
            f"session {work.session.id} changed since it was accepted",
            fix="accept it again, or fork the session at the acceptance",
        )
    return state.accepted_level


def package_archive(work: Work, level: Level) -> bytes:
    """The session's package as a tar: the same bytes for the same content and level."""
    files = work.own_files(level) or package_files(content_of(work, level), PACKAGE_NAME)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{PACKAGE_NAME}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def content_of(work: Work, level: Level) -> Content:
    """What the package of a session's lowered kernel, accepted at `level`, is made of."""
    check_kernel(work)
    check_spec(work)
    package, state = work.package, work.state
    arch = work.options.arch
    source = work.session.artifact(Stage.LOWERED, LOWERED).data
    return Content(
        kernel=package.name,
        source=source,
        headers=package.headers,
        entry=package.entry,
        archs=(arch, *(a for a in package.archs if a != arch)),
        specialisations=package.specialisations,
        fields=[(f.name, f.type) for f in work.target.fields],
        asked=work.asked,
        binding=work.binding,
        spec_name=work.spec.name,
        spec=read_spec(work.spec),
        spec_options=work.options.spec,
        spec_modules=spec_modules(work.spec),
        verdicts=state.verdicts,
        level=level,
        value_columns=_value_columns(source, package.entry, package.specialisations, arch),
        constants=constants_by_arch(source, package, work.binding),
        parameters=_parameters(work),
        judged=specialisation_key(work.options.specialisation),
    )


def _parameters(work: Work) -> dict[str, str]:
    """What the spec's function calls its inputs, where a recipe needs another name."""
    tensors = read_source(work.spec, work.options.spec).tensors
    return {t.name: t.keyword for t in tensors if t.keyword != t.name}


def _value_columns(
    source: bytes, entry: str, specialisations: tuple[Specialisation, ...], arch: str
) -> dict[str, int]:
    """Dv by specialisation key, where the launcher's constants give it another value than D."""
    out: dict[str, int] = {}
    for binding in specialisations:
        sizes = head_sizes(lift_source(source, binding, arch, entry=entry).module)
        if sizes is not None and sizes[0] != sizes[1]:
            out[specialisation_key(binding)] = sizes[1]
    return out
