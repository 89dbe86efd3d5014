"""Build, check and time kernels/flash_fwd_sm80 on a GPU, beside PyTorch's FlashAttention-2.

Needs torch and nvcc only. Every configuration is compiled from the kernel's own text; `launch` is
the one that ships, the others run the same kernel with other tiles. One process, one card:

    python3 benchmarks/kernel_sm80.py --json results.json
    python3 benchmarks/kernel_sm80.py --configs launch 128x64x2x4 128x32x3x4 --time-only

Checks: every element of O and LSE against float64, NaN-filled outputs, many shapes, head ratios,
dtypes and strides, repeats bitwise. Timing: median of `triton.testing.do_bench`-like event timings
with a cold L2 (a buffer larger than L2 is written before each call), rivals in the same run.
TFLOP/s = 4 D B Hq Nq Nk / time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / "kernels" / "flash_fwd_sm80"
INCLUDE = ROOT / "kernels" / "include"
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}

UNIT = """
#include "{kernel}"
extern "C" int bench_launch(const void* args, void* stream) {{
  const Args& given = *static_cast<const Args*>(args);
  return static_cast<int>({call}(given, static_cast<cudaStream_t>(stream)));
}}
"""
# The kernel with other tiles than the launcher's choice.
CONFIGURED = """
static cudaError_t configured(const Args& args, cudaStream_t stream) {{
  constexpr int BYTES = ({bm} + 2 * {stages} * {bn}) * {d} * 2;
  const int blocks = ceil_div(args.Nq, {bm}) * args.Hq * args.B;
  if (blocks == 0) return cudaSuccess;
  return run<flash_fwd<{t}, {d}, {bm}, {bn}, {stages}, {warps}>>(
      dim3(blocks), {warps} * 32, BYTES, stream, args);
}}
"""
# The rate of mma.sync.m16n8k16 alone: registers only, eight warps to a multiprocessor, sixteen
# independent accumulators to a warp.
CEILING = """
#include "cubridge/sm80.cuh"
using namespace cubridge;
__global__ void __launch_bounds__(256) mma_only(float* out, int rounds) {
  float c[16][4] = {};
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = 0x3c003c00u ^ threadIdx.x * 977 * (i + 1) & 0x03ff03ffu;
  for (int i = 0; i < 2; ++i) b[i] = 0x3c003c00u ^ threadIdx.x * 661 * (i + 3) & 0x03ff03ffu;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 16; ++i) detail::mma<bf16>(c[i], a, b[0], b[1]);
  }
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" int ceiling_launch(float* out, int blocks, int rounds) {
  mma_only<<<blocks, 256>>>(out, rounds);
  return cudaGetLastError();
}
"""


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


class Args(ctypes.Structure):
    _fields_ = [
        ("q", Tensor), ("k", Tensor), ("v", Tensor), ("o", Tensor), ("lse", Tensor),
        ("B", ctypes.c_int), ("Hq", ctypes.c_int), ("Hkv", ctypes.c_int),
        ("Nq", ctypes.c_int), ("Nk", ctypes.c_int), ("scale", ctypes.c_float),
    ]  # fmt: skip


def tensor_arg(tensor: torch.Tensor) -> Tensor:
    strides = [*tensor.stride(), 0, 0, 0, 0][:4]
    return Tensor(tensor.data_ptr(), (ctypes.c_longlong * 4)(*strides))


@dataclass(frozen=True)
class Built:
    """One configuration for one dtype and head size."""

    config: str
    dtype: str
    d: int
    launch: ctypes._CFuncPtr
    ptxas: str

    def __call__(self, q, k, v, o, lse, scale: float) -> None:
        args = Args(
            tensor_arg(q), tensor_arg(k), tensor_arg(v), tensor_arg(o), tensor_arg(lse),
            q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], scale,
        )  # fmt: skip
        status = self.launch(ctypes.byref(args), torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"{self.config} {self.dtype} D {self.d}: cudaError {status}")


def compile_library(text: str, name: str, include: Path, folder: Path) -> tuple[Path, str]:
    """The shared library and what ptxas said of it."""
    unit, library = folder / f"{name}.cu", folder / f"{name}.so"
    unit.write_text(text)
    major, minor = torch.cuda.get_device_capability()
    arch = f"{major}{minor}"
    command = [
        shutil.which("nvcc") or "nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr",
        "-Xptxas", "-v", f"-DCUBRIDGE_ARCH={arch}0",
        "-gencode", f"arch=compute_{arch},code=sm_{arch}",
        "-I", str(include), "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(unit),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: nvcc failed\n{done.stderr[-3000:]}")
    lines = [s.strip() for s in done.stderr.splitlines() if "spill" in s or "Used" in s]
    return library, "; ".join(lines)


def build(config: str, dtype: str, d: int, include: Path, kernel: Path, folder: Path) -> Built:
    """Compile one configuration: `launch`, or BMxBNxSTAGESxWARPS."""
    source, call, values = UNIT, f"launch<{dtype}, {d}>", {}
    if config != "launch":
        head, tail = UNIT.split("extern", 1)
        source, call = head + CONFIGURED + "extern" + tail, "configured"
        values = dict(zip(("bm", "bn", "stages", "warps"), config.split("x"), strict=True))
    text = source.format(kernel=kernel, call=call, t=dtype, d=d, **values)
    name = f"{kernel.parent.name}_{include.name}_{config}_{dtype}_{d}"
    library, ptxas = compile_library(text, name, include, folder)
    launch = ctypes.CDLL(str(library)).bench_launch
    launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    label = config
    label += "" if include == INCLUDE else f" {include.name}"
    label += "" if kernel.parent == KERNEL else f" {kernel.parent.name}"
    return Built(label, dtype, d, launch, ptxas)


# --- correctness ------------------------------------------------------------------------------

SHAPES = [
    (1, 1), (1, 3), (2, 1), (64, 128), (113, 203), (128, 128), (127, 129), (129, 127), (239, 1),
    (799, 3), (3, 513), (108, 256), (307, 256), (640, 128), (1023, 1024), (1024, 1023), (5, 0),
]  # fmt: skip
HEADS = [(1, 1), (4, 4), (6, 2), (5, 1)]


def layouts(shape: tuple[int, int, int, int], dtype: torch.dtype, seed: torch.Generator):
    """The same [B, H, N, D] values in memory layouts that a caller may bring."""
    b, h, n, d = shape
    values = torch.randn(shape, device="cuda", dtype=torch.float32, generator=seed).to(dtype)
    yield "bhnd", values
    yield "bnhd", values.transpose(1, 2).contiguous().transpose(1, 2)
    fused = torch.full((b, n, 3, h, d), float("nan"), device="cuda", dtype=dtype)
    fused[:, :, 1] = values.transpose(1, 2)
    yield "fused qkv", fused[:, :, 1].transpose(1, 2)
    odd = torch.full((b, h, n, d + 3), float("nan"), device="cuda", dtype=dtype)
    odd[..., 1 : d + 1] = values
    yield "odd rows", odd[..., 1 : d + 1]


def reference(q, k, v, scale: float):
    group = q.shape[1] // k.shape[1]
    kk = k.double().repeat_interleave(group, 1)
    vv = v.double().repeat_interleave(group, 1)
    scores = q.double() @ kk.transpose(-1, -2) * scale
    if k.shape[2] == 0:
        return torch.zeros_like(q, dtype=torch.float64), scores.new_full(q.shape[:3], -float("inf"))
    return torch.softmax(scores, -1) @ vv, torch.logsumexp(scores, -1)


def low_precision(q, k, v, scale: float):
    """Eager PyTorch in the inputs' own dtype: what FlashAttention's rule compares with."""
    group = q.shape[1] // k.shape[1]
    kk, vv = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    if k.shape[2] == 0:
        return torch.zeros_like(q)
    return torch.softmax(q @ kk.transpose(-1, -2) * scale, -1) @ vv


def padded(shape, dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A NaN-filled tensor with NaN guard bands on both sides, and the whole allocation."""
    size = 1
    for n in shape:
        size *= n
    whole = torch.full((size + 2048,), float("nan"), device="cuda", dtype=dtype)
    return whole[1024 : 1024 + size].view(shape), whole


