"""What `check` and `import` share of kernels that are executed as PTX: options and reports."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import say, show, show_json
from cubridge_tui.headless import GATE_FAILED, GATE_MISSING, head_dim

if TYPE_CHECKING:
    from engine.foreign.check import Asked, Checked
    from engine.foreign.numbers.where import Where
    from engine.ptx.findings import Finding

PASSED = 0
ARCH, LAUNCHER = "sm_90a", "launch"  # where none is named


@dataclass(frozen=True, slots=True)
class KernelOption:
    """An option that says how a CUDA source is compiled, launched and compared.

    Args:
        settings: what argparse is told beside the flag. No option has a default of its own, so that
            a given one is known from one that was left out.
    """

    flag: str
    name: str
    settings: Mapping[str, Any]

    @staticmethod
    def of(flag: str, name: str, help: str, **settings: Any) -> KernelOption:
        return KernelOption(flag, name, {"help": help, "dest": name, **settings})

    @staticmethod
    def repeated(flag: str, name: str, metavar: str, help: str) -> KernelOption:
        """One that may be given several times."""
        return KernelOption.of(flag, name, help, action="append", default=[], metavar=metavar)


KERNEL_OPTIONS = (
    KernelOption.of("--reference", "reference", "what it computes: a PyTorch function, or a "
                    "bundled spec", metavar="SPEC"),
    KernelOption.of("--launcher", "launcher", f"the C++ function that launches it ({LAUNCHER})"),
    KernelOption.of("--arch", "arch", f"the arch to build for (of a CUDA source: {ARCH})"),
    KernelOption.repeated("-I", "includes", "FOLDER", "a folder of headers; may be repeated"),
    KernelOption.repeated("-D", "macros", "MACRO",
                          "a macro to define: NAME or NAME=VALUE; may be repeated"),
    KernelOption.repeated("--nvcc", "nvcc", "FLAG", "a further flag of nvcc, such as "
                          "--nvcc=-std=c++20"),
    KernelOption.repeated("--tensor", "tensor", "NAME=DIMS",
                          'the shape of a further tensor: m="B Hq Nq"'),
    KernelOption.repeated("--sizes", "sizes", "SIZES", "a case in place of the usual ones: "
                          '"B=1 Hq=2 Nq=64 Nk=64 D=64"; or, without a length, what is other in '
                          'them: "causal=1"; may be repeated'),
    KernelOption.of("--head-dim", "head_dim", "the head size (of a CUDA source: 64)",
                    type=head_dim),
    KernelOption.of("--dtype", "dtype", "the element type (of void* and torch::Tensor: bf16)",
                    choices=("bf16", "f16", "f32")),
)  # fmt: skip


def kernel_options(parser: argparse.ArgumentParser) -> None:
    """What says how a CUDA source is compiled, launched and compared."""
    cuda = parser.add_argument_group("of a CUDA source")
    for option in KERNEL_OPTIONS:
        cuda.add_argument(option.flag, **option.settings)


def takes_only(args: argparse.Namespace, what: str, *names: str) -> None:
    """Refuses what was given of the options of a CUDA source, but for the named ones: nothing would
    come of it.

    Raises:
        InputError: with the first such option.
    """
    from engine.errors import InputError

    for option in KERNEL_OPTIONS:
        if option.name not in names and getattr(args, option.name) not in (None, []):
            takes = ", ".join(o.flag for o in KERNEL_OPTIONS if o.name in names)
            fix = f"leave it out{f'; it takes {takes}' if takes else ''}"
            raise InputError(f"{what} takes no {option.flag}", fix=fix)


def asked_of_folder(folder: Path, args: argparse.Namespace) -> Asked:
    """The kernel of a folder of `cubridge import`, at the sizes that were given if any were."""
    from engine.foreign.package import read_package

    takes_only(args, "an imported kernel", "sizes")
    asked = read_package(folder)
    return replace(asked, sizes=sizes_given(args)) if args.sizes else asked


def sizes_given(args: argparse.Namespace) -> list[dict[str, int]]:
    """The cases that --sizes names, with the D of --head-dim where they name none."""
    sizes = [_case(text) for text in args.sizes]
    if args.head_dim:
        sizes = [{**given, "D": given.get("D", args.head_dim)} for given in sizes or [{}]]
    return sizes


def asked_from(path: Path, args: argparse.Namespace) -> Asked:
    """The kernel that the options describe."""
    from engine.foreign.check import Asked
    from engine.foreign.compile import Flags
    from engine.service.session.workbench import find_spec

    return Asked(
        path,
        Flags(args.arch or ARCH, tuple(args.includes), tuple(args.macros), tuple(args.nvcc)),
        args.launcher or LAUNCHER,
        find_spec(args.reference) if args.reference else None,
        _pairs(args.tensor, "--tensor"),
        args.dtype or "bf16",
        args.head_dim or 64,
        sizes_given(args),
    )


def check_and_report(asked: Asked, as_json: bool) -> tuple[int, list[dict[str, int]]]:
    """Runs the kernel's cases, shows what was found, each thing once, and last the verdict.

    Returns:
        The exit status, and the sizes that were run.
    """
    from engine.foreign.check import check_kernel, never_run_in, places

    told = Told(asked.source)
    unproven: dict[str, str] = {}
    sizes: dict[str, dict[str, int]] = {}
    not_launched: tuple[str, ...] = ()
    ran: list[Checked] = []
    try:
        for checked in check_kernel(asked, say, more=True):
            where = places(checked, asked.source)
            told.add(checked, where)
            if not checked.case.dtype:
                sizes[str(checked.case.sizes)] = dict(checked.case.sizes)
            for at in (at for launch in checked.launches for at in launch.unproven):
                unproven.setdefault(at.opcode, where(at).line)
            not_launched = checked.not_launched
            ran.append(checked)
    finally:  # what was found before a case that cannot be run is told, too
        for line in () if as_json else told.lines():
            show(line)
    reference = asked.reference
    left = never_run_in([] if told.found else ran, asked.source)
    passed = False if told.found else True if reference is not None and told.compared else None
    for opcode, line in unproven.items() if not as_json else ():
        say(f"{line}: {opcode} is executed as the PTX manual says: no GPU was asked")
    if as_json:
        show_json({
            "file": str(asked.source), "reference": None if reference is None else str(reference),
            "g1": None if reference is None else passed, "cases": told.rows,
            "not_launched": list(not_launched), "never_run": left.lines,
            "unproven": [{"opcode": o, "place": line} for o, line in unproven.items()],
        })  # fmt: skip
    else:
        verdict = told.verdict(reference.name if reference else None)
        show(f"{asked.source}: {verdict}{_not_run(not_launched)}{left.remark}")
    passes = passed or reference is None
    code = GATE_FAILED if told.found else PASSED if passes else GATE_MISSING
    return code, list(sizes.values())


def _not_run(kernels: Sequence[str]) -> str:
    return (
        f"; not run: {', '.join(kernels)}: no size was found that launches them" if kernels else ""
    )


class Told:
    """What the cases of a kernel showed: each finding and each output that differs once, with the
    cases that it occurs in."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.rows: list[dict[str, Any]] = []
        self.compared = 0
        self._findings: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
        self._outputs: dict[str, tuple[list[str], list[str]]] = {}
        self._bad: set[str] = set()

    @property
    def found(self) -> bool:
        return bool(self._bad)

    def add(self, checked: Checked, where: Where) -> None:
        """One case; what it showed is narrated in short."""
        from engine.foreign.check import led_by, shorter

        case, wrong = str(checked.case), checked.differences or ()
        findings = shorter(checked.findings, where)
        self.rows.append(_row(checked, findings, where))
        self.compared += checked.differences is not None and bool(checked.errors)
        _narrate(checked)
        short = [f"{f.kind} at {where(f.at).line}" for f in findings]
        if short := short + [f"{d.tensor.upper()} is wrong" for d in wrong]:
            say(f"{case}: {'; '.join(short)}")
            self._bad.add(case)
        for f in findings:
            lines, cases = self._findings.setdefault((f.kind, str(where(f.at))), ([], []))
            lines += [] if lines else [*_sentences(f, where), *led_by(checked, f, where)]
            cases.append(case)
        for d in wrong:
            lines, cases = self._outputs.setdefault(d.tensor, ([], []))
            lines += [] if lines else [f"{self.source}: {d} ({case})"]
            cases.append(f"{case} ({d.wrong} of {d.of})")
        if checked.why:  # only where something differs
            of = [] if cases[1:] == [] else [f"of {case}:"]
            lines += [*of, *checked.why]

    def lines(self) -> Iterator[str]:
        for lines, cases in self._findings.values():
            yield "\n    ".join([*lines, *self._cases("in", cases)])
        for lines, cases in self._outputs.values():
            yield "\n    ".join([*lines, *self._cases("also wrong in", cases[1:])])

    def _cases(self, word: str, cases: Sequence[str]) -> list[str]:
        if not cases or len(self.rows) == 1:
            return []
        return [f"{word} {'; '.join(cases) if len(cases) < len(self.rows) else 'all cases'}"]

    def verdict(self, reference: str | None) -> str:
        ran, found = len(self.rows), len(self._findings)
        many = f"{ran} case{'s' * (ran > 1)}"
        if self.found:
            what = [f"{found} finding{'s' * (found > 1)}"] if found else []
            what += [f"{' and '.join(n.upper() for n in self._outputs)} wrong"] * bool(
                self._outputs
            )
            where = f"{', '.join(what)}, in {len(self._bad)} of {many}"
            return where if reference is None else f"G1 fails: {where}"
        if reference is None:
            return (
                f"{many} ({self._lengths()}), no findings of memory and order (--reference SPEC.py "
                "compares numbers)"
            )
        if not self.compared:
            return f"G1 was not run: no case could be compared with {reference}"
        left = f" ({ran - self.compared} not compared)" if ran > self.compared else ""
        return (
            f"G1 passes: equal to {reference} in {self.compared} cases{left}, no findings; "
            f"{self._lengths()}; --sizes names others"
        )

    def _lengths(self) -> str:
        """What was run, by its lengths."""
        ran = [_length_words(row["sizes"]) for row in self.rows]
        return ", ".join(dict.fromkeys(ran))


