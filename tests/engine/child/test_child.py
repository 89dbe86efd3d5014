"""The torch child: answers, crashes, hangs, memory, cancel, hostile folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.child.client import Child, ChildFailed
from engine.errors import Interrupted, SpecError

SPEC = """
def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]
):
    {body}
    return torch.softmax(q @ k.transpose(-2, -1) * 0.125, -1) @ v
"""


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as running:
        yield running


def write(folder: Path, body: str) -> str:
    path = folder / "spec.py"
    path.write_text("import os, time, torch\n" + SPEC.format(body=body))
    return str(path)


def test_answers_and_stays_warm(child: Child) -> None:
    first = child.call("ping", {})
    pid = child.pid
    begin = time.monotonic()
    assert child.call("ping", {}) == first and child.pid == pid
    assert time.monotonic() - begin < 0.1


def test_what_a_spec_prints_is_no_answer(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "print('{\"result\": {}}'); os.write(1, b'\\0\\0\\0\\2{}')")
    assert "recipe" in child.call("recipe", {"path": path, "options": {}})


def test_a_crash_is_an_error_and_the_next_call_works(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(ChildFailed, match="signal 9"):
        child.call("recipe", {"path": path, "options": {}})
    assert "torch" in child.call("ping", {})


def test_a_hang_is_stopped(child: Child, tmp_path: Path) -> None:
    path = write(tmp_path, "time.sleep(60)")
    child.call("ping", {})
    begin = time.monotonic()
    with pytest.raises(ChildFailed, match="longer than"):
        child.call("recipe", {"path": path, "options": {}}, seconds=1.5)
    assert time.monotonic() - begin < 5


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


def test_memory_is_watched(tmp_path: Path) -> None:
    path = write(tmp_path, "kept = bytearray(b'x') * (1 << 31); time.sleep(5)")
    with Child(memory_limit=1 << 30) as small, pytest.raises(ChildFailed, match="memory"):
        small.call("recipe", {"path": path, "options": {}})


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
