"""The review as one Markdown file that stands alone: recipe, hunks, decisions, verdicts, patch."""

from __future__ import annotations

import difflib

from cubridge_tui.model.review import WORDS
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.text.sanitise import one_line, visible_lines
from engine import markdown
from engine.spec.recipes.recipe_words import at_lines
from engine.types import Stage
from engine.types.trust import beside, rests_on


def as_markdown(snap: Snapshot) -> str:
    """The report. Text of others in it is fenced, or on one line and no markup but code."""
    state = snap.state
    out = [f"# Review: {_prose(snap.title)}", ""]
    named = [("Session", snap.session), ("kernel", snap.kernel), ("spec", snap.spec_name)]
    out.append(", ".join(f"{word} {markdown.code(one_line(name))}" for word, name in named) + ".")
    trust = beside(rests_on(state.verdicts))
    out += [f"Level: **{state.level}**{trust}.", "", "## Gates", ""]
    out += ["| gate | verdict | seconds | reason |", "|---|---|---|---|"]
    for verdict in state.verdicts:
        out.append(
            f"| {verdict.gate} | {verdict.kind} | {verdict.seconds:.1f} | {_cell(verdict.reason)} |"
        )
    if snap.recipe is not None:
        out += ["", "## What the spec asks for", ""]
        for clause in snap.recipe.clauses:
            at = f" ({at_lines(clause.lines)})" if clause.lines else ""
            out.append(f"- **{_prose(clause.kind)}**: {_prose(clause.words)}{at}")
    out += ["", "## Hunks"]
    for proposal, hunk, decision in snap.all_hunks:
        word = WORDS[decision.kind if decision else None]
        out += ["", f"### {proposal.id}/{hunk.id}: {_prose(hunk.title)}", ""]
        out.append(f"{hunk.origin.value}, {word}. {_prose(hunk.reason)}")
        said = state.comment(proposal.id, hunk.id)
        if said is not None:
            out += ["", f"Comment by {_prose(said.by)}: {_prose(said.text)}"]
        after = (
            decision.replacement if decision and decision.replacement is not None else hunk.after
        )
        out += ["", *_fenced("diff", _signed("-", hunk.before) + _signed("+", after))]
    patch = lowered_patch(snap)
    if patch:
        out += ["", "## The lowered kernel against the expert's", "", *_fenced("diff", patch)]
    return "\n".join(out) + "\n"


def lowered_patch(snap: Snapshot) -> list[str]:
    """The lowered source as a unified diff."""
    panes = snap.panes[View.TEXT]
    before = [r.text for r in panes[Stage.SOURCE].rows if r.number is not None]
    after = [r.text for r in panes[Stage.LOWERED].rows if r.number is not None]
    if not after:
        return []
    made = difflib.unified_diff(before, after, "a/kernel.cu", "b/kernel.cu", lineterm="")
    return [line for text in made for line in visible_lines(text)]


def _signed(sign: str, text: str) -> list[str]:
    return [f"{sign}{line}" for line in visible_lines(text.rstrip("\n"))] if text.strip() else []


def _fenced(language: str, lines: list[str]) -> list[str]:
    """Lines in a fence that is longer than any run of backticks in them."""
    longest = max((len(run) for line in lines for run in _runs(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]


def _runs(line: str) -> list[str]:
    import re

    return re.findall(r"`+", line)


def _prose(text: str) -> str:
    return markdown.prose(one_line(text))


def _cell(text: str) -> str:
    return markdown.cell(one_line(text))
