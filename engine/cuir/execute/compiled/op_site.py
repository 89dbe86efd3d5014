"""One op at one place of the text: operands bound, types checked, then executed."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.compiled.code import PART
from engine.cuir.execute.state.values import TYPED, LambdaValue, type_of
from engine.cuir.ops import OpSpec
from engine.cuir.ops.spec import Mismatch, RuleContext, check_operand
from engine.cuir.scalar import Env, Fn
from engine.cuir.types import Layout


class OpSite:
    """One op at one place of the text: operands bound, types checked, then executed."""

    __slots__ = ("args", "execute", "key", "out", "path", "seen", "spec", "wanted")

    def __init__(
        self, spec: OpSpec, args: list[Fn | list[Fn] | None], path: int, execute: Any
    ) -> None:
        self.spec = spec
        self.args = [_bound(a) for a in args]
        self.path = path
        self.execute = execute
        self.seen: dict[tuple[Any, ...], Any] = {}
        # The latest one: mostly the very same types come again, and none needs a hash then.
        self.key: list[Any] | None = None
        self.out: Any = None
        # Whether an operand's number takes part in the type rule.
        self.wanted = [o.kind in ("int", "number") for o in spec.operands]

    def __call__(self, env: Env) -> Any:
        part = env[PART]
        values = [a(env) for a in self.args]
        key = [
            v.type if type(v) in TYPED
            else (v if wanted else int) if type(v) is int
            else _key(v, wanted)
            for v, wanted in zip(values, self.wanted)  # noqa: B905 - one for each operand
        ]  # fmt: skip
        if key != self.key:
            kept = tuple(key)
            out = self.seen.get(kept)
            if out is None:
                out = self.seen[kept] = self.check(part, values)
            self.key, self.out = key, out
        part.path = self.path
        return self.execute(part, self.out, *values)

    def check(self, part: Any, values: list[Any]) -> Any:
        """The type of the result. Raises `Stopped` with the finding where a rule does not hold."""
        spec, program = self.spec, part.program
        try:
            if not program.arch.has(spec.needs):
                raise Mismatch(
                    "not_on_arch",
                    f"{program.arch.name} has no {spec.needs}, which {spec.name} needs",
                )
            types: list[Any] = []
            for operand, value in zip(spec.operands, values, strict=True):
                if value is None:
                    types.append(None)
                    continue
                if operand.many:
                    each = tuple(type_of(v) for v in value)
                    for item in each:
                        check_operand(spec, operand, item)
                    types.append(each)
                else:
                    types.append(type_of(value))
                    check_operand(spec, operand, types[-1])
            return spec.rule(RuleContext(program.arch, part.threads, primitives=False), *types)
        except Mismatch as wrong:
            raise program.stop(wrong.kind, self.path, wrong.message, part) from None


def _bound(operand: Fn | list[Fn] | None) -> Fn:
    """What gives an operand's value, or its list of them."""
    if operand is None:
        return lambda env: None
    if isinstance(operand, list):
        return lambda env: [f(env) for f in operand]
    return operand


def _key(value: Any, wanted: bool) -> Any:
    if type(value) is list:
        return tuple([v.type if type(v) in TYPED else _key(v, False) for v in value])
    if type(value) is int or type(value) is float:
        return value if wanted else type(value)
    if type(value) is LambdaValue:  # made with the code, as the site is: by identity
        return id(value.type)
    if isinstance(value, Layout):
        return value
    return value.name if hasattr(value, "name") else type(value)
