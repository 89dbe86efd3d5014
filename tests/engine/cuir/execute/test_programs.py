"""Whole programs besides attention forward: functions, several launches, opaque ops, limits."""

import pytest
import torch
from helpers import faults, golden, golden_text, make_inputs, path_of

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.parser import parse_module
from engine.errors import CuirError
from tests.engine.cuir.execute.explore import explore

HEAD = """\
specialisation(arch='sm_80', T=f16, D=32)


class Args:
    x: tensor
    y: tensor
    N: i32
    alpha: f32


"""

HOST = """

@host
def launch(args, stream, *, T, D):
    blocks = ceil_div(args.N, 32)
    if blocks == 0:
        return success
    return run(scale[T, D], [args], grid=[blocks], threads=64, shared=32 * D * sizeof(T))
"""


def program(kernel, head=HEAD, host=HOST):
    return parse_module(head + kernel.strip("\n") + "\n" + host)


# y = x doubled, moved through shared memory by a device function that holds ops.
DOUBLE = """
@device
def load(args, tile, row, *, T, D):
    X = gmem[T](args.x, args.N, D)
    copy_async(tile, X[row:])
    commit_async()
    wait_async(0)
    sync()
    return row + 1


@kernel(threads=64)
def scale(args, *, T, D):
    Y = gmem[T](args.y, args.N, D)
    tile = shared[T, 32, D](0)
    row = block_id(0) * 32
    after = load[T, D](args, tile, row)
    acc = zeros(mma_acc[32, D, 2])
    eye = shared[T, 32, D](0)
    sync()
    copy(Y[after - 1:], eye)
"""


def inputs(n=40, d=32, dtype=torch.float16):
    return {"x": torch.arange(n * d).reshape(n, d).to(dtype), "y": torch.zeros(n, d), "N": n,
            "alpha": 0.5}  # fmt: skip


def test_a_function_with_ops_is_called_and_returns():
    given = inputs()
    outcome = run_program(program(DOUBLE), given)
    assert outcome.clean, outcome
    assert torch.equal(outcome.outputs["y"], given["x"].double())
    assert faults(program(DOUBLE)) == ()


def test_outputs_keep_their_nan_where_nothing_writes():
    text = DOUBLE.replace("    copy(Y[after - 1:], eye)\n",
                          "    if row == 0:\n        copy(Y[after - 1:], eye)\n")  # fmt: skip
    outcome = run_program(program(text), inputs())
    assert outcome.status == "ran" and outcome.outputs["y"][32:].isnan().all()
    assert int(outcome.outputs["y"].isnan().any(-1).sum()) == 8


def test_the_caller_keeps_its_tensors():
    given = inputs()
    given["y"].fill_(7)
    run_program(program(DOUBLE), given)
    assert (given["y"] == 7).all()


def test_early_return_and_no_launch():
    outcome = run_program(program(DOUBLE), inputs(0))
    assert outcome.clean and outcome.returned == 0 and outcome.coverage.launches == []


def test_two_blocks_that_write_the_same_rows_race():
    text = DOUBLE.replace("copy(Y[after - 1:], eye)", "copy(Y[0:], eye)")
    module = program(text)
    outcome = run_program(module, inputs())
    assert [(f.kind, f.path) for f in outcome.findings] == [
        ("global_race", path_of(module, "copy(Y[0:], eye)")[0])
    ]


def test_an_opaque_op_stops_the_run_at_its_line():
    text = DOUBLE.replace(
        "    sync()\n    copy", "    opaque('asm(\"...\")', reads=['row'], writes=[])\n    copy"
    )
    module = program(text)
    outcome = run_program(module, inputs())
    assert outcome.status == "not_run" and outcome.findings == ()
    assert outcome.stopped_at == ("scale", 6) and "asm" in outcome.reason


def test_an_opaque_op_with_a_meaning_runs_it():
    text = DOUBLE.replace(
        "    sync()\n    copy",
        "    with opaque('asm(\"bar.sync 0;\")', reads=[], writes=[]):\n        sync()\n    copy",
    )
    outcome = run_program(program(text), inputs())
    assert outcome.clean and outcome.coverage.ops[("scale", 6, "meaning", 0)] > 0


