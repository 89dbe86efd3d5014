"""The store on real git: what is written, who may write, and everything that can go wrong."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.types import (
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Level,
    Origin,
    Proposal,
    Stage,
    sha256_of,
)
from sessions import replay
from sessions.events import (
    ArtifactSet,
    HunkDecided,
    Note,
    ProposalMade,
    TitleSet,
    TranscriptAdded,
    Undone,
    VerdictGiven,
    decode_log,
)
from sessions.git_store import SESSIONS
from sessions.listing import default_path
from sessions.session import Session
from sessions.state import acceptance_of
from sessions.store import Store
from sessions.writer import NotSaved
from tests.sessions.conftest import artifact_set, created, passed

Git = Callable[..., str]


def texts(session: Session) -> list[str]:
    return [event.body.text for event in session.events if isinstance(event.body, Note)]


# What is written


def test_a_whole_adaptation_is_readable_with_plain_git(
    store: Store, session: str, git: Git
) -> None:
    steps = [artifact_set(stage, f"{stage} text") for stage in list(Stage)[:4]]
    with store.writer(session) as writer:
        for body, artifact in steps:
            writer.append([body], [artifact], actor="engine")
        for gate, stage in zip((Gate.G1, Gate.G2, Gate.G3), list(Stage)[1:4], strict=True):
            writer.append([passed(gate, f"{stage} text")], actor="engine")
        transcript = TranscriptAdded("model-1.jsonl", sha256_of("hello"), "p1")
        writer.append([transcript], ["hello"], actor="model")
        writer.append([acceptance_of(writer.state)], actor="ana")
        assert writer.state.level is Level.CPU_VERIFIED
    ref = SESSIONS + session
    assert git("show", f"{ref}:artifacts/lowered/text") == "lowered text"
    assert git("show", f"{ref}:transcripts/model-1.jsonl") == "hello"
    assert json.loads(git("show", f"{ref}:verdicts/G3.json"))["kind"] == "pass"
    summary = json.loads(git("show", f"{ref}:session.json"))
    assert (summary["schema_version"], summary["level"]) == (1, "cpu-verified")
    log = git("show", f"{ref}:events.jsonl").encode()
    assert decode_log(log) == store.load(session).events
    message = git("log", "-1", "--format=%B", ref)
    assert "CuBridge-Level: cpu-verified" in message and "CuBridge-Stage: lowered" in message
    assert git("fsck", "--strict", "--no-dangling").strip() == ""
    assert len(git("log", "--format=%H", ref).split()) == 10


def test_titles_and_reasons_stay_out_of_commit_messages(store: Store, git: Git) -> None:
    session = store.create(created("x\n\nCuBridge-Level: gpu-verified\n"), actor="ana")
    with store.writer(session) as writer:
        writer.append([TitleSet("\x1b[2J"), Note("CuBridge-Level: gpu-verified")], actor="a\nb")
    messages = git("log", "--format=%B", SESSIONS + session)
    assert "CuBridge-Level: gpu-verified" not in messages and "\x1b" not in messages
    assert store.load(session).state.title == "\x1b[2J"


def test_contents_of_every_moment_stay_reachable(store: Store, session: str) -> None:
    first, old = artifact_set(Stage.TARGET, "old")
    second, new = artifact_set(Stage.TARGET, "new")
    with store.writer(session) as writer:
        writer.append([first], [old], actor="a")
        writer.append([second], [new], actor="a")
    loaded = store.load(session)
    assert loaded.artifact(Stage.TARGET).text == "new"
    assert loaded.content(old.sha256) == b"old"
    with pytest.raises(StoreError, match="not in this session"):
        loaded.content(sha256_of("never"))
    with pytest.raises(StoreError, match="it has: text"):
        loaded.artifact(Stage.TARGET, "other")


def test_bytes_come_back_as_they_were(store: Store, session: str) -> None:
    data = b"\xef\xbb\xbfint x;\r\n\tint y;\r\0\xff$Id$ no final newline"
    body = ArtifactSet(Stage.SOURCE, "kernel.cu", sha256_of(data))
    with store.writer(session) as writer:
        writer.append([body], [data], actor="a")
    assert store.load(session).artifact(Stage.SOURCE).data == data


def test_a_long_log_is_sealed_in_parts(store: Store, session: str, git: Git) -> None:
    with store.writer(session) as writer:
        for number in range(7):
            writer.append([Note(f"{number} " + "x" * 100_000)], actor="a")
        before = writer.events
    paths = git("ls-tree", "-r", "--name-only", SESSIONS + session).split()
    assert [p for p in paths if p.startswith("events/")] == [
        "events/000001.jsonl",
        "events/000002.jsonl",
    ]
    assert store.load(session).events == before


def test_an_event_that_makes_no_sense_is_refused_and_changes_nothing(
    store: Store, session: str
) -> None:
    with store.writer(session) as writer:
        for body in (
            created(),
            Undone("nothing"),
            HunkDecided(Decision("h1", DecisionKind.ACCEPTED, "ana")),
            acceptance_of(writer.state),
            ArtifactSet(Stage.TARGET, "x", sha256_of("content that nobody gave")),
        ):
            with pytest.raises(StoreError, match="was not added"):
                writer.append([Note("with it"), body], actor="a")
        assert writer.pending == () and len(writer.events) == 1
    assert len(store.load(session).events) == 1


# Names and places


def test_sessions_are_found_by_a_unique_beginning(store: Store) -> None:
    one = store.create(created("alpha one"), actor="a")
    two = store.create(created("alpha two"), actor="a")
    assert store.find("alpha-o") == one
    assert store.find(two) == two
    with pytest.raises(StoreError, match="could be"):
        store.load("alpha")
    with pytest.raises(StoreError, match="no session"):
        store.load("beta")


@pytest.mark.parametrize(
    "name", ["--upload-pack=x", "../../x", "a\nb", "x.lock", "@{", "@{-1}", "", "a^", "a:b", "-"]
)
def test_hostile_names_are_refused(store: Store, session: str, name: str) -> None:
    for use in (store.load, store.find, lambda n: store.fork(n, actor="a"), store.writer):
        with pytest.raises(StoreError, match="cannot be a session's id"):
            use(name)


@pytest.mark.parametrize(
    "title", ["--upload-pack=x", "../../x", "a\nb", "x.lock", "@{", "", "日本"]
)
def test_hostile_titles_are_kept_as_data(store: Store, title: str, git: Git) -> None:
    session = store.create(created(title), actor="a")
    assert store.load(session).state.title == title
    git("check-ref-format", SESSIONS + session)


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = {"HOME": str(tmp_path)}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path({"CUBRIDGE_STORE": "/a/b", "XDG_DATA_HOME": "/c"}) == Path("/a/b")
    assert default_path({"XDG_DATA_HOME": "/c"}) == Path("/c/cubridge/store.git")
    below = tmp_path / ".local/share/cubridge/store.git"
    assert default_path(home) == below
    assert default_path({"XDG_DATA_HOME": "relative"}) == below
    monkeypatch.setenv("CUBRIDGE_STORE", str(tmp_path / "s"))
    assert Store.open().path == tmp_path / "s"


def test_opening_makes_nothing_and_the_first_session_makes_it_private(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "deep" / "er" / "store.git")
    assert store.sessions() == []
    with pytest.raises(StoreError, match="does not exist yet"):
        store.load("anything")
    assert not (tmp_path / "deep").exists()
    store.create(created(), actor="a")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    assert [p.name for p in store.path.parent.iterdir()] == ["store.git"]


@pytest.mark.parametrize("kind", ["work tree", "bare", "files", "file", "newer"])
def test_what_is_not_our_store_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind in ("work tree", "bare"):
        args = ["--bare"] if kind == "bare" else []
        subprocess.run(["git", "init", "-q", *args, str(place)], check=True)
    elif kind == "file":
        place.write_text("hello")
    else:
        (place / "cubridge").mkdir(parents=True)
        marker = {"what": "CuBridge session store", "schema_version": 2}
        (place / "cubridge" / "store.json").write_text(json.dumps(marker))
        if kind == "newer":
            for name in ("objects", "refs", "HEAD"):
                (place / name).mkdir()
    before = sorted(place.rglob("*"))
    with pytest.raises(StoreError) as caught:
        Store.open(place)
    assert caught.value.fix is not None and "--store" in caught.value.fix
    assert sorted(place.rglob("*")) == before


def test_an_empty_folder_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    store = Store.open(tmp_path / "empty")
    store.create(created(), actor="a")
    assert len(Store.open(tmp_path / "empty").sessions()) == 1


# The list


def test_the_list_shows_the_latest_first(store: Store) -> None:
    ids = [store.create(created(f"number {n}"), actor="a") for n in range(3)]
    with store.writer(ids[0]) as writer:
        body, artifact = artifact_set(Stage.LIFTED, "lifted")
        writer.append([body, passed(Gate.G1, "lifted")], [artifact], actor="engine")
    found = store.sessions()
    assert found[0].id == ids[0] and {s.id for s in found} == set(ids)
    assert (found[0].stage, found[0].last_step) == ("lifted", "G1 passed in 0.5 s")
    assert (found[0].title, found[0].level, found[0].events) == ("number 0", Level.NONE, 3)
    assert not any(s.damaged for s in found)


# Undo, fork, follow


def test_undo_leaves_a_ref_to_what_was_undone(store: Store, session: str, git: Git) -> None:
    hunk = Hunk("h1", "t", "r", "c", "a", "b", (), Origin.RULES)
    first, before = artifact_set(Stage.TARGET, "before")
    second, after = artifact_set(Stage.TARGET, "after")
    with store.writer(session) as writer:
        writer.append([ProposalMade(Proposal("p", Origin.RULES, "r", (hunk,)))], actor="rules")
        writer.append([first], [before], actor="engine")
        writer.append([HunkDecided(Decision("h1", DecisionKind.ACCEPTED, "ana"))], actor="ana")
        writer.append([second], [after], actor="engine")
        (undone,) = writer.append([Undone(writer.state.undo[-1].event)], actor="ana")
    assert store.load(session).artifact(Stage.TARGET).text == "before"
    assert git("show", f"{SESSIONS}{session}:artifacts/target/text") == "before"
    kept = f"refs/cubridge/undone/{session}/{undone.id}"
    assert git("show", f"{kept}:artifacts/target/text") == "after"
    assert store.sessions()[0].id == session


def test_a_fork_goes_its_own_way(store: Store, session: str) -> None:
    with store.writer(session) as writer:
        writer.append([Note("one")], actor="a")
        writer.append([Note("two")], actor="a")
        writer.append([Note("three")], actor="a")
        events = writer.events
    fork = store.fork(session, actor="bob")
    early = store.fork(session, actor="bob", title="early", at=events[1].id)
    with store.writer(fork) as writer:
        writer.append([Note("mine")], actor="bob")
    assert texts(store.load(fork)) == ["one", "two", "three", "mine"]
    assert texts(store.load(early)) == ["one"]
    assert texts(store.load(session)) == ["one", "two", "three"]
    state = store.load(early).state
    assert state.title == "early"
    assert state.forked_from is not None and state.forked_from.session == session
    with pytest.raises(StoreError, match="no event"):
        store.fork(session, actor="bob", at="nowhere")


def test_no_fork_begins_in_the_middle_of_a_stroke(store: Store, session: str) -> None:
    """A decision and its target, a proposal and its artifacts, an undo of two: one thing each."""
    hunks = tuple(Hunk(f"h{n}", "t", "r", "c", "a", "b", (), Origin.RULES) for n in (1, 2))
    (base, old), (target, new) = (artifact_set(Stage.TARGET, t) for t in ("old", "new"))
    with store.writer(session) as writer:
        made = Proposal("p", Origin.RULES, "r", hunks)
        writer.append([ProposalMade(made), base], [old], actor="ana")
        decided = [HunkDecided(Decision(h.id, DecisionKind.ACCEPTED, "ana")) for h in hunks]
        writer.append([*decided, target], [new], actor="ana")
        writer.append([Undone(f.event) for f in reversed(writer.state.undo)], actor="ana")
        events = writer.events
        times = [*(e.time for e in events), ""]
        ends = [at for at in range(len(events)) if times[at] != times[at + 1]]
    found = [store.load(store.fork(session, actor="b", at=e.id)) for e in events]
    for index, fork in enumerate(found):
        end = min(at for at in ends if at >= index)
        assert [e.id for e in fork.events[: end + 1]] == [e.id for e in events[: end + 1]]
        assert len(fork.events) == end + 3  # and that it is a fork, with a title
    kept = [fork.artifact(Stage.TARGET).text for fork in found[-7:]]
    assert kept == [*["old"] * 2, *["new"] * 3, *["old"] * 2]


def test_a_reader_follows_live(store: Store, session: str) -> None:
    reader = store.load(session)
    with store.writer(session) as writer:
        assert reader.poll() == ()
        writer.append([Note("a"), Note("b")], actor="x")
        assert [replay.describe(event) for event in reader.poll()] == ["note: a", "note: b"]
        assert reader.poll() == ()
        writer.append([TitleSet("new")], actor="x")
        assert len(reader.poll()) == 1 and reader.state.title == "new"
    store.pack()
    subprocess.run(["git", "-C", str(store.path), "pack-refs", "--all"], check=True)
    assert reader.poll() == ()


# Who may write


def test_the_second_writer_reads_follows_and_forks(store: Store, session: str) -> None:
    with store.writer(session) as first:
        with store.writer(session) as second:
            assert second.read_only is not None and str(os.getpid()) in second.holder
            with pytest.raises(StoreError, match="read-only"):
                second.append([Note("no")], actor="b")
            first.append([Note("yes")], actor="a")
            assert len(second.poll()) == 1 and texts(second) == ["yes"]
            assert store.fork(second.id, actor="b") != session
        first.append([Note("still mine")], actor="a")
    with store.writer(session) as third:
        assert third.read_only is None


def test_another_thread_always_sees_a_whole_state(store: Store, session: str) -> None:
    """What a screen reads while another thread saves: no event twice, none missing."""
    import threading

    seen: list[tuple[int, int, int]] = []
    with store.writer(session) as writer:
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                state, events = writer.state, writer.events
                seen.append((state.count, len(state.problems), len(events) - len(set(events))))

        thread = threading.Thread(target=watch)
        thread.start()
        for number in range(15):
            writer.append([Note(str(number))], actor="a")
        stop.set()
        thread.join()
    counts = [count for count, _, _ in seen]
    assert counts == sorted(counts) and {(p, d) for _, p, d in seen} == {(0, 0)}


def test_a_session_of_a_newer_version_is_read_and_not_written(
    store: Store, session: str, git: Git, tmp_path: Path
) -> None:
    ref = SESSIONS + session
    summary = json.loads(git("show", f"{ref}:session.json")) | {"schema_version": 2}
    (tmp_path / "session.json").write_text(json.dumps(summary))
    blob = git("hash-object", "-w", str(tmp_path / "session.json")).strip()
    log = git("rev-parse", f"{ref}:events.jsonl").strip()
    listing = f"100644 blob {blob}\tsession.json\n100644 blob {log}\tevents.jsonl\n"
    make = ["git", "-C", str(store.path), "mktree"]
    tree = subprocess.run(make, input=listing, capture_output=True, text=True, check=True).stdout
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    commit = git(*who, "commit-tree", "-m", "newer", tree.strip()).strip()
    git("update-ref", ref, commit)
    assert len(store.load(session).events) == 1
    with store.writer(session) as writer:
        assert writer.read_only is not None and "newer version" in writer.read_only


@pytest.mark.parametrize("left", [b'{"pid": 1, "host": "h", "since": "t"}', b"\xff{", b"[1]", b""])
def test_a_lock_file_left_behind_blocks_nobody(store: Store, session: str, left: bytes) -> None:
    (store.path / "cubridge" / "locks" / f"{session}.lock").write_bytes(left)
    with store.writer(session) as writer:
        assert writer.read_only is None
        writer.append([Note("x")], actor="a")


def test_writers_without_working_locks_lose_nothing(store: Store, session: str) -> None:
    """A file system without locks: the compare-and-swap alone keeps both writers' events."""
    one = store.writer(session)
    (store.path / "cubridge" / "locks" / f"{session}.lock").unlink()
    two = store.writer(session)
    assert two.read_only is None
    for number in range(4):
        one.append([Note(f"one {number}")], actor="a")
        two.append([Note(f"two {number}")], actor="b")
    one.close()
    two.close()
    found = texts(store.load(session))
    assert sorted(found) == sorted(f"{who} {n}" for who in ("one", "two") for n in range(4))


