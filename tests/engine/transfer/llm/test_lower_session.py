"""A model writes a lowering where the templates cannot: inside the allowed spans, judged by G3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from engine.build.tools.toolchain import Toolchain
from engine.cuir.printer import print_module
from engine.errors import InputError, LowerError
from engine.gates.g3_source.lowering_check import G3
from engine.llm.errors import Exhausted
from engine.llm.record import Recorder, Replayer
from engine.llm.types import Client
from engine.lower import lower as lower_module
from engine.lower.spans import allowed_spans, verify_spans
from engine.lower.spelling.templates import default_templates
from engine.service.models.llm_conversation import Outgoing
from engine.service.models.llm_lower import ModelLower, accept_lowering, decide_lowering
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.content import LIFTED
from engine.service.session.lowerings import lower_task, written_lowering
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.upkeep.recheck import recheck
from engine.transfer.llm.answer import AnswerError
from engine.transfer.llm.lowering import LowerTask, marked_source, read_regions
from engine.types import (
    TOO_SLOW,
    Artifact,
    Decision,
    DecisionKind,
    Level,
    Origin,
    Stage,
    VerdictKind,
)
from sessions.events import Note
from sessions.store import Store
from tests.engine.llm import server as acts
from tests.engine.llm.conftest import KEY, Serve
from tests.engine.transfer.llm.shop import narrow


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(Store.open(tmp_path_factory.mktemp("lower") / "store.git")) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return narrow(tmp_path_factory.mktemp("kernels") / "flash")


@pytest.fixture
def no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates that have never heard of `map`. The lifter's own table still knows it."""
    whole = default_templates()
    ops = {name: entries for name, entries in whole.ops.items() if name != "map"}
    monkeypatch.setattr(lower_module, "default_templates", lambda: replace(whole, ops=ops))


@pytest.fixture
def work(bench: Bench, folder: Path, no_map: None) -> Iterator[Adaptation]:
    """A session whose target is judged and cannot be lowered by the templates."""
    package = find_kernel(str(folder))
    session = start(bench, package, find_spec("causal"), choose_options(package), "tester")
    with bench.store.writer(session, wait=5) as writer:
        made = Adaptation(bench, writer, "tester")
        # G1 is other tests' business.
        made._set([Artifact.of(Stage.LIFTED, LIFTED, print_module(made.lifted.module))])
        made.accept_all(made.propose_by_rules())
        yield made


def answer(task: LowerTask, *, swap: tuple[str, str] = ("", "")) -> str:
    """What the templates write when they know all, region by region; with a swap in it."""
    done = lower_module.lower(task.lifted, task.target, default_templates())
    assert swap[0] in done.source.decode()
    parts = []
    # Text of each region, found between the unchanged bytes around it.
    at = 0
    source = task.lifted.source
    ends = [r.place.end for r in task.regions]
    for number, region in enumerate(task.regions):
        nxt = task.regions[number + 1].place.start if number + 1 < len(ends) else len(source)
        begin = source[ends[number - 1] if number else 0 : region.place.start]
        behind = source[region.place.end : nxt]
        at = done.source.index(begin, at) + len(begin)
        end = done.source.index(behind, at) if number + 1 < len(ends) else (
            len(done.source) - len(behind)
        )  # fmt: skip
        new = done.source[at:end].decode().replace(*swap)
        at = end
        if new != task.text(region):
            parts.append(f"<<<<<<< {region.name}\n{new.removesuffix(chr(10))}\n>>>>>>>")
    return "The mask is written out.\n\n```cuda\n" + "\n".join(parts) + "\n```\n"


def model(work: Adaptation, client: Client, **more: object) -> ModelLower:
    more.setdefault("consent", lambda _: True)
    return ModelLower(work, client, "fake", **more)  # type: ignore[arg-type]


