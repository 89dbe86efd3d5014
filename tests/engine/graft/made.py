"""What probing finds of the kernels of these tests, without the time that it takes."""

from __future__ import annotations

from pathlib import Path

from engine.foreign.probe.places import Found, Hook, Loop, Meaning, Place

PLAIN = Path(__file__).with_name("plain.cu")
MMA = Path(__file__).parents[1] / "ptx" / "kernels" / "mma.cu"
ROW = "int(blockIdx.x) * 32"


def found(
    file: Path, function: str, sizes: dict[str, str], maxima: list[str], loop: Loop | None = None
) -> Found:
    place = Place(file, 0, 1, function, "x", 1, "x", {}, sizes, signed=tuple(sizes))
    meanings = tuple(Meaning("m", file, 1, m, "") for m in maxima)
    return Found((Hook((place,), 1, 1, 1, ""),), meanings, (loop,) if loop else (), ())


def plain(file: Path = PLAIN) -> Found:
    """Of plain.cu."""
    data = file.read_bytes()
    first, end = data.index(b"int first = 0;") + 12, data.index(b"first < length;") + 8
    line = data.count(b"\n", 0, end) + 1
    loop = Loop(
        file, line, "first", (first, first + 1), (end, end + 6), "<", 16, "first", 16, ROW, 32
    )
    return found(file, "attention", {"Nq": "length", "Nk": "length"}, ["top", "m"], loop)


def mma(file: Path = MMA) -> Found:
    """Of mma.cu."""
    data = file.read_bytes()
    end = data.index(b"tile < tiles; tile++") + 7
    first, line = end - 10, data.count(b"\n", 0, end) + 1
    loop = Loop(file, line, "tile", (first, first + 1), (end, end + 5), "<", 32, "tile * kKeys", 1,
                "first", 64)  # fmt: skip
    return found(file, "mma_attention", {"Nq": "rows", "Nk": "keys"}, ["high", "most[r]"], loop)
