"""The page that calls someone's launcher behind the C interface of every kernel.

It includes the source and `called.cuh`, has an argument struct of the launcher's tensors, their
dimensions and scalars, and a template that a build instantiates for the kernel's one type and head
size. Text in, text out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.foreign.launcher import SIZES, Launcher, Parameter

ENTRY = "launch_theirs"
HEADER = Path(__file__).with_name("called.cuh")
_TORCH = {"f32": "at::kFloat", "f64": "at::kDouble", "f16": "at::kHalf", "bf16": "at::kBFloat16",
          "i32": "at::kInt", "i64": "at::kLong", "u8": "at::kByte", "i8": "at::kChar"}  # fmt: skip
_CPP = {"i32": "int", "f32": "float", "tensor": "cubridge::TensorArg"}


@dataclass(frozen=True, slots=True)
class Interface:
    """A launcher as the fields of an argument struct.

    Args:
        tensors: by the field's name; an output that is returned is one of them.
        sizes: a field for each dimension that a tensor has or the launcher is told, by the
            dimension's text ("Nq", "Nk + 1"); a plain number has none.
        scalars: names of further numbers.
    """

    launcher: Launcher
    tensors: Mapping[str, Parameter]
    sizes: Mapping[str, str]
    scalars: Sequence[str]
    fields: Sequence[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        rows = [(name, "tensor") for name in self.tensors]
        rows += [(name, "i32") for name in self.sizes.values()]
        rows += [(name, "f32") for name in self.scalars]
        object.__setattr__(self, "fields", tuple(rows))


def interface_of(launcher: Launcher) -> Interface:
    """The fields that a launcher needs."""
    element = next(p.dtype for p in launcher.tensors if p.means == "q")
    given = (replace(p, dtype=element if p.means == "o" else "f32") for p in launcher.returned)
    launcher = replace(launcher, returned=tuple(given))
    tensors = {p.means: p for p in (*launcher.tensors, *launcher.returned)}
    dims = [d for p in tensors.values() for d in p.dims]
    dims += [p.means for p in launcher.parameters if p.kind == "size"]
    texts = [d for d in dict.fromkeys(dims) if not d.isdecimal()]
    # No plain name: a source may have a macro of it.
    sizes = {d: f"size_{d}" if d.isidentifier() else f"extent{n}" for n, d in enumerate(texts)}
    scalars = dict.fromkeys(p.means for p in launcher.parameters if p.kind == "scalar")
    return Interface(launcher, tensors, sizes, tuple(scalars))


def page_text(own: Interface, source: str, fields: Sequence[tuple[str, str]] = ()) -> str:
    """The page for a source, named as an include finds it.

    Args:
        fields: of the struct, where it has more than the launcher takes.
    """
    struct = "\n".join(f"  {_CPP[kind]} {name};" for name, kind in fields or own.fields)
    dense = "".join(
        f"  if (!cubridge::dense(args.{name}, {{{_dims(own, p)}}}))\n"
        "    return cudaErrorInvalidValue;\n"
        for name, p in own.tensors.items()
    )
    outputs = ", ".join(_output(own, p) for p in own.launcher.returned)
    given = ",\n        ".join(_argument(own, p) for p in own.launcher.parameters)
    return f"""\
// {own.launcher.name} of the source, called with tensors in the caller's memory.
#define main main_of_the_source
#include "{source}"
#undef main

#include "{HEADER.name}"

struct Args {{
{struct}
}};

template <class Element, int kHeadSize>
cudaError_t {ENTRY}(const Args& args, cudaStream_t stream) {{
{dense}\
  return cubridge::status_of(stream, {{{outputs}}}, [&] {{
    return {own.launcher.name}(
        {given});
  }});
}}
"""


def _dims(own: Interface, p: Parameter) -> str:
    return ", ".join(f"args.{own.sizes[d]}" if d in own.sizes else d for d in p.dims)


def _output(own: Interface, p: Parameter) -> str:
    product = " * ".join(["1LL", *_dims(own, p).split(", ")])
    return f'{{args.{p.means}.data, "{p.dtype}", {product}, {product} * {SIZES[p.dtype]}}}'


def _argument(own: Interface, p: Parameter) -> str:
    if p.kind == "stream":
        return "stream"
    if p.kind == "tensor" and p.torch:
        return f"at::Tensor(args.{p.means}.data, {{{_dims(own, p)}}}, {_TORCH[p.dtype]})"
    if p.kind == "tensor":
        return f"cubridge::Pointer{{args.{p.means}.data}}"
    return f"args.{own.sizes[p.means] if p.kind == 'size' else p.means}"
