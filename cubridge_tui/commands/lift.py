"""`cubridge lift KERNEL|FILE.cu|SESSION`: the CuIR of a kernel, and what stayed opaque; of a
session with what the person accepted, which is what the next proposal edits. Of a kernel of
others (a CUDA source and its reference, or a folder of `cubridge import`): where its scores stand,
found by executing it."""

from __future__ import annotations

import argparse
from pathlib import Path

from cubridge_tui.console import say, show_json, show_source
from cubridge_tui.headless import (
    add_json,
    add_store,
    session_named,
    specialisation,
)
from cubridge_tui.headless_foreign import (
    asked_from,
    asked_of_folder,
    find_and_report,
    kernel_options,
    takes_only,
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kernel", help="a bundled kernel's name, a package's folder, a .cu file, or a session"
    )
    parser.add_argument("--ids", action="store_true", help="append every op's id")
    kernel_options(parser)
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from engine.cuir.changes.ids import assign
    from engine.cuir.printer import print_module
    from engine.lift.files.kernel_package import is_imported
    from engine.resources import list_kernels
    from engine.service.executed.opened import work_of
    from engine.service.session.workbench import Bench, lift_any
    from sessions.store import Store

    path = Path(args.kernel)
    if args.reference and path.is_file():
        return find_and_report(asked_from(path, args), args.json)
    if is_imported(path):
        return find_and_report(asked_of_folder(path, args), args.json)
    store = Store.open(args.store)
    session = session_named(store, args.kernel, list_kernels())
    if session is None:
        takes_only(args, "a kernel lifted without --reference", "arch", "head_dim", "dtype")
        lifted = lift_any(args.kernel, args.arch, specialisation(args))
        module = lifted.module
    else:
        takes_only(args, "a session")
        content = work_of(Bench(store), session)
        lifted, module = content.lifted, content.compose()
    ids = assign(module)
    text = print_module(module, ids if args.ids else None)
    opaque = [
        {"line": op.span.start_line, "reason": op.reason, "op": ids.get(op.path, "")}
        for op in lifted.opaque
    ]
    if args.json:
        same = module == lifted.module  # else its ops stand elsewhere than the source's
        provenance = {
            ids[path]: [span.start_line, span.end_line]
            for path, span in lifted.provenance.items()
            if same and path in ids
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
