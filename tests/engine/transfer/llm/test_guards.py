"""Tricks that are right on a deck only are refused before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module, Num
from engine.cuir.parser import parse_expr, parse_module
from engine.cuir.printer import print_module
from engine.lower.spelling.legal import legal
from engine.resources import spec_path
from engine.spec.python.declarations import declared
from engine.spec.python.spec_file import read_source
from engine.spec.recipes.recipe import Input
from engine.transfer.llm.answer import AnswerError, AnswerRefused, read_answer
from engine.transfer.llm.apply import apply_answer
from engine.transfer.llm.bind import Interface, bind
from engine.transfer.llm.editing import judge_edit
from engine.transfer.llm.guards import refuse_names, refuse_tricks
from engine.transfer.llm.outcome import Outcome, Reached
from engine.transfer.llm.prompt import Task
from engine.transfer.rules import apply, plan
from tests.engine.spec.read_once import recipe_of

SCALE = Input("scale", "extra", "f32", ())


def insert(base: Module, after: str, line: str) -> Module:
    answer = read_answer(f"```edit\n<<<<<<< after {after}\n=======\n{line}\n>>>>>>>\n```")
    return apply_answer(answer, base, assign(base))


@pytest.mark.parametrize(
    "line",
    [
        "if args.Nq == 5 and args.Nk == 7:\n    l = map(l, lambda x: x * 2.0)",
        "trick = 1 if args.Nk > 128 else 0",
        "total = args.Nq * args.Nk\nodd = 1 if total % 35 == 7 else 0",
        "pick = 2 if 193 <= args.Nk else 1",
        # Right at every size that a deck on a CPU reaches, wrong at those of a GPU.
        "seen = min(args.Nk, 4000)",
        "late = args.Nk // 4000",
        "late = floor_mod(args.Nq, 8191)",
        "late = ceil_div(args.Nq, 4096)",
        "late = 1 if ceil_div(args.Nq, 64) > 63 else 0",
        "late = 1 if ceil_div(args.Nq, 64) > 64 else 0",
        "odd = 1 if ceil_div(args.Nk, 250) == 250 else 0",
        # With a place that is multiplied away, a type's bytes, or a function of the edit's own.
        "odd = 1 if args.Nk + 0 * block_id(0) == 4096 else 0",
        "odd = 1 if args.Nk + 0 * q0 == 4096 else 0",
        "late = args.Nk // (4000 * sizeof(T))",
        "seen = min(args.Nk + 0 * block_id(0), 4000)",
        "odd = 1 if f(args.Nk) == 4096 else 0",
        "odd = 1 if args.Nk + 0 * block_id(0) > 1e308 * 1e308 else 0",
        # With a number under a name, or made of those that the kernel is built for.
        "limit = 4096\nlate = 1 if args.Nk > limit else 0",
        "limit = 4095\nlate = 1 if args.Nk > limit + 1 else 0",
        "limit = 1\nif args.Nk > 0:\n    limit = 4096\nlate = min(args.Nk, limit)",
        "rows = args.Nk\nlimit = D * 32\nlate = 1 if rows > limit else 0",
        "late = 1 if args.Nk > D * 32 else 0",
        "late = args.Nk // (BM * BN)",
        "late = 1 if args.Nk > D * D else 0",
        "late = args.Nk // (2 * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2)",
        "late = 1 if args.Nk > 4096.0 else 0",
    ],
)
def test_sizes_are_not_singled_out(base: Module, line: str) -> None:
    with pytest.raises(AnswerRefused, match="singles out sizes"):
        refuse_tricks(base, insert(base, "s59", line), frozenset())


@pytest.mark.parametrize(
    ("helper", "call"),
    [
        ("def late(n: i32) -> i32:\n    return 1 if n > 4096 else 0", "late(args.Nk)"),
        ("def late(n: i32, most: i32) -> i32:\n    return min(n, most)", "late(args.Nk, 4096)"),
        ("def late(n: i32, *, MOST) -> i32:\n    return min(n, MOST)", "late[4096](args.Nk)"),
        ("def late(n: i32, *, MOST) -> i32:\n    return min(n, MOST)", "late[BM * BN](args.Nk)"),
    ],
)
def test_a_function_of_ones_own_singles_out_no_size(base: Module, helper: str, call: str) -> None:
    text = print_module(insert(base, "s59", f"found = {call}"))
    made = parse_module(text.replace("@kernel", f"@device\n{helper}\n\n\n@kernel", 1))
    with pytest.raises(AnswerRefused, match="late singles out sizes"):
        refuse_tricks(base, made, frozenset())


def test_ordinary_comparisons_stay(base: Module) -> None:
    for line in (
        "empty = 1 if args.Nk == 0 else 0",
        "far = 1 if args.Nk > 128 else 0",  # the spec names 128
        "cut = 1 if q0 + BM <= args.Nk - 64 else 0",  # about a tile, not about sizes alone
        "l = map(l, lambda x: x if x > 20.0 else 0.0)",
        "start = max(args.Nk - args.Nq - 127, 0)",  # the last key of a window of 128
        "half = (args.Nk + 1) // 2",
        "blocks = ceil_div(args.Nk, BN)",
        "blocks = max(1, ceil_div(args.Nq, 16))",
        "mine = 1 if block_id(0) * 64 < args.Nq else 0",
        "short = 1 if args.Nk <= BN else 0",
        "few = 1 if args.Nk <= STAGES * BN else 0",
        "more = 2 * BN\nlate = max(args.Nk - more, 0)",
        # As the rules write a mask, threads by tiles, and a factor that is none of a size.
        "p = keep(s, lambda i, j: (j < args.Nk) & ((j <= i) | (j < 128)), at=[q0, 0])",
        "lanes = max(1, min(ceil_div(args.Nk, BN), 32))\nwarps = min(4 * lanes, 64)",
        "factor = log(f32(args.Nk)) * 1.4426950408889634",
        "limit = 128\nfar = 1 if args.Nk > limit else 0",
    ):
        refuse_tricks(base, insert(base, "s59", line), frozenset({128}))


@pytest.mark.parametrize(
    "line",
    [
        "cached = O[b, h, q0, 0]",
        "copy_async(sQ, O[b, h, q0:])",
        "old = load_rows[row_of[mma_acc[BM, D, WARPS]]](LSE[b, h, q0:])",
        "Again = gmem[T](args.o, args.B, args.Hq, args.Nq, D)\nx0 = Again[b, h, 0, 0]",
    ],
)
def test_outputs_are_not_read(base: Module, line: str) -> None:
    with pytest.raises(AnswerRefused, match="reads the output"):
        refuse_tricks(base, insert(base, "s59", line), frozenset())


def test_opaque_text_is_no_edit(base: Module) -> None:
    made = insert(base, "s59", "opaque('cublasGemmEx(...);', reads=['l'], writes=['l'])")
    with pytest.raises(AnswerRefused, match="libraries"):
        refuse_tricks(base, made, frozenset())


def test_fields_are_filled_by_name_or_by_a_line(task: Task, base: Module) -> None:
    def with_field(line: str) -> Module:
        text = f"```edit\n<<<<<<< Args\nscale: f32\n=======\nscale: f32\n{line}\n>>>>>>>\n```"
        return apply_answer(read_answer(text), base, assign(base))

    interface = task.interface
    made = bind(base, with_field("sink: tensor"), interface, ())
    field = made.tensors[-1]
    assert (field.source, field.dims, field.dtype) == ("sink", ("Hq",), "f32")
    made = bind(base, with_field("s0: tensor"), interface, (("s0", "sink"),))
    assert made.tensors[-1].field == "s0"
    made = bind(base, with_field("cap: f32"), interface, ())
    assert made.scalars[-1].value == parse_expr("20.0")
    made = bind(base, with_field("inv: f32"), interface, (("inv", "1.0 / f32(Nk) * cap"),))
    assert made.scalars[-1].value == parse_expr("1.0 / f32(Nk) * 20.0")
    made = bind(base, with_field("group: i32"), interface, (("group", "Hq // Hkv"),))
    assert made.sizes[-1].size == "Hq // Hkv"
    made = bind(base, with_field("D: i32"), interface, (("scale", "1.0"),))
    assert made.sizes[-1].size == "D" and made.scalars[0].value == parse_expr("1.0")
    for line, pairs, words in (
        ("ghost: tensor", (), "nothing fills the tensor field"),
        ("ghost: f32", (), "nothing fills the field"),
        ("x: f32", (("x", "Nz * 2"),), "made of 'Nz'"),
        ("x: f32", (("y", "Nk"),), "no field"),
        ("x: f32", (("x", "Nk +"),), "bind x"),
        ("x: tensor", (("x", "q"),), "nothing fills"),
        ("x: f32", (("x", "1.0 if Nk < 3290 else 2.0"),), "each side is tested"),
        ("x: f32", (("x", "1.0 + max(0.0, Nk - 3290.0)"),), "each side is tested"),
        ("x: i32", (("x", "Nk // 3290"),), "each side is tested"),
        ("x: i32", (("x", "Nk > 3290"),), "each side is tested"),
        ("x: i32", (("x", "Nk >> 12"),), "each side is tested"),
        ("x: i32", (("x", "scratch[T](B, Nq)"),), "x is i32 in class Args"),
        ("x: tensor", (("x", "scratch(B, Nq)"),), "no tensor to be allocated"),
    ):
        with pytest.raises(AnswerError, match=words):
            bind(base, with_field(line), interface, pairs)
    for own in ("q", "o", "lse"):
        with pytest.raises(AnswerRefused, match="own"):
            bind(base, base, interface, ((own, "v"),))
    more = Input("scratch_map", "extra", "T", ("Nk",))
    of_that_name = replace(interface, inputs=(*interface.inputs, more))
    made = bind(base, with_field("x: tensor"), of_that_name, (("x", "scratch_map"),))
    assert made.tensors[-1].source == "scratch_map" and made.scratch == ()


def test_an_unchanged_kernel_is_filled_as_before(task: Task, base: Module) -> None:
    made = bind(base, base, task.interface, ())
    assert [t.source for t in made.tensors] == ["q", "k", "v", "O", "LSE"]
    assert [s.size for s in made.sizes] == ["B", "Hq", "Hkv", "Nq", "Nk"]


def test_a_scale_of_the_specs_own_is_not_taken_for_the_kernels(task: Task, base: Module) -> None:
    interface = replace(task.interface, scalars=(("scale", 0.25),))
    with pytest.raises(AnswerError, match="a scale of its own"):
        bind(base, base, interface, ())
    assert bind(base, base, interface, (("scale", "scale"),)).scalars[0].value == Num(0.25)
    with pytest.raises(AnswerError, match="a scale of its own"):
        bind(base, base, replace(task.interface, inputs=(*task.interface.inputs, SCALE)), ())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Q = f32(args.Nk)", "flash_fwd: `Q` is what `Q = gmem...` says"),
        ("sK = 1", "`sK` is what `sK = shared_stages...` says"),
        ("args = 1", "`args` is the argument struct"),
        ("inf = 1.0", "`inf` is a word of CuIR"),
        ("f32 = 1.0", "`f32` is a word of CuIR"),
        ("BM = 1", "`BM` is a compile-time constant"),
        ("for T in range(2):\n    l = map(l, lambda x: x)", "`T` is a compile-time constant"),
    ],
)
def test_names_of_the_kernel_are_taken(base: Module, line: str, words: str) -> None:
    with pytest.raises(AnswerError) as error:
        refuse_names(base, insert(base, "s59", line))
    assert words in error.value.message


def test_names_of_ones_own_and_views_made_otherwise_stay(base: Module) -> None:
    for line in ("scale = f32(args.Nk)", "new = 1.0", "gemm = 1", "Sink = 1", "alpha = m"):
        refuse_names(base, insert(base, "s59", line))
    text = print_module(base).replace("O = gmem[T](args.o", "O = gmem[T](args.q")
    refuse_names(base, parse_module(text))


def test_a_field_is_no_word_of_cpp(base: Module) -> None:
    for name in ("new", "INFINITY"):
        text = print_module(base).replace("    scale: f32\n", f"    scale: f32\n    {name}: f32\n")
        with pytest.raises(AnswerError, match=f"called {name}.*bind line"):
            refuse_names(base, parse_module(text))


MADE = """```bind
q_ready = scratch[T](B, Hq, Nq, D)
k_ready = scratch[T](B, Hkv, Nk, D)
```"""


def test_one_kernel_may_fill_a_tensor_for_another(base: Module, task: Task) -> None:
    """The rules' own module, given as an answer, has the rules' own binding."""
    recipe = recipe_of("qk_norm_causal")
    planned = plan(base, recipe)
    *_, (_, target) = apply(base, planned.steps)
    interface = Interface.of(declared(read_source(spec_path("qk_norm_causal"), {})), None, None)
    asked = replace(task, interface=interface)
    whole = f"```cuir\n{print_module(legal(target))}```\n"
    found = judge_edit(asked, lambda _, __: Outcome(Reached.PASSED, ""))(whole + MADE)
    assert found.reached is Reached.PASSED, found.reason
    assert found.value is not None and found.value.binding.scratch == planned.binding.scratch
    names = {t.field for t in planned.binding.tensors}
    assert {t.field for t in found.value.binding.tensors} == names
    for wrong, words in (
        (MADE.replace("Nq, D", "Nx, D"), "no size 'Nx'"),
        (MADE.replace("[T](B, Hq", "[f64](B, Hq"), "no tensor to be allocated"),
        (MADE.replace("(B, Hq, Nq, D)", "(B, Hq, Nq, D, D)"), "no tensor to be allocated"),
        (MADE.partition("k_ready")[0] + "```", "reads the output `k_ready`"),
    ):
        refused = judge_edit(asked, lambda _, __: Outcome(Reached.PASSED, ""))(whole + wrong)
        assert words in refused.reason and refused.reached < Reached.G2
