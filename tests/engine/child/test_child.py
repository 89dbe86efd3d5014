"""The torch child: answers, crashes, hangs, memory, cancel, hostile folders."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.child.client import Child
from engine.child.family import resident
from engine.child.keeper import MOST
from engine.child.postmortem import where_now
from engine.child.wire import (
    Broken,
    ChildEnded,
    ChildFailed,
    describe,
    encode,
    next_message,
    rebuild,
)
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.errors import CuBridgeError, Interrupted, SpecError, Where
from engine.lift import lift as lift_package
from engine.lift import load_package
from engine.resources import spec_path
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.transfer.rules import plan

SPEC = """
def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]
):
    {body}
    return torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v
"""


LINE = 6  # of the body


def lift(name: str) -> Module:
    package = load_package(name)
    return lift_package(package, package.specialisations[0]).module


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as running:
        yield running


def write(folder: Path, body: str) -> str:
    path = folder / "spec.py"
    path.write_text("import os, sys, time, torch\n" + SPEC.format(body=body))
    return str(path)


def test_the_collector_walks_only_what_came_after_torch(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "import gc; raise RuntimeError(f'{gc.get_freeze_count()} frozen')")
    with pytest.raises(SpecError, match=r"\d+ frozen") as caught:
        child.call("recipe", {"path": path})
    frozen = re.search(r"(\d+) frozen", str(caught.value))
    assert frozen and int(frozen[1]) > 100_000


def test_answers_and_stays_warm(child: Child) -> None:
    first = child.call("ping", {})
    pid = child.pid
    begin = time.monotonic()
    assert child.call("ping", {}) == first and child.pid == pid
    assert time.monotonic() - begin < 0.1


def test_what_a_spec_prints_is_no_answer(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "print('{\"result\": {}}'); os.write(1, b'\\0\\0\\0\\2{}')")
    assert "recipe" in child.call("recipe", {"path": path, "options": {}})


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        ("os._exit(3)", "exit code 3", None),
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9", None),
        ("import ctypes; ctypes.string_at(0)", "signal 11", LINE),
        ("os.closerange(3, 200)", "file descriptors", None),
    ],
)
def test_a_crash_names_the_spec_and_the_next_call_works(
    body: str, words: str, line: int | None, child: Child, tmp_path: Path
) -> None:
    path = write(tmp_path, body)
    with pytest.raises(SpecError, match=words) as caught:
        child.call("recipe", {"path": path, "options": {}})
    assert caught.value.where == Where(path, line) and caught.value.fix
    assert "torch" in child.call("ping", {})


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(60)",
        "while True: q = q * 1",  # most of the time in torch's own C++
        "import re; re.match('(a+)+b', 'a' * 60)",  # in C, with the interpreter's lock
    ],
)
def test_a_hang_is_stopped_at_its_line(body: str, child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, body)
    child.call("ping", {})
    begin = time.monotonic()
    with pytest.raises(SpecError, match="the spec ran for more than 2 s") as caught:
        child.call("recipe", {"path": path, "options": {}}, seconds=2)
    assert time.monotonic() - begin < 6
    assert caught.value.where == Where(path, LINE) and caught.value.fix


def test_a_hang_in_a_gate_is_told_at_its_line(child: Child, tmp_path: Path) -> None:
    flag = tmp_path / "hang"  # not a size: the reader tries both sides of what asks for one
    path = write(tmp_path, f"if os.path.exists({str(flag)!r}): time.sleep(60)")
    module = lift("flash_fwd_sm80")
    recipe = child.call("recipe", {"path": path, "options": {}})["recipe"]
    flag.touch()
    payload = {
        "module": print_module(module), "recipe": recipe, "spec": path, "options": {},
        "binding": plan(module, recipe_from_json(recipe)).binding.to_json(),
    }  # fmt: skip
    with pytest.raises(ChildEnded, match="the judge ran for more than") as caught:
        child.call("judge", payload, seconds=6)
    assert caught.value.where == Where(path, LINE)


@pytest.mark.parametrize(
    "body",
    [
        "import json; json.dumps = json.loads = None; json.JSONEncoder.encode = lambda *a: '{'",
        "sys.stdout = sys.stderr = None; os.write(1, bytes(100))",
    ],
)
def test_a_spec_s_own_affairs_are_no_answer(body: str, child: Child, tmp_path: Path) -> None:
    assert "recipe" in child.call("recipe", {"path": write(tmp_path, body), "options": {}})


def test_garbage_in_the_answers_is_an_error(child: Child, tmp_path: Path) -> None:
    text = (
        "for fd in range(3, 30):\n        try: os.write(fd, b'\\0\\0\\0\\2no')\n"
        "        except OSError: pass"
    )
    path = write(tmp_path, text)
    with pytest.raises(SpecError, match="is no answer") as caught:
        child.call("recipe", {"path": path, "options": {}})
    assert caught.value.where == Where(path)


def test_what_one_spec_patches_no_other_meets(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "torch.softmax = None")
    with pytest.raises(SpecError, match="not callable"):
        child.call("recipe", {"path": path, "options": {}})
    assert "recipe" in child.call("recipe", {"path": str(spec_path("causal")), "options": {}})
    with pytest.raises(SpecError, match="not callable"):
        child.call("recipe", {"path": path, "options": {}})
    write(tmp_path, "pass")
    assert "recipe" in child.call("recipe", {"path": path, "options": {}})


def test_errors_arrive_as_the_nearest_class_that_both_sides_know() -> None:
    class Odd(SpecError):
        pass

    class Stranger(CuBridgeError):
        pass

    odd = rebuild(describe(Odd("m", where=Where("f.py", 3), fix="x")))
    assert (type(odd), odd.message, odd.where, odd.fix) == (SpecError, "m", Where("f.py", 3), "x")
    assert type(rebuild(describe(Stranger("m")))) is CuBridgeError
    assert type(rebuild(describe(ChildFailed("m")))) is ChildFailed
    assert len(rebuild(describe(SpecError("m" * 10**7))).message) < 5000
    for other in (None, {}, {"types": ["os", "Where"], "message": 3}):
        assert isinstance(rebuild(other), ChildFailed)


def test_bytes_that_are_no_frames() -> None:
    whole = encode({"a": float("inf")})
    buffer = bytearray(whole[:-1])
    assert next_message(buffer) is None
    buffer += whole[-1:] + whole[:2]
    assert next_message(buffer) == {"a": float("inf")} and next_message(buffer) is None
    for bad in (b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\2\xff\xfe"):
        with pytest.raises(Broken):
            next_message(bytearray(bad))


def test_cancel_returns_at_once_and_leaves_no_child(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "time.sleep(60)")
    child.call("ping", {})
    pid = child.pid
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    begin = time.monotonic()
    with pytest.raises(Interrupted):
        child.call("recipe", {"path": path, "options": {}}, cancel=cancel)
    assert time.monotonic() - begin < 1.5
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("body", ["os.fork(); time.sleep(60)", "while True: pass"])
def test_a_killed_parent_leaves_no_child(body: str, tmp_path: Path) -> None:
    path = write(tmp_path, body)
    program = (
        "import sys; from engine.child.client import Child; child = Child(); child.start();"
        "print(child.pid, flush=True);"
        "child.call('recipe', {'path': sys.argv[1], 'options': {}})"
    )
    words = [sys.executable, "-c", program, path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(4)
        os.killpg(pid, 0)
        parent.kill()
    deadline = time.monotonic() + 5
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(pid, 0)
            time.sleep(0.05)


ESCAPES = {
    "a session and no environment":
        "import subprocess; p = subprocess.Popen(['sleep', '600'], start_new_session=True, env={});"
        "print(p.pid, file=open({file!r}, 'w'))",
    "a daemon's two forks":
        "import subprocess; subprocess.run(['sh', '-c', "
        "'setsid sh -c \"env -i sleep 600 & echo \\\\$! > {file}\" < /dev/null > /dev/null 2>&1'])",
}  # fmt: skip


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def escaping(how: str, tmp_path: Path, then: str = "pass") -> tuple[str, Path]:
    """A spec that starts what leaves its session, and the file with that process's id."""
    file = tmp_path / "pid"
    body = ESCAPES[how].replace("{file!r}", repr(str(file))).replace("{file}", str(file))
    return write(
        tmp_path, f"if not os.path.exists({str(file)!r}):\n        {body}\n    {then}"
    ), file