STATIC = {
    "unknown name": ("row = block_id(0) * 32", "row = blok * 32", "unknown_name"),
    "unknown op": ("    sync()\n    copy(", "    synch()\n    copy(", "unknown_op"),
    "arity": ("copy(Y[after - 1:], eye)", "copy(Y[after - 1:])", "arity"),
    "rows first": ("copy(Y[after - 1:], eye)", "copy(Y[after - 1:, 0], eye)", "type_mismatch"),
    "operand kind": ("copy(Y[after - 1:], eye)", "copy(eye, Y[after - 1:])", "type_mismatch"),
    "float index": ("row = block_id(0) * 32", "row = block_id(0) * 32.0", "type_mismatch"),
    "integer /": ("row = block_id(0) * 32", "row = block_id(0) / 32", "type_mismatch"),
    "no such field": ("args.N, D)\n    tile", "args.M, D)\n    tile", "unknown_name"),
    "layout rows": ("mma_acc[32, D, 2]", "mma_acc[48, D, 2]", "layout_mismatch"),
    "misaligned": ("eye = shared[T, 32, D](0)", "eye = shared[T, 32, D](8)", "misaligned"),
    "another arch": ("    sync()\n    copy(", "    fence_async()\n    copy(", "not_on_arch"),
    "kernel called": ("    sync()\n    copy(", "    scale[T, D](args)\n    copy(", "unknown_op"),
    "host op in a kernel": ("    sync()\n    copy(", "    x = run(scale[T, D], [args], grid=[1], "
                            "threads=64, shared=0)\n    copy(", "unknown_op"),
    "constants": ("load[T, D](args", "load[T](args", "arity"),
    "division by zero": ("row = block_id(0) * 32", "row = 32 // (D - 32)", "bad_value"),
    "far shift": ("row = block_id(0) * 32", "row = 0 * (1 << 99999999999)", "bad_value"),
    "shift back": ("row = block_id(0) * 32", "row = 1 >> (0 - 1)", "bad_value"),
    "wide product": ("row = block_id(0) * 32", "row = (1 << 62) * (1 << 62)", "bad_value"),
    "infinite whole number": ("row = block_id(0) * 32", "row = i32(inf)", "bad_value"),
    "endless loop": ("    sync()\n    copy(",
                     "    for i in range(0, 4, 0):\n        sync()\n    copy(",
                     "bad_value"),
    "one-way name": ("    sync()\n    copy(Y[after - 1:], eye)",
                     "    copy(Y[after - 1:], out)", "unknown_name"),
}  # fmt: skip


BITS = """
@kernel(threads=64)
def scale(args, *, T, D):
    X = gmem[i32](args.x, args.N)
    Y = gmem[f32](args.y, 64, D)
    acc = fill(mma_acc[64, D, 2], args.alpha)
    if block_id(0) == 0:
        put_bits[64, D](X[3:], X[1:], lambda i, j: i * j % 3 == 1 and j > 8, at=[2, 5])
    sync()
    bits = load_bits[mma_acc[64, D, 2]](X[3:])
    acc = keep_bits(acc, bits)
    store(Y[0:], acc)
"""
ONE_BLOCK = HOST.replace("ceil_div(args.N, 32)", "1")


