"""Committing into the person's repository: only the named files, only when it is clean to do so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.types import Level, sha256_of
from sessions.user_repository import CommitPlan, carry_out, plan_commit

Git = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]


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
        (".GIT/hooks/pre-commit", "not in the work tree"),
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


def everything(repo: Path) -> tuple[str, ...]:
    """HEAD, the index and all files and folders outside .git."""
    tree = [str(p) for p in sorted(repo.rglob("*")) if p.relative_to(repo).parts[0] != ".git"]
    return (
        run(repo, "rev-parse", "HEAD"), run(repo, "ls-files", "-s"),
        run(repo, "status", "--porcelain"), *tree,
    )  # fmt: skip


def no_identity(repo: Path) -> None:
    run(repo, "config", "--unset", "user.name")
    run(repo, "config", "--unset", "user.email")
    run(repo, "config", "user.useConfigOnly", "true")


def no_signature(repo: Path) -> None:
    run(repo, "config", "commit.gpgsign", "true")
    run(repo, "config", "gpg.program", "false")


def no_line_feeds(repo: Path) -> None:
    run(repo, "config", "core.autocrlf", "true")
    run(repo, "config", "core.safecrlf", "true")


def sparse(repo: Path) -> None:
    (repo / "d").mkdir()
    (repo / "d" / "x").write_text("x")
    run(repo, "add", "d")
    run(repo, "commit", "-q", "-m", "d")
    run(repo, "sparse-checkout", "set", "--cone", "d")


FAILS: dict[Callable[[Path], object], str] = {
    lambda r: hook(r, "pre-commit", "echo style: not today >&2; exit 1"): "style: not today",
    lambda r: hook(r, "pre-commit", "echo // >> kernel.cu; git add -A; exit 1"): "could not commit",
    lambda r: hook(r, "commit-msg", "exit 1"): "could not commit",
    lambda r: hook(r, "prepare-commit-msg", ': > "$1"'): "empty commit message",
    lambda r: hook(r, "pre-commit", "kill -9 $PPID"): "status -9",
    no_identity: "user.name|who",
    no_signature: "failed to sign",
    no_line_feeds: "LF would be replaced",
    sparse: "sparse-checkout",
    lambda r: (r / ".git" / "index.lock").write_text(""): "index.lock",
    lambda r: (r / ".git" / "refs" / "heads" / "main.lock").write_text(""): "main.lock",
}


@pytest.mark.parametrize("how", FAILS)
def test_a_commit_that_fails_leaves_everything_as_it_was(
    how: Callable[[Path], object], repo: Path
) -> None:
    how(repo)
    made = plan(
        {repo / "kernel.cu": b"new", repo / "k2.cu": b"x\n", repo / "a" / "b" / "k": b"y\n"}
    )
    before = everything(repo)
    with pytest.raises(InputError, match=FAILS[how]) as caught:
        carry_out(made)
    # A git that was killed leaves its lock, and nothing can take names out of the index then.
    if "status -9" in caught.value.message:
        assert caught.value.fix is not None and "git rm --cached" in caught.value.fix
        (repo / ".git" / "index.lock").unlink()
        run(repo, "rm", "-q", "--cached", "-f", "k2.cu", "a/b/k")
    assert caught.value.fix
    assert everything(repo) == before


def test_a_commit_is_ended_also_where_cubridge_dies_before_it(repo: Path) -> None:
    """The hook refuses after the process that asked for the commit was killed."""
    hook(repo, "pre-commit", "touch .git/begun; sleep 2; touch .git/over; exit 1")
    before = everything(repo)
    script = (
        "import sys\nfrom pathlib import Path\nfrom engine.types import Level\n"
        "from sessions.user_repository import carry_out, plan_commit\nr = Path(sys.argv[1])\n"
        "carry_out(plan_commit({r / 'kernel.cu': b'n', r / 'p' / 'k': b'x'}, title='t', "
        "session='s', level=Level.NONE, sha256='h'))"
    )
    asking = subprocess.Popen([sys.executable, "-c", script, str(repo)], cwd=ROOT)
    wait_for((repo / ".git" / "begun").exists)
    assert everything(repo) != before
    asking.kill()
    asking.wait()
    wait_for((repo / ".git" / "over").exists)
    wait_for(lambda: everything(repo) == before)


def wait_for(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_hooks_see_the_environment_of_the_person_alone(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `git commit` by hand gives it: no variable of ours, and pathspecs mean what they mean."""
    for name in [n for n in os.environ if n.startswith("GIT_") and n != "GIT_CONFIG_NOSYSTEM"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("pre-commit", "commit-msg", "post-commit"):
        hook(repo, name, f"env > .git/{name}.env")
    (repo / "hand.txt").write_text("x")
    run(repo, "add", "hand.txt")
    run(repo, "commit", "-q", "-m", "by hand", "hand.txt")
    names = ("pre-commit", "commit-msg", "post-commit")

    def seen(hook: str) -> dict[str, str]:
        lines = (repo / ".git" / f"{hook}.env").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        own = ("GIT_INDEX_FILE", "GIT_AUTHOR_DATE", "LANGUAGE", "_", "GIT_EDITOR")
        return {n: text for n, text in found.items() if n not in own}

    by_hand = {name: seen(name) for name in names}
    carry_out(plan({repo / "k.cu": b"x\n"}))
    assert {name: seen(name) for name in names} == by_hand
    assert by_hand["pre-commit"]["LC_ALL"] == "C.UTF-8"
    hook(
        repo,
        "pre-commit",
        'git check-ignore -q a.txt; [ $? = 1 ] && git diff --cached --quiet -- "*.cu"',
    )
    before = everything(repo)
    with pytest.raises(InputError, match="could not commit"):
        carry_out(plan({repo / "k.cu": b"y\n"}))
    assert everything(repo) == before
    carry_out(plan({repo / "k.py": b"y\n"}))


def test_a_commit_waits_for_git_and_not_for_what_a_hook_left_running(repo: Path) -> None:
    hook(repo, "pre-commit", "echo warned >&2; sleep 30 & echo $! > .git/left; exit 1")
    begin = time.monotonic()
    with pytest.raises(InputError, match="warned"):
        carry_out(plan({repo / "k.cu": b"x"}))
    assert time.monotonic() - begin < 15
    os.kill(int((repo / ".git" / "left").read_text()), signal.SIGTERM)


@pytest.mark.parametrize("to", ["checkout -q -b sneaky", "commit -q --allow-empty -m more",
                                "checkout -q --detach"])  # fmt: skip
def test_a_head_that_moved_since_the_commit_was_shown_is_left_alone(repo: Path, to: str) -> None:
    made = plan({repo / "k.cu": b"x"})
    run(repo, *to.split())
    before = everything(repo)
    with pytest.raises(InputError, match="HEAD moved since the commit was shown: it was on main"):
        carry_out(made)
    assert everything(repo) == before


def test_a_commit_that_a_hook_took_off_again_is_none(repo: Path) -> None:
    hook(repo, "post-commit", "git reset -q --hard HEAD~1")
    with pytest.raises(InputError, match="took the commit off: HEAD is on main at"):
        carry_out(plan({repo / "k.cu": b"x"}))


@pytest.mark.parametrize("flag", ["assume-unchanged", "skip-worktree"])
@pytest.mark.parametrize("when", ["before", "between"])
def test_work_that_git_does_not_look_at_is_not_overwritten(
    repo: Path, flag: str, when: str
) -> None:
    files = {repo / "kernel.cu": b"new"}
    made = plan(files) if when == "between" else None
    run(repo, "update-index", f"--{flag}", "kernel.cu")
    (repo / "kernel.cu").write_text("my own work")
    assert run(repo, "status", "--porcelain") == ""
    with pytest.raises(InputError, match="told not to look"):
        carry_out(made) if made else plan(files)
    assert (repo / "kernel.cu").read_text() == "my own work"


def test_a_file_that_git_converts_is_as_git_has_it(repo: Path) -> None:
    """Other bytes on disk than in git, by a filter of the repository, are no work of one's own."""
    run(repo, "config", "core.autocrlf", "true")
    (repo / "lines.cu").write_bytes(b"a\r\nb\r\n")
    run(repo, "add", "lines.cu")
    run(repo, "commit", "-q", "-m", "lines")
    assert plan({repo / "lines.cu": b"a\r\n"}).before == {"lines.cu": b"a\r\nb\r\n"}


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


def without_trailers(repo: Path) -> None:
    hook(repo, "commit-msg", 'echo tidy > "$1"')


def gone_elsewhere(repo: Path) -> None:
    hook(repo, "post-commit", "git checkout -q -b elsewhere && git reset -q --hard HEAD~1")


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
    without_trailers: "its message lacks `CuBridge-Level: cpu-verified`",
    gone_elsewhere: "HEAD is on elsewhere at",
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
    if how is gone_elsewhere:
        undo = f"git branch -f main {before}"
    assert undo in caught.value.fix
    run(repo, *undo.split()[1:])
    assert run(repo, "rev-parse", "main").strip() == before


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
