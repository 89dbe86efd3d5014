"""Products and sums that ptxas makes one operation, which rounds once.

`mul` and `add` without a rounding "may be optimized to use fused-multiply-add instructions" (PTX
ISA, "add", "mul"), and ptxas does so wherever a product goes into one sum. A kernel that is right
with two roundings and wrong with one is wrong on the card: `x * c - max * c` is 0 for the maximum
itself with two, and with one it is what rounding `max * c` took away, without bound where a mask
puts a large negative number. nvcc writes the rounding (`mul.rn`) where it may not fuse
(--fmad=false, `__fmul_rn`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engine.ptx.syntax import Address, Immediate, Instruction, Operand, Pair, Register, Vector

_SIGN = 1 << 31


def contracted(code: Sequence[Instruction], labels: Mapping[str, int]) -> tuple[Instruction, ...]:
    """The code with each sum of a product of the same block of code as one `fma`, where nothing
    else reads the product. The product itself stays: whoever watches it finds it."""
    seen = Counter(name for at in code for name in _registers(at))
    entries = set(labels.values())
    products: dict[str, Instruction] = {}  # of this block, whose factors are as they were
    out: list[Instruction] = []
    for place, at in enumerate(code):
        if place in entries:
            products.clear()
        out.append(_fused(at, products) or at)
        written = set(_names(at.operands[0])) if at.operands else set()
        if written:
            products = {
                name: by for name, by in products.items()
                if name not in written and written.isdisjoint(_factors(by))
            }  # fmt: skip
        if at.name in ("bra", "brx", "call", "ret"):
            products.clear()
        elif _plain(at, "mul") and isinstance(to := at.operands[0], Register):
            # Written here and read once; x = x * y is no product of what stands in x afterwards.
            alone = seen[to.name] == 2 and to.name not in _factors(at)
            products |= {to.name: at} if alone else {}
    return tuple(out)


def _plain(at: Instruction, *names: str) -> bool:
    """Of f32, by no rounding of its own, and for all lanes."""
    return at.name in names and at.guard is None and set(at.modifiers) <= {"f32", "ftz"}


def _fused(at: Instruction, products: Mapping[str, Instruction]) -> Instruction | None:
    if not _plain(at, "add", "sub"):
        return None
    to, *terms = at.operands
    for which, term in enumerate(terms):
        by = products.get(term.name) if isinstance(term, Register) else None
        if by is None or by.has("ftz") != at.has("ftz"):
            continue
        _, x, y = by.operands
        rest = terms[1 - which]
        if at.name == "sub":
            x, rest = (x, _negative(rest)) if which == 0 else (_negative(x), rest)
        return replace(at, name="fma", modifiers=("rn", *at.modifiers), operands=(to, x, y, rest))
    return None


def _negative(operand: Operand) -> Operand:
    if isinstance(operand, Register):
        return replace(operand, negated=not operand.negated)
    assert isinstance(operand, Immediate)
    return replace(operand, value=operand.value ^ _SIGN)


def _factors(product: Instruction) -> set[str]:
    return {o.name for o in product.operands[1:] if isinstance(o, Register)}


def _registers(at: Instruction) -> Iterator[str]:
    for operand in at.operands:
        yield from _names(operand)
    if at.guard is not None:
        yield at.guard.name


def _names(operand: Operand) -> Iterator[str]:
    match operand:
        case Register(name):
            yield name
        case Vector(items):
            for item in items:
                yield from _names(item)
        case Pair(first, second):
            yield from _names(first)
            yield from _names(second)
        case Address(base, _, coordinates):
            yield from _names(base)
            for item in coordinates:
                yield from _names(item)
