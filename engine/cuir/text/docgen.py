"""Writes docs/cuir.md from the declarations: what a person reads and what a model is given.

`python -m engine.cuir.text.docgen` rewrites the file; a test holds that it is current.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from engine.cuir.arch import archs
from engine.cuir.findings import KINDS
from engine.cuir.ops import OPS, OpSpec, Pending, Proxy
from engine.cuir.ops.spec import OPERAND_KINDS
from engine.cuir.ops.spelling import both
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS
from engine.cuir.types import DTYPES, FAMILIES
from engine.resources import docs_dir

# In the order in which a reader needs them.
GROUPS = (
    ("ids", "Ids and facts"),
    ("views", "Places: views, shared tiles, barriers"),
    ("registers", "Register tiles"),
    ("movement", "Moving tiles"),
    ("synchronisation", "Synchronisation"),
    ("matmul", "Matrix multiplication"),
    ("pipeline", "Pipelines: barriers, bulk copies, registers"),
    ("lists", "Lists: counts and ranges over a mask"),
    ("work", "Work that is handed out while blocks run"),
    ("host", "The host"),
)

INTRODUCTION = """\
# CuIR

<!-- Written by `python -m engine.cuir.text.docgen` from the declarations. Edit those. -->

A tile-level text for CUDA kernels. It has Python's syntax, is parsed with Python's `ast`, and is
interpreted by CuBridge: it is never executed as Python. Everything not described here is an error
with line and column. One text per tree: the one that `cubridge lift` prints.

## A module

```python
specialisation(arch='sm_80', T=bf16, D=64)      # one specialisation of one program


class Args:                                      # the argument struct, in order
    q: tensor                                    # a pointer and four strides
    Nk: i32
    scale: f32                                   # also i64


@device
def tile_full(args, b, h, q0, n, *, BM, BN):     # a function; constants stand after `*`
    return (n + 1) * BN <= args.Nk


@kernel(threads=WARPS * 32)
def flash_fwd(args, *, T, D, BM, BN, WARPS):
    ...


@host
def launch(args, stream, *, T, D):
    ...
    return run(flash_fwd[T, D, BM, BN, WARPS], [args], grid=[blocks], threads=128, shared=bytes)
```

Statements are `name = expression`, an op, `for name in range(...)`, `if / elif / else` (printed as
nested `else`), `return`, and `opaque('text', reads=[...], writes=[...])` for source text whose
meaning is not known; `with opaque(...):` gives it one. Every op that works on register tiles or
has an effect is a statement of its own. Local names are assigned before they are used.

`for name in range(start, stop, then(next)):` takes its next value from a variable that the body
sets: in C++ `for (int name = start; name < stop; name = next)`. Each value must be above the one
before, so that the loop ends.

Compile-time constants get their values where the host launches the kernel. `f[A, B](x, y)` calls a
device function with constants A and B. A device function that only computes scalars may stand in
any expression; one that holds ops is called as a statement.

## Types

* Element types: {dtypes}.
* Scalars: `i32`, `i64`, `f32`, `bool`. `a // b` and `a % b` truncate toward zero as in C; `a / b`
  divides floats. `and`, `or`, `not`, `x if c else y` as in Python. `inf`, `nan` and {constants} are
  constants. Integer arithmetic is exact.
* Views of tensors, tiles of views, shared tiles, mbarriers, tensor maps: see the ops.
* Register tiles carry a layout, and two layouts that differ never meet silently:
{layouts}
  `row_of[L]` is a value for each row of a tile of layout L, `col_of[L]` one for each column. A row
  sum is *partial* until row_reduce: each thread holds its share, which may only be scaled,
  accumulated or reduced.

## Who executes

A block runs as *parts*, simulated warps that take turns. The *unit* of a kernel that uses
warpgroups is the warpgroup, else the whole block; a unit has at least two parts, and each holds its
own rows of every register tile. `elect()` is true in one part of the unit, and what stands under
`if elect():` is done by one thread. A copy or a store that a part makes is visible to another only
through a barrier that orders the two.

