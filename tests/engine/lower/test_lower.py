"""What lowering writes, case by case, in the expert's file."""

from __future__ import annotations

import re

import pytest

from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import LowerError
from engine.lower.lower import changed_lines, lower
from tests.engine.lower.fixtures import checked, edit, lifted, lowered, source

CAUSAL = "j < args.Nk and j <= i + (args.Nk - args.Nq)"


def lines_changed(name: str, text: str) -> tuple[list[str], list[str]]:
    """Lines that the source has and the text has not, and the other way round, stripped."""
    before, after = source(name).decode().split("\n"), text.split("\n")
    gone = [line.strip() for line in before if line not in after]
    come = [line.strip() for line in after if line not in before]
    return gone, come


# --- changes inside of a statement -----------------------------------------------------------


def test_a_keep_predicate_changes_inside_its_lambda() -> None:
    text = lowered("odd", ("j < args.Nk", CAUSAL))
    assert "s = keep(s, at(q0, n*BN),\n             [&](int i, int j) { return " in text
    assert "(j < a.Nk) && j <= i + (a.Nk - a.Nq); });" in text or (
        "j < a.Nk && j <= i + (a.Nk - a.Nq); });" in text
    )


def test_only_the_changed_operand_is_replaced() -> None:
    gone, come = lines_changed("odd", lowered("odd", ("BM * D * sizeof(T)", "BM * 2 * sizeof(T)")))
    assert gone == ["const auto sK = shared<T, BN, D>(BM*D*sizeof(T));"]
    assert come == ["const auto sK = shared<T, BN, D>(BM*2*sizeof(T));"]


def test_a_change_below_a_weaker_operator_gets_parentheses() -> None:
    text = lowered("odd", ("block_id(0) * BM", "(block_id(0) + 1) * BM"))
    assert "(blockIdx.x + 1)*BM" in text


@pytest.mark.parametrize(
    ("cuir", "cxx"),
    [
        ("max(0, block_id(0) - 1)", "max(0, static_cast<int>(blockIdx.x) - 1)"),
        ("block_id(0) % args.Nq", "static_cast<int>(blockIdx.x) % a.Nq"),
        ("(block_id(0) - 9) // 2", "(static_cast<int>(blockIdx.x) - 9) / 2"),
        ("(1 if block_id(0) < args.Nq else 0)", "(static_cast<int>(blockIdx.x) < a.Nq ? 1 : 0)"),
        ("abs(block_id(0) - BM)", "abs(static_cast<int>(blockIdx.x) - BM)"),
        ("i32(f32(block_id(0) - BM))", "(static_cast<float>(static_cast<int>(blockIdx.x) - BM))"),
        ("(BM - sizeof(T)) // 3", "(BM - static_cast<int>(sizeof(T))) / 3"),
        ("(block_id(0) + grid_dim(0) * 2)", "(blockIdx.x + gridDim.x * 2)"),
        ("block_id(0) // 4", "blockIdx.x / 4"),
    ],
)
def test_counts_get_a_sign_where_cpp_would_compute_without(cuir: str, cxx: str) -> None:
    assert cxx in lowered("odd", ("block_id(0) * BM", f"{cuir} * BM"))


def test_words_do_not_run_together() -> None:
    plain = b"return (n + 1) * BN <= args.Nk;"
    data = source("flash_fwd_sm80")
    assert data.count(plain) == 1
    given = lifted("flash_fwd_sm80", data.replace(plain, b"return((n + 1) * BN <= args.Nk);"))
    (before,) = re.findall(r"return \(n \+ 1\) \* \S+ <= args.Nk", print_module(given.module))
    done = checked(given, edit(given.module, (before, "return n < 3 and args.Nk > 1")))
    assert b"return n < 3 && args.Nk > 1;" in done.source


def test_a_compound_assignment_stays_one() -> None:
    assert "seen += n + 2;" in lowered("odd", ("seen + (n_1 + 1)", "seen + (n_1 + 2)"))
    assert "seen = seen * 2;" in lowered("odd", ("seen + (n_1 + 1)", "seen * 2"))
    assert "seen = seen + 2;" in lowered(
        "odd", ("        seen = seen + 1", "        seen = seen + 2")
    )


