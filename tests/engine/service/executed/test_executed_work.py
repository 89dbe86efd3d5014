"""A session about a kernel of others: probed, patched in its own source, judged by execution."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cubridge_tui.cli import main
from cubridge_tui.model.builder import Builder
from cubridge_tui.model.gates import gates_lines
from cubridge_tui.model.inspect import inspect
from cubridge_tui.model.rows import RowKind
from cubridge_tui.model.snapshot import View
from engine.errors import CuBridgeError, TransferError
from engine.foreign.check import Asked
from engine.foreign.probe.find import find
from engine.foreign.probe.places import Found
from engine.gates.outcome import Found as Outcome
from engine.graft.judge import Ran
from engine.resources import spec_path
from engine.service.executed import executed_work
from engine.service.executed.opened import adaptation_of
from engine.service.session.adaptation import start
from engine.service.session.package_export import export_session
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel
from engine.types import Decision, DecisionKind, Gate, Level, Stage, VerdictKind
from engine.worker.launches.abi import Library
from engine.worker.orchestration.building import build, find_nvcc
from engine.worker.orchestration.checklist import explained, required
from engine.worker.orchestration.manifest import read_job
from engine.worker.orchestration.results import Store as Rows
from engine.worker.orchestration.results import write_result
from sessions.state import SessionState
from sessions.store import Store
from tests.engine.service.executed.plain import (
    SOURCE,
    called,
    has_nvcc,
    imported,
    opened,
    pointed,
    told_again,
)

pytestmark = [
    pytest.mark.skipif(not has_nvcc(), reason="nvcc compiles the kernels of these tests"),
    pytest.mark.xdist_group("executed"),  # one worker has what was executed and built
]


@pytest.fixture(autouse=True)
def _told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told_again(monkeypatch)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return imported(tmp_path / "plain")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(executed_work, "find", pointed)
    with Bench(Store.open(tmp_path / "store.git")) as made:
        yield made


def test_a_kernel_is_adapted_in_its_own_source(
    kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "store.git"))
    words = ["adapt", "--kernel", str(kernel), "--spec", "alibi_causal", "--accept", "--json"]
    assert main([*words, "--export", str(tmp_path / "adapted")]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["level"] == "cpu-verified" and out["accepted"]
    rows = {s["name"]: s for s in out["stages"]}
    assert [rows[n]["verdict"] for n in ("lifted", "target", "lowered", "verified")] == [
        "pass", "pass", "pass", "not_run",
    ]  # fmt: skip
    assert "at the sizes that were run: B 1, Hq 2, N 64, D 8" in rows["lifted"]["reason"]
    assert "at the sizes that were run: the same 4 cases" in rows["target"]["reason"]
    assert "scores stand where they stood, once each" in rows["lowered"]["reason"]
    patch = (tmp_path / "adapted" / "target.patch").read_text()
    assert "+        dot += slopes[head] * (key - row);\n" in patch
    assert "+            float scale, const float* slopes, cudaStream_t stream) {\n" in patch
    bound = re.search(r"\+  for \(int first = 0; first < min\(length, (.*)\); first", patch)
    assert bound and "blockIdx.x" in bound[1]  # tiles above the diagonal are not visited
    assert len([line for line in patch.splitlines() if line[:1] == "+"]) == 10
    readme = (tmp_path / "adapted" / "README.md").read_text()
    assert len(readme.splitlines()) <= 40
    readme = " ".join(readme.split())
    for said in (
        " changed lines (target.patch)", "nvcc -arch=sm_80 -c plain.cu", "slopes, cudaStream_t",
        "**Run on a CPU** (G2), at 2 sizes (B 1, Hq 2, N 64 to 96, D 8), some with several inputs:",
        "nothing is proven of them", "**Never run**: G4 (on a GPU);",
    ):  # fmt: skip
        assert said in readme, said
    assert main(["check", str(tmp_path / "adapted")]) == 0
    assert "G1 passes" in capsys.readouterr().out
    assert main(["lift", out["session"]]) == 2
    assert "executed as PTX: there is no CuIR of it" in capsys.readouterr().err
    judged_on_a_gpu(out["session"], tmp_path, capsys)
    # A new version of it asks nothing where only names and blanks are others. Probing finds there
    # what it found, as tests/engine/foreign/test_find.py has it of a renamed twin.
    monkeypatch.setattr(executed_work, "find", pointed)
    source, was = kernel / "plain.cu", state_of(tmp_path, out["session"])
    source.write_bytes(called(source.read_bytes()))
    assert main(["rebase", out["session"], "--accept", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["accepted"] and again["asked"] == [] and again["renamed"] == 3
    assert [s["verdict"] for s in again["stages"]] == ["pass", "pass", "pass", "not_run"]
    now = state_of(tmp_path, out["session"])
    assert now.hashes["lowered"] != was.hashes["lowered"]
    judged = [dict(g.verdict.subject) for g in now.given if g.verdict.gate is Gate.G3]
    assert [j["artifact"] for j in judged] == [was.hashes["lowered"], now.hashes["lowered"]]


def judged_on_a_gpu(session: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its job is packed and builds; a result of it raises the level, and a failed one takes it."""
    path = folder / "job"
    assert main(["gpu", "pack", session, str(path), "--json"]) == 0
    capsys.readouterr()
    job = read_job(path)
    assert job.theirs is not None and job.kernels == ("attention", "Memset", "Memcpy")
    assert job.theirs.terms == {"step": 64, "requires": ["Nq == Nk", "Hkv == Hq"]}
    assert job.archs[0] == "sm_80" and "sm_90" in job.archs and "sm_90a" not in job.archs
    patched, author = (path / f"kernel/{at}root0/plain.cu" for at in ("", "source/"))
    assert author.read_bytes() == SOURCE.read_bytes() != patched.read_bytes()
    assert "Pointer{args.slopes.data}" in job.source.read_text()
    page = (path / "kernel/unedited.cu").read_text()
    assert "TensorArg slopes;" in page and "Pointer{args.slopes.data}" not in page
    with ThreadPoolExecutor(1) as pool:
        built = build(
            pool,
            job.source,
            job.source.parent,
            job.work / "b",
            job.entry,
            job.keys,
            job.fields,
            "sm_80",
            find_nvcc(),
            job.theirs.words(job.source.parent),
        )
    assert built.ok, built.log
    Library(built.library, job.fields)
    (key,) = job.keys
    rows = [
        {"check": c, "specialisation": key, "verdict": "pass", "cases": 1, "seconds": 0.1}
        for c in (*required(key, key, False, theirs=True), *explained(key, key, True, False, True))
    ]
    store = Rows(job, {"name": "NVIDIA H100", "arch": "sm_80"}, fresh=True)
    for level, code in (("gpu-verified", 0), ("none", 1)):
        for row in rows:
            store.add("checks", row)
        write_result(folder / "result.json", store.result("complete"))
        assert main(["gpu", "import", session, str(folder / "result.json"), "--json"]) == code
        assert json.loads(capsys.readouterr().out)["level"] == level
        rows = [{**rows[0], "verdict": "fail", "failures": ["b 0 h 1 i 2"]}]


