"""Committing an accepted kernel into the person's own repository: planned, shown, then done.

`plan_commit` changes nothing and gives the diff to show; `carry_out` writes and commits exactly the
planned files. The person's hooks, identity and signing apply, in the person's own environment: a
hook sees no variable of ours. Whatever cannot be done cleanly is refused with the reason, and a
commit that fails leaves files and index as they were: it is made by a process of its own, which
ends what it began also where CuBridge ends before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from engine.errors import CuBridgeError, InputError
from engine.files import read_file
from engine.types import Level
from sessions.git_run import Done, run_git, said_by_git

_BUSY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a commit would do. `diff` and `warnings` are for the person to read first.

    `files` are the new contents by path below `repository`; `before` is what is there now (None:
    nothing), so that a file that changes between planning and doing is noticed; so is a HEAD that
    is on another branch (None: detached) or at another commit (None: there is none yet).
    """

    repository: Path
    branch: str | None
    head: str | None
    message: str
    files: Mapping[str, bytes]
    before: Mapping[str, bytes | None]
    diff: str
    warnings: tuple[str, ...]


def plan_commit(
    files: Mapping[Path, bytes],
    *,
    title: str,
    session: str,
    level: Level,
    sha256: str,
    note: str = "",
) -> CommitPlan:
    """Plan to commit `files` (new contents by path, all in one repository).

    `title` is the message's first line, `note` what follows it; the trailers name the session, the
    level and the lowered kernel's hash.

    Raises:
        InputError: no repository, a path outside it, ignored or with changes of its own, a merge
            or rebase under way, or nothing to commit.
    """
    if not files:
        raise InputError("there is nothing to commit")
    first = next(iter(files))
    top = _top(first)
    relative = {_inside(top, path): content for path, content in files.items()}
    _refuse_when_busy(top)
    before: dict[str, bytes | None] = {}
    for path in relative:
        before[path] = _current(top, path)
    branch, head = _head(top)
    warnings = []
    if branch is None:
        warnings.append("HEAD is detached: the commit is on no branch until you make one")
    staged = _git(top, "diff", "--cached", "--name-only", "-z").out.split(b"\0") if head else []
    if any(staged):
        warnings.append("other files are staged; they stay staged and are not committed")
    changed = {path: content for path, content in relative.items() if before[path] != content}
    changed |= {path: relative[path] for path in relative if not _in_head(top, path)}
    if not changed:
        raise InputError("the repository has exactly these files already; nothing to commit")
    words = " ".join("".join(c if c.isprintable() else " " for c in title).split())[:72]
    message = (
        f"{words or 'Add an adapted attention kernel'}\n\n{f'{note}{chr(10) * 2}' if note else ''}"
        f"CuBridge-Session: {session}\nCuBridge-Level: {level}\nCuBridge-Lowered: {sha256}\n"
    )
    diff = "".join(_diff(path, before[path], content) for path, content in changed.items())
    return CommitPlan(top, branch, head, message, changed, before, diff, tuple(warnings))


def carry_out(plan: CommitPlan) -> str:
    """Write and commit the planned files, and only those; gives the commit's name.

    It is then what the planned branch is at, and what HEAD is on.

    Raises:
        InputError: something changed since the plan was made, or git refused (a hook, no identity);
            files and index are then as they were. Or the commit was made and something else is
            true than was planned (a hook, a filter, an attribute): what, and how to undo it.
    """
    # No variable says where our package is: the person's hooks would inherit it.
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r}); "
        "from sessions.user_repository import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code], start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    answer, _ = process.communicate(pickle.dumps(plan))
    if not answer:
        raise InputError(
            f"the process that commits ended without an answer (status {process.returncode})",
            fix=f"look at `git status` and `git log` in {plan.repository}",
        )
    said = json.loads(answer)
    if "commit" not in said:
        raise InputError(said["message"], fix=said["fix"])
    return str(said["commit"])