def test_loop_headers() -> None:
    header = "range(count[BN](args, q0) - 1, -1, -1)"
    down = lowered("odd", (header, "range(count[BN](args, q0), 0, -1)"))
    assert "for (int step = count<BN>(a, q0); step >= 1; --step) {" in down
    up = lowered("odd", (header, "range(0, count[BN](args, q0), 2)"))
    assert "for (int step = 0; step < count<BN>(a, q0); step += 2) {" in up


def test_a_loop_that_its_body_leads_on() -> None:
    """To it, to another variable's value, and back to a step: the header alone."""
    header = "range(count[BN](args, q0) - 1, -1, -1)"
    led = lowered("odd", (header, "range(0, count[BN](args, q0), then(seen))"))
    assert "for (int step = 0; step < count<BN>(a, q0); step = seen) {" in led
    given = lifted("odd", led.encode())
    assert "range(0, count[BN](args, q0), then(seen))" in print_module(given.module)
    other = edit(given.module, ("    seen = 0\n", "    seen = 0\n    after = 0\n"),
                 ("then(seen)", "then(after)"), ("        n = step\n",
                  "        n = step\n        after = step + 2\n"))  # fmt: skip
    text = checked(given, other).source.decode()
    assert "int after = 0;" in text and "step = after) {" in text and "after = step + 2;" in text
    back = checked(given, edit(given.module, ("then(seen)", "2"))).source.decode()
    assert "step < count<BN>(a, q0); step += 2) {" in back


def test_a_condition_changes_alone() -> None:
    assert "if (n > 4) sync();" in lowered("odd", ("if n > 3:", "if n > 4:"))
    assert "else if (n == 7) { commit_async(); }" in lowered("odd", ("if n == 2:", "if n == 7:"))


def test_template_arguments_are_safe_from_greater_signs() -> None:
    text = lowered("odd", ("wait_async(1)", "wait_async(1 if BM > 64 else 0)"))
    assert "wait_async<(BM > 64 ? 1 : 0)>();" in text


# --- statements come and go ------------------------------------------------------------------


def test_a_new_statement_stands_beside_its_neighbour() -> None:
    text = lowered(
        "odd", ("        s = keep(", "        s = map(s, lambda x: tanh(x))\n        s = keep(")
    )
    assert (
        "    gemm(s, sQ, transpose(sK));\n    s = map(s, [&](float x) { return tanh(x); });\n"
        in text
    )


def test_a_statement_before_all_others_follows_the_brace() -> None:
    text = lowered("odd", ("    Q = gmem", "    first = args.Nk\n    Q = gmem"))
    assert (
        "odd(const __grid_constant__ Args a) {\n  const int first = a.Nk;\n  const auto Q" in text
    )


def test_a_statement_between_two_on_one_line() -> None:
    text = lowered(
        "odd",
        (
            "        wait_async(0)\n        sync()",
            "        wait_async(0)\n        commit_async()\n        sync()",
        ),
    )
    assert "wait_async<0>();\n    commit_async(); sync();" in text


def test_a_statement_into_an_empty_block_keeps_the_comment() -> None:
    text = lowered("odd", ("    if seen > 0:\n        pass", "    if seen > 0:\n        sync()"))
    assert "if (seen > 0) {\n" in text and "// nothing kept" in text


def test_a_comment_above_is_not_taken_along() -> None:
    text = lowered("odd", ("    seen = 0\n", "    other = 1\n    seen = 0\n"))
    assert "  const int other = 1;\n\n  // The loop.\n  int seen = 0;" in text


def test_after_an_if_constexpr_and_not_in_it() -> None:
    text = lowered(
        "odd", ("    commit_async()\n    for step", "    commit_async()\n    sync()\n    for step")
    )
    assert "of them */\n  }\n  sync();\n  for (int step" in text


def test_inside_an_if_constexpr() -> None:
    text = lowered(
        "odd", ("    copy_async(sQ, Q[q0:])\n", "    copy_async(sQ, Q[q0:])\n    sync()\n")
    )
    assert "Q.tile(q0));  // split\n    sync();\n    commit_async();" in text


