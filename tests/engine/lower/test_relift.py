"""Several specialisations of one text."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Module, Name, Num, Str
from engine.errors import LowerError
from engine.lower.relift import lift_for, lower_all, specialisation_of, verify_relift
from engine.lower.spans import allowed_spans, union, verify_spans
from tests.engine.lower.fixtures import edit, lifted

MASK = ("j < args.Nk", "j < args.Nk and j <= i")


def test_the_specialisation_is_told_from_the_module() -> None:
    module = lifted("odd", D="64").module
    assert specialisation_of(module) == ("sm_80", {"T": "bf16", "D": "64"})
    spec = (("arch", Str("sm_90a")), ("B", Num(True)), ("T", Name("f16")))
    assert specialisation_of(Module(spec, (), ())) == ("sm_90a", {"B": "true", "T": "f16"})
    with pytest.raises(LowerError, match="no arch"):
        specialisation_of(Module((("D", Num(64)),), (), ()))


def test_one_edit_for_all_specialisations() -> None:
    kernels = [lifted("odd", D=d) for d in ("64", "128")]
    targets = [edit(k.module, MASK) for k in kernels]
    done = lower_all(kernels, targets)
    assert verify_relift(done.source, targets) is None
    assert done.source.count(b"j <= i") == 1
    assert done.share == done.changed_lines / done.total_lines > 0


def test_an_edit_in_a_branch_of_one_specialisation() -> None:
    """D = 64 takes the first branch of the `if constexpr`, every other size the second."""
    kernels = [lifted("odd", D=d) for d in ("64", "128")]
    copy = "    copy_async(sQ, Q[q0:])\n"
    targets = [
        edit(kernels[0].module, MASK, (copy, f"{copy}    sync()\n")),
        edit(kernels[1].module, MASK),
    ]
    done = lower_all(kernels, targets)
    text = done.source.decode()
    assert "    copy_async(sQ, Q.tile(q0));\n    sync();\n    commit_async();\n  } else {" in text
    allowed = union(allowed_spans(k, t) for k, t in zip(kernels, targets, strict=True))
    assert verify_spans(kernels[0].source, done.source, allowed) is None
    # The places are those of the first specialisation in the final text.
    again = lift_for(done.source, targets[0])
    assert all(
        again.provenance[p].range == r for p, r in done.provenance.items() if p in again.provenance
    )


def test_both_branches_are_edited() -> None:
    kernels = [lifted("odd", D=d) for d in ("64", "128")]
    copy = "    copy_async(sQ, Q[q0:])\n"
    targets = [edit(k.module, (copy, f"{copy}    sync()\n")) for k in kernels]
    done = lower_all(kernels, targets)
    assert done.source.count(b"sync();") == kernels[0].source.count(b"sync();") + 2


def test_targets_that_contradict_each_other() -> None:
    kernels = [lifted("odd", D=d) for d in ("64", "128")]
    targets = [edit(kernels[0].module, MASK), edit(kernels[1].module, ("j < args.Nk", "j < i"))]
    with pytest.raises(LowerError, match="all specialisations"):
        lower_all(kernels, targets)


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


def test_wrong_use() -> None:
    kernel = lifted("odd")
    with pytest.raises(ValueError, match="at least one"):
        lower_all([], [])
    with pytest.raises(ValueError, match="one source"):
        lower_all([kernel, lifted("flash_fwd_sm80")], [kernel.module, kernel.module])
