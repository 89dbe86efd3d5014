"""What `check` and `import` share of kernels that are executed as PTX: options and reports."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import head_dim

if TYPE_CHECKING:
    from engine.foreign.check import Asked, Checked
    from engine.ptx.findings import Finding
    from engine.ptx.syntax import Instruction

PASSED, FAILED = 0, 1
ARCH = "sm_90a"  # where none is named


def kernel_options(parser: argparse.ArgumentParser) -> None:
    """What says how a CUDA source is compiled, launched and compared."""
    cuda = parser.add_argument_group("of a CUDA source")
    cuda.add_argument("--reference", metavar="SPEC",
                      help="what it computes: a PyTorch function, or a bundled spec")  # fmt: skip
    cuda.add_argument("--launcher", default="launch", help="the C++ function that launches it")
    cuda.add_argument("--arch", help=f"the arch to build for (of a CUDA source: {ARCH})")
    cuda.add_argument("-I", dest="includes", action="append", default=[], metavar="FOLDER",
                      help="a folder of headers; may be repeated")  # fmt: skip
    cuda.add_argument("-D", dest="macros", action="append", default=[], metavar="MACRO",
                      help="a macro to define: NAME or NAME=VALUE; may be repeated")  # fmt: skip
    cuda.add_argument("--nvcc", action="append", default=[], metavar="FLAG",
                      help="a further flag of nvcc, such as --nvcc=-std=c++20")  # fmt: skip
    cuda.add_argument("--tensor", action="append", default=[], metavar="NAME=DIMS",
                      help='the shape of a further tensor: m="B Hq Nq"')  # fmt: skip
    cuda.add_argument("--sizes", action="append", default=[], metavar="SIZES",
                      help='a case in place of the usual ones: "B=1 Hq=2 Nq=64 Nk=64 D=64"; or, '
                      'without a length, what is other in them: "causal=1"; may be repeated'
                      )  # fmt: skip
    cuda.add_argument("--head-dim", type=head_dim, help="the head size (of a CUDA source: 64)")
    cuda.add_argument("--dtype", choices=("bf16", "f16", "f32"),
                      help="the element type (of void* and torch::Tensor: bf16)")  # fmt: skip


def asked_from(path: Path, args: argparse.Namespace) -> Asked:
    """The kernel that the options describe."""
    from engine.foreign.check import Asked
    from engine.foreign.compile import Flags
    from engine.service.session.workbench import find_spec

    sizes = [
        {name: _whole(size, text) for name, size in (_pair(t, "--sizes") for t in text.split())}
        for text in args.sizes
    ]
    return Asked(
        path,
        Flags(args.arch or ARCH, tuple(args.includes), tuple(args.macros), tuple(args.nvcc)),
        args.launcher,
        find_spec(args.reference) if args.reference else None,
        dict(_pair(text, "--tensor") for text in args.tensor),
        args.dtype or "bf16",
        args.head_dim or 64,
        sizes,
    )


def check_and_report(asked: Asked, as_json: bool) -> tuple[int, list[dict[str, int]]]:
    """Runs the kernel's cases, and shows what was found.

    Returns:
        The exit status, and the sizes that were run.
    """
    from engine.foreign.check import check_kernel, place

    path, cases = asked.source, []
    found = compared = 0
    told: set[str] = set()
    not_launched: tuple[str, ...] = ()
    unproven: dict[str, Instruction] = {}
    sizes: dict[str, dict[str, int]] = {}
    for checked in check_kernel(asked, say, more=True):
        _narrate(checked)
        if not checked.case.dtype:
            sizes[str(checked.case.sizes)] = dict(checked.case.sizes)
        for launch in checked.launches:
            unproven = {at.opcode: at for at in launch.unproven} | unproven
        row, lines = _reported(checked, path)
        cases.append(row)
        found += len(lines)
        compared += checked.differences is not None and bool(checked.errors)
        for line in lines if not as_json else ():
            if line not in told:  # the same place is wrong in most cases
                show(line)
            told.add(line)
        not_launched = checked.not_launched
    passed = None if asked.reference is None else bool(compared and not found and not not_launched)
    if as_json:
        reference = None if asked.reference is None else str(asked.reference)
        show_json({
            "file": str(path), "reference": reference, "g1": passed, "cases": cases,
            "not_launched": list(not_launched),
            "unproven": [
                {"opcode": opcode, "place": str(place(at, path))}
                for opcode, at in unproven.items()
            ],
        })  # fmt: skip
    elif asked.reference is None:
        if not found:
            show(f"{path}: {len(cases)} case{'s' * (len(cases) > 1)}, no findings")
        say("memory and order alone were checked: --reference SPEC.py compares what it computes")
    elif passed:
        show(f"{path}: G1 passes: equal to {asked.reference.name} in {compared} cases, no findings")
    elif not_launched and not found:
        show(f"{path}: G1 does not pass: a kernel of it was not run")
    elif not compared:
        show(f"{path}: no case could be compared with {asked.reference.name}")
    for kernel in not_launched:
        say(f"no size was found that launches {kernel}: nothing is known of it")
    for opcode, at in unproven.items():
        say(f"{place(at, path)}: {opcode} is executed as the PTX manual says: no GPU was asked")
    return FAILED if found or passed is False else PASSED, list(sizes.values())


def find_and_report(asked: Asked, as_json: bool) -> int:
    """Finds what the places of a kernel mean, and shows it."""
    from engine.foreign.probe.find import find
    from engine.foreign.probe.found import found_rows, found_text

    found = find(asked, say)
    if as_json:
        show_json({"file": str(asked.source), **found_rows(found)})
    else:
        show(found_text(found).rstrip("\n"))
    return PASSED if found.hooks else FAILED


def _narrate(checked: Checked) -> None:
    for launch in checked.launches:
        said = f"{launch.function}<<<{launch.grid}, {launch.block}, {launch.shared}>>>"
        say(
            f"{checked.case}: {said}  "
            f"{launch.thread_instructions:,} thread instructions, {launch.seconds:.1f} s"
        )
    if checked.skipped:
        say(f"{checked.case}: not run: {checked.skipped}")


def _reported(checked: Checked, path: Path) -> tuple[dict[str, Any], list[str]]:
    """One case as JSON, and its findings and differences as lines."""
    from engine.foreign.check import place, shorter

    findings, wrong = shorter(list(checked.findings), path), checked.differences or ()
    places = [str(place(f.at, path)) for f in findings]
    row = {
        "sizes": dict(checked.case.sizes), "compared": checked.differences is not None,
        "errors": dict(checked.errors),
        "findings": [
            {"place": at, "kind": f.kind, "message": f.words, "block": f.block,
             "thread": f.thread, "ptx_line": f.at.line}
            for f, at in zip(findings, places, strict=True)
        ],
        "differences": [
            {"tensor": d.tensor, "at": list(d.at), "expected": d.expected, "got": d.got,
             "bound": d.bound, "wrong": d.wrong, "of": d.of, "which": d.which}
            for d in wrong
        ],
        "why": list(checked.why),
        "seconds": sum(launch.seconds for launch in checked.launches), "nvcc": checked.nvcc,
    }  # fmt: skip
    lines = [_sentence(checked, f, at, path) for f, at in zip(findings, places, strict=True)]
    lines += [f"{path}: {d} ({checked.case})" for d in wrong]
    if checked.why:  # only where something differs
        lines[-1] = "\n    ".join([lines[-1], *checked.why])
    return row, lines


def _sentence(checked: Checked, finding: Finding, at: str, source: Path) -> str:
    from engine.foreign.check import led_by, place

    text = f"{at}: {finding.kind}: {finding.words} (block {finding.block}, thread {finding.thread})"
    if finding.other is not None:
        text += f"\n    the other access: {place(finding.other, source)}"
    return "\n    ".join([text, *led_by(checked, finding, source)])


def _pair(text: str, option: str) -> tuple[str, str]:
    from engine.errors import InputError

    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise InputError(f"{option} {text}: NAME=VALUE is needed")
    return name, value


def _whole(text: str, case: str) -> int:
    from engine.errors import InputError

    if not text.isdigit():
        raise InputError(f"--sizes {case}: {text} is no size",
                         fix='with blanks between: --sizes "B=1 Hq=2 N=64 D=64"')  # fmt: skip
    return int(text)
