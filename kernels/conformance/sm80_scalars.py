"""The sm_80 scalar functions, each against float64 within the bound that the IR relies on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sm80_compared import Test, exact, gpu, whole


def scalar_functions() -> Iterator[Test]:
    inf = float("inf")

    def sweep(low: float, high: float, *extra: float) -> torch.Tensor:
        return torch.cat([torch.linspace(low, high, 20001), torch.tensor([*extra])])

    wide = torch.cat([10.0 ** torch.linspace(-30, 30, 9001), torch.tensor([1.0, 2.0, 0.5])])
    # Number, name, inputs, what it must be (on float64), relative bound, absolute bound.
    table = [
        (0, "exp2_approx", sweep(-126, 127, 0, -inf, inf), torch.exp2, 2.0**-22, 0.0),
        (1, "log2_approx", wide, torch.log2, 2.0**-21, 2.0**-21),
        (2, "rcp_approx", torch.cat([wide, -wide]), torch.reciprocal, 2.0**-23, 0.0),
        (3, "tanh_approx", sweep(-12, 12, 0, -inf, inf), torch.tanh, 2.0**-10.9, 0.0),
        (4, "sigmoid", sweep(-80, 40, 0, -inf, inf), torch.sigmoid, 2.0**-17, 0.0),
        (5, "sigmoid_approx", sweep(-40, 40, 0, -inf, inf), torch.sigmoid, 0.0, 2.0**-11.9),
        (6, "exp", sweep(-87, 88, 0, -inf, inf), torch.exp, 2.0**-22, 0.0),
        (7, "exp2", sweep(-126, 127, 0, -inf, inf), torch.exp2, 2.0**-22, 0.0),
        (8, "log", wide, torch.log, 2.0**-22, 2.0**-24),
        (9, "log2", wide, torch.log2, 2.0**-22, 2.0**-24),
        (10, "tanh", sweep(-12, 12, 0, -inf, inf), torch.tanh, 2.0**-21, 0.0),
        (11, "sqrt", torch.cat([wide, torch.tensor([0.0, inf])]), torch.sqrt, 2.0**-24, 0.0),
        (12, "rsqrt", wide, torch.rsqrt, 2.0**-22, 0.0),
        (13, "sin", sweep(-100, 100, 0), torch.sin, 2.0**-21, 2.0**-22),
        (14, "cos", sweep(-100, 100, 0), torch.cos, 2.0**-21, 2.0**-22),
        (15, "floor", sweep(-9, 9, 0.5, -0.5, inf), torch.floor, 0.0, 0.0),
        (16, "ceil", sweep(-9, 9, 0.5, -0.5, inf), torch.ceil, 0.0, 0.0),
        (17, "abs", sweep(-9, 9, -inf), torch.abs, 0.0, 0.0),
        (23, "narrow", sweep(-70, 70), lambda x: x.half().double(), 0.0, 0.0),
        (24, "narrow", sweep(-70, 70), lambda x: x.bfloat16().double(), 0.0, 0.0),
        (25, "erf", sweep(-6, 6, 0, -inf, inf), torch.erf, 2.0**-21, 0.0),
    ]
    pairs = [
        (18, "min", lambda x, y: torch.minimum(x, y)),
        (19, "max", lambda x, y: torch.maximum(x, y)),
        (20, "fma", lambda x, y: x * y + 1),
        (21, "floor_div", lambda x, y: torch.floor(x / y)),
        (22, "floor_mod", lambda x, y: x - y * torch.floor(x / y)),
    ]

    def check(run):
        for number, name, x, statement, relative, absolute in table:
            out = torch.full_like(x, float("nan")).cuda()
            run([gpu(x), gpu(x), out], number, x.numel())
            got, want = out.cpu().double(), statement(x.double())
            same = got == want
            bound = relative * want.abs() + absolute
            off = torch.where(same, torch.zeros_like(got), (got - want).abs() - bound)
            if not bool((off <= 0).all()):
                at = int(off.nan_to_num(inf).argmax())
                values = f"{got[at].item()!r} instead of {want[at].item()!r}"
                return f"{name}({x[at].item()!r}): {values}"
        x, y = whole(5000, low=-50, high=50), whole(5000, low=1, high=9)
        y = torch.where(torch.rand(5000) < 0.5, -y, y)
        for number, name, statement in pairs:
            out = torch.full_like(x, float("nan")).cuda()
            run([gpu(x), gpu(y), out], number, x.numel())
            wrong = exact(out, statement(x.double(), y.double()), name)
            if wrong:
                return wrong
        return None

    names = tuple(dict.fromkeys(row[1] for row in (*table, *pairs)))
    yield Test(names, "scalars", 256, 0, check, layout="")
