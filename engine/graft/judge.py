"""G1, G2 and G3 of a kernel that is executed as PTX: what running, building and probing it say.

Everything here is of the sizes that were run. No verdict says more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.build.build import ended_by_signal
from engine.build.machine_code.compare import compare
from engine.build.machine_code.products import Launch, read_specialisation
from engine.build.machine_code.ptxas import function_name
from engine.build.machine_code.result import BuildResult
from engine.build.tools.process import run
from engine.build.tools.toolchain import Toolchain, compiler_environ
from engine.child.client import Child
from engine.cuir.arch import arch as arch_of
from engine.cuir.printer import print_expr
from engine.foreign.check import Asked, Checked, check_kernel, never_run_in, places, shorter
from engine.foreign.launcher import Launcher
from engine.foreign.numbers.never_run import NeverRun
from engine.gates.outcome import Found
from engine.graft.cases import on_data, sides_not_taken
from engine.graft.edits import Edit, Files, apply, only_spans_changed
from engine.spec.recipes.recipe import Recipe

Said = Callable[[str], None]
LIMIT = 1800.0  # seconds for one compilation
KEY = "kernel"


@dataclass(frozen=True, slots=True)
class Ran:
    """What executing a kernel in its cases gave.

    Args:
        not_launched: kernels that the launcher reaches and no case launched, with their lines.
        not_reached: why no case was compared in which a place of the source is reached.
        never_run: lines of the kernels that no case came to.
    """

    found: Found
    launches: Mapping[str, Launch]  # by the kernel's plain name
    work: int  # executed thread instructions, of all cases together
    seconds: float
    not_launched: tuple[str, ...] = ()
    not_reached: str = ""
    never_run: NeverRun = field(default_factory=NeverRun)


def judge_run(asked: Asked, child: Child, said: Said) -> Ran:
    """Executes every thread of the kernel in each case, and compares with its reference.

    Raises:
        InputError: it does not compile, or has what cannot be executed.
    """
    begin = time.monotonic()
    wrong: list[str] = []
    rows: list[dict[str, Any]] = []
    launches: dict[str, Launch] = {}
    ran: list[Checked] = []
    compared = work = 0
    not_launched: tuple[str, ...] = ()
    assert asked.reference is not None
    for checked in check_kernel(asked, said, child):
        where = places(checked, asked.source)
        findings = shorter(checked.findings, where)
        for f in findings:
            wrong.append(f"{where(f.at).line}: {f.kind}: {f.words} ({checked.case})")
        kernels = ", ".join(dict.fromkeys(function_name(x.kernel) for x in checked.launches))
        wrong += [f"{d} ({checked.case}: {kernels})" for d in checked.differences or ()]
        not_launched = checked.not_launched
        ran.append(checked)
        bad = len(findings) + len(checked.differences or ())
        compared += checked.differences is not None and bool(checked.errors)
        done = sum(launch.thread_instructions for launch in checked.launches)
        work += done
        for launch in checked.launches:
            threads = launch.block[0] * launch.block[1] * launch.block[2]
            launches[function_name(launch.kernel)] = Launch(launch.shared, threads)
        rows.append(_row(checked, len(findings), done) | ({"wrong": bad} if bad else {}))
        said(f"case {len(rows)}: {checked.case}: {_words(checked, len(findings))}")
    said(f"{len(rows)} cases executed")
    details: dict[str, Any] = {"how": "run at these sizes", "cases": rows, "instructions": work}
    name = asked.reference.name
    if wrong:
        details["wrong"] = wrong[:20]
        return Ran(Found(False, wrong[0], details), launches, work, time.monotonic() - begin)
    if not compared:
        reason = f"no case could be compared with {name}"
        return Ran(Found(False, reason, details), launches, work, time.monotonic() - begin)
    reason = f"executed as PTX it equals {name} at the sizes that were run: {_sizes(rows)}"
    if skipped := _skipped(rows):
        reason += f"; {skipped}"
    left = never_run_in(ran, asked.source)
    if left.lines:
        details["never_run"] = [left.lines]
        reason += left.remark
    seconds = time.monotonic() - begin
    return Ran(Found(True, reason, details), launches, work, seconds, not_launched, never_run=left)


def _sizes(rows: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(str(row["case"]) for row in rows if row["compared"])


def shorter_than(found: Found, first: Sequence[Mapping[str, Any]]) -> Found:
    """A pass that does not list again the cases that another verdict's rows have."""
    rows = found.details.get("cases", ())
    known = [row["case"] for row in first if row["compared"]]
    again = {row["case"] for row in rows if row["compared"]}
    if not found.ok or not known or not again.issuperset(known):
        return found
    more = [row for row in rows if row["case"] not in known]
    same = f"the same {len(known)} cases" if len(known) > 1 else "the same case"
    words = "; ".join(filter(None, (same, _sizes(more))))
    return replace(found, reason=found.reason.replace(_sizes(rows), words, 1))


