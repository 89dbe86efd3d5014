"""The one table of actions: what a person can do, with which key, when, and in which words.

Bindings, the footer, the help screen, the palette, the documentation and user keymaps all come from
here. `when` gives an empty text where the action can be done, else why not.
"""

from cubridge_tui.actions.conditions import idle
from cubridge_tui.actions.keys import (
    actions_of,
    as_markdown,
    clashes,
    elsewhere,
    footer,
    key_name,
    key_named,
    key_of,
    ways_out,
    with_keys,
)
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

__all__ = [
    "ACCEPT", "ACTIONS", "ADAPTATION", "COST", "EVERYWHERE", "GPU", "HUNKS", "MASK", "MODEL",
    "REPLAY", "SCREENS", "START", "Action", "actions_of", "as_markdown", "clashes", "elsewhere",
    "footer", "idle", "key_name", "key_named", "key_of", "ways_out", "with_keys",
]  # fmt: skip
