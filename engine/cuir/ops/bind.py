"""A call's operands in the order of its op's signature."""

from __future__ import annotations

from engine.cuir.nodes import Call, Expr
from engine.cuir.ops.spec import Mismatch, Operand, OpSpec


def bind(spec: OpSpec, call: Call) -> list[Expr | list[Expr] | None]:
    """The call's operands in the signature's order. Raises `Mismatch` of kind `arity`."""
    out: list[Expr | list[Expr] | None] = []
    params, args, kwargs = list(call.params), list(call.args), dict(call.kwargs)

    def wrong(message: str) -> Mismatch:
        return Mismatch("arity", f"{message}; it is written {spec.signature}")

    def take(operand: Operand, pool: list[Expr], after: int) -> Expr | list[Expr] | None:
        if operand.many:
            count = len(pool) - after
            if count < 1:
                raise wrong(f"{spec.name} needs at least one of {operand.name}")
            taken = pool[:count]
            del pool[:count]
            return taken
        if not pool:
            if operand.optional:
                return None
            raise wrong(f"{spec.name} misses {operand.name}")
        return pool.pop(0)

    for position, operand in enumerate(spec.operands):
        if operand.place == "kwargs":
            if operand.name not in kwargs and not operand.optional:
                raise wrong(f"{spec.name} misses {operand.name}=")
            out.append(kwargs.pop(operand.name, None))
        else:
            pool = params if operand.place == "params" else args
            after = sum(o.place == operand.place for o in spec.operands[position + 1 :])
            out.append(take(operand, pool, after))
    if params or args or kwargs:
        raise wrong(f"{spec.name} has more operands than it takes")
    return out
