"""The Ray runner: against Ray's own processes on this machine where Ray itself decides what comes
about, and against a stand-in for the module `ray` where the runner does.

The file has one cluster, and its last test takes it down. It says that it has two GPUs, which Ray
takes on trust; the jobs here need none. What is asked from a node and from outside is asked at
once: most of it is waiting.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pytest

from engine.build.tools import watchdog
from engine.child.environment import child_environment
from engine.errors import InputError, Interrupted, MissingTool
from engine.gpu import ray_driver, ray_runner
from engine.gpu.ray_runner import Ray
from engine.gpu.runners import choose_runner

TELLS = """
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
print("two lines", flush=True)
print("of the job", flush=True)
(here / "result.json").write_text(json.dumps({
    "here": str(here), "options": sys.argv[1:], "files": sorted(p.name for p in here.iterdir()),
    "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "path": os.environ.get("PYTHONPATH"),
    "kernel": (here / "kernel" / "kernel.cu").read_text()}))
"""
HANGS = """
import os, subprocess, sys, time
far = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                       start_new_session=True)
print("pids", os.getpid(), far.pid, flush=True)
time.sleep(600)
"""


OF_RAY = pytest.mark.extras  # on each that needs Ray itself
LONG = 900.0  # seconds for what Ray does: none are waited for where it is done
T = TypeVar("T")
AGENTS = ("dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")
SKIPPED = "Ray is not installed: pip install -e '.[ray]'"


@dataclass(frozen=True)
class Cluster:
    address: str  # for a node of it
    client: str  # for a machine outside
    folder: Path  # its home, and where a worker's temporary files go
    mark: str  # what all its processes carry


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node of its own, all of whose processes are gone afterwards."""
    pytest.importorskip("ray", reason=SKIPPED)
    # Ray's sockets are below its folder, and a socket's name is short: not below pytest's.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    (folder / "tmp").mkdir()
    (folder / ".ray").mkdir()
    (folder / ".ray" / "auth_token").write_text("5" * 64)
    # Of an agent without a port of its own a node waits 15 s for the one that it chooses, no more.
    head, client, *agents = free_ports(6)
    mark = uuid.uuid4().hex
    environ = {
        **watchdog.marked(dict(os.environ), mark),
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": f"{LONG:.0f}",
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
    }
    command = [
        str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={head}",
        f"--ray-client-server-port={client}", "--node-ip-address=127.0.0.1", "--num-gpus=2",
        *(f"--{name}-port={port}" for name, port in zip(AGENTS, agents, strict=True)),
        "--num-cpus=2",
        "--include-dashboard=false", f"--object-store-memory={80 << 20}", "--min-worker-port=0",
        "--max-worker-port=0", f"--temp-dir={folder / 'ray'}",
    ]  # fmt: skip
    try:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        for port in (head, client):
            until_heard(port, process, folder / "log")
        until_served(client)
        yield Cluster(f"127.0.0.1:{head}", f"ray://127.0.0.1:{client}", folder, mark)
    finally:
        watchdog.end_carriers(mark)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


def until_heard(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LONG
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def until_served(port: int) -> None:
    """Wait for the client server itself: its port is open before it answers."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(timeout=LONG)


def from_both(cluster: Cluster, ask: Callable[[str, Path], T], folder: Path) -> list[T]:
    """What it gives with the address for a node and with the one for a machine outside, each with
    a folder of its own, both at once."""
    addresses = (cluster.address, cluster.client)
    folders = (folder / "a node", folder / "a machine outside")
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(ask, addresses, folders))


@pytest.fixture(autouse=True)
def known_token(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test uses the cluster: its token is known here."""
    if "cluster" in request.fixturenames:
        found: Cluster = request.getfixturevalue("cluster")
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("HOME", str(found.folder))


def job_of(folder: Path, run: str) -> Path:
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / "kernel.cu").write_text("x")
    (folder / "work").mkdir()
    (folder / "work" / "big").write_text("stays here")
    (folder / "result.json").write_text("an earlier run's")
    (folder / "run.py").write_text(run)
    return folder


def left_on(cluster: Cluster) -> Callable[[], Iterable[Path]]:
    """What asks for the folders of jobs."""
    return lambda: (cluster.folder / "tmp").glob("cubridge-job-*")


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] not in "ZX"
    return False


def until_gone(left: Callable[[], Iterable[Path]], pids: list[int]) -> None:
    """Wait until nothing of a job is left on the cluster."""
    deadline = time.monotonic() + LONG
    while any(map(alive, pids)) or [*left()]:
        assert time.monotonic() < deadline, f"left: {pids} {[*left()]}"
        time.sleep(0.1)


def kill_parts_of(cluster: Cluster, part: bytes) -> None:
    """Kill the cluster's processes whose command names `part`."""
    for pid in watchdog.carriers(cluster.mark):
        with suppress(OSError):
            if part in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


