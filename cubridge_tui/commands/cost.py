"""`cubridge cost KERNEL|FILE.cuir|SESSION`: what a kernel would take on a card, from its CuIR."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.console import show, show_json
from cubridge_tui.headless import add_json, add_specialisation, add_store, neither, specialisation


def configure(parser: argparse.ArgumentParser) -> None:
    from engine.cost.card import cards
    from engine.worker.orchestration.job_options import shape
    from engine.worker.problems.problem_sizes import FORM

    parser.add_argument("what", help="a bundled kernel's name, a .cu or .cuir file, or a session")
    parser.add_argument(
        "--card", choices=list(cards()), help="default: the card that the kernel's arch is of"
    )
    parser.add_argument(
        "--lengths", "--seqlen", nargs="+", type=_length, metavar="N",
        help="sequence lengths, at 16,384 rows in all and 32 heads (default: 2048 8192)",
    )  # fmt: skip
    parser.add_argument("--shapes", nargs="+", type=shape, metavar="SHAPE", help=f"or: {FORM}")
    parser.add_argument(
        "--kept", type=_share, metavar="SHARE",
        help="the share of pairs that the mask keeps (causal: 0.5): TFLOP/s count those; without "
        "it, those that a session's spec keeps, else the pairs of all visited tiles",
    )  # fmt: skip
    add_specialisation(parser)
    add_store(parser)
    add_json(parser)


def _length(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no length: give a number, such as 8192")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: give a number above 0, at most 1")
    return value


def run(args: argparse.Namespace) -> int:
    from engine.cost.card import card, card_of_arch, cards
    from engine.cost.model import lines
    from engine.cost.plan import constants
    from engine.cuir.arch import arch_name
    from engine.errors import InputError, StoreError
    from engine.resources import list_kernels
    from engine.service.session.workbench import Bench
    from engine.service.views import session_cost as service
    from engine.spec.recipes.kept_pairs import kept_share
    from engine.worker.problems.problem_sizes import cases_of, label
    from sessions.store import Store

    path, state, recipe, binding = Path(args.what), None, None, None
    kernel = args.what in list_kernels() or "/" in args.what or path.suffix == ".cu"
    if specialisation(args) and (path.suffix == ".cuir" or not kernel):
        raise InputError(
            f"--dtype and --head-dim choose from a kernel's, and {args.what} is no kernel",
            fix="leave them out, or name the kernel",
        )
    if path.suffix == ".cuir":
        module = service.module_of_file(path)
    elif kernel:
        module = service.module_of_kernel(args.what, args.arch, specialisation(args))
    else:
        with Bench(Store.open(args.store)) as bench:
            try:
                module, state, recipe, binding = service.module_of_session(bench, args.what)
            except StoreError as error:
                raise neither(args.what, error) from None
    width = constants(module).get("D", 128)
    plan = {"lengths": args.lengths or [2048, 8192], "shapes": args.shapes}
    cases = cases_of(plan, int(width))
    arch = args.arch or arch_name(module)
    named = card(args.card) if args.card else card_of_arch(arch)
    if named is None:
        raise InputError(
            f"the cost model has no card of the arch {arch or 'that is not given'}",
            fix=f"name one with --card: {', '.join(cards())}",
        )
    shares = [args.kept] * len(cases)
    if args.kept is None and recipe is not None:
        shares = [kept_share(recipe, case.sizes) for case in cases]
    found = [
        service.costs(
            module, [case], named, kept=kept, recipe=recipe, binding=binding, on_arch=args.arch
        )[0]
        for case, kept in zip(cases, shares, strict=True)
    ]
    if args.json:
        rows = [
            {"shape": case.sizes, **prediction.to_json()}
            for case, prediction in zip(cases, found, strict=True)
        ]
        tiles = service.tiles(state) if state is not None else None
        show_json({"what": args.what, "card": named.name, "predictions": rows, "tiles": tiles})
        return 0
    for case, prediction, kept in zip(cases, found, shares, strict=True):
        pairs = f", {100 * kept:.1f}% of the pairs kept" if kept is not None else ""
        show(label({**case.sizes, "D": width, "Dv": width}) + pairs)
        for line in lines(prediction):
            show(f"  {line}")
    if state is not None:
        show(service.tiles_words(state))
    return 0
