"""`cubridge config`: what the app's settings are here, and which file or variable wins."""

from __future__ import annotations

import argparse

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import add_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keys", action="store_true", help="also every action with its keys, for a [keys] table"
    )
    parser.add_argument(
        "--example", action="store_true", help="a commented config.toml with what is built in"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from cubridge_tui.actions import ACTIONS, clashes, with_keys
    from cubridge_tui.config import config_dir, load_config

    if args.example:
        show(example())
        return 0
    config = load_config(actions=frozenset(a.id for a in ACTIONS))
    table = with_keys(ACTIONS, config.keymap)
    warnings = (*config.warnings, *clashes(table))
    if args.json:
        show_json(
            {
                "settings": {
                    name: {"value": v.value, "from": v.source} for name, v in config.values.items()
                },
                "keys": {n: {"keys": v.value, "from": v.source} for n, v in config.keys.items()},
                "files": [{"path": path, "read": read} for path, read in config.files],
                "themes": str(config_dir() / "themes"),
                "warnings": list(warnings),
            }
        )
        return 0
    for path, read in reversed(config.files):
        show(f"{'read  ' if read else 'absent'}  {path}")
    show(f"themes  {config_dir() / 'themes' / '*.toml'}")
    show("")
    rows = [(name, _text(v.value), v.source) for name, v in config.values.items()]
    rows += [(f"keys.{name}", _text(v.value), v.source) for name, v in config.keys.items()]
    for name, value, source in rows:
        show(f"{name:<{max(len(r[0]) for r in rows)}}  {value:<{_width(rows)}}  {source}")
    if args.keys:
        show("")
        for action in table:
            show(f"{action.screen:<11} {action.id:<22} {','.join(action.keys):<32} {action.words}")
    for warning in warnings:
        say(f"warning: {warning}")
    return 0


def example() -> str:
    """A config file that changes nothing: every setting with what it means."""
    from cubridge_tui.config import PROJECT_FILE, SETTINGS, config_dir

    lines = [
        f"# {config_dir() / 'config.toml'}, or ./{PROJECT_FILE} for one folder (that one wins).",
        "# Environment variables and the command line win over both.",
        "",
    ]
    for setting in SETTINGS:
        also = f" (also ${setting.variable.replace(' or ', ', $')})" if setting.variable else ""
        lines += [f"# {setting.words}{also}", f"# {setting.name} = {_text(setting.default)}", ""]
    lines += [
        "# Your own keys: action = keys, with commas. `cubridge config --keys` lists the actions.",
        "[keys]",
        '# step = "s,space"',
    ]
    return "\n".join(lines)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _width(rows: list[tuple[str, str, str]]) -> int:
    return max(len(value) for _, value, _ in rows)
