"""What a commit into a person's repository holds: all that builds, or a source and what says what
it is; in both the very bytes that were verified."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.service.session.adaptation import Adaptation
from engine.service.session.content import LOWERED
from engine.service.session.package_export import committed_files, export_session, package_name
from engine.types import Stage
from sessions.store import Store
from sessions.user_repository import carry_out, plan_commit
from tests.cubridge_tui.made import bench_of, placed


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Adaptation]:
    """A session whose kernel can be accepted."""
    store = tmp_path / "store.git"
    session = placed(store)
    with bench_of(Store.open(store)) as bench, bench.store.writer(session) as writer:
        yield Adaptation(bench, writer, "tester")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for words in (["init", "-q"], ["config", "user.name", "T"], ["config", "user.email", "t@t.t"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def committed(repository: Path, files: dict[Path, bytes], work: Adaptation) -> set[str]:
    lowered = work.session.artifact(Stage.LOWERED, LOWERED)
    plan = plan_commit(
        files, title="softcap", session=work.session.id, level=work.state.accepted_level,
        sha256=lowered.sha256, note="What it is.",
    )  # fmt: skip
    carry_out(plan)
    show = ["git", "show", "--format=%B", "--name-only"]
    said = subprocess.run(show, cwd=repository, capture_output=True, text=True, check=True).stdout
    assert "What it is." in said and f"CuBridge-Lowered: {lowered.sha256}" in said
    return set(said.split("CuBridge-Lowered: ")[1].split()[1:])


def test_a_folder_is_the_package_that_an_export_writes(
    work: Adaptation, repository: Path, tmp_path: Path
) -> None:
    work.accept()
    name = package_name(work.session.id)
    exported = export_session(work, tmp_path / name)
    names = committed(repository, committed_files(work, repository / "kernels" / name), work)
    wanted = {p.relative_to(exported).as_posix() for p in exported.rglob("*") if p.is_file()}
    assert names == {f"kernels/{name}/{path}" for path in wanted}
    assert {"kernel.cu", "__init__.py", "spec.py", "verdicts.json", "build.py"} <= wanted
    for path in wanted:
        assert (repository / "kernels" / name / path).read_bytes() == (exported / path).read_bytes()
    assert (
        "the expert kernel flash_fwd_sm80, edited"
        in (repository / "kernels" / name / "README.md").read_text()
    )


def test_a_cuda_file_keeps_its_bytes_and_a_page_beside_it_says_what_it_is(
    work: Adaptation, repository: Path
) -> None:
    work.accept()
    files = committed_files(work, repository / "softcap.cu")
    assert committed(repository, files, work) == {"softcap.cu", "softcap.md"}
    lowered = work.session.artifact(Stage.LOWERED, LOWERED).data
    assert (repository / "softcap.cu").read_bytes() == lowered
    words = (repository / "softcap.md").read_text()
    for said in (work.package.name, work.session.id, "expert kernel's own", "does not build alone"):
        assert said.replace("_", "\\_") in words or said in words
    assert str(work.state.accepted_level) in words


def test_what_is_not_accepted_or_has_no_name_is_not_committed(
    work: Adaptation, repository: Path
) -> None:
    for name in ("softcap.cu", "softcap"):
        with pytest.raises(InputError, match="no accepted kernel"):
            committed_files(work, repository / name)
    work.accept()
    with pytest.raises(InputError, match="cannot be imported"):
        committed_files(work, repository / "soft-cap")
    (repository / "mine").mkdir()
    (repository / "mine" / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="something else"):
        committed_files(work, repository / "mine")


@pytest.mark.parametrize("session", ["softcap-causal-ab1de", "3d-attention-ab1de", "a-b"])
def test_the_name_offered_for_a_package_can_be_imported(session: str) -> None:
    assert package_name(session).isidentifier()
