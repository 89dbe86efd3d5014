"""A session onto a new version of its kernel: what was decided, carried over by op.

What the rules proposed they propose again, on the new kernel, and the decisions follow the ops.
What a model or a person wrote is merged: the rules' proposal on the old kernel (or that kernel
itself), the same on the new one, and the session's target. Either way the session gets one
proposal; a hunk whose edits are those that were decided on is decided, and every other one is
asked. A wrong guess about what is the same op therefore costs a question, or a gate that fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from engine.cuir.canonical import without_lambda_names
from engine.cuir.changes.diff import diff
from engine.cuir.changes.ids import assign
from engine.cuir.changes.merge import merge
from engine.cuir.changes.renaming import renaming
from engine.cuir.nodes import Module, Name, Opaque, walk
from engine.cuir.parser import parse_expr
from engine.cuir.printer import print_expr, print_module
from engine.cuir.rewrite import substitute
from engine.errors import InputError
from engine.lift import Lifted, lift
from engine.lift.files.kernel_package import KernelPackage
from engine.lift.files.meanings import (
    Meaning,
    meanings_json,
    read_meanings,
    released,
    with_meanings,
)
from engine.lower.spelling.legal import legal
from engine.service.executed.opened import adaptation_of
from engine.service.session.adaptation import RULES, Adaptation, pretty_json
from engine.service.session.content import BINDING, LIFTED, MEANINGS, RECIPE, SOURCE, TARGET
from engine.service.session.disk_inputs import check_spec, inputs_of, kernel_at, kernel_place
from engine.service.session.stage_work import Steps, applied_rules
from engine.service.session.workbench import find_kernel
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.binding import Binding
from engine.transfer.proposals.carry import carried, known_edits
from engine.transfer.proposals.review import compose, propose
from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
    Hunk,
    Origin,
    Proposal,
    Stage,
    sha256_of,
)
from sessions.events import (
    ArtifactSet,
    Body,
    HunkDecided,
    InputsSet,
    ProposalMade,
    Rebased,
    TranscriptAdded,
)
from sessions.state import SessionState

REBASE = "rebase"  # the proposal of a merged target
DIFFERS = "asked, since the new kernel differs here; "


@dataclass(frozen=True, slots=True)
class Newer:
    """Another version of a session's kernel, and the event that says where it is."""

    package: KernelPackage
    event: Rebased


@dataclass(frozen=True, slots=True)
class Rebase:
    """What a rebase gives; nothing is recorded yet. `changes` counts the kernel's changes by kind,
    `renamed` the names that it gave to what has others in the old one."""

    newer: Newer
    lifted: Lifted
    changes: Mapping[str, int]
    renamed: int
    proposal: Proposal | None = None
    proposed: Module | None = None
    decided: Mapping[str, DecisionKind] | None = None
    binding: Binding | None = None
    meanings: tuple[Meaning, ...] = ()

    def lines(self) -> list[str]:
        """What changed and what becomes of the hunks, in words; each asked hunk has a line."""
        changes = [f"{n} {kind}{'s' * (n != 1)}" for kind, n in self.changes.items()]
        names = [f"{self.renamed} names renamed"] if self.renamed else []
        out = [f"kernel    {', '.join([*changes, *names]) or 'the same ops'}"]
        if self.proposal is not None:
            hunks, asked = len(self.proposal.hunks), self.asked
            out += [f"asked     {self.proposal.id}/{h.id}  {h.title}" for h in asked]
            out.append(f"carried   {hunks - len(asked)} of {hunks} hunks; {len(asked)} asked")
        return out

    @property
    def asked(self) -> tuple[Hunk, ...]:
        """The hunks to decide on."""
        if self.proposal is None or self.decided is None:
            return ()
        return tuple(h for h in self.proposal.hunks if h.id not in self.decided)


def newer_kernel(state: SessionState, path: str | None) -> Newer:
    """The kernel at `path`: a package, or a source that takes the place of the session's own.

    Without a path, the session's kernel as it is on the disk now. Raises `InputError` where it is
    not there or not whole.
    """
    home = kernel_place(state)
    if path is not None:
        package = find_kernel(path)
        if package.specialisations:
            return Newer(package, Rebased(str(package.folder.absolute())))
        home = Rebased(home.kernel, str(FilePath(path).expanduser().absolute()))
    return Newer(kernel_at(home), home)


