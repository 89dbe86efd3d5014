"""`read_recipe`: a spec file becomes a recipe, proven against the spec's own function."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.cuir.nodes import Call, Expr, Name, Num
from engine.scalar_algebra.canonical import canonical, canonical_predicate
from engine.scalar_algebra.kinds import Kind, Kinds
from engine.scalar_algebra.rewrite import TRUE
from engine.spec import build
from engine.spec.load import surroundings, time_limit
from engine.spec.program import Program, program_of
from engine.spec.reading import Read, read_all, role_names
from engine.spec.recipe import Input, Recipe
from engine.spec.source import read_source

TIME_LIMIT_S = 60.0
_OUTPUT_NAMES = {"b": "B", "h": "Hq", "i": "Nq"}


def read_recipe(
    path: Path, options: Mapping[str, object] | None = None, *, time_limit_s: float = TIME_LIMIT_S
) -> Recipe:
    """The recipe of the spec at `path`, with its scalars overridden by `options`.

    Runs the user's code: call it in a child process only. Raises `SpecError`.
    """
    source = read_source(Path(path), options or {})
    program = program_of(source)
    with time_limit(source, time_limit_s), surroundings(source):
        read = read_all(program)
        return _recipe(program, read)


def _recipe(program: Program, read: Read) -> Recipe:
    first = read.traced[0]
    kinds: Kinds = first.trace.kinds
    keep = canonical_predicate(read.keep, kinds)
    for mask in read.late_masks:
        if canonical_predicate(build.both(keep, mask), kinds) != keep:
            raise program.source.error(
                "weights are zeroed after they are normalised", program.source.line,
                "mask the scores before the softmax, or use --transfer llm",
            )  # fmt: skip
    factor = canonical(read.output_factor, kinds)
    weight = None if read.weight is None else canonical(read.weight, kinds)
    return Recipe(
        source=program.source.kind,
        inputs=_inputs(program, read),
        score=canonical(read.score, kinds),
        keep=keep,
        weight=weight,
        kv_head=canonical(read.kv_head, kinds),
        output_dims=_output_dims(program, read),
        empty_rows="never",
        output_factor=None if build.value_of(factor) == 1 else factor,
    )


def _inputs(program: Program, read: Read) -> tuple[Input, ...]:
    reading = read.traced[0].reading
    roles = {reading.q.base: "q", reading.k.base: "k", reading.v.base: "v"}
    renamed = _renamed(program, read)
    out = []
    for t in program.tensors:
        role = roles.get(Name(t.name), "extra")
        dims = tuple(renamed.get(d, d) for d in t.dims)
        if role == "q":
            dims = tuple("Nq" if t.dims[n] in _row_names(program, read) and _is_row(reading.q.index[n], read) else d
                         for n, d in enumerate(dims))  # fmt: skip
        out.append(Input(t.name, role, t.dtype, dims))  # type: ignore[arg-type]
    return tuple(out)


def _renamed(program: Program, read: Read) -> dict[str, str]:
    """Annotated names as roles. A name that serves two roles takes the later of Nq, Nk and Hq, Hkv."""
    out: dict[str, str] = {}
    for name, role in role_names(program, read.traced[0].reading):
        if name in out and (out[name], role) in (("D", "Dv"), ("Hq", "Hkv")):
            continue
        out[name] = role
    return out


def _row_names(program: Program, read: Read) -> set[str]:
    return {name for name, role in role_names(program, read.traced[0].reading) if role == "Nq"}


def _is_row(index: Expr, read: Read) -> bool:
    reading = read.traced[0].reading
    return isinstance(index, Name) and index.id == f"o{reading.output.index('i')}"


def _output_dims(program: Program, read: Read) -> tuple[str, ...]:
    columns = {name for name, role in role_names(program, read.traced[0].reading) if role == "Dv"}
    renamed = _renamed(program, read)
    last = renamed[next(iter(columns))]
    return tuple(_OUTPUT_NAMES.get(role, last) for role in read.traced[0].reading.output)


__all__ = ["TIME_LIMIT_S", "Call", "Kind", "Num", "TRUE", "read_recipe"]