def check_one(f: Built, q, k, v, scale: float) -> dict[str, float]:
    """Run once on NaN-filled outputs; errors in units of what FlashAttention's rule allows."""
    o, o_whole = padded(q.shape, q.dtype)
    lse, lse_whole = padded(q.shape[:3], torch.float32)
    f(q, k, v, o, lse, scale)
    torch.cuda.synchronize()
    for whole, size in ((o_whole, o.numel()), (lse_whole, lse.numel())):
        if not (whole[:1024].isnan().all() and whole[1024 + size :].isnan().all()):
            raise AssertionError("wrote outside its output")
    want, want_lse = reference(q, k, v, scale)
    # Twice the error of low-precision PyTorch, plus twice the rounding of the reference.
    rounding = (want.to(q.dtype).double() - want).abs().max().item() if want.numel() else 0.0
    low = (low_precision(q, k, v, scale).double() - want).abs().max().item() if want.numel() else 0
    error = (o.double() - want).abs().max().item() if want.numel() else 0.0
    allowed = 2 * low + 2 * rounding + 1e-5
    finite = want_lse.isfinite()
    same_empty = bool((lse.isneginf() == ~finite).all())
    lse_error = (lse.double() - want_lse)[finite].abs().max().item() if finite.any() else 0.0
    lse_allowed = 1e-4 + 1e-6 * want_lse[finite].abs().max().item() if finite.any() else 1e-4
    ok = error <= allowed and lse_error <= lse_allowed and same_empty
    ok = ok and not o.isnan().any().item()
    return {"ok": ok, "o": error / allowed, "lse": lse_error / lse_allowed}


