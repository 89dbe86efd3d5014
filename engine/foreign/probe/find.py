"""Finds where a kernel of others holds its scores: compiles it with observations and runs it.

First every variable is looked at after each statement that mentions it, on inputs whose scores say
which pair they are of. Places that together hold each needed score once are then observed again,
with all numbers in scope, at two sizes: their coordinates are what explains them there. At last
other scores are put in their place: the kernel's output must be the attention of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.build.folder.scratch import scratch
from engine.build.tools.toolchain import Toolchain, find_toolchain
from engine.child.client import Child
from engine.errors import InputError
from engine.files import read_text
from engine.foreign.check import Asked, launcher_of
from engine.foreign.compile import Compiled, compile_kernel
from engine.foreign.includes import reached, read_included
from engine.foreign.probe.boundaries import boundaries
from engine.foreign.probe.codes import Codes
from engine.foreign.probe.coordinates import Seen, explain, row
from engine.foreign.probe.coverage import Held, Tile, covers, factors, held, worth
from engine.foreign.probe.fields import fields
from engine.foreign.probe.instead import enters, halves, infinite, judge
from engine.foreign.probe.meanings import (
    End,
    always,
    ends,
    meanings,
    of_scores,
    of_weights,
    quantities,
)
from engine.foreign.probe.observed import Look, Observed, compile_observed
from engine.foreign.probe.places import Found, Hook, Loop, Meaning, Place, Row
from engine.foreign.probe.run import (
    Bench,
    Kept,
    Sizes,
    kept,
    longer_sizes,
    probing_sizes,
    random_inputs,
    scores,
    told,
)
from engine.foreign.probe.tracks import Track, tracks
from engine.foreign.reach import reached_functions
from engine.foreign.reference import read_reference
from engine.ptx.isa.observe import THREAD_BITS, Observer

Array = np.ndarray[Any, Any]
Said = Callable[[str], None]
MOST_LOOKS = 4000  # observations of one program
ENOUGH = 2  # hooks
MOST_TRIED = 4  # places of a maximum, and of a sum
MOST_HOOKS = 6  # sets of places that are observed again


def find(asked: Asked, said: Said = lambda text: None) -> Found:
    """Where a kernel's scores stand, what else stands where, and which loop visits the keys.

    Raises:
        InputError: the source does not compile, its launcher is not understood, or it has what the
            machine does not execute.
        MissingTool: there is no nvcc.
    """
    source = read_text(asked.source, "give a CUDA source with a launcher")
    tools = find_toolchain()
    tools.require_arch(asked.flags.arch)
    with ExitStack() as opened:
        folder = opened.enter_context(scratch())
        child = opened.enter_context(Child()) if asked.reference is not None else None
        reference = None
        if child is not None and asked.reference is not None:
            said(f"reading {asked.reference.name}")
            reference = read_reference(asked.reference, child, asked.options)
        entry = launcher_of(asked, source, reference)
        missing = {"q", "k", "v", "o"} - {p.means for p in (*entry.tensors, *entry.returned)}
        if missing:
            raise InputError(
                f"{asked.launcher} has no {', '.join(sorted(missing))}: scores are probed through "
                "q and k, and judged by the output"
            )
        bench = Bench(asked, entry, reference, child, folder)
        said(f"compiling {asked.source.name}")
        base = compile_kernel(asked.source, entry, asked.flags, tools, folder)
        return _Search(bench, tools, base, said).found()


@dataclass(slots=True)
class _Search:
    bench: Bench
    tools: Toolchain
    base: Compiled
    said: Said
    refused: list[str] = field(default_factory=list)

    def found(self) -> Found:
        for looks, files in self.stages():
            self.refused.clear()
            near = self.near(self.observe(looks))
            if near is None:
                continue
            first = near.observed
            drawn = self.drawn(first, near)
            hooks, loops, rows, parts = self.hooks(first, near, drawn)
            if hooks:
                named = self.meanings(first, near, drawn, hooks, loops, parts)
                return Found(
                    tuple(hooks), tuple(named), tuple(loops), tuple(self.refused),
                    dict.fromkeys(first.compiled.module.kernels, 0) | near.executed, files,
                    tuple(rows),
                )  # fmt: skip
        nothing = "the source defines no function that the launcher reaches"
        return Found((), (), (), tuple(self.refused) or (nothing,))

    def stages(self) -> Iterator[tuple[list[Look], tuple[Path, ...]]]:
        """What is looked at: the source's own folder, then one include folder more each time."""
        files = reached(self.bench.asked.source, self.bench.asked.flags.includes)
        order = list(dict.fromkeys(files.values()))
        texts: dict[Path, bytes] = {}
        executed = self.executed()
        before = 0
        for count in range(1, len(order) + 1):
            taken = tuple(f for f, root in files.items() if root in order[:count])
            texts |= {f: read_included(f) for f in taken if f not in texts}
            functions = reached_functions(texts.values(), self.bench.entry.name)
            known = fields(texts.values())
            looks = [Look(b, v.name) for f in taken
                     for b in boundaries(f, texts[f], functions, executed.get(f, ()), known)
                     for v in b.mentioned]  # fmt: skip
            if len(looks) > MOST_LOOKS:
                return
            if len(looks) > before:
                yield looks, taken
            before = len(looks)

    def executed(self) -> dict[Path, set[int]]:
        """The lines that instructions of the kernels are of, by file."""
        out: dict[str, set[int]] = {}
        for kernel in self.base.module.kernels.values():
            for place in {at.source for at in kernel.code if at.source is not None}:
                for one in place.chain():
                    out.setdefault(one.file, set()).add(one.line)
        return {Path(file).resolve(): lines for file, lines in out.items()}

    def observe(self, looks: Sequence[Look]) -> Observed:
        name = self.bench.asked.source.name
        self.said(f"compiling {name} with {len(looks)} observations")
        return compile_observed(
            self.bench.asked, self.bench.entry, looks, self.tools, self.base, self.bench.folder
        )

    def without_views(
        self, first: Observed, sizes: Sizes
    ) -> tuple[Observed, dict[int, Track], dict[str, int]]:
        """What is seen at these sizes without observations that show an address of a thread's own
        memory, a view of an array or what a lambda captures: nvcc keeps in memory what such an
        address is of, and would store a matmul's results there before they are waited for."""
        while True:
            seen, executed = self.codes(first, sizes)
            views = {n for n, track in seen.items() if track.of_own_memory}
            if not views:
                return first, seen, executed
            left = [x for n, x in enumerate(first.looks) if x is not None and n not in views]
            first = self.observe(left)

    def near(self, first: Observed) -> _Near | None:
        """The sizes at which places hold scores, and which do: sizes at which a block has tiles for
        each of its loops, as far as the reference allows them."""
        why = ""
        tried = probing_sizes(self.bench)
        while tried:
            sizes, others = tried.pop(0)
            self.said(f"probing at {_words(sizes)}")
            try:
                first, seen, executed = self.without_views(first, sizes)
            except InputError as error:
                why = why or str(error)
                continue
            codes = Codes(sizes)
            scale = self.bench.scale(sizes)
            all_held: list[Held] = []
            self.refused.clear()
            for number, track in seen.items():
                one = held(number, track, codes, tuple(factors(scale)))
                look = first.looks[number]
                if isinstance(one, Held):
                    all_held.append(one)
                elif one and look is not None:
                    self.refused.append(
                        f"{look.at.file.name}:{look.at.line}: {look.expression}: {one}"
                    )
            if all_held:
                self.refused.clear()
                tile = Tile.of({h.look: h for h in all_held}, seen, codes.shape, self.blocks)
                whole = tile.whole if sizes["Nk"] % tile.whole == 0 else sizes["Nk"]
                longer = longer_sizes(self.bench, tile.least, whole)
                if tile.least > sizes["Nk"] and longer:
                    tried, why = longer, ""
                    continue
                needed = kept(self.bench, self.base, sizes)
                few = self.bench.fewer(self.base, sizes)
                return _Near(
                    first, sizes, others, worth(all_held, scale, needed.pairs.reshape(-1)),
                    executed, needed, few,
                    (needed if few == sizes else kept(self.bench, self.base, few)).pairs,
                )  # fmt: skip
            if not self.refused:  # nothing looked like scores: other sizes show no more
                break
        self.refused.append(
            why
            or "no variable holds scores q . k of single pairs: the kernel computes none, or "
            "not in numbers of 32 bits"
        )
        return None

    def codes(self, observed: Observed, sizes: Sizes) -> tuple[dict[int, Track], dict[str, int]]:
        q, k = Codes(sizes).inputs()
        v = np.ones((sizes["B"], sizes["Hkv"], sizes["Nk"], sizes["Dv"]))
        observer = Observer()
        _, launches = self.bench.run(observed.compiled, sizes, q, k, v, observer)
        self.grids = {n: (x.grid, x.block) for n, x in enumerate(launches)}
        return tracks(observer), told(launches)

    def blocks(self, track: Track) -> Array:
        """A number of the block of each visit."""
        launch, thread = track.threads >> THREAD_BITS, track.threads & (1 << THREAD_BITS) - 1
        threads = np.array([np.prod(self.grids[n][1]) for n in range(len(self.grids))])
        return np.asarray(launch << THREAD_BITS // 2 | thread // threads[launch])

    def seen(self, observed: Observed, sizes: Sizes) -> _Run:
        self.said(f"probing at {_words(sizes)}")
        found, executed = self.codes(observed, sizes)
        return _Run(sizes, found, dict(self.grids), frozenset(executed))

    def second(
        self, observed: Observed, near: _Near, first: _Run, scored: Sequence[tuple[int, Held]]
    ) -> tuple[_Run, Array]:
        """The run at the first of the other sizes that the kernel takes, and which keys it looks at
        there: with the same kernels, the keys that are expected where they were at the first sizes,
        and scores in some place that had them in the first run."""
        why = InputError("other sizes launch other kernels")
        ran: list[tuple[_Run, Array]] = []
        for sizes in near.others:
            try:
                if self.bench.launched(observed.compiled, sizes) != first.kernels:
                    continue
                needed = kept(self.bench, self.base, sizes)
                if near.keep.expected and not needed.expected:
                    why = InputError(
                        f"where all scores are 0, O is the mean of V over the expected keys at "
                        f"{_words(first.sizes)} and not at {_words(sizes)}: the kernel does not "
                        "take these"
                    )
                    continue
                ran.append((self.seen(observed, sizes), needed.pairs))
            except InputError as error:
                why = error
                continue
            if any(isinstance(self.scored(n, one, ran[-1][0], first.sizes), Held)
                   for n, one in scored):  # fmt: skip
                return ran[-1]
        if not ran:
            raise why
        return ran[0]

    def scored(self, number: int, one: Held, run: _Run, first: Sizes) -> Held | str:
        """The scores of an observation that held them as `one` does at the first sizes."""
        track = run.tracks.get(number)
        if track is None:
            return f"not reached at {_words(run.sizes)}"
        by = one.factor_at(self.bench.scale(run.sizes), self.bench.scale(first))
        now = held(number, track, Codes(run.sizes), (by,))
        if isinstance(now, str) or now.words != one.words:
            return f"holds scores at {_words(first)} and not at {_words(run.sizes)}"
        return now

    grids: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)

    def drawn(self, first: Observed, near: _Near) -> _Drawn:
        """What the variables that were looked at hold with random inputs."""
        self.said("looking at random inputs")
        q, k, v = random_inputs(near.few, 3)
        observer = Observer()
        self.bench.run(first.compiled, near.few, q, k, v, observer)
        return _Drawn(tracks(observer), scores(q, k) * self.bench.scale(near.few))

    def hooks(
        self, first: Observed, near: _Near, drawn: _Drawn
    ) -> tuple[list[Hook], list[Loop], list[Row], list[tuple[Held, Track]]]:
        """The hooks among the sets: observed again, explained and tried. The loops around them, the
        rows' places, and what stands at each place of a hook."""
        looks: list[Look] = []
        starts: list[int] = []
        for one in near.held:
            look = first.looks[one.look]
            assert look is not None
            starts.append(len(looks))
            looks.append(Look(look.at, look.expression, "change"))
            looks += [Look(look.at, e, "number") for e in look.at.scope]
        held_by = list(ends(drawn.tracks, first.looks, drawn.scores, near.keep_few,
                            self.bench.scale(near.few)))  # fmt: skip
        tried = [replace(e, look=len(looks) + n) for n, e in enumerate(held_by)]
        looks += [Look(x.at, x.expression, "change")
                  for x in (first.looks[e.look] for e in held_by) if x is not None]  # fmt: skip
        again = self.observe(looks)
        first_run = self.seen(again, near.sizes)
        scored = list(zip(starts, near.held, strict=True))
        second_run, needed = self.second(again, near, first_run, scored)
        runs = [first_run, second_run]
        small = first_run if near.few == near.sizes else self.seen(again, near.few)
        keep = near.keep.pairs
        needs = [keep, needed]
        scale = self.bench.scale(near.sizes)
        codes = Codes(near.sizes)
        whole = [
            held(number, runs[0].tracks[number], codes, (one.factor,))
            for number, one in scored
            if number in runs[0].tracks
        ]
        sets = list(covers([h for h in whole if isinstance(h, Held)], keep.reshape(-1)))
        sets.sort(key=lambda s: (len(s), s[0].factor != scale))
        if not sets:
            self.refused += self.lacking(again, whole, keep)
        hooks: list[Hook] = []
        parts: list[tuple[Held, Track]] = []
        loops: dict[tuple[Path, int, str], Loop] = {}
        for some in sets[:MOST_HOOKS]:
            made = self.hook(again, runs, some, needs, small, near)
            if isinstance(made, str):
                self.refused.append(made)
            else:
                hooks.append(made[0])
                parts += made[2]
                loops |= {(x.file, x.line, x.counter): x for x in made[1]}
                if len(hooks) == ENOUGH:
                    break
        visits = list(loops.values())
        known, _ = quantities(drawn.scores, near.keep_few, visits)
        whole_rows = [t for t, e in zip(tried, held_by, strict=True)
                      if always(e, drawn.tracks[e.look], known)]  # fmt: skip
        rows = list(self.rows(again, whole_rows, near)) if hooks else []
        return hooks, visits, rows, parts

    def rows(self, again: Observed, tried: Sequence[End], near: _Near) -> Iterator[Row]:
        """Where the rows' sum divides, then where their maximum enters: the first place of each
        that is one when other numbers are put there."""
        sums: End | None = None
        for what in ("l", "m"):
            for one in [t for t in tried if t.what == what][:MOST_TRIED]:
                look = again.looks[one.look]
                if look is None or (what == "m" and sums is None):
                    continue
                at = f"{look.at.file.name}:{look.at.line}: {look.expression}"
                self.said(f"trying {at}")
                common = (self.bench, again.compiled, near.few)
                if sums is None or what == "l":
                    wrong = halves(*common, one, near.keep_few)
                else:
                    wrong = enters(*common, one, sums, near.keep_few)
                if wrong:
                    self.refused.append(f"{at}: {wrong}")
                    continue
                if what == "l":
                    sums = one
                    words = "twice of it there made O half"
                else:
                    words = "a larger one there left O, and the rows' sums were of smaller weights"
                yield row(look.at, look.expression, one, f"{words} at {_words(near.few)}")
                break

    def meanings(
        self, first: Observed, near: _Near, drawn: _Drawn, hooks: Sequence[Hook],
        loops: Sequence[Loop], parts: Sequence[tuple[Held, Track]],
    ) -> Iterator[Meaning]:  # fmt: skip
        """What else the variables hold that were looked at."""
        yield from of_scores(hooks)
        known, weight = quantities(drawn.scores, near.keep_few, loops)
        yield from of_weights(drawn.tracks, first.looks, weight, parts)
        rows = int(np.prod(near.keep_few.shape[:3]))
        scale = self.bench.scale(near.few)
        yield from meanings(drawn.tracks, first.looks, known, scale, rows)

    def lacking(self, again: Observed, whole: Sequence[Held | str], keep: Array) -> Iterator[str]:
        """What places that hold scores lack, so that no set of them is a hook."""
        for one in whole:
            look = again.looks[one.look] if isinstance(one, Held) else None
            if isinstance(one, Held) and look is not None:
                lacking = int((keep.reshape(-1) & ~one.covered).sum())
                yield (
                    f"{look.at.file.name}:{look.at.line}: {look.expression} lacks {lacking} of "
                    f"{int(keep.sum())} scores that the output depends on"
                )

    def hook(
        self, again: Observed, runs: list[_Run], some: tuple[Held, ...], needs: list[Array],
        small: _Run, near: _Near,
    ) -> tuple[Hook, list[Loop], list[tuple[Held, Track]]] | str:  # fmt: skip
        """One set: its places with their coordinates; else why it is none.

        Args:
            needs: the scores that the output depends on in each run.
            small: the run of few heads, at which other scores are tried.
        """
        places: list[Place] = []
        loops: list[Loop] = []
        parts: list[tuple[int, Held, Track]] = []
        counts = [np.zeros(keep.size, np.int64) for keep in needs]
        dropped = "score"
        at = ""
        for one in some:
            look = again.looks[one.look]
            if look is None:
                return f"{at}a place cannot be written"
            at = f"{look.at.file.name}:{look.at.line}: {look.expression}: "
            there = self.at_place(look, one, [*runs, small])
            if isinstance(there, str):
                return f"{at}{there}"
            *seen, last = there
            explained = explain(look.at, look.expression, seen)
            if isinstance(explained, str):
                return f"{at}{explained}"
            places.append(explained[0])
            loops += explained[1]
            parts.append((one.look, last.held, last.track))
            for count, run_ in zip(counts, seen, strict=True):
                count += run_.held.covered
                empty = run_.track.floats_of(run_.held.words)[run_.held.pairs < 0]
                if empty.size and dropped:
                    dropped = "-inf" if np.isneginf(empty).all() else ""
        for run, count, keep in zip(runs, counts, needs, strict=True):
            lacking = int((keep.reshape(-1) & (count == 0)).sum())
            if lacking:
                words = f"lacks {lacking} of {int(keep.sum())} scores that the output depends on"
                return f"{at}{words} at {_words(run.sizes)}"
            if count.max() > 1:
                return f"{at}holds some scores twice at {_words(run.sizes)}"
        self.said(f"trying {at[:-2]}")
        wrong = judge(self.bench, again.compiled, small.sizes, parts, near.keep_few)
        if wrong:
            return at + wrong
        held_ = some[0]
        scale = self.bench.scale(runs[0].sizes)
        name = factors(scale).get(held_.factor, f"{held_.factor:.6g}")
        evidence = (
            f"at {_words(runs[0].sizes)} it held {name} * (q . k) of {int(counts[0].sum())} pairs "
            f"once{f' in each of {held_.replicas} threads' if held_.replicas > 1 else ''}; at "
            f"{_words(runs[1].sizes)} that and its coordinates held again; other scores put there "
            "gave their own attention in O"
        )
        if dropped == "-inf" and not infinite(self.bench, again.compiled, some, scale):
            dropped = ""
        hook = Hook(tuple(places), held_.factor, scale, held_.replicas, evidence,
                    probed=runs[0].sizes, dropped=dropped, again=runs[1].sizes)  # fmt: skip
        return hook, loops, [(one, track) for _, one, track in parts]

    def at_place(self, look: Look, one: Held, runs: list[_Run]) -> list[Seen] | str:
        """What each run saw at a place, with the numbers in scope; else why it is none."""
        seen: list[Seen] = []
        for run in runs:
            now = self.scored(one.look, one, run, runs[0].sizes)
            if isinstance(now, str):
                return now
            track, scale = run.tracks[one.look], self.bench.scale(run.sizes)
            numbers = {
                expression: other
                for k, expression in enumerate(look.at.scope, start=one.look + 1)
                if (other := run.tracks.get(k)) is not None
                and np.array_equal(other.threads, track.threads)
            }
            seen.append(Seen(run.sizes, scale, now, track, numbers, run.grids))
        return seen


@dataclass(frozen=True, slots=True)
class _Run:
    """What observations saw at some sizes; the grid and block of each launch, and the kernels."""

    sizes: Sizes
    tracks: dict[int, Track]
    grids: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    kernels: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What observations saw of random inputs, and their scores times the scale."""

    tracks: dict[int, Track]
    scores: Array


@dataclass(frozen=True, slots=True)
class _Near:
    """Places that hold scores, and what is needed of them."""

    observed: Observed
    sizes: Sizes
    others: list[Sizes]
    held: list[Held]
    executed: dict[str, int]
    keep: Kept
    few: Sizes  # with few heads: what is tried there says the same of all
    keep_few: Array  # [B, Hq, Nq, Nk] at those


def _words(sizes: Sizes) -> str:
    return ", ".join(f"{n} {sizes[n]}" for n in ("B", "Hq", "Hkv", "Nq", "Nk", "D"))
