"""The history step by step: a chain of states, and lines that any terminal may show."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import (
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
from sessions import replay
from sessions.events import (
    Accepted,
    ArtifactSet,
    Committed,
    Event,
    HunkDecided,
    InputsSet,
    Note,
    ProposalMade,
    Undone,
    VerdictGiven,
    decode,
    stamp,
)
from sessions.fold import fold
from sessions.state import SessionState
from tests.sessions import strategies as own
from tests.sessions.conftest import created


@given(own.logs())
def test_steps_are_a_chain_from_nothing_to_the_fold(events: list[Event]) -> None:
    steps = list(replay.steps(events))
    assert [step.event for step in steps] == events
    assert steps[0].before == SessionState()
    assert steps[-1].after == fold(events)
    for earlier, later in itertools.pairwise(steps):
        assert earlier.after == later.before


@given(own.logs())
def test_lines_are_single_and_printable(events: list[Event]) -> None:
    for line in replay.lines(events):
        assert line.isprintable() and len(line) < 1000


@given(st.text(st.characters()), st.integers(1, 80))
def test_plain_is_printable_bounded_and_leaves_good_text_alone(text: str, width: int) -> None:
    shown = replay.plain(text, width)
    assert shown.isprintable() and len(shown) <= width
    if text.isprintable() and len(text) <= width:
        assert shown == text


def test_the_history_in_words() -> None:
    hunk = Hunk("h1", "cap", "r", "c", "a", "b", (), Origin.RULES)
    sha = sha256_of("x")
    subject = (("artifact", sha),)
    bodies = [
        created("soft\x1b[31mcap"),
        InputsSet({"headers": sha}),
        ArtifactSet(Stage.LIFTED, "lifted.cuir", sha),
        VerdictGiven(Verdict(Gate.G1, VerdictKind.FAIL, "race at op12", 2.04, subject)),
        VerdictGiven(Verdict(Gate.G1, VerdictKind.OVERRIDDEN, "known", subject=subject, by="ana")),
        ProposalMade(Proposal("p1", Origin.RULES, "softcap", (hunk,))),
        HunkDecided(Decision("h1", DecisionKind.ACCEPTED, "ana", "good")),
        Undone("nothing"),
        Accepted(Level.GPU_VERIFIED, {}),
        Note("done"),
    ]
    events = [*stamp(bodies, "ana", None), decode(b'{"schema":9,"type":"Dreamt"}')]
    lines = [line.split("  ", 2)[2].split("  ")[-1] for line in replay.lines(events)]
    assert lines == [
        'ana: created "soft\\x1b[31mcap" from kernel flash_fwd_sm80 and spec softcap_causal.py',
        f"ana: inputs changed: headers {sha[:12]}",
        f"ana: lifted: lifted.cuir is now {sha[:12]}",
        "ana: G1 failed in 2.0 s: race at op12",
        "ana: G1 overridden by ana: known",
        "ana: rules proposed 1 hunk (p1): softcap",
        "ana: accepted h1: good",
        "ana: undid decision nothing [ignored: the decision to undo next is "
        f"{events[6].id}, not nothing]",
        "ana: accepted, gpu-verified [ignored: nothing is accepted without a level: "
        "G1 overridden, G2 not run, G3 not run, G4 not run]",
        "ana: note: done",
        ': unknown event "Dreamt", kept as it is (event: written by a newer version (schema 9))',
    ]


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ("soft.cu", "soft.cu"),
        ("k/soft.cu, k/soft.json", "k/soft.cu, k/soft.json"),
        (", ".join(f"soft/{n}.py" for n in range(76)), "76 files in soft/"),
        (
            ", ".join(f"kernels/soft/a/{n}.py" for n in range(3)) + ", kernels/soft/b.py",
            "4 files in kernels/soft/",
        ),
        ("a.cu, b.cu, c/d.cu, e/f.cu", "4 files"),
    ],
)
def test_a_commit_of_many_files_is_told_by_their_number(paths: str, words: str) -> None:
    events = stamp([created("soft"), Committed("/work/mine", paths, "a685f04" * 5)], "ana", None)
    assert [*replay.lines(events)][-1].endswith(f"committed {words} to /work/mine as a685f04a685f")
