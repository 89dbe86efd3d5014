"""A tile schedule is held to its mask at every residue, without running a kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.parser import parse_expr
from engine.cuir.scalar import evaluate
from engine.gates.judge import judge
from engine.gates.subject import Subject
from engine.gates.tile_sweep import MAX_WORK, Swept, swept
from engine.gates.watch import Watch
from tests.engine.gates.test_judge import edited, subject_of

SM80, SM90 = "flash_fwd_sm80", "flash_fwd_sm90"
KERNELS = (SM80, SM90)
MASKS = ("causal", "sliding_window_causal", "prefix_lm", "causal_blockwise",
         "global_sliding_window")  # fmt: skip


def right(spec: str, kernel: str) -> Subject:
    return subject_of(spec, kernel, "bf16_128")


def wrong(spec: str, kernel: str, old: str, new: str) -> Subject:
    """`$row` in the texts is the row that the kernel asks `tile_full` about."""
    row = "row0" if kernel == SM90 else "q0"
    return edited(right(spec, kernel), old.replace("$row", row), new.replace("$row", row))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spec", [*MASKS, "full", "alibi_causal", "sliding_window"])
def test_what_the_rules_write_is_right_at_every_size(spec: str, kernel: str) -> None:
    found = swept(right(spec, kernel))
    assert found.failure is None and not found.skipped and found.sizes > 900


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
    failure = swept(one).failure
    assert failure is not None and (failure.op or "").startswith("tile_full/")
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
    ("global_sliding_window", (SM90,), "args.Nq - 15 <= 0", "args.Nq - 14 <= 0", "tile_lead",
     "passed over"),
    ("causal", (SM80,), "return step", "return step + 1", "tile_index", "there are"),
    ("causal", (SM80,), "return step", "return step // 2 * 2", "tile_count", "never visited"),
    ("causal", (SM90,), " - 1 - step", " - step", "tile_index", "there are"),
    ("causal", (SM90,), "own_last = min(row0 + ROWS, args.Nq) - 1",
     "own_last = min(row0 + ROWS, args.Nq) - 2", "tile_lead", "passed over"),
    ("prefix_lm", (SM90,), "max(0, end - own_end)", "max(1, end - own_end)", "tile_lead",
     "passed over"),
    ("causal", (SM90,), "return max(0, end - own_end)", "return end + 1", "tile_lead",
     "more tiles"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "kernel", "old", "new", "op", "words"),
    [(s, k, *rest) for s, kernels, *rest in SCHEDULED for k in kernels],
)
def test_a_tile_with_a_kept_pair_is_visited_by_all_its_rows(
    spec: str, kernel: str, old: str, new: str, op: str, words: str
) -> None:
    failure = swept(wrong(spec, kernel, old, new)).failure
    assert failure is not None and words in failure.reason
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
    found = swept(wrong(spec, kernel, old, new))
    assert found.failure is None and not found.skipped


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("old", "new"),
    [("floor_div($row", "floor_div(1 + $row"), ("<= $row + args.Nk + 1", "<= $row + args.Nk + 2")],
)
def test_blocks_of_the_mask_are_held_too(old: str, new: str, kernel: str) -> None:
    assert swept(wrong("causal_blockwise", kernel, old, new)).failure is not None


BRANCH = "    if args.Nq == 1:\n        return VALUE\n    return (n + 1) * BN"


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_function_that_branches_is_held_as_well(kernel: str) -> None:
    def branching(value: str) -> Subject:
        new = BRANCH.replace("VALUE", value)
        return wrong("sliding_window_causal", kernel, "    return (n + 1) * BN", new)

    assert swept(branching("False")) == Swept(swept(branching("False")).sizes)
    failure = swept(branching("(n + 1) * BN <= args.Nk")).failure
    assert failure is not None and "Nq 1," in failure.reason


def test_the_work_is_bounded_by_count() -> None:
    """The same text gets the same sizes, on a fast machine and a slow one."""
    one = right("sliding_window_causal", SM80)
    assert swept(one).sizes == swept(one).sizes < 10_000 and MAX_WORK > 0


def test_sizes_that_the_spec_does_not_allow_are_left_out() -> None:
    one = wrong("causal", SM80, "<= q0 + args.Nk + 1", "<= q0 + args.Nk + 1 + (args.Nq != args.Nk)")
    assert swept(right("causal", SM80)).sizes > 0
    square = replace(one.recipe, constraints=(parse_expr("Nq == Nk"),))
    found = swept(replace(one, recipe=square))
    assert found.failure is None and found.sizes > 100
    both = replace(one.recipe, constraints=())
    assert swept(replace(one, recipe=both)).failure is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [("for step in range(tiles)", "for step in range(tiles - 1)"),
     ("tile_full[BM, BN](args, b, h, q0, n)", "tile_full[BM, BN](args, b, h, q0, 0)")],
)  # fmt: skip
def test_a_kernel_that_asks_in_another_way_is_left_to_runs(old: str, new: str) -> None:
    found = swept(wrong("causal", SM80, old, new))
    assert found.failure is None and not found.sizes
    assert "asks its tile schedule in another way" in found.words()


def test_masks_that_read_inputs_are_left_to_runs() -> None:
    found = swept(right("causal_document", SM80))
    assert not found.sizes and "in runs alone" in found.words()
    assert Swept(5).words() == ""


def test_g2_fails_a_free_hands_schedule_before_anything_runs() -> None:
    base = right("sliding_window_causal", SM80)
    one = wrong("sliding_window_causal", SM80, "args.Nq + 1023 >=", "args.Nq + 1024 >=")
    failure, rows = judge(replace(one, watch=Watch.of(base.module, one.module)), lambda _: None)
    assert failure is not None and rows == [] and "is called full" in failure.reason
