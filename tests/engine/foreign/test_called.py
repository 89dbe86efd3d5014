"""The page that a job calls a launcher by asks of the GPU what the launcher's own program asks."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.build.folder.units import Fields, dispatcher_text, struct_layout, unit_text
from engine.build.tools.toolchain import Toolchain
from engine.foreign import called
from engine.foreign.called import ENTRY, Interface, interface_of, page_text
from engine.foreign.compile import STAND_INS, Flags, compile_kernel
from engine.foreign.launcher import Launcher, read_launcher
from engine.foreign.record import arguments, launched
from engine.worker.launches.abi import Library

SIZES = {"B": 2, "Hq": 3, "Hkv": 3, "Nq": 8, "Nk": 8, "N": 8, "D": 16, "Dv": 16}
KERNEL = """
__global__ void attention(const float* q, const float* slopes, float* o, int n, float scale) {
  o[blockIdx.x * n + threadIdx.x] = q[threadIdx.x] * slopes[0] * scale;
}
"""
POINTERS = f"""{KERNEL}
cudaError_t launch(const float* q, const float* k, const float* v, float* o, int B, int Hq, int N,
                   const float* slopes, float scale, cudaStream_t stream) {{
  attention<<<dim3(B, Hq), 32, 64, stream>>>(q, slopes, o, N, scale);
  return cudaGetLastError();
}}
int main() {{ return 1; }}
"""
TENSORS = f"""#include <torch/extension.h>
{KERNEL}
torch::Tensor launch(torch::Tensor q, torch::Tensor k, torch::Tensor v, torch::Tensor slopes) {{
  TORCH_CHECK(q.size(2) == 8, "eight rows");
  auto o = torch::zeros_like(q), spare = torch::empty({{q.size(0), 5}});
  attention<<<dim3(q.size(0), q.size(1)), 32, 0, at::cuda::getCurrentCUDAStream()>>>(
      q.data_ptr<float>(), slopes.data_ptr<float>(), o.data_ptr<float>(), q.size(2), 1.0f);
  return o;
}}
"""
SHAPES = {"slopes": "Hq"}
# Two blocks of 64 bytes are all that this GPU has.
BEGIN = """\
extern "C" void cubridge_call(const char* first);
extern "C" __attribute__((visibility("default"))) void begin(const char* n) { cubridge_call(n); }
"""
POOL = """
#include <cstdlib>

