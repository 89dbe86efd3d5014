"""Edits of tests/engine/ptx/kernels/mma.cu: accumulators of mma in register arrays, keys in two
stages of cp.async, scores in units of log2(e), lengths that end anywhere."""

from __future__ import annotations

from pathlib import Path

from benchmarks.wrong_edits.edit import Edited, Replaced, Right, one

SCALED = "          s[n][2 * r + j] = key < keys ? s[n][2 * r + j] * scale : -INFINITY;\n"
HIGH = "          high = fmaxf(high, s[n][2 * r + j]);\n"
START = "      float high = most[r];\n"
ROW = START + "      const int row = first + warp * 16 + lane / 4 + 8 * r;\n"
SUM = "    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);\n"
GUARD = "    if (most[r] < -1e30f) sum[r] = INFINITY;\n"
TILES = "  const int tiles = (keys + kKeys - 1) / kKeys;\n"
LOOP = "for (int tile = 0; tile < tiles; tile++)"
CAUSAL = "          if (key > row + keys - rows) s[n][2 * r + j] = -1e38f;\n"
LAST = "key > row + keys - rows"
# No tile after the last key of the block's last row; one at least, since the first is loaded.
FEWER = (
    "  const int upto = max(first + kRows + keys - rows, 1);\n"
    "  const int tiles = min((keys + kKeys - 1) / kKeys, (upto + kKeys - 1) / kKeys);\n"
)
WINDOW = (
    "          if (key > row + keys - rows || key < row + keys - rows - 19)\n"
    "            s[n][2 * r + j] = -1e38f;\n"
)
BEGIN = "  const int begin = min(max((first + keys - rows - 19) / kKeys, 0), tiles - 1);\n"
NEAR = "          if (key > row + keys - rows + 19 || key < row + keys - rows - 19)\n"
CAP = (
    "          s[n][2 * r + j] =\n"
    "              0.5f * 1.44269504f * tanhf(s[n][2 * r + j] * 0.693147181f / 0.5f);\n"
)
BIAS = "          s[n][2 * r + j] += slopes[head] * (key - row - keys + rows) * 1.44269504f;\n"
MASKED = ((START, ROW), (SUM, GUARD + SUM))


def passed_on(name: str, type: str) -> Replaced:
    """An extra input through launcher and kernel."""
    return (
        ("int sharing, float scale) {", f"int sharing, float scale, const {type}* {name}) {{"),
        (" int Nk, float scale) {", f" int Nk, float scale, const {type}* {name}) {{"),
        ("scale * 1.44269504f);", f"scale * 1.44269504f, {name});"),
    )  # fmt: skip


