"""Mutants that the gates are right to pass, and why, where neither PTX nor a proof says so."""

from __future__ import annotations

SM80, SM90 = "flash_fwd_sm80", "flash_fwd_sm90"
INVERSE = (
    "const auto inverse = map(l, [&](float sum) { return sum == 0.0f ? 0.0f : rcp_approx(sum); });"
)
LSE = (
    "const auto lse = map(m, l, [&](float top, float sum) "
    "{ return sum == 0.0f ? -INFINITY : top * args.scale + log(sum); });"
)
ZERO = "float: '0.0f' -> '0.5f'"
NOTHING_KEPT = "what a row without weights is multiplied by: its sums are 0"
SUMS = "a sum of weights is 0 or at least 1, and at 0 the other side is -inf too"
MORE_BLOCKS = "more blocks than pieces of work, which the kernel counts itself"
AHEAD = "a tile beyond the last is copied once more and read by nobody"

SUBTRACTED = "m_ok = map(m, lambda x: 0.0 if x == -inf else x)"
DIAGONAL = "s = keep(s, lambda i, j: j < args.Nk and j <= i + offset, at=[q0, n * BN])"
BLOCKWISE = (
    "end = max(min(args.Nk, q0 + BM + args.Nk - args.Nq) if floor_div(args.Nk - 1, 512) - "
    "floor_div(min(q0 + BM, args.Nq) - 1 + args.Nk - args.Nq, 512) <= 0 and floor_div(args.Nk - 1, "
    "512) - floor_div(q0 + args.Nk - args.Nq, 512) >= 0 else 0, min(min(args.Nk, q0 + BM + args.Nk "
    "- args.Nq), floor_div(min(q0 + BM, args.Nq) + args.Nk - args.Nq - 1, 512) * 512 + 512))"
)
LAST = "min(q0 + BM, args.Nq) + args.Nk - args.Nq"
SAME_BLOCK = "floor_div(args.Nk - 1, 512) - floor_div(min(q0 + BM, args.Nq) - 1 + args.Nk - args.Nq"
ENDS_EARLIER = "the last row's own key is the nearer bound, whatever the end of that key's block"
ROOM = "what a view is called only bounds it, and with room for one tile's bits all is inside"

WHOLE = "if not tile_full[BM, BN](args, b, h, q0, n):"
SAME_DOCUMENT = (
    "keep(s, {}, lambda doc_k_keys, doc_q_rows, i, j: j < args.Nk and doc_k_keys == doc_q_rows, "
    "at=[row0, n * BN])"
)


def view_of_lists(header: int) -> str:
    """The statement by which a target that makes tile lists has them."""
    row = f"{header} + 3 * ceil_div(args.Nk, BN) + 4 * BM * args.slots"
    return f"lists = gmem[i32](args.lists, args.B, ceil_div(args.Nq, BM), {row})"


