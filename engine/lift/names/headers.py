"""What a source may include, and which names mean something before its first line.

A call means what the catalogue says only while the headers are the bundled ones and the source
gives their names no second meaning: C++ would overload `floor_div` by the types of its arguments,
specialise it, or replace it by a macro.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from engine.errors import LiftError, Where
from engine.lift.cpp.syntax import KEYWORDS, SCALAR_TYPES
from engine.lift.cpp.tokens import Token, Tokens
from engine.lift.names.catalogue import Catalogue
from engine.lift.names.scope import C_TYPES
from engine.resources import include_dir

NAMESPACE = "cubridge"
OUR_HEADERS = f"{NAMESPACE}/"
# What the headers declare outside of classes begins in the first column.
_DECLARED = re.compile(
    r"^(?! )(?:[a-zA-Z_][^\n=;()]*?\b(\w+)\(|(?:enum class|struct|using) (\w+)"
    r"|[\w ]*\b(?:const|constexpr) [\w ]*?(\w+) =)",
    re.MULTILINE,
)


@cache
def bundled_headers() -> frozenset[str]:
    """The headers of kernel text, as a source includes them: `cubridge/sm80.cuh`."""
    folder = include_dir()
    return frozenset(p.relative_to(folder).as_posix() for p in folder.rglob("*.cuh"))


@cache
def header_words() -> frozenset[str]:
    """Every word that the bundled headers write: a macro of that name changes what they say."""
    texts = ((include_dir() / header).read_text("utf-8") for header in bundled_headers())
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))


@cache
def header_names() -> frozenset[str]:
    """The functions, types and constants that the bundled headers declare outside of classes."""
    texts = ((include_dir() / header).read_text("utf-8") for header in bundled_headers())
    return frozenset(n for text in texts for found in _DECLARED.findall(text) for n in found) - {
        "", "decltype",
    }  # fmt: skip


def meant(catalogue: Catalogue) -> frozenset[str]:
    """The names that a source may not give a second meaning."""
    return catalogue.names | header_names() | {NAMESPACE}


def words(catalogue: Catalogue) -> frozenset[str]:
    """The names that no macro may have: those, and the words of the language."""
    return meant(catalogue) | KEYWORDS | SCALAR_TYPES | C_TYPES.keys()


def defined_macros(tokens: Sequence[Token]) -> dict[str, int]:
    """The names that a `#define` or `#undef` changes, and where the first one does."""
    out: dict[str, int] = {}
    for sign, word, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if sign.text == "#" and word.text in ("define", "undef"):
            out.setdefault(name.text, name.start)
    return out


def aliases(tokens: Sequence[Token]) -> Iterable[Token]:
    """The names that a `using` or `typedef` gives a type, wherever it stands."""
    for at, token in enumerate(tokens[:-2]):
        if token.text == "using" and tokens[at + 2].text == "=":
            yield tokens[at + 1]
        elif token.text == "typedef":
            end = next((n for n in range(at, len(tokens)) if tokens[n].text == ";"), at + 2)
            yield from (t for t in tokens[end - 1 : end] if t.kind == "word")


def is_own(name: str) -> bool:
    """Whether a quoted include can be a header of the source's own folder.

    What it says is judged where the package is read (`check_own_header`).
    """
    return re.fullmatch(r"[\w-]+\.(?:cuh|hpp|h)", name) is not None


def check_own_header(data: bytes, name: str, catalogue: Catalogue) -> None:
    """Holds a header of the source's own folder to the source's rules.

    Raises:
        LiftError: it gives a name that has a meaning a second one, by a definition, a macro or an
            alias, or it defines an operator.
    """
    code = Tokens(data)
    tokens, taken = code.all, meant(catalogue)
    found = {n: at for n, at in defined_macros(tokens).items() if n in words(catalogue)}
    found |= {t.text: t.start for t in aliases(tokens) if t.text in taken}
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.text == "operator":
            found.setdefault("operator", token.start)
        defines = before.kind == "word" and before.text not in ("return", "else", "case")
        if token.text in taken and after.text == "(" and (defines or before.text == ">"):
            found.setdefault(token.text, token.start)
    for word, at in found.items():
        raise LiftError(
            f"`{word}` has a meaning already, which a second one would change",
            where=Where(name, data.count(b"\n", 0, at) + 1),
            fix="name it otherwise",
        )


def includes(tokens: Sequence[Token]) -> Iterable[tuple[Token, str]]:
    """Each `#include`, with its name as it is written between the quotes or brackets; "" where a
    macro stands for it."""
    for at in range(len(tokens) - 2):
        if tokens[at].text == "#" and tokens[at + 1].text in ("include", "include_next", "import"):
            first = tokens[at + 2]
            line: list[Token] = []
            for token in tokens[at + 2 :]:
                if token.text == "\n":
                    break
                line.append(token)
            if first.kind == "string" and len(line) == 1:
                yield first, first.text[1:-1]
            elif first.text == "<" and line[-1].text == ">":
                yield tokens[at], "".join(t.text for t in line[1:-1])
            else:
                yield tokens[at], ""
