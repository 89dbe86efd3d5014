"""Eager specs and mods drawn at random, and what reading one of them must hold.

A drawn spec is read, or refused as the user's with a reason; a recipe that is read computes what
the function computes at sizes of every remainder. Nothing here knows how specs are traced.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from engine.errors import SpecError
from engine.spec.python.load import surroundings
from engine.spec.python.program import program_of
from engine.spec.python.spec_file import read_source
from engine.spec.read import read_recipe
from engine.spec.recipes.recipe import Recipe
from engine.spec.validation.run_comparison import Misread, compare

HEAD = """\
import math
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int32
from torch import Tensor


"""
# ruff: noqa: E501  (a grammar reads better on few lines)

UNREAD = ("misread", "internal")  # words that stand for no reason
LENGTHS = (2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 34, 48, 63, 64, 65)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one spec: "read", "refused", or a failure with its words."""

    kind: str
    words: str


class Drawing:
    """One spec: its extra inputs and lines as they are drawn."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.extras: dict[str, str] = {}
        self.lines: list[str] = []

    def one(self, *choices: str) -> str:
        return self.pick.choice(choices)

    def number(self, low: int, high: int) -> int:
        return self.pick.randint(low, high)

    def size(self) -> str:
        """An expression of sizes that is at least 1 at lengths from 2 on."""
        n = self.one("nk", "nq", "nk", "heads", "dim")
        c = self.number(1, 9)
        return self.one(
            n, f"({n} + {c})", f"({n} - 1 + {c})", f"(2 * {n} + {c})", f"({n} // {c} + 1)",
            f"({n} % {c + 1} + 1)", f"max({n} - {c}, 1)", f"(({n} + {c}) // {c + 1} + 1)",
            f"({n} * {n} + 1)", f"math.ceil({n} / {c + 1})", "(nk + nq - 1)",
        )  # fmt: skip

    def real(self) -> str:
        """A factor that varies with sizes or not."""
        return self.one(
            "dim ** -0.5", "1 / math.sqrt(dim)", "0.25", f"1 / {self.size()}", f"{self.size()} ** -0.5",
            f"math.log({self.size()} + 1)", f"(1 / {self.size()} + 0.5)", "1.0",
        )  # fmt: skip

    def extra(self, name: str, declared: str) -> str:
        self.extras[name] = declared
        return name

    def position(self) -> str:
        """Something of i and j, integers."""
        c = self.number(1, 12)
        return self.one(
            "(j - i)", "(i - j).abs()", f"(i - j).clamp(-{c}, {c})", f"(j // {c})", f"(i % {c + 1})",
            "(j - i + nk - nq)", f"(i * {c} - j)", f"(j - i).clamp(max={self.size()})",
        )  # fmt: skip

    def keep(self, depth: int = 0) -> str:
        if depth < 2 and self.pick.random() < 0.4:
            a, b = self.keep(depth + 1), self.keep(depth + 1)
            return self.one(f"({a} & {b})", f"({a} | {b})", f"~({a} & {b})", f"({a} & ~{b})")
        c = self.number(1, 20)
        kind = self.number(0, 12)
        match kind:
            case 0:
                return "(j <= i)"
            case 1:
                return "(j <= i + nk - nq)"
            case 2:
                return f"(i - j < {self.one(str(c), self.size())})"
            case 3:
                return f"(j < {self.one(str(c), self.size())})"
            case 4:
                return f"({self.position()} % {c + 1} == 0)"
            case 5:
                return f"(i // {c} == j // {c})"
            case 6:
                doc = self.extra("doc", 'Int32[Tensor, "B Nk"]')
                return f"({doc}[:, None, None, :] >= 1)"
            case 7:
                valid = self.extra("valid", 'Bool[Tensor, "B Nk"]')
                return f"{valid}[:, None, None, :]"
            case 8:
                lengths = self.extra(self.one("lengths", "m", "b"), 'Int32[Tensor, "B"]')
                return f"(j < {lengths}[:, None, None, None] + {c})"
            case 9:
                valid = self.extra("valid", 'Bool[Tensor, "B Nk"]')
                return f"(j < {valid}.sum(-1)[:, None, None, None])"
            case 10:
                return (
                    f"torch.ones(nq, nk, dtype=torch.bool).tril({self.one('0', str(c), 'nk - nq')})"
                )
            case 11:
                return f"(j <= {self.size()} + i)"
        mask = self.extra("mask", 'Bool[Tensor, "B Hq Nq Nk"]')
        return mask

    def added(self) -> str:
        """A term of the score."""
        c = self.number(2, 9)
        match self.number(0, 10):
            case 0:
                return f"{self.real()} * {self.position()}"
            case 1:
                return f"{self.one('j', 'i')} / {self.size()}"
            case 2:
                self.lines.append("slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)")
                return "slope[:, None, None] * (j - i)"
            case 3:
                self.lines.append(
                    "slope = torch.tensor([2.0 ** (-8 * (n + 1) / 2 ** math.floor(math.log2(heads)))"
                    " for n in range(heads)])"
                )
                return "slope[:, None, None] * j"
            case 4:
                return self.extra(
                    "bias", f'Float[Tensor, "{self.one("B Hq", "1 Hq", "1 1")} Nq Nk"]'
                )
            case 5:
                table = self.extra("near", f'Float[Tensor, "{2 * c + 1} Hq"]')
                return f"{table}[(j - i).clamp(-{c}, {c}) + {c}].permute(2, 0, 1)"
            case 6:
                table = self.extra("buckets", 'Float[Tensor, "8 Hq"]')
                self.lines += [
                    "far = (i - j).abs()",
                    f"log = (4 + torch.log(far.float() / 4) / math.log({8 * c}) * 4).long()",
                    "bucket = torch.where(far < 4, far, torch.clamp(log, max=7))",
                ]
                return f"F.embedding(bucket, {table}).permute(2, 0, 1)"
            case 7:
                return f"({self.keep(2)}).to(q.dtype)" if self.one("a", "b") == "a" else "0.0"
            case 8:
                table = self.extra("per_head", 'Float[Tensor, "Hq"]')
                return f"{table}[:, None, None] * {self.position()}"
            case 9:
                self.lines.append(
                    "grid = torch.stack(torch.meshgrid(torch.arange(nq), torch.arange(nk),"
                    ' indexing="ij")).float()'
                )
                return f"(grid[0] * {c} - grid[1]).abs() / {self.size()}"
        return f"torch.sin({self.position()} / {self.size()})"

    def eager(self) -> str:
        body = self.lines
        scale = self.real()
        body.append(f"s = (q @ k.mT) * {scale}")
        for _ in range(self.number(0, 2)):
            body.append(f"s = s + {self.added()}")
        if self.pick.random() < 0.2:
            body.append(f"s = {self.number(2, 30)}.0 * torch.tanh(s / {self.number(2, 30)}.0)")
        for _ in range(self.number(0, 2)):
            keep = self.keep()
            fill = self.one('float("-inf")', 'float("-inf")', "-1e9", "torch.finfo(s.dtype).min")
            body.append(
                self.one(
                    f"s = s.masked_fill(~{keep}, {fill})", f"s = torch.where({keep}, s, {fill})"
                )
            )
        body.append(
            self.one(
                "return s.softmax(-1).to(v.dtype) @ v", "return F.softmax(s, -1).to(v.dtype) @ v",
                "return s.softmax(-1) @ v",
                "e = torch.exp(s - s.amax(-1, keepdim=True))\n    return (e / e.sum(-1, keepdim=True)).to(v.dtype) @ v",
                f"return torch.sigmoid(s).to(v.dtype) @ v / {self.size()}",
            )
        )  # fmt: skip
        q, kv = '"B Hq Nq D"', '"B Hq Nk D"'
        grouped = self.pick.random() < 0.3
        if grouped:
            kv = '"B Hkv Nk D"'
        extras = "".join(f", {n}: {d}" for n, d in self.extras.items())
        many = ", **kwargs" if self.pick.random() < 0.1 else ""
        start = ["nq, nk, heads, dim = q.shape[2], k.shape[2], q.shape[1], q.shape[3]"]
        if grouped:
            start.append("k, v = (t.repeat_interleave(heads // k.shape[1], 1) for t in (k, v))")
        start += ["i = torch.arange(nq)[:, None]", "j = torch.arange(nk)[None, :]"]
        text = "".join(f"    {line}\n" for line in (*start, *body))
        return (
            f"{HEAD}def attention(q: Float[Tensor, {q}], k: Float[Tensor, {kv}], "
            f"v: Float[Tensor, {kv}]{extras}{many}):\n{text}"
        )

    def mods(self) -> str:
        """A FlexAttention factory of the same masks and terms, where they need no extra input."""
        keep = next(
            k for k in iter(self.keep, None) if not self.extras_and_clear() and "torch" not in k
        )
        term = f"{self.one('0.5', f'1 / {self.size()}')} * {self.position()}"
        body = [f"def mask(b, h, i, j):\n        return {keep}"]
        returned = "mask"
        if self.pick.random() < 0.6:
            body.append(f"def score(s, b, h, i, j):\n        return s + {term}")
            returned = "score, mask"
        text = "".join(f"    {line}\n" for line in ("nq, nk, heads, dim = Nq, Nk, Hq, D", *body))
        return f"{HEAD}def attention_mods(Nq, Nk, Hq, D):\n{text}    return {returned}\n"

    def extras_and_clear(self) -> bool:
        """Whether the last draw asked for extra inputs; they are forgotten."""
        had = bool(self.extras)
        self.extras.clear()
        return had


def draw_spec(seed: int) -> str:
    """The text of spec number `seed`."""
    drawing = Drawing(seed)
    return drawing.mods() if seed % 6 == 5 else drawing.eager()


def sizes_of_all_remainders(seed: int, count: int) -> list[dict[str, int]]:
    """`count` sizes, lengths of all remainders among them after a few specs."""
    pick = random.Random(f"sizes {seed}")
    out = []
    for _ in range(count):
        groups = pick.choice((1, 1, 2, 3))
        kv = pick.choice((1, 2, 3, 4))
        lengths = pick.choice(LENGTHS), pick.choice(LENGTHS)
        out.append({
            "B": pick.choice((1, 2)), "Hq": groups * kv, "Hkv": kv, "Nq": lengths[0],
            "Nk": lengths[1], "D": pick.choice((4, 6, 8)), "Dv": 4,
        })  # fmt: skip
    return out


def outcome_of(seed: int, folder: Path, runs: int) -> Outcome:
    """Read spec `seed`, and hold its recipe against its function at `runs` other sizes."""
    path = folder / f"spec_{seed}.py"
    path.write_text(draw_spec(seed))
    found = read_drawn(path)
    return found if isinstance(found, Outcome) else held(path, found, seed, runs)


def read_drawn(path: Path) -> Recipe | Outcome:
    """The recipe of a drawn spec, or what stands in its way."""
    try:
        return read_recipe(path)
    except SpecError as error:
        wrong = any(word in error.message for word in UNREAD)
        return Outcome("misread" if wrong else "refused", error.message)
    except Exception as error:
        return Outcome("internal", f"{type(error).__name__}: {error}")


def held(path: Path, recipe: Recipe, seed: int, runs: int) -> Outcome:
    """The recipe held against the function of the spec at `path` at `runs` sizes."""
    program = program_of(read_source(path, {}))
    with surroundings(program.source):
        for n, sizes in enumerate(sizes_of_all_remainders(seed, runs)):
            try:
                compare(program, recipe, sizes, 1.0, n)
            except Misread as error:
                return Outcome("false", error.message)
            except SpecError as error:
                if error.__cause__ is None:
                    return Outcome("false", error.message)
    return Outcome("read", "")


__all__ = [
    "Outcome",
    "draw_spec",
    "held",
    "outcome_of",
    "read_drawn",
    "sizes_of_all_remainders",
]
