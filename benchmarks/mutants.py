"""Mechanical mutants of the bundled kernels' sources and of the bundled specs' targets, judged.

    python benchmarks/mutants.py [--count N] [--seed S] [--only SUBJECT ...] [--record]

Each mutant runs through what the gates run on a CPU: a source is lifted and judged against its
reference (G1), a target against its spec (G2, as rules' targets are). Killed, refused (it does not
lift or parse, or the rules do not know it), the same module, or a survivor: survivors are listed in
full. `--record` writes benchmarks/results/mutants.json after each subject, so that a run that was
cut off keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine.cuir.canonical import canonical  # noqa: E402
from engine.cuir.nodes import Module  # noqa: E402
from engine.cuir.parser import parse_module  # noqa: E402
from engine.cuir.printer import print_module  # noqa: E402
from engine.errors import CuBridgeError  # noqa: E402
from engine.gates.g1_g2.judge import judge  # noqa: E402
from engine.gates.runs.subject import Subject  # noqa: E402
from engine.lift import lift, lift_source, load_package  # noqa: E402
from engine.lower.spelling.legal import legal  # noqa: E402
from engine.resources import specs_dir  # noqa: E402
from engine.spec.read import read_recipe  # noqa: E402
from engine.transfer.rules import apply, plan  # noqa: E402
from tests.engine.lift.mutations import sample  # noqa: E402
from tests.mutants.cuir_mutants import drawn  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
SEED = 12
SOURCES = (
    ("flash_fwd_sm80", "bf16_64", "sm_80"), ("flash_fwd_sm80", "bf16_128", "sm_80"),
    ("flash_fwd_sm90", "bf16_64", "sm_90a"), ("flash_fwd_sm90", "bf16_128", "sm_90a"),
    ("flash_fwd_sm90", "bf16_256", "sm_90a"),
)  # fmt: skip
TARGETS = (("flash_fwd_sm80", "bf16_64", "sm_80"), ("flash_fwd_sm90", "bf16_64", "sm_90a"))


@dataclass(frozen=True, slots=True)
class Drawn:
    """One mutant on its way: what it is, and how its module is made."""

    operator: str
    words: str
    module: Callable[[], Module]


@dataclass(frozen=True, slots=True)
class Original:
    """What is mutated, as the gates judge it, and its mutants by count and seed."""

    name: str
    subject: Subject
    draw: Callable[[int, int], Iterator[Drawn]]


def source(kernel: str, key: str, arch: str) -> Original:
    """A kernel's own source, against its reference."""
    package = load_package(kernel)
    binding = package.specialisation(key)
    module = lift(package, key, arch).module
    assert package.reference is not None
    recipe = read_recipe(package.reference, {})
    subject = Subject(module, recipe, plan(module, recipe).binding, package.reference, {})

    def draw(count: int, seed: int) -> Iterator[Drawn]:
        for one in sample(package.source, count, seed):
            text = one.source
            yield Drawn(
                one.kind, f"line {one.line}: {one.words}",
                lambda text=text: lift_source(text, binding, arch, entry=package.entry).module,
            )  # fmt: skip

    return Original(f"{kernel} {key}", subject, draw)


def target(kernel: str, key: str, arch: str, spec: str) -> Original:
    """A bundled spec's target as the rules make it."""
    module = lift(load_package(kernel), key, arch).module
    path = specs_dir() / f"{spec}.py"
    recipe = read_recipe(path, {})
    planned = plan(module, recipe)
    for _, after in apply(module, planned.steps):
        module = after
    subject = Subject(legal(module), recipe, planned.binding, path, {})

    def draw(count: int, seed: int) -> Iterator[Drawn]:
        for one in drawn(print_module(subject.module), count, seed):
            text = one.text
            yield Drawn(
                one.operator, f"line {one.line}: {one.words}", lambda text=text: parse_module(text)
            )

    return Original(f"{spec} on {kernel} {key}", subject, draw)


def fate(original: Original, one: Drawn) -> tuple[str, str]:
    """killed, refused, same or survived; and why."""
    subject = original.subject
    try:
        module = one.module()
        if canonical(module) == canonical(subject.module):
            return "same", "the same module"
        failure, _ = judge(replace(subject, module=module), lambda _: None)
    except CuBridgeError as error:
        return "refused", str(error)
    return ("survived", "") if failure is None else ("killed", failure.reason)


def run(original: Original, count: int, seed: int) -> dict[str, Any]:
    rows = []
    for one in original.draw(count, seed):
        begin = time.monotonic()
        what, why = fate(original, one)
        seconds = round(time.monotonic() - begin, 2)
        rows.append({"operator": one.operator, "change": one.words, "fate": what, "why": why[:200],
                     "seconds": seconds})  # fmt: skip
        if what == "survived":
            print(f"  survived: {one.operator}, {one.words}", flush=True)
    print(f"{original.name}: {dict(Counter(r['fate'] for r in rows))}", flush=True)
    return {"subject": original.name, "seed": seed, "mutants": rows}


def originals() -> Iterator[tuple[str, Callable[[], Original]]]:
    for kernel, key, arch in SOURCES:
        yield f"{kernel} {key}", lambda k=kernel, s=key, a=arch: source(k, s, a)
    for kernel, key, arch in TARGETS:
        for path in sorted(specs_dir().glob("*.py")):
            name = f"{path.stem} on {kernel} {key}"
            yield name, lambda k=kernel, s=key, a=arch, p=path.stem: target(k, s, a, p)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=16, help="mutants of each subject")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--only", nargs="*", default=(), help="subjects whose names hold one of these"
    )
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    done: list[dict[str, Any]] = []
    for name, make in originals():
        if options.only and not any(word in name for word in options.only):
            continue
        try:
            done.append(run(make(), options.count, options.seed))
        except CuBridgeError as error:  # a spec that the rules do not carry here
            print(f"{name}: not judged: {error}", flush=True)
        if options.record:
            RESULTS.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
