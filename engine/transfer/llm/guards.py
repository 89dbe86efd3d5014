"""What no model's edit may do, found in the module itself before anything runs.

The gates judge what a module computes. These checks look for ways to be right on a deck only.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from engine.cuir.execute_free import stored_fields
from engine.cuir.nodes import (
    Assign,
    Attr,
    Call,
    Compare,
    Do,
    Expr,
    Function,
    Index,
    Module,
    Name,
    Num,
    Opaque,
    walk_block,
    walk_expr,
)  # fmt: skip
from engine.cuir.printer import print_expr
from engine.transfer.rewrite import free_names, stmt_exprs