def is_same(state: SessionState, newer: Newer) -> bool:
    """Whether the session has exactly this kernel, from this place."""
    same = newer.package.hashes["package"] == state.hashes["kernel"]
    return same and newer.event == kernel_place(state)


def plan_rebase(work: Adaptation, newer: Newer) -> Rebase:
    """What the session's decisions are on another version of its kernel.

    Raises:
        InputError: a kernel without the session's specialisation; a spec that changed; a proposal
            that is stale; hunks not decided on yet where a person or a model wrote any.
        TransferError: no rule carries the spec to the new kernel.
    """
    options, proposals = work.options, work.edits
    newer.package.check_arch(options.arch)
    newer.package.specialisation(options.specialisation)
    check_spec(work)
    _check_decided(work)
    package = options.building(newer.package)
    bare = lift(package, options.specialisation, options.arch)
    meanings = _kept_meanings(work, bare)
    lifted = with_meanings(bare, meanings)
    old, new = work.lifted.module, lifted.module
    target = work.compose() if proposals else old
    by_rules = bool(proposals) and proposals[0].origin is Origin.RULES
    began = work.proposed(proposals[0]) if by_rules else old
    kept, ruled = old, began  # what the first proposal was made of
    names = renaming(old, new, [began, target])
    given = [names]
    called = {a: b for f in old.functions if f.kind == "host" for a, b in names.of(f.name).items()}
    old, began, target = names(old), names(began), names(target)
    changes = diff(without_lambda_names(old), without_lambda_names(new)).edits
    kinds = Counter(edit.kind.value for edit in changes)
    made = Rebase(newer, lifted, dict(sorted(kinds.items())), len(names), meanings=meanings)
    if not proposals:
        return made
    begins, binding = new, _with_names(work.binding, called)
    steps: Steps = []
    if by_rules:
        recipe = work.recipe
        assert recipe is not None  # the rules read one when they proposed before
        begins, steps, planned = applied_rules(new, recipe)
        names = renaming(began, begins, [old, target])  # what the rules call their own
        given.append(names)
        old, began, target = names(old), names(began), names(target)
        if not any(p.origin is Origin.MODEL for p in proposals):
            binding = planned
    decisions = [work.state.decision(proposals[0].id, h.id) for h in proposals[0].hunks]
    edited = any(d is not None and d.kind is DecisionKind.EDITED for d in decisions)
    if by_rules and len(proposals) == 1 and not edited:
        kinds_of = known_edits(kept, ruled, [d.kind if d else None for d in decisions], given)
        reason = proposals[0].reason
        proposal = _proposal(new, begins, RULES, Origin.RULES, reason, steps)
        decided = carried(new, begins, proposal, kinds_of)
        proposed = begins
    else:
        merged = merge(began, begins, target)
        proposed = released(new, legal(merged.module))
        conflicts = merged.conflicts
        if proposed != legal(merged.module):  # its statements are no longer where they were merged
            conflicts = frozenset(path for path, _ in walk(proposed))
        written = [p.origin for p in proposals if p.origin is not Origin.RULES]
        origin = written[-1] if written else Origin.PERSON
        proposal = _proposal(new, proposed, REBASE, origin, "the session's target", steps)
        decided = carried(new, proposed, proposal, known_edits(old, target), conflicts)
    if not any(decision is None for decision in decisions):
        told = (h if h.id in decided else replace(h, reason=DIFFERS + h.reason)
                for h in proposal.hunks)  # fmt: skip
        proposal = replace(proposal, hunks=tuple(told))
    return replace(made, proposal=proposal, proposed=proposed, decided=decided, binding=binding)


