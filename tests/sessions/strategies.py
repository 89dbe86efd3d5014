"""Hypothesis strategies for the vocabulary and for event logs."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Level,
    Origin,
    Proposal,
    Stage,
    Verdict,
    VerdictKind,
    sha256_of,
)
from sessions.events import (
    Accepted,
    ArtifactSet,
    Body,
    Committed,
    Event,
    Forked,
    HunkCommented,
    HunkDecided,
    InputsSet,
    Note,
    ProposalMade,
    Rebased,
    Redone,
    SessionCreated,
    TitleSet,
    TranscriptAdded,
    Undone,
    Unknown,
    VerdictGiven,
)
from sessions.ids import new_event_id

# Any text at all, lone surrogates included: sources and models bring what they bring.
texts = st.text(st.characters(), max_size=20)
sha256s = st.sampled_from([sha256_of(str(n)) for n in range(4)])
hashes = st.dictionaries(texts, sha256s, max_size=3)
names = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_+-]{0,9}\Z")
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, plain_values, max_size=3)
verdicts = st.builds(
    Verdict,
    gate=st.sampled_from(Gate),
    kind=st.sampled_from(VerdictKind),
    reason=texts,
    seconds=st.floats(allow_nan=False, allow_infinity=False),
    subject=st.dictionaries(st.sampled_from(["artifact", "spec", "headers"]), sha256s).map(
        lambda found: tuple(found.items())
    ),
    details=objects,
    assumed=st.lists(texts, max_size=2).map(tuple),
    by=texts,
)
artifacts = st.builds(
    Artifact.of, st.sampled_from(Stage), texts, st.binary(max_size=30) | st.text(max_size=10)
)
hunk_ids = st.sampled_from(["h1", "h2", "h3"])
proposal_ids = st.sampled_from(["p1", "p2"])
hunks = st.builds(
    Hunk,
    id=hunk_ids,
    title=texts,
    reason=texts,
    clause=texts,
    before=texts,
    after=texts,
    op_ids=st.lists(texts, max_size=2).map(tuple),
    origin=st.sampled_from(Origin),
)
proposals = st.builds(
    Proposal,
    id=proposal_ids,
    origin=st.sampled_from(Origin),
    reason=texts,
    hunks=st.lists(hunks, max_size=3, unique_by=lambda hunk: hunk.id).map(tuple),
    transcript=st.none() | sha256s,
)
targets = proposal_ids | hunk_ids | st.just("p1/h1")
decisions = st.builds(
    Decision,
    target=targets,
    kind=st.sampled_from([DecisionKind.ACCEPTED, DecisionKind.REJECTED]),
    by=texts,
    comment=texts,
) | st.builds(
    Decision, target=targets, kind=st.just(DecisionKind.EDITED), by=texts, replacement=texts
)
creations = st.builds(
    SessionCreated,
    title=texts,
    kernel=texts,
    kernel_sha256=sha256s,
    spec=texts,
    spec_sha256=sha256s,
    options=objects,
)
known_bodies: st.SearchStrategy[Body] = st.one_of(
    creations,
    st.builds(TitleSet, texts),
    st.builds(InputsSet, st.dictionaries(st.sampled_from(["spec", "kernel", "cc"]), sha256s)),
    st.builds(ArtifactSet, st.sampled_from(Stage), names, st.none() | sha256s),
    st.builds(ProposalMade, proposals),
    st.builds(HunkDecided, decisions),
    st.builds(HunkCommented, targets, texts),
    st.builds(VerdictGiven, verdicts),
    st.builds(TranscriptAdded, names, sha256s, texts),
    st.builds(Accepted, st.sampled_from(Level), hashes),
    st.builds(Committed, texts, texts, texts),
    st.builds(Forked, texts, texts),
    st.builds(Rebased, texts, texts),
    st.builds(Note, texts),
    st.builds(Undone, texts),
    st.builds(Redone, texts),
)
unknown_bodies = st.builds(
    Unknown,
    type=texts,
    line=st.just('{"schema":99,"type":"Dreamt","data":{"of":"sheep"}}'),
    why=texts,
)


@st.composite
def logs(draw: st.DrawFn, max_size: int = 25) -> list[Event]:
    """A log that begins as real ones do, then anything; undo and redo often name what is next."""
    bodies = [draw(creations), *draw(st.lists(known_bodies | unknown_bodies, max_size=max_size))]
    events: list[Event] = []
    decided: list[str] = []
    last: str | None = None
    for body in bodies:
        last = new_event_id(last)
        if isinstance(body, HunkDecided):
            decided.append(last)
        elif isinstance(body, Undone | Redone) and decided and draw(st.booleans()):
            body = type(body)(draw(st.sampled_from(decided)))
        events.append(Event(last, "2030-01-01T00:00:00.000Z", draw(texts), body))
    return events
