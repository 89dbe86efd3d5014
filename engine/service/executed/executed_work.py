"""A session about a kernel of others: executed as PTX where ours are lifted, patched in its own
source where ours are lowered. The steps, events and verdicts are those of every session."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

from engine.build.folder.scratch import scratch
from engine.build.machine_code.result import BuildResult
from engine.build.tools.toolchain import Toolchain, find_toolchain
from engine.cuir.nodes import Module
from engine.errors import InputError, MissingTool, StoreError
from engine.files import SOURCE_LIMIT, read_file, read_spec
from engine.foreign.cases import complete
from engine.foreign.check import Asked, kernels_of_cases, launcher_of
from engine.foreign.functions import declaration
from engine.foreign.includes import read_included
from engine.foreign.launcher import Launcher
from engine.foreign.overlay import below, overlaid
from engine.foreign.package import MANIFEST, manifest_text
from engine.foreign.probe.find import find
from engine.foreign.probe.found import found_text, source_lines
from engine.foreign.probe.places import Found as Places
from engine.foreign.reference import Reference, read_reference
from engine.gates.outcome import Found
from engine.gpu.job import Contents
from engine.graft.cases import case_size, cases_for, empty_rows, reaching
from engine.graft.compare import Patched as Again
from engine.graft.compare import same_scores
from engine.graft.edits import (
    Edit,
    Files,
    apply,
    changed_lines,
    edited,
    grouped,
    hunks_of,
    patch_text,
)
from engine.graft.element import beside, same_effect
from engine.graft.guards import at_rows, guards
from engine.graft.judge import (
    Ran,
    built,
    judge_build,
    judge_bytes,
    judge_cases,
    judge_run,
    shorter_than,
)
from engine.graft.kept import found_json, read_found
from engine.graft.kernel import ExecutedKernel, same_layout
from engine.graft.originals import originals_read
from engine.graft.plan import MINUS, hooks_of, plan, refuse
from engine.graft.tiles import fewer_tiles
from engine.lift.cpp.provenance import Lifted
from engine.package.export import SCHEMA, with_verdicts
from engine.package.texts import adapted_text
from engine.scalar_algebra.rewrite import TRUE
from engine.service.executed.gpu_job import job_of
from engine.service.session.adaptation import Adaptation, Proposed, pretty_json
from engine.service.session.content import LOWERED, RECIPE
from engine.service.session.disk_inputs import kernel_moved, spec_modules, spec_moved
from engine.service.session.stage_work import Work
from engine.spec.python.signature import Signature
from engine.spec.recipes.recipe import Recipe
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json
from engine.transfer.binding import Binding
from engine.types import (
    Artifact,
    Decision,
    DecisionKind,
    Gate,
    Hunk,
    Level,
    Origin,
    Proposal,
    Stage,
    Verdict,
    sha256_of,
)

MOST_GUARDS = 4  # that are tried
# What a meaning is called in a gutter of one column, where it is not its first letter.
SIGNS = {"scaled S": "S", "mask": "k", "scale": "c"}
FOUND, PLACES, PATCH = "found.txt", "found.json", "target.patch"
FILES = "files.json"  # the texts that the places are in, for when they are others on the disk


@dataclass(frozen=True, slots=True)
class Patched:
    """The author's source with the accepted edits, as `Lowered` is of a lifted kernel."""

    source: bytes
    changed_lines: int
    total_lines: int


