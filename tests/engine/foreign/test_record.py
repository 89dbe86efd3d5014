"""What a launcher asks of the GPU besides launches: copies, fills, memory given back, tensor maps;
what it leaves from one call to the next; and inputs that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.build.tools.toolchain import find_toolchain
from engine.errors import CuBridgeError, InputError
from engine.foreign.compile import Compiled, Flags, compile_kernel
from engine.foreign.launcher import Launcher, read_launcher
from engine.foreign.record import Executed, Process, Written, execute

SOURCE = """\
#include <cuda.h>
#include <cuda_runtime.h>
__constant__ float four[4];
__device__ int calls;
__global__ void move(const float* q, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) o[i] = q[i];
}
__global__ void scaled(float* q) { q[threadIdx.x] *= 2; }
__global__ void once(const float* q, float* o) {
  if (calls == 0) o[threadIdx.x] = q[threadIdx.x] + four[3];
  __syncthreads();
  if (threadIdx.x == 0) calls++;
}
void map(const float* q, int bytes, int box, int swizzle, int nan) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
  auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  CUtensorMap out;
  cuuint64_t sizes[] = {8, 4}, strides[] = {cuuint64_t(bytes)};
  cuuint32_t boxes[] = {cuuint32_t(box), 4}, steps[] = {1, 1};
  encode(&out, nan == 2 ? CU_TENSOR_MAP_DATA_TYPE_INT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
         (void*)q, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
         CUtensorMapSwizzle(swizzle), CU_TENSOR_MAP_L2_PROMOTION_NONE,
         CUtensorMapFloatOOBfill(nan != 0));
}
void launch(const float* q, float* o, int N, int mode) {
  float host[8] = {};
  float *p = nullptr, *r = nullptr;
  static float* kept = nullptr;
  switch (mode) {
    case 1: cudaMemset(o, 0, 4 * N + 4); break;
    case 2: cudaMalloc(&p, 8); cudaMemcpy(p, host, 16, cudaMemcpyHostToDevice); break;
    case 3: cudaMalloc(&p, 8); cudaMemcpy(p, q, 16, cudaMemcpyDeviceToDevice); break;
    case 4: cudaMalloc(&p, 64); cudaMemcpy(o, p + 15, 8, cudaMemcpyDeviceToDevice); break;
    case 5: cudaMemcpyToSymbol(four, host, 20); break;
    case 6: cudaMemset(reinterpret_cast<char*>(o) - 8, 0, 4); break;
    case 7: cudaMemset(reinterpret_cast<void*>(64), 0, 4); break;
    case 8: cudaMalloc(&p, 64); cudaFree(p); cudaFree(p); break;
    case 9: cudaMalloc(&p, 64); cudaFree(p); cudaMemset(p, 0, 4); break;
    case 10: cudaMemset(const_cast<float*>(q), 0, 4); break;
    case 11: scaled<<<1, 16>>>(const_cast<float*>(q)); break;
    case 12:  // nothing set r
      cudaMalloc(&p, 4 * N); cudaMalloc(&r, 4 * N);
      cudaMemcpy(p, r, 4 * N, cudaMemcpyDeviceToDevice);
      q = p; break;
    case 13:
      cudaMalloc(&p, 4 * N); cudaMemcpy(p, q, 4 * N, cudaMemcpyDeviceToDevice);
      q = p; break;
    case 14:
      cudaMalloc(&p, 4 * N); cudaMemcpy(p, q, 4 * N, cudaMemcpyDeviceToDevice);
      cudaFree(p); q = p; break;
    case 15:
      if (!kept) cudaMalloc(&kept, 4 * N);
      cudaMemcpy(kept, q, 16, cudaMemcpyDeviceToDevice);
      move<<<1, 64>>>(q, kept, N); q = kept; break;
    case 16: once<<<1, N>>>(q, o); return;
    case 17: if (!kept) kept = const_cast<float*>(q); q = kept; break;
    case 20: map(q, 24, 8, 0, 0); break;
    case 21: map(q, 32, 300, 0, 0); break;
    case 22: map(q, 32, 6, 0, 0); break;
    case 23: map(q, 32, 16, 1, 0); break;
    case 24: map(q, 32, 8, 0, 2); break;
    case 25: map(q + 1, 32, 8, 0, 0); break;
    case 26: map(q, 32, 8, 1, 1); break;
  }
  move<<<(N + 63) / 64, 64>>>(q, o, N);
}
"""


@dataclass(frozen=True, slots=True)
class Built:
    launcher: Launcher
    compiled: Compiled
    folder: Path

    def call(
        self, mode: int, n: int = 16, process: Process | None = None
    ) -> tuple[Written, Sequence[Executed]]:
        q = np.arange(1, n + 1, dtype=np.float32).view(np.uint32)
        written, launches = execute(
            self.compiled, self.launcher, {"N": n, "mode": mode}, {"q": q}, {}, "sm_90a",
            self.folder, process=process,
        )  # fmt: skip
        return written["o"], launches


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    try:
        tools = find_toolchain()
    except CuBridgeError:
        pytest.skip("nvcc compiles the launcher of these tests")
    folder = tmp_path_factory.mktemp("record")
    source = folder / "theirs.cu"
    source.write_text(SOURCE, encoding="utf-8")
    shapes = {"q": "N", "o": "N"}
    entry = read_launcher(SOURCE, str(source), "launch", shapes, "f32", sizes={"mode"})
    yield Built(entry, compile_kernel(source, entry, Flags("sm_90a"), tools, folder), folder)


def kinds(launches: Sequence[Executed]) -> set[str]:
    return {f.kind for launch in launches for f in launch.findings}


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (1, "sets 68 bytes at byte 0 of o, which has 64"),
        (2, "sets 16 bytes at byte 0 of allocation 2, which has 8"),
        (3, "sets 16 bytes at byte 0 of allocation 2, which has 8"),
        (4, "copies 8 bytes at byte 60 of allocation 2, which has 64"),
        (5, "sets 20 bytes at byte 0 of four, which has 16"),
        (6, "sets 4 bytes at byte -8 of o, which has 64"),
        (7, "sets memory that it did not allocate"),
        (8, r"frees allocation 2 \(freed\)"),
        (9, r"sets 4 bytes at byte 0 of allocation 2 \(freed\), which has 0"),
        (10, "overwrites q, an input"),
        (20, "a stride of 24 bytes in dimension 0"),
        (21, "a box of 300 elements in dimension 0, of 1 to 256: the driver refuses that"),
        (22, "rows are 24 bytes, no multiple of 16"),
        (23, "rows are 64 bytes, with a swizzle of 32"),
        (24, "NaN as the fill of whole numbers"),
        (25, "an address that is no multiple of 16 bytes"),
    ],
)
def test_what_the_launcher_may_not_ask_is_one_message(
    built: Built, mode: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        built.call(mode)


@pytest.mark.parametrize("mode", [0, 13, 26])
def test_what_it_may_is_executed(built: Built, mode: int) -> None:
    o, launches = built.call(mode)
    assert not kinds(launches) and o.known.all()
    assert (o.data.view(np.float32) == np.arange(1, 17)).all()


def test_a_copy_carries_what_nothing_defined(built: Built) -> None:
    o, launches = built.call(12)
    assert kinds(launches) == {"undefined value"} or not o.known.any()


def test_an_input_that_a_kernel_writes_is_at_its_line(built: Built) -> None:
    _, launches = built.call(11)
    (found,) = launches[0].findings
    line = next(n for n, row in enumerate(SOURCE.splitlines(), 1) if "void scaled" in row)
    assert found.kind == "input written" and str(found.at.source).endswith(f"theirs.cu:{line}")
    assert not launches[1].findings  # told once


def test_memory_that_was_given_back_is_none(built: Built) -> None:
    _, launches = built.call(14)
    (found,) = launches[0].findings
    assert found.kind == "out of bounds" and "allocation 2 (freed), which has 0" in found.words


@pytest.mark.parametrize(
    ("mode", "words"), [(15, "allocation 2, which has 16"), (17, "q (of an earlier call)")]
)
def test_what_the_first_call_keeps_is_too_small_for_the_second(
    built: Built, mode: int, words: str
) -> None:
    process = Process()
    assert not kinds(built.call(mode, 4, process)[1])
    _, launches = built.call(mode, 16, process)
    assert any(words in f.words for launch in launches for f in launch.findings)
    assert not kinds(built.call(mode, 16)[1])  # as the first one


def test_a_counter_that_is_never_set_back_shows_in_the_second_call(built: Built) -> None:
    process = Process()
    assert built.call(16, process=process)[0].known.all()
    assert not built.call(16, process=process)[0].known.any()
