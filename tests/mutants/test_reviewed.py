"""Every reviewed fault is one of a statement that stands where it says."""

from __future__ import annotations

import ast

from benchmarks.sweep.mutants import _launched, function_at
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.lift import load_package
from tests.engine.gates.g1_g2.test_judge import subject_of
from tests.mutants.reviewed import REVIEWED, SM80, SM90, reason_for

TARGETS = (
    (SM80, "softcap_causal"), (SM80, "causal_blockwise"), (SM80, "rope_causal"),
    (SM80, "prefix_lm_document"), (SM80, "causal"), (SM80, "document"),
    (SM90, "sliding_window_causal"), (SM90, "prefix_lm_document"), (SM90, "rope_causal"),
    (SM90, "causal_document"), (SM90, "prefix_lm"), (SM90, "document"),
)  # fmt: skip


def test_reviewed_statements_stand_in_their_functions() -> None:
    stand = set()
    for kernel in {kernel for kernel, *_ in REVIEWED}:
        source = load_package(kernel).source
        for number, line in enumerate(source.decode().splitlines(), 1):
            stand.add((kernel, function_at(source, number), line.strip()))
    for kernel, spec in TARGETS:
        text = print_module(subject_of(spec, kernel).module)
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                for line in text.splitlines()[function.lineno : function.end_lineno]:
                    stand.add((kernel, function.name, line.strip()))
    assert {place[:3] for place in REVIEWED} - stand == set()


def test_a_reason_excuses_no_other_place() -> None:
    kernel, function, statement, fault, why = REVIEWED[-1]
    operator, change = fault.split(": ", 1)
    assert reason_for(kernel, function, statement, operator, change) == why
    assert reason_for(kernel, "flash_fwd", statement, operator, change) is None
    assert reason_for("flash_fwd_sm80", function, statement, operator, change) is None


def test_what_nobody_reviewed_is_not_called_reviewed() -> None:
    text = print_module(subject_of("causal", SM80).module)

    def said(old: str, new: str) -> str:
        assert old in text
        return _launched(parse_module(text), parse_module(text.replace(old, new, 1)))

    assert said("STAGES = 2", "STAGES = 3").startswith("judged on each arch: ")
    assert said("128 * 1024", "131072").startswith("a proof: ")
    assert said("if blocks == 0:", "if blocks == 1:") == ""
