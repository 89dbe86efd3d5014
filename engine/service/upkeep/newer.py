"""Another version of a session's kernel, and what the session is on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.lift.files.kernel_package import KernelPackage, is_imported
from engine.service.session.adaptation import Proposed
from engine.service.session.disk_inputs import kernel_at, kernel_place
from engine.service.session.workbench import find_kernel
from engine.types import Artifact, Decision, Hunk, Proposal
from sessions.events import Rebased
from sessions.state import SessionState

DIFFERS = "asked, since the new kernel differs here; "


@dataclass(frozen=True, slots=True)
class Newer:
    """Another version of a session's kernel, and the event that says where it is."""

    package: KernelPackage
    event: Rebased


@dataclass(frozen=True, slots=True)
class Rebase:
    """What a rebase gives; nothing is recorded yet.

    Args:
        expert: the source and the lifted stage on the new kernel.
        changes: the kernel's changes by kind; `renamed` counts the names that it gave to what has
            others in the old one.
        same: the words for a kernel without either.
        proposed: the session's one proposal there; None where it had none.
        decided: by hunk of it, what stands decided; the others are asked.
        target: what that makes of the target.
    """

    newer: Newer
    expert: tuple[Artifact, ...]
    changes: Mapping[str, int]
    renamed: int
    same: str = "the same ops"
    proposed: Proposed | None = None
    decided: Mapping[str, Decision] = field(default_factory=dict)
    target: tuple[Artifact, ...] = ()

    @property
    def proposal(self) -> Proposal | None:
        return self.proposed.proposal if self.proposed is not None else None

    def lines(self) -> list[str]:
        """What changed and what becomes of the hunks, in words; each asked hunk has a line."""
        changes = [f"{n} {kind}{'s' * (n != 1)}" for kind, n in self.changes.items()]
        names = [f"{self.renamed} names renamed"] if self.renamed else []
        out = [f"kernel    {', '.join([*changes, *names]) or self.same}"]
        if self.proposal is not None:
            hunks, asked = len(self.proposal.hunks), self.asked
            out += [f"asked     {self.proposal.id}/{h.id}  {h.title}" for h in asked]
            out.append(f"carried   {hunks - len(asked)} of {hunks} hunks; {len(asked)} asked")
        return out

    @property
    def asked(self) -> tuple[Hunk, ...]:
        """The hunks to decide on."""
        if self.proposal is None:
            return ()
        return tuple(h for h in self.proposal.hunks if h.id not in self.decided)


def newer_kernel(state: SessionState, path: str | None) -> Newer:
    """The kernel at `path`: a package, or a source that takes the place of the session's own.

    Without a path, the session's kernel as it is on the disk now. Raises `InputError` where it is
    not there or not whole.
    """
    home = kernel_place(state)
    if path is not None:
        file = Path(path).expanduser().absolute()
        if file.suffix != ".cu" or not is_imported(Path(home.kernel)):
            package = find_kernel(path)
            if package.specialisations:
                return Newer(package, Rebased(str(package.folder.absolute())))
        home = Rebased(home.kernel, str(file))
    return Newer(kernel_at(home), home)


def is_same(state: SessionState, newer: Newer) -> bool:
    """Whether the session has exactly this kernel, from this place."""
    same = newer.package.hashes["package"] == state.hashes["kernel"]
    return same and newer.event == kernel_place(state)
