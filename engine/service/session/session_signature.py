"""What a session asks of its kernel: its recipe, or what its spec declares where none was read."""

from __future__ import annotations

from engine.service.session.stage_work import Work
from engine.spec.python.declarations import declared
from engine.spec.python.signature import Asked, Signature
from engine.spec.python.spec_file import read_source


def asked_of(work: Work) -> Asked:
    """The session's recipe; a target that a model or a person made of a spec that no rule reads has
    only the spec's declarations, and the spec's own function judges it.

    Raises `SpecError` where q, k and v are not declared.
    """
    if work.recipe is not None:
        return work.recipe
    return Signature.of(declared(read_source(work.spec, dict(work.options.spec))))
