"""Instructions that no GPU has: `observe` writes a register down, `observe.rw` may change it too.

A source that is observed has them as inline assembly, in comments, since ptxas refuses what it
does not know: `//@ observe.b32 value, place, word, kind;` says word `word` of the variable that
stands at a place. What `kind` means is the observer's matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.ptx.decode import Decoder, Site
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Run
from engine.ptx.syntax import Immediate

Array = np.ndarray[Any, Any]
THREAD_BITS = 40  # a thread's number in the grid; above it the launch's

# New bits for what threads hold: place, word, threads of the grid, their bits.
Change = Callable[[int, int, Array, Array], Array]


def uncovered(text: str) -> str:
    """PTX with the instructions that stand in comments."""
    return text.replace("//@ observe", "observe")


@dataclass(slots=True)
class Events:
    """What was seen of one word at one place, in the order in which it happened.

    Of a register that holds different values in the two worlds nothing is known.
    """

    kind: int
    threads: list[Array] = field(default_factory=list)
    bits: list[Array] = field(default_factory=list)
    known: list[Array] = field(default_factory=list)


@dataclass(slots=True)
class Observer:
    """Collects what `observe` instructions see.

    Args:
        change: what `observe.rw` writes back; None: nothing.
        launch: the number of the launch that runs: threads are told apart by it.
    """

    change: Change | None = None
    launch: int = 0
    seen: dict[tuple[int, int, int], Events] = field(default_factory=dict)

    @property
    def ops(self) -> dict[str, Decoder]:
        return {"observe": self._decode}

    def _decode(self, site: Site) -> Run:
        site.takes("rw")
        fetch = site.fetch(0, "b32")
        numbers = [o.value for o in site.at.operands[1:] if isinstance(o, Immediate)]
        if len(numbers) != 3:
            raise site.refuse("a register and three numbers are needed")
        place, word, kind = numbers
        machine = site.machine
        first = machine.memory.first_block * machine.threads
        events = self.seen.setdefault((self.launch, place, word), Events(kind))
        put = site.store(0, "b32") if site.at.has("rw") and self.change is not None else None

        def observe(lanes: Lanes) -> None:
            bits = fetch(lanes)
            threads = lanes.parties.get(("grid", first))
            if threads is None:  # one array for all that these lanes see: there is much of it
                threads = lanes.parties["grid", first] = lanes.threads + first
            events.threads.append(threads)
            events.bits.append(np.array(bits[0]))
            events.known.append(bits[0] == bits[1])
            if put is not None and self.change is not None:
                new = self.change(place, word, threads, bits[0])
                put(lanes, np.broadcast_to(new, bits.shape))

        return observe
