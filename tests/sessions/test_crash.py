"""What must survive: kill -9, two writers, a full disk, a folder that cannot be written."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.types import Artifact, Stage
from sessions.events import ArtifactSet, Note, decode_log
from sessions.git_store import SESSIONS
from sessions.store import Store, check_writable
from sessions.writer import NotSaved
from tests.sessions.conftest import created

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("writing_process.py")


def start(store: Store, session: str, name: str, count: int, wait: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(store.path), session, name, str(count), str(wait)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


HOLDS = """
import sys
from sessions.events import Note
from sessions.store import Store, check_writable
with Store.open(sys.argv[1]).writer(sys.argv[2]) as writer:
    writer.append([Note("before")], actor="a")
    print("held", flush=True)
    sys.stdin.readline()
    writer.append([Note("its last")], actor="a")
    print("saved", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_writers_place_is_taken_with_all_that_it_saved(store: Store, session: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(store.path), session],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    with process.stdin as wakes, process.stdout as told:
        assert told.readline() == "held\n"
        with store.writer(session) as view:
            assert not view.take_over() and f"process {process.pid}" in (view.read_only or "")
            wakes.write("\n")
            wakes.flush()
            assert told.readline() == "saved\n"
            process.kill()
            process.wait()
            assert view.take_over() and view.read_only is None and not view.holder
            assert view.events[-1].body == Note("its last")  # without a poll before
            view.append([Note("mine now")], actor="b")
            with store.writer(session) as third:
                assert f"process {os.getpid()}" in third.holder and not third.take_over()
    assert store.load(session).events[-1].body == Note("mine now")


def test_what_is_read_only_for_another_reason_is_not_taken_over(store: Store, session: str) -> None:
    writer = store.writer(session)
    writer.close()
    assert not writer.take_over() and writer.read_only == "it was closed"


def git_children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_kill_9_at_random_moments_loses_nothing_acknowledged(store: Store, session: str) -> None:
    """Twenty times; every other time the git that the writer is running dies with it."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for attempt in range(20):
        process = start(store, session, f"run{attempt}", 10_000, 10.0)
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip()]
        time.sleep(chance.uniform(0, 0.06))
        children = git_children(process.pid) if attempt % 2 else []
        process.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
        process.stdout.close()
        process.wait()
        reader = store.load(session)
        found = {event.id for event in reader.events}
        assert set(acknowledged) <= found, f"seed {seed}, attempt {attempt}"
        assert reader.notices == () and reader.state.problems == ()
        reader.artifact(Stage.TARGET)
    with store.writer(session, wait=10.0) as writer:
        writer.append([Note("after all that")], actor="a")
    done = subprocess.run(
        ["git", "-C", str(store.path), "fsck", "--strict", "--no-dangling"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_two_writing_processes_keep_both_histories(store: Store, session: str) -> None:
    processes = [start(store, session, name, 9, 60.0) for name in ("one", "two")]
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert len(out.split()) == 9
    reader = store.load(session)
    notes = [event.body.text for event in reader.events if isinstance(event.body, Note)]
    for name in ("one", "two"):
        assert [n for n in notes if n.startswith(name)] == [f"{name} {i}" for i in range(9)]
    assert len(notes) == 18 and reader.state.problems == ()


def note(text: str) -> tuple[list[Note | ArtifactSet], list[Artifact]]:
    """A note with an artifact that does not compress."""
    artifact = Artifact.of(Stage.TARGET, "text", random.randbytes(60_000))
    return [Note(text), ArtifactSet(Stage.TARGET, "text", artifact.sha256)], [artifact]


def fails_waits_and_recovers(
    store: Store, session: str, broken: Callable[[], contextlib.AbstractContextManager[None]]
) -> None:
    """Saving fails while `broken`; the events wait; afterwards everything is there."""
    with store.writer(session) as writer:
        writer.append(*note("before"), actor="a")
        with broken():
            for number in range(2):
                with pytest.raises(NotSaved) as caught:
                    writer.append(*note(f"waiting {number}"), actor="a")
                assert caught.value.fix
            with pytest.raises(NotSaved):
                writer.retry()
            assert len(writer.pending) == 4
            assert len(writer.events) == 7 and writer.state.count == 7
            waiting = writer.artifact(Stage.TARGET)
            assert len(store.load(session).events) == 3
        writer.retry()
        assert writer.pending == ()
        writer.append(*note("after"), actor="a")
        assert writer.content(waiting.sha256) == waiting.data
    reader = store.load(session)
    notes = [event.body.text for event in reader.events if isinstance(event.body, Note)]
    assert notes == ["before", "waiting 0", "waiting 1", "after"]
    assert reader.notices == () and reader.state.problems == ()
    assert reader.content(waiting.sha256) == waiting.data


def test_files_that_may_not_grow(store: Store, session: str) -> None:
    """RLIMIT_FSIZE, which git's processes inherit: writes fail halfway, as on a full disk."""

    @contextlib.contextmanager
    def small_files() -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    fails_waits_and_recovers(store, session, small_files)


def test_a_full_disk() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("needs the right to mount a small file system")
        try:
            store = Store.open(Path(folder) / "store.git")
            session = store.create(created(), actor="a")

            @contextlib.contextmanager
            def full() -> Iterator[None]:
                filler = Path(folder) / "filler"
                with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 4096)
                try:
                    yield
                finally:
                    filler.unlink()

            fails_waits_and_recovers(store, session, full)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_a_read_only_file_system_is_not_a_matter_of_modes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("needs the right to mount a small file system")
        try:
            store = Store.open(Path(folder) / "store.git")
            store.create(created(), actor="a")
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
            with pytest.raises(StoreError) as found:
                check_writable(store)
            assert "read-only file system" in (found.value.fix or "")
            assert "drwx" not in str(found.value) and "$CUBRIDGE_STORE" in str(found.value)
        finally:
            subprocess.run(["umount", folder], check=True)


