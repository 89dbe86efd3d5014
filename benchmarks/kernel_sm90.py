"""Builds, checks and times variants of kernels/flash_fwd_sm90 beside PyTorch's fused attention.

    python3 benchmarks/kernel_sm90.py [--cases 128:base+nopp-n128] [--plan quick] [--out FILE]

Runs by itself on a machine with a Hopper GPU: Python, torch and nvcc, nothing of this project but
the kernels folder. A variant is the kernel's text with a few substitutions (tile sizes, stages,
ping-pong off) and, for causal attention, with the schedule functions and the keep predicate that
causal needs. Each variant is checked in its own process under a time limit, since a kernel that
waits for a barrier for ever would otherwise take the session with it; those that pass are timed
together, interleaved with the rivals, from a cold L2, by CUDA events.

Checks: every element of O and LSE against float64, by FlashAttention's rule (at most twice the
error of eager attention in the same precision, plus one rounding); outputs prefilled with NaN; keys
and values past the end NaN; repeats bitwise equal.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / "kernels" / "flash_fwd_sm90" / "kernel.cu"
INCLUDE = ROOT / "kernels" / "include"

UNIT = """#include "{kernel}"
extern "C" int cubridge_launch(const void* args, long long size, const char*, void* stream) {{
  if (size != static_cast<long long>(sizeof(Args))) return -2;
  return launch<cubridge::{element}, {head}>(*static_cast<const Args*>(args),
                                             static_cast<cudaStream_t>(stream));
}}
"""

CAUSAL = [
    (
        r"(int tile_count\(.*?\) \{\n)  return [^\n]*",
        r"\1  return ceil_div(min(args.Nk, max(0, q0 + BM + args.Nk - args.Nq)), BN);",
    ),
    (
        r"(int tile_index\(.*?\) \{\n)  return [^\n]*",
        r"\1  return ceil_div(min(args.Nk, max(0, q0 + BM + args.Nk - args.Nq)), BN) - 1 - step;",
    ),
    (
        r"(bool tile_full\(.*?\) \{\n)  return [^\n]*",
        r"\1  return (n + 1) * BN <= args.Nk && (n + 1) * BN - 1 <= row0 + args.Nk - args.Nq;",
    ),
    (
        r"(int tile_lead\(.*?\) \{\n)  return [^\n]*",
        r"\1  return ceil_div(min(args.Nk, max(0, q0 + BM + args.Nk - args.Nq)), BN) -"
        r" ceil_div(min(args.Nk, max(0, row0 + ROWS + args.Nk - args.Nq)), BN);",
    ),
    (r"return j < args\.Nk;", r"return j < args.Nk && j <= i + args.Nk - args.Nq;"),
    # Guards for rows whose visited tiles hold no kept key.
    (
        r"exp2_approx\(\(prev - now\) \* scale_log2\)",
        r"exp2_approx((prev - (now == -INFINITY ? 0.0f : now)) * scale_log2)",
    ),
    (
        r"exp2_approx\(x \* scale_log2 - top \* scale_log2\)",
        r"exp2_approx(x * scale_log2 - (top == -INFINITY ? 0.0f : top) * scale_log2)",
    ),
]


def constant(name: str, value: str) -> tuple[str, str]:
    """A substitution of one of launch's constants."""
    return rf"constexpr (int|bool) {name} = [^;]*;", rf"constexpr \1 {name} = {value};"


