"""Run a job on a GPU of a Ray cluster.

Ray is imported by a process of its own (`engine.gpu.ray_driver`), never here: it starts threads,
takes signals over and logs as it likes. When that process ends, however it does, Ray ends the
worker, and with it goes all of the job.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from engine.build.tools.process import run
from engine.child.environment import child_command, child_environment
from engine.errors import InputError, MissingTool
from engine.gpu.limits import JOB_SECONDS, RESULT, past_limit

INSTALL_RAY = "pip install 'cubridge-tui[ray]' (in a checkout: .venv/bin/pip install -e '.[ray]')"
RAY_VARIABLE = "RAY_ADDRESS"
TOKEN = "the cluster asks for a token: export RAY_AUTH_MODE=token and RAY_AUTH_TOKEN=TOKEN"
GPU_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Ray:
    """A Ray cluster: the job goes to a worker with one GPU through Ray's object store.

    `address` as `ray.init` takes it: ray://HOST:10001 from anywhere, HOST:6379 on a node of the
    cluster; empty for $RAY_ADDRESS, else the cluster that this machine is part of. `python` is the
    interpreter there that has torch, empty for the one that Ray runs. `wait` is how many seconds a
    GPU may take to come free, `limit` how many all of it may take.
    """

    address: str = ""
    python: str = ""
    wait: float = GPU_SECONDS
    limit: float = JOB_SECONDS + GPU_SECONDS
    name: str = "ray"

    def run(
        self,
        job: Path,
        options: Sequence[str],
        cancel: threading.Event | None,
        progress: Callable[[str], None],
    ) -> Path:
        if find_spec("ray") is None:
            raise MissingTool(
                f"the ray runner needs Ray, which {sys.executable} lacks", fix=INSTALL_RAY
            )
        result = job / RESULT
        result.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="cubridge-ray-") as folder:
            order, answer = Path(folder) / "order.json", Path(folder) / "answer.json"
            order.write_text(
                json.dumps(
                    {
                        "address": self.address,
                        "python": self.python,
                        "wait": self.wait,
                        "job": str(job),
                        "options": list(options),
                        "result": str(result),
                    }
                )
            )
            done = run(
                child_command("engine.gpu.ray_driver", str(order), str(answer)),
                cwd=Path(folder),
                environ={**child_environment(), "PYTHONUNBUFFERED": "1"},
                cancel=cancel,
                on_line=progress,
                limit=self.limit,
                niceness=0,
            )
            log = Path(f"{answer}.log")
            said = log.read_text(errors="replace") if log.is_file() else ""
            if result.is_file():
                return result
            if done.timed_out:
                raise past_limit("the job on the Ray cluster", self.limit)
            if answer.is_file():
                found = json.loads(answer.read_text())
                kind = MissingTool if found["missing"] else InputError
                fix = TOKEN if "InvalidAuthToken" in said else found["fix"]
                raise kind(found["message"], fix=fix)
        words = [line.strip() for line in (done.output + said).splitlines() if line.strip()]
        last = words[-1][:300] if words else "no message"
        raise InputError(
            f"the process that speaks to Ray ended with {done.returncode}: {last}",
            fix="`ray status` says whether the cluster is well",
        )
