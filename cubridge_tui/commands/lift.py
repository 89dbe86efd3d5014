"""`cubridge lift KERNEL|FILE.cu`: the CuIR of a kernel, and what stayed opaque."""

from __future__ import annotations

import argparse

from cubridge_tui.console import say, show_json, show_source
from cubridge_tui.headless import add_json, add_specialisation, specialisation


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", help="a bundled kernel's name, a package's folder, or a .cu file")
    parser.add_argument("--ids", action="store_true", help="append every op's id")
    add_specialisation(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.cuir.ids import assign
    from engine.cuir.printer import print_module
    from engine.service.bench import lift_any

    lifted = lift_any(args.kernel, args.arch, specialisation(args))
    ids = assign(lifted.module)
    text = print_module(lifted.module, ids if args.ids else None)
    opaque = [
        {"line": op.span.start_line, "reason": op.reason, "op": ids.get(op.path, "")}
        for op in lifted.opaque
    ]
    if args.json:
        provenance = {
            ids[path]: [span.start_line, span.end_line]
            for path, span in lifted.provenance.items()
            if path in ids
        }
        show_json(
            {
                "file": lifted.file,
                "specialisation": dict(lifted.specialisation),
                "cuir": text,
                "opaque": opaque,
                "lines": provenance,
            }
        )
        return 0
    show_source(text.rstrip("\n"))
    for op in opaque:
        say(f"{lifted.file}:{op['line']}: opaque: {op['reason']}")
    return 0
