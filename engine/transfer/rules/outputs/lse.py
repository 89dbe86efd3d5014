"""The log-sum-exp in the base that the spec returns."""

from __future__ import annotations

from engine.cuir.nodes import Call, Do, Module, Name, Stmt
from engine.cuir.rewrite import Block, put_before
from engine.cuir.text.quote import stmt
from engine.errors import TransferError
from engine.transfer.rules.base.rule import Case, Rule


def in_base_two(module: Module, case: Case) -> Module:
    """The rows' log-sum-exp times log2(e) before it is stored."""
    if "lse" not in case.found.fields:
        raise TransferError("the spec returns a log-sum-exp, and the kernel stores none")

    def change(one: Stmt) -> Block:
        match one:
            case Do(Call("store_rows", (_, Name(lse)))):
                return (stmt("lse = map(lse, lambda x: x * LOG2E)", lse=lse),)
        return ()

    return put_before(module, case.found.kernel, change)


RULE = Rule(
    "lse_base",
    "Give the log-sum-exp in base 2",
    "the spec returns it so: a natural one times log2(e)",
    "normaliser",
    applies=lambda case: case.softmax and case.recipe.lse == "2",
    edit=in_base_two,
    after=("sink",),
)
