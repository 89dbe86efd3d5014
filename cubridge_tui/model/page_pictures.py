"""A session's page with its pictures: the tiles that the target visits, and what a GPU measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cubridge_tui.model import gpu_results
from cubridge_tui.model.mask_sizes import legal_sizes
from cubridge_tui.model.snapshot import Snapshot
from engine.errors import CuBridgeError, InputError
from engine.report.picture import DIM, FAINT, INK, OURS, Box, Picture, Shape, Text
from engine.service.views.keep_map import KeepMap
from engine.service.views.target_mask import TileClass
from engine.types import Gate
from sessions.events import Event

LENGTH = 1024  # query rows and keys of the mask
_ROOM, _EDGE, _TOP = 360, 16, 34  # pixels of the tiles, around them, and above
_FILLS = {TileClass.FULL: OURS, TileClass.PARTIAL: "#e69f00", TileClass.SKIP: FAINT}


def write_page(path: Path, snap: Snapshot, events: Sequence[Event]) -> str:
    """Write the page of a session with these events; where it is, and how large.

    Raises:
        InputError: the file cannot be written.
    """
    from cubridge_tui.model.page import as_html
    from cubridge_tui.model.story import beats
    from sessions.replay import steps

    data = as_html(snap, list(beats(steps(events))), pictures(snap)).encode()
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    return f"{path}: {len(data):,} bytes; any browser shows it, without a network"


def pictures(snap: Snapshot) -> list[tuple[str, Picture]]:
    """Every picture that the session's content gives, with a title."""
    out = []
    if (mask := mask_picture(snap)) is not None:
        out.append(("Tiles that the target visits", mask))
    gpu = snap.state.verdict(Gate.G4)
    if gpu is not None and gpu_results.contestants(gpu.details):
        out.append(("Measured", gpu_results.picture(snap.title, gpu.details)))
    return out


def mask_picture(snap: Snapshot) -> Picture | None:
    """One head's tiles by the target's own schedule; None where there is no target to ask."""
    if snap.recipe is None or snap.target is None or snap.binding is None:
        return None
    wanted = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": LENGTH, "Nk": LENGTH, "D": 128, "Dv": 128}
    sizes = legal_sizes(snap.recipe, wanted)
    if sizes is None:
        return None
    try:
        found = KeepMap(snap.recipe, snap.target, snap.binding, sizes, base=snap.lifted)
        rows, keys = found.tile
        classes = {
            (i, j): found.tile_class(i * rows, j * keys)
            for i in range(-(-found.queries // rows))
            for j in range(-(-found.keys // keys))
        }
    except CuBridgeError:
        return None
    down, across = (max(place[n] for place in classes) + 1 for n in (0, 1))
    scale = _ROOM / max(down * rows, across * keys)
    wide, high = keys * scale, rows * scale
    shapes: list[Shape] = [
        Text(_EDGE, 20, f"Nq {found.queries}, Nk {found.keys}: tiles of {rows} rows x {keys} keys")
    ]
    for (i, j), kind in classes.items():
        x, y = _EDGE + j * wide, _TOP + i * high
        shapes.append(Box(x, y, wide - 1, high - 1, _FILLS[kind]))
    x, y = _EDGE + across * wide + 24, _TOP + 16
    words = {TileClass.FULL: "full", TileClass.PARTIAL: "partial", TileClass.SKIP: "not visited"}
    for kind, word in words.items():
        count = sum(found_kind is kind for found_kind in classes.values())
        shapes.append(Box(x, y - 11, 12, 12, _FILLS[kind]))
        shapes.append(Text(x + 20, y, f"{word}: {count} of {len(classes)}", 13, INK))
        y += 22
    for line in found.examples():
        shapes.append(Text(x, y, f"example values: {line}", 11, DIM))
        y += 18
    height = _TOP + down * high + _EDGE
    return Picture(round(x + 320), round(height), tuple(shapes))
