"""Read a file whose path came from outside: a regular one, whole, and of no more than a limit.

A path that a person types, a link or a setting may lead to a folder, a pipe that nobody writes to,
or a device without an end: each is one error at once, never a hang and never all the memory.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from engine.errors import InputError, Where

MIB = 1 << 20
TEXT_LIMIT = 16 * MIB  # bytes of a text that a person or a model writes
SOURCE_LIMIT = MIB  # of a spec, a kernel and what they include: each token of it becomes an object

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_file(path: Path, fix: str, limit: int = TEXT_LIMIT) -> bytes:
    """The bytes of a regular file; `fix` says what to give instead.

    Raises:
        InputError: no such file, one that may not be read, another kind of file (a folder, a pipe,
            a device, also behind a link), or more than `limit` bytes.
    """
    where = Where(str(path))
    try:
        # Without O_NONBLOCK, opening a pipe waits for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # a null byte, or what no file name can hold
        raise InputError("cannot be read: not a file's name", where=where, fix=fix) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where, fix=fix) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            kind = next((word for test, word in _KINDS if test(mode)), "no regular file")
            raise InputError(f"cannot be read: it is {kind}", where=where, fix=fix)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where, fix=fix) from None
    finally:
        os.close(descriptor)
    if len(data) > limit:
        more = f"{limit // MIB} MiB" if limit >= MIB else f"{limit} bytes"
        raise InputError(f"cannot be read: it has more than {more}", where=where, fix=fix)
    return data


def try_writing_below(folder: Path) -> None:
    """Tries whether a folder, which may not be there yet, could be made and written; nothing is
    left.

    Raises:
        OSError: it could not.
    """
    above = folder.absolute()
    while not os.path.exists(above) and above != above.parent:
        above = above.parent
    tempfile.TemporaryFile(dir=above).close()


def read_spec(path: Path) -> bytes:
    """The bytes of a spec's file, or of a module beside it; see `read_file`."""
    return read_file(path, "name a Python file", SOURCE_LIMIT)


def read_text(path: Path, fix: str, limit: int = TEXT_LIMIT) -> str:
    """The text of a regular file in UTF-8, line ends as they are; see `read_file`."""
    try:
        return read_file(path, fix, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8: byte {error.start} is none of it", where=Where(str(path)), fix=fix
        ) from None
