"""What a recipe does to one score, as statements of C++ at a place of a foreign source.

The expressions are written by the lowerer's own emitter; the names of the recipe (x, b, h, i, j,
sizes, inputs) are what probing found that the source calls them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from engine.cuir.functions import FUNCTIONS
from engine.cuir.nodes import (
    MIRRORED,
    Binary,
    Call,
    Compare,
    Expr,
    Index,
    Name,
    Num,
    Unary,
    names_in,
    walk_expr,
)
from engine.cuir.rewrite import map_expr
from engine.errors import LowerError, TransferError
from engine.foreign.probe.places import ELEMENT, Place
from engine.lower.spelling.cpp_kinds import Kinds
from engine.lower.spelling.emit import Emitter, Names
from engine.lower.spelling.templates import default_templates
from engine.scalar_algebra.rewrite import TRUE, all_of, any_of, conjuncts, disjuncts
from engine.spec.recipes.recipe import Input, Recipe
from engine.transfer.linear import Linear, linear, linear_difference, tidy
from engine.transfer.logic import factored, negate

X = Name("x")
COORDINATES = {"b": "batch", "h": "head", "i": "row", "j": "key"}
# No names that a recipe may have: a scaled score, and what brings the element to it; how far a key
# is ahead of its row, or of the last row's own keys where the two lengths differ, and the same as a
# float.
SCORE, TO_SCORE = Name("scale * x"), Name("to scale * x")
AHEAD, FLOATED = Name("j - i"), Name("float(j - i)")
SIZES = ("B", "Hq", "Hkv", "Nq", "Nk", "D", "Dv")
# The functions of CUDA's own headers, in single precision.
_CUDA = {n: f.also[0] for n, f in FUNCTIONS.items() if f.also and f.gives == "float"}
_CUDA |= {n: n for n in ("abs", "min", "max", "erf", "sin", "cos")}
_ATOM = re.compile(r"[\w.:]+|([\w.:]|->)*\w(\[[^\[\]]*\]|\(([^()]|\([^()]*\))*\))*")
_PLAIN = re.compile(r"[\w.]+")
_ONE = ("1.0f", "1")
_NOTHING = "0x1p-126f"  # the least that no compiler's flag makes 0
_SCORES = {X.id, SCORE.id}
_OF_ELEMENTS = _SCORES | {"i", "j", AHEAD.id, FLOATED.id}
_SUM, _PRODUCT, _STRONG = 10, 11, 14  # binding strengths, as the emitter counts them
_KINDS = {"f32": "f32", "T": "f32", "f16": "f32", "bf16": "f32", "i32": "i32", "i64": "i64",
          "bool": "bool"}  # fmt: skip

Terms = list[tuple[str, str]]  # of a sum in C++: "+" or "-", and the term


@dataclass(frozen=True, slots=True)
class Written:
    """The statements that stand at a place, and which clauses of the recipe they carry.

    Args:
        inputs: the recipe's extra inputs that they read, which the place must be given.
    """

    text: str
    clauses: tuple[str, ...]
    inputs: tuple[str, ...]


def masked_or_scored(recipe: Recipe) -> tuple[Expr | None, Expr | None]:
    """What becomes of `SCORE` (None: nothing), and which pairs are dropped (None: none).

    Raises:
        TransferError: the recipe asks for what is no edit of a score.
    """
    if recipe.weight is not None or recipe.late is not None:
        raise TransferError("a weight that is no softmax's is not carried into a foreign kernel")
    if recipe.other is not None:
        raise TransferError("a second attention beside the first is not carried into a foreign "
                            "kernel")  # fmt: skip
    if recipe.sink is not None or recipe.changes_output or recipe.changes_operands:
        raise TransferError(
            "only scores and masks are carried into a foreign kernel: this spec also changes "
            + ", ".join(
                words
                for words, asked in (
                    ("q or k before the product", recipe.changes_operands),
                    ("the sum of a row (a sink)", recipe.sink is not None),
                    ("the output", recipe.changes_output),
                )
                if asked
            )
        )
    dropped = negate(factored(recipe.keep))
    return _of_scaled(recipe.score), None if dropped == Num(False) else dropped


def same_effect(a: Recipe, b: Recipe, equal_lengths: bool) -> bool:
    """Whether two recipes are written with the same scores and the same mask."""
    scores = [_of_scaled(recipe.score) or SCORE for recipe in (a, b)]
    if equal_lengths:
        scores = [one_length(e) for e in scores]
    return scores[0] == scores[1] and same_mask(a, b, equal_lengths)


def same_mask(a: Recipe, b: Recipe, equal_lengths: bool) -> bool:
    """Whether two recipes keep the same pairs."""
    return _kept(a, equal_lengths) == _kept(b, equal_lengths)


def beside(recipe: Recipe, own: Recipe, equal_lengths: bool) -> Recipe | None:
    """The recipe with what is left of its mask where pairs that `own` drops are dropped already;
    None where those are none, or some of them are kept."""
    left, there = (conjuncts(_kept(r, equal_lengths)) for r in (recipe, own))
    if TRUE in there or not set(there) <= set(left):
        return None
    return replace(recipe, keep=all_of([part for part in left if part not in there]))


def _kept(recipe: Recipe, equal_lengths: bool) -> Expr:
    kept = factored(recipe.keep)
    return one_length(kept) if equal_lengths else kept


def _of_scaled(score: Expr) -> Expr | None:
    """The score over `SCORE`, q . k times 1 / sqrt(D); over x where another scale is asked for."""
    usual = (Call("rsqrt", (Name("D"),)), Binary("/", Num(1.0), Call("sqrt", (Name("D"),))))

    def scaled(node: Expr) -> Expr | None:
        match node:
            case Binary("*", Name("x"), factor) | Binary("*", factor, Name("x")):
                return SCORE if factor in usual else None
            case Binary("/", Name("x"), Call("sqrt", (Name("D"),))):
                return SCORE
        return None

    out = map_expr(score, scaled)
    return None if out == SCORE else out


def write(
    recipe: Recipe, place: Place, source: str, values: Mapping[str, str], minus: str,
    equal_lengths: bool, folded: bool = True, infinite: bool = False,
) -> Written:  # fmt: skip
    """The statements for one place.

    Args:
        source: the text of the place's file: new names are none of its words.
        values: how an extra input is called there.
        minus: what a dropped pair's score becomes: `-INFINITY`, or a number.
        equal_lengths: whether the kernel has one length for rows and keys.
        folded: whether the place's unit is put into what all scores share, which is fewer
            instructions, of a mask what needs no load comes first, and behind an input's last
            element that one is read; else as the recipe has the score, loads first, and behind the
            last element nothing is read. Which takes fewer registers the compiler says.
        infinite: whether the source has -inf in the place of pairs that it drops, which stays.

    Raises:
        TransferError: a coordinate, a size or a function that has no writing there.
    """
    score, dropped = masked_or_scored(recipe)
    if equal_lengths:
        score, dropped = (None if e is None else one_length(e) for e in (score, dropped))
        recipe = replace(recipe, inputs=tuple(map(_of_one_length, recipe.inputs)))
    if score is None and dropped is None:
        return Written("", (), ())
    at_end = False
    if place.elements > 1 and {"i", "j"} <= place.coordinates.keys():
        (score, dropped), at_end = _by_distance(score, dropped)
    writer = Writer(recipe, place, source, dict(values), at_end, clamped=folded)
    lines: list[str] = []
    if score is not None:
        lines += writer.score(score, folded, infinite)
    if dropped is not None:
        dropped = dropped if folded else _loads_first(dropped)
        lines.append(f"if ({writer.text(dropped)}) {writer.place.element} = {minus};")
    before, inside = _declared(writer.before), _declared(writer.inside)
    if place.elements > 1:
        e = writer.e
        loop = f"for (int {e} = 0; {e} < {place.elements}; ++{e}) {{"
        lines = ["#pragma unroll", loop, *(f"  {line}" for line in (*inside, *lines)), "}"]
    if before:  # in a block of their own, so that they hide nothing
        lines = ["{", *(f"  {line}" for line in (*before, *lines)), "}"]
    text = "".join(f"\n{place.indent}{line}" for line in lines)
    clauses = [c.kind for c in recipe.clauses]
    carried = [k for k in clauses if k in ("softcap", "bias", "score") and score is not None]
    carried += [k for k in clauses if k == "mask" and dropped is not None]
    return Written(text, tuple(dict.fromkeys(carried)), tuple(sorted(writer.read)))


def _declared(variables: Mapping[str, str]) -> list[str]:
    return [f"const int {name} = {text};" for name, text in variables.items()]


def _by_distance(*parts: Expr | None) -> tuple[list[Expr | None], bool]:
    """Expressions in how far a key is ahead of its row, where neither stands there alone: of many
    scores that is one number to be kept, and not two for each. True where the rows are the last of
    Nk: what they are compared with has no length in it then, and is a constant of the code."""
    for offset in (Binary("-", Name("Nk"), Name("Nq")), Num(0)):
        made = [None if p is None else _floated(map_expr(p, _ahead(offset))) for p in parts]
        used = names_in(*(p for p in made if p is not None))
        if used & {"i", "j"}:
            break
        if offset == Num(0) or not used & {"Nq", "Nk"}:
            return made, offset != Num(0)
    return list(parts), False


def _ahead(offset: Expr) -> Callable[[Expr], Expr | None]:
    def found_in(node: Expr) -> Expr | None:
        match node:
            case Compare(op, left, right) if _whole(node):
                found = linear_difference(left, right)
            case Binary("+" | "-") if _whole(node):
                op, found = "", linear(node)
            case _:
                return None
        i, j = Name("i"), Name("j")
        sign = found.coefficient(j)
        if abs(sign) != 1 or found.coefficient(i) != -sign:
            return None
        rest = found.without(i).without(j).plus(linear(offset).scaled(sign))
        if op:
            return Compare(op if sign == 1 else MIRRORED[op], AHEAD, rest.scaled(-sign).to_expr())
        return rest.plus(Linear(((AHEAD, sign),), 0)).to_expr()

    return found_in


def _loads_first(dropped: Expr) -> Expr:
    """Loads before what may spare them: no branch has to be round them then."""
    return any_of(sorted(disjuncts(dropped), key=_no_load))


def _no_load(expr: Expr) -> bool:
    return not any(isinstance(e, Index) for e in walk_expr(expr))


def _added(score: Expr) -> Expr | None:
    """What is added to the score, where nothing else becomes of it."""
    match score:
        case Binary("+", one, other) if not names_in(other) & _SCORES:
            left, right = one, other
        case Binary("+", other, one) if not names_in(other) & _SCORES:
            left, right = one, other
        case Binary("-", left, one) if not names_in(one) & _SCORES:
            right = Unary("-", one)
        case _:
            return None
    if left == SCORE:
        return right
    more = _added(left)
    return None if more is None else Binary("+", more, right)


def _floated(expr: Expr) -> Expr:
    """With the distance as a float where it meets one: what is a constant for each of the scores
    is added to it behind the conversion, exact below 2^24, and only one number is converted."""

    def met(node: Expr) -> Expr | None:
        match node:
            case Binary(op, left, right) if _whole(left) != _whole(right):
                floats = [map_expr(e, _as_float) if _whole(e) else e for e in (left, right)]
                return Binary(op, *floats)
        return None

    return map_expr(expr, met)


def _as_float(node: Expr) -> Expr | None:
    return FLOATED if node == AHEAD else None


def one_length(expr: Expr) -> Expr:
    """Nk and Nq are one number: differences of the two go."""

    def same(node: Expr) -> Expr | None:
        return Name("Nq") if node == Name("Nk") else None

    def short(node: Expr) -> Expr | None:
        match node:
            case Compare(op, left, right) if not any(isinstance(e, Index) for e in walk_expr(node)):
                return Compare(op, _tidy(left), _tidy(right))
            case Binary("+" | "-") if (made := _tidy(node)) != node:
                return made
        return None

    return map_expr(map_expr(expr, same), short)


def _of_one_length(item: Input) -> Input:
    return replace(item, dims=tuple("Nq" if dim == "Nk" else dim for dim in item.dims))


def _tidy(expr: Expr) -> Expr:
    """A whole number as a short sum; anything with a load or a float in it stays."""
    return tidy(expr) if _whole(expr) else expr


def _whole(expr: Expr) -> bool:
    """Whether all of it is whole numbers, without a load or a call."""
    return not any(isinstance(e, Index | Call) or e in (X, SCORE)
                   or (isinstance(e, Num) and isinstance(e.value, float))
                   for e in walk_expr(expr))  # fmt: skip


class Writer:
    """Writes expressions of a recipe in the words of a place.

    Args:
        at_end: whether the rows are the last of Nk where a distance is meant.
        inline: coordinates stand where they are used, and have no variable of their own.
        clamped: behind an input's last element that one is read, else nothing.
    """

    def __init__(
        self, recipe: Recipe, place: Place, source: str, values: Mapping[str, str],
        at_end: bool = False, inline: bool = False, clamped: bool = True,
    ) -> None:  # fmt: skip
        self.at_end, self.inline, self.clamped = at_end, inline, clamped
        self.values = values
        self.inputs = {i.name: i for i in recipe.extra()}
        brought = (*self.inputs, *values.values())  # not in the source yet
        self.words = frozenset(re.findall(r"\w+", " ".join((source, *brought))))
        self.e = self.fresh("e")
        self.place = _numbered(place, self.e)
        self.known: dict[str, str] = {}  # coordinates that have a variable of ours
        self.before: dict[str, str] = {}  # variables before a loop over elements
        self.inside: dict[str, str] = {}  # and in it
        self.read: set[str] = set()
        locals = dict.fromkeys((*_SCORES, TO_SCORE.id), "f32")
        locals |= dict.fromkeys((*COORDINATES, *SIZES, AHEAD.id), "i32")
        locals |= {FLOATED.id: "f32"} | {i.name: _KINDS[i.dtype] for i in self.inputs.values()}
        self.emitter = Emitter(
            Kinds(default_templates(), {}, {}, locals),
            Names(frozenset(), dict(_CUDA)),
            frozenset(_CUDA),
            reuse=self.spelled,
        )

    def fresh(self, name: str) -> str:
        while name in self.words:
            name += "_"
        return name

    def text(self, expr: Expr, need: int = 0) -> str:
        try:
            return self.emitter.text(expr, need)
        except LowerError as error:
            raise TransferError(f"{self.where}: {error.message}") from None

    @property
    def where(self) -> str:
        return f"{self.place.file.name}:{self.place.line}"

    def score(self, score: Expr, folded: bool, infinite: bool) -> list[str]:
        """The statements that put a new score into the element.

        Args:
            infinite: whether one that is -inf must stay it. A sum does so; to another score a
                product is added that is nothing beside a number.
        """
        more = _added(score)
        added = more if folded or self.place.to_score in _ONE else None
        sign, value = ("=", score) if added is None else ("+=", added)
        if self.place.to_score not in _ONE:
            value = self.in_unit(value) if folded else Binary("/", value, TO_SCORE)
        element, text = self.place.element, self.text(value)
        if infinite and more is None:
            text = f"fmaf({element}, {_NOTHING}, {text})"
        return [f"{element} {sign} {text};"]

    def in_unit(self, score: Expr) -> Expr:
        """A score in the unit of the place, which what is one number for all elements is brought
        to before the others."""
        match score:
            case Binary("*", left, right) if not names_in(left) & _OF_ELEMENTS:
                return Binary("*", self.in_unit(left), right)
            case Binary("*", left, right) if not names_in(right) & _OF_ELEMENTS:
                return Binary("*", self.in_unit(right), left)
        return Binary("/", score, TO_SCORE)

    def spelled(self, expr: Expr) -> tuple[str, int] | None:
        """What the source has for a name of the recipe, with how tightly it binds."""
        to = self.place.to_score
        match expr:
            case Name(SCORE.id):
                text = self.place.element
                if to in _ONE:
                    return text, _STRONG
                return f"{text} * {_in(to, _STRONG)}", _PRODUCT
            case Binary("*" | "/" as op, one, Num(value)) if one == SCORE and to not in _ONE:
                factor = self.text(Binary(op, TO_SCORE, Num(float(value))))
                return f"{self.place.element} * ({factor})", _PRODUCT
            case Name("x"):
                natural, _ = self.spelled(SCORE) or ("", 0)
                return f"{natural} * sqrtf({self.size('D')})", _PRODUCT
            case Name(TO_SCORE.id):
                return to, strength(to)
            case Name(id) if id in COORDINATES:
                text = self.coordinate(id)
                return text, strength(text)
            case Name(AHEAD.id | FLOATED.id as id):
                return self.distance(id == FLOATED.id)
            case Name(id) if id in SIZES:
                text = self.size(id)
                return text, strength(text)
            case Name(id) if id in self.inputs and not self.inputs[id].dims:
                self.read.add(id)
                return self.values.get(id, id), _STRONG
            case Index(Name(id), index) if id in self.inputs:
                return self.load(id, index), _STRONG
            case Call("sigmoid", (inner,)):
                return f"1.0f / (1.0f + expf(-{self.text(inner, _STRONG)}))", _PRODUCT
        return None

    def coordinate(self, name: str) -> str:
        """The source's own variable that holds a coordinate, else one of ours."""
        text = self.place.coordinates.get(name)
        if text is None:
            raise TransferError(f"{self.where}: nothing in scope there is {COORDINATES[name]}")
        if _PLAIN.fullmatch(text) and text != self.e:
            return self.as_int(name, text)
        if self.inline:
            return text
        if name not in self.known:
            fixed, own = self.terms(name)
            if fixed and own:
                first = self.variable(self.before, f"first_{COORDINATES[name]}", fixed)
                fixed = [("+", first)]
            where = self.inside if own else self.before
            self.known[name] = self.variable(where, COORDINATES[name], [*fixed, *own])
        return self.known[name]

    def distance(self, floated: bool) -> tuple[str, int]:
        """How far a key is ahead, with how tightly that binds."""
        if AHEAD.id not in self.known:
            (key, of_key), (row, of_row) = self.terms("j"), self.terms("i")
            ends = [("-", self.size("Nk")), ("+", self.size("Nq"))] if self.at_end else []
            where, ahead, own = self.before, [*key, *_less(row), *ends], [*of_key, *_less(of_row)]
            if not ahead:
                where, ahead, own = self.inside, own, ahead
            self.known[AHEAD.id] = self.variable(where, "ahead", ahead)
            self.known[FLOATED.id] = self.variable(self.inside, "own", own) if own else ""
        name, more = self.known[AHEAD.id], self.known[FLOATED.id]
        name = f"float({name})" if floated else name
        return (f"{name} + {more}", _SUM) if more else (name, _STRONG)

    def terms(self, name: str) -> tuple[Terms, Terms]:
        """A coordinate as a sum: what is one number for all elements, and what is each one's."""
        text = self.place.coordinates[name]
        if _PLAIN.fullmatch(text) and text != self.e:
            return [("+", self.as_int(name, text))], []
        own = re.compile(rf"\b{self.e}\b")
        parts = sum_terms(text)
        return [p for p in parts if not own.search(p[1])], [p for p in parts if own.search(p[1])]

    def variable(self, where: dict[str, str], name: str, terms: Terms) -> str:
        name = self.fresh(name)
        where[name] = _sum_of(terms)
        return name

    def size(self, name: str) -> str:
        text = self.place.sizes.get(name)
        if text is None and name == "Dv":
            text = self.place.sizes.get("D")
        if text is None:
            fix = "import the kernel with cases of two head sizes" if name in ("D", "Dv") else ""
            raise TransferError(f"{self.where}: nothing in scope there is {name}", fix=fix)
        return self.as_int(name if name in self.place.sizes else "D", text)

    def as_int(self, name: str, text: str) -> str:
        """A variable as an int: a difference of unsigned ones would be another number."""
        return text if text.isdigit() or name in self.place.signed else f"int({text})"

    def load(self, name: str, index: tuple[Expr, ...]) -> str:
        """An element of an extra input, which is contiguous. A tile's rows and keys may go on
        behind the last ones, where no score counts. Where nothing in scope says how many there are,
        executing it says whether it reads there."""
        self.read.add(name)
        dims = self.inputs[name].dims
        at: Expr = Num(0)
        there: list[str] = []
        for dim, item in zip(dims, index, strict=True):
            if dim == "1":
                continue
            size = Num(int(dim)) if dim.isdigit() else Name(dim)
            if names_in(item) & {"i", "j", AHEAD.id} and (
                isinstance(size, Num) or size.id in self.place.sizes
            ):
                if self.clamped or not _rises(item):
                    item = _clamped(item, size)
                else:
                    there.append(self.text(Compare("<", item, size)))
            at = item if at == Num(0) else Binary("+", Binary("*", at, size), item)
        text = f"{self.values.get(name, name)}[{self.text(at)}]"
        return f"({' && '.join(there)} ? {text} : 0)" if there else text


