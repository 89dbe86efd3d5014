"""Kernels with their launchers, compiled, recorded, executed as PTX and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from cubridge_tui.commands import bring
from cubridge_tui.headless_foreign import KERNEL_OPTIONS, KernelOption
from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError
from engine.foreign import record


def _nvcc() -> bool:
    try:
        find_toolchain()
    except CuBridgeError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _nvcc(), reason="nvcc compiles the kernels of these tests")

KERNEL = """\
#include <cuda_runtime.h>
__global__ void attention(const float* q, const float* k, const float* v, float* o, float* lse,
                          int N, int D, float scale) {
  extern __shared__ float s[];
  int i = blockIdx.x, h = blockIdx.y, t = threadIdx.x;
  q += (h * N + i) * D; k += h * N * D; v += h * N * D; o += (h * N + i) * D;
  for (int j = t; j < N; j += blockDim.x) {
    float x = 0;
    for (int d = 0; d < D; d++) x += q[d] * k[j * D + d];
    s[j] = x * scale;
  }
  __syncthreads();
  float m = -INFINITY, l = 0;
  for (int j = 0; j < N; j++) m = fmaxf(m, s[j]);
  for (int j = 0; j < N; j++) l += __expf(s[j] - m);
  for (int d = t; d < D; d += blockDim.x) {
    float x = 0;
    for (int j = 0; j < N; j++) x += __expf(s[j] - m) * v[j * D + d];
    o[d] = x / l;
  }
  if (t == 0) lse[h * N + i] = m + __logf(l);
}
"""
LAUNCH = """\
void launch(const float* q, const float* k, const float* v, float* o, float* lse, int B, int Hq,
            int N, int D, float scale) {
  attention<<<dim3(N, B * Hq), 64, N * sizeof(float)>>>(q, k, v, o, lse, N, D, scale);
}
"""
TORCH = """\
#include <torch/extension.h>
std::vector<torch::Tensor> forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
  TORCH_CHECK(q.size(2) == k.size(2), "one length, not ", q.size(2), " and ", k.size(2));
  auto o = torch::empty_like(q);
  auto lse = torch::zeros({q.size(0), q.size(1), q.size(2)}, q.options().dtype(torch::kFloat32));
  int n = q.size(2), d = q.size(3);
  attention<<<dim3(n, q.size(0) * q.size(1)), 64, n * sizeof(float)>>>(
      q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(),
      lse.data_ptr<float>(), n, d, 1 / sqrtf(d));
  return {o, lse};
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
int main() { return 0; }
"""
CASE = ["--arch", "sm_80", "--sizes", "B=2 Hq=1 N=40 D=8"]


def write(folder: Path, text: str) -> str:
    path = folder / "theirs.cu"
    path.write_text(text, encoding="utf-8")
    return str(path)


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def line_of(text: str, part: str) -> int:
    return next(n for n, row in enumerate(text.splitlines(), 1) if part in row)


def test_a_seeded_race_and_a_bound_are_at_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = replaced(KERNEL, "j < N; j += blockDim.x", "j <= N; j += blockDim.x")
    text = replaced(text, "  __syncthreads();\n", "") + LAUNCH
    assert main(["check", write(tmp_path, text), *CASE, "--json"]) == 1
    out = json.loads(capsys.readouterr().out)
    (case,) = out["cases"]
    found = {(f["kind"], int(f["place"].rsplit(":", 1)[1])) for f in case["findings"]}
    assert ("out of bounds", line_of(text, "s[j] = x * scale")) in found
    assert ("out of bounds", line_of(text, "x += q[d]")) in found
    assert ("race", line_of(text, "m = fmaxf")) in found
    assert out["g1"] is None and not case["compared"] and case["sizes"]["N"] == 40


def test_a_finding_is_at_the_call_and_told_once_with_its_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    helper = "__device__ __forceinline__ void put(float* to, float x) {\n  *to = x;\n}\n"
    text = replaced(KERNEL, "__global__", f"{helper}__global__")
    text = replaced(text, "    s[j] = x * scale;", "    put(&s[j + N], x);\n    put(&s[j - N], x);")
    path = write(tmp_path, text + LAUNCH)
    assert main(["check", path, *CASE, "--sizes", "B=1 Hq=1 N=20 D=8"]) == 1
    said = capsys.readouterr().out
    for call in ("put(&s[j + N]", "put(&s[j - N]"):
        assert said.count(f"{path}:{line_of(text, call)}: out of bounds: ") == 1
    assert said.count(f"\n    inlined there: {path}:{line_of(text, '*to = x')}\n") == 2
    assert said.count("\n    in all cases\n") >= 2
    assert said.splitlines()[-1].startswith(f"{path}: ")
    assert said.splitlines()[-1].endswith(" findings, in 2 of 2 cases")


def test_a_kernel_that_no_size_launches_is_named_and_the_others_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = replaced(KERNEL, "__global__", "template <int kPart, bool kHalf> __global__")
    run = """\
