"""Committing an accepted kernel into the person's own repository: planned, shown, then done.

`plan_commit` changes nothing and gives the diff to show; `carry_out` writes and commits exactly the
planned files. The person's hooks, identity and signing apply. Whatever cannot be done cleanly is
refused with the reason, and a commit that fails leaves files and index as they were.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InputError
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
    nothing), so that a file that changes between planning and doing is noticed.
    """

    repository: Path
    branch: str | None
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
    head = _git(top, "rev-parse", "-q", "--verify", "HEAD")
    branch = _git(top, "symbolic-ref", "-q", "--short", "HEAD")
    warnings = []
    if branch.code != 0:
        warnings.append("HEAD is detached: the commit is on no branch until you make one")
    staged = (
        _git(top, "diff", "--cached", "--name-only", "-z").out.split(b"\0") if _ok(head) else []
    )
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
    name = branch.out.decode("utf-8", "replace").strip() if branch.code == 0 else None
    return CommitPlan(top, name, message, changed, before, diff, tuple(warnings))


def carry_out(plan: CommitPlan) -> str:
    """Write and commit the planned files, and only those; gives the commit's name.

    Raises:
        InputError: something changed since the plan was made, or git refused (a hook, no identity);
            files and index are then as they were. Or the commit was made and holds something else
            than was planned (a hook, a filter, an attribute): what, and how to undo it.
    """
    top = plan.repository
    _refuse_when_busy(top)
    before = _head(top)
    for path in plan.files:
        if _current(top, path) != plan.before[path]:
            raise InputError(f"{path} changed since the commit was shown", fix="look at it again")
    added: list[str] = []
    written: list[str] = []
    try:
        for path, content in plan.files.items():
            written.append(path)
            _write(top / path, content)
            if not _ok(_git(top, "ls-files", "--error-unmatch", "--", path)):
                _must(_git(top, "add", "--intent-to-add", "--", path), "add the file")
                added.append(path)
        done = _git(
            top, "commit", "--quiet", "--only", "--file=-", "--", *plan.files,
            stdin=plan.message.encode(),
        )  # fmt: skip
        _must(done, "commit")
    except BaseException:
        if added:
            _git(top, "rm", "--cached", "--quiet", "--force", "--", *added)
        for path in written:
            _restore(top / path, plan.before[path])
        raise
    commit = _must(_git(top, "rev-parse", "HEAD"), "name the commit").out.decode().strip()
    differences = _differences(plan, before)
    if differences:
        undo = "git update-ref -d HEAD" if before is None else f"git reset --soft {before}"
        raise InputError(
            f"committed as {commit[:12]}, but not what was judged: {'; '.join(differences)}",
            fix=f"undo it with `{undo}` in {top}, mend the hook or the attribute that did this and "
            "commit again; what this commit holds was judged by no gate",
        )
    return commit


def _head(top: Path) -> str | None:
    """The commit that HEAD names; None before the first one."""
    done = _git(top, "rev-parse", "-q", "--verify", "HEAD")
    return done.out.decode().strip() if _ok(done) else None


def _differences(plan: CommitPlan, before: str | None) -> list[str]:
    """How the commit that was just made differs from the plan, in words."""
    top = plan.repository
    out: list[str] = []
    parents = _git(top, "rev-list", "--parents", "--max-count=1", "HEAD").out.decode().split()[1:]
    if parents != ([] if before is None else [before]):
        out.append("it does not follow the commit that was there")
    base = (
        before or _must(_git(top, "hash-object", "-t", "tree", "--stdin"), "compare").out.decode()
    )
    listed = _git(top, "diff-tree", "-r", "-z", "--name-only", "--no-renames", base.strip(), "HEAD")
    names = {os.fsdecode(n) for n in _must(listed, "list the commit's files").out.split(b"\0") if n}
    for name in sorted(names - plan.files.keys()):
        out.append(f"it changes {name} as well")
    for path, content in plan.files.items():
        blob, given = (_git(top, "cat-file", how, f"HEAD:{path}") for how in ("blob", "--filters"))
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
    if not real.is_relative_to(root) or ".git" in real.relative_to(root).parts:
        raise InputError(f"{path} is not in the work tree {top}")
    if real.is_symlink() or real.is_dir():
        raise InputError(f"{path} is a link or a folder", fix="name a file")
    relative = str(real.relative_to(root))
    # This one command refuses literal pathspecs; it takes wildcards for what they are anyway.
    ignored = run_git(top, ("check-ignore", "-q", "--", f"./{relative}"), b"", {})
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
    status = _must(_git(top, "status", "--porcelain", "-z", "--", path), "look at the file").out
    if status:
        what = "is not in git yet" if status.startswith(b"??") else "has uncommitted changes"
        raise InputError(f"{path} {what} and would be overwritten", fix="commit or move it first")
    return content


def _in_head(top: Path, path: str) -> bool:
    return _ok(_git(top, "cat-file", "-e", f"HEAD:{path}"))


def _diff(path: str, before: bytes | None, after: bytes) -> str:
    import difflib

    def lines(content: bytes | None) -> list[str]:
        return (content or b"").decode("utf-8", "replace").splitlines(keepends=True)

    old = "/dev/null" if before is None else f"a/{path}"
    made = difflib.unified_diff(lines(before), lines(after), old, f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in made)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror})") from None


def _restore(path: Path, before: bytes | None) -> None:
    with contextlib.suppress(OSError):
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> Done:
    # Paths are names here, never patterns; an editor would take the terminal away from the app.
    environment = {"GIT_LITERAL_PATHSPECS": "1", "GIT_EDITOR": "true"}
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
