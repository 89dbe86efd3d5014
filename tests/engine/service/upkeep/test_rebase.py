"""A session on a new version of its kernel: carried where the ops are the same, else asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.disk_inputs import kernel_moved
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.service.upkeep.newer import Rebase, is_same, newer_kernel
from engine.service.upkeep.rebase import plan_rebase, record_rebase
from engine.service.writers.person import propose_by_person
from engine.types import Decision, DecisionKind, Gate, Stage, VerdictKind
from sessions.store import Store
from tests.cubridge_tui.made import bench_of
from tests.engine.lift.formatting import renamed

KERNEL = "flash_fwd_sm80"
NAMES = {"m_prev": "before", "s": "scores", "m": "top", "BM": "ROWS", "i": "row", "j": "key"}
KEEP = "return j < args.Nk;"
FULL = "return (n + 1) * BN <= args.Nk;"
Rewrite = Callable[[str], str]


def other(old: str, new: str) -> Rewrite:
    def rewrite(text: str) -> str:
        assert old in text, f"the kernel is written otherwise: mend this test: {old}"
        return text.replace(old, new)

    return rewrite


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench_of(Store.open(tmp_path_factory.mktemp("service") / "store.git")) as made:
        yield made


@pytest.fixture
def work(bench: Bench) -> Iterator[Adaptation]:
    """A session whose rules' proposal waits for decisions; nothing has been judged."""
    package = find_kernel(KERNEL)
    options = choose_options(package, only=True)
    session = start(bench, package, find_spec("softcap_causal"), options, "ana")
    with bench.store.writer(session, wait=5) as writer:
        made = Adaptation(bench, writer, "ana")
        made.make_lifted()
        made.propose_by_rules()
        yield made


@pytest.fixture
def newer(work: Adaptation, tmp_path: Path) -> Callable[[Rewrite], Rebase]:
    """What the session is on the kernel, rewritten, in a file of its own."""

    def plan(rewrite: Rewrite) -> Rebase:
        path = tmp_path / "new.cu"
        path.write_text(rewrite(find_kernel(KERNEL).source.decode()))
        return plan_rebase(work, newer_kernel(work.state, str(path)))

    return plan


def accept_all(work: Adaptation) -> None:
    work.accept_all(work.edits[-1])


def test_names_comments_and_constants_ask_nothing(
    work: Adaptation, newer: Callable[[Rewrite], Rebase]
) -> None:
    accept_all(work)
    lifted, target = work.state.hashes["lifted"], work.target
    for rewrite in (
        lambda text: renamed(text.encode(), NAMES).decode(),
        lambda text: text.replace("// ", "// about: ").replace("  ", "\t"),
        other("STAGES = 2", "STAGES = 3"),
        other("BN = D == 64 ? 64 :", "BN = D == 64 ? 32 :"),
        other("sum * a; }", "a * sum; }"),
    ):
        made = newer(rewrite)
        assert made.proposal is not None and made.proposal.hunks and not made.asked
    assert (work.state.hashes["lifted"], work.target) == (lifted, target)  # nothing is recorded
    assert newer(lambda text: renamed(text.encode(), NAMES).decode()).renamed >= len(NAMES)


def test_a_change_inside_a_hunk_is_asked_and_nothing_else(
    work: Adaptation, newer: Callable[[Rewrite], Rebase]
) -> None:
    accept_all(work)
    made = newer(other(KEEP, "return j < args.Nk && i < args.Nq;"))
    assert [h.title for h in made.asked] == ["Keep what the spec keeps"]
    after = record_rebase(work, made)
    assert after.state.decision("rules", made.asked[0].id) is None
    assert after.lifted.module.functions != after.target.functions  # the rest is in the target
    after.undo()
    assert all(decision is None for _, _, decision in after.hunks())


def test_the_session_goes_on_with_the_new_kernel_and_its_history_has_both(
    work: Adaptation, newer: Callable[[Rewrite], Rebase], bench: Bench, tmp_path: Path
) -> None:
    accept_all(work)
    judged = work.judge_lifted()
    assert judged.kind is VerdictKind.PASS, judged.reason
    old_target = work.state.hashes["target/target.cuir"]
    made = newer(other("STAGES = 2", "STAGES = 3"))
    after = record_rebase(work, made)
    g1 = after.state.verdict(Gate.G1)
    assert g1 is not None and g1.kind is VerdictKind.STALE
    assert after.state.outdated(Stage.TARGET) is None
    assert kernel_moved(after) is None and "STAGES = 3" in after.text(Stage.SOURCE, "kernel.cu")
    assert after.package.reference is not None  # the session's own, beside the old source
    assert after.session.content(old_target)
    again = Adaptation(bench, after.writer, "ana")  # from what the store holds
    assert again.package.hashes == after.package.hashes and again.compose() == again.target
    same = newer_kernel(again.state, None)
    assert is_same(again.state, same)
    (tmp_path / "new.cu").write_text("")
    assert kernel_moved(after) == f"the primitive headers and source of {KERNEL}"