def in_a_child(work: Callable[[], list[str]]) -> list[str]:
    """Run `work` in a forked child that may not write where the modes forbid it.

    Root may write anywhere, so the child of a root becomes another user (a new interpreter could
    not: that user may have no right to read it).
    """
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(send, "\n".join(work()).encode())
        except BaseException as error:
            os.write(send, f"failed: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive) as file:
        lines = file.read().splitlines()
    os.waitpid(pid, 0)
    return lines


def test_a_store_that_may_only_be_read() -> None:
    with tempfile.TemporaryDirectory(prefix="cubridge-ro-") as folder:
        os.chmod(folder, 0o755)
        store = Store.open(Path(folder) / "store.git")
        session = store.create(created(), actor="a")

        def use() -> list[str]:
            lines = [str(len(store.sessions())), str(len(store.load(session).events))]
            with store.writer(session) as writer:
                lines.append(writer.read_only or "writable")
                for act in (
                    lambda: writer.append([Note("x")], actor="a"),
                    lambda: store.fork(session, actor="a"),
                    lambda: store.create(created(), actor="a"),
                    lambda: Store.open(Path(folder) / "new").create(created(), actor="a"),
                ):
                    try:
                        lines.append(f"done: {act()}")
                    except StoreError as error:
                        lines.append(error.message if error.fix else "no fix")
            return lines

        everything = (store.path, *store.path.rglob("*"))
        Path(folder).chmod(0o555)
        for path in everything:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            sessions, events, read_only, *refused = in_a_child(use)
        finally:
            Path(folder).chmod(0o755)
            for path in everything:
                path.chmod(0o700 if path.is_dir() else 0o600)
        assert (sessions, events) == ("1", "1")
        assert "cannot be locked" in read_only and "read-only" in refused[0]
        assert all("cannot be written" in line for line in refused[1:3]), refused
        assert "no store can be made" in refused[3]


def test_a_place_where_no_store_can_be_made() -> None:
    with pytest.raises(StoreError, match="no store can be made"):
        Store.open("/proc/nowhere/store.git").create(created(), actor="a")


def test_a_save_that_was_interrupted_after_the_ref_moved_is_not_saved_twice(
    store: Store, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails at the very last step: the events are there, though not acknowledged."""
    from sessions.git_store import GitDir

    sync = GitDir.sync

    def fails_at_the_ref(self: GitDir, oids: object, refs: object) -> None:
        if refs:
            raise OSError(5, "cannot be written error")
        sync(self, oids, refs)  # type: ignore[arg-type]

    with store.writer(session) as writer:
        monkeypatch.setattr(GitDir, "sync", fails_at_the_ref)
        with pytest.raises(NotSaved, match="cannot be written"):
            writer.append([Note("once")], actor="a")
        monkeypatch.undo()
        writer.retry()
        assert writer.pending == ()
    log = subprocess.run(
        ["git", "-C", str(store.path), "show", f"{SESSIONS}{session}:events.jsonl"],
        capture_output=True,
        check=True,
    ).stdout
    assert [e.body.text for e in decode_log(log) if isinstance(e.body, Note)] == ["once"]
