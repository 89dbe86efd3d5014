"""One adaptation through the session service: verdicts, decisions, staleness, replay."""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.desk import Desk
from cubridge_tui.model.next_step import Step, owed
from engine.child import client
from engine.child.wire import ChildFailed, next_message
from engine.errors import CuirError, StoreError
from engine.gates.outcome import Found
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.upkeep.recheck import recheck
from engine.types import Decision, DecisionKind, Gate, Level, Stage, Verdict, VerdictKind, sha256_of
from sessions.events import TranscriptAdded
from sessions.pack import blob_oid
from sessions.store import Store
from tests import judged_once


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(Store.open(tmp_path_factory.mktemp("service") / "store.git")) as made:
        yield made


@pytest.fixture
def work(bench: Bench) -> Iterator[Adaptation]:
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package, specialisation={"D": "64"})
    session = start(bench, package, find_spec("softcap_causal"), options, "tester")
    with bench.store.writer(session, wait=5) as writer:
        yield Adaptation(bench, writer, "tester")


def test_a_session_that_ended_before_it_was_lifted_is_lifted_to_be_judged(work: Adaptation) -> None:
    assert work.judge_lifted().kind is VerdictKind.PASS
    assert work.state.stage(Stage.LIFTED).artifacts


def test_accept_decide_and_see_what_goes_stale(work: Adaptation) -> None:
    assert work.lift().kind is VerdictKind.PASS
    proposal = work.propose_by_rules()
    assert len(proposal.hunks) >= 6
    work.accept_all(proposal)
    assert work.judge_target().kind is VerdictKind.PASS
    work.lower()
    # Leave the guard out: the target changes, what follows it turns stale, and G2 fails.
    guard = [f"{proposal.id}/{h.id}" for h in proposal.hunks if h.clause == "empty_rows"]
    work.decide(*(Decision(name, DecisionKind.REJECTED, "tester") for name in guard))
    state = work.state
    verdict = state.verdict(Gate.G2)
    assert verdict is not None and verdict.kind is VerdictKind.STALE
    assert state.outdated(Stage.LOWERED) is not None
    failed = work.judge_target()
    assert failed.kind is VerdictKind.FAIL and failed.details.get("counterexample")
    with pytest.raises(StoreError, match="level"):
        work.accept()
    assert work.undo()
    verdict = work.state.verdict(Gate.G2)
    assert verdict is not None and verdict.kind is VerdictKind.PASS
    assert work.redo() and work.undo()


def test_a_killed_judge_gives_no_verdict_and_the_gate_runs_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed once it had begun, in the desk as a person uses it."""
    monkeypatch.setenv(judged_once.ANEW, "1")
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package, specialisation={"D": "64"})
    session = start(bench, package, find_spec("causal"), options, "tester")
    desk = Desk(bench, session, "tester", {})

    def shoot(buffer: bytearray) -> dict[str, Any] | None:
        message = next_message(buffer)
        if message is not None and "began" in message:
            assert bench.child.pid is not None
            os.kill(bench.child.pid, signal.SIGKILL)
        return message

    try:
        work = desk.work
        work.lift()
        work.accept_all(work.propose_by_rules())
        monkeypatch.setattr(client, "next_message", shoot)
        for times in (1, 2):  # run to the end asks once each time, and may be asked again
            desk.run(lambda _: None)
            given = [g.verdict for g in work.state.given if g.verdict.gate is Gate.G2]
            assert len(given) == times
        found = given[-1]
        assert found.unfinished and work.state.verdict(Gate.G2) == found
        assert found.reason == "the process that ran the judge was killed (signal 9)"
        assert work.state.level is Level.NONE
        now = owed(work.state)
        assert now.step is Step.JUDGE_TARGET and now.action == "step" and "signal 9" in now.words
        # Undone and done again: the same content, and still nothing that bars the gate.
        assert work.undo() and work.redo()
        assert owed(work.state).step is Step.JUDGE_TARGET
        monkeypatch.undo()
        desk.step()
        assert owed(work.state).step is Step.LOWER
    finally:
        desk.close()


@pytest.mark.parametrize("gate", [Gate.G1, Gate.G2, Gate.G3])
def test_an_internal_error_is_no_verdict(
    gate: Gate, work: Adaptation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an exception of ours says, nothing is known of the kernel."""

    def raises(*_: Any, **__: Any) -> Any:
        raise ChildFailed("internal error: KeyError (at scalar.py:104): 'E'")

    def lowered() -> Verdict:
        return work.judge_lowered(work.lower())

    def breaks(*_: Any, **__: Any) -> Any:
        raise KeyError("E")

    work.lift()
    work.accept_all(work.propose_by_rules())
    monkeypatch.setattr(work, "ask_judge", raises)
    for judge in (raises, breaks):
        monkeypatch.setattr(work, "judge_source", judge)
        weigh = {Gate.G1: work.weigh_lifted, Gate.G2: work.weigh_target, Gate.G3: lowered}
        found = weigh[gate]()
        assert found.kind is VerdictKind.NOT_RUN and found.unfinished
        assert "KeyError" in found.reason and "internal error" in found.reason


