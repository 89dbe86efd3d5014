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
AHEAD = "a tile beyond the last is copied once more and read by nobody"

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
    (SM90, "launch", "constexpr bool OVERLAP = COLS != 128;", "relation: '!=' -> '=='",
     "the other of two right loops, which is slower here"),
    (SM90, "launch", "constexpr int STAGES = 2;", "off by one: '2' -> '1'",
     "one stage is right where nothing of the tile before is still read, and slower"),
    (SM90, "flash_fwd", "raise_registers<HIGH>();", "statement order: "
     "'raise_registers<HIGH>();\\n    const int group = wg - 1;' -> "
     "'const int group = wg - 1;\\n    raise_registers<HIGH>();'",
     "a number is computed before registers are asked for"),
    (SM90, "launch", "const int works = ceil_div(args.Nq, BM) * args.Hq * args.B;",
     "twin: 'BM' -> 'BN'", "more blocks than pieces of work, which the kernel counts itself"),
)  # fmt: skip
"""Kernel, function, statement, operator with the change, and the reason. It excuses the change in
every statement of this text in the function, and no other place."""


def reason_for(
    kernel: str, function: str, statement: str, operator: str, change: str
) -> str | None:
    """Why this fault is none; None where nobody has said."""
    key = (kernel, function, statement, f"{operator}: {change}")
    return next((why for *place, why in REVIEWED if tuple(place) == key), None)
