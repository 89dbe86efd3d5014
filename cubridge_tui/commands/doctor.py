"""`cubridge doctor`: what this machine has, and what to type for the rest."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.console import show, show_json
from engine.service.upkeep import doctor

SOMETHING_MISSING = 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, help="the store to look at")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(args: argparse.Namespace) -> int:
    checks = doctor.examine(store=args.store)
    whole = doctor.whole(checks)
    if args.json:
        show_json({"whole": whole, "checks": [check.to_json() for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            show(f"{check.status.value:<7}  {check.name:<{width}}  {check.detail}")
            if check.fix:
                show(f"{'':<7}  {'':<{width}}  type: {check.fix}")
    return 0 if whole else SOMETHING_MISSING
