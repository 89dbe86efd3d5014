"""Work that blocks claim, in kernels whose tiles come from lists."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.subject import Subject
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.resources import specs_dir
from engine.spec.read import read_recipe
from engine.spec.recipes.recipe import Input
from engine.transfer.binding import Binding
from engine.transfer.fill import fill_arguments
from engine.transfer.match import find_attention
from engine.transfer.rules import apply, plan
from engine.transfer.rules.base.work_sharing import sharing_of
from engine.transfer.workspace import launch_constants
from tests.engine.transfer.recipes import ROOT, VARIANTS, lifted, recipe

DOCUMENT = recipe(
    keep="doc[b, j] == doc[b, i] and j <= i", extra=(Input("doc", "extra", "i32", ("B", "Nk")),)
)
CLAIM = "ticket = claim(queue, works)"
POST = "post(next_work[turn % 2], grid_dim(0) + ticket)"
FETCH = "next = fetch(next_work[turn % 2])"


@cache
def carried(kernel: str = "flash_fwd_sm90") -> tuple[Module, Binding]:
    base = lifted(kernel)
    planned = plan(base, DOCUMENT)
    *_, (_, target) = apply(base, planned.steps)
    return legal(target), planned.binding


def test_blocks_claim_their_work_and_tell_it_on() -> None:
    module, binding = carried()
    assert check(module) == ()
    text = print_module(module)
    assert text.count("for work in range(block_id(0), works, then(next)):") == 2
    assert [text.count(line) for line in (CLAIM, POST, FETCH)] == [1, 1, 2]
    # The number is posted before the loads, so that no register of the loading thread holds it.
    loading = text[text.index(CLAIM) : text.index("raise_registers")]
    order = [loading.index(line) for line in ("tiles = tile_count", POST, "tma_load", FETCH)]
    assert order == sorted(order)
    assert "blocks = min(works, sm_count())" in text
    assert binding.workspace is not None
    assert binding.workspace.dims[-1] == "5 + 3 * ceil_div(Nk, BN) + 4 * BM * slots"
    # Every computing thread frees a word; the words lie behind the barriers.
    assert "mbarrier_init(next_empty[word], BM * 2)" in text
    assert "next_work = shared_words[2](BARRIERS_AT + 16 * GROUPS + 32 * STAGES + 32)" in text
    assert "+ 8 * BARRIERS + 64\n" in text
    listing = text[text.index("def list_tiles") : text.index("def mask_tiles")]
    assert "put(lists[b, row_block, 4 + 3 * ceil_div(args.Nk, BN):], 0)" in listing


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_only_lists_are_handed_out(kernel: str) -> None:
    for name in ("softcap_causal", "window", "bias", "sigmoid"):
        base = lifted(kernel)
        *_, (_, target) = apply(base, plan(base, VARIANTS[name]).steps)
        assert "claim(" not in print_module(target)


def test_a_kernel_with_a_block_for_each_piece_has_no_queue() -> None:
    module, binding = carried("flash_fwd_sm80")
    text = print_module(module)
    assert "claim(" not in text and "range(block_id(0)" not in text
    assert binding.workspace is not None
    assert binding.workspace.dims[-1] == "4 + 3 * ceil_div(Nk, BN) + 4 * BM * slots"


# Head size 192 goes with values of 128 columns.
VALUES_APART = replace(
    DOCUMENT,
    inputs=tuple(
        replace(i, dims=(*i.dims[:-1], "Dv")) if i.role == "v" else i for i in DOCUMENT.inputs
    ),
    output_dims=("B", "Hq", "Nq", "Dv"),
)


def test_every_head_size_has_room() -> None:
    package = load_package(ROOT / "kernels" / "flash_fwd_sm90")
    for one in package.specialisations:
        base = lift(package, one, "sm_90a").module
        *_, (_, target) = apply(base, plan(base, VALUES_APART).steps)
        assert "claim(" in print_module(target)
        assert check(legal(target)) == (), one


SHAPE = {
    "a share of another step": ("range(block_id(0), works, grid_dim(0))",
                                "range(block_id(0), works, 132)"),
    "more blocks than multiprocessors": ("min(works, sm_count())", "works"),
    "loads by every thread": ("        lower_registers(LOW)\n        if elect():",
                              "        lower_registers(LOW)\n        if wg == 0:"),
    "a role for one warpgroup of several": ("    else:\n        raise_registers(HIGH)",
                                            "    if wg == 1:\n        raise_registers(HIGH)"),
    "bytes that are read elsewhere too": ("    section = 16 if BM == 192 else 8\n",
                                          "    section = 16 if BYTES > 0 else 8\n"),
    "tiles behind the barriers": ("sQ = shared_stages[T, GROUPS, 64, COLS](0)",
                                  "sQ = shared_stages[T, GROUPS, 64, COLS](BARRIERS_AT + 1024)"),
    "no room for the words": ("+ 8 * BARRIERS\n", "+ 8 * BARRIERS + 1920\n"),
    "barriers that end beside a word's bytes": ("16 * GROUPS + 24 * STAGES)",
                                                "16 * GROUPS + 24 * STAGES + 8)"),
    "a size that only the run knows": ("(BARRIERS_AT + 8 * GROUPS)",
                                       "(BARRIERS_AT + 8 * GROUPS * args.B)"),
    "another place of shared memory in the loop": (
        "            for work in", "            sX = shared[T, 8, 64](0)\n            for work in"),
    "another number of pieces": ("    wg = warpgroup_id()\n",
                                 "    wg = warpgroup_id()\n    works = 0\n"),
}  # fmt: skip


@pytest.mark.parametrize("what", SHAPE)
def test_another_way_of_sharing_work_is_left_alone(what: str) -> None:
    base = lifted("flash_fwd_sm90")
    old, new = SHAPE[what]
    text = print_module(base)
    assert old in text
    other = parse_module(text.replace(old, new))
    found = find_attention(base)
    assert sharing_of(base, found) is not None
    assert sharing_of(other, found) is None


# --- by execution -------------------------------------------------------------------------------


def run(module: Module, schedule: Schedule, planned: torch.Tensor | None = None, nq: int = 600):
    """Three batches of documents with two heads, on three multiprocessors."""
    _, binding = carried()
    sizes = {"B": 3, "Hq": 2, "Hkv": 1, "Nq": nq, "Nk": nq, "D": 256, "Dv": 256}
    make = torch.Generator().manual_seed(5)
    inputs = {
        i.name: torch.randn([sizes[d] for d in i.dims], generator=make, dtype=torch.float64)
        for i in DOCUMENT.inputs if i.role != "extra"
    }  # fmt: skip
    begins = torch.rand(3, nq, generator=make) < 0.01
    inputs["doc"] = begins.cumsum(-1)
    names = {**launch_constants(module, binding), **sizes}
    fields = fill_arguments(binding, inputs, names, torch.float64).fields
    if planned is not None:
        fields |= {"lists": planned, "planned": 1}
    limits = Limits(sm_count=3, max_steps=50_000_000)
    unfilled = () if planned is not None else ("lists",)
    return run_program(module, fields, "exact", schedule, limits, unfilled=unfilled)


def test_any_way_of_handing_out_gives_the_same() -> None:
    """By turns, at random, one block that claims all; again with the lists that a launch left."""
    module, _ = carried()
    first = run(module, Schedule())
    assert first.clean
    for schedule in (Schedule(3), Schedule(starve=1)):
        again = run(module, schedule, first.outputs["lists"])
        assert again.clean
        assert torch.equal(again.outputs["o"], first.outputs["o"])
        assert torch.equal(again.outputs["lists"], first.outputs["lists"])


FREE = "            arrive(next_empty[turn % 2])\n"
ONE_FREES = (FREE, f"            if elect():\n    {FREE}")
ZERO = "put(lists[b, row_block, 4 + 3 * ceil_div(args.Nk, BN):], 0)"
QUEUE = "queue = lists[0, 0, 4 + 3 * ceil_div(args.Nk, BN):]"

# What is changed, and how the reason that G2 gives begins.
WRONG: dict[str, tuple[list[tuple[str, str]], str]] = {
    "fetched without a wait": (
        [("            wait(next_full[turn % 2], turn // 2 % 2)\n", "")], "early_read"),
    "posted without a wait": (
        [("                wait(next_empty[turn % 2], 1 - turn // 2 % 2)\n", "")],
        "overwritten_stage"),
    "freed by one thread of a warpgroup": ([ONE_FREES], "lost_arrival"),
    "freed by one thread for all": (
        [ONE_FREES, ("mbarrier_init(next_empty[word], BM * 2)",
                     "mbarrier_init(next_empty[word], GROUPS)")],
        "overwritten_stage"),
    "never posted": ([(f"                {POST}\n", "")], "early_read"),
    "claimed by every thread": (
        [("        lower_registers(LOW)\n        if elect():",
          "        lower_registers(LOW)\n        if wg == 0:")],
        "not_elected"),
    "a limit that is too low": ([(CLAIM, CLAIM.replace("works", "works - 1"))], "unreturned_claim"),
    "a limit that is too high": (
        [(CLAIM, CLAIM.replace("works", "works + 1"))], "unreturned_claim"),
    "a next piece that is this one": ([(POST, POST.replace("grid_dim(0) + ticket", "work"))],
                                      "bad_value"),
    "a piece left out": ([(POST, POST.replace("ticket", "ticket + 1"))], ""),
    "a queue that is never set": ([(f"    {ZERO}\n", "")], "unwritten_read"),
    "a queue that begins elsewhere": ([(ZERO, ZERO.replace(", 0)", ", 1)"))], ""),
    "a queue for each block of rows": (
        [(QUEUE, QUEUE.replace("0, 0,", "0, block_id(0) % ceil_div(args.Nq, BM),"))], ""),
    "the bits in the queue's place": ([(QUEUE, QUEUE.replace("4 +", "5 +"))], "global_race"),
}  # fmt: skip


@cache
def document() -> tuple[str, Subject]:
    path = specs_dir() / "document.py"
    wanted = read_recipe(path, {})
    base = lifted("flash_fwd_sm90")
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    target = legal(target)
    return print_module(target), Subject(target, wanted, planned.binding, path, {})


@pytest.mark.parametrize("what", WRONG)
def test_a_broken_ticket_fails(what: str) -> None:
    changes, said = WRONG[what]
    text, subject = document()
    for old, new in changes:
        assert old in text, text
        text = text.replace(old, new)
    broken = Subject(parse_module(text), subject.recipe, subject.binding, subject.spec, {})
    failure, _ = judge(broken, lambda _: None)
    assert failure is not None and failure.reason.startswith(said), failure
