"""What a hunk says of itself: numbers by name, and the names that hunks take of others."""

from __future__ import annotations

import math

import pytest

from engine.cuir.changes.ids import assign
from engine.service.views.hunk_words import Explained, closure, explain, named
from engine.service.views.rule_names import meaning
from engine.transfer.proposals.review import propose
from engine.transfer.rules import apply, plan
from engine.types import Hunk, Origin
from tests.engine.transfer.recipes import VARIANTS, lifted


@pytest.fixture(scope="module")
def softcap() -> tuple[dict[str, Hunk], dict[str, Explained]]:
    base, recipe = lifted("flash_fwd_sm80"), VARIANTS["softcap_causal"]
    trail = list(apply(base, plan(base, recipe).steps))
    made = propose(
        base, trail[-1][1], id="rules", origin=Origin.RULES, reason="r", ids=assign(base),
        trail=trail,
    )  # fmt: skip
    return {h.id: h for h in made.hunks}, explain(base, trail[-1][1], made, recipe)


def test_a_name_that_one_hunk_gives_and_others_read(
    softcap: tuple[dict[str, Hunk], dict[str, Explained]],
) -> None:
    hunks, found = softcap
    giver = next(h.id for h in hunks.values() if h.after.startswith("m_ok ="))
    readers = [h.id for h in hunks.values() if "m_ok," in h.after]
    assert [u for u, name in found[giver].users if name == "m_ok"] == readers and len(readers) == 2
    assert all((giver, "m_ok") in found[r].needs for r in readers)
    assert set(closure(found, giver)) == {giver, *readers}
    plain = next(h.id for h in hunks.values() if "tile_full" in h.after)
    assert closure(found, plain) == (plain,)


def test_what_a_hunk_does_is_told_from_its_edits(
    softcap: tuple[dict[str, Hunk], dict[str, Explained]],
) -> None:
    hunks, found = softcap

    def told(begin: str) -> tuple[str, ...]:
        return found[next(h.id for h in hunks.values() if h.after.startswith(begin))].does

    loop = "flash_fwd's loop over key tiles"
    assert told("end =") == (
        "adds end = min(args.Nk, q0 + BM + args.Nk - args.Nq) (one past the last key that any row "
        f"of the block keeps), before {loop}",
    )
    assert told("m_ok =")[0] == (
        "adds m_ok = map(m, lambda x: 0.0 if x == -inf else x) (the row maxima, 0 in the place of "
        f"-inf), in {loop}"
    )
    assert told("alpha =") == (f"changes alpha: m becomes m_ok, in {loop}",)
    assert told("lse =") == (
        f"changes lse: top * args.scale becomes top * 60.0 - 30.0, after {loop}",
    )
    mask = f"changes s (the tile's scores): adds `and j <= i + offset` to j < args.Nk, in {loop}"
    assert mask in {e.does[0] for e in found.values()}
    what, op = told("copy_async_rows(sV[stage]")
    assert what == f"fills sV by copy_async_rows instead of copy_async before {loop}"
    # What an op is stands once.
    assert told("copy_async_rows(sV[ahead") == (
        f"fills sV by copy_async_rows instead of copy_async in {loop}",
    )
    assert op.startswith("copy_async_rows: copy_async of the tensor's rows from `begin`")
    schedule = {e.does[0] for e in found.values() if "tile_" in e.does[0]}
    assert schedule == {
        "changes tile_count (how many key tiles a block of rows visits)",
        "changes tile_full (whether a tile needs no mask)",
    }
    assert any(
        e.does[0].startswith("adds a step to s (the tile's scores), map(s, lambda x: rcp_")
        for e in found.values()
    )


def test_every_function_of_the_tile_schedule_is_told_by_what_it_is_asked_for() -> None:
    base, recipe = lifted("flash_fwd_sm90"), VARIANTS["window"]
    *_, (_, last) = apply(base, plan(base, recipe).steps)
    made = propose(base, last, id="r", origin=Origin.RULES, reason="r", ids=assign(base))
    told = " ".join(words for e in explain(base, last, made, recipe).values() for words in e.does)
    for name in ("tile_count", "tile_index", "tile_full", "tile_lead", "tile_tail"):
        assert f"{name} (" in told


def test_no_hunk_of_any_variant_is_without_a_word() -> None:
    for kernel, variant in (("flash_fwd_sm90", "document"), ("flash_fwd_sm80", "sigmoid")):
        base, recipe = lifted(kernel), VARIANTS[variant]
        *_, (_, last) = apply(base, plan(base, recipe).steps)
        made = propose(base, last, id="r", origin=Origin.RULES, reason="r", ids=assign(base))
        told = [each.does for each in explain(base, last, made, recipe).values()]
        assert all(does and does[0] for does in told)
        added = [does for does in told if does[0].startswith("adds the kernel class_tiles: ")]
        assert len(added) == (variant == "document")


