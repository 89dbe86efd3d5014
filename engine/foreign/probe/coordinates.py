"""Says what was seen at a place in the source's own variables: coordinates, sizes, scale, loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.foreign.probe.blocks import Block, first_row
from engine.foreign.probe.boundaries import Boundary, Variable
from engine.foreign.probe.boundaries import Loop as Head
from engine.foreign.probe.coverage import Held
from engine.foreign.probe.fit import Column, Sum, by_element, solve, spelled, thread_bits
from engine.foreign.probe.meanings import End
from engine.foreign.probe.places import ELEMENT, Loop, Place, Row
from engine.foreign.probe.run import Sizes
from engine.foreign.probe.tracks import Track
from engine.ptx.isa.observe import THREAD_BITS

Array = np.ndarray[Any, Any]
_NAMES = ("b", "h", "i", "j")


@dataclass(frozen=True, slots=True)
class Seen:
    """One run at a place: the scores' track, and the numbers in scope by their text."""

    sizes: Sizes
    scale: float
    held: Held
    track: Track
    numbers: Mapping[str, Track]
    grids: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]

    @property
    def there(self) -> Array:
        """The visits that hold a score at all."""
        return np.asarray((self.held.pairs >= 0).any(1))

    def coordinates(self) -> tuple[Array, Array]:
        """b, h, i, j of each visit and element, [4, visits, elements], and which are there."""
        pairs = self.held.pairs[self.there]
        rest = np.maximum(pairs, 0)
        out = []
        for name in ("Nk", "Nq", "Hq", "B"):
            rest, one = np.divmod(rest, self.sizes[name])
            out.append(one)
        return np.stack(out[::-1]), pairs >= 0

    def hardware(self) -> dict[str, Array]:
        """What the hardware's registers held."""
        threads = self.track.threads[self.there]
        launch, thread = threads >> THREAD_BITS, threads & (1 << THREAD_BITS) - 1
        grids = np.array([self.grids[n][0] for n in range(len(self.grids))])[launch]
        blocks = np.array([self.grids[n][1] for n in range(len(self.grids))])[launch]
        number, inside = np.divmod(thread, blocks.prod(1))
        out: dict[str, Array] = {}
        for name, whole, sides in (("threadIdx", inside, blocks), ("blockIdx", number, grids)):
            rest = whole
            for k, axis in enumerate("xyz"):
                out[f"{name}.{axis}"] = rest % sides[:, k]
                rest = rest // sides[:, k]
        return out


def explain(at: Boundary, expression: str, seen: Sequence[Seen]) -> tuple[Place, list[Loop]] | str:
    """A place with its coordinates, and the loops around it that visit the keys; else why not."""
    columns = _columns(seen)
    targets = [s.coordinates() for s in seen]
    texts: dict[str, str] = {}
    names = _always(seen)
    heads = np.concatenate(
        [np.full(t[0][0].shape, s.sizes["Hq"]) for t, s in zip(targets, seen, strict=True)]
    )
    valid = np.concatenate([t[1] for t in targets])
    every = {n: np.concatenate([t[0][k] for t in targets]) for k, n in enumerate(_NAMES)}
    every["bh"] = every["b"] * heads + every["h"]
    why: dict[str, str] = {}
    keys: dict[str, Array] = {}
    for name, target in every.items():
        if name == "bh" and not why:
            break
        split = by_element(target, valid)
        if split is None:
            why[name] = f"{name} of an element is not always as far from the first element's"
            continue
        found = solve(split[0], columns) or solve(split[0], [*columns, *_divided(columns, seen)])
        if found is None:
            why[name] = f"{name} is no sum of what is in scope there"
            continue
        found = replace(found, element=split[1])
        called = _factors(found, names, at.loops, columns)
        texts[name] = spelled(found, called)
        if name == "j":
            keys = {spelled(Sum(((w, c),), 0, {0: 0}), called): w * c.values
                    for w, c in found.terms if c.bit < 0}  # fmt: skip
    if {"i", "j"} - set(texts) or (why and "bh" not in texts):
        return "; ".join(why.values())
    variable = next(v for v in at.mentioned if v.name == expression)
    element = _element(variable, seen[0].held.words, max(seen[0].track.words) + 1)
    sizes = _sizes(seen)
    to_score, *alike = dict.fromkeys(_to_score(seen)) or ("",)
    if not to_score:
        return "nothing in scope there makes its numbers scale * (q . k)"
    place = Place(
        at.file, at.after, at.line, at.function, expression, len(seen[0].held.words), element,
        texts, sizes, to_score, at.indent, _signed({**texts, **sizes}, seen),
        tuple(alike),
    )  # fmt: skip
    rows = first_row([_block(s) for s in seen], columns)
    row = ("", 0)
    if rows is not None:
        row = spelled(rows[0], _factors(rows[0], names, at.loops, columns)), rows[1]
    return place, [replace(x, row=row[0], rows=row[1]) for x in _loops(at, seen, columns, keys)]


