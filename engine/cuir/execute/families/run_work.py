"""Claims of work from a word of global memory, and the shared words that hand them on."""

from __future__ import annotations

from typing import Any

from engine.cuir.execute.families.run_pipeline import one_thread
from engine.cuir.execute.state.global_memory import claimed_word, fits_i32
from engine.cuir.execute.state.shared_memory import GRANULE, Region
from engine.cuir.execute.state.values import GmemTile, WordRef


def claim(part: Any, out: Any, src: GmemTile, limit: int) -> int:
    one_thread(part, "claim")
    fits_i32(part, "claim counts to", limit)
    if limit < 1:
        raise part.program.stop(
            "bad_value", part.path, f"counts to a limit above 0, not to {limit}", part
        )
    word = claimed_word(part, src)
    old = int(word)
    # As atomicInc: a word that the limit has left behind, or a negative one, starts again.
    word.fill_(old + 1 if 0 <= old < limit - 1 else 0)
    part.machine.claimed = True
    return old


def post(part: Any, out: Any, dst: WordRef, value: int) -> None:
    one_thread(part, "post")
    fits_i32(part, "post stores", value)
    memory = part.machine.shared
    memory.write(_region(dst), part.access(), "i32", fenced=not part.machine.async_proxy)
    part.machine.words[dst.offset] = value


def fetch(part: Any, out: Any, src: WordRef) -> int:
    part.machine.shared.read(_region(src), part.access(), "i32", through_async=False)
    return int(part.machine.words.get(src.offset, 0))


def _region(word: WordRef) -> Region:
    first = word.offset // GRANULE
    return Region(first, first + 1)