def test_a_deleted_statement_takes_its_lines_and_the_comment_beside() -> None:
    text = lowered("odd", ("    copy_async(sQ, Q[q0:])\n", ""))
    assert "// split" not in text and "Q.tile(q0)" in text
    assert "} else {\n    commit_async();  /* both" in text


def test_a_deleted_statement_among_others_on_its_line() -> None:
    text = lowered("odd", ("        wait_async(0)\n        sync()", "        wait_async(0)"))
    assert "    wait_async<0>();\n    auto s" in text


def test_braces_come_where_two_statements_stand() -> None:
    text = lowered(
        "odd",
        (
            "        if n > 3:\n            sync()\n",
            "        if n > 3:\n            sync()\n            commit_async()\n",
        ),
    )
    assert "if (n > 3) {\n      sync();\n      commit_async();\n    }\n    else if" in text


def test_a_wrapped_statement_keeps_its_bytes() -> None:
    keep = "s = keep(s, lambda i, j: j < args.Nk, at=[q0, n * BN])"
    text = lowered("odd", (f"        {keep}", f"        if n > 0:\n            {keep}"))
    assert (
        "    if (n > 0) {\n      s = keep(s, at(q0, n*BN),\n"
        "               [&](int i, int j) { return (j < a.Nk); });\n    }\n"
    ) in text


def test_an_else_comes_and_goes() -> None:
    mask = "            s = keep(s, lambda i, j: j < args.Nk, at=[q0, n * BN])\n"
    text = lowered("flash_fwd_sm80", (mask, f"{mask}        else:\n            sync()\n"))
    assert "    } else {\n      sync();\n    }\n" in text
    text = lowered("odd", ("            else:\n                wait_async(1)\n", ""))
    assert "else if (n == 2) { commit_async(); }\n    copy_async(sK" in text


def test_a_long_statement_is_broken_as_the_kernels_break_theirs() -> None:
    long = " and ".join(f"j <= i + args.Nk - {k}" for k in range(6))
    new = f"        s = keep(s, lambda i, j: {long}, at=[q0, n * BN])\n"
    text = lowered(
        "odd", ("        s = map(s, lambda x: weight", f"{new}        s = map(s, lambda x: weight")
    )
    assert "    s = keep(s, at(q0, n * BN), [&](int i, int j) {\n      return j <= " in text
    assert max(map(len, text.split("\n"))) <= 100


# --- declarations ----------------------------------------------------------------------------


def test_types_of_new_variables() -> None:
    new = (
        "    n0 = args.Nk + 1\n    f0 = args.scale * 2.0\n    b0 = n0 < 3\n"
        "    t0 = zeros(mma_acc[BM, D, 4])\n    n1 = 0\n    n1 = n1 + n0\n"
        "    v0 = shared[T, BM, D](0)\n    C0 = 2 * D\n    w0 = shared[T, C0, D](0)\n"
    )
    text = lowered("odd", ("    seen = 0\n", f"{new}    seen = 0\n"))
    for line in (
        "const int n0 = a.Nk + 1;",
        "const float f0 = a.scale * 2.0f;",
        "const bool b0 = n0 < 3;",
        "const auto t0 = zeros<MmaAcc<BM, D, 4>>();",
        "int n1 = 0;",
        "n1 = n1 + n0;",
        "const auto v0 = shared<T, BM, D>(0);",
        "constexpr int C0 = 2 * D;",
        "const auto w0 = shared<T, C0, D>(0);",
    ):
        assert f"  {line}\n" in text


def test_an_expert_constant_that_is_assigned_again_loses_const() -> None:
    text = lowered(
        "odd", ("    q0 = block_id(0) * BM\n", "    q0 = block_id(0) * BM\n    q0 = q0 + 1\n")
    )
    assert "  int q0 = blockIdx.x*BM;\n  q0 = q0 + 1;\n" in text


def test_the_first_assignment_that_is_left_becomes_the_declaration() -> None:
    text = lowered(
        "odd",
        ("    seen = 0\n    copy", "    copy"),
        ("    for step", "    seen = 5\n    for step"),
    )
    assert "int seen = 5;" in text and text.count("int seen") == 1