void run(dim3 grid, int bytes, bool half, const float* q, const float* k, const float* v, float* o,
         float* lse, int N, int D, float scale) {
  if (half) attention<2, true><<<grid, 64, bytes>>>(q, k, v, o, lse, N, D, scale);
  else attention<1, false><<<grid, 64, bytes>>>(q, k, v, o, lse, N, D, scale);
}
"""
    launch = replaced(LAUNCH, "attention<<<dim3(N, B * Hq), 64, N * sizeof(float)>>>(",
                      "run(dim3(N, B * Hq), N * sizeof(float), false, ")  # fmt: skip
    path = write(tmp_path, text + run + launch)
    assert main(["check", path, *CASE, "--reference", "full"]) == 0
    said = capsys.readouterr()
    last = said.out.splitlines()[-1]
    assert last.startswith(
        f"{path}: G1 passes: equal to full.py in 2 cases, no findings; N 40; --sizes names others; "
        "not run: "
    )
    assert "attention<2, true> at theirs.cu:2: no size" in last and "_Z" not in said.out + said.err


def test_lines_that_no_case_runs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sum = "    for (int d = 0; d < D; d++) x += q[d] * k[j * D + d];\n"
    text = replaced(KERNEL, sum, f"    if (D == 64) {{\n  {sum}    }} else {{\n  {sum}    }}\n")
    line = line_of(text, "D == 64") + 1
    path = write(tmp_path, text + LAUNCH)
    assert main(["check", path, *CASE, "--reference", "full"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.endswith(
        f"in 2 cases, no findings; N 40; --sizes names others; never run: theirs.cu:{line}"
    )
    assert main(["check", path, *CASE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["never_run"] == f"theirs.cu:{line}"
    both = ["--sizes", "B=1 Hq=1 N=9 D=64"]
    assert main(["check", path, *CASE, *both]) == 0
    assert "never run" not in capsys.readouterr().out


@pytest.mark.parametrize("option", KERNEL_OPTIONS, ids=lambda option: option.name)
def test_an_option_that_nothing_would_come_of_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: KernelOption
) -> None:
    """Whatever option of a CUDA source there is: one is taken by name, and none by default."""
    given = {"head_dim": "64", "dtype": "f16", "sizes": "B=1 Hq=1 N=9 D=16"}.get(option.name, "x=1")
    (tmp_path / "a.cuir").touch()
    takers = {("lift", "flash_fwd_sm80"): ("arch", "head_dim", "dtype"),
              ("check", str(tmp_path)): ("sizes",), ("check", str(tmp_path / "a.cuir")): (),
              ("check", "a-session"): ()}  # fmt: skip
    for words, takes in takers.items():
        if option.name in takes:
            continue
        assert main([*words, f"{option.flag}{'' if option.flag[1] != '-' else '='}{given}"]) == 2
        said = capsys.readouterr()
        assert f"takes no {option.flag}\n  fix: leave it out" in said.err and not said.out


def test_a_folder_is_checked_at_the_sizes_that_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, kept = write(tmp_path, KERNEL + LAUNCH), str(tmp_path / "kept")
    assert main(["import", path, *CASE, "--reference", "full", "--out", kept]) == 0
    capsys.readouterr()
    assert main(["check", kept, "--json", "--sizes", "B=1 Hq=1 N=5 D=8"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [c["sizes"] for c in cases] == [{"B": 1, "Hq": 1, "N": 5, "D": 8}] * 2
    assert main(["check", kept, "--sizes", "foo=64"]) == 2
    assert "has no size foo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "B=1 B=2 Hq=1 N=9 D=8"], "--sizes: B is given twice, 1 and 2"),
        (["--tensor", "m=B Hq", "--tensor", "m=B"], "--tensor: m is given twice, B Hq and B"),
        (["--sizes", "B=1 Hq=1 N=99999999999 D=8"], "for its tensors: more than the 1 GiB that a"),
    ],
)
def test_names_given_twice_and_sizes_too_large_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["check", write(tmp_path, KERNEL + LAUNCH), "--arch", "sm_80", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err and not said.out


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, KERNEL + LAUNCH)
    monkeypatch.setattr(bring, "check_and_report", None)  # is not come to
    for out in ("/proc/kept", str(tmp_path / "theirs.cu" / "below")):
        assert main(["import", path, *CASE, "--reference", "full", "--out", out]) == 2
        said = capsys.readouterr().err
        assert f"{out} cannot be written: " in said and "--out" in said
    assert [p.name for p in tmp_path.iterdir()] == ["theirs.cu"]


def test_an_early_read_is_told_with_the_waits_of_its_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parent / "kernels/mma.cu").read_text()
    wait = 'asm volatile("cp.async.wait_group 1;" ::: "memory");'
    path = write(tmp_path, replaced(text, wait, ""))
    sizes = ["--sizes", "B=1 Hq=1 Hkv=1 Nq=16 Nk=64 D=64"]
    assert main(["check", path, "--arch", "sm_80", *sizes]) == 1
    said = capsys.readouterr().out
    waits = line_of(text, "cp.async.wait_group 0")
    assert "early read" in said and f"copies are waited for at {path}:{waits}\n" in said
    assert "copies are committed at " in said


def test_a_copy_that_its_own_warp_alone_waited_for_is_told_with_the_barriers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
#include <cuda_runtime.h>
__global__ void turned(const float* q, float* o) {
  __shared__ float held[64];
  int t = threadIdx.x;
  unsigned at = (unsigned)__cvta_generic_to_shared(&held[t]);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(q + t) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  o[t] = held[63 - t];
  __syncthreads();  // too late
}
void launch(const float* q, float* o, int B, int Hq, int N, int D) { turned<<<1, 64>>>(q, o); }
"""
    path = write(tmp_path, text)
    case = ["--arch", "sm_80", "--sizes", "B=1 Hq=1 N=64 D=1"]
    assert main(["check", path, *case]) == 1
    said = capsys.readouterr().out
    assert f"{path}:{line_of(text, 'o[t] =')}: early read: reads shared memory that an" in said
    assert "that warp waited for it, and no barrier stands between its wait and this" in said
    assert f"barriers of the block stand at {path}:{line_of(text, 'too late')}\n" in said
    assert f"copies are waited for at {path}:{line_of(text, 'wait_group')}\n" in said


