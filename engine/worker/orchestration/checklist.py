"""The checks of G4: names, what each proves, and which of them a whole result must hold."""

from __future__ import annotations

from collections.abc import Mapping

# name -> what it proves; in the order of the report.
CHECKS: Mapping[str, str] = {
    "build": "nvcc compiles the kernel for this card",
    "accuracy": "every element of O obeys FlashAttention's rule, on flat and peaked logits",
    "lse": "every row's natural log-sum-exp equals the recipe's in float64",
    "recipe": "the recipe equals the spec's own function in float64, wherever it serves as oracle",
    "written": "outputs filled with NaN beforehand hold none afterwards",
    "guard bands": "no byte outside the outputs changes",
    "inputs": "no byte of an input changes",
    "empty rows": "rows that keep no key give O = 0, and LSE = -inf or the sink",
    "layouts": "the same numbers from any strides; a layout the kernel refuses leaves O untouched",
    "far offsets": "batches more than 2^31 elements apart are found",
    "keep sets": "V one-hot recovers exactly the spec's kept pairs",
    "independence": "what a row does not keep never moves it, bit for bit; what it keeps does",
    "rewritten inputs": "new values at old addresses give new results",
    "repeats": "20 launches give the same bits",
    "held lists": "with the tile lists of an earlier launch a launch gives the same bits",
    "stale lists": "tile lists are made anew, whatever the workspace held before a launch",
    "own kernels": "the profiler sees this kernel's launches and no others",
    "graph": "a launch captured in a CUDA graph gives a launch's bits, also after inputs changed",
    "memcheck": "compute-sanitizer finds no access out of bounds",
    "racecheck": "compute-sanitizer finds no shared-memory hazard",
    "timed outputs": "the timed calls' own outputs are right, and no faster than the card can be",
}
# May be "not run" where a tool or memory is missing or nothing was timed: they can fail a result,
# and that they did not run withholds none. But a result holds a row of each, and that says why.
OPTIONAL = (
    "far offsets", "held lists", "stale lists", "graph", "memcheck", "racecheck", "timed outputs",
)  # fmt: skip
# Judged on the primary specialisation only.
PRIMARY_ONLY = (
    "far offsets", "own kernels", "graph", "memcheck", "racecheck", "timed outputs",
)  # fmt: skip
# Of kernels that make tile lists only.
LISTS = ("held lists", "stale lists")
# Made by the run itself, after the verifying child: the others are that child's, but for `build`.
BY_RUN = ("memcheck", "racecheck", "timed outputs")

# What is not asked of someone else's launcher; its result holds a row that says so.
NOT_OF_THEIRS = ("layouts",)

# The decks of cases: rows of a verifying child name theirs (`deck`). The primary wants the whole.
WHOLE, SHORT = "whole", "short"

# What cannot be judged where no recipe could be read. Each must be in a result all the same, with
# the reason why it was not run; keep sets are judged where O is linear in V.
UNREAD = ("lse", "recipe", "keep sets")
BY_SPEC = "judged by the spec's function alone"
NO_RECIPE = "no rule reads this spec: its own function is the oracle"
NO_LSE = "compared with nothing: only a recipe says what a row's log-sum-exp is"
NO_LSE_OUTPUT = "the kernel gives no log-sum-exp"
UNCOUNTED = "kept pairs not counted"
ALL_PAIRS = "all pairs: no recipe says which are kept"  # in results of earlier versions
NOT_LINEAR = "O is not linear in V, so one-hot V shows no weights"

UNREACHED = "integers that no run reaches past"

REPEATS = 20
FEWEST = 4  # cases with keys that must have been compared where the function judges alone


def required(
    key: str, primary: str, softmax: bool, read: bool = True, theirs: bool = False
) -> tuple[str, ...]:
    """The checks that must have passed for specialisation `key`.

    `softmax` says whether there is an LSE to compare, `read` whether there is a recipe, `theirs`
    whether the launcher is someone else's.
    """
    return tuple(
        name
        for name in CHECKS
        if name not in OPTIONAL
        and (key == primary or name not in PRIMARY_ONLY)
        and (softmax or name != "lse")
        and (read or name not in UNREAD)
        and not (theirs and name in NOT_OF_THEIRS)
    )


def explained(
    key: str, primary: str, read: bool = True, lists: bool = True, theirs: bool = False
) -> tuple[str, ...]:
    """The checks of which a result must hold a row for `key`, if only to say why it was not run.

    `lists` says whether the kernel makes tile lists, `theirs` whether the launcher is someone
    else's.
    """
    return tuple(
        name
        for name in CHECKS
        if (name in OPTIONAL or (not read and name in UNREAD) or (theirs and name in NOT_OF_THEIRS))
        and (key == primary or name not in PRIMARY_ONLY)
        and (lists or name not in LISTS)
    )