# One change each; a variant is a list of changes joined by "-", or "base" for none. "x/base" is the
# text of x.cu in the folder $KERNELS instead of the kernel's own.
CHANGES: dict[str, list[tuple[str, str]]] = {
    "base": [],
    **{
        f"r{n}": [
            (
                r"const int blocks = [^;]*;",
                f"const int blocks = max(min(works, sm_count()), ceil_div(works, {n}));",
            )
        ]
        for n in (2, 3, 4)
    },
    "grid": [(r"const int blocks = [^;]*;", "const int blocks = works;")],
    "pre": [
        (
            r"lower_registers<LOW>\(\);\n    if \(elect\(\)\) \{\n",
            "lower_registers<LOW>();\n    if (elect()) {\n      if (args.Nk > 0) {\n"
            "        prefetch_map(q_map);\n        prefetch_map(k_map);\n"
            "        prefetch_map(v_map);\n      }\n",
        )
    ],
    "free": [(r"\n *named_(sync|arrive)\([^;]*;", "")],  # no turns
    "over": [constant("OVERLAP", "true")],
    "plain": [constant("OVERLAP", "false")],
    "g2": [constant("BM", "128"), constant("LOW", "24"), constant("HIGH", "240")],
    "g3": [constant("BM", "192"), constant("LOW", "32"), constant("HIGH", "160")],
    **{f"n{n}": [constant("BN", str(n))] for n in (64, 80, 96, 112, 128, 144, 160, 176, 192)},
    **{f"s{n}": [constant("STAGES", str(n))] for n in (2, 3, 4)},
    **{
        f"h{n}": [(r"const int section = [^;]*;", f"const int section = {n};")]
        for n in (1, 2, 4, 8, 16, 32)
    },
}


@dataclass(frozen=True, slots=True)
class Shape:
    batch: int
    heads: int
    heads_kv: int
    nq: int
    nk: int

    def pairs(self, causal: bool) -> int:
        """Kept (query, key) pairs of one head; causal aligns the last query with the last key."""
        if not causal:
            return self.nq * self.nk
        return sum(max(0, min(self.nk, i + 1 + self.nk - self.nq)) for i in range(self.nq))

    def flops(self, head: int, head_v: int, causal: bool) -> int:
        return 2 * (head + head_v) * self.batch * self.heads * self.pairs(causal)


def head_v(head: int) -> int:
    return 128 if head == 192 else head


def timed_shapes(head: int, plan: str) -> list[Shape]:
    if head == 192:
        return [Shape(1, 16, 16, 8192, 8192)]
    heads = 16 if head > 128 else 32
    shapes = [Shape(2, heads, heads, 8192, 8192)]
    if plan == "full" and head in (64, 128, 256):  # the others are padded to one of these
        shapes += [
            Shape(8, heads, heads, 2048, 2048),
            Shape(4, heads, heads, 4096, 4096),
            Shape(1, heads, heads, 16384, 16384),
        ]
        if head == 128:
            shapes.append(Shape(1, 64, 8, 8192, 8192))
    return shapes


CHECKED = [
    Shape(1, 2, 2, 128, 128),
    Shape(2, 4, 2, 200, 333),
    Shape(1, 1, 1, 1, 1),
    Shape(1, 2, 1, 65, 1),
    Shape(3, 6, 2, 257, 1000),
    Shape(2, 16, 4, 1024, 2048),
    Shape(1, 2, 2, 64, 0),
    Shape(1, 2, 2, 0, 64),
    Shape(2, 40, 40, 1000, 1000),
]


# --- build -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Build:
    variant: str
    element: str
    head: int
    causal: bool
    library: str
    log: str
    ok: bool
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.variant} {self.element} {self.head}{' causal' if self.causal else ''}"

    def remarks(self) -> str:
        """Registers, spills and ptxas's warnings about wgmma and register reallocation."""
        spills = re.findall(r"(\d+) bytes spill stores", self.log)
        found = sorted(set(re.findall(r"\(C7\d\d\d\)", self.log)))
        errors = re.findall(r"error[^\n]*", self.log)[:3]
        return f"spills {','.join(spills)} {' '.join(found)} {' '.join(errors)}".strip()


def variant_text(variant: str, causal: bool) -> str:
    other, _, names = variant.rpartition("/")
    text = (Path(os.environ["KERNELS"]) / f"{other}.cu" if other else KERNEL).read_text()
    changes = [change for name in names.split("-") for change in CHANGES[name]]
    for pattern, new in [*changes, *(CAUSAL if causal else [])]:
        text, count = re.subn(pattern, new, text, flags=re.DOTALL)
        if count == 0:
            raise SystemExit(f"{variant}: nothing matches {pattern!r} in {KERNEL}")
    return text


