"""Linked positions and review rows, without Textual."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubridge_tui.model.links import LIFTED, Links, lifted_name, link, marks, path_of, with_keys
from cubridge_tui.model.review import canonical, gives, review, review_rows
from cubridge_tui.model.rows import PaneText, Row, RowKind, hunk_starts, plain_rows
from cubridge_tui.text.cells import split_lines
from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module, parse_with_tables
from engine.cuir.printer import print_module
from engine.lift import Lifted, lift, load_package
from engine.resources import kernel_dir
from engine.transfer.proposals.review import compose, propose
from engine.transfer.rules import apply, plan
from engine.types import Decision, DecisionKind, Origin, Proposal, Stage
from tests.engine.transfer.recipes import VARIANTS
from tests.engine.transfer.recipes import lifted as of_kernel

KINDS = (None, DecisionKind.ACCEPTED, DecisionKind.REJECTED)


@pytest.fixture(scope="module", params=["flash_fwd_sm80", "flash_fwd_sm90"])
def lifted(request: pytest.FixtureRequest) -> Lifted:
    package = load_package(kernel_dir(request.param))
    return lift(package, package.specialisations[-1])


@pytest.fixture(scope="module")
def edited(lifted: Lifted) -> tuple[Module, Proposal]:
    """A proposal with a change, an insertion, a deletion and a new field."""
    text = print_module(lifted.module)
    text = text.replace("    scale: f32\n", "    scale: f32\n    cap: f32\n", 1)
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if "m_prev = m" in line)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines.insert(at, f"{indent}s = map(s, lambda x: x * 2.0)")
    lines = [
        line.replace("scale_log2 = args.scale * LOG2E", "scale_log2 = LOG2E") for line in lines
    ]
    gone = next(i for i, line in enumerate(lines) if "inverse = map(" in line)
    lines[gone] = lines[gone].replace("0.0 if", "1.0 if")
    proposed = parse_module("\n".join(lines))
    made = propose(
        lifted.module, proposed, id="p", origin=Origin.MODEL, reason="", ids=assign(lifted.module)
    )
    assert len(made.hunks) >= 4
    return proposed, made


@given(data=st.data())
def test_rows_as_decided_are_the_target(
    data: st.DataObject, lifted: Lifted, edited: tuple[Module, Proposal]
) -> None:
    proposed, proposal = edited
    kinds = {h.id: data.draw(st.sampled_from(KINDS)) for h in proposal.hunks}
    decisions = {i: Decision(f"p/{i}", k, "me") for i, k in kinds.items() if k is not None}
    made = review(lifted.module, proposed, proposal, lifted_name)
    rows = review_rows(made, decisions, {})
    target = compose(lifted.module, proposed, proposal, decisions)
    assert gives(rows, print_module(target))
    heads = [r.hunk for r in rows if r.kind is RowKind.HEAD]
    assert heads == [f"p/{h.id}" for h in proposal.hunks if f"p/{h.id}" in heads]
    assert set(heads) == {f"p/{h.id}" for h in proposal.hunks}


@pytest.mark.parametrize("kernel", ["flash_fwd_sm80", "flash_fwd_sm90"])
def test_rows_are_the_target_where_functions_come_and_change_places(kernel: str) -> None:
    """Tile lists bring functions whose lines read like those of others."""
    base, recipe = of_kernel(kernel), VARIANTS["document"]
    trail = list(apply(base, plan(base, recipe).steps))
    made = propose(
        base, trail[-1][1], id="p", origin=Origin.RULES, reason="", ids=assign(base), trail=trail
    )
    shown = review(base, trail[-1][1], made, lifted_name)
    for turn in range(4):
        kinds = {h.id: KINDS[1 + (n * turn + turn) % 3 % 2] for n, h in enumerate(made.hunks)}
        decisions = {i: Decision(f"p/{i}", kind, "me") for i, kind in kinds.items() if kind}
        target = compose(base, trail[-1][1], made, decisions)
        assert gives(review_rows(shown, decisions, {}), print_module(target)), turn


def test_every_changed_row_belongs_to_a_hunk(
    lifted: Lifted, edited: tuple[Module, Proposal]
) -> None:
    rows = review_rows(review(lifted.module, *edited, lifted_name), {}, {})
    assert all(r.hunk for r in rows if r.kind is not RowKind.SAME)
    starts = [rows[i].hunk for i in hunk_starts(rows)]
    assert starts == list(dict.fromkeys(starts))


def test_an_edited_hunk_shows_the_persons_text_as_the_target_prints_it(
    lifted: Lifted, edited: tuple[Module, Proposal]
) -> None:
    proposed, proposal = edited
    hunk = next(h for h in proposal.hunks if "scale_log2" in h.after)
    decision = Decision(
        f"p/{hunk.id}", DecisionKind.EDITED, "me", replacement="scale_log2=LOG2E*1.0"
    )
    rows = review_rows(
        review(lifted.module, proposed, proposal, lifted_name), {hunk.id: decision}, {}
    )
    target = compose(lifted.module, proposed, proposal, {hunk.id: decision})
    assert gives(rows, print_module(target))
    assert canonical("x=1") == "x = 1"
    assert canonical("not ( cuir") == "not ( cuir"


def test_one_op_is_found_in_source_lifted_and_target(
    lifted: Lifted, edited: tuple[Module, Proposal]
) -> None:
    text, target = print_module(lifted.module), print_module(edited[0])
    links, _ = link(
        lifted, text, parse_with_tables(text), (parse_with_tables(target), target), None, {}
    )
    panes = {
        Stage.SOURCE: split_lines(lifted.source.decode()),
        Stage.LIFTED: split_lines(text),
        Stage.TARGET: split_lines(target),
    }
    wanted = {
        Stage.SOURCE: "const auto m_prev = m;",
        Stage.LIFTED: "m_prev = m",
        Stage.TARGET: "m_prev = m",
    }
    keys = {
        links.key(
            stage, next(i + 1 for i, line in enumerate(lines) if line.strip() == wanted[stage])
        )
        for stage, lines in panes.items()
    }
    assert len(keys) == 1
    (key,) = keys
    assert key is not None and key[0] == LIFTED
    rows = with_keys(plain_rows(panes[Stage.TARGET]), Stage.TARGET, links)
    found = marks(rows, key, links)
    assert [rows[i].text.strip() for i in found.op] == ["m_prev = m"]
    assert any("row_max" in rows[i].text for i in found.loop)
    assert found.worker and not set(found.op) - set(found.loop) - set(found.op)


def test_new_ops_have_keys_of_their_own(lifted: Lifted, edited: tuple[Module, Proposal]) -> None:
    text, target = print_module(lifted.module), print_module(edited[0])
    links, names = link(
        lifted, text, parse_with_tables(text), (parse_with_tables(target), target), None, {}
    )
    line = next(i + 1 for i, x in enumerate(split_lines(target)) if "x * 2.0" in x)
    key = links.key(Stage.TARGET, line)
    assert key is not None and key[0] == "target"
    assert links.first_line(Stage.LIFTED, key) is None
    assert names(key[1]) == key


def test_a_missing_map_marks_nothing() -> None:
    rows = [Row("x", number=1)]
    assert marks(rows, (LIFTED, ("f", 0)), Links()).op == ()
    assert replace(PaneText(), note="stale").note == "stale"
    assert path_of("flash_fwd/19/body/4") == ("flash_fwd", 19, "body", 4)
