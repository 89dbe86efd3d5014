"""What a GPU job's result holds, checked in one place before anything reads it.

A result is a file from another machine. Whoever reads one may count on every field named here
having its type and range where it is there at all; fields that are not named are free JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from engine.worker.orchestration.checklist import SHORT, WHOLE
from engine.worker.orchestration.results import KIND, SCHEMA

MAX_DEPTH = 24
MAX_INT = 2**63 - 1
MAX_NUMBER = 1e18  # far past any time, rate or count, near enough that products stay finite
MAX_SIZE = 2**31 - 1
MAX_SAMPLE = 4096  # of one dimension: what is computed again on a CPU
MAX_ROWS = 100_000
VERDICTS = ("pass", "fail", "not_run")

Rule = Callable[[object, str], str]  # what is wrong with the value at a place, or empty
Fields = Mapping[str, tuple[bool, Rule]]


def fault(data: object) -> str:
    """What is wrong with a result, at its place (`times[3].ms`); empty where nothing is."""
    return _plain(data, "", 0) or _object(_RESULT)(data, "")


def fault_of_rows(details: object) -> str:
    """What is wrong with the checks and samples that a verdict's details carry; empty where nothing
    is and a check is there."""
    wrong = _plain(details, "", 0) or _object({n: _RESULT[n] for n in ("checks", "samples")})(
        details, ""
    )
    if not wrong and isinstance(details, Mapping) and not details["checks"]:
        return "no check is there"
    return wrong


def _plain(value: object, place: str, depth: int) -> str:
    """JSON of numbers that are finite and of texts that can be written, not nested for ever."""
    if depth > MAX_DEPTH:
        return f"{place} is nested more than {MAX_DEPTH} deep"
    if isinstance(value, Mapping):
        items = [(f"{place}.{name}" if place else str(name), name, v) for name, v in value.items()]
        wrong = (_text(name, place) or _plain(v, at, depth + 1) for at, name, v in items)
        return next(filter(None, wrong), "")
    if isinstance(value, list):
        found = (_plain(v, f"{place}[{n}]", depth + 1) for n, v in enumerate(value))
        return next(filter(None, found), "")
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, int):
        return "" if abs(value) <= MAX_INT else f"{place} is a number of more than 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{place} is not finite"
    return "" if value is None else f"{place} is no JSON"


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        return f"{place} is no text"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return f"{place or 'a name'} holds half a character"
    return ""


def _word(value: object, place: str) -> str:
    return "" if value is None or isinstance(value, str) else f"{place} is no text"


def _flag(value: object, place: str) -> str:
    return "" if isinstance(value, bool) else f"{place} is neither true nor false"


def _verdict(value: object, place: str) -> str:
    return "" if value in VERDICTS else f"{place} is none of {', '.join(VERDICTS)}"


def _deck(value: object, place: str) -> str:
    return "" if value in (WHOLE, SHORT) else f"{place} is neither {WHOLE} nor {SHORT}"


def _number(least: float, above: bool = False) -> Rule:
    def rule(value: object, place: str) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{place} is no number"
        inside = least < value if above else least <= value
        return "" if inside and value <= MAX_NUMBER else f"{place} is out of range"

    return rule


def _count(most: int = MAX_INT, least: int = 0) -> Rule:
    def rule(value: object, place: str) -> str:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{place} is no whole number"
        return "" if least <= value <= most else f"{place} is out of range"

    return rule


def _worst(value: object, place: str) -> str:
    """A share of what is allowed, or the word for one that is not finite."""
    return "" if isinstance(value, str) else _number(0)(value, place)


def _list(item: Rule) -> Rule:
    def rule(value: object, place: str) -> str:
        if not isinstance(value, list):
            return f"{place} is no list"
        if len(value) > MAX_ROWS:
            return f"{place} has more than {MAX_ROWS} entries"
        found = (item(v, f"{place}[{n}]") for n, v in enumerate(value))
        return next(filter(None, found), "")

    return rule


def _map(item: Rule) -> Rule:
    def rule(value: object, place: str) -> str:
        if not isinstance(value, Mapping):
            return f"{place} is no object"
        return next(filter(None, (item(v, f"{place}.{k}") for k, v in value.items())), "")

    return rule


def _object(fields: Fields) -> Rule:
    def rule(value: object, place: str) -> str:
        if not isinstance(value, Mapping):
            return f"{place or 'it'} is no object"
        for name, (needed, check) in fields.items():
            at = f"{place}.{name}" if place else name
            if name in value:
                if wrong := check(value[name], at):
                    return wrong
            elif needed:
                return f"{at} is missing"
        return ""

    return rule


def _timed(value: object, place: str) -> str:
    """A timed row has a time and its spread; one without a time, a reason."""
    if isinstance(value, Mapping) and "ms" in value:
        return _object(_MEASURED)(value, place)
    return _object(_UNTIMED)(value, place)


def _must(rule: Rule) -> tuple[bool, Rule]:
    return True, rule


def _may(rule: Rule) -> tuple[bool, Rule]:
    return False, rule


_RESOURCES = {
    "specialisation": _may(_text), "registers": _may(_count()),
    "spill_stores": _may(_count()), "spill_loads": _may(_count()),
}  # fmt: skip
_NOTES = {"resources": _may(_list(_object(_RESOURCES)))}
_CHECK = {
    "check": _must(_text), "specialisation": _must(_text), "verdict": _must(_verdict),
    "cases": _may(_count()), "seconds": _may(_number(0)), "failed": _may(_count()),
    "failures": _may(_list(_text)), "reason": _may(_text), "worst": _may(_worst),
    "worst_case": _may(_text), "notes": _may(_object(_NOTES)), "case": _may(_text),
    "deck": _may(_deck), "name": _may(_text), "mutant": _may(_text),
}  # fmt: skip
_MUTANT = {
    "mutant": _must(_text), "verdict": _must(_verdict), "reason": _may(_text),
    "specialisation": _may(_text), "change": _may(_text),
}  # fmt: skip
_PREDICTION = {
    "tflops": _may(_number(0)), "bound": _may(_word), "reason": _may(_text),
}  # fmt: skip
_UNTIMED = {"case": _must(_text), "name": _must(_text), "reason": _must(_text)}
_MEASURED = {
    "case": _must(_text), "name": _must(_text), "reason": _may(_text), "note": _may(_text),
    "ms": _must(_number(0, above=True)), "iqr_ms": _must(_number(0)), "tflops": _may(_number(0)),
    "samples": _may(_count()), "ours_is": _may(_number(0)), "of_floor": _may(_number(0)),
    "floor_ms": _may(_number(0)), "matmul_tflops": _may(_number(0, above=True)),
    "copy_gbs": _may(_number(0, above=True)), "flops": _may(_number(0)),
    "pairs": _may(_number(0)), "mask": _may(_text), "dtype": _may(_text),
    "prediction": _may(_object(_PREDICTION)), "sizes": _may(_map(_count(MAX_SIZE))),
}  # fmt: skip
_TENSOR = {
    "dtype": _must(_text), "shape": _must(_list(_count(MAX_SIZE))), "data": _must(_text),
}  # fmt: skip
_SAMPLE = {
    "specialisation": _must(_text), "sizes": _must(_map(_count(MAX_SAMPLE))),
    "seed": _must(_count(MAX_SIZE)), "turn": _must(_count(MAX_SIZE)), "dtype": _must(_text),
    "inputs": _must(_map(_text)), "outputs": _must(_map(_object(_TENSOR))),
}  # fmt: skip
_DEVICE = {name: _may(_word) for name in ("name", "arch", "driver", "torch", "compiler", "when")}


def _is(wanted: object) -> Rule:
    return lambda value, place: "" if value == wanted else f"{place} is not {wanted!r}"


_RESULT = {
    "kind": _must(_is(KIND)), "schema": _must(_is(SCHEMA)), "name": _must(_text),
    "title": _may(_text), "primary": _must(_text), "state": _must(_text),
    "verdict": _must(_verdict), "reason": _must(_text), "method": _must(_text),
    "worker": _may(_text), "cuir": _may(_word), "keys": _must(_list(_text)),
    "declared": _may(_list(_text)), "softmax": _may(_flag), "lists": _may(_flag),
    "hashes": _must(_map(_text)), "device": _must(_object(_DEVICE)),
    "checks": _must(_list(_object(_CHECK))), "times": _must(_list(_timed)),
    "self_test": _must(_list(_object(_MUTANT))), "samples": _may(_list(_object(_SAMPLE))),
    "events": _may(_list(_text)),
}  # fmt: skip
