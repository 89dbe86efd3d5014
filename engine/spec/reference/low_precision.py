"""The spec as PyTorch runs it in low precision: the yardstick of FlashAttention's rule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.spec.python.load import surroundings
from engine.spec.python.modes import OnCpu
from engine.spec.python.program import Program, program_of
from engine.spec.python.spec_file import read_source
from engine.spec.reference.oracle import vmapped_mods


def run_spec(path: Path, inputs: Mapping[str, Any], options: Mapping[str, object]) -> Tensor:
    """The output of the spec's own function on `inputs` as they are, casts and all.

    Runs the user's code: call it in a child process only. Raises `SpecError`.
    """
    source = read_source(path, dict(options))
    program = program_of(source)
    with surroundings(source):
        return run_as_it_is(program, inputs)


def run_as_it_is(program: Program, inputs: Mapping[str, Any]) -> Tensor:
    """`run_spec` inside `surroundings`: what the spec makes without a type is float32, as in
    PyTorch where nobody says otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with OnCpu():
            given = {t.name: inputs[t.name].clone() for t in program.tensors}
            return program.run(given, vmapped_mods)
    finally:
        torch.set_default_dtype(before)
