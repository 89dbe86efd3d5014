"""Makes snapshots of a session, off the UI thread; keeps what depends on content hashes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cubridge_tui.model import linediff
from cubridge_tui.model.costs import NONE, cost_lines
from cubridge_tui.model.explained import with_reasons
from cubridge_tui.model.kept_texts import KeptTexts
from cubridge_tui.model.latest_review import explained, latest_review, question_of
from cubridge_tui.model.layout import ALIGNED, PANES
from cubridge_tui.model.links import Links, found_links, with_keys
from cubridge_tui.model.meanings import Decided, OpaqueNote, about_meanings, meaning_rows
from cubridge_tui.model.meanings import opaque_notes as notes_of
from cubridge_tui.model.next_step import unlowered
from cubridge_tui.model.review import hunks_by_op, with_comments
from cubridge_tui.model.rows import Key, PaneText, Row, RowKind, plain_rows
from cubridge_tui.model.snapshot import Panes, Snapshot, View
from cubridge_tui.model.written import decided_regions, written_rows
from cubridge_tui.text.cells import split_lines
from engine.errors import InputError
from engine.files import read_file
from engine.lift.cpp.provenance import Lifted
from engine.service.session.content import BINDING, LIFTED, LOWERED, SOURCE, TARGET
from engine.service.session.decisions import first_hunk, in_words, redo_group, undo_group
from engine.service.session.disk_inputs import spec_moved
from engine.service.session.lowerings import lower_task
from engine.service.session.proposal_kinds import ABOUT_LOWERINGS, ABOUT_MEANINGS
from engine.service.session.stage_work import Work
from engine.service.views.hunk_words import Explained
from engine.types import Gate, Proposal, Stage
from sessions.writer import Writer


class Builder:
    """Makes snapshots of one session; used by one thread at a time."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.drafts: dict[str, tuple[str, str]] = {}
        self.texts = KeptTexts(work)
        self.costs = NONE  # what is known so far, by whoever asks for them

    def snapshot(self) -> Snapshot:
        """The session as it stands now."""
        work, state = self.work, self.work.state
        created = state.created
        assert created is not None
        source = self.texts.artifact(Stage.SOURCE, SOURCE)
        lifted_text = self.texts.artifact(Stage.LIFTED, LIFTED)
        target_text = self.texts.artifact(Stage.TARGET, TARGET)
        lowered_text = self.texts.artifact(Stage.LOWERED, LOWERED)
        stale: dict[Stage, str] = {}
        lifted = work.lifted if lifted_text is not None else None
        lowered = None
        if not work.package.executed:
            lowered = self.texts.relift(lowered_text, stale)
        for stage in (Stage.LIFTED, Stage.TARGET, Stage.LOWERED):
            changed = state.outdated(stage)
            if changed:
                stale[stage] = f"stale: {changed} changed since this was made"
        target = self.texts.parsed(target_text)
        links, names = self.texts.links(
            lifted, lifted_text, target, target_text, lowered, lowered_text, stale
        )
        found = work.found_lines()
        if found:
            ops = self.texts.ops(split_lines(source or ""), split_lines(lowered_text or ""))
            same = {
                old + 1: new + 1 for tag, i1, i2, j1, j2 in ops if tag == "equal"
                for old, new in zip(range(i1, i2), range(j1, j2), strict=True)
            }  # fmt: skip
            links = replace(links, lines=found_links(found, same))
        opaque = self._opaque() if lifted_text is not None else ()
        meanings, regions = about_meanings(state), decided_regions(state)
        said, asked = (self.texts.artifact(s, work.shown[s]) for s in (Stage.LIFTED, Stage.TARGET))
        panes, blocked = self._panes(
            source or "",
            said,
            asked,
            lowered_text,
            lifted,
            asked if work.package.executed else target_text,
            links,
        )
        self._with_meanings(panes, opaque, meanings)
        if regions:
            self._with_regions(panes, source or "", lowered_text, links, regions)
        if state.comments or any(d.comment for d in state.draft.decisions.values()):
            panes = {
                view: {
                    stage: replace(pane, rows=with_comments(pane.rows, state))
                    for stage, pane in by_stage.items()
                }
                for view, by_stage in panes.items()
            }
        about = explained(self.texts, lifted)
        question = question_of(self.texts, lifted, about)
        lines = cost_lines(question, self.costs)
        self._with_reasons(panes, (*meanings, *work.hunks(), *regions), about, lines)
        self._align(panes, source or "", lifted_text, target_text, lowered_text)
        writer = self.work.session
        waiting = writer.pending if isinstance(writer, Writer) else ()
        return Snapshot(
            session=writer.id,
            title=state.title,
            kernel=created.kernel,
            spec_name=created.spec,
            spec_text=self.texts.spec_text(),
            state=state,
            executed=work.package.executed,
            panes=panes,
            links=links,
            hunks=work.hunks(),
            recipe=work.recipe,
            binding=work.binding if BINDING in state.stage(Stage.TARGET).artifacts else None,
            target_text=target_text or "",
            target=target.module if target is not None else None,
            lifted=lifted.module if lifted is not None else None,
            read_only=(getattr(writer, "read_only", "") or "")
            if isinstance(writer, Writer)
            else "",
            pending=len(waiting),
            notices=writer.notices,
            diff_blocked=blocked,
            changed=changed_on_disk(work),
            drafts=dict(self.drafts),
            constants=lifted.constants if lifted is not None else {},
            target_names=names,
            undo_words=in_words(state, undo := undo_group(writer.events, state.undo)),
            redo_words=in_words(state, redo := redo_group(writer.events, state.redo)),
            undo_hunk=first_hunk(state, undo),
            redo_hunk=first_hunk(state, redo),
            opaque=opaque,
            meanings=meanings,
            regions=regions,
            explained=about,
            question=question,
            costs=self.costs,
        )

    def _with_reasons(
        self, panes: dict[View, Panes], hunks: tuple[Decided, ...], about: Mapping[str, Explained],
        costs: Mapping[str, Sequence[str]],
    ) -> None:  # fmt: skip
        """Hunks that explain themselves, each in the pane in which it is decided; side by side
        shows texts alone, and a meaning's own text says what the op does."""
        decided = {f"{p.id}/{h.id}": d for p, h, d in hunks}
        for view in (View.OPS, View.LINES):
            by_stage = dict(panes[view])
            for stage in (Stage.TARGET, Stage.LOWERED):
                mine = [d for d in hunks if _home(d[0]) is stage]
                pane = by_stage[stage]
                rows = linediff.with_changed_words(pane.rows)
                rows = with_reasons(rows, mine, about, decided.get, costs)
                by_stage[stage] = replace(pane, rows=rows)
            panes[view] = by_stage

    def _align(self, panes: dict[View, Panes], *texts: str | None) -> None:
        """The two sides of each side-by-side pair, row by row."""
        by_stage = dict(panes[View.TEXT])
        texts_of = dict(zip(PANES, texts, strict=True))
        for left, right in ALIGNED:
            old, new = texts_of[left], texts_of[right]
            if old is None or new is None:
                continue
            ops = self.texts.ops(split_lines(old), split_lines(new))
            rows = linediff.aligned(by_stage[left].rows, by_stage[right].rows, ops)
            for stage, mine in zip((left, right), rows, strict=True):
                by_stage[stage] = replace(by_stage[stage], rows=mine)
        panes[View.TEXT] = by_stage

    # --- meanings and written lowerings ----------------------------------------------------------

    def _opaque(self) -> tuple[OpaqueNote, ...]:
        key = ("opaque", self.work.state.hashes.get("source"), self.work.state.hashes.get("lifted"))
        found: tuple[OpaqueNote, ...] = self.texts.keep(key, lambda: notes_of(self.work))
        return found

    def _with_meanings(
        self, panes: dict[View, Panes], opaque: tuple[OpaqueNote, ...],
        meanings: tuple[Decided, ...],
    ) -> None:  # fmt: skip
        """The lifted pane with its opaque ops marked, and beside each what is said of it."""
        if not opaque:
            return
        gpu = self.work.state.verdict(Gate.G4)
        proven = gpu is not None and gpu.passed
        left = sum(not op.meant for op in opaque)
        words = [f"{left} of {len(opaque)} opaque ops without meaning"] if left else []
        if left < len(opaque) and not proven:
            words.append(f"{len(opaque) - left} assumed")
        for view, by_stage in panes.items():
            pane = by_stage[Stage.LIFTED]
            rows = meaning_rows(pane.rows, opaque, meanings, self.drafts, proven)
            made = replace(pane, rows=rows, title=f"{pane.title}  {', '.join(words)}".rstrip())
            panes[view] = {**by_stage, Stage.LIFTED: made}

    def _with_regions(
        self, panes: dict[View, Panes], source: str, lowered: str | None, links: Links,
        regions: tuple[Decided, ...],
    ) -> None:  # fmt: skip
        """The lowered pane as the expert's source with every written region beside its place."""
        state = self.work.state
        key = ("regions", state.hashes.get("lifted"), state.hashes.get("target"))
        task = self.texts.keep(key, lambda: lower_task(self.work))
        rows = written_rows(task, source, regions, links, self.drafts, lowered)
        left = sum(d is None for _, _, d in regions)
        origin = regions[0][0].origin.value
        words = f"written by a {origin}" + (f", {left} undecided" if left else "")
        for view, by_stage in panes.items():
            pane = by_stage[Stage.LOWERED]
            made = replace(pane, rows=rows, title=f"{pane.title}  [{words}]")
            panes[view] = {**by_stage, Stage.LOWERED: made}

    # --- panes -----------------------------------------------------------------------------------

    def _panes(
        self,
        source: str,
        lifted_text: str | None,
        target_text: str | None,
        lowered_text: str | None,
        lifted: Lifted | None,
        reviewed_text: str | None,
        links: Links,
    ) -> tuple[dict[View, Panes], str]:
        src = split_lines(source)
        said = self.work.gutter()
        marked = tuple(
            replace(row, sign=said.get(number, row.sign))
            for number, row in enumerate(plain_rows(src, "expert"), start=1)
        )
        plain_source = with_keys(marked, Stage.SOURCE, links)
        lifted_lines = split_lines(lifted_text or "")
        plain_lifted = with_keys(plain_rows(lifted_lines, "expert"), Stage.LIFTED, links)
        reviewed, made, blocked = latest_review(
            self.texts, self.drafts, lifted, reviewed_text, links
        )
        hunk_of, origins, heads = hunks_by_op(reviewed, self.work.hunks())
        target_lines = split_lines(target_text or "")
        by_lines, left_lifted = plain_rows(target_lines, "expert"), plain_lifted
        if not self.work.package.executed:  # else one is no version of the other
            by_lines, left_lifted = self._against(
                lifted_lines, target_lines, Stage.LIFTED, Stage.TARGET, links, origins, hunk_of,
                heads,
            )  # fmt: skip
        by_lines = linediff.with_every_hunk(by_lines, reviewed)
        lowered_lines = split_lines(lowered_text or "")
        lowered_ops, left_source = self._against(
            src, lowered_lines, Stage.SOURCE, Stage.LOWERED, links, origins, hunk_of, heads
        )
        lowered_flat = tuple(r for r in lowered_ops if r.kind is not RowKind.HEAD)
        has_target, has_lowered = target_text is not None, lowered_text is not None
        rows: dict[View, dict[Stage, tuple[Row, ...]]] = {
            View.OPS: {
                Stage.SOURCE: plain_source,
                Stage.LIFTED: plain_lifted,
                Stage.TARGET: reviewed if made else by_lines,
                Stage.LOWERED: lowered_ops,
            },
            View.LINES: {
                Stage.SOURCE: plain_source,
                Stage.LIFTED: plain_lifted,
                Stage.TARGET: by_lines,
                Stage.LOWERED: lowered_flat,
            },
            View.TEXT: {
                Stage.SOURCE: left_source if has_lowered else plain_source,
                Stage.LIFTED: left_lifted if has_target else plain_lifted,
                Stage.TARGET: linediff.marked_new(by_lines),
                Stage.LOWERED: linediff.marked_new(lowered_flat),
            },
        }
        executed = self.work.package.executed
        languages = {Stage.LIFTED: "", Stage.TARGET: "cuda"} if executed else {}
        notes = {
            Stage.SOURCE: "",
            Stage.LIFTED: "not lifted yet: s lifts the source and runs G1",
            Stage.TARGET: "no target yet: s reads the spec and lets the rules propose",
            Stage.LOWERED: "not lowered yet: s lowers once the target has passed G2",
        }
        told = unlowered(self.work.state)
        if told is not None:
            notes[Stage.LOWERED] = f"the templates cannot write it: {told.reason}".split("\n")[0]
        have = {
            Stage.SOURCE: True,
            Stage.LIFTED: lifted_text is not None,
            Stage.TARGET: has_target or made,
            Stage.LOWERED: has_lowered,
        }
        names_of = {
            Stage.SOURCE: f"source  {self.work.package.name}/kernel.cu",
            Stage.LIFTED: f"lifted  {self.work.words[Stage.LIFTED]}",
            Stage.TARGET: f"target  {self.work.words[Stage.TARGET]}",
            Stage.LOWERED: "lowered  kernel.cu",
        }
        panes: dict[View, Panes] = {}
        for view, by_stage in rows.items():
            panes[view] = {
                stage: PaneText(
                    by_stage[stage] if have[stage] else (),
                    languages.get(
                        stage, "cuda" if stage in (Stage.SOURCE, Stage.LOWERED) else "cuir"
                    ),
                    names_of[stage] + (f"  [{links.stale[stage]}]" if stage in links.stale else ""),
                    notes[stage],
                )
                for stage in by_stage
            }
        return panes, blocked

    def _against(
        self, old: list[str], new: list[str], left: Stage, right: Stage, links: Links,
        origins: Mapping[Key, str], hunk_of: Mapping[Key, str], heads: Mapping[str, str],
    ) -> tuple[tuple[Row, ...], tuple[Row, ...]]:  # fmt: skip
        ops = self.texts.ops(old, new)
        old_keys, new_keys = links.lines.get(left, {}), links.lines.get(right, {})
        rows = linediff.unified(old, new, ops, old_keys, new_keys, origins, hunk_of, heads)
        return rows, linediff.marked_old(old, ops, old_keys)


def _home(proposal: Proposal) -> Stage:
    """The pane in which its hunks are decided."""
    if proposal.id.startswith(ABOUT_MEANINGS):
        return Stage.LIFTED
    return Stage.LOWERED if proposal.id.startswith(ABOUT_LOWERINGS) else Stage.TARGET


def changed_on_disk(work: Work) -> str:
    """What changed on disk since the session took it in: "spec", "kernel", both, or nothing."""
    changed = []
    hashes = work.state.hashes
    if spec_moved(work) is not None:
        changed.append("spec")
    if work.package.hashes["package"] != hashes.get("kernel") or not _has_source(work):
        changed.append("kernel")
    return " and ".join(changed)


def _has_source(work: Work) -> bool:
    """Whether the kernel's source is on the disk as it was read when the session was opened."""
    try:
        return read_file(Path(work.package.file), "restore it") == work.package.source
    except InputError:
        return False