RIGHT = (
    Right("causal", (*MASKED, (SCALED, SCALED + CAUSAL), (TILES, FEWER)), {
        "the diagonal is dropped": one(LAST, "key >= row + keys - rows"),
        "one key too many": one(LAST, "key > row + 1 + keys - rows"),
        "one key too few": one(LAST, "key + 1 > row + keys - rows"),
        "rows and keys swapped": one(LAST, "row + keys - rows > key"),
        "the lengths' difference forgotten": one(LAST, "key > row"),
        "the lengths' difference reversed": one(LAST, "key > row + rows - keys"),
        "the tile's first key forgotten": one(LAST, "key - tile * kKeys > row + keys - rows"),
        "the lane's keys forgotten": one(LAST, "tile * kKeys + n * 8 + j > row + keys - rows"),
        "the eight keys of a product forgotten": one(
            LAST, "tile * kKeys + lane % 4 * 2 + j > row + keys - rows"),
        "the element's key forgotten": one(LAST, "key - j > row + keys - rows"),
        "the warp's rows forgotten": one("row = first + warp * 16 +", "row = first +"),
        "the block's rows forgotten": one("row = first + warp", "row = warp"),
        "the accumulator's second row forgotten": one("lane / 4 + 8 * r;\n#", "lane / 4;\n#"),
        "the second row seven below": one("lane / 4 + 8 * r;\n#", "lane / 4 + 7 * r;\n#"),
        "lanes of rows and of keys swapped": one(
            "warp * 16 + lane / 4 + 8 * r;\n#", "warp * 16 + lane % 4 * 2 + 8 * r;\n#"),
        "warps of 32 rows": one("row = first + warp * 16 +", "row = first + warp * 32 +"),
        "a dropped score is 0": one("= -1e38f", "= 0.0f"),
        "a dropped score is -1": one("= -1e38f", "= -1.0f"),
        "a dropped score is +inf": one("= -1e38f", "= INFINITY"),
        "a dropped score is too small a number": one("= -1e38f", "= -20.0f"),
        "-inf where a row keeps no key": one("= -1e38f", "= -INFINITY"),
        "the mask after the maximum": ((SCALED + CAUSAL, SCALED), (HIGH, HIGH + CAUSAL)),
        "the mask before the scale, as a number": (
            (SCALED + CAUSAL, CAUSAL.replace("-1e38f", "-8.0f") + SCALED),),
        "the guard of rows without a key forgotten": one(GUARD, ""),
        "the guard divides by 0": one("sum[r] = INFINITY", "sum[r] = 0.0f"),
        "the guard divides by 1": one("sum[r] = INFINITY", "sum[r] = 1.0f"),
        "the guard for all rows": one("if (most[r] < -1e30f) ", ""),
        "the guard of the other rows": one("most[r] < -1e30f", "most[r] > -1e30f"),
        "the guard of the first row alone": one("most[r] < -1e30f", "most[0] < -1e30f"),
        "the guard where nothing was seen": one("most[r] < -1e30f", "most[r] == -INFINITY"),
        "an unsigned bound": one(LAST, "key > (unsigned)(row + keys - rows)"),
        "unsigned lengths": one(LAST, "key > row + (keys - (unsigned)rows) * 1ull"),
        "only even heads": one(LAST, f"head % 2 == 0 && {LAST}"),
        "only the first batch": one(LAST, f"batch == 0 && {LAST}"),
        "only the first block": one(LAST, f"blockIdx.x == 0 && {LAST}"),
        "only the first warp": one(LAST, f"warp == 0 && {LAST}"),
        "only half of the lanes": one(LAST, f"lane < 16 && {LAST}"),
        "only the accumulator's first row": one(LAST, f"r == 0 && {LAST}"),
        "only the first tile": one(LAST, f"tile == 0 && {LAST}"),
        "not the last tile": one(LAST, f"tile + 1 < tiles && {LAST}"),
        "the loop ends a tile early": one("tile < tiles; tile++", "tile < tiles - 1; tile++"),
        "tiles up to the block's first row": one("max(first + kRows +", "max(first +"),
        "tiles without the lengths' difference": one("kRows + keys - rows, 1", "kRows, 1"),
        "tiles with the difference reversed": one("kRows + keys - rows", "kRows + rows - keys"),
        "tiles rounded down": one("(upto + kKeys - 1) / kKeys", "max(upto / kKeys, 1)"),
        "tiles skipped, no mask": one(CAUSAL, ""),
        "a stage is loaded too late": one("wait_group 1;", "wait_group 2;"),
        "the barrier after a tile gone": one("    __syncthreads();\n  }\n", "  }\n"),
    }),
    Right("sliding_window_causal", (
        *MASKED, (SCALED, SCALED + WINDOW), (TILES, FEWER + BEGIN),
        ("  load(0);", "  load(begin);"),
        (LOOP, LOOP.replace("tile = 0", "tile = begin"))), {
        "one key too many": one("rows - 19)\n", "rows - 20)\n"),
        "one key too few": one("rows - 19)\n", "rows - 18)\n"),
        "the last key of the window": one("|| key < row", "|| key <= row"),
        "both for either": one("rows || key", "rows && key"),
        "an unsigned bound": one("key < row + keys", "key < (unsigned)row + keys"),
        "the window without the lengths' difference": one("key < row + keys - rows - 19",
                                                          "key < row - 19"),
        "-inf where a row's first tile is dropped": one("= -1e38f", "= -INFINITY"),
        "V of skipped tiles": one("v + place * kD", "v + (place - begin * kKeys) * kD"),
        "K of skipped tiles": one("k + place * kD", "k + (place - begin * kKeys) * kD"),
        "the first tile is loaded for the window's": one("  load(begin);", "  load(0);"),
        "keys from the window's first tile": one("int key = tile * kKeys + n * 8 +",
                                                 "int key = (tile - begin) * kKeys + n * 8 +"),
        "V from the other stage": one("&sv[tile & 1][(c *", "&sv[(tile - begin + 1) & 1][(c *"),
        "K from the other stage": one("&sk[tile & 1][(n *", "&sk[(tile + 1) & 1][(n *"),
        "stages counted from the window, loaded from 0": one("&sv[tile & 1][(c *",
                                                             "&sv[(tile - begin) & 1][(c *"),
        "a tile skipped too many": one("rows - 19) / kKeys", "rows - 19 + kKeys - 1) / kKeys"),
        "skipped up to the diagonal": one("(first + keys - rows - 19) /",
                                          "(first + keys - rows) /"),
        "skipped for the block's last row": one("max((first + keys", "max((first + kRows + keys"),
    }, {"window": 20}),
    Right("sliding_window", (
        *MASKED, (SCALED, SCALED + NEAR + WINDOW.split("\n", 1)[1])), {
        "the tail is kept": one("key < keys ? s", "key < keys + kKeys ? s"),
        "one key of the tail": one("key < keys ? s", "key <= keys ? s"),
        "the tail is 0": one(": -INFINITY;", ": 0.0f;"),
        "the tail ends before the last key": one("key < keys ? s", "key + 1 < keys ? s"),
        "the tail by the other length": one("key < keys ? s", "key < rows ? s"),
        "one key more above": one("rows + 19 ||", "rows + 20 ||"),
        "one key less below": one("rows - 19)\n", "rows - 18)\n"),
        "the window to one side": one(" || key < row + keys - rows - 19", ""),
        "the distance of batches": one("key > row + keys", "key > batch + keys"),
    }, {"left": 19, "right": 19}),
    Right("softcap_causal", (*MASKED, (SCALED, SCALED + CAP + CAUSAL)), {
        "the cap of scores in units of log2(e)": one("* 0.693147181f / 0.5f", "/ 0.5f"),
        "log2(e) forgotten after it": one("0.5f * 1.44269504f * tanhf", "0.5f * tanhf"),
        "log2(e) twice": one("0.5f * 1.44269504f *", "0.5f * 1.44269504f * 1.44269504f *"),
        "the cap's divisor forgotten": one("0.693147181f / 0.5f", "0.693147181f"),
        "another cap": one("0.693147181f / 0.5f", "0.693147181f / 0.6f"),
        "the cap before the scale": one(SCALED + CAP, CAP + SCALED),
        "the mask before the cap": one(CAP + CAUSAL, CAUSAL + CAP),
        "no cap": one(CAP, ""),
    }, {"softcap": 0.5}),
    Right("alibi_causal", (
        *MASKED, (SCALED, SCALED + BIAS + CAUSAL), *passed_on("slopes", "float")), {
        "the sign": one("(key - row - keys + rows)", "(row + keys - rows - key)"),
        "log2(e) forgotten": one("+ rows) * 1.44269504f", "+ rows)"),
        "the first head's slope": one("slopes[head]", "slopes[0]"),
        "the slope of the keys' head": one("slopes[head]", "slopes[head / sharing]"),
        "the next head's slope": one("slopes[head]", "slopes[head + 1]"),
        "the tile's first key forgotten": one("(key - row -", "(key - tile * kKeys - row -"),
        "no bias": one(BIAS, ""),
        "a whole slope": one("slopes[head] *", "(int)slopes[head] *"),
        "another tensor is passed": one("scale * 1.44269504f, slopes);",
                                        "scale * 1.44269504f, o);"),
    }),
)  # fmt: skip

MMA = Edited(
    Path("tests/engine/ptx/kernels/mma.cu"),
    ({"B": 2, "Hq": 2, "Hkv": 1, "Nq": 72, "Nk": 142, "D": 64},
     {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 100, "Nk": 72, "D": 64}),
    RIGHT,
    one('extern "C" ', ""),  # names as a C++ source of others has them
)  # fmt: skip
