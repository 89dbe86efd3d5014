"""A hunk that only deletes can be edited: its text then stands where the deleted one stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module, blocks
from engine.cuir.parser import parse_module, parse_with_tables
from engine.cuir.printer import print_module
from engine.errors import CuirError
from engine.transfer.proposals.review import compose, propose
from engine.types import Decision, DecisionKind, Origin, Proposal

GOLDEN = Path(__file__).parents[3] / "golden" / "cuir" / "sm80_flash.cuir"
TEXT = print_module(parse_module(GOLDEN.read_text(), "golden"))


def deletions() -> list[tuple[int, str]]:
    """Every one-line statement of the kernel: its line, and the text without it."""
    parsed = parse_with_tables(TEXT)
    lines = TEXT.split("\n")
    out = []
    kernels = {f.name: f for f in parsed.module.functions if f.kind != "device"}
    for path, line in parsed.lines.items():
        if path[0] not in kernels or len(path) == 1 or _holds(kernels[str(path[0])].body, path[1:]):
            continue
        rest = "\n".join([*lines[: line - 1], *lines[line:]])
        try:
            parse_module(rest, "rest")
        except CuirError:  # the only statement of its block
            continue
        out.append((line, rest))
    return out


def _holds(body: object, path: tuple[object, ...]) -> bool:
    stmt = body[path[0]]  # type: ignore[index]
    inner = dict(blocks(stmt))
    return bool(inner) if len(path) == 1 else _holds(inner[str(path[1])], path[2:])


def made(base: Module, proposed: Module) -> Proposal:
    return propose(
        base, proposed, id="p", origin=Origin.PERSON, reason="less", ids=assign(base)
    )  # fmt: skip


def test_there_is_something_to_delete() -> None:
    assert len(deletions()) > 20


@pytest.mark.parametrize("line", [line for line, _ in deletions()][::3])
def test_the_deleted_text_written_again_is_the_base(line: int) -> None:
    rest = dict(deletions())[line]
    base, proposed = parse_module(TEXT, "base"), parse_module(rest, "rest")
    proposal = made(base, proposed)
    (hunk,) = proposal.hunks
    if hunk.after:  # the same statement stands twice: the diff sees a move
        pytest.skip("no pure deletion")
    text = TEXT.split("\n")[line - 1].strip()
    again = Decision("p/h1", DecisionKind.EDITED, "ana", replacement=text)
    assert print_module(compose(base, proposed, proposal, {"h1": again})) == TEXT
    other = Decision("p/h1", DecisionKind.EDITED, "ana", replacement="gap = 1\ngap_too = 2")
    shown = print_module(compose(base, proposed, proposal, {"h1": other})).split("\n")
    assert [x.strip() for x in shown[line - 1 : line + 1]] == ["gap = 1", "gap_too = 2"]
    taken = Decision("p/h1", DecisionKind.ACCEPTED, "ana")
    assert print_module(compose(base, proposed, proposal, {"h1": taken})) == rest