def test_a_missing_fence_is_at_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    source = Path(__file__).with_name("bulk_store.cu")
    assert main(["check", str(source), "--sizes", "B=1 Hq=1 N=3 D=64"]) == 1
    store, read = (line_of(source.read_text(), part) for part in ("row[d] =", '"l"(&o)'))
    found = capsys.readouterr().out
    assert f"{source}:{read}: missing proxy fence" in found
    assert f"the other access: {source}:{store}\n" in found


def test_an_instruction_that_no_gpu_has_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    double = (
        'asm volatile("{ .reg .f64 a; cvt.f64.f32 a, %0; copysign.f64 a, a, a; '
        'cvt.rn.f32.f64 %0, a; }"'
        ' : "+f"(scale));'
    )
    text = replaced(KERNEL, "float m =", f"{double}\n  float m =") + LAUNCH
    assert main(["check", write(tmp_path, text), *CASE, "--json"]) == 0
    found = {u["opcode"]: u["place"] for u in json.loads(capsys.readouterr().out)["unproven"]}
    assert int(found["copysign.f64"].rsplit(":", 1)[1]) == line_of(text, "copysign.f64")
    assert "add.f32" not in found and "fma.rn.f32" not in found


def test_wrong_numbers_name_the_first_wrong_element(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = replaced(KERNEL, "j < N; j++) l +=", "j < N - 1; j++) l +=") + LAUNCH
    assert main(["check", write(tmp_path, text), *CASE, "--reference", "full", "--json"]) == 1
    out = json.loads(capsys.readouterr().out)
    case = out["cases"][0]
    assert out["g1"] is False and not case["findings"]
    o, lse = case["differences"]
    assert o["tensor"] == "o" and o["at"] == [0, 0, 0, 0] and abs(o["got"]) > abs(o["expected"])
    assert lse["tensor"] == "lse" and lse["at"][0] == 0 and lse["got"] < lse["expected"]


TILED = Path(__file__).parent / "kernels/tiled_causal.cu"


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", ""),
        ("ROWS + shift)", "ROWS + shift - 1)", "O and LSE"),  # a last tile of one key is left out
        ("most == -INFINITY ? 0 : most", "most", "O"),  # NaN where a block's other rows have keys
        ("top + __logf(sum) :", "top + __logf(sum) + 1e-3f :", "LSE"),
        ("top + __logf(sum) :", "top + __log2f(sum) :", "LSE"),
        ("(len_q + ROWS - 1)", "(len_q + ROWS - 2)", "O and LSE"),  # of a last block of one row
    ],
)
def test_the_usual_cases_tell_a_bound_a_nan_and_an_lse_that_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, wrong: str
) -> None:
    text = TILED.read_text()
    path = write(tmp_path, replaced(text, old, new) if old else text)
    options = ["--arch", "sm_80", "--reference", "causal", "--head-dim", "8"]
    assert main(["check", path, *options]) == bool(wrong)
    last = capsys.readouterr().out.splitlines()[-1]
    said = f"G1 fails: {wrong} wrong" if wrong else "G1 passes: equal to causal.py in 4 cases, no"
    assert last.startswith(f"{path}: {said}")
    assert ("; Nq 21 Nk 23, Nq 128 Nk 128, Nq 129 Nk 70, Nq 128 Nk 257; " in last) != bool(wrong)


