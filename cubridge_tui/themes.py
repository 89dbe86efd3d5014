"""Theme files: one TOML per theme, ours from `themes/` and the person's own beside their config.

`[colors]` are Textual's design colours; `[styles]` are the styles of code, marks and verdicts in
Rich's words ("#7aa2f7 bold", "on #17301f"). A person's file may name only what it changes: the
rest comes from our dark or light theme, by its `dark`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.color import ColorParseError
from rich.errors import StyleSyntaxError
from rich.style import Style
from textual.color import Color
from textual.color import ColorParseError as CssColorError
from textual.theme import Theme

from engine.errors import InputError, Where
from engine.files import read_text
from engine.resources import themes_dir

PREFIX = "cubridge-"
ORDER = ("dark", "light", "high_contrast", "colour_blind")
_REQUIRED = ("primary", "foreground", "background", "surface", "panel")


@dataclass(frozen=True, slots=True)
class Palette:
    """The styles of one theme, by name; an unknown name is no style."""

    name: str
    title: str
    dark: bool
    colors: Mapping[str, str]
    styles: Mapping[str, Style]

    def style(self, name: str) -> Style:
        return self.styles.get(name, Style.null())

    @property
    def theme(self) -> Theme:
        """What Textual registers."""
        return Theme(name=self.name, dark=self.dark, **dict(self.colors))  # type: ignore[arg-type]


def load_theme(path: Path, base: Palette | None = None) -> Palette:
    """The theme in a file; what it leaves out comes from `base`.

    Raises:
        InputError: no TOML, an unknown key, a colour or a style that cannot be read.
    """
    try:
        data = tomllib.loads(read_text(path, "give a TOML file"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=Where(str(path))) from None
    unknown = set(data) - {"title", "dark", "colors", "styles"}
    if unknown:
        raise InputError(
            f"unknown key {sorted(unknown)[0]!r}", where=Where(str(path)),
            fix="the keys are title, dark, colors, styles",
        )  # fmt: skip
    colors = dict(base.colors if base else {}) | _colors(path, data.get("colors", {}))
    styles = dict(base.styles if base else {}) | _styles(path, data.get("styles", {}))
    missing = [name for name in _REQUIRED if name not in colors]
    if missing:
        raise InputError(f"[colors] lacks {missing[0]}", where=Where(str(path)))
    dark = bool(data.get("dark", base.dark if base else True))
    title = str(data.get("title", path.stem))
    return Palette(PREFIX + path.stem.replace("_", "-"), title, dark, colors, styles)


def load_themes(own: Path | None = None) -> tuple[tuple[Palette, ...], tuple[str, ...]]:
    """Our themes, then the person's from the folder `own`; and what was wrong with theirs."""
    folder = themes_dir()
    found = [load_theme(folder / f"{name}.toml") for name in ORDER]
    problems: list[str] = []
    for path in sorted(own.glob("*.toml")) if own is not None and own.is_dir() else []:
        try:
            plain = load_theme(path, found[0])
            found.append(load_theme(path, found[0 if plain.dark else 1]))
        except InputError as error:
            problems.append(str(error))
    return tuple(found), tuple(problems)


def find(palettes: Iterable[Palette], name: str) -> Palette | None:
    """A palette by its name, with or without our prefix."""
    wanted = name.replace("_", "-")
    return next((p for p in palettes if wanted in (p.name, p.name.removeprefix(PREFIX))), None)


def _colors(path: Path, table: Any) -> dict[str, str]:
    allowed = {
        "primary", "secondary", "accent", "warning", "error", "success", "foreground",
        "background", "surface", "panel", "boost",
    }  # fmt: skip
    out: dict[str, str] = {}
    for name, value in _table(path, table, "colors").items():
        if name not in allowed:
            raise InputError(f"[colors] has no {name!r}", where=Where(str(path)))
        try:
            Color.parse(value)
        except CssColorError:
            raise InputError(f"{name} = {value!r} is no colour", where=Where(str(path))) from None
        out[name] = value
    return out


def _styles(path: Path, table: Any) -> dict[str, Style]:
    out: dict[str, Style] = {}
    for name, value in _table(path, table, "styles").items():
        try:
            out[name] = Style.parse(value)
        except (StyleSyntaxError, ColorParseError):
            raise InputError(f"{name} = {value!r} is no style", where=Where(str(path))) from None
    return out


def _table(path: Path, table: Any, name: str) -> Mapping[str, str]:
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        raise InputError(f"[{name}] holds texts only", where=Where(str(path)))
    return table