#include "called.cuh"
int in_use = 0;
extern "C" {
cudaError_t cudaMalloc(void** to, size_t bytes) {
  if (in_use + bytes > 128) return cudaErrorMemoryAllocation;
  return in_use += bytes, *to = malloc(bytes), cudaSuccess;
}
cudaError_t cudaFree(void* data) { return in_use -= 64, free(data), cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
}
void* at[3];
void take(long stream, int n, size_t bytes) {
  auto status = cubridge::status_of(reinterpret_cast<cudaStream_t>(stream), {}, [&] {
    at[n] = cubridge_allocate(bytes);
  });
  printf("%d %d\\n", int(status), in_use);
}
int main() {
  take(1, 0, 64);
  cubridge_release(at[0], 64);
  take(1, 1, 64);  // the same again
  printf("%d\\n", at[0] == at[1]);
  cubridge_release(at[1], 64);
  take(2, 2, 64);  // no memory of another stream
  printf("%d\\n", at[2] == at[1]);
  cubridge::call.stream = reinterpret_cast<cudaStream_t>(1L);
  cubridge_release(at[2], 64);  // stays of stream 2
  take(2, 0, 64);
  printf("%d\\n", at[0] == at[2]);
  take(3, 1, 32);   // stream 1's is given back for it
  take(3, 2, 128);  // more than there is
}
"""


def read(source: str) -> tuple[Launcher, Interface]:
    launcher = read_launcher(source, "x.cu", "launch", SHAPES, "f32")
    return launcher, interface_of(launcher)


def dry_library(folder: Path, own: Interface, tools: Toolchain) -> Path:
    """The library of a page with the recorder in the place of the CUDA runtime."""
    (folder / "kernel.cu").write_text(page_text(own, "x.cu"))
    (folder / "unit.cu").write_text(unit_text("f32_16", ENTRY, own.fields))
    (folder / "dispatcher.cpp").write_text(dispatcher_text(["f32_16"]))
    nvcc = [str(tools.nvcc.path), "-O1", "-w", "-gencode=arch=compute_80,code=compute_80",
            "-Xcompiler", "-fPIC,-fvisibility=hidden"]  # fmt: skip
    includes = [f"-I{called.HEADER.parent}", f"-I{STAND_INS}", f"-I{folder}"]
    hooks = ("refuse", "returned", "allocate", "release", "stream")
    apart = [f"-Dcubridge_{name}=recorder_{name}" for name in hooks]  # the page has its own
    recorder = called.HEADER.with_name("recorder.cpp")
    subprocess.run([*nvcc, *apart, "-c", str(recorder), "-o", "r.o"], cwd=folder, check=True)
    (folder / "begin.cpp").write_text(BEGIN)
    subprocess.run(
        [*nvcc, *includes, "-shared", "-cudart", "none", "unit.cu", "dispatcher.cpp", "begin.cpp",
         "r.o", *tools.link_flags, "-o", "dry.so"],
        cwd=folder, check=True,
    )  # fmt: skip
    return folder / "dry.so"


def values_of(own: Interface, launcher: Launcher, **changed: Any) -> dict[str, Any]:
    """The fields of a call, at the addresses that the launcher's own program has; O beside them."""
    words = arguments(launcher, SIZES, {"scale": 0.25})
    given = zip(launcher.parameters, words, strict=True)
    address = {p.means: int(w.split(",")[0]) for p, w in given if p.kind == "tensor"}
    out: dict[str, Any] = {}
    for name, p in own.tensors.items():
        shape = [SIZES[d] for d in p.dims]
        steps = [1]
        for size in shape[:0:-1]:
            steps.insert(0, steps[0] * size)
        out[name] = (address.get(name, 1 << 52), steps)
    out |= {field: SIZES[text] for text, field in own.sizes.items()}
    return {**out, **dict.fromkeys(own.scalars, 0.25), **changed}


def dry_run(
    library: Path,
    fields: Fields,
    tensors: int,
    calls: list[dict[str, Any]],
    patch: pytest.MonkeyPatch,
) -> tuple[list[int], list[dict[str, Any]]]:
    """The status of each call, and what they asked of the GPU, by the recorder."""
    record = library.with_name("dry.jsonl")
    patch.setenv("CUBRIDGE_RECORD", str(record))
    patch.setenv("CUBRIDGE_PARAMETERS", str(library.with_name("parameters.txt")))
    patch.setenv("CUBRIDGE_ARCH", "80")
    opened = Library(library, fields)
    ctypes.CDLL(str(library)).begin(str(tensors).encode())
    status = [opened.launch(opened.arguments(values), "f32_16", None) for values in calls]
    ctypes.CDLL(None).fflush(None)
    lines = record.read_text().splitlines() if record.exists() else []
    return status, [json.loads(line) for line in lines]


@pytest.mark.parametrize("source", [POINTERS, TENSORS], ids=["pointers", "tensors"])
def test_a_page_asks_what_the_launcher_s_own_program_asks(
    source: str, tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, own = read(source)
    (tmp_path / "x.cu").write_text(source)
    compiled = compile_kernel(tmp_path / "x.cu", launcher, Flags("sm_80"), toolchain, tmp_path)
    launched(compiled, launcher, SIZES, {"scale": 0.25}, "sm_80", tmp_path)
    wanted = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    library = dry_library(tmp_path, own, toolchain)
    right = values_of(own, launcher)
    address, steps = right["k"]
    apart, odd = (address, [2 * steps[0], *steps[1:]]), (address + 8, steps)
    fewer = {own.sizes["Nq"]: 4, **{n: (right[n][0], [192, 64, 16, 1]) for n in "qo"}}
    refused = [{**right, "k": apart}, {**right, "k": odd}]
    refused += [{**right, **fewer}] if launcher.returned else []  # it throws
    calls = [*refused, right, right]
    status, (_, *events) = dry_run(library, own.fields, len(launcher.tensors), calls, monkeypatch)
    assert status == [1] * len(refused) + [0, 0]  # 1: cudaErrorInvalidValue
    given = [e for e in wanted if e["event"] not in ("call", "returned", "free")]
    if launcher.returned:  # what it returns goes into the caller's memory, whose address is above
        made = next(e["address"] for e in wanted if e["event"] == "returned")
        given += [{"event": "copy", "address": 1 << 52, "from": made, "bytes": 4 * 2 * 3 * 8 * 16}]
    again = [e for e in given if e["event"] != "allocate"]  # memory is kept from call to call
    assert events == [*given, *again]


def test_fields_and_the_page() -> None:
    _, own = read(POINTERS)
    names = [name for name, _ in own.fields]
    assert names[:5] == ["q", "k", "v", "o", "slopes"] and names[-1] == "scale"
    assert own.sizes["N"] == "size_N" and "size_Hkv" in names
    text = page_text(own, "root0/x.cu")
    assert '#include "root0/x.cu"' in text and "cubridge::Pointer{args.slopes.data}" in text
    wider = (*own.fields, ("more", "tensor"))
    assert "cubridge::TensorArg more;" in page_text(own, "x.cu", wider)
    assert struct_layout(wider).size > struct_layout(own.fields).size


def test_memory_is_kept_by_stream_and_given_back_when_there_is_no_more(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    (tmp_path / "pool.cpp").write_text(POOL)
    words = [str(toolchain.nvcc.path), "-cudart", "none", f"-I{called.HEADER.parent}", "pool.cpp",
             *toolchain.link_flags, "-o", "pool"]  # fmt: skip
    subprocess.run(words, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "pool"], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [
        "0 64", "0 64", "1", "0 128", "0", "0 128", "1", "0 96", "2 96",
    ]  # fmt: skip
    assert done.stderr == "the launcher: no memory on the GPU\n"
