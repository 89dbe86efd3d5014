"""Move jobs to where a GPU is: here, over ssh, by any command that a cluster wants, or by Ray.

A runner takes a job folder and gives the path of a result. It knows nothing of kernels; adding
one is a class with `run` (see docs/gpu.md). Every command is an argument list, never a shell's
text, and runs as a child that ends at once when cancelled.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.build.tools import watchdog
from engine.build.tools.process import Finished, run
from engine.build.tools.toolchain import compiler_environ
from engine.errors import InputError, MissingTool
from engine.gpu.limits import JOB_SECONDS, RESULT, past_limit
from engine.gpu.ray_runner import RAY_VARIABLE, Ray

Progress = Callable[[str], None]
COMMAND_VARIABLE = "CUBRIDGE_GPU_COMMAND"
SSH_VARIABLE = "CUBRIDGE_GPU_HOST"
RUNNERS = ("local", "ssh", "command", "ray")


class Runner(Protocol):
    """What moves a job."""

    @property
    def name(self) -> str: ...

    def run(
        self,
        job: Path,
        options: Sequence[str],
        cancel: threading.Event | None,
        progress: Progress,
    ) -> Path:
        """Run `job` with run.py's `options`; the result's path on this machine.

        Raises:
            MissingTool: this runner cannot work here.
            InputError: the job ran and gave no result.
            Interrupted: `cancel` was set; what was started here is ended.
        """


@dataclass(frozen=True, slots=True)
class Local:
    """This machine's own GPU."""

    name: str = "local"
    python: str = ""

    def run(
        self,
        job: Path,
        options: Sequence[str],
        cancel: threading.Event | None,
        progress: Progress,
    ) -> Path:
        if not has_gpu():
            raise MissingTool(
                "there is no NVIDIA GPU on this machine",
                fix="pack a job, carry it to a machine that has one and import its result, or "
                "choose another runner",
            )
        python = self.python or sys.executable
        result = job / RESULT
        result.unlink(missing_ok=True)
        done = _run([python, str(job / "run.py"), *options], job, cancel, progress)
        return _result(result, done, "the job")


@dataclass(frozen=True, slots=True)
class Ssh:
    """A machine reached by ssh: the folder goes there by scp, the result comes back the same way.

    `host` is what ssh takes (a name from ~/.ssh/config, user@host); `python` the interpreter there
    that has torch; `folder` where jobs go there. A watchdog there ends the job when the connection
    does.
    """

    host: str
    python: str = "python3"
    folder: str = ".cache/cubridge/jobs"
    ssh: tuple[str, ...] = ("ssh", "-o", "BatchMode=yes")
    scp: tuple[str, ...] = ("scp", "-o", "BatchMode=yes", "-q", "-r")
    name: str = "ssh"

    def __post_init__(self) -> None:
        if not self.host or self.host.startswith("-"):
            raise InputError(
                "the ssh runner needs a host", fix=f"name a host, or export {SSH_VARIABLE}=NAME"
            )

    def run(
        self,
        job: Path,
        options: Sequence[str],
        cancel: threading.Event | None,
        progress: Progress,
    ) -> Path:
        # One folder per content, so that an interrupted run goes on where it was.
        there = f"{self.folder}/{job.name}"
        progress(f"copying the job to {self.host}")
        self._do(self._remote(["mkdir", "-p", there]), job, cancel, progress)
        names = sorted(p.name for p in job.iterdir() if p.name not in ("work", RESULT))
        carried = [*(str(job / n) for n in names), watchdog.__file__]
        self._do(
            [*self.scp, *carried, f"{self.host}:{there}/"],
            job,
            cancel,
            progress,
        )
        progress(f"running it on {self.host}")
        watched = [self.python, "-I", "-S", f"{there}/watchdog.py", uuid.uuid4().hex, ""]
        remote = self._remote([*watched, self.python, f"{there}/run.py", *options])
        done = _run(remote, job, cancel, progress, lifeline=True)
        result = job / RESULT
        result.unlink(missing_ok=True)
        back = _run(
            [*self.scp, f"{self.host}:{there}/{RESULT}", str(result)], job, cancel, progress
        )
        told = done if back.ok or done.timed_out else back
        return _result(result, told, f"the job on {self.host}")

    def _remote(self, words: Sequence[str]) -> list[str]:
        # ssh gives its words to a shell over there, so they are quoted for one.
        return [*self.ssh, self.host, "--", shlex.join(words)]

    def _do(
        self,
        command: Sequence[str],
        job: Path,
        cancel: threading.Event | None,
        progress: Progress,
    ) -> None:
        done = _run(command, job, cancel, progress)
        if done.timed_out:
            raise past_limit(f"{command[0]} {self.host}", JOB_SECONDS)
        if not done.ok:
            raise InputError(
                f"{command[0]} {self.host}: {_last(done.output)}",
                fix=f"make `ssh {self.host} true` work without a password",
            )