class ExecutedWork(Work):
    """What such a session's content means and what its gates say: computed, never recorded."""

    package: ExecutedKernel
    _found: Places | None = None
    _ran: dict[str, Ran] | None = None
    _built: dict[str, BuildResult] | None = None

    # --- what it has not ---------------------------------------------------------------------

    def _no_cuir(self) -> NoReturn:
        raise InputError(
            f"{self.package.name} is executed as PTX: there is no CuIR of it",
            fix="`cubridge sessions show`, `check`, `lower`, `replay` and `export` do what such a "
            "session can",
        )

    @property
    def bare(self) -> Lifted:
        self._no_cuir()

    @property
    def target(self) -> Module:
        self._no_cuir()

    @property
    def binding(self) -> Binding:
        self._no_cuir()

    shown = {Stage.LIFTED: FOUND, Stage.TARGET: PATCH}
    words = {Stage.LIFTED: "executed as PTX", Stage.TARGET: "patch"}

    def assumed_ops(self) -> tuple[str, ...]:
        return ()

    # --- the kernel --------------------------------------------------------------------------

    def refuse_early(self) -> None:
        recipe = self.read_recipe(self.spec, self.options.spec)
        same_layout(self.package, Signature.of(recipe))
        refuse(recipe)

    @property
    def places(self) -> Places:
        """What probing finds of the source."""
        if self._found is None and PLACES in self.state.stage(Stage.LIFTED).artifacts:
            self._found = read_found(self.text(Stage.LIFTED, PLACES))
        return self._found or self._probed()

    @property
    def cases(self) -> Sequence[Mapping[str, int]]:
        """The sizes that the source is executed at: the kernel's own, and those at which each of
        its places is reached."""
        return reaching(self.places.edited, self.package.asked.sizes)

    def _probed(self) -> Places:
        self.bench.progress("probing: executing the kernel with observations in its source")
        asked = self.package.asked
        found = find(asked, self.bench.progress)
        if found.hooks and not all(found.executed.values()):
            found = self._others_probed(asked, found)
        self._found = found
        return found

    def _others_probed(self, asked: Asked, found: Places) -> Places:
        """What was found, with the scores of kernels that other cases launch."""
        for case, kernels in kernels_of_cases(asked, self.bench.progress, self.bench.child):
            if not any(found.executed.get(kernel) == 0 for kernel in kernels):
                continue
            self.bench.progress(f"probing what is launched at {case}")
            # The others say of its sizes what may differ: lengths, and heads that share keys.
            sizes = (case.sizes, *(s for s in asked.sizes if s != case.sizes))
            there = find(replace(asked, sizes=sizes, dtype=case.dtype or asked.dtype),
                         self.bench.progress)  # fmt: skip
            hooks = [replace(h, sizes=case.sizes) for h in there.hooks[:1]]
            ran = {k: n for k, n in there.executed.items() if n}
            why = [] if hooks else [f"at {case}: {words}" for words in there.refused]
            found = replace(
                found, more=(*found.more, *hooks), executed={**found.executed, **ran},
                refused=(*found.refused, *why), files=tuple(sorted({*found.files, *there.files})),
                meanings=tuple(dict.fromkeys((*found.meanings, *there.meanings))),
            )  # fmt: skip
        return found

    def gutter(self) -> dict[int, str]:
        if PLACES not in self.state.stage(Stage.LIFTED).artifacts:
            return {}
        found, source = self.places, self.package.asked.source.resolve()
        said = {m.line: SIGNS.get(m.what, m.what[:1]) for m in found.meanings if m.file == source}
        return said | {p.line: "S" for h in found.edited for p in h.places if p.file == source}

    def found_lines(self) -> dict[int, int]:
        if PLACES not in self.state.stage(Stage.LIFTED).artifacts:
            return {}
        return source_lines(self.places, self.package.asked.source.resolve())

    def files(self) -> dict[Path, bytes]:
        """The source, and the headers that were observed."""
        return _read((self.package.asked.source.resolve(), *self.places.files))

    def names(self) -> dict[Path, str]:
        """The files as their folders name them."""
        roots = (self.package.folder.resolve(),
                 *(Path(i).resolve() for i in self.package.asked.flags.includes))  # fmt: skip
        names = {
            file: next((file.relative_to(r).as_posix() for r in roots if file.is_relative_to(r)),
                       file.name)
            for file in self.files()
        }  # fmt: skip
        often = Counter(names.values())
        if max(often.values()) == 1:
            return names
        paths = below(self.package.asked)  # two folders have a file of that name
        return {f: n if often[n] == 1 else paths[f].as_posix() for f, n in names.items()}

    def lifted_artifacts(self) -> list[Artifact]:
        found = self._probed()
        names = self.names()
        files = [{"file": str(f), "name": names[f], "text": data.decode("utf-8", "surrogateescape")}
                 for f, data in self.files().items()]  # fmt: skip
        files[1:] = sorted(files[1:], key=lambda kept: kept["file"])
        return [Artifact.of(Stage.LIFTED, FOUND, found_text(found)),
                Artifact.of(Stage.LIFTED, PLACES, found_json(found)),
                Artifact.of(Stage.LIFTED, FILES, pretty_json(files))]  # fmt: skip

    def weigh_lifted(self, lifted: Lifted | None = None) -> Verdict:
        """G1: executed as PTX the source computes its reference, at the sizes that were run."""
        begin = time.monotonic()
        moved = kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G1, begin, moved)
        self.bench.progress("G1: executing the source against its reference")
        ran = self._run(replace(self.package.asked, sizes=self.cases))
        hooks = len(self.places.hooks)
        said = "; its scores were found by probing" if hooks else "; no scores were found"
        if ran.found.ok:
            ran = replace(ran, found=replace(ran.found, reason=ran.found.reason + said))
        return self._weighed(Gate.G1, begin, ran)

    def _weighed(self, gate: Gate, begin: float, ran: Ran) -> Verdict:
        """The verdict of a run; none where a kernel, a place of the source, or what
        a patched one computes somewhere was not run."""
        if ran.found.ok and ran.not_launched:
            reason = f"no size was found that launches {', '.join(ran.not_launched)}: nothing says"
            reason = f"{reason} what it computes (import the kernel with --sizes that do)"
            details = {**ran.found.details, "not_launched": list(ran.not_launched)}
            return self.not_run(gate, begin, reason, details)
        if ran.found.ok and ran.not_reached:
            reason = f"a place of the source runs only in a case that was {ran.not_reached}"
            reason = f"{reason}; import the kernel with --sizes as long that can be compared"
            return self.not_run(gate, begin, reason, ran.found.details)
        if gate is Gate.G2 and ran.found.ok and ran.never_run.making:
            reason = f"no case runs {ran.never_run.making} of the patched source, where scores, "
            reason += "weights or outputs may be made: nothing says what is computed there (import "
            reason += "the kernel with --sizes that run these lines)"
            return self.not_run(gate, begin, reason, ran.found.details)
        return self.found(gate, begin, ran.found)

    def _run(self, asked: Asked) -> Ran:
        return judge_run(asked, self.bench.child, self.bench.progress)

    # --- the recipe as edits -----------------------------------------------------------------

    def launcher(self, recipe: Recipe) -> Launcher:
        """The source's launcher; the recipe's inputs have their dimensions."""
        spec = Reference(self.spec, Signature.of(recipe), None, {})
        text = self.package.source.decode("utf-8", "surrogateescape")
        return launcher_of(self.package.asked, text, spec)

    def planned(self, recipe: Recipe, minus: str, folded: bool = True) -> list[Edit]:
        """The edits that carry a recipe.

        Raises:
            TransferError: the kernel has no scores, the recipe is no edit of scores, or the spec
                has its tensors in another order.
        """
        same_layout(self.package, Signature.of(recipe))
        hooks = hooks_of(self.places)
        source = self.package.asked.source.resolve()
        launcher, head = self.launcher(recipe), self.package.asked.sizes[0].get("D")
        return plan(recipe, hooks, self.files(), source, launcher, minus,
                    head or self.package.asked.head_dim, self._equal(launcher), folded)  # fmt: skip

    def _equal(self, launcher: Launcher) -> bool:
        """Whether there are as many rows as keys in every case."""
        cases = [complete(launcher, case) for case in self.cases]
        return all(case["Nq"] == case["Nk"] for case in cases)

    def by_rules(self, recipe: Recipe) -> list[Edit]:
        """The edits: of those that are right when they are executed, the first that are built
        without losing what the source had, else the first. Where nothing is right a dropped pair
        becomes -inf, for the gate to say what is wrong."""
        first: list[Edit] | None = None
        for edits in self._right_ones(recipe):
            if self._keeps_its_build(edits, recipe):
                return edits
            first = edits if first is None else first
        return self.planned(recipe, MINUS[0]) if first is None else first

    def _right_ones(self, recipe: Recipe) -> Iterator[list[Edit]]:
        """Edits that are right when they are executed, those that change less first: of a mask what
        the source drops itself is not written again. Scores and masks are written in two ways."""
        ways = [True]
        if self.planned(recipe, MINUS[0]) != self.planned(recipe, MINUS[0], False):
            ways = [True, False]
        left = self._unmasked(recipe)
        if left is not None:
            yield from chain.from_iterable(self._beside_its_own(left, recipe, w) for w in ways)
        yield from chain.from_iterable(self._with_the_mask(recipe, w) for w in ways)

    def _beside_its_own(self, left: Recipe, recipe: Recipe, folded: bool) -> Iterator[list[Edit]]:
        """The edits of what is left of a recipe beside the source's own mask."""
        self.bench.progress("trying the source's own mask")
        for minus in MINUS[: 1 if left.keep == TRUE else None]:
            edits = self.planned(left, minus, folded)
            ran = self._right(edits, recipe)
            if ran is not None:
                yield from self._fewer_tiles(edits, ran, recipe)
                return

    def _with_the_mask(self, recipe: Recipe, folded: bool) -> Iterator[list[Edit]]:
        """The edits of the whole recipe, those that skip more first: what a dropped pair becomes,
        -inf where that is right, else a number; a guard of rows that keep no key, where they need
        one; and which tiles are skipped."""
        plans = [self.planned(recipe, minus, folded) for minus in MINUS]
        if plans[0] == plans[1]:  # nothing is dropped
            yield plans[0]
            return
        for minus, edits in zip(MINUS, plans, strict=True):
            self.bench.progress(f"trying {minus} for dropped pairs")
            ran = self._right(edits, recipe)
            if ran is not None:
                yield from self._fewer_tiles(edits, ran, recipe)
                return
        ends = [[g] for g in islice(guards(self.places, self.files()), MOST_GUARDS)]
        ends += [both for both in [at_rows(self.places, self.files())] if both]
        for edits in plans[::-1]:
            wrong = self._wrong_cases(edits, recipe)
            may = any(empty_rows(recipe, complete(self.launcher(recipe), s)) for s in wrong)
            for end in ends if may else ():
                guarded = [*edits, *end]
                self.bench.progress("trying a guard of rows that keep no key")
                if self.run_patched(guarded, recipe, wrong).found.ok:
                    ran = self.run_patched(guarded, recipe)
                    if ran.found.ok:
                        yield from self._fewer_tiles(guarded, ran, recipe)
                        return

    def _right(self, edits: list[Edit], recipe: Recipe) -> Ran | None:
        """The run of edits that are right: in the kernel's least case, which is soon known, then in
        all; None of others."""
        for cases in ([min(self.package.asked.sizes, key=case_size)], ()):
            ran = self.run_patched(edits, recipe, cases)
            if not ran.found.ok:
                return None
        return ran

    def _wrong_cases(self, edits: list[Edit], recipe: Recipe) -> list[dict[str, int]]:
        """The cases in which the patched source is wrong."""
        rows = self.run_patched(edits, recipe).found.details.get("cases", ())
        return list({str(r["sizes"]): r["sizes"] for r in rows if r.get("wrong")}.values())

    def _fewer_tiles(self, edits: list[Edit], ran: Ran, recipe: Recipe) -> Iterator[list[Edit]]:
        """The edits with the first of the loop's bounds that are right and save work, if any are;
        then those without."""
        equal = self._equal(self.launcher(recipe))
        for fewer in fewer_tiles(recipe, self.places, self.files(), equal, edits):
            self.bench.progress("trying fewer tiles")
            less = self._right(fewer, recipe)
            if less is not None and less.work < ran.work:
                yield fewer
                break
        yield edits

    def _keeps_its_build(self, edits: list[Edit], recipe: Recipe) -> bool:
        """Whether G3's build of the edits loses nothing; True where nothing here builds it."""
        if not edits:
            return True
        try:
            tools = find_toolchain()
            tools.require_arch(self.package.asked.flags.arch)
        except MissingTool:
            return True
        with self.patched(edits) as (folder, changed):
            over = overlaid(self.package.asked, changed, folder)
            return self._judge_build(edits, recipe, over, folder, tools).ok

    def _judge_build(
        self, edits: Sequence[Edit], recipe: Recipe, over: Asked, folder: Path, tools: Toolchain
    ) -> Found:  # fmt: skip
        """What the build of the patched source loses; each is built once.

        Args:
            over: the source with the edits, in `folder`.
        """
        self._built = self._built or {}
        launches = self.run_patched(edits, recipe).launches
        was, now = f"{sorted(launches.items())}", _spans(edits)
        for key, asked in ((was, self.package.asked), (now, over)):
            if key not in self._built:
                self.bench.progress(f"compiling for {asked.flags.arch}")
                self._built[key] = built(asked, launches, tools, folder / "built")
        return judge_build(self._built[was], self._built[now])

    def rules_text(self, recipe: Recipe) -> str:
        return edits_text(self.by_rules(recipe))

    def proposed_text(self, proposal: Proposal) -> str:
        """The edits that a proposal proposes, as JSON."""
        for transcript in reversed(self.state.transcripts):
            if transcript.name == f"{proposal.id}.edits.json":
                return self.session.content(transcript.sha256).decode()
        raise StoreError(f"the edits of proposal {proposal.id} are not in the session")

    def edits_of(self, proposal: Proposal) -> list[Edit]:
        return edits_in(self.proposed_text(proposal))

    def standing(self, *latest: Decision) -> list[Edit]:
        """The edits that all standing decisions accept, with `latest` on top of them."""
        out: list[Edit] = []
        for proposal in self.edits:
            decisions = self.decisions(proposal)
            for decision in latest:
                decisions |= {
                    h.id: decision
                    for h in proposal.hunks
                    if decision.target in (proposal.id, h.id, f"{proposal.id}/{h.id}")
                }
            groups = grouped(self.edits_of(proposal), self.files())
            out += chosen(proposal.hunks, groups, decisions, self.files())
        return out

    def target_artifacts(self, *latest: Decision) -> list[Artifact]:
        return self.target_of(self.standing(*latest))

    def target_of(self, edits: Sequence[Edit]) -> list[Artifact]:
        """The target that accepted edits are."""
        files = self.files()
        text = patch_text(files, apply(files, edits), self.names())
        return [Artifact.of(Stage.TARGET, PATCH, text)]

    @contextmanager
    def patched(self, edits: Sequence[Edit]) -> Iterator[tuple[Path, dict[Path, bytes]]]:
        """A folder for work, and the files with the edits."""
        with scratch() as folder:
            yield folder, apply(self.files(), edits)

    def run_patched(
        self, edits: Sequence[Edit], recipe: Recipe, cases: Sequence[Mapping[str, int]] = ()
    ) -> Ran:
        """The patched source executed against the spec; once for the same edits and spec.

        Args:
            cases: those to run; none: all that the spec asks for.
        """
        key = json.dumps([_spans(edits), sha256_of(read_spec(self.spec)), dict(self.options.spec),
                          list(map(dict, cases))], sort_keys=True)  # fmt: skip
        self._ran = self._ran or {}
        if key in self._ran:
            return self._ran[key]
        asked = self.package.asked
        with self.patched(edits) as (folder, changed):
            over = replace(
                overlaid(asked, changed, folder), reference=self.spec, options=self.options.spec,
                sizes=cases or cases_for(recipe, self.launcher(recipe), self.cases),
            )  # fmt: skip
            try:
                ran = judge_cases(self._run(over), recipe, self.launcher(recipe), asked.sizes,
                                  self.cases)  # fmt: skip
                own = self.files()
                same = all(text == own[file] for file, text in changed.items())
                if same and ran.found.ok and not self._as_reference(recipe):
                    words = "the source is unchanged, and no case that was run tells the spec from"
                    words = f"{words} the kernel's own reference"
                    ran = replace(ran, found=replace(ran.found, ok=False, reason=words))
            except InputError as error:  # the patched text does not compile, or cannot be executed
                ran = Ran(Found(False, error.message.replace(f"{folder}/", "")), {}, 0, 0.0)
        self._ran[key] = ran
        return ran

    def _own(self) -> Recipe | None:
        """The recipe of the source's own reference, as far as that was read."""
        asked = self.package.asked
        assert asked.reference is not None
        own = read_reference(asked.reference, self.bench.child, asked.options).recipe
        return None if own is None else recipe_from_json(own)

    def _as_reference(self, recipe: Recipe) -> bool:
        """Whether the spec asks for the scores and the mask of the source's own reference."""
        own = self._own()
        equal = self._equal(self.launcher(recipe))
        return own is None or same_effect(recipe, own, equal)

    def _unmasked(self, recipe: Recipe) -> Recipe | None:
        """What is left of a recipe to be written where the source drops pairs that the spec drops,
        and does so after the places, or has -inf for them there; None where it does not."""
        own = self._own()
        if own is None or not all(hook.dropped for hook in self.places.edited):
            return None
        return beside(recipe, own, self._equal(self.launcher(recipe)))

    def weigh_target(self) -> Verdict:
        """G2: the patched source, executed as PTX, computes the spec at the sizes that were run."""
        begin = time.monotonic()
        recipe = self.recipe
        if recipe is None:
            return self.not_run(Gate.G2, begin, "the spec was not read")
        moved = spec_moved(self) or kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G2, begin, moved)
        self.bench.progress("G2: executing the patched source against the spec")
        if self.recipe_is_old:
            recipe = self.read_recipe(self.spec, self.options.spec)
        ran = self.run_patched(self.standing(), recipe)
        ran = replace(ran, found=self._with_work(ran.found))
        return self._weighed(Gate.G2, min(begin, time.monotonic() - ran.seconds), ran)

    def _with_work(self, found: Found) -> Found:
        """With what was executed of the author's source and of the patched one, in the cases that
        both were run in, which G1 has listed."""
        first = self.state.verdict(Gate.G1)
        rows = first.details.get("cases", ()) if first is not None else ()
        found = shorter_than(found, rows)
        was = {r["case"]: int(r["instructions"]) for r in rows}
        now = {r["case"]: int(r["instructions"]) for r in found.details.get("cases", ())}
        both = was.keys() & now.keys()
        if not both:
            return found
        work = {"cases": len(both), "before": sum(was[c] for c in both),
                "after": sum(now[c] for c in both)}  # fmt: skip
        return replace(found, details={**found.details, "work": work})

    # --- the patched source ------------------------------------------------------------------

    def make_lowering(self) -> Patched:  # type: ignore[override]
        self.bench.progress("patching")
        files = self.files()
        changed = apply(files, self.standing())
        source = self.package.asked.source.resolve()
        total = sum(files[f].count(b"\n") + 1 for f in changed)
        return Patched(changed.get(source, files[source]), changed_lines(files, changed), total)

    def lowered_artifacts(self, lowering: Patched) -> list[Artifact]:  # type: ignore[override]
        names, source = self.names(), self.package.asked.source.resolve()
        changed = apply(self.files(), self.standing())
        headers = [Artifact.of(Stage.LOWERED, names[f], data)
                   for f, data in sorted(changed.items()) if f != source]  # fmt: skip
        return [Artifact.of(Stage.LOWERED, LOWERED, lowering.source), *headers]

    def weigh_lowered(self, lowering: Patched | None = None) -> Verdict:  # type: ignore[override]
        """G3: only bytes in the hunks' spans are others, nvcc builds it without losing what the
        source had, and probing finds the same scores at the same place."""
        begin = time.monotonic()
        moved = spec_moved(self) or kernel_moved(self)
        if moved is not None:
            return self._moved_on(Gate.G3, begin, moved)
        recipe = self.recipe
        if recipe is None:
            return self.not_run(Gate.G3, begin, "the spec was not read")
        self.bench.progress("G3: building the patched source and probing it again")
        try:
            tools = find_toolchain()
            tools.require_arch(self.package.asked.flags.arch)
        except MissingTool as error:
            return self.not_run(Gate.G3, begin, error.message)
        found = self._judge_lowered(recipe, tools)
        details = dict(found.details)
        if lowering is not None:
            details |= {
                "changed_lines": lowering.changed_lines,
                "total_lines": lowering.total_lines,
            }
        return self.found(Gate.G3, begin, replace(found, details=details), compiler=tools.identity)

    def _judge_lowered(self, recipe: Recipe, tools: Toolchain) -> Found:
        files, edits = self.files(), self.standing()
        lowered = {file: self.session.artifact(Stage.LOWERED, name).data
                   for file, name in self.lowered_names().items()}  # fmt: skip
        kept = judge_bytes(files, lowered, edits)
        if not kept.ok:
            return kept
        asked = self.package.asked
        with scratch() as folder:
            over = overlaid(asked, lowered, folder)
            others = originals_read(over, lowered, tools, folder)
            if others:
                return Found(False, f"compiling the patched source still reads {others[0]}")
            build = self._judge_build(edits, recipe, over, folder, tools)
            if not build.ok or not edits:
                return build
            self.bench.progress("probing the patched source")
            over = replace(over, reference=self.spec, options=self.options.spec)
            again = same_scores(
                self.places.edited,
                recipe,
                Again(asked, over, folder, edits),
                self.bench.child,
                tools,
                self.bench.progress,
            )
        reasons = (kept.reason, build.reason, again.reason)
        return Found(again.ok, "; ".join(reasons) if again.ok else again.reason,
                     {**build.details, **again.details})  # fmt: skip

    def lowered_names(self) -> dict[Path, str]:
        """The patched files and what their artifacts are called."""
        source, names = self.package.asked.source.resolve(), self.names()
        changed = apply(self.files(), self.standing())
        return {f: LOWERED if f == source else names[f] for f in {source, *changed}}

    # --- what goes out -----------------------------------------------------------------------

    def own_job(self, bench: Mapping[str, Any]) -> Contents:
        return job_of(self, bench)

    def own_files(self, level: Level) -> dict[str, bytes]:
        """The folder of an accepted session by name, as `cubridge import` has it: the patched files
        with all that is beside them, the spec for the reference, the patch, what was judged."""
        asked, edits = self.package.asked, self.standing()
        out: dict[str, bytes] = {}
        with self.patched(edits) as (folder, changed):
            over = overlaid(asked, changed, folder)
            beside = over.source.parent
            out |= _below(beside, "")
            includes = list(over.flags.includes)
            for number, include in enumerate(includes):
                if Path(include).is_relative_to(folder):
                    includes[number] = f"include{number}"
                    out |= _below(Path(include), f"include{number}/")
        recipe = self.recipe
        assert recipe is not None
        sizes = cases_for(recipe, self.launcher(recipe), self.cases)
        kept = replace(asked, sizes=sizes, options=self.options.spec,
                       flags=replace(asked.flags, includes=tuple(includes)))  # fmt: skip
        out[MANIFEST] = manifest_text(kept, self.package.name).encode()
        out["reference.py"] = read_spec(self.spec)
        out |= spec_modules(self.spec)
        patch = patch_text(self.files(), changed, self.names())
        out[PATCH] = patch.encode("utf-8", "surrogateescape")
        author = out[kept.source.name].decode("utf-8", "surrogateescape")
        flags = kept.flags
        given = [*(f"-I{i}" for i in flags.includes), *(f"-D{m}" for m in flags.macros)]
        command = ["nvcc", f"-arch={flags.arch}", *given, *flags.more, "-c", kept.source.name]
        readme = adapted_text(
            self.package.name, kept.source.name, declaration(author, kept.launcher),
            shlex.join(command), recipe, "lse" in (p.means for p in self.launcher(recipe).outputs),
            level, self.state.verdicts,
            changed_lines(self.files(), changed),
        )  # fmt: skip
        out["README.md"] = readme.encode("utf-8", "surrogateescape")
        verdicts = {
            "schema": SCHEMA, "level": level.value, "kernel": self.package.name,
            "session": self.session.id, "verdicts": [v.to_json() for v in self.state.verdicts],
        }  # fmt: skip
        return with_verdicts(out, "verdicts.json", verdicts)