def _rises(index: Expr) -> bool:
    """Whether an index is at least 0 for each row and key."""
    found = linear(index)
    rises = all(isinstance(a, Name) and a != AHEAD and n > 0 for a, n in found.terms)
    return rises and found.constant >= 0


def _clamped(index: Expr, size: Expr) -> Expr:
    """An index as one of so many elements."""
    last = Num(size.value - 1) if isinstance(size, Num) else Binary("-", size, Num(1))
    least = Call("min", (index, last))
    return least if _rises(index) else Call("max", (least, Num(0)))


def _numbered(place: Place, e: str) -> Place:
    """The place with a name for the element's number."""
    named = {n: t.replace(ELEMENT, e) for n, t in place.coordinates.items()}
    return replace(place, element=place.element.replace(ELEMENT, e), coordinates=named)


def sum_terms(text: str) -> Terms:
    """The terms of a sum in C++, as probing writes one; anything else is one term."""
    if strength(text) != _SUM:
        return [("+", text)]
    parts, depth, at = [""], 0, 0
    while at < len(text):
        if depth == 0 and text[at : at + 3] in (" + ", " - "):
            parts += [text[at + 1], ""]
            at += 3
            continue
        depth += (text[at] in "([") - (text[at] in ")]")
        parts[-1] += text[at]
        at += 1
    return list(zip(["+", *parts[1::2]], parts[::2], strict=True))


def _less(terms: Terms) -> Terms:
    return [("-" if sign == "+" else "+", text) for sign, text in terms]


def _sum_of(terms: Terms) -> str:
    """The sum again; what is added stands before what is taken away."""
    terms = sorted(terms, key=lambda t: t[0] == "-")
    if len(terms) == 1 and terms[0][0] == "+":
        return terms[0][1]
    text = " ".join(f"{sign} {_in(term, _PRODUCT)}" for sign, term in terms)
    return text.removeprefix("+ ").replace("- ", "-", 1) if text[0] == "-" else text[2:]


def strength(text: str) -> int:
    """How tightly C++ text binds, in the emitter's words; 0 where that is not plain."""
    if _ATOM.fullmatch(text):
        return _STRONG
    flat = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", text)
    if re.search(r"[?<>=&|^,!()\[\]]", flat.replace("->", ".")):
        return 0
    return _SUM if re.search(r"[+\-]", flat.replace("->", ".")) else _PRODUCT


def _in(text: str, need: int) -> str:
    return text if strength(text) >= need else f"({text})"