@pytest.mark.parametrize("words", [3 + 4 * 64, 3 + 4 * 50 + 2, 3])
def test_bits_are_what_was_put_and_not_set_outside(words):
    module = program(BITS, host=ONE_BLOCK)
    assert faults(module) == ()
    x = torch.tensor([7, 30, 31, *[7] * (words - 3)], dtype=torch.int32)
    given = {"x": x, "y": torch.full((64, 32), 9.0),
             "N": words, "alpha": 0.5}  # fmt: skip
    outcome = run_program(module, given)
    assert outcome.clean, outcome.findings
    i, j = torch.arange(2, 66)[:, None], torch.arange(5, 37)[None, :]
    word = (4 * (i - 2) + (j - 5) // 2 % 4).expand(64, 32)
    kept = (i * j % 3 == 1) & (j > 8) & (3 + word < words)
    assert torch.equal(outcome.outputs["y"].double(), torch.where(kept, 0.5, -torch.inf).double())
    assert outcome.outputs["x"][:3].tolist() == [7, 10, 36]  # a multiple of 3 has no bit


def test_the_ends_of_bits_only_widen():
    module = program(BITS, host=ONE_BLOCK)
    x = torch.tensor([7, 4, 90, *[7] * 256], dtype=torch.int32)
    given = {"x": x, "y": torch.zeros(64, 32), "N": 259, "alpha": 0.5}
    outcome = run_program(module, given)
    assert outcome.clean, outcome.findings
    assert outcome.outputs["x"][:3].tolist() == [7, 4, 90]


def test_the_last_column_takes_the_sign_of_its_word():
    module = program(BITS, head=HEAD.replace("D=32", "D=128"), host=ONE_BLOCK)
    given = {"x": torch.zeros(3 + 4 * 64, dtype=torch.int32), "y": torch.zeros(64, 128),
             "N": 3 + 4 * 64, "alpha": 0.5}  # fmt: skip
    outcome = run_program(module, given)
    assert outcome.clean, outcome.findings
    i, j = torch.arange(2, 66)[:, None], torch.arange(5, 133)[None, :]
    kept = (i * j % 3 == 1) & (j > 8)
    assert torch.equal(outcome.outputs["y"].double(), torch.where(kept, 0.5, -torch.inf).double())
    words = outcome.outputs["x"][3:].view(64, 4)
    assert torch.equal(words, words.to(torch.int32).to(words.dtype))
    assert torch.equal(words < 0, kept[:, [121, 123, 125, 127]])


WRONG_BITS = {
    "of another tile": ("load_bits[mma_acc[64, D, 2]]", "load_bits[mma_acc[64, 64, 2]]",
                        "layout_mismatch"),
    "of rows": ("load_bits[mma_acc[64, D, 2]]", "load_bits[row_of[mma_acc[64, D, 2]]]",
                "layout_mismatch"),
    "another arch": ("load_bits[mma_acc[64, D, 2]]", "load_bits[wgmma_acc[64, D]]", "not_on_arch"),
    "of scores": ("keep_bits(acc, bits)", "keep_bits(acc, acc)", "layout_mismatch"),
    "scores of bits": ("keep_bits(acc, bits)", "keep_bits(bits, bits)", "type_mismatch"),
    "mapped": ("keep_bits(acc, bits)", "map(acc, bits, lambda x, y: x)", "type_mismatch"),
    "kept": ("keep_bits(acc, bits)", "keep(acc, bits, lambda y, i, j: y, at=[0, 0])",
             "type_mismatch"),
    "stored": ("store(Y[0:], acc)", "store(Y[0:], bits)", "type_mismatch"),
    "reduced": ("store(Y[0:], acc)", "none = zeros(row_of[mma_acc[64, D, 2]])\n"
                "    top = row_max(bits, none)", "type_mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_BITS)
def test_bits_are_for_keep_bits_alone(name):
    old, new, kind = WRONG_BITS[name]
    assert BITS.count(old) == 1
    found = faults(program(BITS.replace(old, new), host=ONE_BLOCK))
    assert {f.kind for f in found} == {kind}, found


@pytest.mark.parametrize("name", STATIC)
def test_static_findings(name):
    old, new, kind = STATIC[name]
    assert DOUBLE.count(old) == 1
    found = faults(program(DOUBLE.replace(old, new)))
    assert found[0].kind == kind, found
    assert {f.kind for f in found} == {kind}, found
    assert len(found[0].path) > 1 and found[0].message


def test_a_launch_that_does_not_fit_its_kernel():
    wrong = HOST.replace("threads=64", "threads=128")
    assert [f.kind for f in faults(program(DOUBLE, host=wrong))] == ["launch_mismatch"]
    outcome = run_program(program(DOUBLE, host=wrong), inputs())
    assert outcome.status == "failed" and outcome.findings[0].kind == "launch_mismatch"


RUN_TIME = {
    "division by zero": ("row = block_id(0) * 32", "row = 32 // (args.N - 40)", "bad_value"),
    "far shift": ("row = block_id(0) * 32", "row = 0 * (args.N << 99999999999)", "bad_value"),
    "far shift back": ("row = block_id(0) * 32", "row = args.N >> (args.N * 2)", "bad_value"),
    "wide product": ("row = block_id(0) * 32",
                     "row = (args.N << 57) * (args.N << 57)", "bad_value"),
    "infinite whole number": ("row = block_id(0) * 32", "row = i32(args.alpha / 0.0)", "bad_value"),
    "float as a row": ("row = block_id(0) * 32", "row = args.alpha", None),
    "missing field": ("args.N, D)\n    tile", "args.M, D)\n    tile", "unknown_name"),
    "lambda shapes": ("    sync()\n    copy(", "    acc = map(acc, lambda z, i: i)\n    copy(",
                      "type_mismatch"),
    "word": ("    sync()\n    copy(", "    acc = convert(acc, T, 'x')\n    copy(",
             "type_mismatch"),
}  # fmt: skip


@pytest.mark.parametrize("name", RUN_TIME)
def test_a_run_never_ends_in_a_traceback(name):
    old, new, kind = RUN_TIME[name]
    assert DOUBLE.count(old) == 1
    outcome = run_program(program(DOUBLE.replace(old, new)), inputs())
    if kind is not None:
        assert outcome.status == "failed" and outcome.findings[-1].kind == kind, outcome


def test_a_view_larger_than_its_tensor():
    module = program(DOUBLE.replace("gmem[T](args.x, args.N, D)", "gmem[T](args.x, args.N + 5, D)"))
    outcome = run_program(module, inputs())
    assert [(f.kind, f.path) for f in outcome.findings] == [("out_of_bounds", ("load", 1))]


def test_a_kernel_that_never_ends():
    text = DOUBLE.replace(
        "    sync()\n    copy", "    for i in range(0, 1000000000):\n        sync()\n    copy"
    )
    outcome = run_program(program(text), inputs(), limits=Limits(max_steps=3000))
    assert outcome.status == "failed" and outcome.findings[0].kind == "runaway"


def test_wrong_inputs_are_one_clear_error():
    given = inputs()
    del given["N"]
    with pytest.raises(CuirError, match=r"no value for args\.N"):
        run_program(program(DOUBLE), given)
    with pytest.raises(CuirError, match=r"args\.x is a tensor"):
        run_program(program(DOUBLE), inputs() | {"x": 3})


# Two launches: partial sums of each half of the rows, then a combination of the halves.
SPLIT = """
specialisation(arch='sm_80', T=f16, D=32)


class Args:
    x: tensor
    part: tensor
    y: tensor
    N: i32


@kernel(threads=32)
def halves(args, *, T, D):
    P = gmem[f32](args.part, 2, args.N)
    X = gmem[T](args.x, args.N, D)
    s = zeros(mma_acc[16, D, 1])
    s = map(s, lambda z, i, j: X[i, j] if j % 2 == block_id(1) else z, at=[block_id(0) * 16, 0])
    l = zeros(row_of[mma_acc[16, D, 1]])
    l = row_sum(s, l)
    l = row_reduce(l)
    store_rows(P[block_id(1), block_id(0) * 16:], l)


@kernel(threads=32)
def combine(args, *, D):
    P = gmem[f32](args.part, 2, args.N)
    Y = gmem[f32](args.y, args.N)
    a = load_rows[mma_acc[16, D, 1]](P[0, block_id(0) * 16:])
    b = load_rows[mma_acc[16, D, 1]](P[1, block_id(0) * 16:])
    a = map(a, b, lambda p, q: p + q)
    store_rows(Y[block_id(0) * 16:], a)


@host
def launch(args, stream, *, T, D):
    tiles = ceil_div(args.N, 16)
    code = run(halves[T, D], [args], grid=[tiles, 2], threads=32, shared=0)
    if code != success:
        return code
    return run(combine[D], [args], grid=[tiles], threads=32, shared=0)
"""


def test_launches_run_in_order_and_share_a_workspace():
    module = parse_module(SPLIT)
    assert faults(module) == ()
    x = torch.randn(37, 32).half()
    given = {"x": x, "part": torch.zeros(2, 37), "y": torch.zeros(37), "N": 37}
    for mode in ("exact", "typed"):
        outcome = run_program(module, given, mode, Schedule(parts=1))
        assert outcome.clean, outcome
        assert [name for name, _ in outcome.coverage.launches] == ["halves", "combine"]
        want = x.double().sum(1)
        assert torch.allclose(outcome.outputs["y"].double(), want, atol=1e-4)


def test_a_workspace_read_in_the_launch_that_writes_it_races():
    fused = SPLIT.replace(
        "    store_rows(P[block_id(1), block_id(0) * 16:], l)\n",
        "    store_rows(P[block_id(1), block_id(0) * 16:], l)\n"
        "    c = load_rows[mma_acc[16, D, 1]](P[0, block_id(0) * 16:])\n",
    )
    x = torch.randn(16, 32).half()
    given = {"x": x, "part": torch.zeros(2, 16), "y": torch.zeros(16), "N": 16}
    outcome = run_program(parse_module(fused), given, schedule=Schedule(parts=1))
    assert [(f.kind, f.path) for f in outcome.findings] == [("global_race", ("halves", 8))]


def test_coverage_counts_every_op():
    outcome = run_program(golden("sm80_flash"), make_inputs(Hq=1, Nq=64, Nk=200))
    never = [p for p, n in outcome.coverage.ops.items() if n == 0 and p[0] == "flash_fwd"]
    assert never == []


def test_exploration_of_a_small_pipeline_is_exhaustive_and_clean():
    module = golden("sm80_flash")
    found = explore(module, make_inputs(Hq=1, Nq=16, Nk=16), budget=400)
    assert found.exhausted and found.findings == () and found.runs > 10


def test_exploration_stops_at_the_first_schedule_with_a_finding():
    text = golden("hopper_pingpong")
    small = make_inputs(Hq=1, Nq=16, Nk=300)
    assert explore(text, small, budget=12, limits=Limits(sm_count=1)).findings == ()


# The edits that docs/cuir.md shows, made to the sm_80 program.
CAUSAL = [
    ("    return ceil_div(args.Nk, BN)\n",
     "    return ceil_div(min(args.Nk, max(0, q0 + BM + args.Nk - args.Nq)), BN)\n"),
    ("    return (n + 1) * BN <= args.Nk\n",
     "    return (n + 1) * BN <= args.Nk and (n + 1) * BN - 1 <= q0 + args.Nk - args.Nq\n"),
    ("lambda i, j: j < args.Nk,", "lambda i, j: j < args.Nk and j <= i + args.Nk - args.Nq,"),
    ("alpha = map(m_prev, m, lambda prev, now: exp2_approx((prev - now) * scale_log2))",
     "top = map(m, lambda x: 0.0 if x == -inf else x)\n"
     "        alpha = map(m_prev, top, lambda prev, now: exp2_approx((prev - now) * scale_log2))"),
    ("s = map(s, m, lambda x, top: exp2_approx(x * scale_log2 - top * scale_log2))",
     "s = map(s, top, lambda x, now: exp2_approx((x - now) * scale_log2))"),
]  # fmt: skip


@pytest.mark.parametrize("rows", [(100, 100), (70, 200), (200, 70)], ids=str)
def test_the_causal_edit_of_the_reference(rows):
    text = golden_text("sm80_flash")
    for old, new in CAUSAL:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = parse_module(text)
    assert faults(module) == ()
    Nq, Nk = rows
    given = make_inputs(Nq=Nq, Nk=Nk)
    outcome = run_program(module, given)
    assert outcome.clean, outcome.findings
    scores = torch.einsum("bhid,bhjd->bhij", given["q"].double(), given["k"].double())
    i, j = torch.arange(Nq)[:, None], torch.arange(Nk)[None]
    scores = torch.where(j <= i + Nk - Nq, scores * given["scale"], -torch.inf)
    want = torch.softmax(scores, -1).nan_to_num(0.0) @ given["v"].double()
    assert (outcome.outputs["o"] - want).abs().max() < 1e-12
    lse = torch.logsumexp(scores, -1)
    assert torch.equal(outcome.outputs["lse"] == -torch.inf, lse == -torch.inf)


def test_element_loads_outside_the_tensor_are_found():
    text = DOUBLE.replace(
        "    sync()\n    copy(", "    z = Y[args.N + 1, 0]\n    sync()\n    copy("
    )
    text = text.replace("gmem[T](args.y, args.N, D)", "gmem[T](args.y, args.N + 2, D)")
    outcome = run_program(program(text), inputs(32))
    assert ("out_of_bounds", ("scale", 6)) in [(f.kind, f.path) for f in outcome.findings]


@pytest.mark.parametrize("keys", [150, 33])
def test_a_tile_of_a_dense_tensor_is_zero_outside(keys):
    text = golden_text("sm80_flash")
    for old, new in (
        ("    scale: f32\n", "    scale: f32\n    bias: tensor\n"),
        ("    scale_log2 =", "    Bias = gmem[f32](args.bias, args.Nq, args.Nk)\n    scale_log2 ="),
        ("        if not tile_full[BM, BN](args, b, h, q0, n):\n",
         "        more = load_tile[mma_acc[BM, BN, WARPS]](Bias[q0:], n * BN)\n"
         "        s = map(s, more, lambda x, y: x + y)\n"
         "        if not tile_full[BM, BN](args, b, h, q0, n):\n"),
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = parse_module(text)
    assert faults(module) == ()
    bias = torch.randn(150, keys, dtype=torch.float64).float()
    given = make_inputs(Nq=150, Nk=keys) | {"bias": bias}
    outcome = run_program(module, given)
    assert outcome.clean, outcome.findings
    scores = torch.einsum("bhid,bhjd->bhij", given["q"].double(), given["k"].double())
    scores = (scores + bias) * given["scale"]
    want = torch.softmax(scores, -1) @ given["v"].double()
    assert (outcome.outputs["o"] - want).abs().max() < 1e-12


def test_keep_compares_what_rows_and_keys_carry():
    text = golden_text("sm80_flash")
    view = "    Doc = gmem[i32](args.doc, args.Nq)\n"
    for old, new in (
        ("    scale: f32\n", "    scale: f32\n    doc: tensor\n"),
        ("    scale_log2 =", f"{view}    mine = load_rows[mma_acc[BM, BN, WARPS]](Doc[q0:])\n"
                             "    scale_log2 ="),
        ("        if not tile_full[BM, BN](args, b, h, q0, n):\n"
         "            s = keep(s, lambda i, j: j < args.Nk, at=[q0, n * BN])\n",
         "        theirs = load_cols[mma_acc[BM, BN, WARPS]](Doc[n * BN:])\n"
         "        s = keep(s, mine, theirs, lambda a, c, i, j: j < args.Nk and a == c, "
         "at=[q0, n * BN])\n"),
        *CAUSAL[3:],
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = parse_module(text)
    assert faults(module) == ()
    doc = torch.arange(150) // 40
    given = make_inputs(Nq=150, Nk=150) | {"doc": doc}
    outcome = run_program(module, given)
    assert outcome.clean, outcome.findings
    scores = torch.einsum("bhid,bhjd->bhij", given["q"].double(), given["k"].double())
    scores = torch.where(doc[:, None] == doc, scores * given["scale"], -torch.inf)
    want = torch.softmax(scores, -1) @ given["v"].double()
    assert (outcome.outputs["o"] - want).abs().max() < 1e-12
