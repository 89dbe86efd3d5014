"""Kernels compiled with observations, executed, and what was found in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.foreign.overlay import overlaid
from engine.foreign.probe.find import find
from engine.foreign.probe.found import found_rows, found_text
from engine.foreign.probe.places import Found
from engine.resources import spec_path

FOLDER = Path(__file__).parent / "kernels"
MMA = Path(__file__).parents[1] / "ptx" / "kernels" / "mma.cu"


def _nvcc() -> bool:
    try:
        find_toolchain()
    except CuBridgeError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _nvcc(), reason="nvcc compiles the kernels of these tests")

ROWS = """\
#include "dot.cuh"
// A warp for each row: lanes go through the keys, then meet.
__global__ void attention(const float* q, const float* k, const float* v, float* o, int N, int D,
                          int heads, float scale) {
  extern __shared__ float s[];
  int i = blockIdx.x, h = blockIdx.y % heads, b = blockIdx.y / heads;
  long at = long(b * heads + h) * N * D;
  for (int j = threadIdx.x; j < N; j += 32) {
    float x = dot(q + at + i * D, k + at + j * D, D);
    x *= scale;
    s[j] = x;
  }
  __syncwarp();
  float m = -INFINITY, l = 0;
  for (int j = 0; j < N; j++) m = fmaxf(m, s[j]);
  for (int j = 0; j < N; j++) l += __expf(s[j] - m);
  for (int d = threadIdx.x; d < D; d += 32) {
    float y = 0;
    for (int j = 0; j < N; j++) y += __expf(s[j] - m) * v[at + j * D + d];
    o[at + i * D + d] = y / l;
  }
}
void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N, int D,
            float scale) {
  attention<<<dim3(N, B * Hq), 32, N * sizeof(float)>>>(q, k, v, o, N, D, Hq, scale);
}
"""
DOT = """\
#pragma once
__device__ inline float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int d = 0; d < n; d++) sum += a[d] * b[d];
  return sum;
}
"""
RENAMED = {"x": "acc", "i": "row", "j": "key", "h": "hh", "b": "bb", "s": "buffer", "heads": "nh",
           "scale": "factor", "attention": "fwd", "N": "len", "D": "width", "dot": "inner",
           "sum": "total", "at": "off"}  # fmt: skip


def asked(folder: Path, text: str = ROWS, dot: str = DOT) -> Asked:
    (folder / "theirs.cu").write_text(text, encoding="utf-8")
    (folder / "dot.cuh").write_text(dot, encoding="utf-8")
    return Asked(folder / "theirs.cu", Flags("sm_80"), sizes=({"Hq": 2, "N": 48, "D": 8},))


def renamed(text: str) -> str:
    """Other names, and another layout: braces and statements on lines of their own."""
    kernel, launcher = text.split("void launch") if "void launch" in text else (text, "")
    words = "|".join(RENAMED)
    kernel = re.sub(rf'(?<![".])\b({words})\b(?!\.cuh)', lambda m: RENAMED[m[1]], kernel)
    kernel = re.sub(r"([{;])(?![^(]*\))", r"\1\n\n", kernel.replace("  ", "\t"))
    return kernel + (f"void launch{launcher}".replace("attention<<<", "fwd<<<") if launcher else "")


def told(found: Found) -> list[tuple[object, ...]]:
    """What does not hang on lines."""
    return [
        (hook.factor, hook.evidence, p.variable, p.element, dict(p.coordinates), dict(p.sizes),
         p.to_score)
        for hook in found.hooks for p in hook.places
    ]  # fmt: skip


def test_a_plain_kernel_and_its_renamed_twin(tmp_path: Path) -> None:
    found = find(asked(tmp_path))
    (place,) = found.hooks[0].places
    assert (place.file.name, place.line, place.variable) == ("theirs.cu", 10, "x")
    assert dict(place.coordinates) == {"b": "b", "h": "h", "i": "i", "j": "j"}
    assert dict(place.sizes) == {"Hq": "heads", "Hkv": "heads", "Nq": "N"}
    assert set(place.signed) == {*place.coordinates, *place.sizes}  # all of them ints
    assert place.to_score == "1.0f"
    assert ROWS.encode()[: place.after].endswith(b"x *= scale;")
    (loop,) = found.loops
    assert (loop.line, loop.counter, loop.key, loop.keys, loop.compare) == (8, "j", "j", 1, "<")
    assert ROWS.encode()[slice(*loop.end)] == b"N"
    other = tmp_path / "twin"
    other.mkdir()
    twin = find(asked(other, renamed(ROWS), renamed(DOT)))
    back = {v: k for k, v in RENAMED.items()}

    def plain(text: object) -> object:
        if isinstance(text, str):
            return re.sub(r"\b\w+\b", lambda m: back.get(m[0], m[0]), text)
        return {k: plain(v) for k, v in text.items()} if isinstance(text, dict) else text

    assert [tuple(map(plain, row)) for row in told(twin)] == told(found)


def test_tensors_whose_second_length_and_head_count_nobody_reads(tmp_path: Path) -> None:
    """K has a length and heads of its own; the launcher reads q's alone. With others it takes rows
    of other heads: scores still, of other keys than the place's coordinates say."""
    launcher = """\
#include <torch/extension.h>
torch::Tensor launch(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
  auto o = torch::empty_like(q);
  int b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
  attention<<<dim3(n, b * h), 32, n * sizeof(float)>>>(
      q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), n, d, h,
      1 / sqrtf(d));
  return o;
}
"""
    kernel = asked(tmp_path, ROWS.split("void launch")[0] + launcher)
    found = find(replace(kernel, reference=spec_path("full"), dtype="f32"))
    (place,) = found.hooks[0].places
    assert dict(place.coordinates) == {"b": "b", "h": "h", "i": "i", "j": "j"}
    again = found.hooks[0].again
    assert (again["Hkv"], again["Nk"]) == (again["Hq"], again["Nq"])