@pytest.mark.parametrize(
    "answer", [{}, {"ok": 1, "reason": "", "details": {}}, {"ok": True, "reason": "", "details": 0}]
)
def test_what_is_no_answer_of_a_judge_is_no_verdict(answer: dict[str, Any]) -> None:
    with pytest.raises(ChildFailed):
        Found.from_json(answer)


def test_an_edit_that_does_not_parse_is_not_recorded(work: Adaptation) -> None:
    work.lift()
    proposal = work.propose_by_rules()
    work.accept_all(proposal)
    events = len(work.writer.events)
    hunk = next(h for h in proposal.hunks if "keep(" in h.after)
    broken = Decision(hunk.id, DecisionKind.EDITED, "tester", replacement="s = keep(s,")
    with pytest.raises(CuirError):
        work.decide(broken)
    assert len(work.writer.events) == events


def test_replay_makes_the_same_again(work: Adaptation, bench: Bench) -> None:
    work.lift()
    work.accept_all(work.propose_by_rules())
    work.judge_target()
    work.lower()
    session = bench.store.load(work.writer.id)
    with judged_once.anew():
        rows = recheck(session, lambda _: None)
    assert rows and all(row.same for row in rows), [r for r in rows if not r.same]
    names = [row.name for row in rows]
    assert {"lifted/lifted.cuir", "G1", "target/target.cuir", "G2", "lowered/kernel.cu"} <= set(
        names
    )


def test_replay_reads_all_that_it_vouches_for(work: Adaptation, bench: Bench) -> None:
    """Also what would come out the same when made again, and what nothing is made from."""
    package = b"the package"
    kept = TranscriptAdded("package.tar", sha256_of(package), "accepted")
    work.writer.append([kept], [package], actor="tester")
    session = bench.store.load(work.writer.id)
    contents = session.contents()
    assert {"source/kernel.cu", "package.tar"} <= set(contents.values())
    with judged_once.anew():
        assert all(row.same for row in recheck(session, lambda _: None))
    for sha256, name in contents.items():
        oid = blob_oid(session.content(sha256))
        file = bench.store.path / "objects" / oid[:2] / oid[2:]
        whole = file.read_bytes()
        file.chmod(0o600)
        file.write_bytes(zlib.compress(b"blob 9\0something"))
        rows = recheck(bench.store.load(work.writer.id), lambda _: None)
        assert [(r.name, r.was, r.same) for r in rows] == [(name, sha256, False)]
        file.write_bytes(whole)


def test_a_session_opens_where_it_was_left(work: Adaptation, bench: Bench) -> None:
    work.lift()
    proposal = work.propose_by_rules()
    session = work.writer.id
    work.writer.close()
    with bench.store.writer(session, wait=5) as writer:
        again = Adaptation(bench, writer, "tester")
        assert again.state.furthest is Stage.TARGET
        assert [h.id for _, h, _ in again.hunks()] == [h.id for h in proposal.hunks]
        again.accept_all(proposal)
        assert again.target != again.lifted.module
        assert again.state.level is Level.NONE


def test_another_spec_on_disk_is_not_judged(bench: Bench, tmp_path: Path) -> None:
    spec = tmp_path / "mine.py"
    spec.write_bytes(find_spec("causal").read_bytes())
    package = find_kernel("flash_fwd_sm80")
    session = start(bench, package, spec, choose_options(package), "tester")
    with bench.store.writer(session, wait=5) as writer:
        work = Adaptation(bench, writer, "tester")
        work.lift()
        work.accept_all(work.propose_by_rules())
        spec.write_bytes(find_spec("full").read_bytes())
        verdict = work.judge_target()
        assert verdict.kind is VerdictKind.NOT_RUN and "mine.py" in verdict.reason
        assert work.state.level is Level.NONE


def test_options_name_what_is_wrong() -> None:
    package = find_kernel("flash_fwd_sm80")
    with pytest.raises(Exception, match="Turing"):
        choose_options(package, arch="sm_75")
    with pytest.raises(Exception, match="96"):
        choose_options(package, specialisation={"D": "96"})


def test_paths_are_kernels_too(tmp_path: Path) -> None:
    assert find_kernel(str(find_kernel("flash_fwd_sm80").folder)).name == "flash_fwd_sm80"
