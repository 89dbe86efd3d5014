"""Which host function launches the kernel, and what a specialisation binds in it."""

from __future__ import annotations

from collections.abc import Mapping

from tree_sitter import Node as Tree

from engine.cuir.types import DTYPES
from engine.lift.cpp.source_text import Source
from engine.lift.files.program import TopLevel
from engine.lift.files.toplevel import FunctionItem, OtherItem, not_liftable
from engine.lift.names.constants import Constant


def find_launch(top: TopLevel, root: Tree, entry: str) -> FunctionItem:
    """The launch function `entry`, or the only one that runs a kernel. Raises `LiftError`."""
    source = top.source
    if not any(f.signature.kind == "kernel" for f in top.functions):
        for other in (o for o in top.order if isinstance(o, OtherItem)):
            if any(t.text == "__global__" for t in source.within(other.tree)):
                raise source.fail(
                    other.tree.start_byte,
                    f"the kernel here cannot be lifted: {other.reason}",
                    "write it as docs/lift.md says: one `Args` struct, typed template parameters",
                )
        raise not_liftable(
            source, root, "no kernel: there is no __global__ function in this text",
            "give the path of a .cu file with a kernel and its launch function",
        )  # fmt: skip
    hosts = [f for f in top.functions if f.signature.kind == "host"]
    named = [f for f in hosts if f.signature.name == entry]
    if not named:
        launching = [
            f for f in hosts
            if any(t.text == "run" for t in source.within(f.body))
        ]  # fmt: skip
        named = launching if len(launching) == 1 else []
    if not named:
        for other in (o for o in top.order if isinstance(o, OtherItem)):
            if other.name == entry:
                raise source.fail(
                    other.tree.start_byte,
                    f"the launch function {entry} cannot be lifted: {other.reason}",
                    "write `template <typename T, int D> cudaError_t launch(const Args& args, "
                    "cudaStream_t stream)`",
                )
        raise source.fail(
            top.functions[-1].tree.end_byte,
            f"no launch: there is no host function {entry} that runs the kernel",
            f"add `cudaError_t {entry}(const Args& args, cudaStream_t stream)` which "
            "returns run<kernel<...>>(...)",
        )
    return named[0]


def bind(
    source: Source, launch: FunctionItem, specialisation: Mapping[str, str]
) -> dict[str, Constant]:
    """The specialisation's values by template parameter. Raises `LiftError`."""
    consts = launch.signature.consts
    if set(specialisation) != set(consts):
        given = ", ".join(specialisation) or "nothing"
        raise source.fail(
            launch.tree.start_byte,
            f"the specialisation binds {given}, but {launch.signature.name} has the template "
            f"parameters {', '.join(consts) or '(none)'}",
            "bind exactly these, as in T=bf16, D=128 (--dtype bf16 --head-dim 128)",
        )
    binding: dict[str, Constant] = {}
    for name, kind in zip(consts, launch.signature.const_kinds, strict=True):
        value = specialisation[name]
        if kind == "type" and value in DTYPES:
            binding[name] = value
        elif kind == "bool" and value in ("true", "false"):
            binding[name] = value == "true"
        elif kind in ("i32", "i64") and value.lstrip("-").isdecimal() and len(value) < 12:
            binding[name] = int(value)
        else:
            wanted = {"type": ", ".join(DTYPES), "bool": "true or false"}.get(kind, "a number")
            raise source.fail(
                launch.tree.start_byte,
                f"{name}={value} is no value of the template parameter {name}",
                f"give {wanted}",
            )
    return binding