def _row(checked: Checked, findings: int, work: int) -> dict[str, Any]:
    return {
        "case": str(checked.case), "sizes": dict(checked.case.sizes),
        "compared": checked.differences is not None and bool(checked.errors),
        "kernels": sorted({function_name(x.kernel) for x in checked.launches}),
        "errors": dict(checked.errors), "findings": findings, "instructions": work,
        "launches": [
            f"{function_name(x.kernel)}<<<{x.grid}, {x.block}, {x.shared}>>>"
            for x in checked.launches
        ],
        "seconds": round(sum(launch.seconds for launch in checked.launches), 2),
        **({"skipped": checked.skipped} if checked.skipped else {}),
    }  # fmt: skip


def _words(checked: Checked, findings: int) -> str:
    if checked.skipped:
        return f"not run: {checked.skipped}"
    if findings or checked.differences:
        return f"{findings} findings, {len(checked.differences or ())} outputs wrong"
    errors = ", ".join(f"{n.upper()} off by at most {e:.2g}" for n, e in checked.errors.items())
    return errors or "nothing to compare"


def judge_cases(
    ran: Ran, recipe: Recipe, launcher: Launcher, own: Sequence[Mapping[str, int]],
    reaching: Sequence[Mapping[str, int]] = (),
) -> Ran:  # fmt: skip
    """The pass of a patched kernel, with the sides of conditions that its cases did not take; no
    pass where a case was not compared that would have taken one, or that is none of the kernel's
    `own` but was added for the spec. One of `reaching`, which a place of the source needs, leaves
    that place not reached."""
    if not ran.found.ok:
        return ran
    rows = ran.found.details["cases"]
    left = sides_not_taken(recipe, launcher, [r["sizes"] for r in rows if r["compared"]])
    could = sides_not_taken(recipe, launcher, [r["sizes"] for r in rows])
    lost = [print_expr(side) for side, _ in left if all(side != s for s, _ in could)]
    reason, details = ran.found.reason, dict(ran.found.details)
    more = [r for r in rows if not r["compared"] and r["sizes"] not in map(dict, own)]
    for_place = [r for r in more if r["sizes"] in map(dict, reaching)]
    added = [r for r in more if r not in for_place]
    if added and not lost:
        reason = f"a case that the spec needs was {_skipped(added)}"
        return replace(ran, found=Found(False, reason, details))
    if lost:
        reason = f"no case that was run shows what it does where {lost[0]}; {_skipped(rows)}"
        return replace(ran, found=Found(False, reason, details))
    unseen = [f"where {print_expr(side)}" for side, _ in left]
    if unseen:
        details["sides_not_taken"] = unseen
        reason += f"; not run: {', '.join(unseen)}"
    for kernel in sorted({k for r in rows for k in r.get("kernels", ())}):
        own = [r["sizes"] for r in rows if kernel in r.get("kernels", ()) and r["compared"]]
        there = [s for s in sides_not_taken(recipe, launcher, own) if s not in left]
        if there:
            words = [f"where {print_expr(side)}" for side, _ in there]
            details.setdefault("sides_not_taken_in", {})[kernel] = words
            reason += f"; not run in {kernel}: {', '.join(words)}"
    data = on_data(recipe)
    if data:
        details["on_data"] = data
        reason += f"; which sides data took is not known: {', '.join(data)}"
    found = Found(True, reason, details)
    return replace(ran, found=found, not_reached=_skipped(for_place))