def test_what_no_longer_fits_is_refused_after_a_reread(store: Store, session: str) -> None:
    hunk = Hunk("h1", "t", "r", "c", "a", "b", (), Origin.RULES)
    decide = HunkDecided(Decision("h1", DecisionKind.ACCEPTED, "ana"))
    one = store.writer(session)
    one.append([ProposalMade(Proposal("p", Origin.RULES, "r", (hunk,))), decide], actor="a")
    (store.path / "cubridge" / "locks" / f"{session}.lock").unlink()
    two = store.writer(session)
    undo = Undone(one.state.undo[-1].event)
    one.append([undo], actor="a")
    with pytest.raises(NotSaved, match="changed by someone else"):
        two.append([undo], actor="b")
    assert two.pending == ()
    two.append([Note("after")], actor="b")
    one.close()
    two.close()
    assert store.load(session).state.problems == ()


def test_a_git_lock_left_by_a_killed_git_is_removed_and_told(store: Store, session: str) -> None:
    lock = store.path / f"{SESSIONS}{session}.lock"
    lock.write_text("")
    with store.writer(session) as writer:
        writer.append([Note("x")], actor="a")
        assert any("removed" in notice for notice in writer.notices)
    assert not lock.exists() and texts(store.load(session)) == ["x"]


# Damage


