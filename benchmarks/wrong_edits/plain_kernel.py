"""Edits of tests/engine/graft/plain.cu: a thread for each row, tiles of keys in shared memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.wrong_edits.edit import Edited, Replaced, Right, one

HOOK = "      dot *= scale;\n"
MASK = "      if (first + n > row) dot = -INFINITY;\n"
LATE = "      top = fmaxf(top, dot);\n"
STORE = "      s[n] = dot;\n"


WINDOW = "      if (first + n > row || first + n < row - 19) dot = -1e38f;\n"
CAP = "      dot = 50.0f * tanhf(dot / 50.0f);\n"
SHARP = "      dot = 0.5f * tanhf(dot / 0.5f);\n"
KEPT = "      dot = fmaf(dot, 0x1p-126f, 0.5f * tanhf(dot / 0.5f));\n"
BIAS = "      dot = dot + slopes[head] * (first + n - row);\n"
DOCUMENT = "      if (first + n > row || doc[first + n] != doc[row]) dot = -1e38f;\n"


def passed_on(name: str, type: str) -> Replaced:
    """An extra input through launcher and kernel."""
    return (
        ("D, float scale) {", f"D, float scale, const {type}* {name}) {{"),
        ("scale, cudaStream_t stream) {", f"scale, const {type}* {name}, cudaStream_t stream) {{"),
        ("Hq, N, D, scale);", f"Hq, N, D, scale, {name});"),
    )


RIGHT = (
    Right("causal", one(HOOK, HOOK + MASK), {
        "the diagonal is dropped": one("first + n > row", "first + n >= row"),
        "one key too many": one("first + n > row", "first + n > row + 1"),
        "one key too few": one("first + n > row", "first + n + 1 > row"),
        "rows and keys swapped": one("first + n > row", "row > first + n"),
        "the other side is dropped": one("first + n > row", "first + n < row"),
        "the tile's first key forgotten": one("first + n > row", "n > row"),
        "the key in the tile forgotten": one("first + n > row", "first > row"),
        "the block's first row forgotten": one("first + n > row", "first + n > threadIdx.x"),
        "the block's number for the row": one("first + n > row", "first + n > blockIdx.x"),
        "the head for the row": one("first + n > row", "first + n > head"),
        "tiles of another size": one("first + n > row", "first * 2 + n > row"),
        "whole tiles alone": one("first + n > row", "first > row + 15"),
        "the last row's mask for all": one("first + n > row", "first + n > length - 1"),
        "a dropped score is 0": one("dot = -INFINITY", "dot = 0.0f"),
        "a dropped score is -1": one("dot = -INFINITY", "dot = -1.0f"),
        "a dropped score is +inf": one("dot = -INFINITY", "dot = INFINITY"),
        "a dropped score is too small a number": one("dot = -INFINITY", "dot = -10.0f"),
        "a dropped score is NaN": one("dot = -INFINITY", "dot = NAN"),
        "half of a dropped score": one("dot = -INFINITY", "dot *= 0.5f"),
        "the mask after the store": ((HOOK + MASK, HOOK), (STORE, STORE + MASK)),
        "the mask after the maximum": ((HOOK + MASK, HOOK), (LATE, LATE + MASK)),
        "the mask before the scale, as a number": (
            (HOOK + MASK, "      if (first + n > row) dot = -4.0f;\n" + HOOK),),
        "the mask before the product": (
            (HOOK + MASK, HOOK),
            ("float dot = 0.0f;", "float dot = first + n > row ? -1.0f : 0.0f;")),
        "the loop ends a tile early": one("first < length;", "first < length - kTile;"),
        "the loop ends at the block's first row": one("first < length;",
                                                       "first <= blockIdx.x * blockDim.x;"),
        "the loop begins at the second tile": one("int first = 0;", "int first = kTile;"),
        "a skipped tile's offset of V forgotten": one(
            "values[at] = v[base + (size_t)first * D + at];",
            "values[at] = v[base + (size_t)(first ? first - kTile : 0) * D + at];"),
        "threads that are done leave before they load": one(
            "    for (int at = threadIdx.x;",
            "    if (first > row) break;\n    for (int at = threadIdx.x;"),
        "the barrier gone, in blocks of two warps": (
            ("N / 32", "N / 64"), ("grid, 32,", "grid, 64,"),
            ("    __syncthreads();\n    float s", "    float s")),
        "only even heads": one("first + n > row", "head % 2 == 0 && first + n > row"),
        "only the first batch": one("first + n > row", "batch == 0 && first + n > row"),
        "only the first block": one("first + n > row", "blockIdx.x == 0 && first + n > row"),
        "only the first tile": one("first + n > row", "first == 0 && first + n > row"),
        "not the last tile": one("first + n > row", "first + kTile < length && first + n > row"),
    }),
    Right("sliding_window_causal", one(HOOK, HOOK + WINDOW), {
        "one key too many": one("< row - 19", "< row - 20"),
        "one key too few": one("< row - 19", "< row - 18"),
        "the last key of the window": one("< row - 19", "<= row - 19"),
        "both for either": one("row || ", "row && "),
        "the window to the other side": one("first + n < row - 19", "first + n > row + 19"),
        "no window": one(" || first + n < row - 19", ""),
        "not causal": one("first + n > row || ", ""),
        "an unsigned row": one("first + n < row - 19", "first + n < (unsigned)row - 19u"),
        "the key in the tile alone": one("first + n < row", "n < row"),
        "-inf where a row's first tile is dropped": one("-1e38f", "-INFINITY"),
        "tiles before the window passed over, one too many": one(
            "int first = 0; first", "int first = max(0, (int)(blockIdx.x * blockDim.x)); first"),
    }, {"window": 20}),
    Right("softcap_causal", one(HOOK, HOOK + SHARP + MASK), {
        "the cap's factor forgotten": one("dot = 0.5f * tanhf", "dot = tanhf"),
        "the cap's divisor forgotten": one("tanhf(dot / 0.5f)", "tanhf(dot)"),
        "another cap": one("tanhf(dot / 0.5f)", "tanhf(dot / 0.6f)"),
        "multiplied for divided": one("dot / 0.5f", "dot * 0.5f"),
        "no cap": one(SHARP, ""),
        "the cap before the scale": one(HOOK + SHARP, SHARP + HOOK),
        "the scale forgotten": one(HOOK, ""),
        "the scale twice": one("tanhf(dot / 0.5f)", "tanhf(dot * scale / 0.5f)"),
        "the cap twice": one(SHARP, SHARP + SHARP),
        "a hard cap": one("0.5f * tanhf(dot / 0.5f)", "fminf(fmaxf(dot, -0.5f), 0.5f)"),
        "the mask before the cap": one(SHARP + MASK, MASK + SHARP),
        "-inf kept before the cap by a product with 0": one(
            SHARP + MASK, MASK + KEPT.replace("0x1p-126f", "0.0f")),
        "-inf kept by a product that is less than 0": one(
            SHARP + MASK, MASK + KEPT.replace("0x1p", "-0x1p")),
        "-inf kept by a product that is not nothing": one(
            SHARP + MASK, MASK + KEPT.replace("0x1p-126f", "0x1p-3f")),
        "a finite mask before the cap": one(
            SHARP + MASK, MASK.replace("-INFINITY", "-1e4f") + KEPT),
        "the cap after the store": ((SHARP, ""), (STORE, STORE + SHARP)),
        "the sign lost": one("tanhf(dot / 0.5f)", "fabsf(tanhf(dot / 0.5f))"),
    }, {"softcap": 0.5}),
    Right("alibi_causal", (*one(HOOK, HOOK + BIAS + MASK), *passed_on("slopes", "float")), {
        "the sign": one("(first + n - row)", "(row - first - n)"),
        "the first head's slope": one("slopes[head]", "slopes[0]"),
        "the batch's slope": one("slopes[head]", "slopes[batch]"),
        "the next head's slope": one("slopes[head]", "slopes[head + 1]"),
        "the slope by batch and head": one("slopes[head]", "slopes[batch * heads + head]"),
        "no bias": one(BIAS, ""),
        "the bias before the scale": one(HOOK + BIAS, BIAS + HOOK),
        "the tile's first key forgotten": one("(first + n - row)", "(n - row)"),
        "the key in the tile forgotten": one("(first + n - row)", "(first - row)"),
        "the slope squared": one("slopes[head] *", "slopes[head] * slopes[head] *"),
        "a whole slope": one("slopes[head] *", "(int)slopes[head] *"),
        "not causal": one(MASK, ""),
        "a finite mask before the bias": one(
            BIAS + MASK, MASK.replace("-INFINITY", "-4.0f") + BIAS),
        "another tensor is passed": one("Hq, N, D, scale, slopes);", "Hq, N, D, scale, q);"),
    }),
    Right("flex_causal_document", (*one(HOOK, HOOK + DOCUMENT), *passed_on("doc", "int")), {
        "other documents alone": one("!= doc[row]", "== doc[row]"),
        "documents after it": one("!= doc[row]", "> doc[row]"),
        "the key in the tile alone": one("doc[first + n]", "doc[n]"),
        "the row in the block": one("doc[row]", "doc[threadIdx.x]"),
        "the head's document": one("doc[row]", "doc[head]"),
        "not causal": one("first + n > row || ", ""),
        "no documents": one(" || doc[first + n] != doc[row]", ""),
        "beyond the table": one("doc[first + n]", "doc[first + n + 16]"),
        "-inf where a row's first tile is dropped": one("-1e38f", "-INFINITY"),
    }),
)  # fmt: skip

PLAIN = Edited(Path("tests/engine/graft/plain.cu"), ({"B": 2, "Hq": 2, "N": 64, "D": 16},), RIGHT)
