"""One op at one place of the text: operands bound, types checked, then executed."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.code import PART
from engine.cuir.execute.values import RegTile, type_of
from engine.cuir.ops import OpSpec
from engine.cuir.ops.spec import Mismatch, RuleContext, check_operand
from engine.cuir.scalar import Env, Fn
from engine.cuir.types import Layout


class OpSite:
    """One op at one place of the text: operands bound, types checked, then executed."""

    __slots__ = ("args", "execute", "path", "seen", "spec", "wanted")

    def __init__(
        self, spec: OpSpec, args: list[Fn | list[Fn] | None], path: int, execute: Any
    ) -> None:
        self.spec = spec
        self.args = args
        self.path = path
        self.execute = execute
        self.seen: dict[tuple[Any, ...], Any] = {}
        # Whether an operand's number takes part in the type rule.
        self.wanted = [o.kind in ("int", "number") for o in spec.operands]

    def __call__(self, env: Env) -> Any:
        part = env[PART]
        values = [
            a if a is None else [f(env) for f in a] if isinstance(a, list) else a(env)
            for a in self.args
        ]
        key = tuple(
            [
                _key(v, wanted) if type(v) is not list else tuple([_key(x, False) for x in v])
                for v, wanted in zip(values, self.wanted, strict=True)
            ]
        )
        try:
            out = self.seen[key]
        except KeyError:
            out = self.seen[key] = self.check(part, values)
        part.path = self.path
        return self.execute(part, out, *values)

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
            return spec.rule(RuleContext(program.arch, part.threads), *types)
        except Mismatch as wrong:
            raise program.stop(wrong.kind, self.path, wrong.message, part) from None


def _key(value: Any, wanted: bool) -> Any:
    if type(value) is RegTile:
        return value.type
    if type(value) is int or type(value) is float:
        return value if wanted else type(value)
    if isinstance(value, Layout):
        return value
    return getattr(value, "type", None) or (value.name if hasattr(value, "name") else type(value))
