"""NaN where no row of a block keeps a key, and NaN where one does.

What lies beyond the range of keys that a block of rows keeps must not matter (a cache's tail, its
padding): K and V hold NaN there, and the block's rows come out as with numbers. What a row keeps
must matter: NaN in V at a kept key is NaN in O. Keys inside the range that a row does not keep are
left alone: in PyTorch 0 times NaN is NaN, and so it may be here.

Runs in the torch child only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Case, Tiles, in_turn
from engine.gates.runs.case_run import Row, execute, make_case
from engine.gates.runs.output_comparison import lse_equal, rows_equal
from engine.gates.runs.subject import Failure, Subject
from engine.spec.reference.oracle import Expected, expected, output_as_bhnd
from engine.transfer.inside import inside, outside_range, with_nan

MODE = "under mask"
PADDED = 6  # the turn in which ids have padding at their end
MAX_WIDE = 512  # the largest constant that is worth a run of a second


def run_under_mask(subject: Subject, case: Case, seed: int) -> tuple[Failure | None, Row]:
    """Blocks of rows beside NaN under the mask: the first, the last and, of those before it, the
    last one that has some in a tile that it visits; and NaN at a kept key."""
    row: Row = {"case": str(case), "mode": MODE}
    inputs, sizes = make_case(subject, case, seed)
    want = expected(subject.recipe, inputs)
    known = tiles_of(subject.module)
    at = known or Tiles(128, 64)
    pairs = inside(subject.recipe, want, inputs, listed=subject.binding.workspace is not None)
    # Where the text does not tell the rows of a block, all may be in one.
    rows = at.rows if known else max(case.Nq, 1)
    blocks = {n: slice(n, min(n + rows, case.Nq)) for n in range(0, max(case.Nq, 1), rows)}
    outsides = {
        n: outside_range(subject.recipe, pairs, sizes, block, inputs) for n, block in blocks.items()
    }
    last = max(blocks)
    shown = (n for n in sorted(blocks, reverse=True) if _in_visited(outsides[n], at.keys))
    hidden = 0
    for first in sorted({0, next((n for n in shown if n < last), 0), last}):
        block, outside = blocks[first], outsides[first]
        hidden += int(outside.sum())
        planted = with_nan(subject.recipe, inputs, outside, ("k", "v"))
        # K and V have no part in the lists of tiles.
        same = first != 0
        failure, out = execute(subject, case, planted, sizes, "exact", seed, same_lists=same)
        if failure is not None and not out:
            return failure, row
        wrong = _compared(subject, want, out, block)
        if wrong is not None:
            words = (
                f"NaN in K and V at keys that queries {block.start} to {block.stop - 1} do not "
                f"keep gets into their output: {wrong.reason}"
            )
            return replace(wrong, reason=words), row
    row["hidden"] = hidden
    return _kept_nan(subject, case, want, inputs, sizes, seed), row


def _in_visited(outside: Tensor, keys: int) -> bool:
    """Whether a tile of keys has some beyond the range ([B, Hkv, Nk]) and some inside it."""
    whole = outside.shape[-1] // keys * keys
    tiles = outside[..., :whole].reshape(*outside.shape[:-1], whole // keys, keys)
    rest = outside[..., whole:]
    mixed = tiles.any(-1) & ~tiles.all(-1)
    return bool(mixed.any()) or bool((rest.any(-1) & ~rest.all(-1)).any())


def _compared(
    subject: Subject, want: Expected, out: Mapping[str, Tensor], block: slice
) -> Failure | None:
    o = output_as_bhnd(subject.recipe, out["O"])[:, :, block]
    failure, _ = rows_equal(o, want.o[:, :, block], "O")
    if failure is None and want.lse is not None and "LSE" in out:
        failure, _ = lse_equal(out["LSE"][:, :, block], want.lse[:, :, block])
    return failure


def _kept_nan(
    subject: Subject, case: Case, want: Expected, inputs: Mapping[str, Any],
    sizes: Mapping[str, int], seed: int,
) -> Failure | None:  # fmt: skip
    """NaN at the key that most rows keep is NaN in all of them."""
    weighed = want.keep & (want.weights != 0)
    key = int(weighed.sum((0, 1, 2)).argmax())
    where = torch.zeros(sizes["B"], sizes["Hkv"], sizes["Nk"], dtype=torch.bool)
    where[..., key] = True
    planted = with_nan(subject.recipe, inputs, where, ("v",))
    failure, out = execute(subject, case, planted, sizes, "exact", seed, same_lists=True)
    if failure is not None and not out:
        return failure
    lost = weighed[..., key] & ~output_as_bhnd(subject.recipe, out["O"]).isnan().all(-1)
    if not bool(lost.any()):
        return None
    b, h, i = (int(x) for x in lost.nonzero()[0])
    return Failure(
        f"NaN in V at a kept pair is lost: b={b}, h={h}, i={i}, j={key}",
        counterexample={"b": b, "h": h, "i": i, "j": key},
    )


def under_mask_cases(tiles: Tiles | None, constants: Sequence[int] = ()) -> Iterator[Case]:
    """Two blocks of rows and the last tile of keys in part, in two batches: ids with padding at the
    end, and in runs (engine/spec/decks/integer_draws.py). Then all keys in the first tile, which a
    kernel may copy before its loop. Past a prefix or a window wider than a block there is a block
    whose own rows end its keys, and one behind it, which keys beyond the rows follow."""
    at = tiles or Tiles(128, 64)
    rows, keys = at.rows + 9, 2 * at.keys + 22
    # More keys than rows, or the first block may end its keys where a tile ends.
    yield Case(2, 1, 1, rows, max(rows + 5, keys), modes=(MODE,), turn=PADDED, slots=1)
    yield in_turn(rows, min(14, at.keys), modes=(MODE,), turn=PADDED)
    wide = max((c for c in constants if at.rows < c <= MAX_WIDE), default=0)
    if wide:
        n = (wide // at.rows + 2) * at.rows + 9
        yield in_turn(n, n + 5, modes=(MODE,), turn=PADDED, slots=1)
