"""Every error that a person can meet, typed once.

An error carries where it happened and what the person should do next; the command line and the
app print `str(error)` and choose the exit code from the class. Nothing else may end a command.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that `name` is most likely a slip of; empty where none is near."""
    import difflib  # only an error needs it

    names = list(known)
    folded = {n.casefold().replace("-", "_"): n for n in reversed(names)}
    found = difflib.get_close_matches(name.casefold().replace("-", "_"), folded, 1, 0.65)
    return folded[found[0]] if found else ""


def advice(name: str, known: Iterable[str], otherwise: str) -> str:
    """What to do about a name that is none: the nearest known one, else the general words."""
    near = nearest(name, known)
    return f"do you mean {near}? Else {otherwise}" if near else otherwise


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a text: 1-based line and column (columns count code points)."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)


class CuBridgeError(Exception):
    """Base of all errors shown to a person. `exit_code` follows the command line's contract."""

    exit_code = 2

    def __init__(self, message: str, *, where: Where | None = None, fix: str | None = None) -> None:
        self.message = message
        self.where = where
        self.fix = fix
        super().__init__(str(self))

    @property
    def said(self) -> str:
        """The place and the message, without the fix."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def __str__(self) -> str:
        return f"{self.said}\n  fix: {self.fix}" if self.fix else self.said


class InputError(CuBridgeError):
    """Wrong usage or input: names file, line and the fix."""


class CuirError(InputError):
    """A CuIR text that does not parse, names an unknown op, or breaks an op's declared types."""


class SpecError(InputError):
    """A spec that cannot be loaded, traced or read as an attention function."""


class LiftError(InputError):
    """A source that is not a liftable CUDA kernel."""


class TransferError(CuBridgeError):
    """The recipe cannot be carried to this kernel by rules."""

    exit_code = 1


class LowerError(CuBridgeError):
    """The target CuIR cannot be written back into the source."""

    exit_code = 1


class StoreError(InputError):
    """A path that is not our store, a damaged store, or a store that cannot be written."""


class MissingTool(CuBridgeError):
    """Something is missing on this machine; `fix` is the command to type."""

    exit_code = 3


class Interrupted(CuBridgeError):
    """The person stopped the command."""

    exit_code = 130
