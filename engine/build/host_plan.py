"""What a module's host plan says of its launches: dynamic shared memory and block size, as numbers.

Both are compile-time constants of the launcher; a value that depends on the arguments is unknown
here, and the caller is told so (None).
"""

from __future__ import annotations

from engine.build.machine_code.products import Launch
from engine.cuir.nodes import Call, Expr, Index, Module
from engine.cuir.static.host_constants import HostPlan


def launches_of(module: Module) -> dict[str, Launch]:
    """The launch of each kernel that the host function starts, by the kernel's name.

    Of two launches of one kernel the one with more shared memory counts.
    """
    out: dict[str, Launch] = {}
    plan = HostPlan(module)
    for call in plan.launches():
        given = dict(call.kwargs)
        shared, threads = (_whole(plan, given.get(name)) for name in ("shared", "threads"))
        name, known = _kernel_name(call), out.get(_kernel_name(call))
        if known is None or (shared or 0) > (known.shared or 0):
            out[name] = Launch(shared, threads)
    return out


def _whole(plan: HostPlan, expr: Expr | None) -> int | None:
    value = None if expr is None else plan.value(expr)
    return None if value is None else int(value)


def _kernel_name(call: Call) -> str:
    """The kernel that `run(kernel[...], ...)` names."""
    kernel = call.args[0]
    if isinstance(kernel, Index):
        kernel = kernel.base
    return kernel.fn if isinstance(kernel, Call) else getattr(kernel, "id", "")
