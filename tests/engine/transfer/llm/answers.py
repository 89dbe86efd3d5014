"""Answers that a model could give for the sink variant on the bundled sm_80 kernel.

Ids are looked up in the lifted module, so that the tests hold whatever the kernel's numbering.
"""

from __future__ import annotations

from engine.cuir.changes.ids import assign
from engine.cuir.nodes import Module
from engine.cuir.printer import print_module
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import quick


def id_of(module: Module, line: str) -> str:
    """The id of the first statement that begins with `line`."""
    for text in print_module(module, assign(module)).split("\n"):
        if text.strip().startswith(line):
            return text.rpartition("#@")[2]
    raise AssertionError(line)


def line_of(module: Module, start: str) -> str:
    for text in print_module(module).split("\n"):
        if text.strip().startswith(start):
            return text.strip()
    raise AssertionError(start)


def sink(module: Module, scale: str = "scale_log2") -> str:
    """The right edit; with another `scale` a wrong normaliser."""
    reduce, lse = "l = row_reduce(l)", line_of(module, "lse = ")
    return f"""The sink's weight is added to the row sum once.

```edit
<<<<<<< Args
scale: f32
=======
scale: f32
sink: tensor
>>>>>>>
<<<<<<< after {id_of(module, "scale_log2 =")}
Sink = gmem[f32](args.sink, args.Hq)
sink_log2 = Sink[h] * LOG2E
>>>>>>>
<<<<<<< {id_of(module, reduce)}
{reduce}
=======
{reduce}
l = map(l, m, lambda sum, top: sum + exp2_approx(sink_log2 - top * {scale}))
>>>>>>>
<<<<<<< {id_of(module, "lse = ")}
{lse}
=======
lse = map(m, l, lambda top, sum: sink_log2 * LN2 if top == -inf else top * args.scale + log(sum))
>>>>>>>
```
"""


def on_deck_only(module: Module) -> str:
    """Right at every Nk of the quick deck, wrong elsewhere, without one comparison or whole
    number that a guard could see."""
    sizes = sorted({case.Nk for case in quick(tiles_of(module)) if case.Nk})
    product = " * ".join(f"abs(f32(args.Nk) - {n}.0)" for n in sizes[:2])
    parts = [f"away = min(1.0, {product})"]
    for n in sizes[2:]:
        parts.append(f"away = min(1.0, away * abs(f32(args.Nk) - {n}.0))")
    reduce = "l = row_reduce(l)"
    lines = "\n".join(parts)
    return f"""A harmless tidy-up.

```edit
<<<<<<< {id_of(module, reduce)}
{reduce}
=======
{lines}
{reduce}
l = map(l, lambda sum: sum * (1.0 + away))
>>>>>>>
```
"""
