"""The app's configuration: TOML files, the environment, the command line; and which one wins.

From strong to weak: command line, environment, `./cubridge.toml`, `$XDG_CONFIG_HOME/cubridge/
config.toml`, built in. An unknown key or a bad value is a warning, never the end of the app.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import InputError
from engine.files import read_text

PROJECT_FILE = "cubridge.toml"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: its type, what it is by itself, the variable that sets it, what it means."""

    name: str
    kind: type
    default: Any
    variable: str
    words: str


SETTINGS = (
    Setting(
        "theme", str, "dark", "CUBRIDGE_THEME",
        "dark, light, high_contrast, colour_blind, or one of your own",
    ),
    Setting("mouse", bool, True, "CUBRIDGE_MOUSE", "false leaves the mouse to the terminal"),
    Setting("editor", str, "", "VISUAL or EDITOR", "the command that edits a hunk outside"),
    Setting(
        "view", str, "hunks of ops", "",
        "how target and lowered open: hunks of ops, lines, side by side",
    ),
    Setting("gpu_host", str, "", "CUBRIDGE_GPU_HOST", "the ssh runner's machine, as ssh takes it"),
    Setting(
        "gpu_command", str, "", "CUBRIDGE_GPU_COMMAND",
        "the command runner's line: srun --gres=gpu:1 python3 {job}/run.py --out {out} {options}",
    ),
    Setting("ray_address", str, "", "RAY_ADDRESS", "the ray runner's cluster: ray://HOST:10001"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value and the place that it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting with its source, the keymap (action id -> keys), and warnings."""

    values: Mapping[str, Value]
    keys: Mapping[str, Value] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    files: tuple[tuple[str, bool], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    @property
    def keymap(self) -> dict[str, str]:
        return {name: str(v.value) for name, v in self.keys.items()}


def config_dir(environment: Mapping[str, str] | None = None) -> Path:
    """$XDG_CONFIG_HOME/cubridge, else ~/.config/cubridge."""
    env = os.environ if environment is None else environment
    named = env.get("XDG_CONFIG_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".config"
    return base / "cubridge"


def load_config(
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    actions: frozenset[str] = frozenset(),
) -> Config:
    """The configuration that counts here; `given` are the command line's values."""
    env = os.environ if environment is None else environment
    values = {s.name: Value(s.default, "built in") for s in SETTINGS}
    keys: dict[str, Value] = {}
    warnings: list[str] = []
    files: list[tuple[str, bool]] = []
    for path in (config_dir(env) / "config.toml", (folder or Path.cwd()) / PROJECT_FILE):
        data = _read(path, warnings)
        files.append((str(path), data is not None))
        for name, raw in (data or {}).items():
            if name == "keys":
                _take_keys(path, raw, keys, actions, warnings)
            else:
                _take(str(path), name, raw, values, warnings)
    for setting in SETTINGS:
        for variable in setting.variable.split(" or ") if setting.variable else ():
            if env.get(variable):
                raw = env[variable]
                _take(f"${variable}", setting.name, _typed(setting, raw), values, warnings)
                break
    for name, raw in (given or {}).items():
        if raw is not None:
            _take("command line", name, raw, values, warnings)
    return Config(values, keys, tuple(warnings), tuple(files))


def _read(path: Path, warnings: list[str]) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        return None
    try:
        return tomllib.loads(read_text(path, "make it a TOML file"))
    except (InputError, tomllib.TOMLDecodeError, RecursionError) as error:
        words = error.message if isinstance(error, InputError) else str(error)
        warnings.append(f"{path} is left out: {words}")
        return None


def _take(source: str, name: str, raw: Any, values: dict[str, Value], warnings: list[str]) -> None:
    setting = next((s for s in SETTINGS if s.name == name), None)
    if setting is None:
        near = difflib.get_close_matches(name, [*values, "keys"], 1)
        hint = f"; do you mean {near[0]!r}?" if near else ""
        warnings.append(f"{source}: there is no setting {name!r}{hint}")
    elif not isinstance(raw, setting.kind):
        warnings.append(f"{source}: {name} must be {_kind(setting)}, not {raw!r}")
    else:
        values[name] = Value(raw, source)


def _take_keys(
    path: Path,
    table: object,
    keys: dict[str, Value],
    actions: frozenset[str],
    warnings: list[str],
) -> None:
    if not isinstance(table, Mapping):
        warnings.append(f'{path}: keys must be a table: [keys], then lines such as step = "s"')
        return
    for name, raw in table.items():
        if actions and name not in actions:
            near = difflib.get_close_matches(name, actions, 1)
            hint = f"; do you mean {near[0]!r}?" if near else ""
            warnings.append(f"{path}: [keys] there is no action {name!r}{hint}")
        elif not isinstance(raw, str):
            warnings.append(f'{path}: [keys] {name} must be a text such as "ctrl+n,n"')
        else:
            keys[name] = Value(raw, str(path))


def _typed(setting: Setting, text: str) -> Any:
    if setting.kind is bool:
        known = {"0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}
        return known.get(text.lower(), text)
    return text


def _kind(setting: Setting) -> str:
    return "true or false" if setting.kind is bool else "a text"
