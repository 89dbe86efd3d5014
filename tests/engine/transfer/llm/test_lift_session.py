"""A model gives opaque ops their meanings: three proposals, judged, assumed until G4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.build.tools.toolchain import Toolchain
from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Opaque
from engine.cuir.parser import parse_block
from engine.cuir.printer import print_module
from engine.cuir.rewrite import get
from engine.errors import InputError
from engine.lift.files.meanings import Meaning, with_meanings
from engine.llm.record import Recorder, Replayer
from engine.llm.types import Client
from engine.service.models.llm_conversation import Outgoing, Result
from engine.service.models.llm_lift import ModelLift, Said
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.meanings import decide_meanings, standing, step_of
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.upkeep.recheck import recheck
from engine.transfer.llm.lifting import Step
from engine.types import (
    Decision,
    DecisionKind,
    Gate,
    Level,
    Proposal,
    Stage,
    VerdictKind,
    open_assumptions,
)
from sessions.store import Store
from tests.engine.llm import server as acts
from tests.engine.llm.conftest import Serve
from tests.engine.transfer.llm.shop import make_shop

OPS = ("s2", "s4", "s44", "s56", "s64")


def part(id: str, text: str) -> str:
    return f"<<<<<<< {id}\n{text}\n>>>>>>>"


def said(*texts: str) -> str:
    parts = "\n".join(part(id, text) for id, text in zip(OPS, texts, strict=True))
    return f"Read from the header.\n\n```meaning\n{parts}\n```\n"


NONE = "does: it declares names.\nreads:\nwrites:"
ANNOTATE = said(
    NONE, NONE,
    "does: adds the products of sQ with one transposed tile of K to s.\n"
    "reads: s, sQ, sK, step, STAGES\nwrites: s",
    "does: adds the row sums of s to l.\nreads: l, s\nwrites: l",
    "does: it only keeps the compiler from moving accesses.\nreads:\nwrites: none",
)  # fmt: skip
BIND = said("by: any", "by: any", "by: part", "by: part", "by: any")
SCORES = "gemm(s, sQ, transpose(sK[step % STAGES]))"
TRANSLATE = said("pass", "pass", SCORES, "l = row_sum(s, l)", "pass")
WRONG = said("pass", "pass", SCORES, "l = row_sum(s, l)\nl = row_sum(s, l)", "pass")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(Store.open(tmp_path_factory.mktemp("lift") / "store.git")) as made:
        yield made


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shop(tmp_path_factory.mktemp("kernels") / "shop")


@pytest.fixture
def work(bench: Bench, shop: Path) -> Iterator[Adaptation]:
    package = find_kernel(str(shop))
    session = start(bench, package, find_spec("causal"), choose_options(package), "tester")
    with bench.store.writer(session, wait=5) as writer:
        yield Adaptation(bench, writer, "tester")


def model(work: Adaptation, client: Client, **more: object) -> ModelLift:
    more.setdefault("consent", lambda _: True)
    return ModelLift(work, client, "fake", **more)  # type: ignore[arg-type]


def accept(work: Adaptation, result: Result[Said]) -> Proposal:
    assert result.proposal is not None, result.attempts[-1].reason
    decide_meanings(work, Decision(result.proposal.id, DecisionKind.ACCEPTED, "tester"))
    return result.proposal


def test_three_steps_then_the_whole_pipeline(
    work: Adaptation, serve: Serve, bench: Bench, tmp_path: Path, toolchain: Toolchain
) -> None:
    verdict = work.lift()
    assert verdict.kind is VerdictKind.NOT_RUN and "give it a meaning" in verdict.reason
    server, client = serve(*map(acts.answer, (ANNOTATE, BIND, WRONG, TRANSLATE)))
    seen: list[Outgoing] = []

    def consent(outgoing: Outgoing) -> bool:
        assert not server.asked
        seen.append(outgoing)
        return True

    lift = model(work, Recorder(client, tmp_path / "rec"), consent=consent)
    proposals = []
    for step in Step:
        proposals.append(accept(work, lift.run(step, 1)))
    # What was shown is what was sent first; comments of the source and its headers are not.
    assert len(seen) == 1 and "CUDA text" in seen[0].words()
    sent = sum(len(m["content"].encode()) for m in server.asked[0].body["messages"])
    assert seen[0].bytes == sent
    assert "cubridge::row_sum(s, l)" in server.asked[0].prompt
    assert "SECRET-COMMENT" not in "".join(a.prompt for a in server.asked)
    # The wrong translation ran, and its counterexample went back.
    assert "does not compute its own reference" in server.asked[3].prompt
    assert "expected" in server.asked[3].prompt
    # Each step is a proposal with one hunk per op; the last ones show text and CuIR.
    assert [step_of(p) for p in proposals] == list(Step)
    assert [h.id for h in proposals[2].hunks] == list(OPS)
    assert proposals[2].hunks[3].before == "add_rows(l, s);"
    assert proposals[2].hunks[3].after == "l = row_sum(s, l)"
    assert proposals[0].transcript and proposals[0].reason == "Read from the header."
    # G1 now runs, and says what it rests on.
    verdict = work.lift()
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    assert verdict.assumed == OPS
    assert "with opaque('add_rows(l, s);'" in work.text(Stage.LIFTED, "lifted.cuir")
    # The rules, the gates and nvcc work on it as on any kernel.
    work.accept_all(work.propose_by_rules())
    assert work.judge_target().kind is VerdictKind.PASS
    work.lower()
    verdict = work.judge_lowered()
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    assert b"add_rows(l, s);" in work.session.artifact(Stage.LOWERED, "kernel.cu").data
    work.skip_gpu()
    assert open_assumptions(work.state.verdicts) == tuple(sorted(OPS))
    assert work.accept().level is Level.CPU_VERIFIED
    rows = recheck(bench.store.load(work.writer.id), lambda _: None)
    assert [r.name for r in rows if not r.same] == []
    # Another session, without the server, gives the same proposals.
    server.stop()
    package = work.package
    session = start(bench, package, find_spec("causal"), choose_options(package), "tester")
    with bench.store.writer(session, wait=5) as writer:
        again = Adaptation(bench, writer, "tester")
        lift = model(again, Replayer(tmp_path / "rec"))
        assert [accept(again, lift.run(step, 1)) for step in Step] == proposals


def test_a_rejected_or_edited_meaning_is_the_persons(work: Adaptation, serve: Serve) -> None:
    work.lift()
    _, client = serve(*map(acts.answer, (ANNOTATE, BIND, TRANSLATE)))
    lift = model(work, client)
    for step in Step:
        accept(work, lift.run(step, 0))
    before = work.state.hashes["lifted"]
    last = work.state.proposals[-1].id
    with pytest.raises(InputError, match="did not say that it writes"):
        edited = Decision(f"{last}/s56", DecisionKind.EDITED, "tester", "", "m = row_max(s, m)")
        decide_meanings(work, edited)
    assert work.state.hashes["lifted"] == before
    text = "total = row_sum(s, l)\nl = total"
    decide_meanings(work, Decision(f"{last}/s56", DecisionKind.EDITED, "tester", "", text))
    assert "total = row_sum(s, l)" in print_module(work.lifted.module)
    decide_meanings(work, Decision(f"{last}/s56", DecisionKind.REJECTED, "tester"))
    verdict = work.lift()
    assert verdict.kind is VerdictKind.NOT_RUN and "add_rows" in verdict.reason
    assert work.undo()
    assert standing(work)["s56"].body
    # Taking everything back gives the bare module.
    for proposal in work.state.proposals:
        decide_meanings(work, Decision(proposal.id, DecisionKind.REJECTED, "tester"))
    assert work.lifted.module == work.bare.module


def test_meanings_are_no_part_of_the_target(work: Adaptation, serve: Serve) -> None:
    """Proposals about meanings never enter the composition of the target."""
    work.lift()
    _, client = serve(*map(acts.answer, (ANNOTATE, BIND, TRANSLATE)))
    lift = model(work, client)
    for step in Step:
        accept(work, lift.run(step, 0))
    assert work.edits == () and work.compose() == work.lifted.module


def test_a_wrong_meaning_is_kept_and_not_proposed(work: Adaptation, serve: Serve) -> None:
    work.lift()
    _, client = serve(*map(acts.answer, (ANNOTATE, BIND, WRONG)))
    lift = model(work, client)
    for step in (Step.ANNOTATE, Step.BIND):
        accept(work, lift.run(step, 0))
    result = lift.run(Step.TRANSLATE, 0)
    assert result.proposal is None and result.attempts[0].reached.word == "g1"
    kept = next(t for t in work.state.transcripts if t.name == "meaning-1-translate.r0.json")
    outcome = json.loads(work.session.content(kept.sha256))["outcome"]
    assert outcome["reached"] == "g1" and not outcome["passed"]
    assert work.state.verdict(Gate.G1) is not None  # still the one that was not run


def test_nothing_is_sent_without_consent(work: Adaptation, serve: Serve) -> None:
    work.lift()
    server, client = serve(acts.answer(ANNOTATE))
    with pytest.raises(InputError, match="nothing was sent"):
        model(work, client, consent=lambda _: False).run(Step.ANNOTATE, 0)
    with pytest.raises(InputError, match="no op to ask for"):
        model(work, client).run(Step.TRANSLATE, 0)
    assert not server.asked


def test_a_barrier_that_is_said_to_do_nothing_fails_g1(bench: Bench, tmp_path: Path) -> None:
    """What a meaning leaves out of the pipeline is found by running it, not by believing it."""
    folder = make_shop(tmp_path / "shop")
    source = folder / "kernel.cu"
    text = source.read_text()
    before = "    wait_async<STAGES - 2>();\n    sync();\n"
    assert text.count(before) == 1
    source.write_text(text.replace(before, before.replace("sync()", "everybody()")))
    package = find_kernel(str(folder))
    session = start(bench, package, find_spec("causal"), choose_options(package), "tester")
    with bench.store.writer(session, wait=5) as writer:
        work = Adaptation(bench, writer, "tester")
        ids = assign(work.bare.module)
        opaque = {ids[op.path]: op for op in work.bare.opaque}
        bodies = {"scores": SCORES, "add_rows": "l = row_sum(s, l)"}

        def meanings(barrier: str) -> list[Meaning]:
            out = []
            for id, op in opaque.items():
                stmt = get(work.bare.module, op.path)
                assert isinstance(stmt, Opaque)
                name = stmt.text.split("(")[0]
                body = bodies | {"everybody": barrier}
                out.append(
                    Meaning(id, stmt.text, body=parse_block(body.get(name, "no_effect = True")))
                )
            return out

        right = work.weigh_lifted(with_meanings(work.bare, meanings("sync()")))
        assert right.kind is VerdictKind.PASS, right.reason
        wrong = work.weigh_lifted(with_meanings(work.bare, meanings("no_effect = True")))
        assert wrong.kind is VerdictKind.FAIL
        assert "read" in wrong.reason or "overw" in wrong.reason, wrong.reason
