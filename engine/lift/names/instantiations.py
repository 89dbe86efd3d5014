"""With which template arguments a file's functions are used: their instantiations.

Callers are lifted before what they call, so that each function meets all of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.cuir.nodes import Expr, walk_expr
from engine.cuir.static.calls import callee
from engine.lift.cpp.tokens import Token
from engine.lift.names.constants import Constant, Evaluator, NotConstant
from engine.lift.names.scope import Signature, safe

# Stands in an instantiation whose arguments are unknown, since an opaque op makes it.
UNKNOWN = "?"


class Instances:
    """One set of compile-time values per instantiation, by function name."""

    def __init__(self, signatures: Iterable[Signature], evaluator: Evaluator) -> None:
        self._signatures = {safe(s.name): s for s in signatures}
        self._evaluator = evaluator
        self._known: dict[str, list[dict[str, Constant]]] = {}

    def of(self, name: str) -> list[dict[str, Constant]]:
        return self._known.setdefault(name, [])

    def known(self, name: str) -> list[dict[str, Constant]]:
        """The instantiations of which every value is known."""
        return [values for values in self._known.get(name, []) if UNKNOWN not in values]

    def clear(self) -> None:
        self._known.clear()

    def add(self, name: str, values: Mapping[str, Constant]) -> None:
        known = self.of(name)
        if values not in known:
            known.append(dict(values))

    def calls(self, expr: Expr, callers: Sequence[Mapping[str, Constant]]) -> None:
        """Records what `expr` calls and launches, once per instantiation of its own function."""
        for node in walk_expr(expr):
            called = callee(node)
            target = self._signatures.get(called.name) if called is not None else None
            if called is None or target is None or len(called.consts) != len(target.consts):
                continue
            # A copy: a recursive function is among its own callers.
            for constants in list(callers):
                values: dict[str, Constant] = {}
                for const, arg in zip(target.consts, called.consts, strict=True):
                    try:
                        values[const] = self._evaluator.value(arg, constants)
                    except NotConstant:
                        values[UNKNOWN] = True
                if UNKNOWN in constants:
                    values[UNKNOWN] = True
                self.add(target.name, values)

    def opaque(self, tokens: Iterable[Token]) -> None:
        """Records that an opaque text may use the functions that it names in any way."""
        for name in {t.text for t in tokens if t.kind == "word"}:
            if safe(name) in self._signatures:
                self.add(name, {UNKNOWN: True})
