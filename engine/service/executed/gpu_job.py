"""The GPU job of a patched kernel of others: its sources, and a page that calls its launcher."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.build.folder.units import arch_number
from engine.child.client import Child
from engine.cuir.arch import archs
from engine.cuir.nodes import Num, names_in
from engine.cuir.parser import parse_expr
from engine.errors import InputError
from engine.foreign.called import ENTRY, HEADER, Interface, interface_of, page_text
from engine.foreign.cases import complete
from engine.foreign.check import Asked, launcher_of
from engine.foreign.compile import STAND_INS
from engine.foreign.includes import reached, read_included, roots_of
from engine.foreign.launcher import Launcher, Parameter
from engine.foreign.reference import Reference, read_reference
from engine.gpu.job import Contents, ForeignJob, keys_of
from engine.graft.kernel import ExecutedKernel
from engine.spec.python.declarations import declared
from engine.spec.python.signature import Signature
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.transfer.binding import SIZES, Binding, ScalarField, SizeField, TensorField
from engine.types import Gate, Stage, sha256_of
from engine.worker.orchestration.manifest import UNEDITED
from engine.worker.problems.terms import Terms

if TYPE_CHECKING:
    from engine.service.executed.executed_work import ExecutedWork

# What the worker calls an extra input's elements, by the launcher's name for them.
_STORED = {"f32": "f32", "i32": "i32", "i64": "int64", "u8": "bool"}
_COPIES = ("Memset", "Memcpy")  # of a launcher, as the profiler calls them
_LSE = ("B", "Hq", "Nq")
# What is timed beside someone's kernel and its source: rivals that nothing has to be compiled for.
_RIVALS = ("sdpa",)


def job_of(work: ExecutedWork, bench: Mapping[str, Any]) -> Contents:
    """The job of a session's patched source.

    Raises:
        InputError: the launcher takes what a job has no value for, or a flag names a file.
    """
    recipe = work.recipe
    assert recipe is not None
    lowered = {file: work.session.artifact(Stage.LOWERED, name).data
               for file, name in work.lowered_names().items()}  # fmt: skip
    spec = reference_of(work.spec, recipe, work.options.spec)
    made = contents_of(work.package, lowered, spec, recipe, kernels_run(work), work.bench.child)
    return replace(made, title=work.state.title, bench={**made.bench, **bench})


def contents_of(
    package: ExecutedKernel, lowered: Mapping[Path, bytes], spec: Reference, recipe: Recipe,
    kernels: Sequence[str], child: Child,
) -> Contents:  # fmt: skip
    """The job of a kernel with these files' texts in the place of the author's.

    Raises:
        InputError: as `job_of` does.
    """
    asked = package.asked
    source = asked.source.resolve()
    own = read_reference(_given(asked), child, asked.options)
    ours = interface_of(_launcher(lowered.get(source, package.source), asked, spec))
    theirs = interface_of(_launcher(package.source, asked, own))
    carried = Carried(asked, lowered)
    page = page_text(ours, carried.page(source))
    files = {
        HEADER.name: read_included(HEADER),
        UNEDITED: page_text(theirs, carried.page(source, True), ours.fields).encode(),
        **carried.files,
    }
    headers = tuple(sorted(files.items()))
    known = ForeignJob(
        tuple(ours.fields),
        (*kernels, *_COPIES),
        _given(asked),
        _flags(asked),
        carried.includes(),
        carried.includes(True),
        terms_of(ours.launcher, asked, own.signature),
        dict(asked.options),
        own.signature if own.recipe is None else recipe_from_json(own.recipe),
        fast_tanh(asked, lowered.values()),
    )
    return Contents(
        name=f"{package.name}-{spec.path.stem}",
        title=f"{spec.path.stem} on {package.name}",
        source=page.encode(),
        headers=headers,
        headers_sha256=sha256_of(
            b"".join(f"{len(name)} {name} {len(data)}\n".encode() + data for name, data in headers)
        ),
        entry=ENTRY,
        archs=archs_from(asked.flags.arch),
        specialisations=package.specialisations,
        primary=keys_of(package.specialisations)[0],
        kind=known,
        spec=spec.path,
        options=spec.options,
        asked=recipe,
        binding=binding_of(ours, spec, asked),
        declared=keys_of(package.specialisations),
        bench={"rivals": list(_RIVALS)},
    )


class Carried:
    """The files that a kernel's source includes, as they lie below a job's `kernel`: `root0` is the
    source's own folder, the others are include folders. `source` has the author's own again where
    a folder has a patched file."""

    def __init__(self, asked: Asked, lowered: Mapping[Path, bytes]) -> None:
        self.searched = (*asked.flags.includes, str(STAND_INS))
        self.roots = roots_of(asked.source, self.searched)
        self.below = {
            file: f"root{self.roots.index(root)}/{file.relative_to(root).as_posix()}"
            for file, root in reached(asked.source, self.searched).items()
        }
        self.patched = {self.below[file].split("/")[0] for file in lowered}
        self.files = dict(self._files(lowered))

    def _files(self, lowered: Mapping[Path, bytes]) -> Iterator[tuple[str, bytes]]:
        for file, name in self.below.items():
            text = read_included(file)
            yield name, lowered.get(file, text)
            if name.split("/")[0] in self.patched:
                yield f"source/{name}", text

    def page(self, source: Path, unedited: bool = False) -> str:
        """How a page includes the source."""
        return self._place(self.below[source], unedited)

    def includes(self, unedited: bool = False) -> tuple[str, ...]:
        """The include folders, in the compiler's order."""
        used = {name.split("/")[0] for name in self.below.values()}
        names = [f"root{n}" for n in range(len(self.roots))]
        return tuple(self._place(n, unedited) for n in names if n in used)

    def _place(self, name: str, unedited: bool) -> str:
        return f"source/{name}" if unedited and name.split("/")[0] in self.patched else name


