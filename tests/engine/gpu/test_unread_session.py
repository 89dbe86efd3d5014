"""A session whose spec no rule reads, from a model's answer to a GPU-verified package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cuir.printer import print_module
from engine.errors import InputError
from engine.gates.outcome import Found
from engine.gpu.job import Contents, hashes_of, pack
from engine.llm.types import Ending, Listen, Reply, Request, deaf
from engine.service.models.llm import ModelTransfer
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.content import LIFTED
from engine.service.session.gpu_verdict import contents_of, verdict_from
from engine.service.session.package_export import export_session
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel
from engine.types import Artifact, Gate, Level, Stage, VerdictKind
from engine.worker.orchestration.checklist import BY_SPEC, CHECKS, NO_LSE, NO_RECIPE
from engine.worker.orchestration.manifest import read_job
from engine.worker.orchestration.results import KIND, METHOD_BY_SPEC, has_lse
from engine.worker.orchestration.results import Store as Rows
from sessions.store import Store
from tests.engine.transfer.llm.answers import sink
from tests.engine.transfer.llm.conftest import UNREAD


class Answers:
    """A model that says one thing."""

    place = manner = "here"

    def __init__(self, text: str) -> None:
        self.text = text

    async def complete(self, request: Request, listen: Listen = deaf) -> Reply:
        return Reply(Ending.COMPLETE, self.text)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adaptation]:
    """A lowered kernel; G1 and G3 are other tests' business."""
    root = tmp_path_factory.mktemp("unread")
    spec = root / "sink.py"
    spec.write_text(UNREAD)
    with Bench(Store.open(root / "store.git")) as bench:
        package = find_kernel("flash_fwd_sm80")
        options = choose_options(package, specialisation={"D": "64"})
        session = start(bench, package, spec, options, "tester")
        with bench.store.writer(session, wait=5) as writer:
            made = Adaptation(bench, writer, "tester")
            made._set([Artifact.of(Stage.LIFTED, LIFTED, print_module(made.lifted.module))])
            model = Answers(sink(made.lifted.module))
            transfer = ModelTransfer(made, model, "fake", lambda _: True, through=Gate.G2)
            proposal = transfer.run(0, 1).proposal
            assert proposal is not None and made.recipe is None
            made.accept_all(proposal)
            made.lower()
            for gate in (Gate.G1, Gate.G2, Gate.G3):
                made.give(made.found(gate, 0.0, Found(True, "")))
            yield made


def result_of(contents: Contents, **change: Any) -> dict[str, Any]:
    """What a run on a GPU would give for these bytes."""
    keys = ["bf16_64", "bf16_128", "f16_64", "f16_128"]
    rows = [
        {"check": c, "specialisation": k, "verdict": "pass", "cases": 3, "seconds": 0.1}
        for k in keys
        for c in CHECKS
        if c not in ("lse", "recipe")
    ]
    rows += [
        {"check": c, "specialisation": k, "verdict": "not_run", "cases": 0, "reason": reason}
        for k in keys
        for c, reason in (("lse", NO_LSE), ("recipe", NO_RECIPE))
    ]
    return {
        "kind": KIND, "schema": 1, "name": contents.name, "title": "t", "primary": "bf16_64",
        "keys": keys, "declared": keys, "hashes": hashes_of(contents), "softmax": False,
        "device": {"name": "NVIDIA H100", "arch": "sm_80"}, "method": METHOD_BY_SPEC,
        "state": "complete", "verdict": "pass", "reason": "", "checks": rows, "self_test": [],
        "times": [],
    } | change  # fmt: skip


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


def test_the_job_brings_what_judges_without_a_recipe(work: Adaptation, tmp_path: Path) -> None:
    folder = pack(contents_of(work, bench={"lengths": [2048]}), tmp_path / "job")
    job = read_job(folder)
    assert job.recipe is None and job.signature is not None
    assert [i["name"] for i in job.signature["inputs"]] == ["q", "k", "v", "sink"]
    assert {"kernel", "headers", "spec", "signature", "binding", "options"} <= set(job.hashes)
    assert not has_lse(job) and (folder / "worker/engine/worker/problems/one_head.py").is_file()
    told = Rows(job, {"name": "a card", "arch": "sm_80"}, fresh=True).result("complete")
    assert "every pair is counted" in told["method"] and told["softmax"] is False
    assert told["verdict"] == "not_run"


def test_a_result_is_held_to_what_can_be_judged(work: Adaptation, tmp_path: Path) -> None:
    whole = result_of(contents_of(work))
    verdict = verdict_from(work, write(tmp_path / "r.json", whole))
    assert verdict.kind is VerdictKind.PASS and BY_SPEC in verdict.reason
    silent = [r for r in whole["checks"] if r["check"] != "lse"]
    verdict = verdict_from(work, write(tmp_path / "r.json", whole | {"checks": silent}))
    assert verdict.kind is VerdictKind.NOT_RUN
    verdict = verdict_from(work, write(tmp_path / "r.json", whole | {"keys": [], "checks": []}))
    assert verdict.kind is VerdictKind.NOT_RUN
    broken = [dict(r) for r in whole["checks"]]
    broken[5] |= {"verdict": "fail", "failures": ["b 0 h 1"]}
    verdict = verdict_from(work, write(tmp_path / "r.json", whole | {"checks": broken}))
    assert verdict.kind is VerdictKind.FAIL
    other = whole | {"hashes": {**whole["hashes"], "signature": "0"}}
    with pytest.raises(InputError, match="what the spec declares"):
        verdict_from(work, write(tmp_path / "r.json", other))
    # A result by a recipe is none for a session that has no recipe.
    renamed = {**whole["hashes"], "recipe": whole["hashes"]["signature"]}
    del renamed["signature"]
    with pytest.raises(InputError, match="what the spec declares"):
        verdict_from(work, write(tmp_path / "r.json", whole | {"hashes": renamed}))


def test_it_is_accepted_exported_and_says_who_judged(work: Adaptation, tmp_path: Path) -> None:
    assert work.accept().level is Level.CPU_VERIFIED
    path = write(tmp_path / "r.json", result_of(contents_of(work)))
    work.give(verdict_from(work, path))
    assert work.accept().level is Level.GPU_VERIFIED
    folder = export_session(work, tmp_path / "sink_attention")
    readme = " ".join((folder / "README.md").read_text().split())
    assert "Level: gpu-verified" in readme and BY_SPEC in readme
    assert "its own function judged the kernel alone" in readme
    module = (folder / "__init__.py").read_text()
    assert "def attention(q: Tensor, k: Tensor, v: Tensor, sink: Tensor" in module