def find_and_report(asked: Asked, as_json: bool) -> int:
    """Finds what the places of a kernel mean, and shows it."""
    from engine.foreign.probe.find import find
    from engine.foreign.probe.found import found_rows, found_text

    found = find(asked, say)
    if as_json:
        show_json({"file": str(asked.source), **found_rows(found)})
    else:
        show(found_text(found).rstrip("\n"))
    return PASSED if found.hooks else GATE_FAILED


def _narrate(checked: Checked) -> None:
    for launch in checked.launches:
        said = f"{launch.function}<<<{launch.grid}, {launch.block}, {launch.shared}>>>"
        say(
            f"{checked.case}: {said}  "
            f"{launch.thread_instructions:,} thread instructions, {launch.seconds:.1f} s"
        )
    if checked.skipped:
        say(f"{checked.case}: not run: {checked.skipped}")


def _length_words(sizes: Mapping[str, int]) -> str:
    """A case's lengths, "N 64" or "Nq 21 Nk 23"; all of its sizes where it names none."""
    named = [f"{n} {sizes[n]}" for n in ("N", "Nq", "Nk") if n in sizes]
    return " ".join(named or [f"{n} {s}" for n, s in sizes.items()])


def _row(checked: Checked, findings: Sequence[Finding], where: Where) -> dict[str, Any]:
    """One case as JSON."""
    return {
        "sizes": dict(checked.case.sizes), "values": checked.case.values,
        "compared": checked.differences is not None and bool(checked.errors),
        "errors": dict(checked.errors),
        "findings": [
            {"place": where(f.at).line, "inlined": list(where(f.at).inlined), "kind": f.kind,
             "message": f.words, "block": f.block, "thread": f.thread, "ptx_line": f.at.line}
            for f in findings
        ],
        "differences": [
            {"tensor": d.tensor, "at": list(d.at), "expected": d.expected, "got": d.got,
             "bound": d.bound, "wrong": d.wrong, "of": d.of, "which": d.which}
            for d in checked.differences or ()
        ],
        "why": list(checked.why),
        "seconds": sum(launch.seconds for launch in checked.launches), "nvcc": checked.nvcc,
    }  # fmt: skip