def _block(seen: Seen) -> Block:
    """The rows of each visit, and its block's number."""
    coordinates, valid = seen.coordinates()
    rows = coordinates[2]
    axes = np.stack([v for n, v in seen.hardware().items() if n.startswith("blockIdx")])
    number = np.ravel_multi_index(tuple(axes), tuple(axes.max(1, initial=0) + 1))
    return Block(number, np.where(valid, rows, 1 << 40).min(1), np.where(valid, rows, -1).max(1))


def row(at: Boundary, expression: str, held: End, evidence: str) -> Row:
    """A place of rows' numbers."""
    variable = next(v for v in at.mentioned if v.name == expression)
    element = _element(variable, held.words, len(held.words))
    return Row(
        held.what, at.file, at.after, at.line, at.function, expression, len(held.words), element,
        at.indent, held.unit, evidence,
    )  # fmt: skip


def _columns(seen: Sequence[Seen]) -> list[Column]:
    """All numbers that were seen in every run, and those of the hardware."""
    out: list[Column] = []
    shared = [t for t in seen[0].numbers if all(t in s.numbers for s in seen)]
    for text in shared:
        own = text[:-2] in ("threadIdx", "blockIdx")
        if own or any(s.numbers[text].kind in (1, 5) for s in seen):
            continue
        values = np.concatenate([s.numbers[text].numbers[s.there] for s in seen])
        known = all(s.numbers[text].known[s.there].all() for s in seen)
        if not known or np.abs(values).max(initial=0) > 1 << 40:
            continue
        plain = text.replace("_", "").isalnum()
        member = text.replace("_", "").replace(".", "").replace("::", "").isalnum()
        mixed = "threadIdx" in text or "blockIdx" in text or "Dim." in text
        words = f"int({text})" if mixed else text
        out.append(Column(words, values, 0 if plain else 1 if member else 3))
    hardware = [s.hardware() for s in seen]
    for name in hardware[0]:
        values = np.concatenate([h[name] for h in hardware]).astype(np.float64)
        out.append(Column(f"int({name})", values, 2))
        if name.startswith("threadIdx"):
            later = [c for c in out if c.cost == 0 and _counted_later(c, values)
                     and all(s.numbers[c.text].kind == 2 for s in seen)]  # fmt: skip
            counted = later[0] if later else out[-1]
            out += thread_bits(counted.text, counted.values)
    return out


def _counted_later(column: Column, threads: Array) -> bool:
    """Whether a variable of the source numbers threads from a later one than the block's first: its
    digits then have fewer terms."""
    apart = threads - column.values
    return bool(column.values.min() == 0 and apart[0] > 0 and not np.ptp(apart))