def state_of(folder: Path, session: str) -> SessionState:
    return Store.open(folder / "store.git").load(session).state


def test_what_was_found_is_shown_and_kept(bench: Bench, kernel: Path) -> None:
    work = opened(bench, kernel, "softcap_causal")
    work.make_lifted()
    found = work.session.artifact(Stage.LIFTED, "found.txt").text
    assert "plain.cu:28: after it dot holds scores\n    b = batch\n" in found
    panes = Builder(work).snapshot().panes[View.TEXT]
    assert [row.text for row in panes[Stage.LIFTED].rows] == found.splitlines()
    assert panes[Stage.LIFTED].title == "lifted  executed as PTX"
    assert not panes[Stage.TARGET].rows
    signs = {row.number: row.sign for row in panes[Stage.SOURCE].rows if row.sign}
    assert signs == {28: "S"}


def test_no_edit_is_the_same_bytes_and_what_is_no_edit_of_scores_is_refused(
    bench: Bench, kernel: Path, tmp_path: Path
) -> None:
    work = opened(bench, kernel, "full")
    assert work.lift().passed
    proposal = work.propose_by_rules()
    assert proposal.hunks == ()
    work.accept_all(proposal)
    assert work.judge_target().passed
    work.lower()
    hashes = work.state.hashes
    assert hashes["lowered/kernel.cu"] == hashes["source/kernel.cu"]
    for spec, words in (("sigmoid_causal", "no softmax"), ("qk_norm_causal", "q or k before")):
        with pytest.raises(TransferError, match=words):  # before anything is probed
            opened(bench, kernel, spec).refuse_early()


