"""A step of a session in words: what was done, without the hashes and ids of the log's own line.

The log's line comes from `sessions.replay.describe`; summaries in older stores hold it as text.
"""

from __future__ import annotations

import re

_HASH = "[0-9a-f]{12}"
_WORDS = (
    (rf"(\w+): (\S+) is now {_HASH}", r"wrote \2"),
    (r"(\w+): removed (\S+)", r"removed \2"),
    (rf"accepted, ([\w-]+)(?: \(lowered {_HASH}\))?", r"accepted as \1"),
    (rf"kept transcript (.+) \({_HASH}\)(.*)", r"kept the transcript \1\2"),
    (rf"forked from (.+) at {_HASH}", r"forked from \1"),
    (r"undid decision \S+", "undid a decision"),
    (r"redid decision \S+", "made a decision again"),
)


def step_words(step: str) -> str:
    """What a session's step did, from the log's line of it; "nothing yet" where there is none."""
    if not step:
        return "nothing yet"
    for told, words in _WORDS:
        if (found := re.fullmatch(told, step)) is not None:
            return found.expand(words)
    if step.startswith("inputs changed: "):
        changed = re.sub(rf" {_HASH}(?=,|$)", "", step.removeprefix("inputs changed: "))
        return f"changed the {changed}"
    return step
