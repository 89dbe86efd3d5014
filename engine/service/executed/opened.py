"""A session opened as its kind of kernel asks: lifted, or executed as PTX."""

from __future__ import annotations

from engine.lift.files.kernel_package import KernelPackage
from engine.service.session.adaptation import Adaptation
from engine.service.session.disk_inputs import session_kernel
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench
from sessions.session import Session
from sessions.writer import Writer


def work_of(bench: Bench, session: Session, package: KernelPackage | None = None) -> Work:
    """A session's content and gates, read-only. `package` stands for the session's own."""
    found = package or session_kernel(session.state)
    if not found.executed:
        return Work(bench, session, found)
    from engine.service.executed.executed_work import ExecutedWork  # the PTX machine, 0.2 s

    return ExecutedWork(bench, session, found)


def adaptation_of(
    bench: Bench, writer: Writer, actor: str, package: KernelPackage | None = None
) -> Adaptation:
    """A session open for writing."""
    found = package or session_kernel(writer.state)
    if not found.executed:
        return Adaptation(bench, writer, actor, found)
    from engine.service.executed.executed_work import ExecutedAdaptation

    return ExecutedAdaptation(bench, writer, actor, found)
