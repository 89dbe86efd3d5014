"""The process that speaks to Ray: `python -m engine.gpu.ray_driver ORDER.json ANSWER.json`.

It writes the job's lines to standard output, what Ray says to standard error, and the result where
the order says; what went wrong goes to ANSWER.json. A worker has Ray, but nothing of ours: the
class below travels by value, and so holds nothing of this module.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.build.tools import watchdog
from engine.gpu.limits import RESULT

NOT_CARRIED = ("work", RESULT)
CONNECT_SECONDS = 60.0
_ASK_AGAIN = 5.0  # seconds between two looks for a GPU
_JOIN_AGAIN = (1.0, 2.0, 4.0)  # seconds before each further try to join
_START = (
    "ray start --head (on the machine with GPUs), then name ray://HOST:10001 or export "
    "RAY_ADDRESS; "
    "on a node of the cluster HOST:6379"
)


class Carrier:
    """An actor on the worker: unpacks the job into a fresh folder, runs it, tells its lines.

    A watchdog ends the job and takes the folder away as soon as the actor is gone.
    """

    def start(self, job: bytes, options: list[str], python: str, guard: str, result: str) -> None:
        import io
        import os
        import queue
        import subprocess
        import sys
        import tarfile
        import tempfile
        import threading
        import uuid

        self.folder = tempfile.mkdtemp(prefix="cubridge-job-")
        mark = uuid.uuid4().hex
        script = os.path.join(self.folder, "watchdog.py")
        with open(script, "w", encoding="utf-8") as stream:
            stream.write(guard)
        read, self.lifeline = os.pipe()
        try:
            subprocess.run(
                [sys.executable, "-I", "-S", script, mark, self.folder],
                stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
            )  # fmt: skip
        finally:
            os.close(read)
        place = os.path.join(self.folder, "job")
        with tarfile.open(fileobj=io.BytesIO(job)) as tar:
            tar.extractall(place, filter="data")
        environ = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")
        }
        environ["CUBRIDGE_RUN"] = f"{environ.get('CUBRIDGE_RUN', '')} {mark}".strip()
        self.result = os.path.join(place, result)
        self.process = subprocess.Popen(
            [python or sys.executable, os.path.join(place, "run.py"), *options],
            cwd=place, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def poll(self) -> tuple[list[str], int | None, bytes | None]:
        """The lines since the last time, within a second; the exit code and the result at the
        end."""
        import os
        import queue

        lines: list[str] = []
        try:
            line = self.lines.get(timeout=1.0)
            while line is not None:
                lines.append(line)
                line = self.lines.get_nowait()
        except queue.Empty:
            return lines, None, None
        code = self.process.wait()
        data = None
        if os.path.isfile(self.result):
            with open(self.result, "rb") as stream:
                data = stream.read()
        return lines, code, data

    def clean(self) -> None:
        """End what still runs and take the folder away: the watchdog does, and this waits."""
        import os
        import time

        os.close(self.lifeline)
        deadline = time.monotonic() + 30
        while os.path.isdir(self.folder) and time.monotonic() < deadline:
            time.sleep(0.02)


class Failed(Exception):
    """What to tell the person; `missing` where the machine or the cluster lacks something."""

    def __init__(self, message: str, fix: str, missing: bool = False) -> None:
        super().__init__(message)
        self.answer = {"message": message, "fix": fix, "missing": missing}


def packed(job: Path) -> bytes:
    """The job's files as a tar, without what an earlier run left."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in sorted(job.iterdir()):
            if path.name not in NOT_CARRIED:
                tar.add(path, path.name)
    return out.getvalue()


def connect(address: str) -> Any:
    """The `ray` module, connected.

    Raises:
        Failed: there is no cluster, or it does not take us.
    """
    address = address or os.environ.get("RAY_ADDRESS", "")
    where = f"at {address}" if address else "on this machine"
    # Otherwise every call after a loss, ray.kill too, starts a cluster of its own on this machine.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    try:
        import ray
    except ImportError as error:
        raise Failed(f"Ray cannot be imported: {error}", "pip install ray", True) from None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        # Ray itself goes on trying for minutes.
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
        except OSError as error:
            words = error.strerror or str(error)
            raise Failed(f"there is no Ray cluster {where}: {words}", _START, True) from None
    try:
        _join(ray, address)
    except ConnectionError as error:
        raise Failed(f"there is no Ray cluster {where}: {_first(error)}", _START, True) from None
    except Exception as error:
        raise Failed(
            f"the Ray cluster {where} cannot be joined: {_first(error)}",
            "the cluster's Ray and Python must be of the same versions as these: "
            f"ray {ray.__version__}, Python {sys.version.split()[0]}",
        ) from None
    return ray


def _join(ray: Any, address: str) -> None:
    """`ray.init`, tried again where a cluster that answers is not ready to take us.

    A head that has just started, or that is busy, refuses its first clients: "Initialization
    failure from server". A token that it does not take stays wrong.

    Raises:
        ConnectionError: it did not take us in any try.
    """
    for pause in (*_JOIN_AGAIN, None):
        try:
            # "auto" never starts a cluster of its own.
            ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
            return
        except ConnectionError as error:
            _quietly(ray.shutdown)
            if pause is None or not address or "token" in str(error).lower():
                raise
            print(f"the Ray cluster is not ready ({_first(error)}): trying again", flush=True)
            time.sleep(pause)


