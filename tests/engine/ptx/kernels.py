"""The small kernels beside this file: their PTX, and a run of each against its reference."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.foreign.numbers.expected import Attention
from engine.ptx.floats import from_half, to_half
from engine.ptx.isa.observe import Observer
from engine.ptx.launch import Launch, Outcome, run
from engine.ptx.memory import GLOBAL, HALF, WINDOW, Tensor
from engine.ptx.syntax import Module
from engine.ptx.tensor_maps import TensorMap, encode
from engine.ptx.text.parser import parse_module

Array = np.ndarray[Any, Any]

FOLDER = Path(__file__).parent / "kernels"
NAMES = ("mma", "wmma", "decode", "recurrence", "wgmma")
NVCC = shutil.which("nvcc")
ENTRIES = {"mma": "mma_attention", "wmma": "wmma_attention", "decode": "decode_attention",
           "recurrence": "recurrence", "wgmma": "wgmma_attention"}  # fmt: skip


def address(k: int) -> int:
    return GLOBAL + (k << WINDOW) + HALF


@lru_cache(maxsize=8)
def text_of(name: str) -> str:
    """The kernel's PTX, with the lines of its source."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernel.ptx"
        subprocess.run(
            [NVCC or "nvcc", "-ptx", "-arch=sm_90a", "-std=c++17", "-lineinfo", "-o", str(target),
             str(FOLDER / f"{name}.cu")], check=True)  # fmt: skip
        return target.read_text()


@lru_cache(maxsize=8)
def module_of(name: str) -> Module:
    return parse_module(text_of(name), name)


@dataclass(frozen=True)
class Made:
    """A launch, its tensors (the last one is the output), what the output has to be, and the
    numbers that lead to it where the kernel computes softmax attention."""

    launch: Launch
    tensors: list[Tensor]
    expected: Array
    bound: float
    numbers: Attention | None = None

    def error(self) -> float:
        """The largest difference to the reference; infinite for what is no number."""
        gap = self._gap()
        return float(np.where(np.isnan(gap), np.inf, gap).max())

    def wrong(self) -> tuple[Array, Array]:
        """Which elements of the output are wrong, and which are NaN, [1, heads or 1, rows, Dv]."""
        gap, known = self._gap(), self.tensors[-1].set
        unset = np.False_ if known is None else ~known.reshape(*gap.shape, -1).all(-1)
        some = ~(gap <= self.bound) | unset, np.isnan(gap)
        wrong, nans = (x.reshape(1, -1, *x.shape[-2:]) for x in some)
        return wrong, nans

    def _gap(self) -> Array:
        data = self.tensors[-1].data
        got = from_half(data, "bf16") if data.dtype == np.uint16 else data
        return np.abs(got.astype(np.float64).reshape(self.expected.shape) - self.expected)


def _attention(q: Array, k: Array, v: Array, scale: float) -> Attention:
    """Of rows and keys of one head; the scale is of scores in base 2."""
    x = q.astype(np.float64) @ k.astype(np.float64).T
    p = np.exp2((x - x.max(-1, keepdims=True)) * scale)
    out = p @ v.astype(np.float64) / p.sum(-1, keepdims=True)
    x, out = x[None, None], out[None, None]
    return Attention(x, x * scale * np.log(2), np.ones(x.shape, np.bool_), out)


def _halves(random: np.random.Generator, *shape: int) -> Array:
    return to_half(random.standard_normal(shape).astype(np.float32), "bf16")


def _block(count: int, rest: bytes) -> bytes:
    return b"".join(address(k).to_bytes(8, "little") for k in range(count)) + rest


def make(name: str) -> Made:
    """A small launch whose lengths end inside of tiles, where the kernel takes such."""
    random = np.random.default_rng(3)
    entry = ENTRIES[name]
    if name in ("mma", "wmma"):
        rows, keys, d, each = (100, 77, 64, 64) if name == "mma" else (40, 50, 32, 32)
        q, k, v = _halves(random, rows, d), _halves(random, keys, d), _halves(random, keys, d)
        out = np.zeros((rows, d), np.float32)
        scale = 0.15
        want = _attention(*(from_half(x, "bf16") for x in (q, k, v)), scale)
        threads, heads = (128, (1, 1)) if name == "mma" else (64, ())
        numbers = (rows, keys, *heads)
        launch = Launch(entry, (-(-rows // each), 1, 1), (threads, 1, 1), 0,
                        _block(4, struct.pack(f"<{len(numbers)}if", *numbers, scale)))  # fmt: skip
        tensors = [Tensor("q", q), Tensor("k", k), Tensor("v", v), Tensor.output("o", out)]
        return Made(launch, tensors, want.o[0, 0], 0.02, want)
    if name == "decode":
        heads, keys, pages = 2, 150, 12
        q = random.standard_normal((heads, 64)).astype(np.float32)
        k, v = (random.standard_normal((pages * 16, 64)).astype(np.float32) for _ in range(2))
        table = random.permutation(pages)[: -(-keys // 16)].astype(np.int32)
        index = (table[:, None] * 16 + np.arange(16)).reshape(-1)[:keys]
        out = np.zeros((heads, 64), np.float32)
        launch = Launch(entry, (heads, 1, 1), (128, 1, 1), 0,
                        _block(5, struct.pack("<if", keys, 0.2)))  # fmt: skip
        tensors = [Tensor("q", q), Tensor("k", k), Tensor("v", v), Tensor("pages", table),
                   Tensor.output("o", out)]  # fmt: skip
        want = _attention(q, k[index], v[index], 0.2)
        return Made(launch, tensors, want.o[0, 0], 1e-5, want)
    if name == "recurrence":
        heads, length = 2, 21
        q, k, v = (random.standard_normal((heads, length, 16)).astype(np.float32) for _ in range(3))
        out, rows = np.zeros_like(q), np.zeros(q.shape)
        for h in range(heads):
            state = np.zeros((16, 16))
            for t in range(length):
                state = state * 0.9 + np.outer(k[h, t], v[h, t])
                rows[h, t] = q[h, t] @ state
        launch = Launch(entry, (heads, 1, 1), (64, 1, 1), 0,
                        _block(4, struct.pack("<if", length, 0.9)))  # fmt: skip
        tensors = [Tensor("q", q), Tensor("k", k), Tensor("v", v), Tensor.output("o", out)]
        return Made(launch, tensors, rows, 1e-4)
    rows, keys = 128, 256
    q, k, v = _halves(random, rows, 64), _halves(random, keys, 64), _halves(random, keys, 64)
    out = np.zeros((rows, 64), np.uint16)
    maps = b"".join(
        encode(TensorMap(address(n), 2, (64, len(x)), (2, 128), (64, 64), 128), 9)
        for n, x in enumerate((q, k, v, out))
    )
    launch = Launch(entry, (rows // 64, 1, 1), (256, 1, 1), 5 * 8192,
                    maps + struct.pack("<if", keys // 64, 0.15))  # fmt: skip
    tensors = [Tensor("q", q), Tensor("k", k), Tensor("v", v), Tensor.output("o", out)]
    want = _attention(*(from_half(x, "bf16") for x in (q, k, v)), 0.15)
    return Made(launch, tensors, want.o[0, 0], 0.02, want)


def execute(
    name: str, module: Module, seed: int | None = None, most: int = 1_000_000,
    observer: Observer | None = None,
) -> tuple[Made, Outcome]:  # fmt: skip
    made = make(name)
    return made, run(module, made.launch, made.tensors, seed, most, observer)