def assert_ends(file: Path) -> None:
    assert_end(int(file.read_text()))


def assert_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lives(pid)


@pytest.mark.parametrize("how", ESCAPES)
def test_nothing_that_a_spec_starts_outlives_the_command(
    how: str, child: Child, tmp_path: Path
) -> None:
    path, file = escaping(how, tmp_path)
    child.call("recipe", {"path": path, "options": {}})
    assert not lives(int(file.read_text()))


OWN_ENDS = {
    "os._exit(0)": "exit code 0",
    "os._exit(3)": "exit code 3",
    "os._exit(int('213'))": "exit code 213",  # which was once a reason of ours
    "import ctypes; ctypes.string_at(0)": "signal 11",
    # By name: the reader tries other values for the numbers that a spec holds.
    "import signal; os.killpg(0, signal.SIGKILL)": "signal 9",
    "import signal; os.kill(os.getpid(), signal.SIGTERM)": "signal 15",
    "import threading; threading.Thread(target=os._exit, args=(4,)).start(); time.sleep(60)":
        "exit code 4",
}  # fmt: skip


@pytest.mark.parametrize("then", OWN_ENDS)
def test_nothing_that_a_spec_starts_outlives_its_own_end(
    then: str, child: Child, tmp_path: Path
) -> None:
    path, file = escaping("a session and no environment", tmp_path, then)
    with pytest.raises(SpecError, match=OWN_ENDS[then]) as caught:
        child.call("recipe", {"path": path, "options": {}})
    assert caught.value.where is not None and caught.value.where.file == path and caught.value.fix
    assert_ends(file)