def carry(ray: Any, order: dict[str, Any]) -> bytes:
    """Run the job on a worker; its result.

    Raises:
        Failed: no GPU came free in time, the worker or the cluster was lost, or the job gave no
            result.
    """
    actor = None
    try:
        actor = ray.remote(num_gpus=1, max_restarts=0)(Carrier).remote()
        script = Path(watchdog.__file__).read_text(encoding="utf-8")
        job = ray.put(packed(Path(order["job"])))
        started = actor.start.remote(job, order["options"], order["python"], script, RESULT)
        _wait_for_gpu(ray, started, order["wait"])
        print("running it on a worker of the Ray cluster", flush=True)
        last = "no message"
        while True:
            lines, code, data = ray.get(actor.poll.remote())
            for line in lines:
                print(line, flush=True)
                last = line.strip() or last
            if code is None:
                continue
            ray.get(actor.clean.remote())
            if data is not None:
                return bytes(data)
            if code == 3:
                raise Failed(
                    f"the job found no GPU or no nvcc on the Ray worker: {last[:300]}",
                    "JOB/run.py needs Python 3.10, torch and nvcc there; the runner "
                    "can name another interpreter (python)",
                    True,
                )
            raise Failed(
                f"the job on the Ray worker gave no result (exit code {code}): {last[:300]}",
                "run JOB/run.py by hand to see why; the runner can name the interpreter (python) "
                "with torch",
            )
    except ray.exceptions.RayTaskError as error:
        raise Failed(
            f"the job could not be run on the Ray worker: {_first(error.cause)}",
            "the worker needs Linux and room in its folder for temporary files (TMPDIR)",
        ) from None
    except ray.exceptions.RayError as error:
        raise Failed(
            f"the Ray worker was lost: {_first(error)}", "run it again; `ray status` says why"
        ) from None
    except Exception as error:
        # Through ray:// a lost connection is no RayError, and the call decides which it is.
        if isinstance(error, Failed) or (
            ray.is_initialized() and not isinstance(error, ConnectionError)
        ):
            raise
        raise _lost(_first(error)) from None
    finally:
        if actor is not None:
            _quietly(ray.kill, actor)


def _wait_for_gpu(ray: Any, started: Any, limit: float) -> None:
    begin = time.monotonic()
    while True:
        left = limit - (time.monotonic() - begin)
        ready, _ = ray.wait([started], timeout=max(min(left, _ASK_AGAIN), 0.0))
        if ready:
            ray.get(started)
            return
        gpus = ray.cluster_resources().get("GPU", 0.0)
        has = f"the Ray cluster has {gpus:g} GPUs"
        if left <= 0:
            more = "" if gpus else "; add a node with one (ray start --address HEAD --num-gpus 1)"
            raise Failed(
                f"no GPU came free within {limit:g} s: {has}",
                f"`ray status` shows who holds them{more}",
                True,
            )
        print(f"waiting for a GPU: {has}", flush=True)


def _lost(why: str) -> Failed:
    return Failed(
        f"the connection to the Ray cluster was lost: {why}",
        "run it again once the cluster is back; `ray status` on a node of it says why",
    )


def _quietly(end: Callable[..., None], *arguments: Any) -> None:
    """Tidy up, also where the cluster is gone: the person is told of what went wrong before."""
    with suppress(Exception):
        end(*arguments)


def _first(error: BaseException) -> str:
    """The first line of what an error says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")


def main(order_path: str, answer_path: str) -> int:
    order = json.loads(Path(order_path).read_text())
    answer = Path(answer_path)

    def give_up() -> None:
        words = f"the Ray cluster gave no answer within {CONNECT_SECONDS:g} s"
        answer.write_text(json.dumps(Failed(words, _START, True).answer))
        os._exit(1)

    limit = threading.Timer(CONNECT_SECONDS, give_up)
    limit.daemon = True
    limit.start()
    try:
        ray = connect(order["address"])
        limit.cancel()
        # Ended by hand the worker goes at once; a cluster that is joined by ray:// keeps it for a
        # while otherwise, in case that we come back.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        # Where Ray loses what it needs of the cluster it ends this process without an exception.
        answer.write_text(json.dumps(_lost("it ended the process that held it").answer))
        try:
            result = carry(ray, order)
        finally:
            _quietly(ray.shutdown)
    except Failed as failed:
        limit.cancel()
        answer.write_text(json.dumps(failed.answer))
        return 1
    except Exception:
        answer.unlink(missing_ok=True)  # a fault of this module is not the cluster's
        raise
    Path(order["result"]).write_bytes(result)
    return 0


if __name__ == "__main__":
    # What Ray's own libraries write there is no progress of the job.
    log = os.open(f"{sys.argv[2]}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 2)
    sys.exit(main(*sys.argv[1:3]))
