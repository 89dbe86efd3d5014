"""Predictions of the bundled kernels: hand-computed cycles, and what must make a kernel slower."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cost.card import card, card_of_device, cards
from engine.cost.model import Prediction, lines, predict
from engine.cost.plan import launches
from engine.cuir.arch import arch_of
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, InputError
from engine.gates.g3_source.speed import beside
from engine.service.session.workbench import lift_any
from engine.spec.recipes.recipe import Input
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import recipe

H100 = card("h100")
SIZES = {"B": 1, "Hq": 4, "Hkv": 4, "Nq": 2048, "Nk": 2048, "scale": 0.09}


@cache
def lifted(kernel: str, d: int = 128, arch: str | None = None) -> Module:
    return lift_any(kernel, arch, {"D": str(d)}).module


def of(module: Module, **sizes: int) -> Prediction:
    return predict(module, {**SIZES, **sizes}, H100)


def changed(module: Module, *pairs: tuple[str, str]) -> Module:
    text = print_module(module)
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return parse_module(text)


# --- by hand: the tables of docs/kernels/flash_fwd_sm90.md and flash_fwd_sm80.md ------------------


@pytest.mark.parametrize(
    ("d", "tensor", "rows", "keys"), [(128, 2688, 192, 112), (64, 1536, 192, 128)]
)
def test_cycles_of_a_hopper_tile(d: int, tensor: float, rows: int, keys: int) -> None:
    step = of(lifted("flash_fwd_sm90", d)).main.kinds[0]
    assert step.cycles["tensor"] == pytest.approx(tensor)
    alpha = rows * 4 / 16  # one exponential per row, in each of the four threads that hold it
    assert step.cycles["mufu"] == pytest.approx(rows * keys / 16 + alpha)


def test_cycles_of_an_ampere_tile_on_hopper() -> None:
    sizes = {**SIZES, "B": 4, "Hq": 32, "Hkv": 32}
    found = predict(lifted("flash_fwd_sm80"), sizes, H100, on_arch="sm_90").main
    step = found.kinds[0]
    assert step.cycles["tensor"] == pytest.approx(4 * 128 * 48 * 128 / 2520)
    # ldmatrix: every warp its 8 KB of Q, and all of K and V; cp.async writes K and V.
    fragments = 4 * (8 + 12 + 12) * 1024
    assert step.cycles["shared"] == pytest.approx((fragments + 24 * 1024) / 128)
    assert found.resident == 2


@pytest.mark.parametrize(
    ("nq", "nk", "tiles"), [(2048, 2048, 11 * 19), (192, 112, 1), (193, 113, 4)]
)
def test_visited_tiles(nq: int, nk: int, tiles: int) -> None:
    found = of(lifted("flash_fwd_sm90"), Nq=nq, Nk=nk, B=1, Hq=1, Hkv=1)
    assert found.main.key_tiles == tiles
    assert found.visited_flops == pytest.approx(tiles * 192 * 112 * 4 * 128)


HEAD = "def tile_count(args, b: i32, h: i32, q0: i32, *, BM, BN):\n"


def test_a_causal_schedule_visits_half() -> None:
    full = lifted("flash_fwd_sm90")
    causal = changed(
        full,
        (f"{HEAD}    return ceil_div(args.Nk, BN)\n",
         f"{HEAD}    return min(ceil_div(args.Nk, BN), ceil_div(q0 + BM, BN))\n"),
    )  # fmt: skip
    sizes = {"B": 2, "Hq": 32, "Hkv": 32}
    half, whole = of(causal, **sizes), of(full, **sizes)
    assert 0.5 < half.main.key_tiles / whole.main.key_tiles < 0.6
    assert half.microseconds < 0.75 * whole.microseconds


# --- what must be slower -------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
@pytest.mark.parametrize(
    "score",
    ["x * args.scale", "tanh_approx(x)", "tanh(x)", "50.0 * tanh(x / 50.0)", "exp2_approx(x)"],
)
def test_more_work_on_the_score_is_never_faster(kernel: str, score: str) -> None:
    plain = lifted(kernel)
    more = changed(
        plain,
        ("m_prev = m\n", f"s = map(s, lambda x: {score})\n" + _indent(plain) + "m_prev = m\n"),
    )
    assert of(more).microseconds > of(plain).microseconds


def _indent(module: Module) -> str:
    line = next(x for x in print_module(module).splitlines() if x.strip() == "m_prev = m")
    return line[: len(line) - len(line.lstrip())]


def test_more_rows_heads_and_keys_take_longer() -> None:
    module = lifted("flash_fwd_sm90")
    base = of(module, B=2, Hq=32, Hkv=32)
    for bigger in ({"Nk": 4096}, {"Nq": 4096}, {"B": 4}):
        assert (
            of(module, **{"B": 2, "Hq": 32, "Hkv": 32, **bigger}).microseconds > base.microseconds
        )


def test_a_slower_card_is_slower() -> None:
    module = lifted("flash_fwd_sm90")
    slow = replace(H100, multiprocessors=66, matmul_tflops=H100.matmul_tflops / 2)
    assert predict(module, SIZES, slow).microseconds > of(module).microseconds
    few = replace(H100, mufu=2)
    assert predict(module, SIZES, few).bound == "special functions"


# --- around it -----------------------------------------------------------------------------------


def test_known_pairs_set_the_rate() -> None:
    module = lifted("flash_fwd_sm90")
    whole = of(module)
    half = predict(module, SIZES, H100, flops=whole.flops / 2)
    assert half.tflops == pytest.approx(whole.tflops / 2)
    assert half.microseconds == pytest.approx(whole.microseconds)


def test_a_count_from_data_is_guessed_and_said() -> None:
    text = print_module(lifted("flash_fwd_sm90"))
    text = text.replace("    scale: f32\n", "    scale: f32\n    lists: tensor\n", 1)
    text = text.replace(
        "    return ceil_div(args.Nk, BN)\n",
        "    lists = gmem[i32](args.lists, args.B, args.Nq)\n    return lists[b, q0]\n", 1,
    )  # fmt: skip
    module = parse_module(text)
    every = of(module)
    assert "every key tile" in every.notes[0]
    assert every.main.key_tiles == of(lifted("flash_fwd_sm90")).main.key_tiles
    tenth = predict(module, SIZES, H100, flops=every.flops / 10)
    assert "kept pairs" in tenth.notes[0]
    assert tenth.main.key_tiles < every.main.key_tiles / 4


@pytest.mark.parametrize(
    ("dtype", "tiles"), [("bool", "each of 10.2"), ("i32", "from the kept pairs")]
)
def test_a_flag_of_each_key_cuts_every_tile(dtype: str, tiles: str) -> None:
    base = lifted("flash_fwd_sm90")
    keep = "valid[b, j] and j <= i" if dtype == "bool" else "valid[b, j] == 3 and j <= i"
    wanted = recipe(keep=keep, extra=(Input("valid", "extra", dtype, ("B", "Nk")),))
    *_, (_, module) = apply(base, plan(base, wanted).steps)
    found = predict(module, SIZES, H100, flops=0.4 * of(base).flops)
    assert any(tiles in note for note in found.notes)
    cut = max(found.main.kinds, key=lambda kind: kind.together)
    assert (cut.share == 1.0) is (dtype == "bool")
    # As many bits are made as tiles are cut, up to the slots.
    bits = {n: next(c for c in predict(module, {**SIZES, "slots": n}, H100,
            flops=0.4 * of(base).flops).launches if c.kernel == "mask_tiles").cycles
            for n in (1, 2, 16)}  # fmt: skip
    assert (bits[16] > bits[2] > bits[1]) is (dtype == "bool")


def test_each_column_that_a_mask_reads_costs_its_address() -> None:
    """Fifteen instructions for each load, which the two rows of a thread share; counted by hand in
    the machine code of a mask by two columns."""
    base = lifted("flash_fwd_sm90")
    tiles = []
    for keep, names in (("j <= i", ""), ("a[b, j] <= i", "a"), ("a[b, j] <= i + e[b, j]", "ae")):
        extra = tuple(Input(n, "extra", "i32", ("B", "Nk")) for n in names)
        *_, (_, module) = apply(base, plan(base, recipe(keep=keep, extra=extra)).steps)
        tiles.append(max(k.cycles["vector"] for k in predict(module, SIZES, H100).main.kinds))
    loads = 192 * 112 / 2
    for before, after in itertools.pairwise(tiles):
        assert 15 < (after - before) * 128 / loads < 24  # what is compared is in it


def test_a_mask_that_reads_arguments_in_branches_is_slower() -> None:
    """12 instructions more for each element, counted in machine code; and the wait for a load."""
    keep = "j <= i + Nk - Nq and j >= i + Nk - Nq - 127"
    base = lifted("flash_fwd_sm90")
    *_, (_, named) = apply(base, plan(base, recipe(keep=keep)).steps)
    text = print_module(named)
    mask = "j <= i + offset and j >= i + offset - 127"
    assert text.count(mask) == 1
    late = parse_module(text.replace(mask, mask.replace("offset", "args.Nk - args.Nq")))
    fast, slow = (predict(m, SIZES, H100).main.kinds[0] for m in (named, late))
    assert 11 < (slow.cycles["vector"] - fast.cycles["vector"]) * 128 / (192 * 128) < 40
    assert predict(late, SIZES, H100).microseconds > predict(named, SIZES, H100).microseconds
    assert beside(base, late, None, None).late == "args.Nq"
    assert beside(base, named, None, None).late == ""


def test_nothing_to_launch_is_an_error() -> None:
    with pytest.raises(InputError, match="nothing is launched"):
        of(lifted("flash_fwd_sm90"), Nq=0)
    with pytest.raises(InputError, match="h100"):
        card("gtx")


def test_launches_follow_the_host_plan() -> None:
    module = lifted("flash_fwd_sm90")
    (launch,) = launches(module, SIZES, H100, arch_of(module))
    assert (launch.kernel, launch.grid, launch.threads) == ("flash_fwd", (44,), 512)
    assert launch.consts["BN"] == 112 and launch.numbers["section"] == 16


def test_a_device_name_finds_its_card() -> None:
    found = card_of_device("NVIDIA H100 80GB HBM3")
    assert found is cards()["h100"]
    assert card_of_device("NVIDIA GeForce GTX 1080") is None


def test_lines_name_the_bound_and_the_card() -> None:
    text = "\n".join(lines(of(lifted("flash_fwd_sm90"))))
    assert "H100" in text and "TFLOP/s" in text
    assert "bound by latency: the busiest unit, " in text


def test_it_runs_without_torch() -> None:
    code = (
        "import sys, engine.cost.model, engine.cost.model; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'textual', 'openai')))"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_broken_module_gives_one_clear_error(data: st.DataObject) -> None:
    """Lines lost, doubled or moved: a prediction or an error of ours, never a fault."""
    kernel = data.draw(st.sampled_from(["flash_fwd_sm80", "flash_fwd_sm90"]))
    text = print_module(lifted(kernel)).splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        change = data.draw(st.sampled_from(["drop", "twice", "swap"]))
        if change == "drop":
            del text[at]
        elif change == "twice":
            text.insert(at, text[at])
        elif at:
            text[at - 1], text[at] = text[at], text[at - 1]
    try:
        module = parse_module("\n".join(text) + "\n")
        predict(module, {**SIZES, "Nq": 300, "Nk": 300}, H100)
    except CuBridgeError as error:
        assert error.message


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="too many"):
        of(lifted("flash_fwd_sm80"), B=1 << 20, Hq=1 << 10, Hkv=1)


# A block claims its next piece of work, as tests/engine/cuir/execute/test_work.py says it whole.
CLAIMING = """
specialisation(arch='sm_80', T=bf16)