class ExecutedAdaptation(ExecutedWork, Adaptation):
    """Such a session open for writing."""

    def proposed_by_rules(self, recipe: Recipe) -> Proposed:
        edits = self.by_rules(recipe)
        hunks = hunks_of(self.files(), edits, self.names())
        reason = "the recipe's clauses at the place where probing found the scores"
        proposal = Proposal("rules", Origin.RULES, reason, hunks)
        return Proposed(
            proposal, f"{proposal.id}.edits.json", edits_text(edits),
            [Artifact.of(Stage.TARGET, RECIPE, pretty_json(recipe_to_json(recipe))),
             Artifact.of(Stage.TARGET, PATCH, "")],
        )  # fmt: skip


def _read(files: Sequence[Path]) -> dict[Path, bytes]:
    return {f: read_file(f, "restore it", SOURCE_LIMIT) for f in dict.fromkeys(files)}


def _spans(edits: Sequence[Edit]) -> str:
    """Edits by what they write where."""
    return json.dumps(sorted((str(e.file), e.start, e.end, e.text) for e in edits))


def edits_text(edits: Sequence[Edit]) -> str:
    """Edits as the session keeps them."""
    return pretty_json([e.to_json() for e in edits])


def edits_in(text: str) -> list[Edit]:
    """Edits that a session keeps."""
    return [Edit.from_json(e) for e in json.loads(text)]


def chosen(
    hunks: Sequence[Hunk], groups: Sequence[Sequence[Edit]], decisions: Mapping[str, Decision],
    files: Files,
) -> list[Edit]:  # fmt: skip
    """The edits of hunks that decisions (by hunk) accept, in each hunk's place what a person put
    there."""
    out: list[Edit] = []
    for hunk, group in zip(hunks, groups, strict=True):
        made = decisions.get(hunk.id)
        if made is None or made.kind is DecisionKind.REJECTED:
            continue
        if made.kind is DecisionKind.EDITED:
            group = edited(group, files, made.replacement or "")
        out += group
    return out


def _below(folder: Path, prefix: str) -> dict[str, bytes]:
    """The files below a folder by name."""
    return {
        prefix + p.relative_to(folder).as_posix(): read_included(p)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    }
