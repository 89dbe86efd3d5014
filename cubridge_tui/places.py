"""Where the person was in each session: focus, cursors, layout, drafts. Losing it loses no work."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

KEPT = 200  # sessions


@dataclass(frozen=True, slots=True)
class Place:
    """`cursors` are line numbers by stage; `hunk` is the one whose head line the leading cursor was
    on, which is no line of the text; `drafts` are texts of edits that do not parse;
    `values` are those that a person gave to what the mask reads, by input.
    """

    focus: str = ""
    view: str = ""
    pair: int | None = None
    zoom: bool = False
    cursors: Mapping[str, int] = field(default_factory=dict)
    drafts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hunk: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


def state_dir(environment: Mapping[str, str] | None = None) -> Path:
    """$XDG_STATE_HOME/cubridge, else ~/.local/state/cubridge."""
    env = os.environ if environment is None else environment
    named = env.get("XDG_STATE_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".local" / "state"
    return base / "cubridge"


def _file() -> Path:
    return state_dir() / "places.json"


def load(session: str) -> Place:
    """The place kept for a session; the beginning when there is none or it cannot be read."""
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))[session]
        drafts = {str(k): (str(v[0]), str(v[1])) for k, v in data["drafts"].items()}
        cursors = {str(k): int(v) for k, v in data["cursors"].items()}
        pair = data["pair"] if data["pair"] in (0, 1, 2, 3) else None
        return Place(
            str(data["focus"]), str(data["view"]), pair, bool(data["zoom"]), cursors, drafts,
            str(data.get("hunk", "")),
            {str(k): str(v) for k, v in data.get("values", {}).items()},
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return Place()


def save(session: str, place: Place) -> None:
    """Keep a session's place; a file that cannot be written is left alone."""
    path = _file()
    with contextlib.suppress(OSError, ValueError):
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            kept = {}
        kept = kept if isinstance(kept, dict) else {}
        kept.pop(session, None)
        kept[session] = asdict(place)
        kept = dict(list(kept.items())[-KEPT:])
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        os.replace(name, path)
