"""Tile lists: what the two kernels write equals counting, for any mask over loads."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import cycle

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.cuir.execute import run_program
from engine.cuir.execute.schedules.run import Outcome
from engine.cuir.nodes import (
    Bool,
    Call,
    Expr,
    If,
    Module,
    Name,
    Num,
    Return,
    Unary,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.cuir.rewrite import map_function
from engine.cuir.scalar import evaluate
from engine.cuir.static.check import check
from engine.cuir.static.kernel_names import Fresh
from engine.lower.spelling.legal import legal
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.binding import Binding
from engine.transfer.bounds import certain, possible, reads_pairs, with_ranges
from engine.transfer.fill import UNFILLED, fill_arguments
from engine.transfer.logic import factored
from engine.transfer.match import find_attention
from engine.transfer.rules import apply, plan
from engine.transfer.schedule import KEY, ROW
from engine.transfer.workspace import launch_constants
from tests.engine.transfer.recipes import lifted, recipe

KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
ASKED = ("tile_slot", "tile_full", "load_bits")  # about a tile, from the lists
SKIP, PARTIAL, FULL, BITS = 0, 1, 2, 3
INPUTS = (
    Input("dq", "extra", "i32", ("B", "Nq")),
    Input("dk", "extra", "i32", ("B", "Nk")),
    Input("reach", "extra", "i32", ("Hq", "Nq")),
    Input("seen", "extra", "bool", ("B", "Nk")),
    Input("pairs", "extra", "bool", ("Nq", "Nk")),
)
MASKS = {
    "document": "dq[b, i] == dk[b, j]",
    "causal document": "dq[b, i] == dk[b, j] and j <= i + Nk - Nq",
    "others": "dq[b, i] != dk[b, j]",
    "later": "dq[b, i] > dk[b, j] or j == i",
    "padding": "seen[b, j] and j <= i + Nk - Nq",
    "not padded": "not seen[b, j]",
    "by head": "j <= reach[h, i] and dq[b, i] <= dk[b, j] + 1",
    "pairs": "pairs[i, j] and j >= i - 90",
    "halves": "floor_div(dq[b, i], 2) == floor_div(dk[b, j], 2) and (j <= i or dk[b, j] % 2 == 0)",
    "shared": "j <= i and (dk[b, j] == 0 or dq[b, i] == dk[b, j])",
}


@cache
def lists_only(kernel: str, mask: str) -> tuple[Module, Binding, Recipe]:
    """The carried module with its launches of the attention left out."""
    wanted = recipe(keep=MASKS[mask], extra=INPUTS)
    wanted = replace(wanted, inputs=tuple(i for i in wanted.inputs if i.role != "extra" or
                                          i.name in MASKS[mask]))  # fmt: skip
    base = lifted(kernel)
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    target = legal(target)
    assert check(target) == ()
    host = next(f.name for f in target.functions if f.kind == "host")
    short = map_function(
        target,
        host,
        lambda f: replace(f, body=(*f.body[:-1], Return(Name("success")))),
    )
    return short, planned.binding, wanted


def sizes_of(module: Module, binding: Binding, nq: int, nk: int) -> dict[str, int]:
    sizes = {"B": 2, "Hq": 2, "Hkv": 1, "Nq": nq, "Nk": nk, "D": 8, "Dv": 8}
    return {**launch_constants(module, binding), **sizes}


def drawn(wanted: Recipe, sizes: dict[str, int], seed: int) -> dict[str, torch.Tensor]:
    """Documents in runs, flags and lengths at random."""
    make = torch.Generator().manual_seed(seed)
    out: dict[str, torch.Tensor] = {}
    for item in wanted.inputs:
        shape = [sizes[d] for d in item.dims]
        if item.role != "extra":
            out[item.name] = torch.zeros(shape, dtype=torch.float64)
        elif item.dtype == "bool":
            share = float(torch.rand((), generator=make)) ** 3
            dense = torch.rand(shape, generator=make) < share
            runs = torch.rand([*shape[:-1], -(-shape[-1] // 50)], generator=make) < 0.5
            out[item.name] = dense & runs.repeat_interleave(50, -1)[..., : shape[-1]]
        elif item.name == "reach":
            out[item.name] = torch.randint(-5, sizes["Nk"], shape, generator=make)
        else:
            begins = torch.rand(shape, generator=make) < 0.02
            out[item.name] = begins.cumsum(-1)
    return out


def run(
    module: Module, binding: Binding, inputs: dict[str, torch.Tensor], sizes: dict[str, int],
    **fields: object,
) -> Outcome:  # fmt: skip
    filled = fill_arguments(binding, inputs, sizes, torch.float64).fields
    return run_program(module, {**filled, **fields})  # type: ignore[dict-item]


def kept_pairs(
    wanted: Recipe, inputs: dict[str, torch.Tensor], sizes: dict[str, int]
) -> torch.Tensor:
    """[B, Hq, Nq, Nk], by the recipe itself."""
    grid = torch.meshgrid(*(torch.arange(sizes[n]) for n in ("B", "Hq", "Nq", "Nk")), indexing="ij")
    env = dict(zip("bhij", grid, strict=True)) | {k: v for k, v in inputs.items() if v.dim() < 4}
    kept = torch.as_tensor(evaluate(wanted.keep, {**sizes, **env}))
    return kept.broadcast_to(grid[0].shape)


def counted(wanted: Recipe, inputs: dict[str, torch.Tensor], sizes: dict[str, int]) -> torch.Tensor:
    """The class of every tile by counting: [B, Hq, blocks of rows, tiles]."""
    keep = kept_pairs(wanted, inputs, sizes)
    bm, bn = sizes["BM"], sizes["BN"]
    rows, keys = -(-sizes["Nq"] // bm), -(-sizes["Nk"] // bn)
    out = torch.empty(sizes["B"], sizes["Hq"], rows, keys, dtype=torch.int64)
    for r in range(rows):
        for n in range(keys):
            tile = keep[:, :, r * bm : (r + 1) * bm, n * bn : (n + 1) * bn].flatten(2)
            whole = (n + 1) * bn <= sizes["Nk"]
            full = torch.where(tile.all(-1) & whole, FULL, PARTIAL)
            out[:, :, r, n] = torch.where(tile.any(-1), full, SKIP)
    return out


def listed(lists: torch.Tensor, sizes: dict[str, int]) -> tuple[torch.Tensor, list[list[int]]]:
    """The classes of the tiles of every list, and the lists themselves."""
    per_head = lists if lists.dim() == 4 else lists[:, None].expand(-1, sizes["Hq"], -1, -1)
    keys = -(-sizes["Nk"] // sizes["BN"])
    classes = torch.zeros(*per_head.shape[:-1], keys, dtype=torch.int64)
    tiles = []
    flat, into = per_head.flatten(0, -2), classes.flatten(0, -2)
    for row, out in zip(flat, into, strict=True):
        tiles.append(row[1 : 1 + int(row[0])].tolist())
        for tile in tiles[-1]:
            kind = int(row[1 + keys + tile])
            out[tile] = PARTIAL if kind >= BITS else kind
    return classes, tiles


# Each mask by one of the kernels; any of them on the first is drawn below.
@pytest.mark.parametrize(("mask", "kernel"), [*zip(MASKS, cycle(KERNELS))])
def test_lists_equal_counting(kernel: str, mask: str) -> None:
    module, binding, wanted = lists_only(kernel, mask)
    assert reads_pairs(wanted.keep)
    for seed, (nq, nk) in enumerate([(1, 5), (300, 411), (260, 260), (411, 130), (3, 0)]):
        sizes = sizes_of(module, binding, nq, nk)
        inputs = drawn(wanted, sizes, seed)
        outcome = run(module, binding, inputs, sizes)
        assert outcome.clean, outcome.findings
        classes, tiles = listed(outcome.outputs["lists"], sizes)
        assert torch.equal(classes, counted(wanted, inputs, sizes)), (nq, nk)
        order = [sorted(set(t), reverse=kernel == "flash_fwd_sm90") for t in tiles]
        assert tiles == order  # each tile once, in the order of the visits


@pytest.mark.parametrize("slots", [0, 1, 2, 16])
@pytest.mark.parametrize("mask", ["causal document", "by head", "pairs"])
def test_bits_are_the_mask_of_the_first_partial_tiles(mask: str, slots: int) -> None:
    module, binding, wanted = lists_only("flash_fwd_sm90", mask)
    assert binding.workspace is not None
    sizes = sizes_of(module, binding, 300, 411)
    inputs = drawn(wanted, sizes, 7)
    filled = fill_arguments(binding, inputs, sizes, torch.float64, slots=slots).fields
    outcome = run_program(module, filled)
    assert outcome.clean, outcome.findings
    lists = outcome.outputs["lists"]
    bm, bn, keys = sizes["BM"], sizes["BN"], -(-sizes["Nk"] // sizes["BN"])
    keep = kept_pairs(wanted, inputs, sizes)
    per_head = lists if lists.dim() == 4 else lists[:, None].expand(-1, sizes["Hq"], -1, -1)
    seen = 0
    for b, h, r in torch.cartesian_prod(*(torch.arange(n) for n in per_head.shape[:3])).tolist():
        row = per_head[b, h, r]
        classes = row[1 + keys : 1 + 2 * keys].tolist()
        partial = [n for n in row[1 : 1 + int(row[0])].tolist() if classes[n] != FULL]
        assert [classes[n] for n in partial] == [
            BITS + at if at < slots else PARTIAL for at in range(len(partial))
        ]
        for at, n in enumerate(partial[:slots]):
            words = row[5 + 3 * keys :].view(-1, bm, 4)[at]  # behind the queue's
            tile = keep[b, h, r * bm : (r + 1) * bm, n * bn : (n + 1) * bn]
            j = torch.arange(tile.shape[1])
            bits = words[: tile.shape[0]][:, j // 2 % 4] >> (j // 8 * 2 + j % 2) & 1
            assert torch.equal(bits, tile.long()), (b, h, r, n)
            seen += 1
    assert seen or not slots


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 300), st.sampled_from([*MASKS]))
def test_lists_equal_counting_on_any_documents(seed: int, nq: int, nk: int, mask: str) -> None:
    module, binding, wanted = lists_only("flash_fwd_sm80", mask)
    sizes = sizes_of(module, binding, nq, nk)
    inputs = drawn(wanted, sizes, seed)
    classes, _ = listed(run(module, binding, inputs, sizes).outputs["lists"], sizes)
    assert torch.equal(classes, counted(wanted, inputs, sizes))


def test_held_lists_are_left_alone() -> None:
    module, binding, wanted = lists_only("flash_fwd_sm80", "document")
    sizes = sizes_of(module, binding, 150, 150)
    inputs = drawn(wanted, sizes, 1)
    held = run(module, binding, inputs, sizes).outputs["lists"]
    again = run(module, binding, inputs, sizes, lists=held + 5, planned=1)
    assert torch.equal(again.outputs["lists"], held + 5) and not again.coverage.launches
    nothing = run(module, binding, inputs, sizes, planned=1)
    assert bool((nothing.outputs["lists"] == UNFILLED).all())


def test_a_list_made_inside_one_launch_is_a_race() -> None:
    """The second kernel reads what other blocks of the first one wrote: as one launch that is a
    finding, whatever the order in which blocks happen to run."""
    module, binding, wanted = lists_only("flash_fwd_sm80", "document")
    text = print_module(module)
    body = text[text.index("    found = compact(") : text.index("    put(lists[b, row_block, 0:]")]
    merged = parse_module(
        text.replace("    tiles = candidate_count", f"{body}    tiles = candidate_count", 1)
    )
    sizes = sizes_of(module, binding, 150, 300)
    outcome = run(merged, binding, drawn(wanted, sizes, 1), sizes)
    assert "global_race" in {f.kind for f in outcome.findings}


# --- the analysis -------------------------------------------------------------------------------

ATOMS = (
    "a[i] == c[j]", "a[i] < c[j]", "a[i] >= c[j] - 2", "c[j] == 0", "a[i] > 1", "f[j]", "g[i]",
    "j <= i", "j >= i - 3", "floor_div(a[i], 2) == floor_div(c[j], 2)", "a[i] != c[j]",
    "c[j] <= i", "a[i] >= j", "a[i] + c[j] < 4", "d[i, j]", "c[j] % 2 == 0", "c[i + j] == 1",
)  # fmt: skip
DTYPES = {"a": "i32", "c": "i32", "f": "bool", "g": "bool", "d": "bool"}


@st.composite
def masks(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0 or draw(st.booleans()):
        return parse_expr(draw(st.sampled_from(ATOMS)))
    kind = draw(st.sampled_from(["and", "or", "not"]))
    left = draw(masks(depth=depth - 1))
    return Unary("not", left) if kind == "not" else Bool(kind, left, draw(masks(depth=depth - 1)))


@settings(deadline=None)
@given(masks(), st.integers(0, 10**6), st.integers(0, 5), st.integers(0, 5))
def test_ranges_never_lose_a_pair_and_never_invent_one(
    keep: Expr, seed: int, first_row: int, first_key: int
) -> None:
    make = torch.Generator().manual_seed(seed)
    high = 1 + seed % 5
    tables = {
        n: torch.randint(0, high, (12, 12) if n == "d" else (12,), generator=make).to(
            torch.bool if DTYPES[n] == "bool" else torch.int64
        )
        for n in DTYPES
    }
    i = torch.arange(first_row, first_row + 4)[:, None]
    j = torch.arange(first_key, first_key + 3)[None, :]
    kept = torch.as_tensor(evaluate(keep, {**tables, "i": i, "j": j})).broadcast_to(4, 3)
    bounded, ranges = with_ranges(keep, DTYPES, Fresh(set(DTYPES)))
    ends: dict[str, object] = dict(tables)
    for item in ranges:
        values = evaluate(item.value, {**tables, item.axis.id: i if item.axis == ROW else j})
        ends |= {item.low.id: int(values.min()), item.high.id: int(values.max())}
    spans = (
        *(r.span for r in ranges),
        (KEY, Num(first_key), Num(first_key + 2)),
        (ROW, Num(first_row), Num(first_row + 3)),
    )
    may = possible(bounded, spans, frozenset(r.variable.id for r in ranges))
    must = certain(bounded, spans)
    if bool(kept.any()):
        assert evaluate(may, ends)
    if evaluate(must, ends):
        assert bool(kept.all())


@pytest.mark.parametrize(
    ("keys", "first_key", "may_hold"),
    [((3, 3), 40, False), ((3, 3), 30, True), ((2, 3), 40, True), ((2, 2), 40, True)],
)
def test_an_alternative_without_a_load_is_asked_too(
    keys: tuple[int, int], first_key: int, may_hold: bool
) -> None:
    """Keys of a continuation behind all rows are seen by none: no pair has to be looked at."""
    keep = parse_expr("floor_div(a[i], 2) == floor_div(a[j], 2) and (a[j] % 2 == 0 or j <= i)")
    bounded, ranges = with_ranges(keep, DTYPES, Fresh(set(DTYPES)))
    ends: dict[str, int] = {}
    for item in ranges:
        low, high = keys if item.axis == KEY else (2, 3)
        ends |= {item.low.id: low, item.high.id: high}
    spans = (
        *(r.span for r in ranges),
        (KEY, Num(first_key), Num(first_key + 9)),
        (ROW, Num(21), Num(30)),
    )
    may = possible(bounded, spans, frozenset(r.variable.id for r in ranges))
    assert bool(evaluate(may, ends)) == may_hold


@settings(deadline=None)
@given(masks(), st.integers(0, 10**6))
def test_factoring_changes_no_value(keep: Expr, seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    tables = {
        n: torch.randint(0, 3, (12, 12) if n == "d" else (12,), generator=make) for n in DTYPES
    }
    env = {**tables, "i": torch.arange(6)[:, None], "j": torch.arange(6)[None, :]}
    before = torch.as_tensor(evaluate(keep, env)).bool().broadcast_to(6, 6)
    after = torch.as_tensor(evaluate(factored(keep), env)).bool().broadcast_to(6, 6)
    assert torch.equal(before, after)


def test_what_alternatives_share_is_asked_once() -> None:
    keep = parse_expr("j <= i and a[i] == c[j] or j <= i and c[j] == 0")
    assert factored(keep) == parse_expr("j <= i and (a[i] == c[j] or c[j] == 0)")
    assert factored(parse_expr("j <= i or j <= i and c[j] == 0")) == parse_expr("j <= i")


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("a[j] and c[j] or a[j] and j <= i or c[i] and c[j] or c[i] and j <= i",
         "(a[j] or c[i]) and (c[j] or j <= i)"),
        ("c[j] == 0 or j <= i and a[j] or j > i + 9 and a[j]",
         "a[j] and (j <= i or j > i + 9) or c[j] == 0"),
        ("a[j] or c[j] and j <= i or c[j] and a[j]", "a[j] or c[j] and j <= i"),
        ("a[j] or c[j] and j <= i", "a[j] or c[j] and j <= i"),
    ],
)  # fmt: skip
def test_what_some_alternatives_share_is_asked_once(full: str, short: str) -> None:
    assert factored(parse_expr(full)) == parse_expr(short)


@pytest.mark.parametrize("kernel", KERNELS)
def test_indices_alone_need_no_lists(kernel: str) -> None:
    base = lifted(kernel)
    lengths = (Input("length", "extra", "i32", ("B",)),)
    for keep in ("j <= i", "j < length[b] and j <= i"):
        planned = plan(base, recipe(keep=keep, extra=lengths))
        *_, (_, target) = apply(base, planned.steps)
        assert planned.binding.workspace is None
        assert len([f for f in target.functions if f.kind == "kernel"]) == 1
        assert not any(isinstance(s, If) and "planned" in str(s) for s in target.functions[-1].body)


@pytest.mark.parametrize(("kernel", "early"), [(KERNELS[0], False), (KERNELS[1], True)])
def test_bits_are_on_their_way_while_a_matmul_is(kernel: str, early: bool) -> None:
    """Nothing about a tile is asked for behind an asynchronous matmul, and its bits are taken up
    there; beside matmuls that are done at once they are loaded where they are used."""
    target, _, _ = lists_only(kernel, "causal document")
    found = find_attention(lifted(kernel))
    body = target.function(found.kernel).body
    calls = [
        node.fn
        for _, stmt in walk_block(body, ())
        for expr in stmt_exprs(stmt)
        for node in walk_expr(expr)
        if isinstance(node, Call)
    ]
    order = [c for c in calls if c in (*ASKED, "keep_bits") or c.startswith("gemm")]
    matmul = order.index(next(c for c in order if c.startswith("gemm")))
    assert {c: order.index(c) < matmul for c in ASKED} == {
        "tile_slot": True, "tile_full": early, "load_bits": early,
    }  # fmt: skip
    assert order.index("keep_bits") > max(matmul, order.index("load_bits"))
    assert [order.count(c) for c in (*ASKED, "keep_bits")] == [1] * 4


def test_names_that_are_taken_are_left() -> None:
    taken = Input("lists", "extra", "i32", ("B", "Nq")), Input("b0", "extra", "i32", ("B", "Nk"))
    base = lifted("flash_fwd_sm80")
    planned = plan(base, recipe(keep="lists[b, i] == b0[b, j]", extra=taken))
    *_, (_, target) = apply(base, planned.steps)
    assert planned.binding.workspace is not None
    assert planned.binding.workspace.field == "lists_2"
    assert check(legal(target)) == ()
    calls = [e for f in target.functions for e in [f.name] if f.kind == "kernel"]
    assert calls == ["class_tiles", "list_tiles", "mask_tiles", "flash_fwd"]


def test_a_binding_with_a_workspace_is_kept_exactly() -> None:
    _, binding, _ = lists_only("flash_fwd_sm90", "by head")
    assert Binding.from_json(binding.to_json()) == binding
    assert binding.workspace is not None and binding.workspace.dims[:2] == ("B", "Hq")
    assert "workspace" not in replace(binding, workspace=None).to_json()
    assert isinstance(parse_expr(binding.workspace.dims[2]), Call)


# --- what G2 sees -------------------------------------------------------------------------------

WRONG = {
    "a tile dropped from every list": ("+ n:], kind)", "+ n:], 0 if step == 1 else kind)"),
    "a tile listed as full that is not": ("+ n:], kind)", "+ n:], min(2, 2 * kind))"),
    "partial tiles left out": ("+ n:], kind)", "+ n:], 0 if kind == 1 else kind)"),
    "a range that is one too short": (
        "doc_k_keys_low <= doc_q_rows_high", "doc_k_keys_low < doc_q_rows_high",
    ),
    "the last tile missed": ("found = compact(lists[b, row_block, 1:], candidate_count[BM, BN]"
                             "(args, b, 0, q0),", "found = compact(lists[b, row_block, 1:], "
                             "candidate_count[BM, BN](args, b, 0, q0) - 1,"),
    "a tile twice": ("0:], found)", "0:], found + 1 if found == 1 else found)"),
    "the list of another batch": ("return lists[b, q0 // BM, 0]", "return lists[0, q0 // BM, 0]"),
    "the class of another block of rows": (
        "return lists[b, q0 // BM, 1 + ceil_div(args.Nk, BN) + n] == 2",
        "return lists[b, 0, 1 + ceil_div(args.Nk, BN) + n] == 2",
    ),
    "the first key by another block's first tile": (
        "lists[b, q0 // BM, min(1, tiles)] * BN", "lists[b, 0, min(1, tiles)] * BN",
    ),
    "the last key by another block's last tile": (
        "lists[b, q0 // BM, tiles] * BN", "lists[b, 0, tiles] * BN",
    ),
    "lists that are never made": ("if args.planned == 0:", "if args.planned == 1:"),
    "an order that loses a kernel": (
        "listed = run(list_tiles[BM, BN]", "listed = run(class_tiles[BM, BN]",
    ),
    "the bits of another slot": ("+ n] - 3", "+ n] - 2"),
    "bits of other rows": ("at=[q0 + row, n * BN]", "at=[q0, n * BN]"),
    "bits of other keys": ("at=[q0 + row, n * BN]", "at=[q0 + row, n * BN + 1]"),
    "bits taken from another row on": ("(slot * BM + q0 % BM)", "(slot * BM + q0 % BM + 1)"),
    "no mask beyond the last slot": ("if slot >= 0:", "if slot >= -3:"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_list_fails(what: str) -> None:
    from engine.gates.g1_g2.judge import judge
    from engine.gates.runs.subject import Subject
    from engine.resources import specs_dir
    from engine.spec.read import read_recipe

    path = specs_dir() / "document.py"
    wanted = read_recipe(path, {})
    base = lifted("flash_fwd_sm80")
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    text = print_module(legal(target))
    old, new = WRONG[what]
    assert old in text, text
    broken = parse_module(text.replace(old, new))
    failure, _ = judge(Subject(broken, wanted, planned.binding, path, {}), lambda _: None)
    assert failure is not None, what


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<= first:", "<= first - 1:"),
        ("end - own_end", "end + 1 - own_end"),
        ("== 2", "!= 1"),
        # The bits of the first warpgroup's rows for all, and of another tile.
        ("else args.slots) * BM + row0 % BM", "else args.slots) * BM"),
        ("slot if slot >= 0 else args.slots", "slot + 1 if slot >= 0 else args.slots"),
    ],
)
def test_a_wrong_part_of_a_block_fails(old: str, new: str) -> None:
    """A warpgroup of the Hopper kernel asks for its own rows: tiles that it passes over, full
    tiles."""
    from engine.gates.g1_g2.judge import judge
    from engine.gates.runs.subject import Subject
    from engine.resources import specs_dir
    from engine.spec.read import read_recipe

    path = specs_dir() / "causal_document.py"
    wanted = read_recipe(path, {})
    base = lifted("flash_fwd_sm90")
    planned = plan(base, wanted)
    *_, (_, target) = apply(base, planned.steps)
    text = print_module(legal(target))
    assert old in text, text
    broken = parse_module(text.replace(old, new))
    failure, _ = judge(Subject(broken, wanted, planned.binding, path, {}), lambda _: None)
    assert failure is not None
