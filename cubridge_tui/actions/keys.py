"""Which keys an action has on a screen, and what of the table is shown where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cubridge_tui.actions.table import (
    ACCEPT,
    ACTIONS,
    ADAPTATION,
    COST,
    EVERYWHERE,
    GPU,
    HUNKS,
    MASK,
    MODEL,
    REPLAY,
    SCREENS,
    START,
    Action,
)
from cubridge_tui.model.facts import Facts

WAY_OUT = 80  # the rank from which on an action is in the footer at any width


def actions_of(screen: str, table: Iterable[Action] = ACTIONS) -> tuple[Action, ...]:
    """The actions of a screen, its own before those that work everywhere."""
    own = tuple(a for a in table if a.screen == screen)
    taken = {key for action in own for key in action.keys}
    general = tuple(a for a in table if a.screen == EVERYWHERE and not taken.issuperset(a.keys))
    return own + general


def with_keys(table: Iterable[Action], keymap: Mapping[str, str]) -> tuple[Action, ...]:
    """The table under a person's keymap: action id -> keys, with commas between them."""
    from dataclasses import replace

    return tuple(
        replace(a, keys=tuple(k.strip() for k in keymap[a.id].split(",") if k.strip()))
        if a.id in keymap
        else a
        for a in table
    )


def clashes(table: Iterable[Action]) -> list[str]:
    """Keys that mean two things on one screen, in words."""
    actions = tuple(table)
    out: list[str] = []
    for screen in SCREENS[1:]:
        seen: dict[str, str] = {}
        for action in actions_of(screen, actions):
            for key in action.keys:
                if key in seen and seen[key] != action.id:
                    out.append(f"{key_name(key)} is both {seen[key]} and {action.id} ({screen})")
                seen[key] = action.id
    return out


_NAMES = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "right_curly_bracket": "}",
    "left_curly_bracket": "{",
    "plus": "+",
    "minus": "-",
    "escape": "esc",
    "enter": "enter",
    "exclamation_mark": "!",
}


def key_name(key: str) -> str:
    """A key as a person reads it."""
    return _NAMES.get(key, key)


def key_named(name: str) -> str:
    """The key that `key_name` reads so; empty for a word that is none."""
    key = next((key for key, word in _NAMES.items() if word == name), name)
    known = len(name) == 1 or name.startswith(("ctrl+", "f")) or name in ("tab", "space", "end")
    return key if known or key in _NAMES else ""


def key_of(action_id: str, table: Iterable[Action] = ACTIONS) -> str:
    """The key that a text names for an action."""
    return next((key_name(a.keys[0]) for a in table if a.id == action_id and a.keys), "")


def footer(
    screen: str, facts: Facts, table: Iterable[Action] = ACTIONS
) -> list[tuple[str, str, str]]:
    """What the footer shows: (key, word, id) of each action that can be done now, by rank."""
    valid = [a for a in actions_of(screen, table) if a.footer and a.keys and not a.when(facts)]
    words = ((a, a.now(facts) if a.now is not None else a.footer)
             for a in sorted(valid, key=lambda a: a.rank))  # fmt: skip
    return [(key_name(a.keys[0]), word, a.id) for a, word in words if word]


# The action that leads to a screen's keys, and where that one is.
_WAYS = {
    START: ("start-screen", "in the panes"),
    ADAPTATION: ("open", "on the start screen"),
    HUNKS: ("hunks", "in the panes"),
    ACCEPT: ("accept-kernel", "in the panes"),
    REPLAY: ("replay", "on the start screen"),
    MASK: ("mask", "in the panes"),
    COST: ("cost", "in the panes"),
    GPU: ("gpu", "in the panes"),
    MODEL: ("ask-model", "in the panes"),
}


def elsewhere(screen: str, table: Iterable[Action] = ACTIONS) -> list[tuple[Action, str]]:
    """The actions of the other screens, each with where it is: `p on the start screen (B ...)`."""
    actions = tuple(table)
    out = []
    for other, (way, place) in _WAYS.items():
        name = "in the panes" if other == ADAPTATION else f"on the {other} screen"
        for action in actions:
            if action.screen == other != screen and action.keys:
                where = f"{key_name(action.keys[0])} {name} ({key_of(way, actions)} {place})"
                out.append((action, where))
    return out


def ways_out(shown: Iterable[tuple[str, str, str]], table: Iterable[Action] = ACTIONS) -> int:
    """How many keys at a footer's end are there at any width: the way out, help, quit."""
    always = {a.id for a in table if a.rank >= WAY_OUT}
    return sum(id in always for _, _, id in shown)


def as_markdown(table: Iterable[Action] = ACTIONS) -> str:
    """The table for the documentation."""
    actions = tuple(table)
    lines: list[str] = []
    for screen in SCREENS:
        mine = [a for a in actions if a.screen == screen]
        if mine:
            lines += [
                "",
                f"### {screen.capitalize()}",
                "",
                "| key | action | id |",
                "|---|---|---|",
            ]
        for a in mine:
            keys = " ".join(f"`{key_name(k)}`" for k in a.keys)
            lines.append(f"| {keys} | {a.words} | `{a.id}` |")
    return "\n".join(lines).strip() + "\n"