def build(folder: Path, variant: str, element: str, head: int, causal: bool) -> Build:
    stem = f"{variant.replace('/', '_')}_{element}_{head}{'_causal' if causal else ''}"
    kernel = folder / f"{stem}.cuh"
    unit = folder / f"{stem}.cu"
    library = folder / f"{stem}.so"
    kernel.write_text(variant_text(variant, causal))
    unit.write_text(UNIT.format(kernel=kernel, element=element, head=head))
    start = time.monotonic()
    command = [
        "nvcc", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-Xptxas", "-v", "-lineinfo",
        "-gencode", "arch=compute_90a,code=sm_90a", "-DCUBRIDGE_ARCH=900", f"-I{INCLUDE}",
        "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(unit),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    return Build(
        variant, element, head, causal, str(library), done.stdout + done.stderr,
        done.returncode == 0, time.monotonic() - start,
    )  # fmt: skip


# --- run ---------------------------------------------------------------------------------------


class TensorArg(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("stride", ctypes.c_longlong * 4)]


class Args(ctypes.Structure):
    _fields_ = [
        *[(name, TensorArg) for name in ("q", "k", "v", "o", "lse")],
        *[(name, ctypes.c_int) for name in ("B", "Hq", "Hkv", "Nq", "Nk")],
        ("scale", ctypes.c_float),
    ]


def tensor_arg(tensor: Any) -> TensorArg:
    strides = [*tensor.stride(), 0, 0, 0, 0][:4]
    return TensorArg(tensor.data_ptr(), (ctypes.c_longlong * 4)(*strides))


class Kernel:
    """A built variant as a function of tensors."""

    def __init__(self, library: str) -> None:
        self.launch = ctypes.CDLL(library).cubridge_launch
        self.launch.argtypes = [
            ctypes.c_void_p, ctypes.c_longlong, ctypes.c_char_p, ctypes.c_void_p,
        ]  # fmt: skip

    def __call__(self, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float) -> None:
        import torch

        args = Args(
            tensor_arg(q), tensor_arg(k), tensor_arg(v), tensor_arg(o), tensor_arg(lse),
            q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], scale,
        )  # fmt: skip
        stream = torch.cuda.current_stream().cuda_stream
        status = self.launch(ctypes.byref(args), ctypes.sizeof(args), None, stream)
        if status != 0:
            raise RuntimeError(f"launch: error {status}")


def inputs(shape: Shape, head: int, element: str, seed: int, poison: bool = True) -> list[Any]:
    """q, k, v; with `poison`, k and v are parts of longer tensors whose other rows are NaN."""
    import torch

    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[element]
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def draw(heads: int, rows: int, columns: int) -> Any:
        size = (shape.batch, heads, rows + (9 if poison else 0), columns)
        tensor = torch.randn(size, generator=generator, device="cuda", dtype=dtype)
        if poison:
            tensor[:, :, rows:] = float("nan")
        return tensor[:, :, :rows]

    q = draw(shape.heads, shape.nq, head)
    return [
        q, draw(shape.heads_kv, shape.nk, head), draw(shape.heads_kv, shape.nk, head_v(head)),
    ]  # fmt: skip


def reference(q: Any, k: Any, v: Any, scale: float, causal: bool, dtype: Any) -> tuple[Any, Any]:
    import torch

    group = q.shape[1] // k.shape[1]
    q, k, v = (t.to(dtype) for t in (q, k, v))
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = (q @ k.transpose(-2, -1)) * scale
    nq, nk = scores.shape[-2:]
    if causal:
        i = torch.arange(nq, device=q.device)[:, None]
        j = torch.arange(nk, device=q.device)[None, :]
        scores = scores.masked_fill(j > i + nk - nq, -math.inf)
    lse = torch.logsumexp(scores.double(), -1)
    weights = torch.softmax(scores, -1)
    weights = torch.where(lse[..., None] == -math.inf, torch.zeros_like(weights), weights)
    return weights @ v, lse