def check(f: Built, repeats: int = 20) -> tuple[int, list[str], float]:
    """All shapes, heads and layouts: cases, failures, the worst error as a share of the allowed."""
    seed = torch.Generator("cuda").manual_seed(7)
    dtype = DTYPES[f.dtype]
    failures: list[str] = []
    cases, worst = 0, 0.0

    def one(label: str, q, k, v, scale: float) -> None:
        nonlocal cases, worst
        cases += 1
        try:
            got = check_one(f, q, k, v, scale)
        except AssertionError as error:
            failures.append(f"{label}: {error}")
            return
        worst = max(worst, got["o"], got["lse"])
        if not got["ok"]:
            failures.append(f"{label}: O {got['o']:.3g} LSE {got['lse']:.3g} of what is allowed")

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", generator=seed).to(dtype)

    for index, (nq, nk) in enumerate(SHAPES):
        hq, hkv = HEADS[index % len(HEADS)]
        q, k, v = draw(2, hq, nq, f.d), draw(2, hkv, nk, f.d), draw(2, hkv, nk, f.d)
        one(f"{nq}x{nk} heads {hq}/{hkv}", q, k, v, f.d**-0.5)
        one(f"{nq}x{nk} heads {hq}/{hkv} peaked", q * 8, k, v + 3, f.d**-0.5)
        one(f"{nq}x{nk} heads {hq}/{hkv} scale 0.3", q, k, v, 0.3)
    for which in range(3):
        sizes = [(2, 6, 150, f.d), (2, 2, 210, f.d), (2, 2, 210, f.d)]
        plain = [draw(*size) for size in sizes]
        for name, view in layouts(sizes[which], dtype, seed):
            tensors = list(plain)
            tensors[which] = view
            one(f"{'qkv'[which]} as {name}", *tensors, 0.09)
    # Rows past Nk hold NaN: they must never reach a product.
    long = torch.full((1, 2, 256, f.d), float("nan"), device="cuda", dtype=dtype)
    long[:, :, :130] = draw(1, 2, 130, f.d)
    one("NaN past Nk", draw(1, 2, 70, f.d), long[:, :, :130], long[:, :, :130], 0.1)
    # Bitwise stable.
    q, k, v = draw(2, 4, 700, f.d), draw(2, 2, 900, f.d), draw(2, 2, 900, f.d)
    first = None
    for _ in range(repeats):
        o, _ = padded(q.shape, dtype)
        lse, _ = padded(q.shape[:3], torch.float32)
        f(q, k, v, o, lse, 0.1)
        torch.cuda.synchronize()
        if first is None:
            first = (o, lse)
        elif not (torch.equal(o, first[0]) and torch.equal(lse, first[1])):
            failures.append("repeats differ bitwise")
            break
    return cases + 1, failures, worst


# --- timing -----------------------------------------------------------------------------------