def test_a_variable_that_becomes_a_float_changes_its_type() -> None:
    text = lowered(
        "odd",
        ("        n = step\n        if n > 3", "        n = step * 0.5\n        if n > 3"),
        ("K[n * BN:]", "K[step * BN:]"),
        ("at=[q0, n * BN]", "at=[q0, step * BN]"),
    )
    assert "const float n = step * 0.5f;" in text


def test_a_name_that_is_read_outside_of_its_block_is_an_error() -> None:
    kernel = lifted("odd")
    target = edit(
        kernel.module,
        (
            "    sync()\n    store",
            "    if seen > 1:\n        late = 1\n    q9 = late\n    sync()\n    store",
        ),
    )
    with pytest.raises(LowerError, match="outside of the block"):
        lower(kernel, target)


def test_names_that_cpp_has_already() -> None:
    text = lowered(
        "odd", ("    seen = 0\n", "    register = 1\n    keep = register\n    seen = 0\n")
    )
    assert "const int register_ = 1;" in text and "const int keep_ = register_;" in text


# --- signatures ------------------------------------------------------------------------------


def test_fields_of_the_argument_struct() -> None:
    text = lowered(
        "odd",
        ("    scale: f32\n", "    scale: f32\n    cap: f32\n    low: f32\n    slopes: tensor\n"),
    )
    assert "  float scale;\n  float cap, low;\n  TensorArg slopes;\n};" in text


def test_a_field_in_the_middle_of_a_line() -> None:
    text = lowered("odd", ("    k: tensor\n", "    k: tensor\n    bias: tensor\n"))
    assert "  TensorArg q, k, bias, o;  //" in text
    text = lowered("odd", ("    k: tensor\n", "    k: tensor\n    window: i32\n"))
    assert "  TensorArg q, k;\n  int window;\n  TensorArg o;  //" in text


def test_a_field_goes() -> None:
    kernel = lifted("flash_fwd_sm80")
    log_sum = "map(m, l, lambda top, sum: -inf if sum == 0.0 else top * args.scale + log(sum))"
    target = edit(
        kernel.module,
        ("    lse: tensor\n", ""),
        ("    LSE = gmem[f32](args.lse, args.B, args.Hq, args.Nq)\n", ""),
        ("    store_rows(LSE[b, h, q0:], lse)\n", ""),
        (f"    lse = {log_sum}\n", ""),
    )
    text = checked(kernel, target).source.decode()
    assert "TensorArg q, k, v, o;" in text and "LSE" not in text.split("template")[-2]


def test_a_new_device_function_and_its_call() -> None:
    body = "    if args.Nk < args.Nq:\n        return 0\n    return q0 + BM\n\n\n"
    helper = f"@device\ndef last_key(args, q0: i32, *, BM):\n{body}"
    text = lowered(
        "odd",
        ("@kernel", f"{helper}@kernel"),
        ("    seen = 0\n", "    most = last_key[BM](args, q0)\n    seen = 0\n"),
    )
    assert (
        "\ntemplate <int BM>\n__device__ int last_key(const Args& args, int q0) {\n"
        "  if (args.Nk < args.Nq) {\n    return 0;\n  }\n  return q0 + BM;\n}\n"
    ) in text
    assert "const int most = last_key<BM>(a, q0);" in text


def test_a_changed_signature_keeps_what_it_can() -> None:
    text = lowered(
        "odd",
        ("def count(args, q0: i32, *, BN)", "def count(args, q0: i32, first: i32, *, BN, STEP)"),
        ("count[BN](args, q0)", "count[BN, 2](args, q0, 1)"),
    )
    assert "/* counts tiles */ template <int BN, int STEP>\n" in text
    assert "__device__ int count(const Args& a, int q0, int first) {" in text
    assert "count<BN, 2>(a, q0, 1)" in text


def test_a_function_and_its_calls_get_another_name() -> None:
    text = lowered("odd", ("def count(", "def tiles_of("), ("count[BN]", "tiles_of[BN]"))
    assert "tiles_of(const" in text and "tiles_of<BN>(a, q0)" in text
    assert "count<" not in text


def test_launch_bounds() -> None:
    text = lowered("odd", ("@kernel(threads=128)", "@kernel(threads=256, min_blocks=2)"))
    assert "__launch_bounds__(256, 2)" in text


