"""The work order and its phases are run with more heads than a section has, by every gate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.tile_sizes import section_of, tiles_of
from engine.gates.deck import Case, idle, past, quick, sections
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.runs.case_run import exact, run_deck
from engine.gates.runs.deck_cases import unforeseen
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from tests.engine.gates.g1_g2.test_judge import subject_of

HEADS = "    heads = min(section, args.B * args.Hq - first)\n"
# Each once passed all that a free hand's G2 ran.
WRONG = {
    "one section of all heads": (HEADS, "    heads = args.B * args.Hq - first\n"),
    "a last section as long as the others": (HEADS, "    heads = min(section, args.B * args.Hq)\n"),
    "a phase of rows without tiles": (
        "                l = row_reduce(l)\n                round = round + 1\n",
        "                l = row_reduce(l)\n            round = round + 1\n",
    ),
    "tiles passed over by the number of heads": (
        "return max(0, end - own_end)",
        "return max(0, end - own_end) * (args.Hq * args.B // 17 + 1)",
    ),
}


@cache
def right() -> Subject:
    return subject_of("softcap_causal", "flash_fwd_sm90", "bf16_96")


def judged(module: Module) -> Subject:
    return replace(right(), module=module)


def passes(module: Module) -> bool:
    tiles = tiles_of(module)
    assert tiles is not None
    many = [c for c in unforeseen(module, quick(tiles)) if c.B * c.Hq > 2 * tiles.heads]
    many = [c for c in many if c.Nq > tiles.rows and c.B > 1 and c.Hq > c.Hkv]
    assert len(many) == 2
    return all(exact(BY_RECIPE, judged(module), c, 0)[0] is None for c in many)


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_order_or_phase_fails(what: str) -> None:
    old, new = WRONG[what]
    text = print_module(right().module)
    assert old in text
    assert not passes(parse_module(text.replace(old, new)))


def test_the_rules_own_passes() -> None:
    assert passes(right().module)


# Of every gate's deck, without a free hand's sizes.
WRONG_FOR_ALL = {
    "a section begins at its number": (
        "(section * row_blocks) * section",
        "(section * row_blocks)",
    ),
    "batches by tiles of keys": ("b = work_head[BM](", "b = work_head[BN]("),
    "heads modulo a section": (
        "return first + (work - first * row_blocks) % heads",
        "return (work - first * row_blocks) % heads",
    ),
    "keys' heads by batches": (
        "h_kv = h // (args.Hq // args.Hkv)",
        "h_kv = h // (args.Hq // args.B)",
    ),
}


@pytest.mark.parametrize("what", WRONG_FOR_ALL)
def test_every_deck_sees_a_wrong_section(what: str) -> None:
    old, new = WRONG_FOR_ALL[what]
    text = print_module(right().module)
    assert old in text
    module = parse_module(text.replace(old, new, 1))
    assert not all(exact(BY_RECIPE, judged(module), c, 0)[0] is None for c in cases_of(module))


def test_every_deck_sees_a_phase_of_rows_without_tiles() -> None:
    tiles = tiles_of(right().module)
    assert tiles is not None
    (case,) = (c for c in BY_RECIPE.deck(right()) if c in idle(tiles))
    assert exact(BY_RECIPE, right(), case, 0)[0] is None
    text = print_module(right().module).replace(*WRONG["a phase of rows without tiles"])
    failure, _ = exact(BY_RECIPE, judged(parse_module(text)), case, 0)
    assert failure is not None and "reads too early" in failure.reason


def cases_of(module: Module) -> list[Case]:
    """The case of many heads in the deck of rules, with what makes it see."""
    tiles = tiles_of(module)
    assert tiles is not None
    cases = [c for c in BY_RECIPE.deck(judged(module)) if c in sections(tiles)]
    assert cases
    for case in cases:
        assert case.B > 1 and case.Hq > case.Hkv > 1 and case.Nq > tiles.rows
        assert case.B * case.Hq > tiles.heads
    return cases


@pytest.mark.parametrize(("key", "heads"), [("bf16_64", 16), ("bf16_128", 16), ("bf16_256", 8)])
def test_the_section_is_the_module_s_own(key: str, heads: int) -> None:
    assert section_of(lift(load_package("flash_fwd_sm90"), key, "sm_90a").module) == heads


def test_a_section_may_be_a_number_in_the_work_order() -> None:
    text = print_module(right().module)
    other = text.replace("section = 16 if BM == 192 else 8", "section = 12")
    assert section_of(parse_module(other)) == 12
    assert section_of(lift(load_package("flash_fwd_sm80"), "bf16_64", "sm_80").module) == 1


def test_phases_go_round_where_a_window_passes_tiles_over_at_its_end() -> None:
    """One head has few blocks of rows: with a processor for each, none would load three times."""
    window = subject_of("sinks_window", "flash_fwd_sm90")
    text, phase = print_module(window.module), "load // STAGES % 2"
    at = text.index(phase, text.index("for step in range(end, tiles):"))
    module = parse_module(text[:at] + "load // STAGES % 3" + text[at + len(phase) :])
    deck = past((127,), tiles_of(module))
    right, wrong = (
        run_deck(BY_RECIPE, replace(window, module=one), deck, lambda _: None)[0]
        for one in (window.module, module)
    )
    assert right is None
    assert wrong is not None and "a parity is 0 or 1, not 2" in wrong.reason
