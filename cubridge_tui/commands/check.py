"""`cubridge check FILE.cuir|SESSION|KERNEL.cu`.

Parses and type-checks CuIR; runs a session's G1 and G2; or executes a CUDA kernel, every thread of
it, on the CPU, and says where it races, reads too early or out of bounds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import actor, add_json, add_store, narrator, writing

FAILED = 1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", help="a .cuir file, a session's id, or a CUDA source")
    cuda = parser.add_argument_group("of a CUDA source")
    cuda.add_argument("--reference", metavar="SPEC",
                      help="what it computes: a PyTorch function, or a bundled spec's name")  # fmt: skip
    cuda.add_argument("--launcher", default="launch", help="the C++ function that launches it")
    cuda.add_argument("--arch", default="sm_90a")
    cuda.add_argument("-I", dest="includes", action="append", default=[], metavar="FOLDER")
    cuda.add_argument("-D", dest="macros", action="append", default=[], metavar="MACRO")
    cuda.add_argument("--nvcc", action="append", default=[], metavar="FLAG",
                      help="a further flag of nvcc, such as --nvcc=-std=c++20")  # fmt: skip
    cuda.add_argument("--tensor", action="append", default=[], metavar="NAME=DIMS",
                      help='the shape of a further tensor: m="B Hq Nq"')  # fmt: skip
    cuda.add_argument("--sizes", action="append", default=[], metavar="SIZES",
                      help='one case: "B=1 Hq=2 Nq=64 Nk=64 D=64"')  # fmt: skip
    cuda.add_argument("--head-dim", type=int, default=64)
    cuda.add_argument("--dtype", choices=("bf16", "f16", "f32"), default="bf16",
                      help="elements of void* and torch::Tensor")  # fmt: skip
    add_store(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    path = Path(args.what)
    if path.suffix in (".cu", ".cuh", ".cpp"):
        return _check_kernel(path, args)
    if path.suffix == ".cuir" or path.is_file():
        return _check_file(path, args)
    return _check_session(args)


def _check_file(path: Path, args: argparse.Namespace) -> int:
    from engine.cuir.check import check
    from engine.cuir.parser import parse_with_tables
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
    return FAILED if rows else 0


def _check_kernel(path: Path, args: argparse.Namespace) -> int:
    from engine.foreign.check import Asked, check_kernel, place, shorter
    from engine.foreign.compile import Flags
    from engine.service.bench import find_spec

    sizes = [
        {name: _whole(size, text) for name, size in (_pair(t, "--sizes") for t in text.split())}
        for text in args.sizes
    ]
    asked = Asked(
        path,
        Flags(args.arch, tuple(args.includes), tuple(args.macros), tuple(args.nvcc)),
        args.launcher,
        find_spec(args.reference) if args.reference else None,
        dict(_pair(text, "--tensor") for text in args.tensor),
        args.dtype,
        args.head_dim,
        sizes,
    )
    cases: list[dict[str, Any]] = []
    found = compared = 0
    for checked in check_kernel(asked, say):
        findings = shorter(list(checked.findings), path)
        wrong = checked.differences or ()
        found += len(findings) + len(wrong)
        compared += checked.differences is not None
        for launch in checked.launches:
            say(
                f"{checked.case}: {launch.kernel}<<<{launch.grid}, {launch.block}, "
                f"{launch.shared}>>>  {launch.thread_instructions:,} thread instructions, "
                f"{launch.seconds:.1f} s"
            )
        if checked.skipped:
            say(f"{checked.case}: not run, {checked.skipped}")
        rows = [
            {"place": str(place(f, path) or f.at), "kind": f.kind, "message": f.words,
             "block": f.block, "thread": f.thread, "ptx_line": f.at.line}
            for f in findings
        ]  # fmt: skip
        cases.append(
            {"sizes": dict(checked.case.sizes), "findings": rows, "errors": dict(checked.errors),
             "compared": checked.differences is not None,
             "differences": [
                 {"tensor": d.tensor, "at": d.at, "expected": d.expected, "got": d.got,
                  "bound": d.bound, "wrong": d.wrong, "of": d.of} for d in wrong],
             "seconds": sum(launch.seconds for launch in checked.launches)}
        )  # fmt: skip
        if not args.json:
            for finding, row in zip(findings, rows, strict=True):
                show(_sentence(finding, str(row["place"]), path))
            for difference in wrong:
                show(f"{path}: {difference} ({checked.case})")
    passed = None if asked.reference is None else bool(compared) and not found
    if args.json:
        show_json({"file": str(path), "reference": asked.reference and str(asked.reference),
                   "g1": passed, "cases": cases})  # fmt: skip
    elif asked.reference is None and not found:
        show(f"{path}: {len(cases)} cases, no findings of memory and order")
        say("what it computes was not compared: --reference SPEC.py does")
    elif passed:
        show(f"{path}: G1 passes: equal to {asked.reference.name} in {compared} cases, no findings")
    elif asked.reference is not None and not compared:
        show(f"{path}: G1 was not run: no case could be compared")
    return FAILED if found or passed is False else 0


def _sentence(finding: Any, at: str, source: Path) -> str:
    from engine.foreign.check import place

    text = f"{at}: {finding.kind}: {finding.words} (block {finding.block}, thread {finding.thread})"
    if finding.other is not None:
        there = type(finding)(finding.kind, finding.other, "")
        text += f"\n    the other access: {place(there, source) or finding.other}"
    return text


def _pair(text: str, option: str) -> tuple[str, str]:
    from engine.errors import InputError

    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise InputError(f"{option} {text}: NAME=VALUE is needed")
    return name, value


def _whole(text: str, case: str) -> int:
    from engine.errors import InputError

    if not text.isdigit():
        raise InputError(f"--sizes {case}: {text} is no size")
    return int(text)


def _check_session(args: argparse.Namespace) -> int:
    from cubridge_tui.model.proofs import PROOFS, proof_lines
    from engine.service.adaptation import Adaptation
    from engine.service.bench import Bench
    from engine.types import VerdictKind
    from sessions.store import Store

    store = Store.open(args.store)
    rows: list[dict[str, Any]] = []
    failed = False
    with (
        Bench(store, progress=narrator(args.json)) as bench,
        writing(store, args.what) as writer,
    ):
        work = Adaptation(bench, writer, actor())
        for name, step in (("lifted", work.judge_lifted), ("target", work.judge_target)):
            verdict = step()
            failed = failed or verdict.kind is VerdictKind.FAIL or verdict.unfinished
            say(f"{name:<9} {verdict.gate} {verdict.kind}  {verdict.reason}")
            for line in proof_lines(verdict.details):
                say(f"          {line}")
            proofs = {k: v for k, v in verdict.details.items() if k in PROOFS}
            rows.append(
                {"name": name, "gate": verdict.gate.value, "verdict": verdict.kind.value,
                 "reason": verdict.reason, "seconds": verdict.seconds, **proofs}
            )  # fmt: skip
        if args.json:
            show_json({"session": writer.id, "stages": rows})
    return FAILED if failed else 0
