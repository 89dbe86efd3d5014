"""A session as a page that stands alone, and its history as one reads it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cubridge_tui.cli import main
from cubridge_tui.model.builder import Builder
from cubridge_tui.model.page import as_html
from cubridge_tui.model.page_pictures import pictures
from cubridge_tui.model.rows import PaneText, Row, RowKind
from cubridge_tui.model.snapshot import Snapshot, View
from cubridge_tui.model.story import Beat, beats, duration, story
from engine.service.session.adaptation import Adaptation
from engine.service.session.stage_work import Work
from engine.types import Decision, DecisionKind, Stage
from sessions.events import Event, HunkCommented, SessionCreated
from sessions.replay import steps
from sessions.session import Session
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, bench_of, made

HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(1)> \x1b[2J\u202e\"'&"


class Seen(HTMLParser):
    """Every tag with its attributes, the texts of scripts and styles, and all other text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.code: dict[str, list[str]] = {"script": [], "style": []}
        self.words = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in self.code:
            self.code[self._inside].append(data)
        else:
            self.words += data


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Session, Snapshot]:
    """A session with a rejection, a comment and an undo, measured on a GPU."""
    store = Store.open(tmp_path_factory.mktemp("page") / "store.git")
    session = made(store, Stage.VERIFIED)
    with bench_of(store) as bench:
        with store.writer(session) as writer:
            work = Adaptation(bench, writer, ACTOR)
            hunk = work.state.proposals[0].hunks[1]
            work.decide(Decision(f"rules/{hunk.id}", DecisionKind.REJECTED, ACTOR, "not [/] this"))
            work.undo()
            said = HunkCommented(f"rules/{hunk.id}", HOSTILE)
            writer.append([said], actor=f"agent {HOSTILE}")
        found = store.load(session)
        return store, found, Builder(Work(bench, found)).snapshot()


def held(page: str) -> Seen:
    """The page as a browser takes it, after what must hold of every page."""
    seen = Seen(page)
    (script,), (style,) = seen.code["script"], seen.code["style"]
    policy = next(a["content"] for t, a in seen.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None and policy.startswith("default-src 'none'; ")
    for code in (script, style):
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    for tag, attributes in seen.tags:
        assert tag not in ("img", "iframe", "object", "link", "base", "form", "a"), tag
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("src", "href", "style"), name
            assert name == "xmlns" or "://" not in (value or "")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    return seen


def test_the_page_stands_alone_and_links_what_belongs_together(
    shown: tuple[Store, Session, Snapshot],
) -> None:
    _, session, snap = shown
    page = as_html(snap, list(beats(steps(session.events))), pictures(snap))
    assert len(page.encode()) < 500_000
    seen = held(page)
    for words in ("not [/] this", "agent </pre>", snap.kernel):
        assert words in seen.words
    for _, hunk, _ in snap.hunks:
        assert hunk.title in seen.words and hunk.reason in seen.words
    keys = [a["data-k"] for t, a in seen.tags if t == "div" and "data-k" in a]
    assert any(keys.count(key) == 4 for key in set(keys)), "an op in all four panes"
    assert [t for t, _ in seen.tags].count("svg") == 2  # the mask's tiles, what was measured
    assert "full: 112 of 256" in seen.words


def test_nothing_of_anyones_text_is_markup(shown: tuple[Store, Session, Snapshot]) -> None:
    _, _, snap = shown
    proposal, hunk, decision = snap.hunks[0]
    assert decision is not None
    hostile = replace(hunk, title=HOSTILE, reason=HOSTILE, clause=HOSTILE, before=HOSTILE)
    bad = replace(
        snap, title=HOSTILE, session=HOSTILE, kernel=HOSTILE, spec_name=HOSTILE,
        spec_text=HOSTILE, hunks=((proposal, hostile, replace(decision, by=HOSTILE)),),
        panes={View.OPS: {s: PaneText((Row(HOSTILE, RowKind.ADD, 1, HOSTILE, HOSTILE,
                                           ("lifted", (HOSTILE,)), HOSTILE),), "", "", HOSTILE)
                          for s in snap.panes[View.OPS]}},
    )  # fmt: skip
    told = Beat(1, 2, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), 3.0)
    seen = held(as_html(bad, [told], pictures(bad)))
    assert seen.words.count("<script>alert(1)</script>") > 15


def test_the_history_is_folded_and_names_hunks_by_title(
    shown: tuple[Store, Session, Snapshot],
) -> None:
    _, session, _ = shown
    history = list(steps(session.events))
    found = list(beats(history))
    covered = [n for beat in found for n in range(beat.first, beat.last + 1)]
    assert covered == [step.number for step in history] and len(found) < len(history) * 2 / 3
    title = session.state.proposals[0].hunks[1].title
    lines = "\n".join(story(history))
    assert f"rejected {title} (rules/h2): not [/] this" in lines
    assert f"undid: rejected {title}" in lines
    count = len(session.state.proposals[0].hunks)
    assert f"accepted all {count} hunks of rules" in lines
    decided = [beat for beat in found if "rejected" in beat.words]
    assert all(beat.waited is not None for beat in decided)
    assert "\x1b" not in lines
    assert not [beat for beat in found if beat.words.startswith("wrote target")]


def test_broken_times_and_no_history_are_told_too() -> None:
    assert list(beats(steps(()))) == []
    created = SessionCreated("t", "k", "0" * 64, "s", "0" * 64)
    events = [Event("1", "no time", "a", created), Event("2", "x", "b", HunkCommented("h", "hi"))]
    assert [beat.waited for beat in beats(steps(events))] == [None, None]
    assert [duration(n) for n in (4, 125, 11400, 200000)] == [
        "4 s", "2 min 05 s", "3 h 10 min", "2 days",
    ]  # fmt: skip


def test_the_command_writes_the_page_and_says_where(
    shown: tuple[Store, Session, Snapshot], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, session, _ = shown
    words = ["replay", session.id[:12], "--store", str(store.path)]
    assert main([*words, "--html", str(tmp_path / "page.html")]) == 0
    assert "without a network" in capsys.readouterr().err
    held((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert main([*words, "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(words) == 0
    assert "(rules/h2): not [/] this" in capsys.readouterr().out


def test_the_page_in_the_docs_stands_alone_too(root: Path) -> None:
    page = (root / "docs" / "session.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 500_000
    assert held(page).words.count("Guard rows without a kept key") > 3
