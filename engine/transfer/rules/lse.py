"""The log-sum-exp in the base that the spec returns."""

from __future__ import annotations

from dataclasses import replace

from engine.cuir.nodes import Call, Do, Module, Name
from engine.cuir.quote import stmt
from engine.errors import TransferError
from engine.transfer.rewrite import Block, map_blocks, map_function
from engine.transfer.rules.rule import Case, Rule


def in_base_two(module: Module, case: Case) -> Module:
    """The rows' log-sum-exp times log2(e) before it is stored."""
    if "lse" not in case.found.fields:
        raise TransferError("the spec returns a log-sum-exp, and the kernel stores none")

    def edit(stmts: Block) -> Block:
        for position, one in enumerate(stmts):
            match one:
                case Do(Call("store_rows", (_, Name(lse)))):
                    change = stmt("lse = map(lse, lambda x: x * LOG2E)", lse=lse)
                    return (*stmts[:position], change, *stmts[position:])
        return stmts

    return map_function(
        module, case.found.kernel, lambda f: replace(f, body=map_blocks(f.body, edit))
    )


RULE = Rule(
    "lse_base",
    "Give the log-sum-exp in base 2",
    "the spec returns it so: a natural one times log2(e)",
    "normaliser",
    applies=lambda case: case.softmax and case.recipe.lse == "2",
    edit=in_base_two,
    after=("sink",),
)