## Shared tiles

A tile is swizzled, so its shape and its start say where its bytes lie: the 16-byte chunk c of row r
lies at c ^ (r % 8) of its 128 bytes, and row follows row. In a kernel that works by warpgroups, or
uses mbarriers or the async proxy (bulk copies, asynchronous matmuls), on an arch that has one, the
first 128 bytes of all rows lie together, then the next 128: there the number of rows counts too.
What was written as one tile is read as that tile, or as one whose elements lie where its own do:
two tiles of 32 rows and 64 columns of f16 lie there as one of 64 rows, two of 128 columns do not.
`columns` and `transpose` are views of the same tile.

A tile starts at a multiple of 16 bytes; one that the async proxy takes at a multiple of the arch's
"async tiles", in bytes (see Archs). A kernel of the kind above rounds the start of its shared
memory up to such a multiple, so its launch asks for 1023 bytes more than the end of its last tile,
word or mbarrier.

## What is checked

Every access to shared memory carries a vector clock, so that an access that no chain of barriers
orders is found in any interleaving. A copy that has not landed, a matmul that has not been waited
for and a bulk store that still reads its source are all epochs that nobody has learnt yet.

| finding | meaning |
|---|---|
{findings}

## Exact and typed

In exact mode every float is a float64, casts do not round and approximate functions are exact: it
judges the algebra. In typed mode tiles of f16 and bf16 are rounded, everything else is f32: it
judges the rounding. Loads of a single element outside a tensor give 0; a *tile* whose batch or head
lies outside, or that starts before row 0, is a finding. Outputs are filled with NaN first.
"""

IDIOMS = """\
## Idioms

A block of query rows visits key tiles. Which tiles, in which order, and which of them hold only
kept pairs is one definition that every role calls; a mask changes only it and the `keep` predicate.
Causal, aligned to the last key:

```python
@device
def tile_count(args, b, h, q0, *, BM, BN):
    return ceil_div(min(args.Nk, max(0, q0 + BM + args.Nk - args.Nq)), BN)


@device
def tile_full(args, b, h, q0, n, *, BM, BN):
    return (n + 1) * BN <= args.Nk and (n + 1) * BN - 1 <= q0 + args.Nk - args.Nq
```

```python
offset = args.Nk - args.Nq                       # before the loop over keys
s = keep(s, lambda i, j: j < args.Nk and j <= i + offset, at=[q0, n * BN])
```

A predicate reads arguments best under such names: an argument read behind `and` becomes a branch
for each element where the predicate has three parts or more.

Scores are raw dot products until a `map` changes them; the scale and log2(e) are folded into exp2
only where the scale comes last. A softcap comes first and leaves scores in the natural domain:

```python
s = map(s, lambda x: args.cap * tanh(x * args.scale / args.cap))
m_prev = m
m = row_max(s, m)
top = map(m, lambda x: 0.0 if x == -inf else x)
alpha = map(m_prev, top, lambda prev, now: exp2_approx((prev - now) * LOG2E))
s = map(s, top, lambda x, now: exp2_approx((x - now) * LOG2E))
```

`top` is the guard that a row needs which may see no kept key in a tile: -inf - -inf is NaN. A bias
is an element load, 0 outside:

```python
Bias = gmem[f32](args.bias, args.B, args.Hq, args.Nq, args.Nk)
s = map(s, lambda x, i, j: x * args.scale + Bias[b, h, i, j], at=[q0, n * BN])
```

A row without any kept key ends with a sum of 0; O is then 0 and LSE is -inf:

```python
l = row_reduce(l)
inverse = map(l, lambda sum: 0.0 if sum == 0.0 else rcp_approx(sum))
o = map(o, inverse, lambda x, r: x * r)
```

