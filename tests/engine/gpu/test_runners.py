"""Runners move a job and bring a result back, whatever the command; nothing reaches a shell."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engine.errors import InputError, Interrupted, MissingTool
from engine.gpu import runners
from engine.gpu.runners import Command, Local, Ssh, choose_runner

Program = Callable[[str, str], Path]
WRITER = f"""#!{sys.executable}
import json, os, sys
out = sys.argv[sys.argv.index("--out") + 1]
json.dump({{"argv": sys.argv, "path": os.environ.get("PYTHONPATH")}}, open(out, "w"))
print("done")
"""


def silent(text: str) -> None:
    pass


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] not in "ZX"
    return False


def test_command_fills_words_and_never_a_shell(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    script = program("writer", WRITER)
    job = tmp_path / "a job; touch pwned $(touch pwned)"
    job.mkdir()
    runner = Command(f"{script} 'x y' {{job}} --out {{out}} {{options}}")
    said: list[str] = []
    found = runner.run(job, ["--samples", "7"], None, said.append)
    data = json.loads(found.read_text())
    assert data["argv"][1:3] == ["x y", str(job)]
    assert data["argv"][-2:] == ["--samples", "7"]
    assert data["path"] is None
    assert said == ["done"]
    assert not list(tmp_path.rglob("pwned")) and not Path("pwned").exists()


@pytest.mark.parametrize("template", ["", "   ", "srun python3 run.py", "'open {job}"])
def test_a_bad_template_is_refused(template: str) -> None:
    with pytest.raises(InputError):
        Command(template)


def test_a_command_without_a_result_says_its_last_words(program: Program, tmp_path: Path) -> None:
    script = program("fails", "#!/bin/sh\necho no such partition >&2\nexit 1\n")
    with pytest.raises(InputError, match="no such partition"):
        Command(f"{script} {{job}} {{out}}").run(tmp_path, [], None, silent)
    lacks = program("lacks", "#!/bin/sh\necho there is no nvcc here\nexit 3\n")
    with pytest.raises(MissingTool, match="no nvcc"):
        Command(f"{lacks} {{job}} {{out}}").run(tmp_path, [], None, silent)


def test_an_old_result_is_not_taken_for_a_new_one(program: Program, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    script = program("fails", "#!/bin/sh\nexit 1\n")
    with pytest.raises(InputError, match="gave no result"):
        Command(f"{script} {{job}}").run(tmp_path, [], None, silent)


def test_cancel_ends_the_command_at_once(program: Program, tmp_path: Path) -> None:
    script = program("slow", '#!/bin/sh\nsleep 60 &\necho $! > "$1/child"\nwait\n')
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    begin = time.monotonic()
    with pytest.raises(Interrupted):
        Command(f"{script} {{job}}").run(tmp_path, [], cancel, silent)
    assert time.monotonic() - begin < 10
    assert not runs(int((tmp_path / "child").read_text()))


def test_local_needs_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runners, "has_gpu", lambda: False)
    with pytest.raises(MissingTool, match="no NVIDIA GPU") as found:
        Local().run(tmp_path, [], None, silent)
    assert "pack" in str(found.value.fix)


def test_local_runs_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runners, "has_gpu", lambda: True)
    (tmp_path / "run.py").write_text(
        "import json, pathlib, sys\n"
        "pathlib.Path(__file__).with_name('result.json').write_text(json.dumps(sys.argv[1:]))\n"
    )
    found = Local().run(tmp_path, ["--no-bench"], None, silent)
    assert json.loads(found.read_text()) == ["--no-bench"]


REMOTE = """#!{python}
# Stands for ssh: the words after -- go to a shell over there, which is nothing of this machine's
# and whose standard input is the connection's.
import os, shutil, subprocess, sys, threading
words = sys.argv[sys.argv.index("--") + 1:]
environ = {{name: value for name, value in os.environ.items() if name != "CUBRIDGE_RUN"}}
there = subprocess.Popen(["sh", "-c", " ".join(words)], cwd={there!r}, env=environ,
                         stdin=subprocess.PIPE, start_new_session=True)
def relay():
    shutil.copyfileobj(sys.stdin.buffer, there.stdin)
    there.stdin.close()
threading.Thread(target=relay, daemon=True).start()
sys.exit(there.wait())
"""
COPY = """#!{python}
# Stands for scp -q -r: host:PATH is a path below {there}.
import pathlib, shutil, sys
*sources, target = [w for w in sys.argv[1:] if not w.startswith("-") and w != "BatchMode=yes"]
def place(word):
    if word.startswith("gpu:"):
        return pathlib.Path({there!r}) / word.split(":", 1)[1]
    return pathlib.Path(word)