def check_one(kernel: Kernel, tensors: list[Any], shape: Shape, causal: bool) -> str:
    """'' when right, else what is wrong."""
    import torch

    q, k, v = tensors
    scale = 0.7 / math.sqrt(q.shape[-1])
    o = torch.full((*q.shape[:3], v.shape[-1]), float("nan"), device="cuda", dtype=q.dtype)
    lse = torch.full(q.shape[:3], float("nan"), device="cuda")
    kernel(q, k, v, o, lse, scale)
    torch.cuda.synchronize()
    first = o.clone(), lse.clone()
    for _ in range(4):
        o.fill_(float("nan"))
        lse.fill_(float("nan"))
        kernel(q, k, v, o, lse, scale)
        bits = [
            (t.view(torch.uint8), f.view(torch.uint8)) for t, f in zip((o, lse), first, strict=True)
        ]
        if not all(torch.equal(now, then) for now, then in bits):
            return "repeats differ"
    if o.numel() == 0:
        return ""
    worst = worst_eager = worst_lse = 0.0
    for b in range(q.shape[0]):
        group = q.shape[1] // k.shape[1]
        for h in range(k.shape[1]):
            heads = slice(h * group, (h + 1) * group)
            part = q[b : b + 1, heads], k[b : b + 1, h : h + 1], v[b : b + 1, h : h + 1]
            exact, exact_lse = reference(*part, scale, causal, torch.float64)
            eager, _ = reference(*part, scale, causal, q.dtype)
            ours, ours_lse = o[b : b + 1, heads], lse[b : b + 1, heads]
            if torch.isnan(ours).any() or torch.isnan(ours_lse).any():
                rows = torch.isnan(ours).any(-1).nonzero()[:2].tolist()
                return f"NaN in head {b},{h} rows {rows}"
            if not torch.equal(exact_lse == -math.inf, ours_lse == -math.inf):
                return "LSE is -inf for other rows"
            error = (ours.double() - exact).abs()
            worst = max(worst, error.max().item())
            worst_eager = max(worst_eager, (eager.double() - exact).abs().max().item())
            gap = torch.where(
                exact_lse == -math.inf, torch.zeros_like(exact_lse), ours_lse.double() - exact_lse
            )
            worst_lse = max(worst_lse, gap.abs().max().item())
    rounding = exact.abs().max().item() * (2**-9 if q.dtype == torch.bfloat16 else 2**-12)
    if worst > 2 * worst_eager + rounding:
        return f"O error {worst:.2e}, eager {worst_eager:.2e}"
    if worst_lse > 1e-3:
        return f"LSE error {worst_lse:.2e}"
    return ""


def check(library: str, element: str, head: int, causal: bool, plan: str) -> int:
    """One variant on every shape, in this process; prints what fails."""
    import torch

    kernel = Kernel(library)
    failures = 0
    for index, shape in enumerate(CHECKED):
        problem = check_one(kernel, inputs(shape, head, element, index), shape, causal)
        if problem:
            failures += 1
            print(f"{shape}: {problem}")
    shape = Shape(2, 4, 2, 300, 520)
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2)
               for t in inputs(shape, head, element, 99, poison=False))  # fmt: skip
    problem = check_one(kernel, [q, k, v], shape, causal)
    if problem:
        failures += 1
        print(f"{shape} strided: {problem}")
    for shape in timed_shapes(head, plan):  # it must also return on what will be timed
        q, k, v = inputs(shape, head, element, 7, poison=False)
        o = torch.full((*q.shape[:3], v.shape[-1]), float("nan"), device="cuda", dtype=q.dtype)
        lse = torch.full(q.shape[:3], float("nan"), device="cuda")
        kernel(q, k, v, o, lse, 1 / math.sqrt(head))
        torch.cuda.synchronize()
        if torch.isnan(o).any() or torch.isnan(lse).any():
            failures += 1
            print(f"{shape}: NaN")
        tail = [q[:1, :1, -1024:], k[:1, :1], v[:1, :1]]
        exact, _ = reference(*tail, 1 / math.sqrt(head), causal, torch.float64)
        error = (o[:1, :1, -1024:].double() - exact).abs().max().item()
        if error > 4e-3:
            failures += 1
            print(f"{shape}: O error {error:.2e} in the last rows")
    return failures