def test_a_lowering_of_a_target_that_is_too_slow_stands(
    work: Adaptation, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other text makes the target faster; that G3 fails is the session's to say."""
    slow = G3(VerdictKind.FAIL, "predicted below half", {TOO_SLOW: True}, "nvcc")
    monkeypatch.setattr(work, "judge_source", lambda *_: slow)
    server, client = serve(acts.answer(answer(lower_task(work))))
    result = model(work, client).run("map", 2)
    assert result.proposal is not None and len(server.asked) == 1
    assert result.attempts[-1].reason == "G3: predicted below half"
    accept_lowering(work, result.proposal)
    assert work.judge_lowered(work.make_lowering()).kind is VerdictKind.FAIL


def test_written_where_the_templates_cannot(
    work: Adaptation, serve: Serve, bench: Bench, tmp_path: Path, toolchain: Toolchain
) -> None:
    with pytest.raises(LowerError, match="map") as caught:
        work.lower()
    task = lower_task(work)
    server, client = serve(
        acts.answer(answer(task, swap=("j <= i", "j < i"))), acts.answer(answer(task)),
    )  # fmt: skip
    seen: list[Outgoing] = []

    def consent(outgoing: Outgoing) -> bool:
        assert not server.asked
        seen.append(outgoing)
        return True

    lower = model(work, Recorder(client, tmp_path / "rec"), consent=consent)
    result = lower.run(str(caught.value), 2)
    assert [a.reached.word for a in result.attempts] == ["g3", "passed"]
    assert "CUDA source" in seen[0].words()
    assert seen[0].bytes == sum(
        len(m["content"].encode()) for m in server.asked[0].body["messages"]
    )
    # The first one lifts to another program, and the second request says where.
    assert "lifts to another program" in server.asked[1].prompt
    proposal = result.proposal
    assert proposal is not None and proposal.origin is Origin.MODEL and proposal.transcript
    assert any("j <= i" in h.after for h in proposal.hunks)
    assert all("of the source" in h.title for h in proposal.hunks)
    accept_lowering(work, proposal)
    data = work.session.artifact(Stage.LOWERED, "kernel.cu").data
    allowed = allowed_spans(work.lifted, work.target)
    assert verify_spans(work.lifted.source, data, allowed) is None
    lowering = work.make_lowering()
    assert lowering.source == data and lowering.changed_lines > 0 and lowering.provenance
    verdict = work.judge_lowered(lowering)
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    assert work.judge_lifted().kind is VerdictKind.PASS
    verdict = work.judge_target()
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    work.skip_gpu()
    assert work.accept().level is Level.CPU_VERIFIED
    assert all(r.same for r in recheck(bench.store.load(work.writer.id), lambda _: None))
    # Decisions on it: without a hunk the text is another one; taken back, the templates lower.
    hunk = proposal.hunks[-1].id
    decide_lowering(work, Decision(f"{proposal.id}/{hunk}", DecisionKind.REJECTED, "tester"))
    assert work.session.artifact(Stage.LOWERED, "kernel.cu").data != data
    assert work.undo() and work.session.artifact(Stage.LOWERED, "kernel.cu").data == data
    decide_lowering(work, Decision(proposal.id, DecisionKind.REJECTED, "tester"))
    assert written_lowering(work) is None
    # It is no part of another target.
    decide_lowering(work, Decision(proposal.id, DecisionKind.ACCEPTED, "tester"))
    first = work.edits[0]
    assert [p.id for p in work.edits] == ["rules"]
    work.decide(Decision(f"rules/{first.hunks[0].id}", DecisionKind.REJECTED, "tester"))
    assert written_lowering(work) is None
    # And the same again without the server.
    server.stop()
    work.undo()
    again = model(work, Replayer(tmp_path / "rec")).run(str(caught.value), 2)
    assert again.proposal is not None and again.proposal.hunks == proposal.hunks


def test_what_no_answer_may_do(work: Adaptation, serve: Serve) -> None:
    """Texts outside of regions cannot be named; what is written lifts to the target or fails."""
    task = lower_task(work)
    for text, message in [
        ("```cuda\n<<<<<<< r999\nx\n>>>>>>>\n```", "is no region"),
        ("```cuda\n<<<<<<< kernel.cu\nx\n>>>>>>>\n```", "is no region"),
        ("```cuda\n```", "no region is changed"), ("```edit\n```", "exactly one ```cuda block"),
        ("```cuda\n<<<<<<< r1\nint a\u202e;\n>>>>>>>\n```", "carries the character"),
        ("```cuda\n<<<<<<< r1\nint a\x1b[2J;\n>>>>>>>\n```", "carries the character"),
    ]:  # fmt: skip
        with pytest.raises(AnswerError, match=message):
            read_regions(text, task)
    right = answer(task)
    sneaky = right.replace("row_max(s, m)", "cublas_row_max(s, m)", 1)
    sneaky = sneaky if sneaky != right else right.replace("map(", "cublas_map(", 1)
    assert sneaky != right
    _, client = serve(acts.answer(sneaky))
    result = model(work, client).run("no template", 0)
    assert result.proposal is None and result.attempts[0].reached.word == "g3"
    kept = next(t for t in work.state.transcripts if t.name == "lowering-1.r0.json")
    assert not json.loads(work.session.content(kept.sha256))["outcome"]["passed"]


def test_nothing_is_sent_without_consent(work: Adaptation, serve: Serve) -> None:
    server, client = serve(acts.answer("x"))
    with pytest.raises(InputError, match="nothing was sent"):
        model(work, client, consent=lambda _: False).run("no template", 0)
    work.decide(Decision("rules", DecisionKind.REJECTED, "tester"))
    with pytest.raises(InputError, match="changes nothing"):
        model(work, client).run("no template", 0)
    assert not server.asked


def test_the_prompt_shows_code_and_regions_alone(work: Adaptation) -> None:
    text = marked_source(lower_task(work))
    assert "//" not in text and "FlashAttention" not in text
    assert "/*r1" in text and "new lines may come here" in text
    bare = text
    for region in lower_task(work).regions:
        for mark in (f"/*{region.name}[*/", f"/*]{region.name}*/"):
            assert (mark in text) != region.empty
            bare = bare.replace(mark, "")
    assert "for (int step = 0; step < tiles; ++step) {" in bare


def test_faults_of_a_server_each_end_in_one_state(work: Adaptation, serve: Serve) -> None:
    """Retried, or a draft that goes back; the answer after them passes, and no key is kept."""
    with pytest.raises(LowerError) as caught:
        work.lower()
    right = answer(lower_task(work))
    garbage = acts.raw('data: {"choices": [{"delta": {"content": "```cuda"}}]}\n\n', "data: {{\n\n")
    server, client = serve(
        acts.status(429, "later"), garbage, acts.hang, acts.status(500, "down"), acts.html(502),
        acts.answer(right, "length"), acts.answer(right),
    )  # fmt: skip
    result = model(work, client).run(str(caught.value), 5)
    assert [a.reached.word for a in result.attempts] == ["incomplete"] * 3 + ["passed"]
    words = ("what is no JSON", "nothing came", "cut off")
    for trial, part in zip(result.attempts, words, strict=False):
        assert part in trial.reason, trial.reason
    assert len(server.asked) == 7 and result.proposal is not None
    # A server that stays down ends the run with what to do, and the next run works.
    server, client = serve(*[acts.status(500, "down")] * 3, acts.answer(right))
    with pytest.raises(Exhausted, match="3 tries"):
        model(work, client).run(str(caught.value), 5)
    assert model(work, client).run(str(caught.value), 0).proposal is not None
    notes = [e.body.text for e in work.session.events if isinstance(e.body, Note)]
    assert any("stopped after 0 answers" in n for n in notes)
    for transcript in work.state.transcripts:
        assert KEY.encode() not in work.session.content(transcript.sha256)


def test_the_headless_run_asks_where_the_templates_fail(
    work: Adaptation, serve: Serve, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`adapt --lower llm`, in this process, whose templates lack an op."""
    server, _ = serve(acts.answer("no regions"), acts.answer(answer(lower_task(work))))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    arguments = [
        "adapt", "--kernel", str(folder), "--spec", "causal", "--json", "--accept",
        "--store", str(tmp_path / "store.git"),
    ]  # fmt: skip
    assert main(arguments) == 1
    alone = json.loads(capsys.readouterr().out)
    assert alone["stages"][-1]["verdict"] == "not_run" and alone["attempts"] == []
    code = main(
        [*arguments, "--lower", "llm", "--base-url", server.url, "--model", "fake", "--yes"]
    )
    shown = capsys.readouterr()
    assert code == 0, shown.err
    result = json.loads(shown.out)
    rows = [(a["for"], a["round"], a["reached"]) for a in result["attempts"]]
    assert rows == [("lower", 0, "unreadable"), ("lower", 1, "passed")]
    lowered = [row["verdict"] for row in result["stages"] if row["name"] == "lowered"]
    assert lowered[0] == "not_run" and lowered[1] in ("pass", "not_run")
    assert "CUDA source" in shown.err
