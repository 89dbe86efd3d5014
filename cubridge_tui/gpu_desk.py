"""G4 for an open session: run its job, pack it, take in what came back. All of it blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cubridge_tui.desk import Desk
from cubridge_tui.model.snapshot import Snapshot
from engine.errors import InputError, Where
from engine.gpu.job import pack
from engine.gpu.runners import Runner
from engine.service.session.gpu_verdict import contents_of, job_folder, verdict_from


def run_on(desk: Desk, runner: Runner, options: Sequence[str]) -> Snapshot:
    """Pack the session's job, run it, and record what it found.

    Raises:
        CuBridgeError: nothing is lowered yet, the runner cannot work here, or the job gave nothing.
        Interrupted: it was cancelled; what it had done is kept in the job's folder.
    """
    bench = desk.bench
    bench.progress("packing the job")
    contents = contents_of(desk.work)
    job = pack(contents, job_folder(contents))
    bench.progress(f"running {job} ({runner.name})")
    return take_result(desk, runner.run(job, options, bench.cancel, bench.progress))


def take_result(desk: Desk, path: Path) -> Snapshot:
    """Record a result file as the session's G4.

    Raises:
        InputError: it is no result, or it is for other bytes.
    """
    desk.bench.progress(f"reading {path}")
    desk.work.give(verdict_from(desk.work, path))
    return desk.snapshot()


def pack_to(desk: Desk, target: Path) -> Path:
    """Write the session's job to a new folder or a new .tar.

    Raises:
        InputError: something else is there, or it cannot be written.
    """
    desk.bench.progress("packing the job")
    try:
        return pack(contents_of(desk.work), target)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            where=Where(str(target)),
            fix="name another place",
        ) from None
