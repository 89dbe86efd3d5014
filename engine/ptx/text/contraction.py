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
from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.ptx.syntax import Immediate, Instruction, Operand, Register, registers

_SIGN = 1 << 31


def contracted(code: Sequence[Instruction], labels: Mapping[str, int]) -> tuple[Instruction, ...]:
    """The code with each sum of a product of the same block of code as one `fma`, where nothing
    else reads the product. The product itself stays: whoever watches it finds it."""
    seen = Counter(name for at in code for name in registers(at.operands, addresses=True))
    entries = set(labels.values())
    products: dict[str, Instruction] = {}  # of this block, whose factors are as they were
    out: list[Instruction] = []
    for place, at in enumerate(code):
        if place in entries:
            products.clear()
        out.append(_fused(at, products) or at)
        written = set(registers(at.operands[:1]))
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
