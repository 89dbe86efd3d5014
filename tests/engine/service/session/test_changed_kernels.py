"""The same spec on a changed source: the pipeline follows the source, not a memory of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.build.tools.toolchain import Toolchain
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import Level, VerdictKind
from sessions.store import Store

HALVED = ("BN = D == 64 ? 64 :", "BN = D == 64 ? 32 :")


def test_halving_the_key_tile_then_adapting_passes_all_cpu_gates(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    folder = tmp_path / "halved"
    shutil.copytree(find_kernel("flash_fwd_sm80").folder, folder)
    source = folder / "kernel.cu"
    text = source.read_text()
    if HALVED[0] not in text:
        pytest.fail("the launcher chooses its key tile in another way: mend this test")
    source.write_text(text.replace(*HALVED))
    manifest = folder / "kernel.toml"
    manifest.write_text(manifest.read_text().replace("D = [64, 128]", "D = [64]"))
    package = find_kernel(str(folder))
    with Bench(Store.open(tmp_path / "store.git")) as bench:
        spec = find_spec("softcap_causal")
        session = start(bench, package, spec, choose_options(package), "tester")
        with bench.store.writer(session, wait=5) as writer:
            work = Adaptation(bench, writer, "tester")
            assert work.lift().kind is VerdictKind.PASS
            work.accept_all(work.propose_by_rules())
            assert work.judge_target().kind is VerdictKind.PASS
            work.lower()
            verdict = work.judge_lowered()
            assert verdict.kind is VerdictKind.PASS, verdict.reason
            work.skip_gpu()
            assert work.accept().level is Level.CPU_VERIFIED
