"""How finely a kernel computes, read off its instructions."""

from __future__ import annotations

from collections.abc import Iterable

from engine.ptx.syntax import Kernel

# The unit roundoff of a format; of tf32 what cutting off its low bits costs, as hardware does.
UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "tf32": 2.0**-10, "bf16": 2.0**-8}
_ARITHMETIC = ("add", "sub", "mul", "fma", "ex2", "tanh")


def unit_roundoff(kernels: Iterable[Kernel], element: str) -> float:
    """The unit roundoff of the coarsest arithmetic of kernels whose q, k and v are of type
    `element`; float32's where none is coarser. Products of 16-bit elements are exact in float32:
    there coarser is what multiplies or adds in 16 bits, in other kernels also what is rounded to
    go into a matmul."""
    found = {UNIT["f32"]}
    for name, modifiers in {(at.name, at.modifiers) for kernel in kernels for at in kernel.code}:
        types = [t for t in (m.removesuffix("x2") for m in modifiers) if t in UNIT]
        if name in ("mma", "wgmma") or (name == "wmma" and "mma" in modifiers):
            # The first type is the accumulator's.
            found |= {UNIT[t] for n, t in enumerate(types) if n == 0 or t != element}
        elif name in _ARITHMETIC:
            found |= {UNIT[t] for t in types}
    return max(found)