def time_ms(call, flush: torch.Tensor, milliseconds: float = 250.0) -> tuple[float, float]:
    """Median and interquartile range of event timings with a cold L2."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    samples: list[float] = []
    while sum(samples) < milliseconds or len(samples) < 10:
        start, stop = torch.cuda.Event(True), torch.cuda.Event(True)
        flush.zero_()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop))
    quartiles = statistics.quantiles(samples, n=4)
    return statistics.median(samples), quartiles[2] - quartiles[0]


def bench(functions: list[Built], shape: tuple[int, int, int, int, int], rounds: int):
    """Rounds of every function and the rival, interleaved; the median over rounds."""
    b, hq, hkv, n, d = shape
    flush = torch.empty(256 * 1024 * 1024, dtype=torch.int8, device="cuda")
    rows = []
    for dtype in sorted({f.dtype for f in functions}):
        q = torch.randn(b, hq, n, d, device="cuda", dtype=DTYPES[dtype])
        k = torch.randn(b, hkv, n, d, device="cuda", dtype=DTYPES[dtype])
        v = torch.randn(b, hkv, n, d, device="cuda", dtype=DTYPES[dtype])
        o = torch.empty_like(q)
        lse = torch.empty(b, hq, n, device="cuda")

        def rival(q=q, k=k, v=v, gqa=hq != hkv):
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                F.scaled_dot_product_attention(q, k, v, enable_gqa=gqa)

        calls = {"SDPA FlashAttention-2": rival}
        for f in functions:
            if f.dtype == dtype:
                calls[f.config] = lambda f=f, a=(q, k, v, o, lse): f(*a, a[0].shape[-1] ** -0.5)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                times[name].append(time_ms(call, flush))
        flops = 4.0 * d * b * hq * n * n
        base = statistics.median(t for t, _ in times["SDPA FlashAttention-2"])
        for name, samples in times.items():
            median = statistics.median(t for t, _ in samples)
            rows.append(
                {
                    "shape": {"B": b, "Hq": hq, "Hkv": hkv, "S": n, "D": d},
                    "dtype": dtype,
                    "name": name,
                    "ms": median,
                    "iqr_ms": max(i for _, i in samples),
                    "tflops": flops / median * 1e-9,
                    "of_fa2": base / median,
                }
            )
    return rows


def vars_of(f: Built) -> dict[str, object]:
    return {"config": f.config, "dtype": f.dtype, "D": f.d, "ptxas": f.ptxas}


def ceiling(folder: Path) -> float:
    """TFLOP/s of mma.sync alone on this card."""
    library, _ = compile_library(CEILING, "ceiling", INCLUDE, folder)
    launch = ctypes.CDLL(str(library)).ceiling_launch
    launch.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    rounds = 40000
    out = torch.empty(blocks * 256, device="cuda")
    flush = torch.empty(1024, dtype=torch.int8, device="cuda")
    median, _ = time_ms(lambda: launch(out.data_ptr(), blocks, rounds), flush)
    return blocks * 8 * rounds * 16 * (2 * 16 * 8 * 16) / median * 1e-9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", nargs="+", default=["launch"])
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "f16"])
    parser.add_argument("--heads", nargs="+", type=int, default=[64, 128], help="head sizes")
    parser.add_argument("--include", nargs="+", type=Path, default=[INCLUDE])
    parser.add_argument("--kernel", nargs="+", type=Path, default=[KERNEL / "kernel.cu"])
    parser.add_argument("--time-only", action="store_true")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all-shapes", action="store_true", help="the shapes of the results table")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="cubridge-bench-"))
    jobs = [
        (config, dtype, d, include.resolve(), kernel.resolve(), folder)
        for kernel in options.kernel
        for include in options.include
        for config in options.configs
        for dtype in options.dtypes
        for d in options.heads
    ]
    built: list[Built] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in [pool.submit(build, *job) for job in jobs]:
            try:
                built.append(future.result())
            except RuntimeError as error:
                print(error)
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False)
    report: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "nvcc": nvcc.stdout.strip().splitlines()[-1],
        "method": "event timings, cold L2, median; TFLOP/s = 4 D B Hq Nq Nk / time",
        "mma_sync_tflops": ceiling(folder),
        "built": [vars_of(f) for f in built],
        "checks": [],
        "times": [],
    }
    print(f"{report['device']}, mma.sync alone {report['mma_sync_tflops']:.0f} TFLOP/s", flush=True)
    failed = False
    for f in built:
        print(f"built {f.config} {f.dtype} {f.d}: {f.ptxas}", flush=True)
    if not options.time_only:
        for f in built:
            cases, failures, worst = check(f)
            failed = failed or bool(failures)
            report["checks"].append(
                {**vars_of(f), "cases": cases, "failures": failures, "worst": worst}
            )
            print(
                f"check {f.config} {f.dtype} {f.d}: {cases - len(failures)} of {cases} pass, "
                f"worst {worst:.2f} of what is allowed {failures[:4]}",
                flush=True,
            )
    if not options.check_only:
        for d in options.heads:
            shapes = [(2, 32, 32, 8192, d)]
            if options.all_shapes:
                shapes += [(8, 32, 32, 2048, d), (1, 64, 8, 8192, d)]
            for shape in shapes:
                rows = bench([f for f in built if f.d == d], shape, options.rounds)
                report["times"] += rows
                for row in rows:
                    where = " ".join(f"{k} {v}" for k, v in row["shape"].items())
                    print(
                        f"{where} {row['dtype']} {row['name']:28s} {row['ms']:8.3f} ms "
                        f"{row['tflops']:6.1f} TFLOP/s {row['of_fa2']:.3f} of FA2",
                        flush=True,
                    )
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
