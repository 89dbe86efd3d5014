"""What was found in a kernel of others by executing it: where its scores stand, what else stands
where, and which loop visits the keys. Byte offsets are of the files as they are on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# The number of an element in C++ text: no sign of C++, so nothing of a source is taken for it.
ELEMENT = "@"


@dataclass(frozen=True, slots=True)
class Place:
    """A boundary between two statements, and a variable that holds scores there.

    Args:
        file: the source or a header, absolute, as the compiler opens it.
        after: a byte offset in it where whole statements may be inserted.
        line: 1-based, of the end of the statement before.
        function: the function's name.
        variable: the C++ lvalue as the source spells it: `sum`, `acc`, `tSrS`, `S[Bc * tx + y]`.
        elements: floats in it, of each thread, each time that the place is reached.
        element: the C++ lvalue of the float with number `@` (an int from 0 to `elements`): `sum`,
            `acc[@ / 4][@ % 4]`, `reinterpret_cast<float*>(&tSrS)[@]`; `s[n][e]` has none.
        coordinates: `b`, `h` (of the queries), `i`, `j` as C++ integer expressions in what is in
            scope there and `@`. Where the kernel itself does not tell the batch from the head (it
            has one number for both, and not Hq), `bh` is there, b Hq + h, and `b`, `h` or both are
            not.
        sizes: `B`, `Hq`, `Hkv`, `Nq`, `Nk`, `D` as C++ integer expressions in scope, where found.
        to_score: what an element must be multiplied with to give scale * (q . k), a C++ float
            expression in scope there; "1.0f" where it is one already. `alike`: others that are as
            right in the runs that were seen.
        indent: the white space before the statement.
        signed: which coordinates and sizes are a variable of a signed type of at most 32 bits.
    """

    file: Path
    after: int
    line: int
    function: str
    variable: str
    elements: int
    element: str
    coordinates: Mapping[str, str]
    sizes: Mapping[str, str] = field(default_factory=dict)
    to_score: str = "1.0f"
    indent: str = ""
    signed: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hook:
    """Places that together hold each score once, in variables that may be written.

    Args:
        factor: what an element is, over q . k; the softmax's own scale is `scale`.
        scale: the scale of the probing run.
        replicas: how many threads hold each score.
        evidence: one sentence that a person can check.
        sizes: a case that launches what the places are in, where the kernel's first does not.
        probed: the sizes at which they held each score once: such that each loop runs; `again`
            others, in what the launcher is told.
        dropped: what stands in the place of a pair that the kernel drops: "score", where what drops
            pairs comes after it; "-inf"; "" where another number does, or neither was seen.
    """

    places: tuple[Place, ...]
    factor: float
    scale: float
    replicas: int
    evidence: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    probed: Mapping[str, int] = field(default_factory=dict)
    dropped: str = ""
    again: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Meaning:
    """A variable that holds a known quantity at a line."""

    what: str  # "S", "scaled S", "m", "alpha", "P", "l", "O", "LSE"
    file: Path
    line: int
    variable: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Row:
    """A boundary after which a variable holds a number of each row that is used from there on:
    where rows without a kept key can be guarded.

    Both kinds were tried by writing there while the kernel ran. `"m"`: the maximum that weights,
    factor and sum are taken by. Where it was raised O stayed and the row's sum was that of smaller
    weights, so a maximum of -inf may be replaced by a finite number there. `"l"`: the row's whole
    sum, over all threads that share the row. Where it was doubled O became half, so a sum of 0 may
    be replaced by 1 there, and a row without a kept key then is 0 in O.

    Args:
        file, after, line, function, variable, elements, element, indent: as of a `Place`; an
            element holds a row's number.
        unit: what a maximum is times, of scores scale * (q . k): `1`, `1 / scale`, `log2(e)`.
    """

    what: str  # "m", "l"
    file: Path
    after: int
    line: int
    function: str
    variable: str
    elements: int
    element: str
    indent: str
    unit: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop that visits the key tiles.

    Args:
        counter: the variable that counts.
        first: bytes from, to of the expression that gives its first value; None where the loop
            takes it over from before.
        end: bytes of the other side of the condition's comparison with the counter.
        compare: the comparison as it is spelled with the counter on the left: `<`, `>=`, `!=`.
        keys: keys of an iteration; `key`: the first of them, an expression in the counter.
        step: what the counter changes by.
        row: the first row of a block, an expression in what is in scope in the loop; "" where that
            was not found, or blocks have different numbers of rows. `rows`: how many it has.
    """

    file: Path
    line: int
    counter: str
    first: tuple[int, int] | None
    end: tuple[int, int]
    compare: str
    keys: int
    key: str
    step: int
    row: str = ""
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What probing found.

    Args:
        hooks: best first: fewest places, the source before headers.
        refused: what was not found, each with its lines and the evidence.
        executed: the kernels by name, with how many thread instructions of each were executed: what
            is not among the places is executed as PTX. 0 of those that other sizes launch.
        files: the files that were observed.
        rows: where the maximum enters and the row's sum divides, the first place of each.
        more: hooks of kernels that other sizes launch, the best of each.
    """

    hooks: tuple[Hook, ...]
    meanings: tuple[Meaning, ...]
    loops: tuple[Loop, ...]
    refused: tuple[str, ...]
    executed: Mapping[str, int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    rows: tuple[Row, ...] = ()
    more: tuple[Hook, ...] = ()

    @property
    def edited(self) -> tuple[Hook, ...]:
        """The hooks that edits go to: the best of each kernel."""
        return (*self.hooks[:1], *self.more)
