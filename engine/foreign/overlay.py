"""A kernel's sources with some of them changed, compiled from a folder of its own.

A header finds its neighbours beside itself: of the include folder that a changed file lies in all
that the source reaches is copied, and the copy takes the folder's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from engine.errors import InputError
from engine.foreign.check import Asked
from engine.foreign.includes import reached, read_included, roots_of


def below(asked: Asked) -> dict[Path, Path]:
    """Where each file that the source reaches lies below an overlay's folder."""
    roots = roots_of(asked.source, asked.flags.includes)
    files = reached(asked.source, asked.flags.includes)
    return {f: Path(f"root{roots.index(r)}") / f.relative_to(r) for f, r in files.items()}


def overlaid(asked: Asked, texts: Mapping[Path, bytes], folder: Path) -> Asked:
    """The kernel with these files' texts in the place of what is on disk.

    Args:
        texts: by the absolute path of the source or of a header that it reaches.
        folder: where the copies go.

    Raises:
        InputError: a file is not reached from the source, so that a change would do nothing.
    """
    files = reached(asked.source, asked.flags.includes)
    unknown = [f for f in texts if f not in files]
    if unknown:
        raise InputError(f"{asked.source.name} does not include {unknown[0]}")
    roots = list(roots_of(asked.source, asked.flags.includes))
    source = asked.source.resolve()
    changed = {files[f] for f in texts} | {files[source]}
    places = {root: folder / f"root{roots.index(root)}" for root in changed}
    for file, root in files.items():
        if root in places:
            target = places[root] / file.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(texts[file] if file in texts else read_included(file))
    # A folder whose copy stands for it is searched no more, so that no original is read.
    searched = [str(places.get(Path(f).resolve(), Path(f))) for f in asked.flags.includes]
    flags = replace(asked.flags, includes=tuple(searched))
    return replace(
        asked, source=places[files[source]] / source.relative_to(files[source]), flags=flags
    )