def test_registers_of_a_matmul() -> None:
    sizes = {"Hq": 2, "Hkv": 1, "Nq": 64, "Nk": 96, "D": 64}
    found = find(Asked(MMA, Flags("sm_80"), sizes=(sizes,)))
    assert {p.variable: dict(p.coordinates) for h in found.hooks for p in h.places} == {
        "s[n][2 * r + j]": {
            "b": "batch", "h": "head", "i": "first + warp * 16 + lane / 4 + 8 * r", "j": "key",
        },
        "s": {
            "b": "batch", "h": "head",
            "i": "first + warp * 16 + lane / 4 + @ / 2 % 2 * 8",
            "j": "tile * kKeys + lane % 4 * 2 + @ % 2 + @ / 4 * 8",
        },
    }  # fmt: skip
    raw = found.hooks[1].places[0]
    assert (raw.elements, raw.element) == (16, "s[@ / 4][@ % 4]")
    assert raw.to_score == "scale * 0.693147181f"
    assert [(x.counter, x.keys, x.key) for x in found.loops] == [("tile", 32, "tile * kKeys")]
    held = {(m.what, m.variable) for m in found.meanings}
    assert {("m", "most"), ("alpha", "shrink"), ("l", "sum"), ("S", "s"), ("P", "s")} <= held
    assert [(r.what, r.line, r.variable) for r in found.rows] == [
        ("l", 130, "sum[r]"), ("m", 103, "high"),
    ]  # fmt: skip
    assert not {v for what, v in held if what == "LSE"}
    # A maximum that holds the same numbers is no place: it was read already.
    assert any("high" in words for words in found.refused)
    assert "s[n][2 * r + j] holds scores" in found_text(found)
    assert found_rows(found)["hooks"][0]["places"][0]["line"] == 99


def _tiles(folder: Path, renamed: dict[str, str]) -> Found:
    text = (FOLDER / "tiles.cu").read_text("utf-8")
    for old, new in renamed.items():
        text = re.sub(rf"\b{old}\b", new, text)
    path = folder / "theirs.cu"
    path.write_text(text, encoding="utf-8")
    return find(Asked(path, Flags("sm_80"), sizes=({"Hq": 2, "N": 32, "D": 32},)))


def test_packed_tiles_and_their_twin(tmp_path: Path) -> None:
    found = _tiles(tmp_path, {})
    (place,) = found.hooks[0].places
    assert (place.line, place.variable, place.elements) == (110, "block", 8)
    assert place.element == "reinterpret_cast<float*>(&block)[@]"
    assert dict(place.coordinates) == {
        "b": "int(blockIdx.z)", "h": "int(blockIdx.y)",
        "i": "begin + int(threadIdx.x % 32 / 4) + @ / 2 % 2 * 8",
        "j": "tile * 16 + int(threadIdx.x % 4 * 2) + @ % 2 + @ / 4 * 8",
    }  # fmt: skip
    # The maximum of a row, before it is used, and its whole sum, after the last tile.
    assert [(r.what, r.line, r.variable, r.elements) for r in found.rows] == [
        ("l", 126, "sum", 2), ("m", 73, "out", 2),
    ]  # fmt: skip
    assert {r.unit for r in found.rows} == {"1", "1 / scale"}
    # Weights as floats, and as two halves in a register.
    held = {(m.variable, m.evidence.split("(")[1].split(")")[0])
            for m in found.meanings if m.what == "P"}  # fmt: skip
    assert {("block", "f32"), ("weights", "bf16")} <= held
    twin = _tiles(tmp_path, {
        "kWarps = 1": "kWarps = 2", "block": "acc", "tile": "step", "most": "top", "begin": "start",
        "out": "to", "data": "of8",
    })  # fmt: skip
    (other,) = twin.hooks[0].places
    assert (other.line, other.variable, other.elements) == (110, "acc", 8)
    assert other.coordinates["j"] == place.coordinates["j"].replace("tile", "step")
    assert other.coordinates["i"] != place.coordinates["i"]  # a warp more
    assert [(r.what, r.line, r.unit) for r in twin.rows] == [
        (r.what, r.line, r.unit) for r in found.rows
    ]


