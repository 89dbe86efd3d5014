"""The verifying child: one specialisation on the GPU, a line of JSON per step and per row.

python3 -P run.py --child verify JOB LIBRARY KEY [short]
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.spec.python.signature import Asked, signature_from_json
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.transfer.binding import Binding
from engine.worker.launches.abi import Library
from engine.worker.launches.dump import dump_cases
from engine.worker.launches.graphs import check_graph
from engine.worker.launches.guarded_call import Launch
from engine.worker.launches.result_rows import NOT_RUN, Tallies
from engine.worker.launches.samples import samples
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.checklist import CHECKS
from engine.worker.orchestration.manifest import (
    Job,
    arch_for,
    head_sizes,
    names_fast_tanh,
    read_job,
)
from engine.worker.orchestration.trouble import not_run
from engine.worker.problems.specrun import DTYPES, SpecRun
from engine.worker.problems.terms import Terms
from engine.worker.verification.checks import CHECKS_IN_ORDER

DUMP = "sanitize.json"


def main(arguments: list[str]) -> int:
    folder, library, key, *rest = arguments
    job = read_job(Path(folder))
    torch.set_num_threads(4)
    try:
        verify(job, Path(library), key, "short" in rest)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        internal = not of_the_card(error)
        tell(event="error", text=text, internal=internal, trace=traceback.format_exc())
        return 1
    return 0


def of_the_card(error: BaseException) -> bool:
    """Whether an exception says what a launch did to the card: a fault there is the kernel's, any
    other exception says nothing of it."""
    kinds = (getattr(torch, "AcceleratorError", RuntimeError), RuntimeError)
    return isinstance(error, kinds) and "CUDA" in str(error) and "out of memory" not in str(error)


def verify(job: Job, library: Path, key: str, short: bool) -> None:
    """Run every check in turn; rows are told as soon as they are whole."""
    subject = subject_of(job, library, key, short)
    for check in CHECKS_IN_ORDER:
        check(subject)
        torch.cuda.empty_cache()
    for row in subject.tallies.rows(CHECKS):
        tell(event="row", row=row)
    if key == job.primary:
        tell(event="row", row=check_own_kernels(subject, job))
        tell(event="row", row=check_graph(subject))
        if short:
            tell(event="row", row=not_run("far offsets", key, "the short deck has none (--quick)"))
        for sample in samples(subject):
            tell(event="sample", sample=sample)
        dump_cases(subject, job.work / DUMP)
    tell(event="done", key=key)


def subject_of(job: Job, library: Path, key: str, short: bool) -> Subject:
    """The specialisation with its library opened."""
    binding = Binding.from_json(job.binding)
    device = torch.device("cuda", torch.cuda.current_device())
    specialisation = job.specialisation(key)
    dtype = next(DTYPES[v] for v in specialisation.values() if v in DTYPES)
    d, dv = head_sizes(specialisation)
    capability = torch.cuda.get_device_capability(device)
    arch = arch_for(capability, job.archs)
    run = SpecRun(job.folder / "spec" / job.spec, job.options, asked_of(job), device)
    return Subject(
        key, run, binding, launch_of(library, job, key), dtype, d, dv, short, Tallies(key),
        lambda text: tell(event="step", text=text), job.constants.get(arch or "", {}).get(key, {}),
        takes_fast_tanh(job), section=job.section,
        terms=Terms.of(None if job.theirs is None else job.theirs.terms),
    )  # fmt: skip


def launch_of(library: Path, job: Job, key: str) -> Launch:
    """A launch of a library's specialisation on torch's stream."""
    opened = Library(library, job.fields)

    def launch(fields: Mapping[str, Any]) -> int:
        stream = torch.cuda.current_stream().cuda_stream
        return opened.launch(opened.arguments(fields), key, stream)

    return launch


def takes_fast_tanh(job: Job) -> bool:
    """Whether the kernel's text, or its CuIR, takes the approximate tanh, or sigmoid through it."""
    texts = (job.source.read_text(encoding="utf-8", errors="replace"), job.module_text)
    theirs = job.theirs is not None and job.theirs.fast_tanh
    return theirs or names_fast_tanh(*texts)


def asked_of(job: Job) -> Asked:
    """The job's recipe, or the signature alone where none could be read."""
    if job.recipe is not None:
        return recipe_from_json(job.recipe)
    return signature_from_json(job.signature or {})


def check_own_kernels(subject: Subject, job: Job) -> dict[str, Any]:
    """The kernels that one call launches, by the profiler's account."""
    with subject.tallies.timed("own kernels") as tally:
        subject.say("own kernels: profiling one call")
        case = subject.repeat_case
        if case is None:
            return tally.row()
        call, _ = subject.call(case)
        call.run()
        names = traced_kernels(lambda: call.launch(call.fields))
        tally.case()
        if names is None:
            reason = "the profiler records no kernels on this machine"
            return {**tally.row(), "verdict": NOT_RUN, "cases": 0, "reason": reason}
        tally.note(kernels=sorted(set(names)))
        foreign = foreign_kernels(names, job.kernels)
        if not names:
            tally.fail("the call launches no kernel")
        for name in foreign:
            tally.fail(f"{name} is not one of {', '.join(job.kernels)}")
    return tally.row()


def tell(**what: Any) -> None:
    """One line of JSON on standard output; a launcher that prints may have left a line open."""
    sys.stdout.write(f"\n{json.dumps(what)}\n")
    sys.stdout.flush()


def traced_kernels(call: Callable[[], object]) -> list[str] | None:
    """Names of the device kernels that `call` launches; None where the profiler sees none at all.

    A known kernel of PyTorch is traced beside it: a profiler that does not see that one either is
    no witness.
    """
    from torch.profiler import ProfilerActivity, profile

    marker = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        call()
        torch.cuda.synchronize()
    ours = _kernels(recorded)
    with profile(activities=[ProfilerActivity.CUDA]) as witness:
        marker.add_(1)
        torch.cuda.synchronize()
    if not ours and not _kernels(witness):
        return None
    return ours


def _kernels(recorded: torch.profiler.profile) -> list[str]:
    return [
        event.name
        for event in recorded.events() or []  # type: ignore[no-untyped-call]
        if str(event.device_type).endswith("CUDA") and not event.name.startswith("Activity")
    ]


def foreign_kernels(names: Sequence[str], own: Sequence[str]) -> list[str]:
    """Names that are none of the module's kernels (a demangled name holds the plain one)."""
    wanted = [re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])") for name in own]
    return sorted({n for n in names if not any(w.search(n) for w in wanted)})