@pytest.mark.parametrize(
    "each",
    [
        "kept.append(subprocess.Popen(['sleep', '60']))",
        "kept.append(subprocess.Popen(['sleep', '60'], start_new_session=True, env={}))",
        "os.fork() or os._exit(0)",  # ended, and nobody waits for it
    ],
)
def test_a_spec_that_starts_too_many_processes_is_ended_with_all_of_them(
    each: str, child: Child, tmp_path: Path
) -> None:
    """Few more than are allowed, and once: never a spec that goes on without end."""
    once = tmp_path / "once"
    few = MOST + 20
    assert few <= 300
    body = (
        f"import subprocess; kept = []; once = {str(once)!r}\n"
        "    if not os.path.exists(once):\n"
        "        open(once, 'w').close()\n"
        f"        for _ in 'x' * int('{few}'): {each}\n"
        "        time.sleep(60)"
    )
    path = write(tmp_path, body)
    with pytest.raises(SpecError, match=f"had more than {MOST} processes") as caught:
        child.call("recipe", {"path": path, "options": {}})
    assert caught.value.where == Where(path) and caught.value.fix
    assert child.pid is None
    assert "torch" in child.call("ping", {})


def test_processes_that_came_to_their_own_end_are_not_counted(child: Child, tmp_path: Path) -> None:
    """Commands that leave a daemon each, as a compiler cache does, one after the other."""
    once = tmp_path / "once"
    few, many = 20, 15
    assert few * many > MOST + 10
    command = f"for i in $(seq {few}); do (true < /dev/null > /dev/null 2>&1 &); done"
    body = (
        f"import subprocess; once = {str(once)!r}\n"
        "    if not os.path.exists(once):\n"
        "        open(once, 'w').close()\n"
        f"        for _ in 'x' * int('{many}'): subprocess.run(['sh', '-c', {command!r}])\n"
        "        time.sleep(1)"
    )
    assert "recipe" in child.call("recipe", {"path": write(tmp_path, body), "options": {}})


HOLDS_THE_LOCK = "import re; re.match('(a+)+b', 'a' * 60)"  # and so sees no hang-up itself


def keepers(child: int) -> tuple[int, int]:
    """The outer one, and the inner one, which runs nothing but the process that runs specs."""
    text = Path(f"/proc/{child}/task/{child}/children").read_text()
    return child, int(text.split()[0])


@pytest.mark.parametrize("which", [0, 1], ids=["outer", "inner"])
def test_what_a_keeper_did_not_live_to_end_is_ended_too(which: int, tmp_path: Path) -> None:
    """The worker, and a daemon that it left."""
    worker = tmp_path / "worker"
    path, file = escaping(
        "a daemon's two forks", tmp_path,
        f"open({str(worker)!r}, 'w').write(str(os.getpid())); {HOLDS_THE_LOCK}",
    )  # fmt: skip
    with Child() as running:
        running.call("ping", {})
        assert running.pid is not None
        keeper = keepers(running.pid)[which]

        def end_keeper() -> None:
            while not (worker.exists() and worker.read_text()):
                time.sleep(0.02)
            os.kill(keeper, signal.SIGKILL)

        ender = threading.Thread(target=end_keeper)
        ender.start()
        with pytest.raises(SpecError):
            running.call("recipe", {"path": path, "options": {}}, seconds=30)
        ender.join()
    assert_ends(file)
    assert_ends(worker)


