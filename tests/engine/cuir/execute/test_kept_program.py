"""Code that is made once serves many runs, each as if it were new."""

from __future__ import annotations

import torch
from helpers import golden, make_inputs

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.execute.compiled.compiler import ProgramCompiler, kept_program


def test_a_second_run_is_as_the_first_was() -> None:
    module = golden("hopper_pingpong")
    shapes = [{"Nq": 70, "Nk": 130}, {"Nq": 1, "Nk": 0}, {"Nq": 70, "Nk": 130}]
    for shape in shapes:
        for mode in ("exact", "typed"):
            inputs = make_inputs(**shape)
            new = run_program(module, inputs, mode, Schedule(1), Limits(sm_count=3),
                              compiler=ProgramCompiler)  # fmt: skip
            kept = run_program(module, inputs, mode, Schedule(1), Limits(sm_count=3))
            assert kept.coverage == new.coverage and kept.findings == new.findings
            assert all(
                torch.equal(kept.outputs[n].nan_to_num(), t.nan_to_num())
                for n, t in new.outputs.items()
            )


def test_it_is_kept_by_the_module_itself_and_few_are() -> None:
    modules = [golden("hopper_pingpong") for _ in range(9)]
    made = [kept_program(m, "exact") for m in modules]
    assert len({id(m) for m in made}) == 9
    assert kept_program(modules[-1], "exact") is made[-1]
    assert kept_program(modules[-1], "typed") is not made[-1]
    assert kept_program(modules[0], "exact") is not made[0], "only the last ones"


def test_all_parts_are_told_what_a_schedule_said_to_the_first() -> None:
    ran = run_program(golden("hopper_pingpong"), make_inputs(Hq=1, Nq=5, Nk=130)).coverage
    assert ran.parts > 2
    assert ran.ops["tile_count", 0] == 1, "one block of rows: one question, whoever asks"