def reference_of(path: Path, recipe: Recipe, options: Mapping[str, Any]) -> Reference:
    """The spec as what a launcher's names are read by."""
    said = declared(read_source(path, dict(options)))
    return Reference(path, Signature.of(recipe), None, dict(said.scalars), dict(options))


def _launcher(source: bytes, asked: Asked, spec: Reference) -> Launcher:
    return launcher_of(asked, source.decode("utf-8", "surrogateescape"), spec)


def binding_of(own: Interface, spec: Reference, asked: Asked) -> Binding:
    """How a case fills the launcher's fields."""
    dims = {d for i in spec.signature.inputs for d in i.dims}
    return Binding(
        tuple(
            _tensor(name, p, spec.signature, own.tensors["q"].dtype)
            for name, p in own.tensors.items()
        ),
        tuple(SizeField(f, _size(text, dims, asked.sizes)) for text, f in own.sizes.items()),
        tuple(ScalarField(n, _scalar(spec.scalars.get(n))) for n in own.scalars),
    )


def _tensor(field: str, p: Parameter, signature: Signature, element: str) -> TensorField:
    """`element` is the type of Q."""
    if len(p.dims) > 4:
        raise InputError(f"{p.name} has {len(p.dims)} dimensions: a job passes four at most")
    if p.means == "o":
        dims = signature.output_dims
        stored = _stored(p, element, {})
        return TensorField(field, "O", dims, dims, stored, output=True)
    if p.means == "lse":
        if p.dtype != "f32" or len(p.dims) != len(_LSE):
            raise InputError(f"{p.name} is no [B, Hq, Nq] of floats, which a job compares LSE in")
        return TensorField(field, "LSE", _LSE, _LSE, "f32", output=True)
    item = next((i for i in signature.inputs if p.means in (i.role, i.name)), None)
    if item is None:
        raise InputError(f"the launcher takes {p.name}, which the spec has not")
    stored = _stored(p, element, _STORED if item.role == "extra" else {})
    return TensorField(field, item.name, item.dims, item.dims, stored)


def _stored(p: Parameter, element: str, others: Mapping[str, str]) -> str:
    """What the worker calls a parameter's elements: those of Q, or one of `others`."""
    if p.dtype not in others and p.dtype != element:
        carried = ", ".join((f"the type of q ({element})", *others))
        raise InputError(f"{p.name} has elements of {p.dtype}: a job carries {carried} there")
    return others.get(p.dtype, "T")


def _size(text: str, dims: set[str], cases: Sequence[Mapping[str, int]]) -> str:
    """A dimension as an expression of a case's sizes."""
    if not text.isidentifier() or text in SIZES or text in dims:
        return text
    if text == "N":
        return "Nq"
    given = {case.get(text) for case in cases}
    if len(given) != 1 or None in given:
        raise InputError(
            f"the launcher's {text} is not one number in all cases, so a job has no value for it",
            fix="import the kernel with the same value in each --sizes",
        )
    return str(given.pop())


def _scalar(value: float | bool | None) -> Any:
    return parse_expr("1 / sqrt(float(D))") if value is None else Num(float(value))


def terms_of(launcher: Launcher, asked: Asked, own: Signature) -> Terms:
    """What the launcher takes: lengths as its cases have them, and what its reference allows."""
    cases = [complete(launcher, case) for case in asked.sizes]
    lengths = [case[name] for case in cases for name in ("Nq", "Nk")]
    requires = ["B == 1"] if "B" not in launcher.sizes else []
    for one, other in (("Nq", "Nk"), ("Hkv", "Hq")):
        if all(case[one] == case[other] for case in cases):
            requires.append(f"{one} == {other}")
    constraints = [c for c in own.constraints if names_in(c) <= set(SIZES)]
    return Terms(math.gcd(*lengths) or 1, (*map(parse_expr, requires), *constraints), True)


def fast_tanh(asked: Asked, texts: Iterable[bytes]) -> bool:
    """Whether nvcc takes the hardware's approximate tanh for the one that these texts call."""
    return any(f.endswith("-use_fast_math") for f in asked.flags.more) and any(
        b"tanhf" in text for text in texts
    )


def archs_from(arch: str) -> tuple[str, ...]:
    """What nvcc may build a source for that is written for an arch: that one, and later ones where
    it is none's own (sm_80, not sm_90a)."""
    if not arch[-1].isdigit():
        return (arch,)
    later = (a for a in archs() if a[-1].isdigit() and arch_number(a) > arch_number(arch))
    return (arch, *later)


def kernels_run(work: ExecutedWork) -> tuple[str, ...]:
    """The kernels that G2 saw the launcher launch."""
    verdict = work.state.verdict(Gate.G2)
    rows = () if verdict is None else verdict.details.get("cases", ())
    names = dict.fromkeys(str(k) for row in rows for k in row.get("kernels", ()))
    if not names:
        id = work.session.id
        raise InputError(f"G2 of session {id} was not run", fix=f"cubridge check {id}")
    return tuple(names)


def _given(asked: Asked) -> Path:
    assert asked.reference is not None
    return asked.reference


def _flags(asked: Asked) -> tuple[str, ...]:
    flags = asked.flags
    files = [word for word in flags.more if Path(word).is_file()]
    if files:
        raise InputError(
            f"a job does not carry {files[0]}, which the flags name",
            fix="include it in the source, and import the kernel again",
        )
    return (*(f"-D{macro}" for macro in flags.macros), *(flags.more or ("-std=c++17",)))
