"""Work done again: what a stale verdict says of it."""

from __future__ import annotations

from pathlib import Path

from engine.service.session.adaptation import Adaptation
from engine.service.upkeep.recheck import Check, gate_again
from engine.types import Gate, Verdict, VerdictKind
from sessions.events import InputsSet
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, bench_of, placed, verdict_of


def test_a_stale_verdict_is_told_as_stale_and_others_are_made_again(tmp_path: Path) -> None:
    session = placed(tmp_path / "store.git")
    store = Store.open(tmp_path / "store.git")
    with bench_of(store) as bench, store.writer(session, wait=5) as writer:
        work = Adaptation(bench, writer, ACTOR)
        asked: list[str] = []

        def again(kind: VerdictKind) -> list[Check]:
            def weigh() -> Verdict:
                asked.append("asked")
                return verdict_of(work, Gate.G1, kind, "made for a test")

            return list(gate_again(work, Gate.G1, weigh, lambda _: None))

        work.give(verdict_of(work, Gate.G1, VerdictKind.PASS, "made for a test"))
        assert [c.word for c in again(VerdictKind.PASS)] == ["same"]
        assert [c.word for c in again(VerdictKind.FAIL)] == ["DIFFERS"]
        assert [c.word for c in again(VerdictKind.NOT_RUN)] == ["DIFFERS"]
        writer.append([InputsSet({"kernel": "0" * 64})], actor=ACTOR)
        (row,) = again(VerdictKind.FAIL)
        assert row.word == "stale" and row.same and "kernel" in row.untold
        assert len(asked) == 3
