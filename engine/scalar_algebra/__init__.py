"""The algebra of scalar expressions and predicates: canonical forms, evaluation, equivalence."""
