"""`cubridge check FILE.cuir|SESSION|KERNEL.cu|FOLDER`.

Parses and type-checks CuIR; runs a session's G1 and G2; or executes a CUDA kernel as PTX, every
thread of it, on the CPU, says where it races, reads too early or out of bounds, and compares what
it writes with a reference.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import (
    GATE_FAILED,
    GATE_MISSING,
    adapting,
    add_agent,
    add_json,
    add_store,
    left_overridden,
)
from cubridge_tui.headless_foreign import (
    asked_from,
    asked_of_folder,
    check_and_report,
    kernel_options,
    takes_only,
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", help="a .cuir file, a session's id, a CUDA source, or a folder of `cubridge import`"
    )
    kernel_options(parser)
    add_agent(parser)
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    path = Path(args.what)
    if path.suffix in (".cu", ".cuh", ".cpp"):
        return check_and_report(asked_from(path, args), args.json)[0]
    if path.is_dir():
        return check_and_report(asked_of_folder(path, args), args.json)[0]
    if path.suffix == ".cuir" or path.is_file():
        takes_only(args, "CuIR")
        return _check_file(path, args)
    takes_only(args, "a session")
    return _check_session(args)


def _check_file(path: Path, args: argparse.Namespace) -> int:
    from engine.cuir.parser import parse_with_tables
    from engine.cuir.static.check import check
    from engine.errors import CuirError
    from engine.files import read_text

    example = "a CuIR file, as `cubridge lift KERNEL` shows one"
    text = read_text(path, f"give {example}")
    try:
        parsed = parse_with_tables(text, str(path))
    except CuirError as error:
        fix = error.fix or f"correct the text there, or give {example}"
        raise CuirError(error.message, where=error.where, fix=fix) from None
    findings = check(parsed.module)
    rows = [
        {"line": parsed.lines.get(f.path), "kind": f.kind, "message": f.message} for f in findings
    ]
    if args.json:
        show_json({"file": str(path), "findings": rows})
    else:
        for row in rows:
            show(f"{path}:{row['line'] or 1}: {row['kind']}: {row['message']}")
        if not rows:
            show(f"{path}: {len(parsed.lines)} ops, no findings")
    return GATE_FAILED if rows else 0


def _check_session(args: argparse.Namespace) -> int:
    """Both gates are asked for: one that did not run is missing, as with `adapt --require`."""
    from cubridge_tui.model.proofs import PROOFS, proof_lines
    from engine.types import Gate, VerdictKind

    rows: list[dict[str, Any]] = []
    code = 0
    with adapting(args, args.what) as work:
        for name, gate, step in (
            ("lifted", Gate.G1, work.judge_lifted),
            ("target", Gate.G2, work.judge_target),
        ):
            verdict = left_overridden(work, gate, args) or step()
            missing = GATE_MISSING if verdict.kind is VerdictKind.NOT_RUN else 0
            code = GATE_FAILED if GATE_FAILED in (code, int(verdict.stops)) else code or missing
            say(f"{name:<9} {verdict.gate} {verdict.kind}  {verdict.reason}")
            for line in proof_lines(verdict.details):
                say(f"          {line}")
            proofs = {k: v for k, v in verdict.details.items() if k in PROOFS}
            rows.append(
                {"name": name, "gate": verdict.gate.value, "verdict": verdict.kind.value,
                 "reason": verdict.reason, "seconds": verdict.seconds, **proofs}
            )  # fmt: skip
        if args.json:
            show_json({"session": work.session.id, "stages": rows})
    return code