def object_path(store: Store, oid: str) -> Path:
    return store.path / "objects" / oid[:2] / oid[2:]


def spoil(path: Path, how: str) -> None:
    path.chmod(0o600)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "flipped":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :])
    else:
        path.write_bytes(b"" if how == "empty" else data[: len(data) // 2])


@pytest.mark.parametrize("how", ["empty", "truncated", "gone", "flipped"])
@pytest.mark.parametrize("what", ["", "^{tree}", ":events.jsonl"])
def test_a_damaged_tip_falls_back_and_says_so(
    store: Store, session: str, git: Git, what: str, how: str
) -> None:
    with store.writer(session) as writer:
        writer.append([Note("kept")], actor="a")
        writer.append([Note("damaged " * 40)], actor="a")
    other = store.create(created("a healthy one"), actor="a")
    spoil(object_path(store, git("rev-parse", f"{SESSIONS}{session}{what}").strip()), how)
    reader = store.load(session)
    assert texts(reader) == ["kept"]
    assert "damaged" in reader.notices[0]
    listed = {s.id: s.damaged for s in store.sessions()}
    assert listed[other] is False and session in listed
    with store.writer(session) as writer:
        assert texts(writer) == ["kept"] and writer.notices
        writer.append([Note("on we go")], actor="a")
        assert writer.notices == ()
    found = store.load(session)
    assert found.notices == ()
    assert texts(found)[0] == "kept" and texts(found)[-1] == "on we go"
    assert "last good one" in texts(found)[1]
    assert not any(s.damaged for s in store.sessions())


@pytest.mark.parametrize("content", ["", "garbage\n", "1" * 40 + "\n", None])
def test_a_broken_ref_is_found_again_by_its_log(
    store: Store, session: str, git: Git, content: str | None
) -> None:
    with store.writer(session) as writer:
        writer.append([Note("kept")], actor="a")
    path = store.path / f"{SESSIONS}{session}"
    path.unlink() if content is None else path.write_text(content)
    assert texts(store.load(session)) == ["kept"]
    assert [(s.id, s.damaged, s.events) for s in store.sessions()] == [(session, True, 2)]
    with store.writer(session) as writer:
        writer.append([Note("on")], actor="a")
    assert texts(store.load(session))[-1] == "on"
    assert git("fsck", "--no-dangling").strip() == ""
    kept = list((store.path / "cubridge" / "damaged").iterdir())
    assert [p.read_text() for p in kept] == ([] if content is None else [content])


def test_a_session_of_which_nothing_is_left_is_one_clear_error(store: Store, session: str) -> None:
    for path in (store.path / "objects").glob("??/*"):
        path.chmod(0o600)
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="no earlier state") as caught:
        store.load(session)
    assert caught.value.fix is not None and "fsck" in caught.value.fix
    (summary,) = store.sessions()
    assert summary.damaged and summary.id == session


def test_a_session_without_ref_and_log_can_be_recovered(
    store: Store, session: str, git: Callable[..., str]
) -> None:
    (store.path / f"{SESSIONS}{session}").write_text("")
    (store.path / "logs" / f"{SESSIONS}{session}").write_text("")
    (summary,) = store.sessions()
    assert summary.damaged and "damaged" in summary.last_step
    with pytest.raises(StoreError, match="is damaged") as caught:
        store.load(session)
    fix = caught.value.fix or ""
    assert "fsck --lost-found" in fix and f"update-ref {SESSIONS}{session} COMMIT" in fix
    assert f"rm {store.path / SESSIONS / session}" in fix
    (store.path / f"{SESSIONS}{session}").unlink()
    (commit,) = (
        line.split()[-1] for line in git("fsck", "--lost-found").splitlines()
        if line.startswith("dangling commit")
    )  # fmt: skip
    git("update-ref", f"{SESSIONS}{session}", commit)
    assert store.load(session).notices == ()


@pytest.mark.parametrize("how", ["empty", "gone", "truncated"])
def test_a_damaged_content_costs_only_itself(
    store: Store, session: str, git: Git, how: str
) -> None:
    body, artifact = artifact_set(Stage.TARGET, "target " * 100)
    with store.writer(session) as writer:
        writer.append([body], [artifact], actor="a")
    oid = git("rev-parse", f"{SESSIONS}{session}:artifacts/target/text").strip()
    spoil(object_path(store, oid), how)
    reader = store.load(session)
    assert len(reader.events) == 2
    with pytest.raises(StoreError, match="damaged"):
        reader.artifact(Stage.TARGET)
    with store.writer(session) as writer:
        writer.append([Note("on")], actor="a")
        with pytest.raises(StoreError, match="damaged"):
            writer.content(artifact.sha256)
        writer.append([body], [artifact], actor="a")
    assert store.load(session).artifact(Stage.TARGET) == artifact
    assert texts(store.load(session)) == ["on"]


# The environment


def test_inherited_git_variables_and_hooks_have_no_effect(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(["git", "init", "-q", str(elsewhere)], check=True)
    before = sorted(p for p in elsewhere.rglob("*"))
    ran = tmp_path / "hook-ran"
    hook = tmp_path / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    for name, value in {
        "GIT_DIR": str(elsewhere / ".git"),
        "GIT_WORK_TREE": str(elsewhere),
        "GIT_INDEX_FILE": str(elsewhere / "index"),
        "GIT_OBJECT_DIRECTORY": str(elsewhere / ".git/objects"),
        "GIT_COMMON_DIR": str(elsewhere / ".git"),
        "GIT_NAMESPACE": "x",
        "GIT_QUARANTINE_PATH": "/tmp",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.hooksPath",
        "GIT_CONFIG_VALUE_0": str(hook.parent),
        "GIT_AUTHOR_DATE": "not a date",
        "GIT_TRACE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    session = store.create(created(), actor="a")
    (store.path / "hooks").mkdir(exist_ok=True)
    (store.path / "hooks" / "reference-transaction").write_text(hook.read_text())
    (store.path / "hooks" / "reference-transaction").chmod(0o755)
    with store.writer(session) as writer:
        writer.append([Note("x")], actor="a")
    assert texts(store.load(session)) == ["x"]
    assert sorted(p for p in elsewhere.rglob("*")) == before
    assert not ran.exists()


def test_a_machine_without_a_git_identity_or_git_configuration_saves(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[core\nthis is broken")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("EMAIL", "")
    assert store.create(created(), actor="a")


@pytest.mark.parametrize("refresh", ["", "quiet"])
def test_a_machine_without_git_is_told_what_to_install(tmp_path: Path, refresh: str) -> None:
    script = (
        "import sys\nfrom sessions.store import Store\nfrom engine.errors import MissingTool\n"
        "from tests.sessions.conftest import created\n"
        "try:\n    Store.open(sys.argv[1]).create(created(), actor='a')\n"
        "except MissingTool as error:\n    print(error)"
    )
    env = {**os.environ, "PATH": "/nonexistent"} | (
        {"GIT_PYTHON_REFRESH": refresh} if refresh else {}
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no git was found" in done.stdout and "install git" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_with_a_strange_path(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "-x 'y\n\"é\t\\" / "--bare")
    session = store.create(created(), actor="a")
    with store.writer(session) as writer:
        writer.append([Note("x")], actor="a")
    assert texts(store.load(session)) == ["x"]


def test_a_store_that_disappears_is_told(store: Store, session: str) -> None:
    import shutil

    with pytest.raises(NotSaved, match="is gone"), store.writer(session) as writer:
        shutil.rmtree(store.path)
        writer.append([Note("x")], actor="a")
    assert not store.path.exists()


def test_a_mirror_made_by_plain_git_is_a_store(store: Store, session: str, tmp_path: Path) -> None:
    with store.writer(session) as writer:
        writer.append([Note("x")], actor="a")
    copy = tmp_path / "copy.git"
    subprocess.run(["git", "clone", "-q", "--mirror", str(store.path), str(copy)], check=True)
    with pytest.raises(StoreError, match="not a CuBridge store"):
        Store.open(copy)
    (copy / "cubridge").mkdir()
    marker = (store.path / "cubridge" / "store.json").read_text()
    (copy / "cubridge" / "store.json").write_text(marker)
    other = Store.open(copy)
    with other.writer(session) as writer:
        writer.append([Note("y")], actor="b")
    assert texts(other.load(session)) == ["x", "y"] and texts(store.load(session)) == ["x"]


def test_opening_200_times_leaves_no_descriptor_and_no_child(store: Store, session: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def children() -> str:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text()

    store.load(session)
    before = descriptors(), children()
    for _ in range(100):
        store.load(session)
        with store.writer(session):
            pass
    assert (descriptors(), children()) == before


def test_reading_the_modules_loads_neither_git_nor_anything_heavy() -> None:
    heavy = "git", "torch", "textual", "openai", "subprocess"
    script = (
        "import sys, sessions.store, sessions.replay, engine.types\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_verdicts_in_the_tree_show_staleness(store: Store, session: str, git: Git) -> None:
    one, first = artifact_set(Stage.LIFTED, "one")
    two, second = artifact_set(Stage.LIFTED, "two")
    with store.writer(session) as writer:
        writer.append([one, passed(Gate.G1, "one")], [first], actor="engine")
        writer.append([two], [second], actor="engine")
        assert isinstance(writer.events[2].body, VerdictGiven)
    found = json.loads(git("show", f"{SESSIONS}{session}:verdicts/G1.json"))
    assert found["kind"] == "stale" and "lifted changed" in found["reason"]


def test_a_session_keeps_what_it_used_last_within_a_limit() -> None:
    from sessions.session import Kept

    kept = Kept(limit=10)
    for name in "abc":
        kept.put(name, name.encode() * 4)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (None, b"bbbb", b"cccc")
    kept.get("b")
    kept.put("d", b"dd" * 2)
    assert (kept.get("b"), kept.get("c")) == (b"bbbb", None)
    kept.put("e", b"e" * 11)
    assert kept.get("e") is None