def _sentences(finding: Finding, where: Where) -> Iterator[str]:
    from engine.foreign.numbers.where import listed

    at = where(finding.at)
    who = f" ({finding.who})" if finding.who else ""
    yield f"{at.line}: {finding.kind}: {finding.words}{who}"
    if at.inlined:
        yield f"inlined there: {listed(at.inlined)}"
    if finding.other is not None:
        yield f"the other access: {where(finding.other)}"


def _pair(text: str, option: str) -> tuple[str, str]:
    from engine.errors import InputError

    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise InputError(f"{option} {text}: NAME=VALUE is needed")
    return name, value


def _case(text: str) -> dict[str, int]:
    """A case as it is typed: "B=1 Hq=2 N=64"."""
    return {name: _whole(n, text) for name, n in _pairs(text.split(), "--sizes").items()}


def _pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE pairs; a name that is given twice is refused."""
    from engine.errors import InputError

    out: dict[str, str] = {}
    for word in words:
        name, value = _pair(word, option)
        if name in out:
            raise InputError(f"{option}: {name} is given twice, {out[name]} and {value}",
                             fix="leave one of them out")  # fmt: skip
        out[name] = value
    return out


def _whole(text: str, case: str) -> int:
    from engine.errors import InputError

    if not text.isdigit():
        raise InputError(f"--sizes {case}: {text} is no size",
                         fix='with blanks between: --sizes "B=1 Hq=2 N=64 D=64"')  # fmt: skip
    return int(text)