def _divided(columns: Sequence[Column], seen: Sequence[Seen]) -> Iterator[Column]:
    """Quotients and remainders of what varies by what is a size."""
    ends = np.cumsum([int(s.there.sum()) for s in seen])
    sizes, varied = [], []
    for column in columns:
        if column.cost > 2 or column.bit >= 0:
            continue
        parts = np.split(column.values, ends[:-1])
        if all(np.ptp(p) == 0 for p in parts):
            if all(1 < p[0] < 1 << 20 for p in parts):
                sizes.append(column)
        else:
            varied.append(column)
    for column in varied:
        if column.values.min() < 0:
            continue
        for size in sizes:
            yield Column(f"{column.text} / {size.text}", column.values // size.values, 5)
            yield Column(f"{column.text} % {size.text}", column.values % size.values, 5)


def _always(seen: Sequence[Seen]) -> dict[str, int]:
    """What in scope has one and the same value at all visits of all runs."""
    out: dict[str, int] = {}
    for text in seen[0].numbers:
        if not all(text in s.numbers and s.numbers[text].kind in (2, 3, 4) for s in seen):
            continue
        if not text.replace("_", "").replace(".", "").replace("::", "").isalnum():
            continue
        values = np.concatenate([np.unique(s.numbers[text].numbers) for s in seen])
        if not np.ptp(values):
            out[text] = int(values[0])
    return out


def _factors(
    found: Sum, names: Mapping[str, int], loops: Sequence[Head], columns: Sequence[Column]
) -> dict[str, str]:
    """What each term's factor is called: what the source multiplies it with where it spells the
    product, or the bound of a loop whose counter is a term beside (so many steps of the one are one
    of the other). That a name has a factor's value says nothing."""
    terms = {c.text for _, c in found.terms}
    spelled_ = {c.text for c in columns}
    bounds = {h.right_text for h in loops if h.counter in terms}
    own = {h.counter: h.right_text for h in loops}
    out: dict[str, str] = {}
    for weight, column in found.terms:
        same = [n for n, value in names.items() if value == weight]
        text = column.text
        said = [n for n in same if {f"{text} * {n}", f"{n} * {text}"} & spelled_]
        said += [n for n in same if n in bounds and own.get(text) != n]
        if said:
            out[text] = said[0]
    return out


def _element(variable: Variable, words: Sequence[int], count: int) -> str:
    """The C++ lvalue of element `@`."""
    whole = list(words) == list(range(count))
    if whole and count == 1:
        return variable.name
    if whole and variable.extents:
        parts, rest = [], ELEMENT
        for k in range(len(variable.extents)):
            after = " * ".join(
                f"({x})" if not x.isalnum() else x for x in variable.extents[k + 1 :]
            )
            by = f"({after})" if " * " in after else after
            part = rest if not by else f"{rest} / {by}"
            parts.append(part if k == 0 else f"{part} % {variable.extents[k]}")
        return variable.name + "".join(f"[{p}]" for p in parts)
    start = words[0]
    if list(words) != list(range(start, start + len(words))):
        listed = ", ".join(map(str, words))
        return f"reinterpret_cast<float*>(&{variable.name})[(const int[]){{{listed}}}[{ELEMENT}]]"
    offset = f"{ELEMENT} + {start}" if start else ELEMENT
    return f"reinterpret_cast<float*>(&{variable.name})[{offset}]"


def _sizes(seen: Sequence[Seen]) -> dict[str, str]:
    """What in scope is a size in every run, the first that is; of sizes that differ between runs,
    since anything may have one value by chance. Lengths that were one number in every run are one
    size, Nq: which of the two a variable is was not seen."""
    out: dict[str, str] = {}
    for name in ("B", "Hq", "Hkv", "Nq", "Nk", "D"):
        alike = name == "Nk" and all(s.sizes["Nq"] == s.sizes["Nk"] for s in seen)
        if len({s.sizes[name] for s in seen}) < 2 or alike:
            continue
        for text in seen[0].numbers:
            found = [s.numbers.get(text) for s in seen]
            if all(
                t is not None and t.kind in (2, 3, 4) and (t.numbers == s.sizes[name]).all()
                for t, s in zip(found, seen, strict=True)
            ):
                out[name] = text
                break
    return out


def _signed(texts: Mapping[str, str], seen: Sequence[Seen]) -> tuple[str, ...]:
    """Which of the texts are one variable that is a signed number of at most 32 bits."""
    return tuple(
        name for name, text in texts.items()
        if all(text in s.numbers and s.numbers[text].kind == 2 for s in seen)
    )  # fmt: skip


def _to_score(seen: Sequence[Seen]) -> Iterator[str]:
    """All that makes an element scale * (q . k), the first what the source itself has: a number in
    scope of that value, digits, 1 / sqrt of what is D in every run."""
    ratios = [s.scale / s.held.factor for s in seen]
    if all(abs(r - 1) < 1e-6 for r in ratios):
        yield "1.0f"
        return

    def always(text: str, kinds: tuple[int, ...], values: Sequence[float]) -> bool:
        found = [s.numbers.get(text) for s in seen]
        return all(t is not None and t.kind in kinds and np.allclose(t.numbers, v, 1e-6, 0)
                   for t, v in zip(found, values, strict=True))  # fmt: skip

    for by in (1.0, float(np.log(2)), float(np.log2(np.e))):
        for text in seen[0].numbers:
            if always(text, (1, 5), [r / by for r in ratios]):
                yield text if by == 1 else f"{text} * {by:.9g}f"
    if np.ptp(ratios) < 1e-9:
        digits = f"{ratios[0]:.9g}"
        yield f"{digits}f" if "." in digits else f"{digits}.0f"
    heads = [s.sizes["D"] for s in seen]
    if np.allclose(ratios * np.sqrt(heads), 1, rtol=1e-6):
        yield from (f"rsqrtf(float({t}))" for t in seen[0].numbers if always(t, (2, 3, 4), heads))


def _loops(
    at: Boundary, seen: Sequence[Seen], columns: Sequence[Column], terms: Mapping[str, Array]
) -> Iterator[Loop]:
    """The outermost loop whose counter says which keys an iteration visits.

    Args:
        terms: those of j, with their values.
    """
    values = {c.text: c.values for c in columns}
    for head in at.loops:
        if not head.counter or head.left is None or head.right is None:
            continue
        found = _keys(head.counter, seen)
        if found is None:
            continue
        each, keys, start, step = found
        own = each * values.get(head.counter, np.zeros(1))
        same = [t for t, value in terms.items() if np.array_equal(value, own)]
        key = same[0] if same else f"{head.counter} * {each}"
        if start:
            key += f" + {start}" if start > 0 else f" - {-start}"
        swapped = head.left_text != head.counter
        compare = _TURNED.get(head.operator, head.operator) if swapped else head.operator
        yield Loop(at.file, head.line, head.counter, head.first,
                   head.left if swapped else head.right, compare, keys, key, step)  # fmt: skip
        return


_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _keys(counter: str, seen: Sequence[Seen]) -> tuple[int, int, int, int] | None:
    """Keys from one count to the next, keys of an iteration, the first key at 0, and the counter's
    step; None for another loop. A counter may count keys, several an iteration, or iterations."""
    firsts: list[tuple[int, int, int]] = []
    steps: set[int] = set()
    for s in seen:
        if counter not in s.numbers:
            return None
        value = s.numbers[counter].numbers[s.there].astype(np.int64)
        coordinates, valid = s.coordinates()
        keys = np.where(valid, coordinates[3], 1 << 30)
        last = np.where(valid, coordinates[3], -1)
        for c in np.unique(value):
            mine = value == c
            firsts.append((int(c), int(keys[mine].min()), int(last[mine].max())))
        order = np.argsort(s.track.key[s.there], kind="stable")
        ranked, who = value[order], s.track.threads[s.there][order]
        moved = np.diff(ranked)[(np.diff(who) == 0) & (np.diff(ranked) != 0)]
        steps |= {int(m) for m in np.unique(moved)}
    counts = sorted(set(firsts))
    values = np.array(counts)
    if len({c for c, _, _ in counts}) < 2 or not steps:
        return None
    slope, start = np.polyfit(values[:, 0], values[:, 1], 1)
    a, b = round(float(slope)), round(float(start))
    if a <= 0 or (values[:, 0] * a + b != values[:, 1]).any():
        return None
    step = min(steps, key=abs)
    most = int((values[:, 2] - values[:, 1]).max()) + 1
    return None if most > a * abs(step) else (a, most, b, step)
