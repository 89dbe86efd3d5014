"""Wrong edits of a kernel that is executed as PTX: does a gate tell each from the right one?

    python benchmarks/wild_edits.py [SPEC ...]

A plain kernel of ours (tests/engine/graft/plain.cu) carries four specs by right edits, which must
pass; each wrong one changes a few characters of one, as a hand that slips would, and must fail.
Writes benchmarks/results/wild_edits.json: every edit, the gate's words, and how many passed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.child.client import Child
from engine.errors import InputError
from engine.foreign.check import Asked
from engine.foreign.compile import Flags
from engine.graft.judge import judge_run

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tests" / "engine" / "graft" / "plain.cu"
RESULTS = ROOT / "benchmarks" / "results" / "wild_edits.json"
RIGHT_ONE = "the right one"
SPECS = ROOT / "kernels" / "specs"
SIZES = ({"B": 2, "Hq": 2, "N": 64, "D": 16},)
HOOK = "      dot *= scale;\n"
MASK = "      if (first + n > row) dot = -INFINITY;\n"
LATE = "      top = fmaxf(top, dot);\n"
STORE = "      s[n] = dot;\n"


@dataclass(frozen=True, slots=True)
class Right:
    """The right edit: what is replaced by what in the source, for a spec with its options; and
    wrong ones by name, as replacements in the edited source."""

    spec: str
    edits: tuple[tuple[str, str], ...]
    wrong: Mapping[str, tuple[tuple[str, str], ...]]
    options: Mapping[str, Any] = field(default_factory=dict)


def one(old: str, new: str) -> tuple[tuple[str, str], ...]:
    return ((old, new),)


WINDOW = "      if (first + n > row || first + n < row - 19) dot = -1e38f;\n"
CAP = "      dot = 50.0f * tanhf(dot / 50.0f);\n"
SHARP = "      dot = 0.5f * tanhf(dot / 0.5f);\n"
BIAS = "      dot = dot + slopes[head] * (first + n - row);\n"
DOCUMENT = "      if (first + n > row || doc[first + n] != doc[row]) dot = -1e38f;\n"


def passed_on(name: str, type: str) -> tuple[tuple[str, str], ...]:
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


def sources(right: Right) -> Iterator[tuple[str, str]]:
    """The right source under the name "", then each wrong one."""
    text = SOURCE.read_text(encoding="utf-8")
    good = replaced(text, right.edits)
    yield "", good
    for name, edits in right.wrong.items():
        yield name, replaced(good, edits)


def replaced(text: str, edits: tuple[tuple[str, str], ...]) -> str:
    for old, new in edits:
        if old not in text:
            raise ValueError(f"the source has no {old!r}")
        text = text.replace(old, new, 1)
    return text


def judge(right: Right, text: str, child: Child, folder: Path) -> tuple[bool, str]:
    """Whether it passes, and the gate's words."""
    source = folder / "plain.cu"
    source.write_text(text, encoding="utf-8")
    asked = Asked(source, Flags("sm_80"), reference=SPECS / f"{right.spec}.py", sizes=SIZES,
                  options=right.options)  # fmt: skip
    try:
        found = judge_run(asked, child, lambda text: None).found
    except InputError as error:
        return False, error.message
    return found.ok, found.reason.replace(str(source), source.name)


def main() -> int:
    chosen = sys.argv[1:]
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "{}"
    rows: dict[str, dict[str, Any]] = json.loads(text).get("edits", {})
    bad = 0
    with tempfile.TemporaryDirectory() as name, Child() as child:
        for right in RIGHT:
            if chosen and right.spec not in chosen:
                continue
            for wrong, source in sources(right):
                passed, words = judge(right, source, child, Path(name))
                bad += passed == bool(wrong)
                key = f"{right.spec}: {wrong or RIGHT_ONE}"
                rows[key] = {"wrong": bool(wrong), "passed": passed, "said": words}
                print("BAD" if passed == bool(wrong) else "ok ", key, words, flush=True)
                RESULTS.write_text(summed(rows), encoding="utf-8")
    return 1 if bad else 0


def summed(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """All edits with what there is of them."""
    found = {
        "wrong edits": sum(r["wrong"] for r in rows.values()),
        "wrong passes": sum(r["wrong"] and r["passed"] for r in rows.values()),
        "right edits refused": sum(not r["wrong"] and not r["passed"] for r in rows.values()),
        "edits": rows,
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
