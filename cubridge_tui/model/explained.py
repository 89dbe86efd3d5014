"""What a hunk says of itself where it is decided: rows under its head line, and what it misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cubridge_tui.model.meanings import Decided
from cubridge_tui.model.rows import MISSING, SEPARATOR, Row, RowKind
from engine.service.views.hunk_words import Explained
from engine.types import Decision, DecisionKind, Hunk

NOTHING = Explained()
Decisions = Callable[[str], "Decision | None"]


def lines_of(
    hunk: Hunk, about: Explained = NOTHING, costs: Sequence[str] = (), group: str = ""
) -> list[str]:
    """What it does, what rejecting it does, what it costs, why it is there, its new ops, for which
    clauses, its numbers by name, what depends on what. `group` is the hunk before it that says
    why for both."""
    lines = [f"what    {words}" for words in about.does[:1]]
    lines += costs
    why = f"as {group}" if group else hunk.reason
    lines += [f"why     {why}"] if why else []
    lines += [f"op      {words}" for words in about.does[1:]]
    lines += [f"for     {words}" for words in about.clauses if not group]
    if about.numbers:
        lines.append(f"where   {'; '.join(about.numbers)}")
    both = [pair for pair in about.needs if pair in about.users]
    needs, users = ([pair for pair in p if pair not in both] for p in (about.needs, about.users))
    told = [f"needs {_listed(needs)}"] if needs else []
    told += [f"gives {_listed(users)}"] if users else []
    told += [f"stands and falls with {_listed(both)}"] if both else []
    return [*lines, *([f"with    {'; '.join(told)}"] if told else [])]


def needed(about: Explained) -> str:
    """The hunks that it needs, `h3 h8`."""
    return " ".join(dict.fromkeys(hunk for hunk, _ in about.needs))


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    """`score_factor (h3), end (h7, h13)`."""
    by_name: dict[str, list[str]] = {}
    for hunk, name in pairs:
        by_name.setdefault(name.removeprefix("args."), []).append(hunk)
    return ", ".join(f"{name} ({', '.join(hunks)})" for name, hunks in by_name.items())


def missing(
    name: str, explained: Mapping[str, Explained], decision: Decisions
) -> tuple[tuple[str, str], ...]:
    """The rejected hunks, and the names of theirs, that a hunk (`proposal/hunk`) which stands in
    the target reads."""
    made, about = decision(name), explained.get(name)
    if made is None or made.kind is DecisionKind.REJECTED or about is None:
        return ()
    proposal = name.partition("/")[0]
    own = made.replacement
    return tuple(
        (giver, given)
        for giver, given in about.needs
        if (d := decision(f"{proposal}/{giver}")) is not None
        and d.kind is DecisionKind.REJECTED
        and (own is None or given.removeprefix("args.") in own)
    )


def with_reasons(
    rows: Sequence[Row], hunks: Sequence[Decided], explained: Mapping[str, Explained],
    decision: Decisions, costs: Mapping[str, Sequence[str]],
) -> tuple[Row, ...]:  # fmt: skip
    """The rows with what a hunk says of itself under its head, until it is decided; then the head
    says what it misses."""
    found = {f"{p.id}/{h.id}": h for p, h, d in hunks}
    groups = _groups(hunks)
    out: list[Row] = []
    for row in rows:
        hunk = found.get(row.hunk) if row.kind is RowKind.HEAD else None
        if hunk is None:
            out.append(row)
            continue
        gone = missing(row.hunk, explained, decision)
        head = f"{row.text}{SEPARATOR}{missing_words(gone)}" if gone else row.text
        out.append(replace(row, text=head))
        if decision(row.hunk) is None:
            about, cost = explained.get(row.hunk, NOTHING), costs.get(row.hunk, ())
            lines = lines_of(hunk, about, cost, groups.get(row.hunk, ""))
            out += [Row(line, RowKind.NOTE, None, "", row.hunk, row.key) for line in lines]
    return tuple(out)


def _groups(hunks: Sequence[Decided]) -> dict[str, str]:
    """The first undecided hunk of the same proposal with the same reason and clauses, by the name
    of each later one."""
    first: dict[tuple[str, str, str], str] = {}
    out = {}
    for proposal, hunk, decision in hunks:
        if decision is None and hunk.reason:
            giver = first.setdefault((proposal.id, hunk.reason, hunk.clause), hunk.id)
            if giver != hunk.id:
                out[f"{proposal.id}/{hunk.id}"] = giver
    return out


def missing_words(gone: Sequence[tuple[str, str]]) -> str:
    """`MISSES score_factor of h3, rejected`."""
    return f"{MISSING} {_listed(gone).replace(' (', ' of ').replace(')', '')}, rejected"
