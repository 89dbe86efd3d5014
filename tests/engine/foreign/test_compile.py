"""What nvcc says where a source does not compile, as advice."""

from __future__ import annotations

import pytest

from engine.foreign.compile import advice


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        (
            "a.cuh(2): error: calling a constexpr __host__ function is not allowed. The "
            "experimental flag '--expt-relaxed-constexpr' can be used to allow this.",
            "--nvcc=--expt-relaxed-constexpr",
        ),
        (
            "a.cuh(8): error: annotation on lambda requires --extended-lambda nvcc flag",
            "--nvcc=--extended-lambda",
        ),
        (
            "k.cu:1:10: fatal error: cute/tensor.hpp: No such file or directory",
            "-I FOLDER, of the folder that has cute/tensor.hpp",
        ),
        ('a.cu(1): error: identifier "x" is undefined', ""),
    ],
)
def test_advice(said: str, fix: str) -> None:
    assert advice(said) == fix