def main() -> None:
    """In the process: read a plan, carry it out, say how that went, if anybody still listens."""
    plan: CommitPlan = pickle.load(sys.stdin.buffer)
    try:
        said = {"commit": _carried_out(plan)}
    except CuBridgeError as error:
        said = {"message": error.message, "fix": error.fix or ""}
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(said))
        sys.stdout.flush()


def _carried_out(plan: CommitPlan) -> str:
    top = plan.repository
    _refuse_when_busy(top)
    if (there := _head(top)) != (plan.branch, plan.head):
        raise InputError(
            f"HEAD moved since the commit was shown: it was {_place(plan.branch, plan.head)}, "
            f"it is {_place(*there)}",
            fix="look at the commit again",
        )
    for path in plan.files:
        if _current(top, path) != plan.before[path]:
            raise InputError(f"{path} changed since the commit was shown", fix="look at it again")
    for who in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        _must(_git(top, "var", who), "name who commits")
    begun: list[str] = []
    folders: list[Path] = []
    try:
        for path, content in plan.files.items():
            begun.append(path)
            _write(top / path, content, folders)
            if not _in_index(top, path):
                _must(_git(top, "add", "--intent-to-add", "--", _literal(path)), "add the file")
        # The message is what was shown, whatever the person's settings strip from typed ones.
        done = _git(
            top, "commit", "--quiet", "--only", "--cleanup=whitespace", "--file=-", "--",
            *map(_literal, plan.files), stdin=plan.message.encode(), environment=_own_language(),
        )  # fmt: skip
        _must(done, "commit")
    except BaseException as error:
        left = _undo(plan, begun, folders)
        if left and isinstance(error, CuBridgeError):
            raise InputError(error.message, fix=left) from None
        raise
    tip = _tip(plan)
    if tip is None or tip == plan.head:
        raise InputError(
            f"git committed, and then something (a hook) took the commit off: HEAD is "
            f"{_place(*_head(top))}",
            fix="see what the hooks of the repository do",
        )
    if differences := _differences(plan, tip):
        raise InputError(
            f"committed as {tip[:12]}, but not what was judged: {'; '.join(differences)}",
            fix=f"undo it with `{_undoing(plan)}` in {top}, mend the hook or the attribute that "
            "did this and commit again; what this commit holds was judged by no gate",
        )
    return tip


def _undo(plan: CommitPlan, begun: list[str], folders: list[Path]) -> str:
    """Take back what was begun; what could not be taken back, as what to do about it."""
    top = plan.repository
    left = []
    for path in begun:
        if not _in_head(top, path) and plan.before[path] is None and _in_index(top, path):
            _git(top, "rm", "--cached", "--quiet", "--force", "--", _literal(path))
            if _in_index(top, path):
                left.append(f"git rm --cached --force -- '{path}'")
        with contextlib.suppress(OSError):
            _restore(top / path, plan.before[path])
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return f"the index still names new files: {'; '.join(left)}" if left else ""


def _head(top: Path) -> tuple[str | None, str | None]:
    """The branch that HEAD is on (None: detached), and its commit (None: before the first one)."""
    branch = _git(top, "symbolic-ref", "-q", "HEAD")
    commit = _git(top, "rev-parse", "-q", "--verify", "HEAD")
    name = os.fsdecode(branch.out.rstrip(b"\n")).removeprefix("refs/heads/")
    return (name if _ok(branch) else None, commit.out.decode().strip() if _ok(commit) else None)


def _place(branch: str | None, head: str | None) -> str:
    on = "detached" if branch is None else f"on {branch}"
    return f"{on} before its first commit" if head is None else f"{on} at {head[:12]}"


def _tip(plan: CommitPlan) -> str | None:
    """The commit that the planned branch is at now, wherever HEAD went."""
    ref = "HEAD" if plan.branch is None else f"refs/heads/{plan.branch}"
    done = _git(plan.repository, "rev-parse", "-q", "--verify", ref)
    return done.out.decode().strip() if _ok(done) else None