REVIEWED: tuple[tuple[str, str, str, str, str], ...] = (
    # The sources.
    (SM80, "flash_fwd", INVERSE, ZERO, NOTHING_KEPT),
    (SM90, "flash_fwd", INVERSE, ZERO, NOTHING_KEPT),
    (SM80, "flash_fwd", LSE, ZERO, SUMS),
    (SM90, "flash_fwd", LSE, ZERO, SUMS),
    (SM80, "flash_fwd", "if (ahead < tiles) {", "relation: '<' -> '<='", AHEAD),
    (SM90, "flash_fwd", "if (lead < end) {", "relation: '<' -> '<='",
     "it stands where there are tiles, and none is passed over in the source"),
    (SM90, "flash_fwd", "mma_wait<0>();",
     "doubled statement: 'mma_wait<0>();' -> 'mma_wait<0>(); mma_wait<0>();'",
     "nothing is left to wait for"),
    *((SM90, "launch", "constexpr bool OVERLAP = COLS != 128;", change,
       "the other of two right loops, which is slower here")
      for change in ("relation: '!=' -> '=='", "off by one: '128' -> '127'")),
    (SM90, "launch", "constexpr int STAGES = 2;", "off by one: '2' -> '1'",
     "one stage is right where nothing of the tile before is still read, and slower"),
    (SM90, "flash_fwd", "raise_registers<HIGH>();", "statement order: "
     "'raise_registers<HIGH>();\\n    const int group = wg - 1;' -> "
     "'const int group = wg - 1;\\n    raise_registers<HIGH>();'",
     "a number is computed before registers are asked for"),
    (SM90, "launch", "const int works = ceil_div(args.Nq, BM) * args.Hq * args.B;",
     "twin: 'BM' -> 'BN'", MORE_BLOCKS),
    (SM90, "flash_fwd", "mma_fence();", "missing statement: 'mma_fence();' -> ''",
     "the fence before the scores' matmul is behind all that writes what this one reads"),
    (SM90, "flash_fwd", "mma_commit();",
     "doubled statement: 'mma_commit();' -> 'mma_commit(); mma_commit();'",
     "a group without matmuls is complete, and those before it are waited for as ever"),
    (SM90, "flash_fwd", "const int stage_before = (load + STAGES - 1) % STAGES;",
     "arithmetic: '-' -> '+'", "of two stages the one before is the one after"),
    # The targets.
    (SM80, "flash_fwd", "if ahead < tiles:", "relation: 'ahead < tiles' -> 'ahead <= tiles'",
     AHEAD),
    *((kernel, "flash_fwd", SUBTRACTED, "constant: '0.0' -> '0.5'",
       "from -inf alone any number may be taken") for kernel in (SM80, SM90)),
    (SM80, "flash_fwd", DIAGONAL, "relation: 'j < args.Nk' -> 'j <= args.Nk'",
     "each row's own key is before the last, and keys behind it are no row's"),
    (SM80, "flash_fwd", BLOCKWISE, f"arithmetic: '{LAST} - 1' -> '{LAST} + 1'", ENDS_EARLIER),
    (SM80, "flash_fwd", BLOCKWISE,
     f"function: 'floor_div({LAST} - 1, 512)' -> 'ceil_div({LAST} - 1, 512)'", ENDS_EARLIER),
    (SM80, "flash_fwd", BLOCKWISE,
     f"relation: '{SAME_BLOCK}, 512) <= 0' -> '{SAME_BLOCK}, 512) < 0'", ENDS_EARLIER),
    (SM80, "flash_fwd", "end = min(min(args.Nk, q0 + BM), args.Nq)", "function: "
     "'min(min(args.Nk, q0 + BM), args.Nq)' -> 'max(min(args.Nk, q0 + BM), args.Nq)'",
     "of 64 columns a block of rows ends where a tile of keys does"),
    (SM80, "flash_fwd", "if stage < tiles:", "unconditional: 'if stage < tiles:' -> 'first = "
     "tile_index[BM, BN](args, b, h, q0, stage); copy_async(sK[stage], K[b, h_kv, first * BN:]); "
     "copy_async_rows(sV[stage], V[b, h_kv, first * BN:], begin, end)'",
     "each row keeps its own key, so that each block has a tile"),
    (SM90, "flash_fwd", "named_sync(wg, 256)",
     "function: 'named_sync(wg, 256)' -> 'named_arrive(wg, 256)'",
     "turns of warpgroups order no data, and a tile that is passed over needs none"),
    (SM90, "flash_fwd", "if slot >= 0:", "off by one: '0' -> '1'",
     "a mask whose bits are kept is computed anew"),
    *((SM90, "launch", blocks, "function: 'min(works, sm_count())' -> 'max(works, sm_count())'",
       MORE_BLOCKS) for blocks in ("blocks = min(works, sm_count())",
                                   "blocks = max(min(works, sm_count()), ceil_div(works, 2))")),
    (SM90, "prepare_k",
     "ready = map(row, cos_input_tile, row_2, sin_input_tile, lambda x, cos_input_at, x_2, "
     "sin_input_at, i, j: x * cos_input_at + (-x_2 if j < D // 2 else x_2) * sin_input_at, "
     "at=[row0, 0])", "name: 'row0' -> 'b'", "the row's number is not read"),
    (SM80, "list_tiles", view_of_lists(4),
     "function: 'ceil_div(args.Nk, BN)' -> 'floor_div(args.Nk, BN)'", ROOM),
    (SM80, "tile_index", view_of_lists(4), "off by one: '4' -> '3'", ROOM),
    (SM90, "class_tiles", view_of_lists(5), "arithmetic: '4 * BM' -> '4 // BM'", ROOM),
    (SM90, "tile_index", view_of_lists(5), "off by one: '4' -> '5'", ROOM),
    (SM90, "tile_index", view_of_lists(5),
     "swapped operands: 'ceil_div(args.Nk, BN)' -> 'ceil_div(BN, args.Nk)'", ROOM),
    (SM80, "flash_fwd", WHOLE, f"negation: '{WHOLE}' -> '{WHOLE.replace('not', 'not not')}'",
     "weights without a sum, of keys behind the last, meet rows of V that are zeros"),
    (SM90, "flash_fwd", f"s = {SAME_DOCUMENT.format('doc_k_keys, doc_q_rows')}",
     f"swapped operands: '{SAME_DOCUMENT.format('doc_k_keys, doc_q_rows')}' -> "
     f"'{SAME_DOCUMENT.format('doc_q_rows, doc_k_keys')}'", "either is compared with the other"),
    (SM90, "flash_fwd", "wait(q_full[group], round % 2)", "off by one: '2' -> '3'",
     "a block takes two pieces of work at most"),
    (SM90, "tile_count", view_of_lists(5), "dropped term: '5 + 3 * ceil_div(args.Nk, BN) + "
     "4 * BM * args.slots' -> '4 * BM * args.slots'", ROOM),
)  # fmt: skip
"""Kernel, function, statement, operator with the change, and the reason. It excuses the change in
every statement of this text in the function, and no other place."""


def reason_for(
    kernel: str, function: str, statement: str, operator: str, change: str
) -> str | None:
    """Why this fault is none; None where nobody has said."""
    key = (kernel, function, statement, f"{operator}: {change}")
    return next((why for *place, why in REVIEWED if tuple(place) == key), None)
