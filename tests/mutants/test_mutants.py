"""A few mechanical mutants of a target, drawn by a seed: none of them passes unnoticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.subject import Subject
from tests.engine.gates.g1_g2.test_judge import subject_of
from tests.mutants.cuir_mutants import drawn

BN = "BN = 64 if D == 64 else 48 if shared_limit() >= 192 * 1024 else 32"
FULL = "return (n + 1) * BN <= args.Nk and n * BN + BN + args.Nq <= q0 + args.Nk + 1"
COUNT = "return max(0, ceil_div(min(args.Nk - 1, last + args.Nk - args.Nq) + 1, BN))"
COPY = "copy(O[b, h, q0:], sO)"
# What the gates are right to pass, and why: by function, statement and change, so that none of
# these excuses another place.
HARMLESS = {
    ("tile_count", "last = min(q0 + BM, args.Nq) - 1",
     "swapped operands: 'min(q0 + BM, args.Nq)' -> 'min(args.Nq, q0 + BM)'"): "the same",
    ("launch", "BM = 128 if shared_limit() >= 128 * 1024 else 64",
     "off by one: '1024' -> '1025'"): "no arch has so much shared memory and no more",
    ("tile_full", FULL, "relation: '(n + 1) * BN <= args.Nk' -> '(n + 1) * BN < args.Nk'"):
        "a full tile is masked in vain",
    ("tile_full", FULL, "contrary: '(n + 1) * BN <= args.Nk' -> '(n + 1) * BN > args.Nk'"):
        "no tile is full, since the causal part holds for none beyond the keys: masked in vain",
    ("flash_fwd", "if stage < tiles:", "relation: 'stage < tiles' -> 'stage <= tiles'"):
        "a block without tiles copies one in vain",
    ("flash_fwd", "sync()", "doubled statement: 'sync()' -> 'sync(); sync()'"): "only slower",
    ("tile_count", COUNT, "function: 'min(args.Nk - 1, last + args.Nk - args.Nq)' -> "
     "'max(args.Nk - 1, last + args.Nk - args.Nq)'"): "tiles are visited in vain",
    ("launch", BN, "relation: 'D == 64' -> 'D != 64'"): "other tiles of keys, as right",
    ("launch", BN, "contrary: 'shared_limit() >= 192 * 1024' -> 'shared_limit() < 192 * 1024'"):
        "other tiles of keys where D is not 64",
    ("flash_fwd", COPY, f"doubled statement: '{COPY}' -> '{COPY}; {COPY}'"):
        "the same numbers once more",
}  # fmt: skip


@pytest.mark.parametrize("seed", [3, 5])
def test_a_drawn_fault_is_seen(seed: int) -> None:
    right = subject_of("causal")
    mutants = drawn(print_module(right.module), 12, seed)
    assert [
        str(m)
        for m in mutants
        if (m.function, m.statement, f"{m.operator}: {m.words}") not in HARMLESS
        and not _seen(right, m.text)
    ] == []


def _seen(right: Subject, text: str) -> bool:
    try:
        wrong = replace(right, module=parse_module(text))
        return judge(wrong, lambda _: None)[0] is not None
    except CuBridgeError:
        return True


def test_the_same_seed_draws_the_same() -> None:
    text = print_module(subject_of("causal").module)
    first, again = drawn(text, 20, 1), drawn(text, 20, 1)
    assert first == again and len({m.operator for m in first}) > 12
    assert all(m.text != text for m in first)
