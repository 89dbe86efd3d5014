"""`cubridge recipe SPEC.py|SESSION`: what a spec asks for, in plain words."""

from __future__ import annotations

import argparse

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import add_json, add_store, session_named, spec_options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", help="a bundled spec's name, a Python file, or a session")
    parser.add_argument(
        "--set", action="append", metavar="NAME=VALUE", help="a parameter of the spec"
    )
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.child.client import Child
    from engine.resources import list_specs
    from engine.service.executed.opened import work_of
    from engine.service.session.disk_inputs import check_spec
    from engine.service.session.workbench import Bench, find_spec
    from engine.spec.recipes.recipe import describe
    from engine.spec.recipes.recipe_json import recipe_from_json
    from sessions.store import Store

    options = dict(spec_options(args.set))
    store = Store.open(args.store)
    session = session_named(store, args.spec, list_specs())
    if session is None:
        path = find_spec(args.spec)
    else:
        work = work_of(Bench(store), session)
        check_spec(work)
        path, options = work.spec, {**work.options.spec, **options}
    say(f"  reading {path.name} with torch, which takes a while to start")
    with Child() as child:
        answer = child.call("recipe", {"path": str(path), "options": options})
    words = describe(recipe_from_json(answer["recipe"]))
    if args.json:
        show_json({"spec": str(path), "recipe": answer["recipe"], "clauses": words})
        return 0
    for line in words:
        show(line)
    return 0
