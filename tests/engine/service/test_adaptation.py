"""One adaptation through the session service: verdicts, decisions, staleness, replay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import CuirError, StoreError
from engine.service.adaptation import Adaptation, start
from engine.service.bench import Bench, find_kernel, find_spec
from engine.service.options import choose_options
from engine.service.recheck import recheck
from engine.types import Decision, DecisionKind, Gate, Level, Stage, VerdictKind
from sessions.store import Store


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


def test_accept_decide_and_see_what_goes_stale(work: Adaptation) -> None:
    assert work.lift().kind is VerdictKind.PASS
    proposal = work.propose_by_rules()
    assert len(proposal.hunks) >= 6
    work.accept_all(proposal)
    assert work.judge_target().kind is VerdictKind.PASS
    work.lower()
    # Leave the guard out: the target changes, what follows it turns stale, and G2 fails.
    guard = next(h for h in proposal.hunks if h.clause == "empty_rows")
    work.decide(Decision(f"{proposal.id}/{guard.id}", DecisionKind.REJECTED, "tester"))
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
    rows = recheck(session, lambda _: None)
    assert rows and all(row.same for row in rows), [r for r in rows if not r.same]
    names = [row.name for row in rows]
    assert {"lifted/lifted.cuir", "G1", "target/target.cuir", "G2", "lowered/kernel.cu"} <= set(
        names
    )


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
