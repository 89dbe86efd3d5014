"""The numbers of a kernel whose output is wrong: which are the reference's, and the first that are
not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cubridge_tui.cli import main
from engine.foreign.numbers.expected import Attention
from engine.foreign.numbers.first import First, first_wrong
from engine.foreign.numbers.flow import Flow
from engine.foreign.numbers.told import elements, pattern, ranges
from engine.foreign.numbers.watched import Part, Step, watched
from engine.foreign.numbers.where import Place, Places, listed, told_places
from engine.ptx.syntax import Instruction, Kernel, Location, Module, Register
from engine.ptx.text.parser import parse_module
from tests.engine.foreign.test_check import CASE, KERNEL, LAUNCH, line_of, replaced, write
from tests.engine.ptx.kernels import NVCC

FOLDER = Path(__file__).parent / "kernels"
with_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc compiles the kernels of these tests")


def check(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> list[str]:
    assert main(["check", write(folder, text + LAUNCH), *CASE, "--reference", "full"]) == 1
    return capsys.readouterr().out.splitlines()


@with_nvcc
def test_a_sum_over_one_key_too_few_comes_after_what_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = replaced(KERNEL, "j < N; j++) l +=", "j < N - 1; j++) l +=")
    said = check(tmp_path, capsys, text)
    right = next(line for line in said if "the reference's: the scores" in line)
    assert "the rows' maxima" in right and "the weights" in right
    assert "    not found: the rows' sums" in said
    after = next(line for line in said if "what comes next" in line)
    assert str(line_of(text, "l +=")) in after


@with_nvcc
def test_maxima_of_some_rows_are_named_with_their_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = replaced(KERNEL, "s[j] = x * scale", "s[j] = x * (i < 8 ? 2 * scale : scale)")
    said = check(tmp_path, capsys, text)
    wrong = next(line for line in said if "the first that are not" in line)
    assert "the rows' maxima" in wrong and "16 of 80 (i 0 to 7) are missing; at b=0 h=0" in wrong
    assert any("the scores before the scale" in line for line in said)


@with_nvcc
def test_an_output_that_is_right_until_it_is_stored_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = check(tmp_path, capsys, replaced(KERNEL, "o[d] = x / l", "o[d ^ 1] = x / l"))
    assert any("the rows' sums" in line and ", O before it is stored (" in line for line in said)
    after = next(line for line in said if "what comes next" in line)
    assert after.endswith(str(line_of(KERNEL, "o[d] =")))


@with_nvcc
def test_a_causal_mask_is_told_and_not_the_scores_that_it_drops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys behind a row's tile are never looked at; what they would give is not missing."""
    new = "s[j] = j <= i - i % 16 / 8 * 4 ? x * scale : -INFINITY"
    text = replaced(KERNEL, "s[j] = x * scale", new)
    text = replaced(text, "int i = blockIdx.x,", "int i = blockIdx.x, E = min(N, i / 8 * 8 + 8),")
    text = text.replace("j < N; j", "j < E; j")
    assert main(["check", write(tmp_path, text + LAUNCH), *CASE, "--reference", "causal"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert any("the reference's: the scores (" in line for line in said)
    wrong = next(line for line in said if "the first that are not" in line)
    assert "the mask (" in wrong and "i 8 to 15 of each 16" in wrong
    assert "one is dropped that counts" in wrong and not any("not found" in line for line in said)
    way = next(line for line in said if "what is dropped is decided at" in line)
    assert str(line_of(text, "s[j] = j <= i")) in re.findall(r"\d+", way.rpartition(" at ")[2])


@with_nvcc
def test_a_nan_is_told_where_it_is_first_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = replaced(KERNEL, "  for (int j = 0; j < N; j++) l +=",
                    "  if (i < 8) m = INFINITY;\n  for (int j = 0; j < N; j++) l +=")  # fmt: skip
    said = check(tmp_path, capsys, text)
    (line,) = [line for line in said if "NaN" in line]
    assert line.startswith("    NaN in O (i 0 to 7) is first made at ")
    assert line.endswith(f":{line_of(text, 'o[d] = x / l')}")
    assert not any("the reference's" in line for line in said)


@with_nvcc
def test_an_infinity_that_becomes_a_nan_is_told_where_it_is_first_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """exp overflows without a maximum, and inf / inf, or inf - inf, is the NaN."""
    text = replaced(KERNEL, "m = fmaxf(m, s[j])", "m = -100")
    said = check(tmp_path, capsys, text)
    (line,) = [line for line in said if "an infinity" in line]
    assert line.startswith("    an infinity that it comes from is first made at ")
    lines = set(re.findall(r"\d+", line.rpartition(":")[2]))
    assert lines == {str(line_of(text, part)) for part in ("l += __expf", "x += __expf")}


@with_nvcc
def test_where_the_way_is_not_known_what_makes_and_writes_the_output_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the last writer it is the run that differed which knows: one that is followed looks at no
    order."""
    path = write(tmp_path, KERNEL + LAUNCH)
    assert main(["check", path, *CASE, "--reference", "sigmoid"]) == 1
    said = capsys.readouterr().out.splitlines()
    made = next(line for line in said if "made and written at" in line)
    assert str(line_of(KERNEL, "o[d] =")) in made and str(line_of(KERNEL, "x += __expf")) in made
    assert str(line_of(KERNEL, "s[j] = x")) in made  # through shared memory


@with_nvcc
@pytest.mark.parametrize(
    ("old", "new", "words", "lines"),
    [("j < N; j += blockDim.x", "j < N - 1; j += blockDim.x",
      "what it reads elsewhere is written at", ("s[j] = x",)),
     ("j < N; j += blockDim.x", "j < N - 1; j += blockDim.x",
      "whether that is written is decided by", ("j < N - 1;",)),
     ("d = t; d < D;", "d = t; d < D - 1;",
      "whether it is written is decided by", ("d < D - 1;",)),
     ("  float m =", '  if (t >= 32)\n    asm volatile("bar.sync 1, 64;");\n  float m =',
      "whether threads come there is decided by", ("if (t >= 32)",))],
)  # fmt: skip
def test_conditions_that_lead_to_what_is_wrong_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str,
    lines: tuple[str, ...],
) -> None:  # fmt: skip
    text = replaced(KERNEL, old, new)
    way = next(line for line in check(tmp_path, capsys, text) if words in line)
    for part in lines:
        assert str(line_of(text, part)) in re.findall(r"\d+", way.split(words)[1])


@with_nvcc
def test_rows_that_no_block_takes_lead_to_the_blocks_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = replaced(LAUNCH, "dim3(N,", "dim3(N - 8,")
    assert main(["check", write(tmp_path, KERNEL + launch), *CASE, "--reference", "full"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "(i 32 to 39; nothing wrote them)" in said[0]
    there = next(line for line in said if "what a block takes" in line)
    assert str(line_of(KERNEL, "blockIdx")) in there


@with_nvcc
@pytest.mark.parametrize(
    ("name", "more"),
    [("int8", ["--sizes", "B=1 Hq=2 N=32 D=32"]),
     ("templates", ["--nvcc=-std=c++20", "--reference", "full", "--sizes", "B=1 Hq=1 N=20 D=32"]),
     ("split", ["--reference", "full", "--sizes", "B=1 Hq=2 N=20 D=32"])],
)  # fmt: skip
def test_kernels_of_more_styles_are_executed(name: str, more: list[str]) -> None:
    assert main(["check", str(FOLDER / f"{name}.cu"), "--arch", "sm_80", *more]) == 0


def attention() -> Attention:
    draw = np.random.default_rng(1)
    products = draw.standard_normal((1, 2, 16, 24)) * 8
    weights = np.exp(products - products.max(-1, keepdims=True))
    o = weights @ draw.standard_normal((1, 2, 24, 8)) / weights.sum(-1, keepdims=True)
    return Attention(products, products, np.ones(products.shape, np.bool_), o)


def found(*values: np.ndarray, wrong: Mapping[str, np.ndarray] | None = None) -> First:
    """What instructions that made these numbers, one after the other, are told to be."""
    steps = []
    for n, value in enumerate(values):
        at = Instruction("add", ("f32",), (), None, n, None)
        flat = value.astype(np.float32).astype(np.float64).reshape(-1)
        steps.append(Step((Part("k", at, f"%f{n}", flat, np.arange(flat.size), flat),)))
    return first_wrong(attention(), steps, wrong)


def test_numbers_are_told_by_their_values_alone() -> None:
    spec = attention()
    rows = np.exp(spec.scores - spec.scores.max(-1, keepdims=True)).sum(-1)
    said = found(spec.scores, rows)
    assert [m.kind.name for m in said.right] == ["the scores", "the rows' sums"]
    rows[0, 1, 3] *= 1.1
    wrong = found(spec.scores, rows).wrong
    assert wrong is not None and np.argwhere(wrong.lacks).tolist() == [[0, 1, 3]]
    assert wrong.others == pytest.approx([rows[0, 1, 3]])


def test_what_rows_lack_that_come_out_right_is_not_told() -> None:
    spec = attention()
    rows = np.exp(spec.scores - spec.scores.max(-1, keepdims=True)).sum(-1)
    rows[0, 1, 3] *= 1.1
    for wrong, told in ((3, True), (5, False)):
        elements = np.zeros(spec.o.shape, np.bool_)
        elements[0, 1, wrong, 2] = True
        said = found(spec.scores, rows, wrong={"o": elements})
        assert (said.wrong is not None) == told
        assert ("the rows' sums" in [m.kind.name for m in said.right]) != told


def masked(other: np.ndarray, wrong: np.ndarray | None = None) -> First:
    """What a kernel is told to have that drops the scores of these pairs, and the spec none."""
    spec = attention()
    scores = spec.scores.astype(np.float32).astype(np.float64).reshape(-1)
    kept = np.where(other.reshape(-1), -np.inf, scores)
    threads = np.arange(scores.size)
    score = Instruction("mul", ("f32",), (Register("%f1"),), None, 1, None)
    operands = tuple(map(Register, ("%f2", "%f1", "%f0", "%p1")))
    select = Instruction("selp", ("f32",), operands, None, 2, None)
    steps = [
        Step((Part("k", at, register, values, threads, values),))
        for at, register, values in ((score, "%f1", scores), (select, "%f2", kept))
    ]
    rows = None if wrong is None else {"o": np.broadcast_to(wrong[..., None], spec.o.shape)}
    return first_wrong(spec, steps, rows)


def test_a_mask_that_is_wrong_in_every_row_is_told() -> None:
    other = np.zeros(attention().scores.shape, np.bool_)
    other[..., ::2] = True
    said = masked(other).wrong
    assert said is not None and said.kind.name == "the mask"
    assert np.array_equal(said.lacks, other)


def test_a_select_that_drops_as_much_in_rows_that_come_out_right_is_no_mask() -> None:
    """One that picks which warp does what, say: of the wrong rows or of the right ones."""
    other = np.zeros(attention().scores.shape, np.bool_)
    other[..., :8, ::2] = True
    wrong = np.zeros(other.shape[:3], np.bool_)
    for right in (False, True):
        wrong[..., :8] = not right
        wrong[..., 8:] = right
        said = masked(other, wrong).wrong
        assert (said is not None and said.kind.name == "the mask") != right
    other[..., 8:14, ::2] = True
    assert masked(other, ~wrong).wrong is None


def test_places_are_told_by_lines_with_those_inlined_there() -> None:
    assert listed(["a.cu:3", "a.cu:4", "a.cu:5", "b.h:9"]) == "a.cu:3 to 5, b.h:9"
    assert listed(["a.cu:7", "a.cu:8"], "a.cu:1") == "7, 8"
    assert str(Place("a.cu:1", ("a.cu:7", "b.h:2"))) == "a.cu:1 (there 7, b.h:2)"


def test_a_place_is_the_call_in_the_authors_function_and_not_the_call_of_all_of_it() -> None:
    """Line 91 calls what is most of the kernel; there line 21 calls what line 30 is of."""
    whole = Location("/a.cu", 91)
    inner = Location("/a.cu", 30, Location("/a.cu", 21, whole))
    lines = [Location("/a.cu", 90), Location("/a.cu", 20, whole), Location("/b.h", 7, inner), inner]
    code = [Instruction("add", ("u32",), (), None, n, at) for n, at in enumerate(lines)]
    kernel = Kernel("k", (), {}, (), (*code, code[1], code[1]), {})
    where = Places(Module("", {"k": kernel}, ()), Path("/a.cu"))
    assert list(map(str, map(where, code))) == [
        "/a.cu:90", "/a.cu:20", "/a.cu:21 (there 30)", "/a.cu:21 (there 30)",
    ]  # fmt: skip
    assert told_places(code, where) == "/a.cu:20, 21 (there 30), 90"


def test_what_is_hit_by_chance_is_nothing() -> None:
    draw = np.random.default_rng(2)
    said = found(draw.standard_normal(4000) * 8, draw.random(4000))
    assert said.right == () and said.wrong is None


def test_which_elements_are_wrong_is_said_by_ranges() -> None:
    def some(*numbers: int, of: int = 64) -> str:
        return ranges(np.isin(np.arange(of), numbers))

    assert some(3) == "3" and some(*range(8, 64)) == "8 to 63"
    assert some(*(n for n in range(64) if n % 16 >= 8)) == "8 to 15 of each 16"
    assert some(*range(0, 64, 2)) == "0 of each 2" and some(0, 5, 63) == "3 of 64 from 0 to 63"
    above = np.eye(8, k=1, dtype=np.bool_)[None, None]
    assert pattern(above, "bhij").endswith("j = i + 1")
    assert (
        elements(np.ones((1, 4), np.bool_), np.ones((1, 4), np.bool_), "hi") == "nothing wrote them"
    )


PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .f32 %f<4>; .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [p];
  mov.f32 %f1, 0f00000000;
again:
  add.f32 %f1, %f1, 0f3F800000;
  setp.lt.f32 %p1, %f1, 0f40000000;
  @%p1 bra again;
  mov.f32 %f2, %f1;
  mov.f32 %f1, 0f00000000;
  mul.f32 %f3, %f1, %f2;
  st.global.f32 [%d1], %f3;
  ret;
}
"""


def test_what_decides_whether_an_instruction_is_met() -> None:
    """A loop's end decides about what is in it, also inside of another loop; what both ways of a
    branch meet it does not decide about."""
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
  .reg .pred %p<5>;
  .reg .b32 %r<5>;
outer:
  @%p1 bra inner;
  mov.u32 %r1, 1;
inner:
  add.u32 %r2, %r2, 1;
  @%p2 bra inner;
  @%p3 bra outer;
  @%p4 ret;
  mov.u32 %r4, 4;
  ret;
}
"""
    (kernel,) = parse_module(text, "k").kernels.values()
    flow = Flow(kernel)
    names = {at.guard.name: n for n, at in enumerate(kernel.code) if at.guard is not None}
    at = {str(at.operands[0].name): n for n, at in enumerate(kernel.code)
          if at.name in ("mov", "add") and isinstance(at.operands[0], Register)}  # fmt: skip
    assert flow.deciding(at["%r2"]) == {names["%p2"], names["%p3"]}
    assert flow.deciding(at["%r1"]) == {names["%p1"], names["%p3"]}
    assert flow.deciding(at["%r4"]) == {names["%p4"]}


def test_a_register_that_is_used_again_is_another_value() -> None:
    module = parse_module(PTX, "k")
    (kernel,) = module.kernels.values()
    flow = Flow(kernel)
    at = {name: [n for n, x in enumerate(kernel.code) if x.name == name]
          for name in ("mov", "add", "mul", "st")}  # fmt: skip
    (add,), (mul,), (store,) = at["add"], at["mul"], at["st"]
    zero, copy, again = at["mov"]
    assert flow.made[add] == {zero, add} and flow.made[mul] == {again, copy}
    assert flow.reached([store], flow.made) >= {mul, copy, add, again}
    seen, sites = watched(module)
    (kernel,) = seen.kernels.values()
    assert [at.name for _, at, _ in sites.values()] == ["add", "mul"]
    assert kernel.code[kernel.labels["again"]].name == "add"
