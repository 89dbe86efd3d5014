"""An agent's proposal: its edit is read, checked and judged as a model's answer is, and put to the
person like any other's.

Who an agent is, is what its channel says: a name of its own choice, recorded as such.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from engine.errors import InputError
from engine.llm.types import Ending, Message, Parameters, Reply, Request
from engine.service.models.llm import attempt_events, proposal_events, task_of
from engine.service.models.llm_conversation import manual
from engine.service.models.llm_gates import ModelGates
from engine.service.session.adaptation import Adaptation
from engine.service.session.disk_inputs import check_spec
from engine.transfer.llm.editing import Edit, judge_edit
from engine.transfer.llm.loop import Attempt, tried
from engine.transfer.llm.prompt import render
from engine.types import Gate, Origin, Proposal, Stage
from sessions.events import ProposalMade

MAX_CHARACTERS = 200_000  # of an edit
LONGEST_NAME = 60
_ASKED = Message("user", "(an agent's own edit: nothing was sent to a model)")


@dataclass(frozen=True, slots=True)
class Offered:
    """What an edit came to: `proposal` where it passed G2; else the attempt says why not."""

    attempt: Attempt[Edit]
    proposal: Proposal | None


def agent_actor(name: str) -> str:
    """An agent as the event log names it.

    Raises:
        InputError: the name is empty, long, or not plain words on one line.
    """
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(
            f"{name[:LONGEST_NAME]!a} is no agent's name",
            fix=f"give plain words on one line, at most {LONGEST_NAME} characters",
        )
    return f"agent {name.strip()} (as it names itself)"


def how_to_edit() -> str:
    """How an edit is written, with the manual of CuIR: what a model is told, too."""
    return render("system", manual=manual())


def check_ready(work: Adaptation, *, anew: bool = False) -> None:
    """Raises `InputError` where nothing can be proposed, or not without undoing what a person did:
    an acceptance, or, where the rules propose `anew`, decisions on hunks and others' proposals."""
    state = work.state
    if not state.stage(Stage.LIFTED).artifacts:
        raise InputError("the session is not lifted yet", fix="in the app, s lifts the source")
    if state.acceptance_is_current:
        raise InputError(
            "the kernel is accepted, which a proposal would revoke", fix="in the app, F copies it"
        )
    decided = [h for _, h, decision in work.hunks() if decision is not None]
    if anew and decided:
        raise InputError(
            f"{len(decided)} hunks are decided on, which the rules' proposal would drop",
            fix="in the app, D on the target proposes again, after asking",
        )
    written = [p.id for p in work.edits if p.origin is not Origin.RULES]
    if anew and written:
        raise InputError(
            f"{', '.join(written)} would be dropped by the rules' proposal",
            fix="in the app, D on the target proposes again, after asking",
        )
    check_spec(work)


def propose_by_agent(work: Adaptation, text: str) -> Offered:
    """Judge an edit of the present base, and propose it if it computes the person's function.

    `work.actor` is the agent. `text` has the form of a model's answer (`how_to_edit`). An
    undecided proposal of the same agent is replaced.

    Raises:
        InputError: hunks of another proposal wait for the person.
        StoreError: the session was changed meanwhile.
    """
    check_ready(work)
    name = _next_name(work)
    task, recipe = task_of(work)
    ending = Ending.COMPLETE if text.strip() else Ending.EMPTY
    if len(text) > MAX_CHARACTERS:
        ending, text = Ending.LENGTH, text[:MAX_CHARACTERS]
    gates = ModelGates(work, task, Gate.G2, lambda _: None, nullcontext).judge(recipe)
    request = Request(work.actor, (_ASKED,), Parameters())
    attempt = tried(request, Reply(ending, text), judge_edit(task, gates), candidate=1)
    proposal = None
    bodies, blobs = attempt_events(name, attempt)
    if attempt.passed:
        proposal, more = proposal_events(name, task, recipe, attempt)
        bodies, blobs = bodies + more[0], blobs + more[1]
    work.writer.append(bodies, blobs, actor=work.actor)
    return Offered(attempt, proposal)


def _next_name(work: Adaptation) -> str:
    """The id of the agent's next proposal: that of its own one that nobody decided on yet."""
    made_by = {
        event.body.proposal.id: event.actor
        for event in work.writer.events
        if isinstance(event.body, ProposalMade)
    }
    agents = 1 + sum(p.id.startswith("agent-") for p in work.edits)
    name = f"agent-{agents}"
    for proposal in work.edits:
        decided = [work.state.decision(proposal.id, h.id) is not None for h in proposal.hunks]
        mine = proposal.id.startswith("agent-") and made_by.get(proposal.id) == work.actor
        if mine and not any(decided):
            name = proposal.id
        elif not all(decided):
            left = len(decided) - sum(decided)
            raise InputError(
                f"{left} hunk{'s' * (left != 1)} of {proposal.id} wait for the person's decision",
                fix="propose again once they are accepted or rejected in the app",
            )
    return name
