"""The author's unedited source as a rival: its own launcher, on the same tensors.

It computes the kernel's own reference and not the spec, so it is held against that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from engine.spec.python.signature import Asked, signature_from_json
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.worker.contests.full_size import UNCOMPARED, differs, sampled
from engine.worker.contests.rivals import RAISED, WRONG, Absent
from engine.worker.launches.guarded_call import Call
from engine.worker.launches.specialisation import Subject
from engine.worker.orchestration.manifest import REFERENCE, Job
from engine.worker.problems.problem_sizes import Case
from engine.worker.problems.specrun import SpecRun
from engine.worker.verification.verify import launch_of

SOURCE = "the source"


@dataclass(frozen=True)
class Source:
    """The unedited source of a job: `beside` launches it with the job's own arguments, `own` has
    its reference in the spec's place."""

    beside: Subject
    own: Subject

    @property
    def note(self) -> str:
        return f"it computes its own reference, {self.own.run.path.stem}, not the spec"

    def calls(
        self, sets: list[dict[str, Tensor]], case: Case, sizes: Mapping[str, int]
    ) -> list[Call] | Absent:
        """A call for each set of the spec's inputs; the first has run and was right."""
        if not self.own.fits(case):
            return Absent("its reference excludes these sizes", SOURCE)
        made = [self.beside.made(inputs, sizes) for inputs in sets]
        if status := made[0].run():
            return Absent(f"its launch returned {status}", SOURCE, RAISED)
        spec, ours = self.beside.run.role, self.own.run.role
        inputs = {**sets[0], **{ours[r].name: sets[0][spec[r].name] for r in ("q", "k", "v")}}
        own_sizes = self.own.run.sizes(case, self.own.d, self.own.dv)
        want = sampled(self.own, inputs, own_sizes)
        if not want:
            return Absent(UNCOMPARED, SOURCE)
        if wrong := differs(self.beside.o(made[0]), want):
            return Absent(f"it is not its own reference: {wrong}", SOURCE, WRONG)
        return made


def source_of(job: Job, subject: Subject, library: str | None) -> Source | Absent | None:
    """The rival of a job, or why it has none; None in a job of ours."""
    if job.theirs is None or library is None:
        return None
    if not library:
        return Absent("nvcc does not build it here", SOURCE, RAISED)
    asked: Asked
    if job.theirs.recipe is not None:
        asked = recipe_from_json(job.theirs.recipe)
    else:
        asked = signature_from_json(job.theirs.signature or {})
    file = job.folder / REFERENCE / job.theirs.reference
    run = SpecRun(file, job.theirs.options, asked, subject.run.device)
    beside = replace(subject, launch=launch_of(Path(library), job, subject.key))
    return Source(beside, replace(beside, run=run))