def test_a_number_is_named_and_the_algebra_is_told(
    softcap: tuple[dict[str, Hunk], dict[str, Explained]],
) -> None:
    hunks, found = softcap
    factor = next(h.id for h in hunks.values() if h.after.startswith("score_factor ="))
    assert found[factor].numbers == ("-0.0962 = -2 log2(e) / 30",)
    element = next(h for h in hunks.values() if "exp2_approx(x *" in h.after and not h.before)
    assert "30 tanh(u) = 60 sigmoid(2 u) - 30" in element.reason
    lse = next(h for h in hunks.values() if h.after.startswith("lse ="))
    assert "cancels in the softmax" in lse.reason and "log-sum-exp" in lse.reason


@pytest.mark.parametrize(
    ("value", "constants", "name"),
    [
        (-2 * math.log2(math.e) / 50, (50.0,), "-2 log2(e) / 50"),
        (100.0, (50.0,), "2 x 50"),
        (50.0, (50.0,), ""),  # the spec's own
        (math.log2(math.e), (), "log2(e)"),
        (0.5, (), ""),  # a plain number
        (0.123456, (50.0,), ""),
        (math.inf, (50.0,), ""),
    ],
)
def test_names_of_numbers(value: float, constants: tuple[float, ...], name: str) -> None:
    assert named(value, constants) == name


def test_a_statement_of_one_role_says_whose_it_is() -> None:
    base, recipe = lifted("flash_fwd_sm90"), VARIANTS["document"]
    *_, (_, last) = apply(base, plan(base, recipe).steps)
    made = propose(base, last, id="r", origin=Origin.RULES, reason="r", ids=assign(base))
    told = {e.does[0] for e in explain(base, last, made, recipe).values()}
    assert {
        "adds ticket = claim(queue, works) (the number taken from the counter), before flash_fwd's "
        "loop over key tiles where wg == 0 (the warps that load)",
        "adds next = fetch(next_work[turn % 2]) (the number of the next piece of work), after "
        "flash_fwd's loop over key tiles where wg != 0 (the warps that compute)",
        "changes BYTES: adds `+ 64` to 1024 + BM * COLS * sizeof(T) + STAGES * BN * (COLS + "
        "COLS..., in launch",
        "changes v_map: tensor_map becomes row_map, in launch",
    } <= told


def test_what_makes_hands_on_and_reads_a_value_of_another_type_stands_together() -> None:
    base, recipe = lifted("flash_fwd_sm90"), VARIANTS["document"]
    *_, (_, last) = apply(base, plan(base, recipe).steps)
    made = propose(base, last, id="r", origin=Origin.RULES, reason="r", ids=assign(base))
    found = explain(base, last, made, recipe)
    mine = {h for h, e in found.items() if any(name == "v_map" for _, name in e.needs)}
    assert len(mine) == 3 and all(set(closure(found, h)) == mine for h in mine)
    (begin,) = (h.id for h in made.hunks if h.after.startswith("begin ="))
    assert set(closure(found, begin)) == {begin, *mine}


def test_how_a_loop_goes_on_needs_what_its_block_sets() -> None:
    base, recipe = lifted("flash_fwd_sm90"), VARIANTS["document"]
    *_, (_, last) = apply(base, plan(base, recipe).steps)
    made = propose(base, last, id="r", origin=Origin.RULES, reason="r", ids=assign(base))
    found = explain(base, last, made, recipe)
    loops = [h for h, e in found.items() if e.does[0].startswith("changes the loop over work")]
    assert len(loops) == 2
    for loop in loops:
        givers = [giver for giver, name in found[loop].needs if name == "next"]
        assert ["next = 0" in h.after for h in made.hunks if h.id in givers] == [True, False]


def test_names_mean_what_rules_say_where_rules_gave_them() -> None:
    base, recipe = lifted("flash_fwd_sm90"), VARIANTS["document"]
    *_, (_, last) = apply(base, plan(base, recipe).steps)
    for origin in (Origin.RULES, Origin.PERSON):
        made = propose(base, last, id="r", origin=origin, reason="r", ids=assign(base))
        told = [e.does[0] for e in explain(base, last, made, recipe).values()]
        words = "adds the argument slots (i32): how many tiles of a block of rows may have"
        assert any(w.startswith(words) for w in told) == (origin is Origin.RULES)
        assert ("adds the argument slots (i32)" in told) == (origin is Origin.PERSON)
        assert {
            "adds a loop that does mbarrier_init of next_full, mbarrier_init of next_empty, before "
            "flash_fwd's loop over key tiles where wg == 0",
            "makes flash_fwd's parameter v_map a row_map, which was a tensor_map",
            "adds a branch on args.planned == 0 that does run of class_tiles, run of list_tiles, "
            "run of mask_tiles, in launch",
            "adds a branch on not full that has a branch on slot >= 0 that does keep_bits of s, "
            "else load_cols of doc; changes s (the tile's scores): adds "
            "`and doc_keys == doc_rows and j <= i` to j < args.Nk; removes a branch on not "
            "tile_full[BM, BN, 64](args, b, h, row0, n) in "
            "flash_fwd's loop over key tiles where wg != 0 (the warps that compute)",
        } <= set(told)
        masks = next(w for w in told if "keep_bits of" in w)
        assert masks.count("in flash_fwd's loop over key tiles") == 1  # of three edits
    assert meaning("end_2") == meaning("end") and meaning("doc_q") == ""
