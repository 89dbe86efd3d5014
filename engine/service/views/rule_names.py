"""What the names say that our rules give to what they add: for hunks of rules alone, since a model
or a person may use such a name for anything."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MEANINGS: Mapping[str, str] = {
    "end": "one past the last key that any row of the block keeps",
    "begin": "the first key that any row of the block keeps",
    "offset": "query i stands at key i + offset",
    "score_factor": "what every score is multiplied by",
    "m_ok": "the row maxima, 0 in the place of -inf",
    "lists": (
        "memory in which the lists of tiles are made, i32 words for each block of rows: the "
        "count and the indices of the tiles to visit, a class of every tile (0 keeps no pair, "
        "1 some, 2 all of them, 3 + s some and its mask is stored in slot s), count and "
        "indices of those kept in part, first and last key kept, on some kernels a counter "
        "for tickets, then the slots (docs/lists.md)"
    ),
    "planned": "1 where the caller says that the lists are made already, else 0",
    "slots": "how many tiles of a block of rows may have their mask stored as bits",
    "candidate_count": (
        "how many key tiles a block of rows may have to visit, by the part of the mask that "
        "reads no input"
    ),
    "candidate_index": "which of these tiles comes at a step, in the order of the visits",
    "candidate_lead": (
        "how many of these tiles a part of the block's rows can skip at the beginning"
    ),
    "tile_slot": "in which slot a tile's mask is stored; negative where in none",
    "class_tiles": (
        "gives every key tile of a block of rows its class in the lists: no kept pair, some, all"
    ),
    "list_tiles": (
        "writes which tiles hold a kept pair, and which of these are kept in part, into the lists, "
        "each with their number; the range of keys that those keep begins empty"
    ),
    "mask_tiles": (
        "stores the masks of tiles kept in part as bits in the lists' slots, and widens the range "
        "of keys that they keep"
    ),
    "queue": "the counter in the lists from which thread blocks take their next work",
    "next_full": "barriers, one for each word of next_work: open once the next number stands there",
    "next_empty": "barriers, one for each word of next_work: open once all have read it",
    "next_work": (
        "two words by which the loading thread tells the others the number of their next work"
    ),
    "turn": "counts the pieces of work, which says which of the two words is in use",
    "next": "the number of the next piece of work",
    "ticket": "the number taken from the counter",
    "slot": "where the mask bits of this tile are stored, negative for nowhere",
    "full": "whether this tile needs no mask",
    "bits": "the mask of this tile as it is stored",
}


def meaning(name: str) -> str:
    """What a name of the rules says; empty where it says it itself. A name that was taken has a
    number behind it."""
    return _MEANINGS.get(re.sub(r"_\d+$", "", name), "")