def test_what_was_rejected_stays_rejected_and_what_is_open_stays_open(
    work: Adaptation, newer: Callable[[Rewrite], Rebase]
) -> None:
    first, second, *_ = work.edits[0].hunks
    work.decide(Decision(f"rules/{first.id}", DecisionKind.REJECTED, "ana"))
    work.decide(Decision(f"rules/{second.id}", DecisionKind.ACCEPTED, "ana"))
    made = newer(lambda text: renamed(text.encode(), NAMES).decode())
    assert {hunk: decision.kind for hunk, decision in made.decided.items()} == {
        first.id: DecisionKind.REJECTED, second.id: DecisionKind.ACCEPTED,
    }  # fmt: skip


def test_what_a_person_wrote_is_merged(
    work: Adaptation, newer: Callable[[Rewrite], Rebase]
) -> None:
    accept_all(work)
    text = work.text(Stage.TARGET, "target.cuir")
    mine = other("gemm(o, p, sV", "sync()\n        gemm(o, p, sV")(text)
    work.accept_all(propose_by_person(work, mine))
    made = newer(other("STAGES = 2", "STAGES = 3"))
    after = record_rebase(work, made)
    assert not made.asked and [p.id for p in after.edits] == ["rebase"]
    found = after.text(Stage.TARGET, "target.cuir")
    assert found == other("STAGES = 2", "STAGES = 3")(work_text(mine))
    # The same place, changed by both, is asked; and names what it meets.
    made = newer(other("gemm(o, p, sV", "sync();\n    sync();\n    gemm(o, p, sV"))
    assert made.asked and all(h.reason.startswith("asked, since the new") for h in made.asked)


def work_text(text: str) -> str:
    """A target's text as the session prints it."""
    from engine.cuir.parser import parse_module
    from engine.cuir.printer import print_module

    return print_module(parse_module(text))


def test_a_hunk_that_a_person_edited_is_carried_with_the_edit(
    work: Adaptation, newer: Callable[[Rewrite], Rebase]
) -> None:
    accept_all(work)
    hunk = next(h for h in work.edits[0].hunks if h.title == "Keep what the spec keeps")
    edit = hunk.after.replace("j < args.Nk and", "j < args.Nk + 0 and")
    work.decide(Decision(f"rules/{hunk.id}", DecisionKind.EDITED, "ana", replacement=edit))
    made = newer(lambda text: renamed(text.encode(), NAMES).decode())
    assert not made.asked
    assert "args.Nk + 0" in record_rebase(work, made).text(Stage.TARGET, "target.cuir")


def test_beside_an_edited_hunk_none_is_left_undecided(
    work: Adaptation, newer: Callable[[Rewrite], Rebase]
) -> None:
    hunk = work.edits[0].hunks[0]
    edited = Decision(f"rules/{hunk.id}", DecisionKind.EDITED, "ana", replacement=hunk.after)
    work.decide(edited)
    with pytest.raises(InputError, match=f"{len(work.edits[0].hunks) - 1} hunks .* not decided on"):
        newer(other("STAGES = 2", "STAGES = 3"))


def test_what_cannot_be_rebased_is_said_before_anything_is_recorded(
    work: Adaptation, tmp_path: Path
) -> None:
    folder = tmp_path / "one_head_size"
    shutil.copytree(find_kernel(KERNEL).folder, folder)
    manifest = folder / "kernel.toml"
    manifest.write_text(manifest.read_text().replace("D = [64, 128]", "D = [64]"))
    count = work.state.count
    with pytest.raises(InputError, match="no specialisation bf16_128"):
        plan_rebase(work, newer_kernel(work.state, str(folder)))
    with pytest.raises(InputError, match="nowhere"):
        newer_kernel(work.state, str(tmp_path / "nowhere.cu"))
    accept_all(work)
    work.accept_all(
        propose_by_person(work, other("gemm(o, p", "sync()\n        gemm(o, p")(
            work.text(Stage.TARGET, "target.cuir")))
    )  # fmt: skip
    work.undo()
    with pytest.raises(InputError, match="not decided on"):
        plan_rebase(work, newer_kernel(work.state, None))
    assert work.state.rebased is None and work.state.count > count
