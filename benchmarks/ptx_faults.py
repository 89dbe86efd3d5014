"""Seeded faults in small kernels: what the machine says of each.

    python benchmarks/ptx_faults.py [--kernel NAME] [--out benchmarks/results/ptx_faults.json]

Each operator changes one instruction of a kernel of tests/engine/ptx/kernels. A fault is *found*
where the run has a finding or the output is wrong; a finding is *at its line* where one of its two
accesses stands at the changed instruction's line, or where the fault is a lost wait or barrier and
the finding names two accesses that it would have ordered. Of another finding the lines that led to
it are told, and of a wrong output the numbers on the way to it (`engine.foreign.explain`); it is
*told at its line* where one of the lines that are named is the changed instruction's. A store or
copy that is gone has no line any more: of it is looked at whether the lines are named where it is
*missed*, which are those that read, in the kernel without the fault, what it wrote there, or, where
none does, those that wrote what it read. Where nothing shows, `why` is what a run says of it: not
executed, the same bytes, a change within rounding; or what the machine takes as given (`UNSEEN`).
`NO_LINE` says why a fault that shows has no line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.errors import InputError
from engine.foreign.explain import followed, led, writers
from engine.foreign.numbers.told import Told
from engine.foreign.numbers.watched import steps, watched
from engine.foreign.numbers.where import Place
from engine.ptx.findings import Finding
from engine.ptx.isa.observe import Observer
from engine.ptx.launch import Outcome
from engine.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Location,
    Module,
    Register,
    Special,
    Vector,
    width,
)  # fmt: skip
from tests.engine.ptx import kernels

ROOT = Path(__file__).resolve().parent.parent
TOLD = "told at its line"
MISSED = "told where it is missed"
EACH = 5  # sites of one operator in one kernel


@dataclass(frozen=True)
class Fault:
    operator: str
    at: Instruction
    kernel: Kernel


@dataclass(frozen=True)
class Result:
    kernel: str
    operator: str
    line: str
    verdict: str  # at its line, TOLD, MISSED, found, wrong output, refused, nothing
    said: str
    why: str = ""  # nothing shows, or no line can be named
    named: int = 0  # lines, of a wrong output


def _with(kernel: Kernel, k: int, *code: Instruction, registers: str = "") -> Kernel:
    """The kernel with instruction `k` replaced by others."""
    grown = len(code) - 1
    labels = {n: at + grown if at > k else at for n, at in kernel.labels.items()}
    types = dict(kernel.registers) | ({registers: "b32"} if registers else {})
    return replace(kernel, code=(*kernel.code[:k], *code, *kernel.code[k + 1 :]), labels=labels,
                   registers=types)  # fmt: skip


def _nothing(at: Instruction) -> Instruction:
    return replace(at, name="nanosleep", modifiers=("u32",), operands=(Immediate(0),), guard=None)


def _operand(at: Instruction, k: int, value: object) -> Instruction:
    operands = list(at.operands)
    operands[k] = value  # type: ignore[call-overload]
    return replace(at, operands=tuple(operands))


def _swap(at: Instruction, a: int, b: int) -> Instruction:
    operands = list(at.operands)
    operands[a], operands[b] = operands[b], operands[a]
    return replace(at, operands=tuple(operands))


def _modifier(at: Instruction, old: str, new: str) -> Instruction:
    return replace(at, modifiers=tuple(new if m == old else m for m in at.modifiers))


Change = Callable[[Kernel, int, Instruction], Iterator[Kernel]]


def lost(name: str, *modifiers: str) -> Change:
    def change(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
        if at.name == name and all(at.has(m) for m in modifiers):
            yield _with(kernel, k, _nothing(at))

    return change


def lost_barrier(warp: bool) -> Change:
    def change(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
        if at.name == "bar" and at.has("sync") and at.has("warp") == warp:
            yield _with(kernel, k, _nothing(at))

    return change


def lost_wait(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "mbarrier" and at.has("try_wait"):
        yield _with(kernel, k, replace(at, name="setp", modifiers=("eq", "u32"),
                    operands=(at.operands[0], Immediate(0), Immediate(0))))  # fmt: skip


def loosened(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.has("wait_group") and isinstance(at.operands[0], Immediate):
        yield _with(kernel, k, _operand(at, 0, Immediate(at.operands[0].value + 1)))


def parity(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name != "mbarrier" or not at.has("try_wait"):
        return
    wanted = at.operands[2]
    if isinstance(wanted, Immediate):
        yield _with(kernel, k, _operand(at, 2, Immediate(wanted.value ^ 1)))
    else:
        flip = replace(at, name="xor", modifiers=("b32",), guard=None,
                       operands=(Register("%flipped"), wanted, Immediate(1)))  # fmt: skip
        yield _with(kernel, k, flip, _operand(at, 2, Register("%flipped")), registers="%flipped")


def doubled(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "mbarrier" and at.has("arrive"):
        yield _with(kernel, k, at, at)


def counts(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "mbarrier" and (at.has("expect_tx") or at.has("init")):
        last = len(at.operands) - 1
        step = 16 if at.has("expect_tx") else 1
        for by in (step, -step):
            value = at.operands[last]
            if isinstance(value, Immediate):
                yield _with(kernel, k, _operand(at, last, Immediate(value.value + by)))
            elif isinstance(value, Register):
                more = replace(at, name="add", modifiers=("s32",), guard=None,
                               operands=(Register("%more"), value, Immediate(by)))  # fmt: skip
                yield _with(kernel, k, more, _operand(at, last, Register("%more")),
                            registers="%more")  # fmt: skip


def swapped(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "wgmma" and at.has("mma_async") and isinstance(at.operands[1], Register):
        yield _with(kernel, k, _swap(at, 1, 2))
    if at.name in ("mma", "wgmma", "wmma") and len(at.operands) > 2:
        for which in (1, 2):
            group = at.operands[which]
            if isinstance(group, Vector) and len(group.items) > 1:
                turned = Vector((group.items[1], group.items[0], *group.items[2:]))
                yield _with(kernel, k, _operand(at, which, turned))
    if at.name in ("sub", "div") and at.operands[1] != at.operands[2]:
        yield _with(kernel, k, _swap(at, 1, 2))


def bounds(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    turns = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
    if at.name == "setp" and at.type[0] in "su":
        for m in at.modifiers:
            if m in turns:
                yield _with(kernel, k, _modifier(at, m, turns[m]))


def unsigned(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "setp" and at.type == "s32":
        yield _with(kernel, k, _modifier(at, "s32", "u32"))


def misaligned(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name in ("ld", "st", "cp", "ldmatrix", "stmatrix") and not at.has("param"):
        for n, o in enumerate(at.operands):
            if isinstance(o, Address) and not o.coordinates and (at.type or at.name != "ld"):
                by = max(width(at.type) // 2, 1) if at.type and at.name in ("ld", "st") else 2
                if width(at.type or "b32") > 1:
                    yield _with(kernel, k, _operand(at, n, replace(o, offset=o.offset + by)))
                break


def beyond(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    """One element further than meant."""
    if at.name in ("ld", "st") and not at.has("param") and at.type:
        n = 1 if at.name == "ld" else 0
        o = at.operands[n]
        if isinstance(o, Address):
            yield _with(kernel, k,
                        _operand(at, n, replace(o, offset=o.offset + width(at.type))))  # fmt: skip


def zero_fill(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "cp" and len(at.operands) == 4 and not at.has("bulk"):
        yield _with(kernel, k, _operand(at, 3, Immediate(16)))


def first_value(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    """An accumulator, a maximum or a mask begins with something else."""
    if at.name == "mov" and at.type == "f32" and isinstance(at.operands[1], Immediate):
        yield _with(kernel, k, _operand(at, 1, Immediate(0x42C80000, 4)))
    if at.name == "selp" and at.type == "f32":
        yield _with(kernel, k, _swap(at, 1, 2))


def one_block(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "mov" and at.operands[1] == Special("%ctaid.x"):
        yield _with(kernel, k, _operand(at, 1, Immediate(0)))


def distance(kernel: Kernel, k: int, at: Instruction) -> Iterator[Kernel]:
    if at.name == "shfl" and isinstance(at.operands[2], Immediate):
        yield _with(kernel, k, _operand(at, 2, Immediate(at.operands[2].value * 2 + 1)))


OPERATORS: dict[str, Change] = {
    "lost bar.sync": lost_barrier(False),
    "lost bar.warp.sync": lost_barrier(True),
    "lost cp.async.wait_group": lost("cp", "wait_group"),
    "lost commit_group": lost("cp", "commit_group"),
    "lost wgmma.wait_group": lost("wgmma", "wait_group"),
    "lost wgmma.commit_group": lost("wgmma", "commit_group"),
    "lost wgmma.fence": lost("wgmma", "fence"),
    "lost fence.proxy.async": lost("fence", "proxy"),
    "lost mbarrier wait": lost_wait,
    "lost arrival": lost("mbarrier", "arrive"),
    "lost mbarrier.init": lost("mbarrier", "init"),
    "lost bulk copy": lost("cp", "tensor"),
    "lost store to shared": lost("st", "shared"),
    "lost store to global": lost("st", "global"),
    "lost setmaxnreg": lost("setmaxnreg", "dec"),
    "loosened wait": loosened,
    "wrong parity": parity,
    "doubled arrival": doubled,
    "wrong count": counts,
    "swapped operands": swapped,
    "off by one": bounds,
    "unsigned": unsigned,
    "misaligned": misaligned,
    "one element further": beyond,
    "zeroed tail": zero_fill,
    "first value": first_value,
    "blocks on one output": one_block,
    "shuffle distance": distance,
}

# Faults by operator and line that the machine cannot see, since it takes as given what they break.
UNSEEN = {
    ("lost fence.proxy.async", "wgmma.cu:86"):
        "that bulk copies see an mbarrier's init is taken as given",
    ("lost setmaxnreg", "wgmma.cu:90"):
        "that a launch has all registers that its block's size allows is taken as given",
}  # fmt: skip

# Faults that show, and why no line can be named for them.
NO_LINE = {
    ("lost store to global", "recurrence.cu:29"):
        "no instruction writes the output, and numbers before it are not known of a recurrence",
}  # fmt: skip

# Operators whose fault has no access of its own: a finding names two that it would have ordered.
ORDERING = {n for n in OPERATORS if n.startswith("lost")} | {"loosened wait", "wrong parity",
            "doubled arrival", "wrong count"}  # fmt: skip


def faults(kernel: Kernel, each: int = EACH) -> Iterator[Fault]:
    """Faults of a kernel: of each operator at most `each`, at lines of their own first."""
    for name, change in OPERATORS.items():
        made: dict[str, list[Fault]] = {}
        for k, at in enumerate(kernel.code):
            for changed in change(kernel, k, at):
                made.setdefault(str(at.source), []).append(Fault(name, at, changed))
        rows = list(made.values())
        turns = [row[n] for n in range(max(map(len, rows), default=0)) for row in rows
                 if n < len(row)]  # fmt: skip
        yield from turns[:each]


def judge(name: str, module: Module, fault: Fault, most: int, seed: int | None = None) -> Result:
    changed = replace(module, kernels={fault.kernel.name: fault.kernel})
    line = str(fault.at.source).rsplit("/", 1)[-1]
    try:
        made, outcome = kernels.execute(name, changed, seed, most)
    except InputError as error:
        return Result(name, fault.operator, line, "refused", str(error))
    if outcome.findings:
        chain = set(map(str, fault.at.source.chain())) if fault.at.source else set()
        for f in outcome.findings:
            lines = {str(x) for a in (f.at, f.other) if a and a.source for x in a.source.chain()}
            ordered = fault.operator in ORDERING and f.kind in (
                "race", "early read", "missing proxy fence", "missing wgmma fence", "deadlock",
                "undefined value", "barrier misuse", "too many resources",
            )  # fmt: skip
            if ordered or lines & chain:
                return Result(name, fault.operator, line, "at its line", _said(f))
        first = outcome.findings[0]
        way = [at for _, some in led(first, changed, outcome.carried) for at in some]
        near, named = _lines(way)
        return Result(name, fault.operator, line,
                      TOLD if chain & near else _missed(name, module, fault, near, "found"),
                      _said(first), "", len(named))  # fmt: skip
    known = made.tensors[-1].set
    if made.error() > made.bound or (known is not None and not known.all()):
        said = [f"error {made.error():.3g}" if known is None or known.all() else "not all written"]
        told = _told(name, changed, made, outcome)
        near, named = _lines(told.named)
        return Result(name, fault.operator, line,
                      TOLD if str(fault.at.source) in near
                      else _missed(name, module, fault, near, "wrong output"),
                      "; ".join([*said, *told.lines]),
                      NO_LINE.get((fault.operator, line), ""), len(named))  # fmt: skip
    return Result(name, fault.operator, line, "nothing", "",
                  _why(name, module, fault, line, made))  # fmt: skip


def _told(name: str, module: Module, made: kernels.Made, outcome: Outcome) -> Told:
    """What `cubridge check` tells of such an output."""
    observer = Observer()
    seen, sites = watched(module)
    kernels.execute(name, seen, observer=observer)
    stores = writers(module, made.tensors[-1].by)
    unset = made.tensors[-1].set is not None and not made.tensors[-1].set.all()
    elements, nans = made.wrong()
    return followed(made.numbers, module, steps(observer, sites), stores, outcome.carried, unset,
                    {"o": elements}, nans,
                    lambda at: Place(str(_own(at)).rsplit("/", 1)[-1]))  # fmt: skip


def _missed(name: str, module: Module, fault: Fault, near: set[str], other: str) -> str:
    """Whether lines are told where a lost store or copy is missed, else the other verdict."""
    if not fault.operator.startswith(("lost store", "lost bulk")):
        return other
    _, outcome = kernels.execute(name, module)
    line, carried = fault.at.line, outcome.carried
    missed = {k for k, stores in carried.items() if line in stores} or carried.get(line, set())
    (kernel,) = module.kernels.values()
    lines, _ = _lines([at for at in kernel.code if at.line in missed])
    return MISSED if lines & near else other


def _lines(instructions: Sequence[Instruction]) -> tuple[set[str], set[str]]:
    """The lines that instructions are of, with all that they were inlined at; and those told."""
    known = [at for at in instructions if at.source is not None]
    chains = (x for at in known if at.source is not None for x in at.source.chain())
    return set(map(str, chains)), {str(_own(at)) for at in known}


def _own(at: Instruction) -> Location | None:
    """Its line in the kernel's own file, where it is of one."""
    return None if at.source is None else at.source.within(str(kernels.FOLDER))