def _skipped(rows: Sequence[Mapping[str, Any]]) -> str:
    """The cases that could not be compared, and why."""
    why = [f"{r['case']} ({r.get('skipped') or 'nothing to compare'})"
           for r in rows if not r["compared"]]  # fmt: skip
    return f"not compared: {'; '.join(why)}" if why else ""


# --- G3 ----------------------------------------------------------------------------------------


def judge_bytes(files: Files, changed: Files, edits: Sequence[Edit]) -> Found:
    """Whether the files are those that the edits make, and only bytes in their spans are others."""
    made = apply(files, edits)
    for file, new in changed.items():
        if made.get(file, files[file]) != new:
            return Found(False, f"{file.name} is not what the accepted edits make of it")
    if missing := made.keys() - changed.keys():
        return Found(False, f"{min(missing).name} lacks the accepted edits")
    for file, new in changed.items():
        own = [e for e in edits if e.file == file]
        if not only_spans_changed(files[file], new, own):
            return Found(False, f"bytes of {file.name} outside of the edits' spans are others")
    return Found(True, "bytes outside of the edits' spans are the author's")


def judge_build(was: BuildResult, now: BuildResult) -> Found:
    """A pass where nothing is lost: registers that spill, local memory, matrix instructions,
    resident blocks."""
    details: dict[str, Any] = {"was": was.to_json(), "now": now.to_json()}
    if not was.ok:
        return Found(False, f"the source does not build: {was.reason}", details)
    problems = compare(was, now)
    details["problems"] = [p.to_json() for p in problems]
    if problems:
        details |= {"fix": problems[0].fix} if problems[0].fix else {}
        return Found(False, str(problems[0]).removeprefix(f"{KEY} "), details)
    return Found(True, _uses(was, now), details)


def built(
    asked: Asked, launches: Mapping[str, Launch], tools: Toolchain, folder: Path
) -> BuildResult:
    """Machine code, and what ptxas says of it."""
    shutil.rmtree(folder, ignore_errors=True)
    kept = folder / "kept"
    kept.mkdir(parents=True)
    code = asked.flags.arch.removeprefix("sm_")
    real = replace(asked.flags, more=asked.flags.more or ("-std=c++17",))
    words = [w for w in real.words() if not w.startswith("-gencode")]
    command = [
        str(tools.nvcc.path), "-O3", "-Xptxas=-v", f"-gencode=arch=compute_{code},code=sm_{code}",
        "--keep", "--keep-dir", str(kept), f"-I{asked.source.parent}", *words, "-x", "cu", "-c",
        str(asked.source), "-o", str(folder / f"{KEY}.o"),
    ]  # fmt: skip
    done = run(command, cwd=folder, environ=compiler_environ(), limit=LIMIT)
    (folder / f"{KEY}.log").write_text(done.output, encoding="utf-8")
    for end in ("cubin", "ptx"):
        for made in kept.glob(f"*.{end}"):
            shutil.move(made, folder / f"{KEY}.{end}")
    disassembler = tools.nvdisasm or tools.cuobjdump
    if done.ok and disassembler is not None:
        flag = "-c" if tools.nvdisasm else "-sass"
        text = run([str(disassembler.path), flag, str(folder / f"{KEY}.cubin")], cwd=folder,
                   environ=compiler_environ(), limit=LIMIT)  # fmt: skip
        (folder / f"{KEY}.sass").write_text(text.output if text.ok else "", encoding="utf-8")
    uses = read_specialisation(folder, KEY, arch_of(asked.flags.arch), launches)
    return BuildResult(
        done.ok and uses.ok, asked.flags.arch, tools.identity, "", None, (uses,),
        () if done.ok else ended_by_signal(done), done.output, 1, done.seconds,
    )  # fmt: skip


def _uses(was: BuildResult, now: BuildResult) -> str:
    said = []
    for kernel in now.specialisations[0].kernels:
        before = was.specialisations[0].kernel(kernel.name)
        old = "new" if before is None else f"the source: {before.use.registers}"
        spills = "spills as the source does" if kernel.use.spill_store_bytes else "no spills"
        said.append(f"{kernel.name} {kernel.use.registers} registers ({old}), {spills}")
    return "; ".join(said)