@dataclass(frozen=True, slots=True)
class Command:
    """Any command line: `srun --gres=gpu:1 python3 {job}/run.py --out {out}`.

    `{job}` is the job folder, `{out}` where the result must be, `{options}` run.py's options. The
    template is split into words first and filled afterwards, so no path is ever read by a shell.
    """

    template: str
    environ: Mapping[str, str] = field(default_factory=dict)
    name: str = "command"

    def __post_init__(self) -> None:
        if not self.words():
            raise InputError(
                "the command runner needs a command",
                fix="write one, such as 'srun --gres=gpu:1 python3 {job}/run.py --out {out} "
                "{options}', or "
                f"export {COMMAND_VARIABLE}",
            )
        if "{job}" not in self.template:
            raise InputError(
                "the command never names {job}", fix="write {job} where the folder goes"
            )

    def words(self) -> list[str]:
        try:
            return shlex.split(self.template)
        except ValueError as error:
            raise InputError(
                f"the command is not a command line: {error}", fix="close the quotes"
            ) from None

    def command(self, job: Path, out: Path, options: Sequence[str]) -> list[str]:
        filled: list[str] = []
        for word in self.words():
            if word == "{options}":
                filled += options
            else:
                filled.append(word.replace("{job}", str(job)).replace("{out}", str(out)))
        return filled

    def run(
        self,
        job: Path,
        options: Sequence[str],
        cancel: threading.Event | None,
        progress: Progress,
    ) -> Path:
        out = (
            job / f"result-{uuid.uuid4().hex[:8]}.json"
            if "{out}" in self.template
            else job / RESULT
        )
        if out.name == RESULT:
            out.unlink(missing_ok=True)
        done = _run(self.command(job, out, options), job, cancel, progress, self.environ)
        return _result(out, done, "the command")


def choose_runner(
    name: str,
    *,
    host: str | None = None,
    python: str | None = None,
    command: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Runner:
    """The runner of that name; what is not given is taken from the environment.

    `host` is the machine as ssh takes it, or a Ray cluster's address.

    Raises:
        InputError: no such runner, or what it needs is not there.
    """
    environ = os.environ if environ is None else environ
    if name == "local":
        return Local(python=python or "")
    if name == "ssh":
        return Ssh(host or environ.get(SSH_VARIABLE, ""), python or "python3")
    if name == "command":
        return Command(command or environ.get(COMMAND_VARIABLE, ""))
    if name == "ray":
        return Ray(host or environ.get(RAY_VARIABLE, ""), python or "")
    raise InputError(f"there is no runner {name!r}", fix=f"name one of: {', '.join(RUNNERS)}")


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU that its driver shows."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or (
        shutil.which("nvidia-smi") is not None and _nvidia_smi_lists()
    )


def _nvidia_smi_lists() -> bool:
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and "GPU 0" in done.stdout


def _run(
    command: Sequence[str],
    job: Path,
    cancel: threading.Event | None,
    progress: Progress,
    extra: Mapping[str, str] | None = None,
    lifeline: bool = False,
) -> Finished:
    environ = {**compiler_environ(), **(extra or {})}
    # The job's Python must not pick up modules of ours, or of the current folder.
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"):
        environ.pop(name, None)
    return run(
        list(command),
        cwd=job,
        environ=environ,
        cancel=cancel,
        on_line=progress,
        limit=JOB_SECONDS,
        niceness=0,
        lifeline=lifeline,
    )


def _result(path: Path, done: Finished, who: str) -> Path:
    """The result where there is one: also a failed job writes one."""
    if path.is_file():
        return path
    if done.timed_out:
        raise past_limit(who, JOB_SECONDS)
    if done.returncode == 3:
        raise MissingTool(
            f"{who} found no GPU or no nvcc: {_last(done.output)}",
            fix="run it where both are; JOB/run.py needs Python 3.10, torch and nvcc",
        )
    raise InputError(
        f"{who} gave no result: {_last(done.output)}", fix="run JOB/run.py by hand to see why"
    )


def _last(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
