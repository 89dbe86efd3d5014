"""Values that a person gives to the tables and numbers that a mask reads, as text.

Values stand along the input's last dimension, with blanks or commas between them; `0*40` is forty
zeros, the last value goes on to the end, and `;` begins the next row of the dimension before.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.spec.recipes.kept_pairs import Table, example_value
from engine.spec.recipes.recipe import Input

Value = int | float | bool
Rows = tuple[tuple[tuple[Value, int], ...], ...]  # of each row its runs: a value, how often

MOST = 2**31 - 1
_BOOLS = {"0": False, "1": True, "false": False, "true": True}


def shape(item: Input) -> tuple[str, ...]:
    """An input's dimensions, those of one element left out."""
    return tuple(d for d in item.dims if d != "1")


def asks(item: Input) -> str:
    """What to type for an input, in a line."""
    dims = shape(item)
    head = f"{item.name}{'[' + ', '.join(dims) + ']' if dims else ''}, {item.dtype}: "
    if not dims:
        return f"{head}one value; empty for the example"
    rows = f"; `;` begins the next row of {dims[-2]}" if len(dims) > 1 else ""
    return (
        f"{head}values along {dims[-1]}, such as 0*40 1*24 2{rows}; the last goes on; "
        "empty for the example"
    )


def problem(item: Input, text: str) -> str:
    """Why a text gives an input no values; empty where it does, or gives the example."""
    try:
        if text.strip():
            parse(item, text)
    except ValueError as error:
        return str(error)
    return ""


def parse(item: Input, text: str) -> Rows:
    """The rows of a text. Raises `ValueError` with what is wrong, in words."""
    dims = shape(item)
    rows = tuple(tuple(_run(item, w) for w in row.replace(",", " ").split())
                 for row in text.split(";"))  # fmt: skip
    if not all(rows):
        raise ValueError("a row has no value: type at least one, such as 0")
    if len(rows) > 1 and len(dims) < 2:
        raise ValueError(f"{item.name} has one row: no `;`")
    if not dims and (len(rows[0]) > 1 or rows[0][0][1] > 1):
        raise ValueError(f"{item.name} is one value")
    return rows


def _run(item: Input, word: str) -> tuple[Value, int]:
    value, star, count = word.partition("*")
    if star and not (count.isascii() and count.isdigit() and 0 < int(count) <= MOST):
        raise ValueError(f"{word}: after * stands how often, such as 0*40")
    return _value(item, value), int(count) if star else 1


def _value(item: Input, word: str) -> Value:
    if item.dtype == "bool":
        if word.lower() not in _BOOLS:
            raise ValueError(f"{word or 'nothing'} is no flag: 0 or 1")
        return _BOOLS[word.lower()]
    if item.dtype in ("i32", "i64"):
        try:
            number = int(word)
        except ValueError:
            raise ValueError(f"{word or 'nothing'} is no whole number") from None
        if not -MOST <= number <= MOST:
            raise ValueError(f"{word} does not fit 32 bits")
        return number
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word or 'nothing'} is no number") from None


def table(given: Mapping[str, str]) -> Table:
    """The values as the picture asks for them: those given, else the examples.

    A text that is no value of its input (the spec changed since) gives the example.
    """
    known: dict[Input, Rows | None] = {}

    def value(item: Input, at: Mapping[str, int], sizes: Mapping[str, int]) -> Value:
        if item not in known:
            text = given.get(item.name, "")
            known[item] = parse(item, text) if text.strip() and not problem(item, text) else None
        rows = known[item]
        if rows is None:
            return example_value(item, at, sizes)
        places = list(at.values())
        row = rows[min(places[-2], len(rows) - 1)] if len(places) > 1 else rows[0]
        left = places[-1] if places else 0
        for one, count in row:
            if left < count:
                return one
            left -= count
        return row[-1][0]

    return value


def unreached(item: Input, text: str, sizes: Mapping[str, int]) -> int:
    """How many of the values of the longest row lie past the end at these sizes."""
    dims = shape(item)
    if not dims or not text.strip():
        return 0
    longest = max(sum(count for _, count in row) for row in parse(item, text))
    return max(longest - sizes.get(dims[-1], longest), 0)