@pytest.mark.parametrize("stopped", [[0], [0, 1]], ids=["outer", "both"])
def test_stopped_keepers_end_with_a_killed_parent(stopped: list[int], tmp_path: Path) -> None:
    worker = tmp_path / "worker"
    path, file = escaping(
        "a daemon's two forks", tmp_path,
        f"open({str(worker)!r}, 'w').write(str(os.getpid())); {HOLDS_THE_LOCK}",
    )  # fmt: skip
    program = (
        "import sys; from engine.child.client import Child; child = Child();"
        "child.call('ping', {}); print(child.pid, flush=True);"
        "child.call('recipe', {'path': sys.argv[1], 'options': {}})"
    )
    words = [sys.executable, "-c", program, path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        both = keepers(int(parent.stdout.readline()))
        while not (worker.exists() and worker.read_text()):
            assert parent.poll() is None
            time.sleep(0.02)
        for which in stopped:
            os.kill(both[which], signal.SIGSTOP)
        parent.kill()
    assert_ends(file)
    assert_ends(worker)
    for keeper in both:
        assert_end(keeper)


def test_only_a_process_of_the_child_is_asked_where_it_is(tmp_path: Path) -> None:
    """Its number may have become another's, whom the signal would end."""
    with (
        (tmp_path / "log").open("w+b") as log,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger,
    ):
        try:
            assert where_now(stranger.pid, os.getsid(0), log) == ""
            assert stranger.poll() is None
        finally:
            stranger.kill()
        stranger.wait()
        assert where_now(stranger.pid, stranger.pid, log) == ""


def test_headless_a_spec_that_ends_its_process_is_one_error_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    path, file = escaping("a daemon's two forks", tmp_path, "os._exit(0)")
    words = [sys.executable, "-m", "cubridge_tui", "recipe", path, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert path in done.stderr and "ended the process" in done.stderr and "fix: " in done.stderr
    assert_ends(file)


@pytest.mark.parametrize("first", ["", "os.fork() or "])
def test_memory_is_watched(first: str, tmp_path: Path) -> None:
    """Also what a process that the spec started holds."""
    path = write(tmp_path, f"kept = {first}bytearray(b'x') * (1 << 29); time.sleep(60)")
    with Child(memory_limit=7 << 26) as small, pytest.raises(SpecError, match="memory") as caught:
        small.call("recipe", {"path": path, "options": {}})
    assert caught.value.where is not None and caught.value.where.file == path
    assert caught.value.where.line == LINE or first


def test_what_a_fork_shares_is_counted_once() -> None:
    with Child() as running:
        running.call("ping", {})
        assert running.pid is not None
        alone = resident(running.pid)
    assert 50 << 20 < alone < 2 << 30
    assert resident(2**22 + 1) == 0  # no such process
    block = bytearray(b"x") * (64 << 20)
    before = resident(os.getpid())
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    try:
        time.sleep(0.2)
        assert resident(os.getpid()) < before + len(block) // 2
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_errors_keep_their_type_and_place(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def attention(q, k, v:\n")
    with pytest.raises(SpecError) as caught:
        child.call("recipe", {"path": str(path), "options": {}})
    assert caught.value.where is not None and caught.value.where.line == 1


def test_a_hostile_current_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch.py", "ast.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('hijacked')")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    with Child() as fresh:
        assert "torch" in fresh.call("ping", {})


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import os, sys, time\nfrom engine.child.client import Child\n"
        "c = Child(); c.call('ping', {}); print(c.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_the_end_of_the_child_is_told_where_its_starter_ignored_that_children_end(
    tmp_path: Path,
) -> None:
    """A starter that lets the system reap its children hands that on to what it starts."""
    path = write(tmp_path, "os._exit(7)")
    good = tmp_path / "good.py"
    good.write_text(spec_path("causal").read_text())
    program = (
        "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from engine.child.client import Child\n"
        "with Child() as child:\n"
        "    child.call('recipe', {'path': sys.argv[2], 'options': {}})\n"
        "    signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
        "    child.call('recipe', {'path': sys.argv[1], 'options': {}})\n"
    )
    words = [sys.executable, "-c", program, path, str(good)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "exit code 7" in done.stderr
