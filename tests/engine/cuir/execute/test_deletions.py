"""No statement of a golden program can go unnoticed: a check, a finding or a wrong number tells."""

from dataclasses import replace

import pytest
from helpers import exact_error, faults, first_line, golden, make_inputs

from engine.cuir.execute import Limits, run_program
from engine.cuir.nodes import walk

# What may go without changing what the program computes.
IDLE = {
    "sm80_flash": ("commit_async()", "if blocks == 0:", "return success"),
    "hopper_pingpong": (
        "prefetch_map(q_map)", "prefetch_map(k_map)", "prefetch_map(v_map)", "prefetch_map(o_map)",
        "raise_registers(240)", "if works == 0:", "return success",
    ),
}  # fmt: skip
SHAPES = ({"Hq": 2, "Hkv": 1, "Nq": 200, "Nk": 300}, {"Hq": 1, "Nq": 64, "Nk": 0})


def without(body, path):
    place, *rest = path
    if not rest:
        return body[:place] + body[place + 1 :]
    stmt = body[place]
    inner = without(getattr(stmt, rest[0]), rest[1:])
    return (*body[:place], replace(stmt, **{rest[0]: inner}), *body[place + 1 :])


def noticed(module, cases):
    if faults(module):
        return True
    for inputs in cases:
        outcome = run_program(module, inputs, limits=Limits(sm_count=2))
        if not outcome.clean or set(outcome.outputs) != {"o", "lse"}:
            return True
        if max(exact_error(outcome.outputs, inputs)) > 1e-10:
            return True
    return False


@pytest.mark.parametrize("name", IDLE)
def test_every_deletion_is_noticed(name):
    module = golden(name)
    cases = [make_inputs(**shape) for shape in SHAPES]
    missed = []
    for path, stmt in walk(module):
        functions = tuple(
            replace(f, body=without(f.body, path[1:])) if f.name == path[0] else f
            for f in module.functions
        )
        if not noticed(replace(module, functions=functions), cases):
            missed.append(first_line(stmt))
    assert sorted(missed) == sorted(IDLE[name])
