"""Special functions of f32 (PTX ISA, "Floating-Point Instructions").

The approximate ones are computed to the nearest f32, which lies within their documented bounds;
what the hardware gives may differ from that by as much as the bound.
"""

from __future__ import annotations

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.isa.arithmetic import HALVES, Function, _float, _half
from engine.ptx.machine import Run


def _function(function: Function) -> Decoder:
    def exactly(x: np.ndarray) -> np.ndarray:
        return function(x.astype(np.float64)).astype(x.dtype)

    def decoder(site: Site) -> Run:
        site.takes("approx", "rn", "ftz")
        site.count(2)
        if site.type in HALVES:
            return _half(site, function, 1)
        return _float(site, exactly, 1)

    return decoder


OPS: dict[str, Decoder] = {
    "ex2": _function(np.exp2),
    "lg2": _function(np.log2),
    "rcp": _function(np.reciprocal),
    "sqrt": _function(np.sqrt),
    "rsqrt": _function(lambda x: 1.0 / np.sqrt(x)),
    "sin": _function(np.sin),
    "cos": _function(np.cos),
    "tanh": _function(np.tanh),
}