for word in sources:
    source, goal = place(word), place(target)
    if not source.exists():
        sys.exit(1)
    if source.is_dir():
        shutil.copytree(source, goal / source.name, dirs_exist_ok=True)
    else:
        shutil.copy(source, goal / source.name if goal.is_dir() else goal)
"""


def test_ssh_carries_the_job_and_brings_the_result(program: Program, tmp_path: Path) -> None:
    there = tmp_path / "the other machine"
    there.mkdir()
    ssh = program("ssh", REMOTE.format(python=sys.executable, there=str(there)))
    scp = program("scp", COPY.format(python=sys.executable, there=str(there)))
    job = tmp_path / "job'; touch pwned"
    (job / "work").mkdir(parents=True)
    (job / "work" / "big").write_text("stays here")
    (job / "kernel").mkdir()
    (job / "kernel" / "kernel.cu").write_text("x")
    (job / "run.py").write_text(
        "import json, pathlib, sys\nhere = pathlib.Path(__file__).parent\n"
        "(here / 'result.json').write_text(json.dumps([str(here), sys.argv[1:]]))\n"
    )
    runner = Ssh(
        "gpu",
        sys.executable,
        ssh=(str(ssh), "-o", "BatchMode=yes"),
        scp=(str(scp), "-o", "BatchMode=yes", "-q", "-r"),
    )
    found = runner.run(job, ["--samples", "5"], None, silent)
    where, words = json.loads(found.read_text())
    assert where.startswith(str(there)) and words == ["--samples", "5"]
    carried = there / ".cache" / "cubridge" / "jobs" / job.name
    assert (carried / "kernel" / "kernel.cu").read_text() == "x"
    assert not (carried / "work").exists()
    assert not list(tmp_path.rglob("pwned"))


LONG = """
import os, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
far = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
print("pids", os.getpid(), far.pid, flush=True)
time.sleep(600)
"""


def test_ssh_ends_the_job_over_there_when_it_is_cancelled(program: Program, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    ssh = program("ssh", REMOTE.format(python=sys.executable, there=str(there)))
    scp = program("scp", COPY.format(python=sys.executable, there=str(there)))
    job = tmp_path / "job"
    job.mkdir()
    (job / "run.py").write_text(LONG)
    cancel = threading.Event()
    pids: list[int] = []

    def see(line: str) -> None:
        if line.startswith("pids"):
            pids.extend(map(int, line.split()[1:]))
            cancel.set()

    with pytest.raises(Interrupted):
        Ssh("gpu", sys.executable, ssh=(str(ssh),), scp=(str(scp),)).run(job, [], cancel, see)
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(map(runs, pids)):
        assert time.monotonic() < deadline, f"one of {pids} still runs"
        time.sleep(0.05)


@pytest.mark.parametrize("slow", ["run.py", "mkdir"])
def test_ssh_past_the_limit_says_that_it_is_the_limit(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    monkeypatch.setattr(runners, "JOB_SECONDS", 2.0)
    ssh = program("ssh", f'#!/bin/sh\ncase "$*" in *{slow}*) exec sleep 600;; esac\n')
    scp = program("scp", '#!/bin/sh\ncase "$*" in *result.json*) exit 1;; esac\n')
    with pytest.raises(InputError, match="ended at its limit of 2 s"):
        Ssh("gpu", ssh=(str(ssh),), scp=(str(scp),)).run(tmp_path, [], None, silent)


def test_a_command_past_the_limit_says_that_it_is_the_limit(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "JOB_SECONDS", 0.5)
    script = program("slow", "#!/bin/sh\necho nearly there\nexec sleep 600\n")
    with pytest.raises(InputError, match=r"the command was ended at its limit of 0\.5 s") as found:
        Command(f"{script} {{job}} {{out}}").run(tmp_path, [], None, silent)
    assert "pack" in str(found.value.fix)


def test_ssh_says_what_to_do_when_it_cannot_connect(program: Program, tmp_path: Path) -> None:
    ssh = program("ssh", "#!/bin/sh\necho Permission denied >&2\nexit 255\n")
    with pytest.raises(InputError, match="Permission denied") as found:
        Ssh("gpu", ssh=(str(ssh),)).run(tmp_path, [], None, silent)
    assert "without a password" in str(found.value.fix)


def test_choosing() -> None:
    assert isinstance(choose_runner("local"), Local)
    environ = {runners.SSH_VARIABLE: "gpu1", runners.COMMAND_VARIABLE: "run {job} {out}"}
    ssh = choose_runner("ssh", environ=environ)
    assert isinstance(ssh, Ssh) and ssh.host == "gpu1"
    command = choose_runner("command", environ=environ)
    assert isinstance(command, Command) and command.template == "run {job} {out}"
    for name, words in (("ssh", {}), ("command", {}), ("slurm", {}), ("ssh", {"host": "-oProxy"})):
        with pytest.raises(InputError):
            choose_runner(name, environ={}, **words)