@pytest.mark.parametrize(
    ("dropped", "built"),
    [("score", [True]), ("", [True]), ("score", [False, True]), ("-inf", [True])],
)
def test_a_mask_that_the_source_has_after_the_place_is_not_written_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: str, built: list[bool]
) -> None:
    """But for a place that not all scores reach, or where the build without it loses something."""

    def found(asked: Asked, said: object) -> Found:
        own = pointed(asked, said)
        return replace(own, hooks=tuple(replace(h, dropped=dropped) for h in own.hooks))

    monkeypatch.setattr(executed_work, "find", found)
    written = not dropped or not built[0]
    monkeypatch.setattr(executed_work, "judge_build", lambda was, now: Outcome(built.pop(0), ""))
    source = tmp_path / "plain.cu"
    text = SOURCE.read_text("utf-8")
    put = "      s[n] = dot;"
    before = "      dot *= scale;"
    text = (text.replace(before, f"      if (first + n > row) dot = -INFINITY;\n{before}")
            if dropped == "-inf" else
            text.replace(put, f"      if (first + n > row) dot = -1e30f;\n{put}"))  # fmt: skip
    source.write_text(text)
    work = opened(bench, imported(tmp_path / "causal", source, "causal"), "softcap_causal")
    proposal = work.propose_by_rules()
    (hunk,) = proposal.hunks
    assert "tanhf" in hunk.after and ("if (key > row) dot" in hunk.after) is written
    assert ("fmaf(dot, " in hunk.after) is (dropped == "-inf")
    assert not built
    work.accept_all(proposal)
    assert work.judge_target().passed


