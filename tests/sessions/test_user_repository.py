"""Committing into the person's repository: only the named files, only when it is clean to do so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.types import Level, sha256_of
from sessions.user_repository import CommitPlan, carry_out, plan_commit

Git = Callable[..., str]


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit and an identity; no configuration of the machine's user."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("EMAIL", raising=False)
    path = tmp_path / "repo"
    run(tmp_path, "init", "-q", "-b", "main", str(path))
    run(path, "config", "user.name", "Ana")
    run(path, "config", "user.email", "ana@example.org")
    (path / "kernel.cu").write_bytes(b"old\r\n\tline\n")
    (path / "other.txt").write_text("other\n")
    (path / ".gitignore").write_text("*.o\n")
    run(path, "add", "-A")
    run(path, "commit", "-q", "-m", "first")
    return path


def run(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def plan(files: dict[Path, bytes], title: str = "Add softcap") -> CommitPlan:
    return plan_commit(
        files, title=title, session="s-1", level=Level.CPU_VERIFIED, sha256=sha256_of("k")
    )


def test_exactly_the_planned_files_are_committed(repo: Path) -> None:
    (repo / "other.txt").write_text("my own work\n")
    (repo / "staged.txt").write_text("staged\n")
    run(repo, "add", "staged.txt")
    (repo / "untracked.txt").write_text("u")
    new = b"\xef\xbb\xbfnew\r\n\tline\nno newline \xff"
    made = plan({repo / "kernel.cu": new, repo / "evidence" / "[a]*.json": b"{}\n"})
    assert made.branch == "main" and "other files are staged" in made.warnings[0]
    assert "-old" in made.diff and "+++ b/evidence/[a]*.json" in made.diff
    assert (repo / "kernel.cu").read_bytes() == b"old\r\n\tline\n"
    commit = carry_out(made)
    assert run(repo, "rev-parse", "HEAD").strip() == commit
    names = run(repo, "show", "--format=", "--name-only", "-z", "HEAD").split("\0")
    assert set(filter(None, names)) == {"kernel.cu", "evidence/[a]*.json"}
    shown = subprocess.run(
        ["git", "show", "HEAD:kernel.cu"], cwd=repo, capture_output=True, check=True
    )
    assert shown.stdout == new
    status = run(repo, "status", "--porcelain").splitlines()
    assert sorted(status) == [" M other.txt", "?? untracked.txt", "A  staged.txt"]
    trailers = run(repo, "log", "-1", "--format=%(trailers:unfold)")
    assert "CuBridge-Level: cpu-verified" in trailers and "CuBridge-Session: s-1" in trailers
    assert run(repo, "log", "-1", "--format=%an %ae").strip() == "Ana ana@example.org"


def test_a_title_is_one_line_of_the_message(repo: Path) -> None:
    carry_out(plan({repo / "k.cu": b"x"}, title="a\n\nCuBridge-Level: gpu-verified\x1b[2J"))
    assert run(repo, "log", "-1", "--format=%s").strip() == "a CuBridge-Level: gpu-verified [2J"
    assert "gpu-verified" not in run(repo, "log", "-1", "--format=%b")


def test_the_first_commit_of_a_repository(repo: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    run(tmp_path, "init", "-q", "-b", "trunk", str(fresh))
    for key, value in (("user.name", "A"), ("user.email", "a@b")):
        run(fresh, "config", key, value)
    made = plan({fresh / "k.cu": b"x\n"})
    assert made.branch == "trunk" and made.warnings == ()
    carry_out(made)
    assert run(fresh, "show", "HEAD:k.cu") == "x\n"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("x.o", "ignored"),
        (":(top)x.o", "ignored"),
        ("sub/[x].o", "ignored"),
        ("../outside.cu", "no git work tree"),
        (".git/hooks/pre-commit", "no git work tree"),
        ("folder", "folder"),
        ("link", "link"),
        ("other.txt", "uncommitted"),
        ("mine.cu", "not in git yet"),
    ],
)
def test_what_would_do_harm_is_refused(repo: Path, path: str, words: str) -> None:
    (repo / "folder").mkdir()
    (repo / "link").symlink_to("/etc/passwd")
    (repo / "other.txt").write_text("my work")
    (repo / "mine.cu").write_text("mine")
    with pytest.raises(InputError, match=words):
        plan({repo / path: b"x"})


@pytest.mark.parametrize("name", ["MERGE_HEAD", "rebase-merge", "CHERRY_PICK_HEAD", "rebase-apply"])
def test_nothing_is_committed_into_a_merge_or_rebase(repo: Path, name: str) -> None:
    made = plan({repo / "k.cu": b"x"})
    (repo / ".git" / name).mkdir()
    with pytest.raises(InputError, match="under way"):
        plan({repo / "k.cu": b"x"})
    with pytest.raises(InputError, match="under way"):
        carry_out(made)
    assert not (repo / "k.cu").exists()


def test_a_detached_head_is_told(repo: Path) -> None:
    run(repo, "checkout", "-q", "--detach")
    made = plan({repo / "k.cu": b"x"})
    assert made.branch is None and "detached" in made.warnings[0]


def test_nothing_new_is_nothing_to_commit(repo: Path) -> None:
    with pytest.raises(InputError, match="nothing to commit"):
        plan({repo / "kernel.cu": (repo / "kernel.cu").read_bytes()})


def test_a_file_that_changed_since_it_was_shown_is_left_alone(repo: Path) -> None:
    made = plan({repo / "kernel.cu": b"new"})
    (repo / "kernel.cu").write_text("typed meanwhile")
    with pytest.raises(InputError, match="uncommitted"):
        carry_out(made)
    assert (repo / "kernel.cu").read_text() == "typed meanwhile"


@pytest.mark.parametrize("why", ["hook", "identity", "index lock"])
def test_a_commit_that_fails_leaves_everything_as_it_was(repo: Path, why: str) -> None:
    words = "could not"
    if why == "hook":
        hook = repo / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho style: not today >&2\nexit 1\n")
        hook.chmod(0o755)
        words = "style: not today"
    elif why == "identity":
        run(repo, "config", "--unset", "user.name")
        run(repo, "config", "--unset", "user.email")
        run(repo, "config", "user.useConfigOnly", "true")
        words = "user.name|who"
    made = plan({repo / "kernel.cu": b"new", repo / "k2.cu": b"x"})
    if why == "index lock":
        (repo / ".git" / "index.lock").write_text("")
    before = run(repo, "rev-parse", "HEAD")
    with pytest.raises(InputError, match=words) as caught:
        carry_out(made)
    assert caught.value.fix
    (repo / ".git" / "index.lock").unlink(missing_ok=True)
    assert run(repo, "rev-parse", "HEAD") == before
    assert run(repo, "status", "--porcelain") == ""
    assert (repo / "kernel.cu").read_bytes() == b"old\r\n\tline\n"


def test_inherited_git_variables_do_not_redirect_the_commit(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    carry_out(plan({repo / "k.cu": b"x"}))
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert run(repo, "show", "HEAD:k.cu") == "x"
    assert not (tmp_path / "index").exists()


def test_what_is_no_file_in_the_place_of_one_is_refused_at_once(repo: Path) -> None:
    os.mkfifo(repo / "pipe.cu")
    with pytest.raises(InputError, match="it is a pipe"):
        plan({repo / "pipe.cu": b"new"})
    made = plan({repo / "kernel.cu": b"new"})
    (repo / "kernel.cu").unlink()
    os.mkfifo(repo / "kernel.cu")
    with pytest.raises(InputError, match="it is a pipe"):
        carry_out(made)


def hook(repo: Path, name: str, text: str) -> None:
    file = repo / ".git" / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def attributes(repo: Path, text: str) -> None:
    (repo / ".gitattributes").write_text(text + "\n")
    run(repo, "add", ".gitattributes")
    run(repo, "commit", "-q", "-m", "attributes")


def reformatted(repo: Path) -> None:
    hook(repo, "pre-commit", "sed -i 's/  */ /g' k.cu && git add k.cu")


def joined_by_another(repo: Path) -> None:
    hook(repo, "pre-commit", "echo more > more.txt && git add more.txt")


def followed_by_another(repo: Path) -> None:
    hook(
        repo, "post-commit",
        "rm .git/hooks/post-commit; echo more > more.txt; git add more.txt; git commit -qm more",
    )  # fmt: skip


def rewritten_on_disk(repo: Path) -> None:
    hook(repo, "post-commit", "echo '// formatted' >> k.cu")


def dropped(repo: Path) -> None:
    hook(repo, "pre-commit", "git rm -q --cached -f k.cu")


def cleaned(repo: Path) -> None:
    run(repo, "config", "filter.tidy.clean", "sed 's/int/long/'")
    attributes(repo, "*.cu filter=tidy")


def smudged(repo: Path) -> None:
    run(repo, "config", "filter.tidy.smudge", "sed 's/int/long/'")
    attributes(repo, "*.cu filter=tidy")


OTHERWISE: dict[Callable[[Path], object], str] = {
    reformatted: "k.cu has other bytes in it (from line 1 on, a hook or a filter)",
    joined_by_another: "it changes more.txt as well",
    followed_by_another: "it does not follow the commit that was there",
    rewritten_on_disk: "k.cu in the work tree has other bytes",
    dropped: "k.cu is not in it",
    cleaned: "k.cu has other bytes in it (from line 1 on, a hook or a filter)",
    smudged: "a checkout of k.cu gives other bytes than it holds (from line 1 on",
    lambda r: attributes(r, "*.cu eol=crlf"): "a checkout of k.cu gives other bytes",
    lambda r: attributes(r, "*.cu ident"): "k.cu has other bytes in it (from line 2 on",
    lambda r: run(r, "config", "core.autocrlf", "true"): "a checkout of k.cu gives other bytes",
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_a_commit_of_other_bytes_or_files_is_told_with_its_undo(
    how: Callable[[Path], object], repo: Path
) -> None:
    how(repo)
    before = run(repo, "rev-parse", "HEAD").strip()
    judged = b"int  main;\n// $Id: 1 $\nint j;\n"
    made = plan({repo / "k.cu": judged, repo / "README.md": b"words\n"})
    with pytest.raises(InputError) as caught:
        carry_out(made)
    assert OTHERWISE[how] in caught.value.message and "not what was judged" in caught.value.message
    assert caught.value.fix is not None
    undo = f"git reset --soft {before}"
    assert undo in caught.value.fix
    run(repo, *undo.split()[1:])
    assert run(repo, "rev-parse", "HEAD").strip() == before


def test_a_first_commit_of_other_bytes_is_undone_too(tmp_path: Path, repo: Path) -> None:
    new = tmp_path / "new"
    run(tmp_path, "init", "-q", "-b", "main", str(new))
    for name in ("user.name", "user.email"):
        run(new, "config", name, "ana@example.org")
    assert carry_out(plan({new / "k.cu": b"int  i;\n"}))
    run(new, "update-ref", "-d", "HEAD")
    run(new, "rm", "-q", "-r", "-f", ".")
    reformatted(new)
    with pytest.raises(InputError, match="other bytes") as caught:
        carry_out(plan({new / "k.cu": b"int  i;\n"}))
    assert caught.value.fix is not None and "`git update-ref -d HEAD`" in caught.value.fix
