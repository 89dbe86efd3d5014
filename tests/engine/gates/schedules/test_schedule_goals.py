"""A tile schedule and an order of work are proven for all sizes, or have a smallest witness."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.gates.deck import Case
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.branch_coverage import Watch
from engine.gates.runs.subject import Failure, Subject
from engine.gates.schedules.schedule_coverage import reached
from engine.gates.schedules.schedule_goals import LISTS, ORDER, SCHEDULE, proofs_of
from engine.prove.solver import Proven, Unknown, Witness
from tests.engine.gates.g1_g2.test_judge import OF_ANY_COLUMNS, edited, subject_of

SM80, SM90 = "flash_fwd_sm80", "flash_fwd_sm90"
KERNELS = (SM80, SM90)
BN = 32  # keys of a tile of right(.., SM80)
MASKS = ("causal", "sliding_window_causal", "prefix_lm", "causal_blockwise",
         "global_sliding_window")  # fmt: skip


def right(spec: str, kernel: str) -> Subject:
    return subject_of(spec, kernel, "bf16_128")


def wrong(spec: str, kernel: str, old: str, new: str) -> Subject:
    """`$row` in the texts is the row that the kernel asks `tile_full` about."""
    row = "row0" if kernel == SM90 else "q0"
    return edited(right(spec, kernel), old.replace("$row", row), new.replace("$row", row))


def failure_of(one: Subject) -> Failure:
    found = proofs_of(one)
    assert found.failure is not None and found.case is not None
    return found.failure


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spec", OF_ANY_COLUMNS)
def test_what_the_rules_write_is_proven(spec: str, kernel: str) -> None:
    """Masks of indices: the schedule and the order of work; masks that read inputs: the order, and
    the candidates and classes of the lists."""
    found = proofs_of(right(spec, kernel))
    answers = {(p.about, p.goal): p.answer for p in found.proofs}
    assert found.failure is None and all(isinstance(a, Proven) for a in answers.values())
    reads = "document" in spec or spec == "share_question"
    schedule = 0 if reads else 4 if kernel == SM80 else 6
    assert [about for about, _ in answers].count(SCHEDULE) >= schedule
    assert [about for about, _ in answers].count(ORDER) == 6
    assert [about for about, _ in answers].count(LISTS) == (5 if reads else 0)
    assert bool(found.sampled) is reads


CALLED_FULL = [
    ("causal", "$row + args.Nk + 1", "$row + args.Nk + 2"),
    ("sliding_window_causal", "$row + args.Nk + 1", "$row + args.Nk + 2"),
    ("sliding_window_causal", "args.Nq + 1023 >=", "args.Nq + 1024 >="),
    ("sliding_window_causal", "1023 >= last + args.Nk", "1023 >= last + args.Nk - 1"),
    ("sliding_window_causal", "(n + 1) * BN <= args.Nk and n * BN + BN + args.Nq <= $row + args.Nk",
     "n * BN + args.Nq <= $row + args.Nk"),
    ("prefix_lm", "(n + 1) * BN <= args.Nk", "n * BN <= args.Nk"),
    ("prefix_lm", "(n + 1) * BN <= args.Nk", "(n + 1) * BN <= args.Nk + 1"),
    ("global_sliding_window", "args.Nq + 15", "args.Nq + 16"),
    ("global_sliding_window", "$row + args.Nk + 257", "$row + args.Nk + 258"),
    ("global_sliding_window", "args.Nq + 256 >=", "args.Nq + 257 >="),
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("spec", "old", "new"), CALLED_FULL)
def test_a_tile_that_lacks_a_pair_is_not_full(spec: str, old: str, new: str, kernel: str) -> None:
    """The pair is one that the recipe does not keep, or whose key is none."""
    one = wrong(spec, kernel, old, new)
    failure = failure_of(one)
    assert (failure.op or "").startswith("tile_full/")
    assert "is called full and the pair" in failure.reason
    example = dict(failure.counterexample or {})
    assert example["expected"] is False and example["got"] is True
    words = str(example["case"]).replace(",", "").split()
    sizes = {n: int(words[words.index(n) + 1]) for n in ("Nq", "Nk")}
    assert example["i"] < sizes["Nq"] and str(example["case"]) in failure.reason
    place = {n: example[n] for n in ("b", "h", "i", "j")}
    assert example["j"] >= sizes["Nk"] or not evaluate(one.recipe.keep, {**sizes, **place})


SCHEDULED = [
    ("causal", KERNELS, "last + args.Nk - args.Nq) + 1", "last + args.Nk - args.Nq)",
     "tile_count", "never visited"),
    ("causal", KERNELS, "min(q0 + BM, args.Nq) - 1\n    return", "min(q0 + BM, args.Nq) - 2\n"
     "    return", "tile_count", "never visited"),
    ("prefix_lm", KERNELS, "min(args.Nk - 1, last)", "min(args.Nk - 2, last)", "tile_count",
     "never visited"),
    ("prefix_lm", KERNELS, "min(args.Nk - 1, 255)) + 1", "min(args.Nk - 1, 255))", "tile_count",
     "never visited"),
    ("sliding_window_causal", KERNELS, "- 1023) // BN", "- 1022) // BN", "tile_count",
     "never visited"),
    ("global_sliding_window", (SM80,), "args.Nq - 15 <= 0", "args.Nq - 14 <= 0", "tile_count",
     "never visited"),
    ("global_sliding_window", (SM90,), "args.Nq - 15 <= 0", "args.Nq - 14 <= 0", "tile_count",
     "never visited"),
    ("causal", (SM80,), "return step", "return step + 1", "tile_index", "there are"),
    ("causal", (SM80,), "return step", "return step // 2 * 2", "tile_count", "never visited"),
    ("causal", (SM90,), " - 1 - step", " - step", "tile_index", "there are"),
    ("causal", (SM90,), "own_last = min(row0 + ROWS, args.Nq) - 1",
     "own_last = min(row0 + ROWS, args.Nq) - 2", "tile_lead", "passed over"),
    ("prefix_lm", (SM90,), "max(0, end - own_end)", "max(1, end - own_end)", "tile_lead",
     "passed over"),
    ("causal", (SM90,), "return max(0, end - own_end)", "return end + 1", "tile_lead",
     "more tiles"),
    ("sliding_window_causal", (SM90,), "max(0, row0 + args.Nk - args.Nq - 1023) // BN, own_end",
     "max(0, row0 + args.Nk - args.Nq - 1022) // BN, own_end", "tile_tail", "passed over"),
    ("sliding_window_causal", (SM90,), ", own_end) - begin)", ", own_end) + 1)", "tile_tail",
     "more tiles"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "kernel", "old", "new", "op", "words"),
    [(s, k, *rest) for s, kernels, *rest in SCHEDULED for k in kernels],
)
def test_a_tile_with_a_kept_pair_is_visited_by_all_its_rows(
    spec: str, kernel: str, old: str, new: str, op: str, words: str
) -> None:
    failure = failure_of(wrong(spec, kernel, old, new))
    assert words in failure.reason
    assert (failure.op or "").startswith(f"{op}/")


IN_VAIN = [  # what costs time and changes no output
    ("causal", "(n + 1) * BN <=", "(n + 2) * BN <="),
    ("causal", "args.Nq <= $row + args.Nk + 1", "args.Nq < $row + args.Nk + 1"),
    ("causal", "(n + 1) * BN <= args.Nk and ", ""),  # the other comparison says it too
    ("prefix_lm", "min(args.Nk - 1, 255)", "min(args.Nk - 1, 256)"),
    ("sliding_window_causal", "1023 >= last", "1022 >= last"),
    ("global_sliding_window", "args.Nq + 15 ", "args.Nq + 14 "),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("spec", "old", "new"), IN_VAIN)
def test_a_tile_masked_or_visited_in_vain_is_no_fault(
    spec: str, old: str, new: str, kernel: str
) -> None:
    found = proofs_of(wrong(spec, kernel, old, new))
    assert found.failure is None and not found.sampled


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("old", "new"),
    [("floor_div($row", "floor_div(1 + $row"), ("<= $row + args.Nk + 1", "<= $row + args.Nk + 2")],
)
def test_blocks_of_the_mask_are_held_too(old: str, new: str, kernel: str) -> None:
    assert proofs_of(wrong("causal_blockwise", kernel, old, new)).failure is not None


BRANCH = "    if args.Nq == 1:\n        return VALUE\n    return (n + 1) * BN"


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_function_that_branches_is_held_as_well(kernel: str) -> None:
    def branching(value: str) -> Subject:
        new = BRANCH.replace("VALUE", value)
        return wrong("sliding_window_causal", kernel, "    return (n + 1) * BN", new)

    right_one = proofs_of(branching("False"))
    assert right_one.failure is None and not right_one.sampled
    assert "Nq 1," in failure_of(branching("(n + 1) * BN <= args.Nk")).reason


def test_sizes_that_the_spec_does_not_allow_are_left_out() -> None:
    one = wrong("causal", SM80, "<= q0 + args.Nk + 1", "<= q0 + args.Nk + 1 + (args.Nq != args.Nk)")
    square = replace(one.recipe, constraints=(parse_expr("Nq == Nk"),))
    found = proofs_of(replace(one, recipe=square))
    assert found.failure is None and not found.sampled
    both = replace(one.recipe, constraints=())
    assert proofs_of(replace(one, recipe=both)).failure is not None


ANOTHER_WAY = [
    ("for step in range(tiles)", "for step in range(tiles - 1)"),
    ("tile_full[BM, BN](args, b, h, q0, n)", "tile_full[BM, BN](args, b, h, q0, 0)"),
]


@pytest.mark.parametrize(("old", "new"), ANOTHER_WAY)
def test_a_kernel_that_asks_in_another_way_is_left_to_runs(old: str, new: str) -> None:
    found = proofs_of(wrong("causal", SM80, old, new))
    assert found.failure is None and SCHEDULE not in {p.about for p in found.proofs}
    assert "asks its tile schedule in another way" in found.words()


def test_masks_that_read_inputs_are_left_to_runs() -> None:
    found = proofs_of(right("causal_document", SM80))
    assert "the tile schedule was judged in runs alone: its tiles are listed" in found.words()
    assert {p.about for p in found.proofs} == {ORDER, LISTS}


CLASSED = [
    ("document", "first_key + BN <= args.Nk and", "first_key + BN <= args.Nq and", "full"),
    ("causal_document", "q0 + args.Nk + 1 and (doc_k", "q0 + args.Nk + 2 and (doc_k", "full"),
    ("causal_document", "doc_k_keys_high <= doc_q_rows_low", "doc_k_keys_low <= doc_q_rows_low",
     "full"),
    ("causal_document", "doc_k_keys_low <= doc_q_rows_high and", "doc_k_keys_low < doc_q_rows_high"
     " and", "empty"),
    ("causal_document", "& (doc_k[b, j] == doc_q[b, min(i, last)]) & (j < args.Nk) != 0",
     "& (doc_k[b, j] == doc_q[b, min(i, last)]) & (j < args.Nk - 1) != 0", "empty"),
    ("causal_document", "last + args.Nk - args.Nq) + 1", "last + args.Nk - args.Nq)", "visited"),
    ("document", "min(i, last)], at=[q0]", "min(i, last - 1)], at=[q0]", "empty"),
    ("prefix_lm_document", "part_keys_low == part_keys_high and", "", "full"),
    ("share_question", "segment_keys_high <= 0 and ", "", "full"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "old", "new", "words"), CLASSED)
def test_a_wrong_class_or_candidate_is_not_proven(
    spec: str, old: str, new: str, words: str
) -> None:
    """Squares tell nothing of the first. What is left unproven runs judge; the verdict says it."""
    found = proofs_of(wrong(spec, SM80, old, new))
    lost = [p.goal for p in found.proofs if p.about == LISTS and not isinstance(p.answer, Proven)]
    assert any(words in goal for goal in lost)
    assert "what the lists of tiles are made of was judged in runs alone" in found.words()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("i32(block_id(0)) // row_blocks", "i32(block_id(0)) // (row_blocks + 1)"),
        ("range(block_id(1), tiles, grid_dim(1))", "range(block_id(1), tiles, 2)"),
        ("row_blocks = ceil_div(args.Nq, BM) * args.B", "row_blocks = ceil_div(args.Nq, BM)"),
        ("at=[q0, first_key])\n", "at=[q0, first_key]) * 2\n"),
    ],
)
def test_lists_that_are_made_in_another_way_are_left_to_runs(old: str, new: str) -> None:
    found = proofs_of(wrong("causal_document", SM80, old, new))
    assert not any(p.about == LISTS and isinstance(p.answer, Proven) for p in found.proofs)


def test_what_the_solver_has_no_term_for_is_sampled() -> None:
    """A fault among the sizes that are looked at is found; the verdict says how many they are."""
    loop = "    for k in range(0, n + 1):\n        if k * BN + BN > args.Nk:\n"
    loop += "            return False\n"
    one = wrong("full", SM80, "    return (n + 1) * BN <= args.Nk", loop + "    return True")
    found = proofs_of(one)
    assert found.failure is None and re.search(r"sampled at \d+ sizes: .*loop", found.words())
    assert any(isinstance(p.answer, Unknown) for p in found.proofs)
    bad = wrong("full", SM80, "    return (n + 1) * BN <= args.Nk",
                loop.replace("> args.Nk", "> args.Nk + 1") + "    return True")  # fmt: skip
    assert "is called full" in failure_of(bad).reason


WINDOW, FIRST = "sliding_window_causal", "return max(0, q0 + args.Nk - args.Nq - 1023) // BN + step"


def test_a_witness_is_the_smallest_and_is_run() -> None:
    """The first tile of a window is 0 in each case of a deck that goes 70 keys past it."""
    one = wrong(WINDOW, SM80, FIRST, "return step")
    found = proofs_of(one)
    answer = found.proofs[-1].answer
    assert isinstance(answer, Witness) and answer.minimal
    # 1023 keys before the last one and a tile of 128 rows' 32 keys: one key less skips nothing.
    assert (answer.values["Nq"], answer.values["Nk"]) == (1, 1024 + BN)
    failure, rows = judge(one, lambda _: None)
    assert failure is not None and "a run there shows it: O is wrong" in failure.reason
    assert [row["case"] for row in rows] == [str(found.case)]


def test_the_deck_has_sizes_for_each_kind_of_value_of_the_schedule() -> None:
    """The kernel's own use of the first tile is judged where that is not 0."""
    one = right(WINDOW, SM80)
    few = [Case(1, 1, 1, 70, 70), Case(1, 1, 1, 70, 1093)]
    brought = reached(one, few)
    assert not brought.missing and any(c.Nk >= 1024 + BN for c in brought.cases)
    again = reached(one, [*few, *brought.cases])
    assert again.cases == () and again.missing == ()