def test_the_bound_of_lse_is_float32s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = replaced(KERNEL, "m + __logf(l)", "m + __logf(l) + 1e-4f") + LAUNCH
    assert main(["check", write(tmp_path, text), *CASE, "--reference", "full", "--json"]) == 1
    for case in json.loads(capsys.readouterr().out)["cases"]:
        (lse,) = case["differences"]
        assert lse["tensor"] == "lse" and lse["bound"] < (1e-5 if case["values"] == "random" else 1)


def test_a_head_size_that_no_one_named_is_said_and_can_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["check", str(TILED), "--arch", "sm_80", "--reference", "causal"]
    assert main(options) == 1
    said = capsys.readouterr().out
    assert said.count("D is taken to be 64, as launch does not take it: --head-dim says") == 1
    sizes = ["--sizes", "B=1 Hq=2 Hkv=1 Nq=20 Nk=24"]
    assert main([*options, *sizes, "--head-dim", "8"]) == 0
    assert "; Nq 20 Nk 24; --sizes names others" in capsys.readouterr().out
    assert main([*options, *sizes]) == 2
    assert "--head-dim" in capsys.readouterr().err


def test_one_head_is_in_no_other_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one head both layouts are the same bytes: a missing key is no other layout."""
    path = write(tmp_path, replaced(TILED.read_text(), "ROWS + shift)", "ROWS + shift - 1)"))
    options = ["--arch", "sm_80", "--reference", "causal", "--sizes", "B=1 Hq=1 Hkv=1 Nq=32 Nk=33"]
    assert main(["check", path, *options, "--head-dim", "8"]) == 1
    assert "declare the reference" not in capsys.readouterr().out


def test_a_reference_in_another_layout_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "turned.py"
    spec.write_text(
        "import math\nimport torch\nfrom jaxtyping import Float\nfrom torch import Tensor\n\n\n"
        'def attention(q: Float[Tensor, "B N Hq D"], k: Float[Tensor, "B N Hq D"],\n'
        '              v: Float[Tensor, "B N Hq D"]) -> Float[Tensor, "B N Hq D"]:\n'
        "    q, k, v = (x.transpose(1, 2) for x in (q, k, v))\n"
        "    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))\n"
        "    return (torch.softmax(scores, dim=-1) @ v).transpose(1, 2)\n",
        encoding="utf-8",
    )
    case = ["--arch", "sm_80", "--sizes", "B=2 Hq=3 N=20 D=8"]
    assert main(["check", write(tmp_path, KERNEL + LAUNCH), *case, "--reference", str(spec)]) == 1
    shown = capsys.readouterr().out
    assert "O equals the reference where the kernel's tensors are read as [B, Hq, Nq, D]" in shown


def test_a_torch_launcher_is_imported_and_checked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path, KERNEL + TORCH)
    options = ["--arch", "sm_80", "--launcher", "forward", "--dtype", "f32", "--reference", "full"]
    case = ["--sizes", "B=1 Hq=2 Nq=20 Nk=20 D=8"]
    assert main(["import", source, *options, *case, "--out", "kept"]) == 0
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == [
        "kernel.toml", "reference.py", "theirs.cu",
    ]  # fmt: skip
    capsys.readouterr()
    assert main(["check", "kept", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["g1"] is True and set(out["cases"][0]["errors"]) == {"o", "lse"}


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ("void launch(const float* q, float* o) { int x = y; }", "does not compile: "),
        ("void launch(const float* q, float* o) {}", "launched no kernel"),
        (
            "__global__ void idle() {}\nvoid launch(float* o) { idle<<<1, 32>>>(); }",
            "writes nothing into o",
        ),
        (
            "#include <cstdio>\n#include <cstdlib>\nvoid launch(float* o) "
            '{ fprintf(stderr, "no such size\\n"); exit(1); }',
            "launch failed: no such size",
        ),
        (
            "void launch(float* o) { void* p; cudaHostRegister(o, 4, 0); }",
            "calls cudaHostRegister, which the recorder does not have",
        ),
        ("void launch(float* o) { o[0] = 1; }", "device memory cannot be read or written by the"),
        ("void launch(float* o) { for (volatile int i = 0;;) i = 0; }", "did not end within 1 s"),
    ],
)
def test_bad_input_ends_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    launcher: str, message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(record, "LIMIT", 1.0)
    assert main(["check", write(tmp_path, f"#include <cuda_runtime.h>\n{launcher}\n"), *CASE]) == 2
    assert message in capsys.readouterr().err


def test_a_relative_source_that_launches_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, f"{KERNEL}void launch(const float* q, float* o) {{}}\n")
    assert main(["check", "theirs.cu", *CASE]) == 2
    assert "launched no kernel" in capsys.readouterr().err


def test_what_is_found_is_told_where_nothing_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "__global__ void stray(float* o) { o[-1 - (int)threadIdx.x] = 1; }\n"
    path = write(tmp_path, f"{text}void launch(float* o) {{ stray<<<1, 32>>>(o); }}\n")
    assert main(["check", path, *CASE]) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"{path}:1: out of bounds: writes 4 bytes at byte -4 of o")
    assert " stray<<<(1, 1, 1), (32, 1, 1), 0>>>" in said.err  # by its name in the source


def test_blocks_of_a_cooperative_launch_are_all_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meet = """\
__global__ void meet(float* o, unsigned* count) {
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(count, 1u);
    while (*(volatile unsigned*)count < gridDim.x) {}
    o[blockIdx.x] = 1;
  }
}
void launch(float* o, int N) {
  unsigned* count;
  cudaMalloc(&count, 4);
  cudaMemset(count, 0, 4);
  void* given[] = {&o, &count};
  cudaLaunchCooperativeKernel((void*)meet, dim3(N), dim3(32), given, 0, 0);
}
"""
    case = ["--arch", "sm_80", "--sizes", "B=1 Hq=1 N=150 D=1"]
    path = write(tmp_path, f"#include <cuda_runtime.h>\n{meet}")
    assert main(["check", path, *case]) == 0, capsys.readouterr()
    call = "cudaLaunchCooperativeKernel"
    write(tmp_path, f"#include <cuda_runtime.h>\n{replaced(meet, call, 'cudaLaunchKernel')}")
    assert main(["check", path, *case]) == 1
    assert "deadlock" in capsys.readouterr().out


def test_a_constant_that_is_set_by_its_symbol_and_words_that_a_kernel_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file whose name is not ASCII, from its folder."""
    text = "#include <cstdio>\n__constant__ float factor;\n" + replaced(
        KERNEL, "x * scale", "x * factor"
    )
    said = '  if (t == 0 && i == 3) printf("%d of %f\\n", i, l);'
    text = replaced(text, "  if (t == 0) lse", f"{said}\n  if (t == 0) lse")
    moved = "  cudaMemcpyToSymbol(factor, &scale, 4);"
    launch = replaced(LAUNCH, "  attention<<<", f"{moved}\n  attention<<<")
    monkeypatch.chdir(tmp_path)
    Path("später 核.cu").write_text(text + launch, encoding="utf-8")
    assert main(["check", "später 核.cu", *CASE, "--reference", "full"]) == 0
    assert "später 核.cu: G1 passes" in capsys.readouterr().out


