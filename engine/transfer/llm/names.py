"""Names that an edit may not give to something of its own: they mean something in the kernel.

A variable called as a view, a parameter or a constant would take its place in the statements that
follow, and a field called as a word of C++ does not compile; both would be told much later, at a
line that says nothing of the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from engine.cuir.nodes import Assign, Call, For, Function, Module, walk_block
from engine.cuir.ops.traits import PLACES
from engine.cuir.scalar import CONSTANTS
from engine.cuir.static.kernel_names import CPP, CUDA
from engine.cuir.types import DTYPES
from engine.transfer.llm.answer import AnswerError


def refuse_names(base: Module, proposed: Module) -> None:
    """Raises `AnswerError` for the first name that is taken."""
    own = {f.name for f in base.fields}
    for field in proposed.fields:
        if field.name not in own and field.name in CPP | CUDA:
            raise AnswerError(
                f"class Args: no field can be called {field.name}, which is a word of C++ or CUDA; "
                "give it another name, and say in a ```bind line what fills it"
            )
    functions = {f.name: f for f in base.functions}
    for function in proposed.functions:
        before = functions.get(function.name)
        old = Counter(() if before is None else _assigned(before))
        for name, count in Counter(_assigned(function)).items():
            means = _meaning(name, function, before)
            if means is not None and count > old[name]:
                raise AnswerError(
                    f"{function.name}: `{name}` is {means} there; a new variable needs a name of "
                    "its own"
                )


def _assigned(function: Function) -> Iterator[str]:
    for _, stmt in walk_block(function.body, (function.name,)):
        if isinstance(stmt, Assign):
            yield stmt.target
        elif isinstance(stmt, For):
            yield stmt.var


def _meaning(name: str, function: Function, before: Function | None) -> str | None:
    """What a name means in a function already, where it may not mean anything else."""
    if name == "args":
        return "the argument struct"
    if name in CONSTANTS or name in DTYPES or name in ("success", "inf", "nan"):
        return "a word of CuIR"
    if name in function.consts:
        return "a compile-time constant"
    if name in {p.name for p in function.params}:
        return "a parameter"
    body = () if before is None else walk_block(before.body, (before.name,))
    for _, stmt in body:
        match stmt:
            case Assign(target, Call(fn, _)) if target == name and fn in PLACES:
                return f"what `{name} = {fn}...` says"
    return None
