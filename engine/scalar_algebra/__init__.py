"""The algebra of scalar expressions and predicates: canonical forms, evaluation, equivalence."""

from engine.scalar_algebra.canonical import canonical, canonical_predicate
from engine.scalar_algebra.evaluate import compile_expr, evaluate
from engine.scalar_algebra.kinds import Kind, Kinds, kind_of

__all__ = [
    "Kind", "Kinds", "canonical", "canonical_predicate", "compile_expr", "evaluate", "kind_of",
]  # fmt: skip
