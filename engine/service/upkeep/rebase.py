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
from dataclasses import replace

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
from engine.lift.files.meanings import (
    Meaning,
    meanings_json,
    read_meanings,
    released,
    with_meanings,
)
from engine.lower.spelling.legal import legal
from engine.service.executed.opened import adaptation_of
from engine.service.session.adaptation import RULES, Adaptation, Proposed, pretty_json
from engine.service.session.content import BINDING, LIFTED, MEANINGS, RECIPE, SOURCE, TARGET
from engine.service.session.disk_inputs import check_spec, inputs_of
from engine.service.session.stage_work import Steps, applied_rules
from engine.service.upkeep.newer import DIFFERS, Newer, Rebase
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.binding import Binding
from engine.transfer.proposals.carry import carried, known_edits
from engine.transfer.proposals.review import compose, propose
from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
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
    TranscriptAdded,
)

REBASE = "rebase"  # the proposal of a merged target


def plan_rebase(work: Adaptation, newer: Newer) -> Rebase:
    """What the session's decisions are on another version of its kernel.

    Raises:
        InputError: a kernel without the session's specialisation; a spec that changed; a proposal
            that is stale; hunks not decided on yet where a person or a model wrote any.
        TransferError: no rule carries the spec to the new kernel.
    """
    options, proposals = work.options, work.edits
    if newer.package.executed != work.package.executed:
        raise InputError(
            "one of the two kernels is lifted and the other one executed as PTX",
            fix="start a new session on the new one",
        )
    newer.package.check_arch(options.arch)
    newer.package.specialisation(options.specialisation)
    check_spec(work)
    _check_decided(work)
    if newer.package.executed:
        from engine.service.upkeep.executed_rebase import plan_executed  # the PTX machine, 0.2 s

        return plan_executed(work, newer)
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
    artifacts = [
        Artifact.of(Stage.SOURCE, SOURCE, package.source),
        Artifact.of(Stage.LIFTED, LIFTED, print_module(new)),
    ]
    if meanings or MEANINGS in work.state.stage(Stage.LIFTED).artifacts:
        artifacts.append(Artifact.of(Stage.LIFTED, MEANINGS, meanings_json(meanings)))
    made = Rebase(newer, tuple(artifacts), dict(sorted(kinds.items())), len(names))
    if not proposals:
        return made
    begins, binding = new, _with_names(work.binding, called)
    steps: Steps = []
    if by_rules:
        recipe = work.recipe
        assert recipe is not None  # the rules read one when they proposed before
        begins, steps, planned = applied_rules(new, recipe, work.narrower(recipe))
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
    begin = [Artifact.of(Stage.TARGET, BINDING, pretty_json(binding.to_json())),
             Artifact.of(Stage.TARGET, TARGET, print_module(new))]  # fmt: skip
    if work.recipe is not None:
        recipe_text = pretty_json(recipe_to_json(work.recipe))
        begin.insert(0, Artifact.of(Stage.TARGET, RECIPE, recipe_text))
    told_as = Proposed(proposal, f"{proposal.id}.proposed.cuir", print_module(proposed), begin)
    found = {h: Decision(f"{proposal.id}/{h}", kind, work.actor) for h, kind in decided.items()}
    last: tuple[Artifact, ...] = ()
    if found:
        composed = legal(compose(new, proposed, proposal, found))
        last = (Artifact.of(Stage.TARGET, TARGET, print_module(composed)),)
    return replace(made, proposed=told_as, decided=found, target=last)


def record_rebase(work: Adaptation, made: Rebase) -> Adaptation:
    """Record it, as one step of the history; the session on its new kernel.

    What was judged of the old kernel is stale by its hashes; the target holds what is decided.
    """
    package, artifacts = made.newer.package, list(made.expert)
    inputs = inputs_of(package, work.spec) | {"kernel": package.hashes["package"]}
    bodies: list[Body] = [made.newer.event, InputsSet(inputs)]
    told: list[Decision] = []
    blobs: list[bytes] = []
    if made.proposed is not None:
        proposal, text = made.proposed.proposal, made.proposed.text
        blobs.append(text.encode("utf-8", "surrogateescape"))
        kept = TranscriptAdded(made.proposed.name, sha256_of(text), proposal.id)
        bodies += [kept, ProposalMade(proposal)]
        artifacts += made.proposed.artifacts
        told = list(made.decided.values())
        if told and {d.kind for d in told} == {DecisionKind.ACCEPTED} and not made.asked:
            told = [Decision(proposal.id, DecisionKind.ACCEPTED, work.actor)]
    bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in artifacts]
    bodies += [HunkDecided(decision) for decision in told]
    bodies += [ArtifactSet(a.stage, a.name, a.sha256) for a in made.target]
    blobs += [a.data for a in (*artifacts, *made.target)]
    work.writer.append(bodies, blobs, actor=work.actor)
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