def test_the_launch_is_lowered_too() -> None:
    text = lowered("odd", ("grid=[ceil_div(args.Nq, 64)]", "grid=[ceil_div(args.Nq, 64), args.Nk]"))
    assert "dim3(ceil_div(args.Nq, 64), args.Nk)" in text
    assert ", s, args);" in text  # the stream keeps its name


def test_a_result_type_follows_what_is_returned() -> None:
    text = lowered(
        "odd", ("    return x * 2.0", "    return x < 2.0"), ("weight(x) * args.scale", "x")
    )
    assert "__device__ bool weight(float x) { return x < 2.0f; }" in text


# --- the whole -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_a_softcap_changes_few_lines(name: str) -> None:
    kernel = lifted(name)
    text = "        if not tile_full"
    module = kernel.module
    lines = []
    for line in print_module(module).split("\n"):
        if line.strip().startswith("if not tile_full"):
            pad = line[: len(line) - len(line.lstrip())]
            lines.append(f"{pad}s = map(s, lambda x: tanh(x * args.scale / 50.0) * 50.0)")
        lines.append(line.replace("j < args.Nk, at", f"{CAUSAL}, at"))
    assert text
    changed = "\n".join(lines).replace("scale_log2 = args.scale * LOG2E", "scale_log2 = LOG2E")
    done = checked(kernel, parse_module(changed))
    assert 0 < done.share <= 0.15
    assert done.changed_lines == changed_lines(kernel.source, done.source)


def test_another_specialisation_is_refused() -> None:
    kernel = lifted("odd")
    target = Module((), kernel.module.fields, kernel.module.functions)
    with pytest.raises(LowerError, match="specialisation"):
        lower(kernel, target)


def test_an_op_without_a_template_is_named() -> None:
    kernel = lifted("odd")
    target = edit(kernel.module, ("    sync()\n    store", "    teleport(sQ)\n    store"))
    with pytest.raises(LowerError, match=r"teleport.*\n.*engine/cuir/ops"):
        lower(kernel, target)


def test_a_field_named_by_a_word_of_cpp_is_refused() -> None:
    kernel = lifted("odd")
    target = edit(kernel.module, ("    scale: f32\n", "    scale: f32\n    default: i32\n"))
    with pytest.raises(LowerError, match="rename the input"):
        lower(kernel, target)


def test_lines_are_counted_once() -> None:
    assert changed_lines(b"a\nb\nc\n", b"a\nB\nc\n") == 1
    assert changed_lines(b"a\nb\n", b"a\nx\ny\nb\n") == 2
    assert changed_lines(b"a\nb\nc\n", b"a\n") == 2
    assert changed_lines(b"a\n", b"a\n") == 0


# --- what has no meaning in CuIR -------------------------------------------------------------

OPAQUE = b"#define TWICE(x) ((x) + (x))\n\n" + source("odd").replace(
    b"  sync();\n  store(sQ, o);",
    b'  asm volatile("bar.red.popc.u32 %0, 0;"  // odd\n  );\n  sync();\n  store(sQ, o);',
)


def test_opaque_text_stays_and_can_be_changed() -> None:
    kernel = lifted("odd", OPAQUE)
    assert len(kernel.opaque) == 2
    done = checked(kernel, edit(kernel.module, ("seen + (n_1 + 1)", "seen + (n_1 + 2)")))
    assert done.source == OPAQUE.replace(b"seen += n + 1", b"seen += n + 2")
    change = ("bar.red.popc.u32 %0, 0;", "bar.red.popc.u32 %0, 1;")
    changed = checked(kernel, edit(kernel.module, change))
    assert changed.source == OPAQUE.replace(b"popc.u32 %0, 0;", b"popc.u32 %0, 1;")
    macro = checked(kernel, edit(kernel.module, ("+(x))", "* 2)")))
    assert macro.source == OPAQUE.replace(b"+ (x))", b"* 2)")
    opaque = [line for line in print_module(kernel.module).split("\n") if "popc" in line]
    gone = checked(kernel, edit(kernel.module, (f"{opaque[0]}\n", "")))
    assert b"popc" not in gone.source and b"// odd" not in gone.source