class Args:
    y: tensor
    queue: tensor
    N: i32


@kernel(threads=128)
def work(args, *, T):
    Y = gmem[i32](args.y, args.N)
    next = 0
    for piece in range(block_id(0), args.N, then(next)):
        put(Y[piece:], piece)
        next = piece + grid_dim(0)


@host
def launch(args, stream, *, T):
    return run(work[T], [args], grid=[min(args.N, sm_count())], threads=128, shared=64)
"""


def test_a_loop_that_claims_is_followed_and_a_grid_of_nothing_is_said() -> None:
    """A field that the sizes do not name counts as 0, and so may a grid that hangs on it."""
    module = parse_module(CLAIMING)
    assert predict(module, {**SIZES, "N": 1000}, H100).main.blocks == 132
    with pytest.raises(InputError, match=r"work is launched on a grid of \[0\]") as found:
        predict(module, SIZES, H100)
    assert "Nk, scale" in str(found.value)


@pytest.mark.parametrize("threads", [0, -128, 3_840_000_000])
def test_a_number_of_threads_that_no_block_has_is_refused_at_once(threads: int) -> None:
    module = parse_module(CLAIMING.replace("threads=128, s", f"threads={threads}, s"))
    with pytest.raises(InputError, match="threads per block"):
        of(module, N=1000)