@OF_RAY
def test_a_job_goes_to_a_worker_and_its_result_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    def ask(address: str, folder: Path) -> str:
        job = job_of(folder, TELLS)
        said: list[str] = []
        result = Ray(address).run(job, ["--samples", "3"], None, said.append)
        found = json.loads(result.read_text())
        assert result == job / "result.json"
        assert not Path(found["here"]).is_relative_to(tmp_path), "it ran in a folder of its own"
        assert found["files"] == ["kernel", "run.py"], "neither work nor an old result came along"
        assert found["options"] == ["--samples", "3"] and found["kernel"] == "x"
        assert found["path"] is None
        assert said[-2:] == ["two lines", "of the job"]
        return str(found["gpus"])

    assert set(from_both(cluster, ask, tmp_path)) <= {"0", "1"}, "Ray gave each one GPU"
    assert not [*left_on(cluster)()]


@OF_RAY
def test_a_cluster_that_asks_for_a_token_says_so(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(MissingTool) as found:
        Ray(cluster.address).run(job_of(tmp_path / "job", TELLS), [], None, lambda _: None)
    assert "RAY_AUTH_MODE=token" in str(found.value.fix)


@OF_RAY
def test_jobs_hold_their_gpus_until_they_are_cancelled_as_a_whole(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Two jobs hold both GPUs, a third one waits in vain, and nothing is left of any of them."""
    cancel, begun = threading.Event(), threading.Barrier(3, timeout=LONG)

    def hold(address: str, folder: Path) -> list[int]:
        pids: list[int] = []

        def see(line: str) -> None:
            if line.startswith("pids"):
                pids.extend(map(int, line.split()[1:]))
                begun.wait()

        try:
            with pytest.raises(Interrupted):
                Ray(address).run(job_of(folder, HANGS), [], cancel, see)
        except BaseException:
            begun.abort()  # who waits for it would wait in vain
            raise
        return pids

    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(from_both, cluster, hold, tmp_path)
        try:
            begun.wait()
            with pytest.raises(MissingTool, match=r"no GPU came free.*has 2 GPUs"):
                job = job_of(tmp_path / "third", TELLS)
                Ray(cluster.address, wait=0.5).run(job, [], None, lambda _: None)
        finally:
            cancel.set()
        found = held.result()
    until_gone(left_on(cluster), [*chain(*found)])
    assert [len(pids) for pids in found] == [2, 2]


@OF_RAY
def test_a_cluster_that_is_lost_while_jobs_run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a machine outside speaks to, and what all of the cluster hangs on. The last one."""
    # Ray tries to get it back for half a minute and for a minute.
    monkeypatch.setenv("RAY_CLIENT_RECONNECT_GRACE_PERIOD", "1")
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")
    both_run = threading.Barrier(2, timeout=LONG)

    def ask(address: str, folder: Path) -> str:
        def see(line: str) -> None:
            if line.startswith("pids") and both_run.wait() == 0:
                kill_parts_of(cluster, b"ray.util.client.server")
                kill_parts_of(cluster, b"gcs_server")

        with pytest.raises(InputError, match=r"(cluster|worker) was lost") as error:
            Ray(address).run(job_of(folder, HANGS), [], None, see)
        return str(error.value.fix)

    assert all("run it again" in fix for fix in from_both(cluster, ask, tmp_path))


STAND_IN = """
import types
__version__ = "a stand-in: one worker, which is this process"

class RayError(Exception):
    pass

class RayTaskError(RayError):
    def __init__(self, cause):
        super().__init__(cause)
        self.cause = cause

class Method:
    def __init__(self, method):
        self.method = method
    def remote(self, *given):
        try:
            return self.method(*given)
        except Exception as error:
            return RayTaskError(error)

class Actor:
    def __init__(self, one):
        self.one = one
    def __getattr__(self, name):
        return Method(getattr(self.one, name))

def get(found):
    if isinstance(found, RayTaskError):
        raise found
    return found

exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
remote = lambda **_: lambda kind: types.SimpleNamespace(remote=lambda: Actor(kind()))
put = lambda value: value
wait = lambda started, timeout: (started, [])
init = lambda **_: None
shutdown = lambda: None
kill = lambda actor: None
is_initialized = lambda: True
"""


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ray:
    """A cluster without Ray."""
    (tmp_path / "ray.py").write_text(STAND_IN)
    (tmp_path / "tmp").mkdir()
    environ = child_environment()
    path = os.pathsep.join((str(tmp_path), environ["PYTHONPATH"]))
    environ |= {"PYTHONPATH": path, "TMPDIR": str(tmp_path / "tmp")}
    monkeypatch.setattr(ray_runner, "child_environment", lambda: environ)
    monkeypatch.setattr(ray_runner, "find_spec", lambda _: True)
    return Ray()


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        ("raise SystemExit('no such arch')", InputError, "exit code 1.*no such arch"),
        ("print('there is no nvcc here'); raise SystemExit(3)", MissingTool, "no nvcc here"),
    ],
)
def test_a_job_without_a_result_says_its_last_words(
    alone: Ray, tmp_path: Path, run: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        alone.run(job_of(tmp_path / "job", run), [], None, lambda _: None)
    assert not (tmp_path / "job" / "result.json").exists(), "an old result is not a new one"
    assert not [*(tmp_path / "tmp").iterdir()]


def test_an_interpreter_that_is_not_there_is_named(alone: Ray, tmp_path: Path) -> None:
    job = job_of(tmp_path / "job", TELLS)
    with pytest.raises(InputError, match="/no/such/python"):
        replace(alone, python="/no/such/python").run(job, [], None, lambda _: None)


def test_a_run_past_its_limit_says_that_it_is_the_limit(alone: Ray, tmp_path: Path) -> None:
    pids: list[int] = []

    def see(line: str) -> None:
        if line.startswith("pids"):
            pids.extend(map(int, line.split()[1:]))

    with pytest.raises(InputError, match="ended at its limit of 8 s") as found:
        replace(alone, limit=8.0).run(job_of(tmp_path / "job", HANGS), [], None, see)
    assert "pack the job" in str(found.value.fix) and len(pids) == 2
    # Here the worker is a child of the process that is ended, and so is who takes its folder away.
    until_gone(lambda: (), pids)


class Busy:
    """Stands for the module `ray` of a cluster none of whose GPUs comes free."""

    def __init__(self, gpus: float) -> None:
        self.gpus = gpus

    def wait(self, started: list[object], timeout: float) -> tuple[list[object], list[object]]:
        time.sleep(timeout)
        return [], started

    def cluster_resources(self) -> dict[str, float]:
        return {"GPU": self.gpus} if self.gpus else {"CPU": 2.0}


@pytest.mark.parametrize(("gpus", "adds"), [(0, True), (2, False)])
def test_a_gpu_that_does_not_come_free(
    gpus: int, adds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ray_driver.Failed, match=rf"no GPU came free.*has {gpus} GPUs") as error:
        ray_driver._wait_for_gpu(Busy(gpus), object(), 0.1)
    assert error.value.answer["missing"]
    assert ("--num-gpus" in error.value.answer["fix"]) is adds
    assert "waiting for a GPU" in capsys.readouterr().out


class NotReady:
    """Stands for the module `ray` of a cluster that does not take its first clients."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.asked = self.left = 0

    def init(self, **_: object) -> None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)

    def shutdown(self) -> None:
        self.left += 1


BUSY = "Initialization failure from server:\nTraceback (most recent call last)"


@pytest.mark.parametrize(
    ("refusals", "asked", "joined"),
    [
        ([], 1, True),
        ([ConnectionError(BUSY)], 2, True),
        ([ConnectionError(BUSY)] * 3, 4, True),
        ([ConnectionError(BUSY)] * 9, 4, False),
        ([ConnectionError("InvalidAuthToken: wrong")], 1, False),
        ([RuntimeError("another version")], 1, False),
    ],
)
def test_a_cluster_that_is_not_ready_is_asked_again_within_a_limit(
    monkeypatch: pytest.MonkeyPatch, refusals: list[Exception], asked: int, joined: bool
) -> None:
    monkeypatch.setattr(ray_driver, "_JOIN_AGAIN", (0.0, 0.0, 0.0))
    ray = NotReady(*refusals)
    with nullcontext() if joined else pytest.raises(type(refusals[0])):
        ray_driver._join(ray, "ray://head:10001")
    assert ray.asked == asked
    assert ray.left >= asked - 1, "each failed try leaves nothing half joined"


@OF_RAY
def test_no_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason=SKIPPED)
    with pytest.raises(MissingTool, match=r"no Ray cluster at 127\.0\.0\.1:1") as found:
        Ray("127.0.0.1:1").run(job_of(tmp_path / "job", TELLS), [], None, lambda _: None)
    assert "ray start --head" in str(found.value.fix)


def test_ray_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runner, "find_spec", lambda name: None)
    with pytest.raises(MissingTool, match="needs Ray") as found:
        Ray().run(tmp_path, [], None, lambda _: None)
    assert "pip install" in str(found.value.fix)


def test_choosing_it() -> None:
    chosen = choose_runner("ray", environ={"RAY_ADDRESS": "head:6379"}, python="/opt/python")
    assert chosen == Ray("head:6379", "/opt/python")
    assert choose_runner("ray", host="other:1", environ={"RAY_ADDRESS": "x"}) == Ray("other:1")
    assert choose_runner("ray", environ={}) == Ray()