def test_loops_that_only_longer_rows_reach() -> None:
    sizes = {"Hq": 2, "Nq": 16, "Nk": 24, "D": 16}
    found = find(Asked(FOLDER / "peeled.cu", Flags("sm_80"), sizes=(sizes,)))
    # 32 keys are two tiles, and the first loop takes two: with more the other one has some as well.
    assert [[(p.line, p.coordinates["j"]) for p in h.places] for h in found.hooks] == [
        [(62, "key + @"), (69, "tile * kKeys + column + @")],
        [(63, "key + @"), (69, "tile * kKeys + column + @")],
    ]
    assert "Nq 64, Nk 64" in found.hooks[0].evidence
    # The second stands behind the mask.
    assert [h.dropped for h in found.hooks] == ["score", "-inf"]
    # At line 14 a row's sum stands when a thread comes by for the last time, else maxima.
    assert [(r.what, r.line, r.variable) for r in found.rows] == [("l", 38, "all")]


def test_scores_that_a_view_and_lambdas_name_while_they_are_made() -> None:
    said: list[str] = []
    sizes = {"B": 1, "Hq": 2, "N": 64, "D": 16}
    found = find(Asked(FOLDER / "views.cu", Flags("sm_90a"), sizes=(sizes,)), said.append)
    # Compiled once more without the view and what has captured an address.
    counts = [int(m[1]) for m in (re.search(r"with (\d+) observations", x) for x in said) if m]
    assert counts[1] < counts[0] < counts[2]
    scaled, plain = (hook.places[0] for hook in found.hooks)
    assert (scaled.line, scaled.variable, scaled.to_score) == (48, "s", "1.0f")
    assert (plain.line, plain.variable, plain.to_score) == (47, "s", "scale")
    assert scaled.coordinates["i"] == "row + @ / 2 * 8"
    assert scaled.coordinates["j"] == "key + @ % 2"


@pytest.mark.parametrize(
    ("causal", "end"), [("-1e4f", "-1e4f"), ("-INFINITY", "-1e4f")], ids=["finite", "finite_end"]
)
def test_a_finite_number_of_dropped_pairs_is_no_infinity(
    tmp_path: Path, causal: str, end: str
) -> None:
    """Nor where it stands beyond the last key alone, which no whole tile shows."""
    text = (FOLDER / "peeled.cu").read_text("utf-8")
    mask = "if (key + e > row + shift || key + e >= keys) s[e] = -INFINITY;"
    assert mask in text
    source = tmp_path / "peeled.cu"
    put = f"if (key + e >= keys) s[e] = {end}; else if (key + e > row + shift) s[e] = {causal};"
    source.write_text(text.replace(mask, put), encoding="utf-8")
    sizes = {"Hq": 2, "Nq": 16, "Nk": 24, "D": 16}
    found = find(Asked(source, Flags("sm_80"), sizes=(sizes,)))
    assert [h.dropped for h in found.hooks] == ["score", ""]


def test_a_recurrence_has_no_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = MMA.with_name("recurrence.cu").read_text("utf-8")
    launcher = """
void launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N) {
  recurrence<<<B * Hq, 64>>>(q, k, v, o, N, 0.9f);
}
"""
    path = tmp_path / "recurrence.cu"
    path.write_text(source + launcher, encoding="utf-8")
    assert main(["lift", str(path), "--arch", "sm_80", "--reference", "full",
                 "--sizes", "B=1 Hq=2 N=16 D=16"]) == 1  # fmt: skip
    shown = capsys.readouterr().out
    assert "no place was found that holds the scores" in shown
    assert "no variable holds scores q . k of single pairs" in shown


def test_a_header_is_overlaid_with_its_neighbours(tmp_path: Path) -> None:
    include = tmp_path / "include"
    (include / "deep").mkdir(parents=True)
    (include / "deep" / "a.cuh").write_text('#include "b.cuh"\n', encoding="utf-8")
    (include / "deep" / "b.cuh").write_text("int b;\n", encoding="utf-8")
    source = tmp_path / "x.cu"
    source.write_text("#include <deep/a.cuh>\n", encoding="utf-8")
    kernel = Asked(source, Flags("sm_80", (str(include),)))
    new = overlaid(kernel, {include / "deep" / "b.cuh": b"int changed;\n"}, tmp_path / "over")
    (copied,) = new.flags.includes
    assert Path(copied).is_relative_to(tmp_path / "over")
    assert (Path(copied) / "deep" / "b.cuh").read_text("utf-8") == "int changed;\n"
    assert (Path(copied) / "deep" / "a.cuh").is_file()
    assert new.source.read_bytes() == source.read_bytes()
    with pytest.raises(CuBridgeError, match="does not include"):
        overlaid(kernel, {tmp_path / "other.cuh": b""}, tmp_path / "over")
