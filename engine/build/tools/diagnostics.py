"""Read the compilers' messages, and put each at its place in the kernel's own source.

nvcc's front end names a header where the fault shows there; the line of the kernel is then in the
"detected during" trail. ptxas names lines of the PTX, whose `.loc` directives lead back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine.errors import Where


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message. `where` is in the kernel's source when the trail leads there, else in the header
    it came from; `origin` names the other place when there are two."""

    severity: str  # error, warning
    message: str
    where: Where | None
    origin: str = ""

    @property
    def killed(self) -> bool:
        """True where a signal ended a compiler: that says nothing about what it compiled."""
        return self.severity == "error" and _DIED in self.message

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        origin = f" (in {self.origin})" if self.origin else ""
        return f"{place}{self.severity}: {self.message}{origin}"


_EDG = re.compile(
    r"^(?P<file>\S.*?)\((?P<line>\d+)\): "
    r"(?P<severity>catastrophic error|error|warning|internal error)(?: #[\w-]+)?: (?P<message>.*)$"
)
_GCC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning): (?P<message>.*)$"
)
_PTXAS = re.compile(
    r"^ptxas\s+(?P<file>\S*),\s*line (?P<line>\d+);\s*(?P<severity>error|warning|fatal)\s*:\s*"
    r"(?P<message>.*)$"
)
_TOOL = re.compile(
    r"^(?:\S*/)?(?P<tool>nvcc|ptxas|nvlink|fatbinary|ld|collect2|cudafe\+\+|cicc)\s*"
    r"(?:(?P<severity>fatal|error|warning)\s*)?:\s*(?:(?P<again>fatal|error)\s*:\s*)?"
    r"(?P<message>.*)$"
)
# What a shell says of a command that a signal ended. nvcc runs cicc through one, and then ends
# without a word of its own; of the tools that it runs itself it says "died due to signal".
_SIGNALS = {
    "Hangup": 1, "Interrupt": 2, "Quit": 3, "Illegal instruction": 4, "Aborted": 6,
    "Bus error": 7, "Floating point exception": 8, "Killed": 9, "Segmentation fault": 11,
    "Terminated": 15,
}  # fmt: skip
_SHELL = re.compile(
    rf"^(?:\S*sh: .*?)?(?P<word>{'|'.join(_SIGNALS)})(?: \(core dumped\))?(?:\s{{2,}}.*)?$"
)
_DIED = "died due to signal"
_TRAIL = re.compile(r"\bat line (?P<line>\d+) of (?P<file>\S+)")
_DUPLICATE = re.compile(r"multiple definition of [`'](?P<name>[^']+)'")


def parse_diagnostics(
    log: str, source: str, file: str = "kernel.cu", ptx: Mapping[str, str] | None = None
) -> tuple[Diagnostic, ...]:
    """Errors first, then warnings, each place and message once.

    `source` is the text of the kernel, which the log calls `file`; `ptx` has PTX texts by the base
    name of their files.
    """
    found = list(_read(log.splitlines(), source.splitlines(), file, ptx or {}))
    unique = dict.fromkeys(found)
    return tuple(sorted(unique, key=lambda d: d.severity != "error"))


def _read(
    lines: list[str], source: list[str], file: str, ptx: Mapping[str, str]
) -> Iterable[Diagnostic]:
    for at, line in enumerate(lines):
        if found := _EDG.match(line):
            yield _front_end(found, lines[at + 1 :], source, file)
        elif found := _GCC.match(line):
            column = int(found["column"]) if found["column"] else None
            where = Where(_name(found["file"], file), int(found["line"]), column)
            yield Diagnostic(_severity(found["severity"]), found["message"], where)
        elif found := _PTXAS.match(line):
            place = _loc(ptx.get(os.path.basename(found["file"]), ""), int(found["line"]), file)
            severity = _severity(found["severity"])
            yield Diagnostic(severity, found["message"], place, "" if place else "PTX")
        elif found := _DUPLICATE.search(line):
            message = (
                f"{found['name']} is defined in every specialisation's object; "
                "make it a template, static or inline"
            )
            yield Diagnostic("error", message, _definition(found["name"], source, file))
        elif found := _SHELL.match(line):
            tool = "cicc, or nvcc itself,"
            yield by_signal(tool, _SIGNALS[found["word"]])
        elif (found := _TOOL.match(line)) and (found["severity"] or found["again"]):
            severity = _severity(found["severity"] or found["again"])
            yield Diagnostic(severity, found["message"], None, found["tool"])


def by_signal(tool: str, number: int) -> Diagnostic:
    """A tool that a signal ended."""
    return Diagnostic("error", f"{tool} {_DIED} {number}", None)


def _front_end(found: re.Match[str], after: list[str], source: list[str], file: str) -> Diagnostic:
    severity, message = _severity(found["severity"]), found["message"]
    shown = _name(found["file"], file)
    block: list[str] = []
    for line in after:
        if not line.strip() or _EDG.match(line):
            break
        block.append(line)
    if shown == file:
        return Diagnostic(severity, message, _caret(int(found["line"]), block, source, file))
    for line in block:
        if (trail := _TRAIL.search(line)) and _name(trail["file"], file) == file:
            number = int(trail["line"])
            where = Where(file, number, _first_column(source, number))
            return Diagnostic(severity, message, where, f"{shown}:{found['line']}")
    return Diagnostic(severity, message, Where(shown, int(found["line"])))


def _caret(number: int, block: list[str], source: list[str], file: str) -> Where:
    """The column under the caret: the front end shows the source line with another indent."""
    for shown, caret in pairwise(block):
        if caret.strip() != "^" or not 0 < number <= len(source):
            continue
        line = source[number - 1]
        indent = len(shown) - len(shown.lstrip())
        column = len(line) - len(line.lstrip()) + caret.index("^") - indent + 1
        if shown.strip() == line.strip() and column >= 1:
            return Where(file, number, column)
    return Where(file, number, _first_column(source, number))


def _first_column(source: list[str], number: int) -> int | None:
    if not 0 < number <= len(source):
        return None
    line = source[number - 1]
    return len(line) - len(line.lstrip()) + 1


def _loc(ptx: str, number: int, file: str) -> Where | None:
    """The kernel's line for a line of PTX: the nearest `.loc` before it, out of inlined calls."""
    lines = ptx.splitlines()
    files = {m[1]: m[2] for m in re.finditer(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx, re.MULTILINE)}
    for line in reversed(lines[:number]):
        places = re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)\s+(\d+)", line)
        for index, row, column in places:
            if _name(files.get(index, ""), file) == file:
                return Where(file, int(row), int(column) or None)
        if places:
            return None
    return None


def _definition(name: str, source: list[str], file: str) -> Where | None:
    plain = re.split(r"[(<]", name.split("::")[-1])[0]
    called = re.compile(rf"\b{re.escape(plain)}\s*\(")
    for number, line in enumerate(source, 1):
        if called.search(line) and not line.lstrip().startswith("//"):
            return Where(file, number, line.index(plain) + 1)
    return None


def _name(path: str, file: str) -> str:
    """The kernel's file by its own name; a header by its path below the include folder."""
    if os.path.basename(path) == file:
        return file
    return re.sub(r"^.*?(?:^|/)include/", "", path)


def _severity(word: str) -> str:
    return "warning" if word == "warning" else "error"
