"""What the checks and the executor report, each at its op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engine.cuir.nodes import Path

# One line per kind: shown beside a finding, and the table of docs/cuir.md.
KINDS: Mapping[str, str] = MappingProxyType(
    {
        # text and types
        "unknown_name": "a name that nothing defines",
        "unknown_op": "a call that is no op, no scalar function and no device function",
        "arity": "an op with too few, too many or misnamed operands",
        "type_mismatch": "an operand of another kind, dtype or shape than the op takes",
        "layout_mismatch": "a register layout that the matrix instruction cannot take",
        "no_primitive": "operands that the op could take and no primitive of the headers does",
        "partial_sum": "a row sum used while every thread still holds only its share",
        "not_on_arch": "an instruction that the arch does not have",
        "shared_over_limit": "more shared memory than a block of the arch can have",
        "registers_over_file": "more registers than the arch's file, or than a thread may hold",
        "barriers_over_limit": "a named barrier that the arch does not have",
        "launch_mismatch": "a launch that does not fit its kernel",
        # memory
        "out_of_bounds": "a tile or view outside its tensor, or outside shared memory, of which a "
        "launch may lose some in rounding its start up",
        "misaligned": "a shared tile that starts at no multiple of 16 bytes, or at none of 1024 "
        "where bulk copies or asynchronous matmuls take it",
        "early_read": "shared memory read before what was written there had landed and was visible",
        "overwritten_stage": "shared memory overwritten while somebody may still read it",
        "write_race": "shared memory written twice without an order between the writes",
        "punned_read": "shared memory read as another element type than was written, or as a tile "
        "of another shape or start, whose elements lie elsewhere",
        "global_race": "two blocks of one launch touch the same rows and one writes",
        "unreturned_claim": "a launch leaves another number to claim from than it found",
        "unwritten_read": "a word of a workspace read that no kernel has written before",
        "missing_proxy_fence": "written by threads, used by the async proxy without a fence",
        "missing_group_wait": "registers touched while an asynchronous matmul still holds them",
        "missing_mma_fence": "registers written, then given to an asynchronous matmul unfenced",
        "unfinished_copy": "a block that ends while a copy still uses its shared memory",
        "nan_output": "NaN written to an output although no input holds one",
        # barriers
        "lost_arrival": "a barrier that never gets the arrivals it was set up for",
        "doubled_arrival": "the same threads arrive twice in one phase of a barrier",
        "wrong_phase": "a wait for the other phase than the one that holds the data",
        "wrong_byte_count": "a barrier told to expect other bytes than its copies bring",
        "uninitialised_barrier": "a barrier used before its set-up is visible",
        "wrong_named_count": "a named barrier whose users disagree on the number of threads",
        "divergent_collective": "an op for all threads of a unit that only part of them reach",
        "not_elected": "an op for one thread that every thread of a warp does, or a question to "
        "`elect()` that sends the other threads another way",
        "row_without_tiles": "a block of rows that visits no tile leaves a barrier unbalanced",
        "deadlock": "no part of the block can go on",
        # limits of the run itself
        "runaway": "the run was stopped: more steps than a terminating kernel needs",
        "bad_value": "a scalar that the op cannot take (a zero step, a negative count)",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, at the op that `path` names (see `nodes.Path`).

    `parts` are the simulated parts of the block that met it; `other` is the op it clashes with.
    """

    kind: str
    path: Path
    message: str
    parts: tuple[int, ...] = ()
    other: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of finding: {self.kind}")
