"""Several specialisations of one text."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Module, Name, Num, Str
from engine.errors import LowerError
from engine.lower.lower import specialisation_of
from tests.engine.lower.fixtures import edit, lifted
from tests.engine.lower.relift import verify_relift

MASK = ("j < args.Nk", "j < args.Nk and j <= i")


def test_the_specialisation_is_told_from_the_module() -> None:
    module = lifted("odd", D="64").module
    assert specialisation_of(module) == ("sm_80", {"T": "bf16", "D": "64"})
    spec = (("arch", Str("sm_90a")), ("B", Num(True)), ("T", Name("f16")))
    assert specialisation_of(Module(spec, (), ())) == ("sm_90a", {"B": "true", "T": "f16"})
    with pytest.raises(LowerError, match="no arch"):
        specialisation_of(Module((("D", Num(64)),), (), ()))


def test_a_wrong_text_is_told_by_its_first_op() -> None:
    kernel = lifted("odd")
    target = edit(kernel.module, MASK)
    found = verify_relift(kernel.source, [kernel.module, target])
    assert found is not None and found.difference is not None
    assert found.difference.left.endswith("j < args.Nk and j <= i, at=[q0, n * BN])")
    assert "D=128" in str(found)


def test_a_text_that_cannot_be_lifted() -> None:
    kernel = lifted("odd")
    found = verify_relift(b"int x;\n", [kernel.module])
    assert found is not None and found.difference is None
    assert "cannot be lifted" in str(found)
