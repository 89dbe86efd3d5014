"""What each ATen op means per element: tables of handlers for `engine.spec.tracing.trace`."""

from __future__ import annotations

from engine.spec.tracing.ops_elementwise import ELEMENTWISE
from engine.spec.tracing.ops_make import CREATION, GATHERING
from engine.spec.tracing.ops_reduce import NORMS, REDUCING
from engine.spec.tracing.ops_support import Handler, Unreadable
from engine.spec.tracing.ops_view import COPYING_VIEWS, VIEWS

RANDOM = frozenset((
    "rand", "randn", "randint", "randperm", "bernoulli", "native_dropout", "uniform", "normal",
    "rand_like", "randn_like", "multinomial", "exponential",
))  # fmt: skip

HANDLERS: dict[str, Handler] = {
    **ELEMENTWISE, **CREATION, **GATHERING, **REDUCING, **NORMS, **COPYING_VIEWS,
}  # fmt: skip

__all__ = ["HANDLERS", "RANDOM", "VIEWS", "Unreadable"]
