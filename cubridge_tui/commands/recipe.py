"""`cubridge recipe SPEC.py`: what a spec asks for, in plain words beside the lines that say so."""

from __future__ import annotations

import argparse

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import add_json, spec_options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", help="a bundled spec's name, or a Python file")
    parser.add_argument(
        "--set", action="append", metavar="NAME=VALUE", help="a parameter of the spec"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.child.client import Child
    from engine.service.bench import find_spec
    from engine.spec.text import recipe_from_json
    from engine.spec.words import describe

    path = find_spec(args.spec)
    options = dict(spec_options(args.set))
    say(f"  reading {path.name} with torch, which takes a while to start")
    with Child() as child:
        answer = child.call("recipe", {"path": str(path), "options": options})
    if args.json:
        show_json({"spec": str(path), "recipe": answer["recipe"]})
        return 0
    for line in describe(recipe_from_json(answer["recipe"])):
        show(line)
    return 0
