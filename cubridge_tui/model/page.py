"""A session's history as one HTML page that stands alone: texts side by side and linked, hunks with
reasons and decisions, verdicts, pictures, the story.

Nothing is fetched: style, script and pictures are in the page, and its policy lets only those run
(by their hashes). Every text of others is shown sanitised and escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from cubridge_tui.console import typeable
from cubridge_tui.model.layout import PANES
from cubridge_tui.model.review import WORDS
from cubridge_tui.model.rows import SIGNS, Key, PaneText, Row, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.model.story import Beat
from cubridge_tui.text.sanitise import visible, visible_lines
from engine.report.picture import Picture, svg
from engine.spec.recipes.recipe import at_lines
from engine.types import Decision, Hunk, Proposal, Stage
from engine.types.trust import beside, rests_on

TITLES = {
    Stage.SOURCE: "source: the expert's CUDA",
    Stage.LIFTED: "lifted: CuIR",
    Stage.TARGET: "target: CuIR",
    Stage.LOWERED: "lowered: CUDA",
}
_CLASSES = {
    RowKind.ADD: "add", RowKind.DEL: "del", RowKind.OUT_ADD: "out", RowKind.OUT_DEL: "out",
    RowKind.HEAD: "head", RowKind.NOTE: "note",
}  # fmt: skip


def as_html(snap: Snapshot, story: Sequence[Beat], pictures: Sequence[tuple[str, Picture]]) -> str:
    """The page; `pictures` with a title each."""
    style, script = _file("page.css"), _file("page.js")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    title = f"{snap.title}: CuBridge session"
    parts = [
        _head(snap),
        _gates(snap),
        *_recipe(snap),
        *(_section(name, _inline(picture)) for name, picture in pictures),
        _hunks(snap),
        _panes(snap),
        _story(story),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _head(snap: Snapshot) -> str:
    state = snap.state
    trust = beside(rests_on(state.verdicts))
    accepted = f", accepted as {state.accepted_level}" if state.acceptance is not None else ""
    return (
        f"<header><h1>{_text(snap.title)}</h1>\n"
        f"<p>session <code>{_text(snap.session)}</code>, kernel <code>{_text(snap.kernel)}</code>, "
        f"spec <code>{_text(snap.spec_name)}</code>; level <b>{state.level}</b>"
        f"{_text(trust)}{accepted}</p></header>"
    )


def _gates(snap: Snapshot) -> str:
    rows = [
        f'<tr class="{v.kind.value}"><td>{v.gate}</td><td>{v.kind.value.replace("_", " ")}</td>'
        f"<td>{v.seconds:.1f} s</td><td>{_text(v.reason)}"
        f"{_text(f' (by {v.by})') if v.by else ''}</td></tr>"
        for v in snap.state.verdicts
    ]
    return _section("Gates", f"<table>{''.join(rows)}</table>" if rows else "<p>None has run.</p>")


def _recipe(snap: Snapshot) -> list[str]:
    if snap.recipe is None:
        return []
    clauses = "".join(
        f"<li><b>{_text(c.kind.replace('_', ' '))}</b> {_text(c.words)}"
        f"{_text(f' ({at_lines(c.lines)})') if c.lines else ''}</li>"
        for c in snap.recipe.clauses
    )
    spec = "\n".join(map(_text, visible_lines(snap.spec_text.rstrip("\n"))))
    body = f"<ul>{clauses}</ul><details><summary>{_text(snap.spec_name)}</summary>"
    return [_section("What the spec asks for", f"{body}<pre>{spec}</pre></details>")]


def _hunks(snap: Snapshot) -> str:
    shown = [_hunk(snap, *each) for each in snap.all_hunks]
    return _section(f"Hunks: {len(shown)}", "".join(shown) or "<p>None was proposed.</p>")


def _hunk(snap: Snapshot, proposal: Proposal, hunk: Hunk, decision: Decision | None) -> str:
    word = WORDS[decision.kind if decision is not None else None]
    by = f" by {decision.by}" if decision is not None and decision.by else ""
    said = snap.state.comment(proposal.id, hunk.id)
    comment = f"<p>Comment by {_text(said.by)}: {_text(said.text)}</p>" if said else ""
    clause = f"<p>Serves: {_text(hunk.clause.replace('_', ' '))}</p>" if hunk.clause else ""
    edited = decision.replacement if decision is not None else None
    lines = [f'<span class="del">-{_text(line)}</span>' for line in _lines(hunk.before)]
    after = hunk.after if edited is None else edited
    lines += [f'<span class="add">+{_text(line)}</span>' for line in _lines(after)]
    name = f"{proposal.id}/{hunk.id}"
    return (
        f'<details class="hunk {_text(word.split()[0])}" data-h="{_text(name)}"><summary>'
        f"<code>{_text(name)}</code> <b>{_text(typeable(hunk.title))}</b> "
        f"<i>{hunk.origin.value}, {_text(word)}{_text(by)}</i></summary>"
        f"<p>{_text(typeable(hunk.reason))}</p>{clause}{comment}"
        f"<pre>{chr(10).join(lines)}</pre></details>"
    )


def _panes(snap: Snapshot) -> str:
    keys: dict[Key, int] = {}
    panes = snap.panes[View.OPS]
    columns = [
        f'<div class="pane"><h3>{TITLES[stage]}</h3><div class="code">'
        f"{_rows(panes[stage], keys)}</div></div>"
        for stage in PANES
    ]
    hint = "<p>What belongs together is marked under the pointer; a click brings it into view.</p>"
    return _section("Side by side", f'{hint}<div class="panes">{"".join(columns)}</div>')


def _rows(pane: PaneText, keys: dict[Key, int]) -> str:
    if not pane.rows:
        return f"<p>{_text(pane.note or 'there is none')}</p>"
    return "".join(_row(row, keys) for row in pane.rows)


def _row(row: Row, keys: dict[Key, int]) -> str:
    kind = f' class="{_CLASSES[row.kind]}"' if row.kind in _CLASSES else ""
    key = f' data-k="{keys.setdefault(row.key, len(keys))}"' if row.key is not None else ""
    hunk = f' data-h="{_text(row.hunk)}"' if row.hunk else ""
    number = "" if row.number is None else str(row.number)
    sign = row.sign or SIGNS[row.kind]
    text = _text(row.text.expandtabs(4))
    return f"<div{kind}{key}{hunk}><s>{number:>4}{_text(sign)}</s>{text}\n</div>"


def _story(story: Sequence[Beat]) -> str:
    rows = []
    for beat in story:
        number = str(beat.first) if beat.first == beat.last else f"{beat.first}–{beat.last}"
        more = "".join(f"<li>{_text(line)}</li>" for line in (*beat.details, *beat.folded))
        words = _text(beat.words)
        if more:
            words = f"<details><summary>{words}</summary><ul>{more}</ul></details>"
        time = _text(beat.time[:19].replace("T", " "))
        rows.append(
            f"<tr><td>{number}</td><td>{time}</td><td>{_text(beat.actor)}</td>"
            f"<td>{words}</td><td>{beat.after}</td></tr>"
        )
    return _section("History", f"<table>{''.join(rows)}</table>")


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n{body}</section>"


def _inline(picture: Picture) -> str:
    return f"<figure>{svg(picture)}</figure>"


def _lines(text: str) -> list[str]:
    return visible_lines(text.rstrip("\n")) if text.strip() else []


def _text(text: str) -> str:
    """Text of anyone's as text of the page: nothing hidden, nothing markup."""
    return escape("\n".join(map(visible, text.split("\n"))), quote=True)


def _file(name: str) -> str:
    return files("cubridge_tui.model").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
