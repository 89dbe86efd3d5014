"""`replay --check`: do a session's work again and compare hashes; no model and no GPU needed.

Everything that the session keeps is read first and held to its hash. The source, the decisions and
the texts of proposals come from it; what is computed (lift, recipe, rules, target, lowered source,
G1, G2, and G3 where nvcc is) is computed again. Of G4 the verdict is judged again from its rows,
and the outputs that it carries are computed again: the rest is the GPU run's word, and is told so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.child.client import Child
from engine.errors import CuBridgeError
from engine.files import read_spec
from engine.service.executed.opened import work_of
from engine.service.session.adaptation import pretty_json
from engine.service.session.content import RECIPE
from engine.service.session.disk_inputs import MODULES, modules_hash
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.types import Artifact, Gate, Origin, Stage, Verdict, VerdictKind, sha256_of
from engine.types.trust import taken_on_trust
from sessions.session import Session
from sessions.store import Store


@dataclass(frozen=True, slots=True)
class Check:
    """One thing made again: its hash (or verdict) then and now; `untold` is what of it was not. A
    verdict that is stale stays so."""

    name: str
    was: str
    now: str
    untold: str = ""

    @property
    def same(self) -> bool:
        return self.was == self.now

    @property
    def word(self) -> str:
        """How it compares, in one word."""
        if not self.same:
            return "DIFFERS"
        return "stale" if self.was == VerdictKind.STALE else "same"


def recheck(session: Session, progress: Callable[[str], None]) -> list[Check]:
    """Every check, in pipeline order; stops after the first difference."""
    rows: list[Check] = []
    for row in _checks(session, progress):
        rows.append(row)
        if not row.same:
            break
    return rows


def _stored(session: Session) -> Iterator[Check]:
    """What the store has lost or changed of the session; one row where that is nothing."""
    damaged = session.damaged()
    for sha256, name in damaged.items():
        yield Check(name, sha256, "damaged or missing in the store")
    if not damaged:
        all_of_them = f"{len(session.contents())} contents"
        yield Check("what is stored", all_of_them, all_of_them)


def _checks(session: Session, progress: Callable[[str], None]) -> Iterator[Check]:
    yield from _stored(session)
    state = session.state
    with tempfile.TemporaryDirectory() as folder, Child() as child:
        bench = Bench(Store.open(Path(folder) / "store.git"), child, progress=progress)
        work = work_of(bench, session)
        yield Check("source", state.hashes["kernel"], work.package.hashes["package"])
        yield Check("spec", state.hashes["spec"], sha256_of(read_spec(work.spec)))
        if MODULES in state.hashes:
            yield Check("the spec's modules", state.hashes[MODULES], modules_hash(work.spec))
        if not state.stage(Stage.LIFTED).artifacts:
            return
        for made in work.lifted_artifacts():
            yield _artifact(session, made)
        yield from gate_again(work, Gate.G1, work.weigh_lifted, progress)
        if not state.stage(Stage.TARGET).artifacts:
            return
        recipe = None
        if work.recipe is not None:  # a spec that no recipe is read from is judged by itself
            progress("the recipe again")
            asked = {"path": str(work.spec), "options": dict(work.options.spec)}
            answer = child.call("recipe", asked)
            text = pretty_json(answer["recipe"])
            yield _artifact(session, Artifact.of(Stage.TARGET, RECIPE, text))
            recipe = recipe_from_json(answer["recipe"])
        for proposal in state.proposals:
            if proposal.origin is Origin.RULES and recipe is not None:
                was, now = work.proposed_text(proposal), work.rules_text(recipe)
                yield Check(f"proposal {proposal.id}", sha256_of(was), sha256_of(now))
        for made in work.target_artifacts():
            yield _artifact(session, made)
        yield from gate_again(work, Gate.G2, work.weigh_target, progress)
        if not state.stage(Stage.LOWERED).artifacts:
            return
        progress("lowering again")
        try:
            lowered = work.lowered_artifacts(work.make_lowering())
        except CuBridgeError as error:
            yield Check("lowered", state.hashes["lowered"], f"error: {error.message}")
            return
        for made in lowered:
            yield _artifact(session, made)
        yield from _lowered_gates(work, progress)


def gate_again(
    work: Work, gate: Gate, weigh: Callable[[], Verdict], progress: Callable[[str], None]
) -> Iterator[Check]:
    """A gate's verdict again. A stale one is about other content than the session's: it says
    nothing that could be said again."""
    given = work.state.verdict(gate)
    if given is None or given.kind not in (*JUDGED, VerdictKind.STALE):
        return
    was = given.kind.value
    if given.kind is VerdictKind.STALE:
        yield Check(gate.value, was, was, given.reason)
        return
    progress(f"{gate} again")
    now = weigh()
    if gate is Gate.G3 and now.kind is VerdictKind.NOT_RUN:
        yield Check(gate.value, was, was, f"not checked: {now.reason}")
    else:
        yield Check(gate.value, was, now.kind.value)


def _lowered_gates(work: Work, progress: Callable[[str], None]) -> Iterator[Check]:
    """G3 where nvcc is; of G4 what can be told without a GPU."""
    yield from gate_again(work, Gate.G3, work.weigh_lowered, progress)
    given = work.state.verdict(Gate.G4)
    if given is not None and given.kind in JUDGED:
        from engine.service.session.gpu_verdict import said_again

        progress("what can be told of G4 again")
        now = said_again(work, given)
        words = "" if now.kind is given.kind else f": {now.reason}"
        untold = taken_on_trust(now.details) if now.kind is VerdictKind.PASS else ""
        yield Check("G4 by its own rows", given.kind.value, now.kind.value + words, untold)


JUDGED = (VerdictKind.PASS, VerdictKind.FAIL)


def _artifact(session: Session, made: Artifact) -> Check:
    was = session.state.stage(made.stage).artifacts.get(made.name, "absent")
    return Check(f"{made.stage.value}/{made.name}", was, made.sha256)