def record_rebase(work: Adaptation, made: Rebase) -> Adaptation:
    """Record it, as one step of the history; the session on its new kernel.

    What was judged of the old kernel is stale by its hashes; the target holds what is decided.
    """
    package, module = made.newer.package, made.lifted.module
    artifacts = [
        Artifact.of(Stage.SOURCE, SOURCE, package.source),
        Artifact.of(Stage.LIFTED, LIFTED, print_module(module)),
    ]
    if made.meanings or MEANINGS in work.state.stage(Stage.LIFTED).artifacts:
        artifacts.append(Artifact.of(Stage.LIFTED, MEANINGS, meanings_json(made.meanings)))
    inputs = inputs_of(package, work.spec) | {"kernel": package.hashes["package"]}
    bodies: list[Body] = [made.newer.event, InputsSet(inputs)]
    last: list[Artifact] = []
    told: list[Decision] = []
    blobs: list[bytes] = []
    if made.proposal is not None:
        assert made.proposed is not None and made.decided is not None and made.binding is not None
        name, text = made.proposal.id, print_module(made.proposed)
        blobs.append(text.encode())
        bodies += [
            TranscriptAdded(f"{name}.proposed.cuir", sha256_of(text), name),
            ProposalMade(made.proposal),
        ]
        recipe = work.recipe
        if recipe is not None:
            content = pretty_json(recipe_to_json(recipe))
            artifacts.append(Artifact.of(Stage.TARGET, RECIPE, content))
        binding = pretty_json(made.binding.to_json())
        artifacts += [
            Artifact.of(Stage.TARGET, BINDING, binding),
            Artifact.of(Stage.TARGET, TARGET, print_module(module)),
        ]
        decisions = {
            hunk: Decision(f"{name}/{hunk}", kind, work.actor)
            for hunk, kind in made.decided.items()
        }
        if decisions:
            whole = Decision(name, DecisionKind.ACCEPTED, work.actor)
            one_kind = set(made.decided.values()) == {DecisionKind.ACCEPTED} and not made.asked
            told = [whole] if one_kind else list(decisions.values())
            target = legal(compose(module, made.proposed, made.proposal, decisions))
            last.append(Artifact.of(Stage.TARGET, TARGET, print_module(target)))
    bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in artifacts]
    if last:
        bodies += [HunkDecided(decision) for decision in told]
        bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in last]
    work.writer.append(bodies, [*blobs, *(a.data for a in (*artifacts, *last))], actor=work.actor)
    return adaptation_of(work.bench, work.writer, work.actor)


def _with_names(binding: Binding, called: Mapping[str, str]) -> Binding:
    """The binding with the launcher's new names for constants in place of the old ones."""
    space = binding.workspace
    if space is None or not space.constants() & called.keys():
        return binding
    names = {old: Name(new) for old, new in called.items()}
    dims = (print_expr(substitute(parse_expr(dim, "dimension"), names)) for dim in space.dims)
    return replace(binding, workspace=replace(space, dims=tuple(dims)))


def _proposal(
    base: Module, proposed: Module, id: str, origin: Origin, reason: str,
    steps: Steps,
) -> Proposal:  # fmt: skip
    return propose(
        base, proposed, id=id, origin=origin, reason=reason, ids=assign(base), trail=steps
    )


def _check_decided(work: Adaptation) -> None:
    """Raises `InputError` where the session's target is not what its decisions say."""
    changed = work.state.outdated(Stage.TARGET)
    if work.edits and changed is not None:
        raise InputError(
            f"the proposals of {work.session.id} are stale: {changed} changed since they were made",
            fix="propose again on the present kernel first (D in the app), or start a new session",
        )
    edited = any(d is not None and d.kind is DecisionKind.EDITED for _, _, d in work.hunks())
    by_hand = edited or any(p.origin is not Origin.RULES for p in work.edits)
    open_ = [f"{p.id}/{h.id}" for p, h, decision in work.hunks() if decision is None]
    if by_hand and open_:
        raise InputError(
            f"{len(open_)} hunks of {work.session.id} are not decided on: {', '.join(open_[:3])}",
            fix="accept or reject them first",
        )


def _kept_meanings(work: Adaptation, bare: Lifted) -> tuple[Meaning, ...]:
    """What is known of opaque ops of the old kernel, said of those with the same text in the same
    function of the new one, each occurrence its own."""
    if MEANINGS not in work.state.stage(Stage.LIFTED).artifacts:
        return ()
    paths = {id: path for path, id in assign(work.bare.module).items()}
    known: dict[tuple[str, str], list[Meaning]] = {}
    for said in read_meanings(work.text(Stage.LIFTED, MEANINGS)):
        known.setdefault((str(paths[said.op][0]), said.text), []).append(said)
    ids = assign(bare.module)
    out = []
    for path, stmt in walk(bare.module):
        if isinstance(stmt, Opaque) and (same := known.get((str(path[0]), stmt.text))):
            out.append(replace(same.pop(0), op=ids[path]))
    return tuple(out)