Every role visits the same tiles, so a tile count of 0 must leave all barriers balanced: what the
loading role does not load, no other role waits for.
"""


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _op(spec: OpSpec) -> str:
    facts = [f"executed by {spec.who.value}"]
    if spec.effects:
        facts.append(", ".join(sorted(e.value for e in spec.effects)))
    if spec.proxy is not Proxy.NONE:
        facts.append(f"{spec.proxy.value} proxy")
    if spec.pending is not Pending.NONE:
        facts.append(spec.pending.value)
    if spec.needs is not None:
        facts.append(f"needs `{spec.needs}`")
    if written := " or ".join(f"`{cxx}`" for cxx in _in_cxx(spec)):
        facts.append(f"in C++ {written}")
    return f"**`{spec.signature}`**  \n{spec.doc}  \n*{'; '.join(facts)}*"


def _in_cxx(spec: OpSpec) -> list[str]:
    """The C++ that the lowerer writes, where it is not the call as it stands in CuIR."""
    written = [both(text)[1] for text in spec.spelling.lower]
    return [re.sub(r"\{(\w+(?:\.\.\.)?)\}", r"\1", cxx) for cxx in written if cxx is not None]


def _ops() -> str:
    parts = []
    for group, title in GROUPS:
        members = [spec for spec in OPS.values() if spec.group == group]
        parts.append(f"### {title}\n\n" + "\n\n".join(map(_op, members)))
    return "\n\n".join(parts)


def _scalars() -> str:
    rows = [("function", "operands", "gives", "meaning"), ("---",) * 4]
    for fn in FUNCTIONS.values():
        note = " (approximate in typed CUDA, exact here)" if fn.approximate else ""
        rows.append((f"`{fn.name}`", str(fn.arity), fn.gives, fn.doc + note))
    for name, to in CASTS.items():
        rows.append((f"`{name}`", "1", to, "a cast; a float becomes a whole number toward zero"
                     if to in ("i32", "i64") else "a cast"))  # fmt: skip
    return _table(rows)


def _archs() -> str:
    rows = [
        ("arch", "shared bytes per block", "async tiles", "registers", "per thread",
         "threads per block", "instructions"),
        ("---",) * 7,
    ]  # fmt: skip
    for facts in archs().values():
        rows.append(
            (
                facts.name, str(facts.shared_block), str(facts.async_tile or "none"),
                str(facts.registers_sm), str(facts.registers_thread), str(facts.threads_block),
                ", ".join(sorted(facts.instructions)) or "none that an op needs",
            )
        )  # fmt: skip
    return _table(rows)


def _operands() -> str:
    rows = [("kind", "what it takes"), ("---", "---")]
    used = {o.kind for spec in OPS.values() for o in spec.operands}
    rows += [(f"`{k}`", words) for k, (words, _) in OPERAND_KINDS.items() if k in used]
    return _table(rows)


def document() -> str:
    """The text of docs/cuir.md."""
    layouts = []
    for family in FAMILIES:
        dims = "M, N, WARPS" if family.unit == "block" else "M, N"
        what = f"`{family.acc}[{dims}]`"
        if family.a is not None:
            what += f" (accumulator) and `{family.a}[{dims}]` (left operand)"
        needs = f"; needs `{family.needs}`" if family.needs is not None else ""
        layouts.append(f"  * {what}: {family.doc}{needs}.")
    introduction = INTRODUCTION.format(
        dtypes=", ".join(f"`{name}`" for name in DTYPES),
        constants=", ".join(f"`{name}`" for name in CONSTANTS),
        layouts="\n".join(layouts),
        findings=_table((f"`{kind}`", words) for kind, words in KINDS.items()),
    )
    return "\n".join(
        (
            introduction,
            IDIOMS,
            "## Ops\n",
            "`...` takes one or more operands, `?` may be left out, operands after `*` are given "
            "by name, operands in brackets are compile-time constants.\n",
            _operands() + "\n",
            _ops() + "\n",
            "## Scalar functions\n",
            "They work on numbers and, in lambdas, element by element.\n",
            _scalars() + "\n",
            "## Archs\n",
            _archs(),
            "",
        )
    )


def main() -> None:
    """Rewrites docs/cuir.md in the checkout."""
    (docs_dir() / "cuir.md").write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
