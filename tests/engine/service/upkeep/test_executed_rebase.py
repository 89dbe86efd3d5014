"""A session about a kernel of others on a new version of it."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.graft.plan import MINUS
from engine.service.executed import executed_work
from engine.service.executed.executed_work import ExecutedWork
from engine.service.session.adaptation import Adaptation
from engine.service.session.workbench import Bench
from engine.service.upkeep.newer import Rebase, newer_kernel
from engine.service.upkeep.rebase import plan_rebase, record_rebase
from engine.types import Decision, DecisionKind, Stage, VerdictKind
from sessions.store import Store
from tests.engine.service.executed.plain import SOURCE, called, has_nvcc, imported, opened, pointed

pytestmark = pytest.mark.skipif(not has_nvcc(), reason="nvcc compiles the kernels of these tests")
AFTER = b"dot *= scale;"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adaptation]:
    """A session whose rules' proposal waits for decisions."""
    monkeypatch.setattr(executed_work, "find", pointed)
    # A kernel is executed to choose between two numbers, which takes seconds; here it is one.
    monkeypatch.setattr(
        ExecutedWork, "by_rules", lambda self, recipe: self.planned(recipe, MINUS[0])
    )
    with Bench(Store.open(tmp_path / "store.git")) as bench:
        made = opened(bench, imported(tmp_path / "plain"), "alibi_causal")
        made.make_lifted()
        made.propose_by_rules()
        yield made


def newer(work: Adaptation, change: tuple[bytes, bytes] | None = None) -> Rebase:
    """What the session is where its kernel changed in its own folder."""
    path = work.package.folder / "plain.cu"
    text = path.read_bytes()
    path.write_bytes(called(text) if change is None else text.replace(*change))
    assert path.read_bytes() != text
    return plan_rebase(work, newer_kernel(work.state, None))


def test_names_comments_and_blanks_ask_nothing(work: Adaptation) -> None:
    work.accept_all(work.edits[0])
    was = work.state.hashes["target/target.patch"]
    made = newer(work)
    assert made.renamed == 3 and not made.changes and not made.asked
    assert work.state.hashes["target/target.patch"] == was  # nothing is recorded
    after = record_rebase(work, made)
    assert "slopes[which] * (key - query)" in after.text(Stage.TARGET, "target.patch")
    assert b"product += slopes[which] * (key - query)" in after.lower().source
    assert after.session.content(was)  # the history keeps both


def test_a_change_at_a_hunks_place_is_asked_and_a_wrong_one_fails(work: Adaptation) -> None:
    work.accept_all(work.edits[0])
    made = newer(work, (AFTER, AFTER + b" dot = dot + 0.0f;"))
    (asked,) = made.asked
    assert asked.reason.startswith("asked, since the new kernel differs here")
    assert len(made.decided) == len(made.proposal.hunks) - 1 if made.proposal else False
    after = record_rebase(work, made)
    assert "slopes[head]" not in after.text(Stage.TARGET, "target.patch")
    after.decide(Decision(f"rules/{asked.id}", DecisionKind.ACCEPTED, "me"))
    assert "slopes[head]" in after.text(Stage.TARGET, "target.patch")
    # Elsewhere: nothing is asked, and G2 says that it is wrong.
    made = newer(after, (b"int row = blockIdx", b"int row = 1 + blockIdx"))
    assert made.changes == {"change": 1} and not made.asked
    assert record_rebase(after, made).judge_target().kind is VerdictKind.FAIL


def test_rejected_open_and_edited_hunks_stay_what_they_are(work: Adaptation) -> None:
    (first, *rest) = work.edits[0].hunks
    own = first.after.replace("slopes[head]", "(0.0f + slopes[head])")
    assert own != first.after
    work.decide(Decision(f"rules/{first.id}", DecisionKind.EDITED, "me", replacement=own))
    work.decide(Decision(f"rules/{rest[0].id}", DecisionKind.REJECTED, "me"))
    with pytest.raises(InputError, match="not decided on"):
        newer(work, (b"kTile = 16", b"kTile = 32"))
    for hunk in rest[1:]:
        work.decide(Decision(f"rules/{hunk.id}", DecisionKind.ACCEPTED, "me"))
    made = newer(work)
    kinds = Counter(d.kind for d in made.decided.values())  # fewer lines apart, more hunks
    assert kinds[DecisionKind.EDITED] == kinds[DecisionKind.REJECTED] == 1 and not made.asked
    after = record_rebase(work, made)
    assert "(0.0f + slopes[which])" in after.text(Stage.TARGET, "target.patch")
    # The statement that the person's text stands at is another one now.
    made = newer(after, (b"product *= scale;", b"product *= scale; product += 0.0f;"))
    assert any("what you wrote as h1 has no place" in h.reason for h in made.asked)


def test_a_change_of_a_header_is_a_new_version_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executed_work, "find", pointed)
    monkeypatch.setattr(
        ExecutedWork, "by_rules", lambda self, recipe: self.planned(recipe, MINUS[0])
    )
    before, kernel, launcher = re.split(rb"(__global__.*?\n}\n)", SOURCE.read_bytes(), flags=re.S)
    own = tmp_path / "own"
    own.mkdir()
    (own / "kernel.cuh").write_bytes(before + kernel)
    (own / "plain.cu").write_bytes(b'#include "kernel.cuh"\n' + launcher)
    with Bench(Store.open(tmp_path / "store.git")) as bench:
        work = opened(bench, imported(tmp_path / "plain", own / "plain.cu"), "alibi_causal")
        work.make_lifted()
        work.accept_all(work.propose_by_rules())
        header = work.package.folder / "kernel.cuh"
        header.write_bytes(called(header.read_bytes()))
        made = plan_rebase(work, newer_kernel(work.state, None))
        assert made.renamed == 3 and not made.asked
        patch = record_rebase(work, made).text(Stage.TARGET, "target.patch")
        assert "+++ b/kernel.cuh" in patch and "+++ b/plain.cu" in patch
        assert "slopes[which] * (key - query)" in patch


def test_another_file_or_folder_is_a_new_version_too(work: Adaptation, tmp_path: Path) -> None:
    work.accept_all(work.edits[0])
    other = tmp_path / "elsewhere" / "renamed.cu"
    other.parent.mkdir()
    shutil.copyfile(work.package.folder / "plain.cu", other)
    made = plan_rebase(work, newer_kernel(work.state, str(other)))
    assert not made.asked and made.lines()[0].endswith("in the files that were probed")
    after = record_rebase(work, made)
    assert after.package.file == str(other)
    assert after.package.hashes["source"] == work.package.hashes["source"]
    folder = shutil.copytree(work.package.folder, tmp_path / "again")
    made = plan_rebase(after, newer_kernel(after.state, str(folder)))
    assert not made.asked
    shutil.rmtree(work.package.folder)
    assert record_rebase(after, made).package.folder == folder
    with pytest.raises(InputError, match="lifted and the other one executed"):
        plan_rebase(after, newer_kernel(after.state, "flash_fwd_sm80"))
