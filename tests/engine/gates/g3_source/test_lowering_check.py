"""An edit of one specialisation is the same edit of all others, whatever they resolve."""

from __future__ import annotations

import pytest

from engine.gates.g3_source.lowering_check import _check_text
from engine.lower.lower import lower
from engine.service.session.workbench import find_kernel
from tests.engine.lower.fixtures import lifted
from tests.engine.lower.test_variants import KERNELS, OTHER, SHORT, adapted


# Head size 128 of the Hopper kernel is the only one whose matmuls do not overlap: without a softmax
# the statements between which the others wait for V are gone.
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("variant", ["sigmoid", "softcap_causal"])
def test_every_specialisation_takes_the_edit(kernel: str, variant: str) -> None:
    source = lifted(kernel)
    target = adapted(source, {**SHORT, **OTHER}[variant])
    made = lower(source, target)
    package = find_kernel(kernel)
    arch = source.specialisation["arch"]
    assert _check_text(package, source, made.target, made.source, arch, lambda text: None) is None
