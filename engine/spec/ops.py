"""What each ATen op means per element: tables of handlers for `engine.spec.trace`."""

from __future__ import annotations

from engine.spec.ops_elementwise import ELEMENTWISE
from engine.spec.ops_make import CREATION, GATHERING
from engine.spec.ops_norm import NORMS
from engine.spec.ops_reduce import REDUCING
from engine.spec.ops_support import Handler, Unreadable
from engine.spec.ops_view import COPYING_VIEWS, VIEWS

RANDOM = frozenset((
    "rand", "randn", "randint", "randperm", "bernoulli", "native_dropout", "uniform", "normal",
    "rand_like", "randn_like", "multinomial", "exponential",
))  # fmt: skip

HANDLERS: dict[str, Handler] = {
    **ELEMENTWISE, **CREATION, **GATHERING, **REDUCING, **NORMS, **COPYING_VIEWS,
}  # fmt: skip

__all__ = ["HANDLERS", "RANDOM", "VIEWS", "Unreadable"]