def test_of_a_longer_mask_what_the_source_drops_is_not_written_again(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents beside the source's own causal mask, which stands after the place."""

    def found(asked: Asked, said: object) -> Found:
        own = pointed(asked, said)
        return replace(own, hooks=tuple(replace(h, dropped="score") for h in own.hooks))

    monkeypatch.setattr(executed_work, "find", found)
    put = "      s[n] = dot;"
    source = tmp_path / "plain.cu"
    source.write_text(
        SOURCE.read_text("utf-8").replace(put, f"      if (first + n > row) dot = -1e30f;\n{put}")
    )
    kernel = imported(tmp_path / "causal", source, "causal")
    work = opened(bench, kernel, "flex_causal_document")
    proposal = work.propose_by_rules()
    text = "".join(h.after for h in proposal.hunks)
    row, key = (f"doc[min({at}, length - 1)]" for at in ("row", "key"))
    assert f"if ({row} != {key}) dot = " in text
    work.accept_all(proposal)
    assert work.judge_target().passed


def test_a_source_may_use_any_name_that_the_edits_use(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own text stays as it is: a score there is `x[0][e]`, in its own loop over `e`."""
    text = SOURCE.read_text("utf-8")
    text = text.replace("float s[kTile]", "float x[1][kTile]").replace("      s[n] = dot;\n", "")
    text = text.replace("float dot", "dot").replace("s[n]", "dot").replace("dot", "x[0][e]")
    names = {"n": "e", "d": "key", "row": "i", "first": "j", "head": "h", "batch": "b", "p": "row",
             "mine": "s", "m": "ahead", "heads": "n"}  # fmt: skip
    text = re.sub(r"\b\w+\b", lambda found: names.get(found[0], found[0]), text)
    source = tmp_path / "names.cu"
    source.write_text(text)
    monkeypatch.setattr(executed_work, "find", find)
    work = opened(bench, imported(tmp_path / "names", source), "softcap_causal")
    proposal = work.propose_by_rules()
    added = "".join(hunk.after for hunk in proposal.hunks)
    assert "x[0][e] = 50.0f * tanhf(x[0][e] / 50.0f);" in added
    assert "const int row_ = i;" not in added and "const int key_ = j + e;" in added
    work.accept_all(proposal)
    assert work.judge_target().passed


def test_a_number_is_chosen_by_evidence_and_a_wrong_edit_fails(
    bench: Bench, kernel: Path, tmp_path: Path
) -> None:
    work = opened(bench, kernel, "sliding_window_causal", window=20)
    proposal = work.propose_by_rules()
    (hunk,) = proposal.hunks
    assert "dot = -0x1p126f;" in hunk.after and "with -INFINITY" in hunk.reason
    wrong = hunk.after.replace("key < row - 19", "key < row - 18")
    work.decide(Decision("h1", DecisionKind.EDITED, "me", replacement=wrong))
    verdict = work.judge_target()
    assert verdict.kind is VerdictKind.FAIL and "O is wrong in" in verdict.reason
    assert work.undo()
    work.accept_all(proposal)
    assert work.judge_target().passed
    lowering = work.lower()
    assert b"key < row - 19" in lowering.source
    assert lowering.changed_lines == 4
    assert work.state.level is Level.NONE  # G3 was not run
    assert Gate.G3 not in {v.gate for v in work.state.verdicts}
    with pytest.raises(CuBridgeError, match="no accepted kernel"):
        export_session(work, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("masked_fill(j // 16 >= 8, float('-inf'))", "O is wrong in"),
        ("add((j // 100000) * 0.5)", "the source is unchanged, and no case that was run tells"),
    ],
)
def test_a_source_without_the_edits_is_no_pass(
    bench: Bench, kernel: Path, tmp_path: Path, change: str, words: str
) -> None:
    text = spec_path("full").read_text()
    last = "    return torch.softmax("
    own = f"    j = torch.arange(k.size(-2))\n    scores = scores.{change}\n"
    path = tmp_path / "asked.py"
    path.write_text(text.replace(last, own + last))
    package = find_kernel(f"{kernel}/")
    id = start(bench, package, path, choose_options(package, spec={}, asked=path), "me")
    work = adaptation_of(bench, bench.store.writer(id), "me")
    assert work.propose_by_rules().hunks
    work.decide(Decision("h1", DecisionKind.REJECTED, "me"))
    verdict = work.judge_target()
    assert verdict.kind is VerdictKind.FAIL and words in verdict.reason


SECOND = """
  attention_{0}<<<grid, 32, 2 * kTile * D * sizeof(float), stream>>>(q, k, v, o, Hq, N, D, scale);
"""


def with_second(kernel: Path, when: str) -> None:
    """Another kernel, which the launcher chooses so."""
    text = (kernel / "plain.cu").read_text()
    begin, end = text.index("__global__"), text.index("void launch(")
    second = text[begin:end].replace("attention(", "attention_2(")
    choice = f"  if ({when}) {{{SECOND.format(2)}    return;\n  }}\n  attention<<<"
    text = text[:end] + second + text[end:].replace("  attention<<<", choice)
    (kernel / "plain.cu").write_text(text)


@pytest.mark.parametrize(
    ("when", "verdict", "words"),
    [
        ("N == 96", VerdictKind.FAIL, "N 96, D 8: attention_2)"),  # another length: it is run
        ("false", VerdictKind.NOT_RUN, "no size was found that launches attention_2 at plain.cu:"),
    ],
)
def test_a_second_kernel_that_no_case_launches_is_no_pass(
    bench: Bench, kernel: Path, when: str, verdict: VerdictKind, words: str
) -> None:
    with_second(kernel, when)
    work = opened(bench, kernel, "causal")
    work.accept_all(work.propose_by_rules())  # attention alone is edited
    found = work.judge_target()
    assert found.kind is verdict and words in found.reason
    assert work.state.level is Level.NONE


def test_a_path_that_no_case_runs_is_no_pass(bench: Bench, kernel: Path) -> None:
    """Heads of 24 have a loop of their own, which no edit is in."""
    text = (kernel / "plain.cu").read_text()
    begin = text.index("  for (int first = 0")
    loop = text[begin : text.index("  for (int d = 0; d < D; d++) out[d] /= l;")]
    own = loop.replace("dot *= scale", "dot = dot * scale")  # which no edit is looked for at
    both = f"  if (D == 24) {{\n{own}  }} else {{\n{loop}  }}\n"
    (kernel / "plain.cu").write_text(text.replace(loop, both))
    work = opened(bench, kernel, "causal")
    work.accept_all(work.propose_by_rules())
    first, last = (both.split("float dot", 1)[0].count("\n"), own.count("\n"))
    lines = range(text[:begin].count("\n") + first, text[:begin].count("\n") + last + 2)
    before = work.lift()
    assert before.kind is VerdictKind.PASS and "; never run: plain.cu:" in before.reason
    found = work.judge_target()
    assert found.kind is VerdictKind.NOT_RUN and "--sizes that run these lines" in found.reason
    told = re.search(r"no case runs plain.cu:(\d+)", found.reason)
    assert told and int(told[1]) in lines
    assert found.details["never_run"] and work.state.level is Level.NONE


def test_a_kernel_that_other_sizes_launch_is_probed_there_and_edited_too(
    bench: Bench, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_second(kernel, "N == 96")

    def by_sizes(asked: Asked, said: object) -> Found:
        """What probing finds at these sizes: one kernel of the two."""
        found = pointed(asked, said)
        first, second = "_Z9attentionPKfS0_S0_Pfiiif", "_Z11attention_2PKfS0_S0_Pfiiif"
        if asked.sizes[0]["N"] != 96:
            return replace(found, executed={first: 1, second: 0})
        (place,) = found.hooks[0].places
        after = asked.source.read_bytes().rindex(b"dot *= scale;") + len(b"dot *= scale;")
        there = replace(place, after=after, function="attention_2")
        hook = replace(found.hooks[0], places=(there,))
        return replace(found, hooks=(hook,), executed={first: 0, second: 1})

    monkeypatch.setattr(executed_work, "find", by_sizes)
    work = opened(bench, kernel, "causal")
    work.make_lifted()
    assert isinstance(work, executed_work.ExecutedWork)
    assert [dict(h.sizes) for h in work.places.edited] == [{}, {"B": 1, "Hq": 2, "N": 96, "D": 8}]
    assert "a kernel that other sizes launch" in work.text(Stage.LIFTED, "found.txt")
    proposal = work.propose_by_rules()
    assert len(proposal.hunks) == 2
    work.accept_all(proposal)
    verdict = work.judge_target()
    assert verdict.passed and "N 96, D 8" in verdict.reason, verdict.reason
    work.decide(Decision("h2", DecisionKind.REJECTED, "me"))
    assert "attention_2" in work.judge_target().reason


def test_hunks_are_decided_on_again_after_undo(bench: Bench, kernel: Path) -> None:
    work = opened(bench, kernel, "causal")
    work.make_lifted()
    proposal = work.propose_by_rules()

    def shown() -> list[tuple[str, str]]:
        snap = Builder(work).snapshot()
        assert not snap.blocked("rules/h1")
        rows = snap.panes[View.OPS][Stage.TARGET].rows
        return [(row.kind.value, row.text.strip()) for row in rows if row.hunk == "rules/h1"]

    open_ = shown()
    assert ("del", "dot *= scale;") in open_ and ("add", "if (key > row) dot = -INFINITY;") in open_
    work.accept_all(proposal)
    assert "-INFINITY" in work.session.artifact(Stage.TARGET, "target.patch").text
    assert work.undo()
    assert shown() == open_
    assert not work.session.artifact(Stage.TARGET, "target.patch").text
    work.decide(Decision("rules/h1", DecisionKind.REJECTED, "me"))
    assert ("out_add", "if (key > row) dot = -INFINITY;") in shown()


def test_the_place_of_the_scores_leads_to_its_card_in_every_pane(
    bench: Bench, kernel: Path
) -> None:
    work = opened(bench, kernel, "causal")
    work.lift()
    proposal = work.propose_by_rules()
    shown = Builder(work).snapshot()  # before any decision: what is decided on is in sight
    rows = shown.panes[View.OPS][Stage.TARGET].rows
    heads = [r.hunk for r in rows if r.kind is RowKind.HEAD]
    assert not shown.diff_blocked and heads == ["rules/h1"]
    assert any("-INFINITY" in r.text or "-0x1p126" in r.text for r in rows if r.kind is RowKind.ADD)
    work.accept_all(proposal)
    work.judge_target()
    work.lower()
    snap = Builder(work).snapshot()
    source, lifted, lowered = (
        [r for r in snap.panes[View.OPS][stage].rows if r.key == ("found", (28,))]
        for stage in (Stage.SOURCE, Stage.LIFTED, Stage.LOWERED)
    )
    assert [r.number for r in source] == [28] and source[0].sign == "S"
    assert lifted[0].text.startswith("scores, place 1") and "evidence: by hand" in lifted[-1].text
    assert [r.text.strip() for r in lowered] == ["dot *= scale;"]
    card = "\n".join(inspect(snap, Stage.SOURCE, source[0]))
    assert "i = row" in card and "evidence: by hand" in card
    assert "B 1, Hq 2, N 64, D 8: attention<<<(" in card
    counts = re.search(r"executed: ([\d,]+) of the source, ([\d,]+) patched \(\+", card)
    assert counts and counts[1] != counts[2]
    assert "thread instructions executed" in "\n".join(gates_lines(snap))


def test_the_scores_stand_before_an_edited_hunk_too(bench: Bench, kernel: Path) -> None:
    work = opened(bench, kernel, "causal")
    work.lift()
    (hunk,) = work.propose_by_rules().hunks
    longer = hunk.after.replace("dot *= scale;", "dot *= scale;\n      // the future is dropped")
    work.decide(Decision("h1", DecisionKind.EDITED, "me", replacement=longer))
    work.lower()
    verdict = work.judge_lowered()
    assert verdict.kind is VerdictKind.PASS, verdict.reason
    assert "scores stand where they stood, once each" in verdict.reason


@pytest.mark.parametrize(("why", "kind"), [("", "pass"), ("not compared: N 128 (nan)", "not_run")])
def test_a_place_that_was_not_reached_withholds_the_verdict(why: str, kind: str) -> None:
    work: Any = SimpleNamespace(
        not_run=lambda gate, begin, reason, details: ("not_run", reason),
        found=lambda gate, begin, found: ("pass", found.reason),
    )
    ran = Ran(Outcome(True, "equal"), {}, 0, 0.0, not_reached=why)
    got, reason = executed_work.ExecutedWork._weighed(work, Gate.G2, 0.0, ran)
    assert got == kind and why in reason
