"""An error in a hunk's text names the line and the column of that text, whatever the hunk is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuirError
from engine.transfer.proposals.review import compose, propose
from engine.types import Decision, DecisionKind, Origin

GOLDEN = Path(__file__).parents[3] / "golden" / "cuir" / "sm80_flash.cuir"
TEXT = print_module(parse_module(GOLDEN.read_text(), "golden"))
LINES = TEXT.split("\n")


def changed(kind: str) -> tuple[str, str]:
    """The kernel with one thing changed, and a text for that hunk whose third line is wrong."""
    if kind == "field":
        at = LINES.index("class Args:") + 1
        new = [*LINES[:at], "    more: f32", *LINES[at:]]
        return "\n".join(new), "more: f32\nyet: f32\nthird: = f32"
    if kind == "function":
        added = "@device\ndef more(x: i32) -> i32:\n    y = x + 1\n    return y\n"
        return f"{TEXT}\n\n{added}", "@device\ndef more(x: i32) -> i32:\n    y = = x"
    at = next(i for i, x in enumerate(LINES) if x.startswith("    ") and "gemm" in x)
    indent = " " * (len(LINES[at]) - len(LINES[at].lstrip()))
    if kind == "gap":
        return "\n".join([*LINES[:at], *LINES[at + 1 :]]), "a = 1\nb = 2\nthird = = 3"
    new = [*LINES[:at], f"{indent}more = 1", *LINES[at:]]
    return "\n".join(new), "a = 1\nb = 2\nthird = = 3"


@pytest.mark.parametrize("before", ["", "\n\n"])
@pytest.mark.parametrize("indent", [0, 8])
@pytest.mark.parametrize("kind", ["field", "function", "gap", "statement"])
def test_an_error_is_at_its_line_of_the_hunk(kind: str, indent: int, before: str) -> None:
    after, text = changed(kind)
    base, proposed = parse_module(TEXT, "base"), parse_module(after, "proposed")
    proposal = propose(base, proposed, id="p", origin=Origin.PERSON, reason="", ids=assign(base))
    (hunk,) = proposal.hunks
    shown = before + "\n".join(" " * indent + line for line in text.split("\n"))
    edited = Decision("p/h1", DecisionKind.EDITED, "ana", replacement=shown)
    with pytest.raises(CuirError) as found:
        compose(base, proposed, proposal, {hunk.id: edited})
    where = found.value.where
    assert where is not None and where.line == before.count("\n") + 3, str(found.value)
    assert where.column == indent + text.split("\n")[2].rindex("=") + 1, str(found.value)


def test_a_hunk_of_the_arguments_is_edited_where_it_stands() -> None:
    after, _ = changed("field")
    base, proposed = parse_module(TEXT, "base"), parse_module(after, "proposed")
    proposal = propose(base, proposed, id="p", origin=Origin.PERSON, reason="", ids=assign(base))
    edited = Decision("p/h1", DecisionKind.EDITED, "ana", replacement="other: i32\nand_: f32")
    found = compose(base, proposed, proposal, {"h1": edited})
    assert [f.name for f in found.fields] == ["other", "and_", *(f.name for f in base.fields)]


def test_beside_an_edited_hunk_the_same_statement_is_left_out_where_it_was_rejected() -> None:
    """`more = 1` stands twice and one is rejected; the edit of a third hunk mixes neither up."""
    at = next(i for i, x in enumerate(LINES) if x.startswith("    ") and "gemm" in x)
    indent = " " * (len(LINES[at]) - len(LINES[at].lstrip()))
    new = [*LINES[:at], f"{indent}more = 1", f"{indent}less = 2", *LINES[at:]]
    after = "\n".join([*new[: at + 3], f"{indent}more = 1", *new[at + 3 :]])
    base, proposed = parse_module(TEXT, "base"), parse_module(after, "proposed")
    proposal = propose(base, proposed, id="p", origin=Origin.PERSON, reason="", ids=assign(base))
    assert [h.after for h in proposal.hunks] == ["more = 1\n", "less = 2\n", "more = 1\n"]
    decided = {
        "h1": Decision("p/h1", DecisionKind.REJECTED, "ana"),
        "h2": Decision("p/h2", DecisionKind.EDITED, "ana", replacement="less = 3"),
        "h3": Decision("p/h3", DecisionKind.ACCEPTED, "ana"),
    }
    wanted = [*LINES[:at], f"{indent}less = 3", LINES[at], f"{indent}more = 1", *LINES[at + 1 :]]
    assert print_module(compose(base, proposed, proposal, decided)) == "\n".join(wanted)