def profiled(library: str, element: str, head: int) -> None:
    import torch

    shape = timed_shapes(head, "quick")[0]
    q, k, v = inputs(shape, head, element, 1, poison=False)
    o = torch.empty((*q.shape[:3], v.shape[-1]), device="cuda", dtype=q.dtype)
    lse = torch.empty(q.shape[:3], device="cuda")
    for _ in range(3):
        Kernel(library)(q, k, v, o, lse, 1 / math.sqrt(head))
    torch.cuda.synchronize()


def rivals(q: Any, k: Any, v: Any, causal: bool) -> dict[str, Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def sdpa(backend: Any) -> Any:
        def call() -> None:
            with sdpa_kernel(backend):
                torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
                )

        return call

    found = {}
    for name, backend in (
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
        ("fa2", SDPBackend.FLASH_ATTENTION),
    ):
        try:
            sdpa(backend)()
            torch.cuda.synchronize()
            found[name] = sdpa(backend)
        except RuntimeError:
            continue
    return found


def time_all(calls: dict[str, Any], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each call, interleaved, each from a cold L2."""
    import torch

    flush = torch.empty(128 * 1024 * 1024, dtype=torch.int32, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(repeats + 2):
        marks = []
        for name, call in calls.items():
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            marks.append((name, start, end))
        torch.cuda.synchronize()
        if round_ >= 2:
            for name, start, end in marks:
                times[name].append(start.elapsed_time(end))
    return times


def bench(builds: list[Build], plan: str, repeats: int, steady: float) -> list[dict[str, Any]]:
    import torch

    rows = []
    groups: dict[tuple[str, int, bool], list[Build]] = {}
    for item in builds:
        groups.setdefault((item.element, item.head, item.causal), []).append(item)
    for (element, head, causal), members in groups.items():
        for shape in timed_shapes(head, plan):
            q, k, v = inputs(shape, head, element, 1, poison=False)
            o = torch.empty((*q.shape[:3], v.shape[-1]), device="cuda", dtype=q.dtype)
            lse = torch.empty(q.shape[:3], device="cuda")
            calls = rivals(q, k, v, causal)
            for member in members:
                calls[member.variant] = partial(
                    Kernel(member.library), q, k, v, o, lse, 1 / math.sqrt(head)
                )
            flops = shape.flops(head, head_v(head), causal)
            for name, times in time_all(calls, repeats).items():
                median = statistics.median(times)
                spread = (max(times) - min(times)) / median
                rows.append({
                    "name": name, "element": element, "head": head, "causal": causal,
                    "shape": asdict(shape), "ms": median, "spread": spread,
                    "tflops": flops / median / 1e9,
                })  # fmt: skip
            print_group(rows[-len(calls) :])
            if steady and shape == timed_shapes(head, plan)[0]:
                for name, call in calls.items():
                    milliseconds, state = sustained(call, steady)
                    print(f"    {name}: steady {flops / milliseconds / 1e9:.0f} at {state}")
    return rows


def sustained(call: Any, seconds: float) -> tuple[float, str]:
    """Milliseconds per call over back-to-back calls, and clock and power towards their end."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    start.record()
    count = 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds / 2:
        for _ in range(8):
            call()
        count += 8
        torch.cuda.current_stream().synchronize()
    seen = subprocess.Popen(
        ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while seen.poll() is None or time.monotonic() - begin < seconds:
        for _ in range(8):
            call()
        count += 8
        torch.cuda.current_stream().synchronize()
    end.record()
    torch.cuda.synchronize()
    assert seen.stdout is not None
    return start.elapsed_time(end) / count, seen.stdout.read().strip()


def print_group(rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    shape = first["shape"]
    label = (
        f"D{first['head']} {first['element']} {'causal' if first['causal'] else 'full'} "
        f"B{shape['batch']} H{shape['heads']}/{shape['heads_kv']} S{shape['nq']}"
    )
    cells = "  ".join(f"{r['name']} {r['tflops']:.0f}" for r in rows)
    print(f"{label}: {cells}", flush=True)


def clocks() -> str:
    query = "--query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu"
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True
    )
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="128:base,128c:base",
                        help="comma list HEAD[c]:VARIANT[+VARIANT..][@ELEMENT]")  # fmt: skip
    parser.add_argument("--plan", choices=("quick", "full"), default="quick")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--steady",
        type=float,
        default=0,
        help="also run each for so many seconds and note clock and power",
    )
    parser.add_argument("--folder", type=Path, help="where to build (default: a fresh one)")
    parser.add_argument(
        "--run",
        nargs=4,
        metavar=("LIBRARY", "ELEMENT", "HEAD", "CAUSAL"),
        help="launch one library three times, for a profiler",
    )
    parser.add_argument("--limit", type=float, default=40, help="seconds for one variant's checks")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", nargs=4, metavar=("LIBRARY", "ELEMENT", "HEAD", "CAUSAL"),
                        help="check one library (the parent process does)")  # fmt: skip
    options = parser.parse_args()
    if options.check:
        library, element, head, causal = options.check
        return min(100, check(library, element, int(head), causal == "1", options.plan))

    if options.run:
        library, element, head, _ = options.run
        profiled(library, element, int(head))
        return 0

    wanted = []
    for case in options.cases.split(","):
        left, names = case.split(":")
        names, _, element = names.partition("@")
        causal = left.endswith("c")
        head = int(left.rstrip("c"))
        wanted += [(name, element or "bf16", head, causal) for name in names.split("+")]
    start = time.monotonic()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kernel_sm90_"))
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=12) as pool:
        builds = list(pool.map(lambda w: build(folder, *w), wanted))
    print(f"built {len(builds)} in {time.monotonic() - start:.0f} s; {clocks()}", flush=True)

    def checked(item: Build) -> str:
        command = [
            sys.executable, __file__, "--plan", options.plan, "--check", item.library,
            item.element, str(item.head), "1" if item.causal else "0",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
        except subprocess.TimeoutExpired:
            return f"no answer within {options.limit} s"
        if done.returncode == 0:
            return ""
        return (done.stdout + done.stderr[-600:]).strip() or f"exit {done.returncode}"

    good = []
    records: list[dict[str, Any]] = []
    with ThreadPoolExecutor(max_workers=6) as pool:
        verdicts = list(pool.map(lambda b: checked(b) if b.ok else "does not build", builds))
    for item, problem in zip(builds, verdicts, strict=True):
        print(f"{item.name}: {problem or 'ok'}; {item.remarks()}", flush=True)
        records.append({"build": item.name, "remarks": item.remarks(), "problem": problem})
        if not problem:
            good.append(item)
    print(f"checked at {time.monotonic() - start:.0f} s", flush=True)
    rows = bench(good, options.plan, options.repeats, options.steady)
    print(f"timed at {time.monotonic() - start:.0f} s; {clocks()}")
    if options.out:
        import torch

        options.out.write_text(json.dumps({
            "device": clocks(), "torch": torch.__version__, "builds": records, "rows": rows,
            "method": f"median of {options.repeats} interleaved repeats, cold L2, CUDA events",
            "flops": "2 (Dqk + Dv) B Hq kept pairs",
        }, indent=1))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
