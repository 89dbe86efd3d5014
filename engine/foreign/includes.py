"""The files that a source may include, of its own folder and of the include folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from engine.files import read_file

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


def roots_of(source: Path, includes: Sequence[str]) -> tuple[Path, ...]:
    """The source's folder, then the include folders, as the compiler searches them."""
    folders = [source.resolve().parent, *(Path(f).resolve() for f in includes)]
    return tuple(dict.fromkeys(folders))


def read_included(file: Path) -> bytes:
    """A source or a header, as it is; libraries have large ones."""
    return read_file(file, "make it readable")


def reached(source: Path, includes: Sequence[str]) -> dict[Path, Path]:
    """The files that the source may include, and the root of each; the source is the first.

    Conditions of the preprocessor are not looked at: it is rather one file too many.
    """
    roots = roots_of(source, includes)
    source = source.resolve()
    found = {source: roots[0]}
    todo = [source]
    while todo:
        here = todo.pop()
        for name in _INCLUDE.findall(read_included(here)):
            words = name.decode("utf-8", "replace")
            for folder in (here.parent, *roots):
                there = (folder / words).resolve()
                if there in found:
                    break
                if there.is_file() and (root := _root(there, roots)):
                    found[there] = root
                    todo.append(there)
                    break
    return found


def _root(file: Path, roots: tuple[Path, ...]) -> Path | None:
    """The innermost root that a file lies in."""
    inside = [r for r in roots if file.is_relative_to(r)]
    return max(inside, key=lambda r: len(r.parts), default=None)
