"""What an action's condition may ask: the state of the screen in a few plain words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """A text that is not empty is the reason why something cannot be done.

    `job` is what runs now; `hunk` the hunk under the cursor; `open` counts undecided hunks;
    `failed` is the first gate that failed, `refused` the step that ended with an error;
    `undo` and `redo` say in a few words what would be undone and made again;
    `proposed` says whether there is any proposal, which may have no hunk;
    `changed` names what changed on disk; `accepted`, `lifted`, `lowered`, `recipe` and
    `times` say whether there are any; `asking` is how far a model's run is (ready, running,
    waiting, done), `attempts` counts its answers, `topics` what could be asked for;
    `session` is the one that is open (empty: not saved yet) or under the cursor of the start
    screen, `deleted` the one that was deleted last, `on_sessions` says that its list leads,
    `pair_blocked` why the chosen kernel and spec
    cannot be adapted;
    `opaque` is the opaque op under the cursor, `unmeant` counts those without meaning.
    """

    job: str = ""
    read_only: str = ""
    step_blocked: str = "open a session first"
    diff_blocked: str = ""
    accept_blocked: str = "no session is open"
    hunks: int = 0
    proposed: bool = False
    hunk: str = ""
    open: int = 0
    undo: str = ""
    redo: str = ""
    accepted: bool = False
    failed: str = ""
    refused: str = ""
    search: str = ""
    changed: str = ""
    lowered: bool = False
    recipe: bool = False
    times: bool = False
    lifted: bool = False
    asking: str = ""
    attempts: int = 0
    topics: int = 0
    session: str = ""
    deleted: str = ""
    on_sessions: bool = False
    pair_blocked: str = ""
    opaque: str = ""
    unmeant: int = 0