ORDERS = [
    (SM90, "first = work // (section * row_blocks) * section",
     "first = work // (section * row_blocks)"),
    (SM90, "first = work // (section * row_blocks) * section",
     "first = work // row_blocks * section"),
    (SM90, "heads = min(section, args.B * args.Hq - first)", "heads = section"),
    (SM90, "(row_blocks - 1 - (work", "(row_blocks - (work"),
    (SM90, "works = ceil_div(args.Nq, BM) * args.Hq * args.B\n    if wg",
     "works = ceil_div(args.Nq, BM) * args.Hq\n    if wg"),
    (SM80, "q0 = block % q_tiles * BM", "q0 = block % (q_tiles - 1) * BM"),
    (SM80, "h = block // q_tiles % args.Hq", "h = block // q_tiles % args.Hkv"),
    (SM80, "b = block // q_tiles // args.Hq", "b = block // q_tiles // args.Hkv"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "old", "new"), ORDERS)
def test_a_wrong_order_of_work_has_a_witness(kernel: str, old: str, new: str) -> None:
    assert (
        "the order of work is wrong at B " in failure_of(wrong("causal", kernel, old, new)).reason
    )


def test_what_is_sampled_is_never_said_of_all() -> None:
    for one in (right("causal_document", SM80), wrong("causal", SM80, *ANOTHER_WAY[0])):
        words = "; ".join(s.words() for s in proofs_of(one).sampled)
        assert words and not re.search(r"\b(all|every|each|any)\b", words)


def test_g2_fails_a_free_hands_schedule_with_its_witness_alone() -> None:
    base = right("sliding_window_causal", SM80)
    one = wrong("sliding_window_causal", SM80, "args.Nq + 1023 >=", "args.Nq + 1024 >=")
    failure, rows = judge(replace(one, watch=Watch.of(base.module, one.module)), lambda _: None)
    assert failure is not None and len(rows) == 1 and "is called full" in failure.reason
    assert (failure.op or "").startswith("tile_full/")