def _said(finding: Finding) -> str:
    """A finding's words, with paths from the repository on."""
    return str(finding).replace(f"{ROOT}/", "")


def _why(name: str, module: Module, fault: Fault, line: str, made: kernels.Made) -> str:
    """Why nothing shows: the instruction is not reached, or the values come out the same."""
    kernel = next(iter(module.kernels.values()))
    k = next(k for k, at in enumerate(kernel.code) if at is fault.at)
    stops = _with(kernel, k, replace(fault.at, name="trap", modifiers=(), operands=()))
    _, outcome = kernels.execute(name, replace(module, kernels={kernel.name: stops}))
    if not any(f.kind == "trap" for f in outcome.findings):
        return "not executed at these sizes and inputs"
    if (fault.operator, line) in UNSEEN:
        return UNSEEN[fault.operator, line]
    clean, _ = kernels.execute(name, module)
    if (clean.tensors[-1].data == made.tensors[-1].data).all():
        return "every byte of the output is the same"
    return "the output changes by less than the bound of its rounding"


def _keep(path: Path, clean: dict[str, str], results: list[Result]) -> None:
    """Writes what was found, beside what the file has of other kernels."""
    ran = {r.kernel for r in results}
    old = json.loads(path.read_text()) if path.exists() else {"clean": {}, "faults": []}
    rows = [f for f in old["faults"] if f["kernel"] not in ran] + [asdict(r) for r in results]
    rows.sort(key=lambda f: kernels.NAMES.index(f["kernel"]))
    count = Counter(f["verdict"] for f in rows)
    path.write_text(json.dumps({"counts": count, "clean": old["clean"] | clean, "faults": rows},
                               indent=1) + "\n")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", choices=kernels.NAMES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--each", type=int, default=EACH)
    given = parser.parse_args()
    results: list[Result] = []
    clean = {}
    began = time.process_time()
    for name in [given.kernel] if given.kernel else kernels.NAMES:
        module = kernels.module_of(name)
        kernel = next(iter(module.kernels.values()))
        most = 0
        for seed in (None, 0, 1, 2):
            made, outcome = kernels.execute(name, module, seed)
            good = not outcome.findings and made.error() <= made.bound
            clean[f"{name}, order {seed}"] = "clean" if good else str(outcome.findings[:1])
            most = max(most, 10 * outcome.instructions) if seed is None else most
        results += [judge(name, module, f, most) for f in faults(kernel, given.each)]
    for r in results:
        if r.verdict in ("nothing", "refused", "found"):
            print(f"{r.kernel}: {r.operator} at {r.line}: {r.verdict}: {r.said or r.why}")
    count = Counter(r.verdict for r in results)
    print(f"{len(results)} faults: {dict(count)}; {time.process_time() - began:.0f} CPU s")
    print(clean)
    if given.out:
        _keep(given.out, clean, results)
    return 0 if all(v == "clean" for v in clean.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
