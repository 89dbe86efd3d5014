"""Which options a server takes, learnt from its refusals.

Servers refuse a whole request over one option that they do not know or a cap on the answer that is
too large for them. What is learnt only grows (an option once left out stays out, the cap is renamed
once and lowered a few times), so a server that refuses everything is asked a bounded number of
times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# In this order an option that a server may not know is left out.
LADDER: Sequence[str] = ("stream_options", "seed", "temperature")
# The cap on an answer's tokens, by its older and newer name.
CAPS: Sequence[str] = ("max_tokens", "max_completion_tokens")
LOWERINGS = 2  # the model's own cap, and what the prompt leaves of its context

_NUMBER = r"[`'\"]?(\d{1,3}(?:,\d{3})+|\d+)(?![\w-])"
_CAP = re.compile(r"max[_ ]?(?:new|completion|output)?[_ ]?tokens", re.IGNORECASE)
_SIZE = re.compile(
    r"too (?:large|big|high|long|many)|exceed|at most|up to|no more than|maximum|limit|"
    r"less than|<|≤|>|\brange\b|between",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"(?:at most|up to|no more than|less than(?: or equal to)?|between \d+ and|"
    r"(?:maximum|limit|exceeds?)[^.\d]{0,60}?|<=?|≤|>|\[\s*\d+\s*,)\s*" + _NUMBER,
    re.IGNORECASE,
)
_BELOW = re.compile(r"from \d+(?: \(inclusive\))? to " + _NUMBER + r" \(exclusive\)", re.IGNORECASE)
_CONTEXT = re.compile(r"(?:context (?:length|window)[^.\d]{0,40}|<=\s*)" + _NUMBER, re.IGNORECASE)
_PROMPT = re.compile(
    _NUMBER + r"\s+(?:tokens?\s+)?(?:(?:in|from) (?:the|your) (?:input|prompt|message)|"
    r"`?(?:inputs?|prompt|message)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a server's refusals have taught about the options that it takes."""

    left_out: frozenset[str] = frozenset()
    renamed: bool = False  # max_tokens goes by its newer name
    caps: tuple[int, ...] = ()  # each lower than the one before

    def applied(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options as this server takes them."""
        made = dict(options)
        if self.renamed and "max_tokens" in made:
            made["max_completion_tokens"] = made.pop("max_tokens")
        for name in CAPS:
            if name in made and self.caps:
                made[name] = min(made[name], *self.caps)
        return {name: value for name, value in made.items() if name not in self.left_out}


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one refusal taught, and the words to tell it in."""

    learnt: Learnt
    note: str


def learn(sent: Mapping[str, Any], learnt: Learnt, message: str) -> Lesson | None:
    """What a refusal of `sent` teaches; None where no other options can cure it.

    A message that names an option decides; one that names none costs the first of the ladder.
    """

    def leave_out(name: str) -> Lesson:
        made = replace(learnt, left_out=learnt.left_out | {name})
        return Lesson(made, f"the server does not take {name}: sent without it")

    cap = next((name for name in CAPS if name in sent), None)
    lower = _lower_cap(sent[cap], message) if cap else None
    if cap and lower and len(learnt.caps) < LOWERINGS:
        made = replace(learnt, caps=(*learnt.caps, lower))
        return Lesson(made, f"the server takes no {cap} above {lower}: sent with {lower}")
    present = [name for name in LADDER if name in sent]
    named = next((name for name in present if name in message), None)
    if cap and _CAP.search(message):
        if _SIZE.search(message):
            return None  # too large, and nothing says what is not
        if cap == "max_tokens" and "max_completion_tokens" in message:
            # Newer models know only the new name, older servers only the old one.
            words = "the server does not take max_tokens: sent as max_completion_tokens"
            return Lesson(replace(learnt, renamed=True), words)
        return leave_out(named or cap)
    vague = not any(word in message.lower() for word in ("context", "token", "model", "message"))
    chosen = named or (present[0] if present and vague else None)
    return leave_out(chosen) if chosen else None


def _lower_cap(cap: int, message: str) -> int | None:
    """The cap that a message about its size allows; None where it names none below `cap`.

    Where it counts context and prompt, the cap is what the prompt leaves of the context.
    """
    context, prompt = _CONTEXT.search(message), _PROMPT.search(message)
    if context and prompt:
        allowed = [_whole(context[1]) - _whole(prompt[1])]
    elif "context length" in message.lower() or not _CAP.search(message):
        return None
    else:
        allowed = [_whole(found[1]) for found in _LIMIT.finditer(message)]
        allowed += [_whole(found[1]) - 1 for found in _BELOW.finditer(message)]
    return max((number for number in allowed if 0 < number < cap), default=None)


def _whole(digits: str) -> int:
    return int(digits.replace(",", "")[:18])