def test_a_draft_is_written_where_the_launcher_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path, KERNEL)
    assert main(["import", source, "--reference", "full"]) == 2
    assert "launcher.cu" in capsys.readouterr().err
    assert "attention<<<grid, block, shared, stream>>>" in Path("launcher.cu").read_text()


FLAG = """\
__global__ void turned(const float* q, float* o) {
  __shared__ float held[32];
  __shared__ int ready;
  volatile int* flag = &ready;
  int t = threadIdx.x;
  if (t == 0) ready = 0;
  __syncthreads();
  if (t < 32) {
    held[t] = q[t];
    __threadfence_block();  // to leave
    __syncwarp();
    if (t == 0) *flag = 1;
  } else {
    while (*flag == 0) __nanosleep(20);
    __threadfence_block();  // to take
    o[t] = held[63 - t];
  }
}
void launch(const float* q, float* o, int B, int Hq, int N, int D) { turned<<<1, 64>>>(q, o); }
"""


@pytest.mark.parametrize("lost", ["", "leave", "take"])
def test_warps_that_meet_at_a_flag_need_both_fences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    text = replaced(FLAG, f"__threadfence_block();  // to {lost}", "") if lost else FLAG
    case = ["--arch", "sm_80", "--sizes", "B=1 Hq=1 N=64 D=1"]
    assert main(["check", write(tmp_path, text), *case]) == (1 if lost else 0)
    said = capsys.readouterr().out
    assert (f"theirs.cu:{line_of(text, 'o[t]')}: race" in said) == bool(lost)
    assert ("    fences stand at " in said) == bool(lost)