def _undoing(plan: CommitPlan) -> str:
    """The command that takes the commit off again, wherever HEAD is now."""
    if plan.branch is not None and _head(plan.repository)[0] != plan.branch:
        return f"git branch -f {plan.branch} {plan.head}"
    return f"git reset --soft {plan.head}" if plan.head else "git update-ref -d HEAD"


def _differences(plan: CommitPlan, tip: str) -> list[str]:
    """How what is true after the commit differs from the plan, in words."""
    top = plan.repository
    out: list[str] = []
    parents = _git(top, "rev-list", "--parents", "--max-count=1", tip).out.decode().split()[1:]
    if parents != ([] if plan.head is None else [plan.head]):
        out.append("it does not follow the commit that was there")
    if (there := _head(top)) != (plan.branch, tip):
        out.append(f"HEAD is {_place(*there)} now")
    raw = _must(_git(top, "cat-file", "commit", tip), "read the commit").out
    message = raw.partition(b"\n\n")[2].splitlines()
    for line in plan.message.splitlines():
        if line.startswith("CuBridge-") and line.encode() not in message:
            out.append(f"its message lacks `{line}`")
    base = plan.head or _must(
        _git(top, "hash-object", "-t", "tree", "--stdin"), "compare"
    ).out.decode().strip()  # fmt: skip
    listed = _git(top, "diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tip)
    names = {os.fsdecode(n) for n in _must(listed, "list the commit's files").out.split(b"\0") if n}
    for name in sorted(names - plan.files.keys()):
        out.append(f"it changes {name} as well")
    for path, content in plan.files.items():
        blob, given = (_git(top, "cat-file", how, f"{tip}:{path}") for how in ("blob", "--filters"))
        if not _ok(blob):
            out.append(f"{path} is not in it")
        elif blob.out != content:
            out.append(f"{path} has other bytes in it ({_line_of(content, blob.out)})")
        elif given.out != content:
            where = _line_of(content, given.out)
            out.append(f"a checkout of {path} gives other bytes than it holds ({where})")
        elif not (top / path).is_file() or read_file(top / path, "keep it as it is") != content:
            out.append(f"{path} in the work tree has other bytes")
    return out


def _line_of(judged: bytes, there: bytes) -> str:
    """The first line that differs, and by what git does that to files."""
    pairs = zip(judged.split(b"\n"), there.split(b"\n"), strict=False)
    number = next((n for n, (a, b) in enumerate(pairs, 1) if a != b), None)
    if number is None:
        return "its end differs"
    ending = there.replace(b"\r\n", b"\n") == judged.replace(b"\r\n", b"\n")
    return f"from line {number} on, {'line endings alone' if ending else 'a hook or a filter'}"


def _top(path: Path) -> Path:
    folder = Path(os.path.abspath(path)).parent
    while not folder.is_dir():
        folder = folder.parent
    done = _git(folder, "rev-parse", "--show-toplevel")
    if not _ok(done):
        if "dubious ownership" in done.err:
            raise InputError(
                f"git does not trust {folder}: another user owns it",
                fix=f"git config --global --add safe.directory {folder}",
            )
        if "not a git repository" not in done.err and "must be run in a work tree" not in done.err:
            _must(done, f"look at {folder}")
        raise InputError(
            f"{folder} is in no git work tree", fix="git init there, or export instead"
        )
    return Path(os.fsdecode(done.out.rstrip(b"\n")))


def _inside(top: Path, path: Path) -> str:
    real = Path(os.path.realpath(Path(path).parent)) / Path(path).name
    root = Path(os.path.realpath(top))
    if not real.is_relative_to(root) or ".git" in map(str.casefold, real.relative_to(root).parts):
        raise InputError(f"{path} is not in the work tree {top}")
    if real.is_symlink() or real.is_dir():
        raise InputError(f"{path} is a link or a folder", fix="name a file")
    relative = str(real.relative_to(root))
    # This one command knows no literal pathspecs; it takes wildcards for what they are anyway.
    ignored = _git(top, "check-ignore", "-q", "--", f"./{relative}")
    if ignored.code != 1:
        _must(ignored, "check what is ignored")
        raise InputError(f"{path} is ignored by git", fix="name another path, or change .gitignore")
    return relative


def _refuse_when_busy(top: Path) -> None:
    done = _must(_git(top, "rev-parse", "--absolute-git-dir"), "find the repository")
    git_dir = Path(os.fsdecode(done.out.rstrip(b"\n")))
    for name, what in _BUSY.items():
        if (git_dir / name).exists():
            raise InputError(f"{what} is under way in {top}", fix="finish or abort it first")


def _current(top: Path, path: str) -> bytes | None:
    """The file's content; refused when it holds changes that git does not have."""
    if not os.path.lexists(top / path):
        return None
    content = read_file(top / path, "name another path")
    looked = _git(top, "status", "--porcelain", "-z", "--", _literal(path))
    status = _must(looked, "look at the file").out
    what = "is not in git yet" if status.startswith(b"??") else "has uncommitted changes"
    if not status and not _is_as_in_index(top, path, content):
        what = "has uncommitted changes that git was told not to look for (git ls-files -v)"
    elif not status:
        return content
    raise InputError(f"{path} {what} and would be overwritten", fix="commit or move it first")


def _is_as_in_index(top: Path, path: str, content: bytes) -> bool:
    """Whether git has these bytes: the index's blob as it would be checked out, or as these would
    be added. `git status` does not look at a file that is marked assume-unchanged or
    skip-worktree, and believes times and a monitor of files."""
    given = _git(top, "cat-file", "--filters", f":0:{path}")
    if _ok(given) and given.out == content:
        return True
    added = _git(top, "hash-object", f"--path={path}", "--stdin", stdin=content)
    held = _git(top, "rev-parse", "-q", "--verify", f":0:{path}")
    return _ok(added) and _ok(held) and added.out == held.out


def _in_index(top: Path, path: str) -> bool:
    return _ok(_git(top, "ls-files", "--error-unmatch", "--", _literal(path)))


def _in_head(top: Path, path: str) -> bool:
    return _ok(_git(top, "cat-file", "-e", f"HEAD:{path}"))


def _diff(path: str, before: bytes | None, after: bytes) -> str:
    import difflib

    def lines(content: bytes | None) -> list[str]:
        return (content or b"").decode("utf-8", "replace").splitlines(keepends=True)

    old = "/dev/null" if before is None else f"a/{path}"
    made = difflib.unified_diff(lines(before), lines(after), old, f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in made)


def _write(path: Path, content: bytes, made: list[Path]) -> None:
    """Write the file; the folders that had to be made for it are added to `made`."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror})") from None


def _restore(path: Path, before: bytes | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(before)


def _literal(path: str) -> str:
    """A pathspec for this name alone. GIT_LITERAL_PATHSPECS and git's own --literal-pathspecs would
    reach the person's hooks, and change what their pathspecs mean."""
    return f":(top,literal){path}"


def _own_language() -> dict[str, str]:
    """The person's own settings, for hooks: GitPython gives commands those of C, so that what git
    says can be read."""
    return {name: os.environ.get(name, "") for name in ("LC_ALL", "LANGUAGE")}


def _git(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Done:
    return run_git(folder, arguments, stdin, environment)


def _ok(done: Done) -> bool:
    return done.code == 0


def _must(done: Done, what: str) -> Done:
    if _ok(done):
        return done
    if "tell me who you are" in done.err or "empty ident name" in done.err:
        raise InputError(
            "git does not know who commits",
            fix='git config --global user.name "..."; git config --global user.email "..."',
        )
    said = said_by_git(done.err or done.out.decode("utf-8", "replace"))
    raise InputError(
        f"git could not {what}: {said or f'status {done.code}'}",
        fix="nothing was changed; commit by hand, or mend what git says",
    )
