"""What a model's answer came to, whatever it was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Reached(IntEnum):
    """How far an attempt got; a larger value is further."""

    INCOMPLETE = 0  # cut off, filtered, empty, broken: nothing was applied
    UNREADABLE = 1  # no answer to the question, or one that does not apply
    REFUSED = 2  # it tries what no answer may do
    UNSOUND = 3  # a module, but the checks find fault
    G1 = 4  # meanings with which the kernel does not compute its own reference
    G2 = 5  # an edit judged by G2, which fails
    UNMET = 6  # G2 passed; something else that was asked for is not there
    LOWERING = 7  # G2 passed; it cannot be written back, or G3 fails
    G3 = 8  # a text that applies and is not the target, or does not compile
    PASSED = 9

    @property
    def word(self) -> str:
        """As it is recorded and shown."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What an answer came to: passed, or the first thing wrong with it.

    `value` is what was read of it, where it could be. `op` says where the fault is, and `shown` is
    the statement there; `stage` is said to the model before the reason. `found` is all that a
    compiler found, for the model. Where it passed, `better` asks for a better one; `microseconds`
    is what it is predicted to take, where that was asked for. `nothing` where an answer proposes
    nothing: after one that passed, that this one stands.
    """

    reached: Reached
    reason: str
    op: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    stage: str = ""
    shown: str = ""
    value: T | None = None
    found: str = ""
    better: str = ""
    microseconds: float | None = None
    nothing: bool = False
