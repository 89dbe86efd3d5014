"""What a kernel's verdicts say to somebody who does not know us: what is proven, what was run, what
is neither. In Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.markdown import prose
from engine.types import Gate, Level, Verdict, VerdictKind
from engine.types.trust import rests_on

LEVELS = {
    Level.GPU_VERIFIED: (
        "Gates G1 to G4 pass: the original, the edit, and this source with its machine code "
        "were judged, and a GPU ran the kernel against the spec."
    ),
    Level.CPU_VERIFIED: (
        "Gates G1 to G3 pass: the original, the edit, and this source with its machine code "
        "were judged. **No GPU has run this kernel yet**: its IR was executed on a CPU."
    ),
    Level.OVERRIDDEN: (
        "**A person overrode at least one gate** (see verdicts.json): this kernel is not proven."
    ),
    Level.NONE: "**Nothing is proven about this kernel**: its gates have not passed.",
}
EXECUTED = (
    "Gates G1 to G3 pass. **No GPU has run this kernel yet**: every thread of it was executed on a "
    "CPU, as the PTX that nvcc makes of it."
)
GATES = {
    Gate.G1: "the original as it was read", Gate.G2: "the adapted algorithm",
    Gate.G3: "its source and machine code", Gate.G4: "on a GPU",
}  # fmt: skip
_ORDER = ("B", "heads", "Hq", "Hkv", "Nq", "Nk", "N", "D", "Dv")
REASON = 200  # characters of a gate's reason; verdicts.json has all of it
_SIZES = re.compile(rf"\b({'|'.join(_ORDER)}) (\d+)(?:/(\d+))?")


def trust(verdicts: Sequence[Verdict]) -> str:
    """What the level rests on, as a sentence of its own."""
    words = rests_on(verdicts)
    return f"\n\nNo result is signed: {words}." if words else ""


def gate_lines(verdicts: Sequence[Verdict], judged: str = "") -> str:
    """Each gate that was run, its verdict and the reason, and what G2 proved and ran, as lines of a
    list.

    Args:
        judged: the specialisation that G2 ran.
    """
    last = {v.gate: v for v in verdicts}
    out: list[str] = []
    for gate, about in GATES.items():
        verdict = last.get(gate)
        if verdict is None or verdict.kind is VerdictKind.NOT_RUN:
            continue  # `not_proven` has it
        kind, reason = verdict.kind, verdict.reason
        if verdict.by:
            reason = f"by {verdict.by}: {reason}"
        said = prose(shortened(reason, REASON))
        out.append(f"- {gate.value} ({about}): **{kind.value}**{': ' if said else ''}{said}")
        if gate is Gate.G2 and verdict.passed:
            out += _proven(verdict.details, f" as `{judged}`" if judged else "")
    return "".join(f"{line}\n" for line in out)


def shortened(reason: str, most: int) -> str:
    """The first clauses of a reason, up to `most` characters; a number is never cut in two."""
    if len(reason) <= most:
        return reason
    kept, _, _ = reason[:most].rpartition("; ")
    return f"{kept}; …" if kept else reason[: most - 1].rpartition(" ")[0] + " …"


def _proven(details: Mapping[str, Any], judged: str) -> Iterator[str]:
    """What was proven for all sizes, and which sizes were run."""
    goals = (f"{len(found)} goal{'s' * (len(found) > 1)} of {prose(about)}"
             for about, found in _goals(details, proven=True).items())  # fmt: skip
    if said := ", ".join(goals):
        yield f"  - Proven for all sizes, by a solver: {said}."
    if sizes := _sizes(details):
        yield f"  - Run{judged} at {sizes}."


def not_proven(verdicts: Sequence[Verdict]) -> str:
    """What no verdict says, as lines of a list."""
    last = {v.gate: v for v in verdicts}
    missing = [f"{gate.value} ({about})" for gate, about in GATES.items()
               if gate not in last or last[gate].kind is not VerdictKind.PASS]  # fmt: skip
    details = _passed(verdicts, Gate.G2)
    out = [f"- What {' and '.join(missing)} would say."] if missing else []
    for about, goals in _goals(details, proven=False).items():
        out.append(f"- Not proven, of {prose(about)}: {prose('; '.join(goals))}.")
    for one in _mappings(details.get("sampled")):
        where = f"sampled at {one['sizes']} sizes" if one.get("sizes") else "judged in runs alone"
        out.append(f"- Of {prose(str(one.get('about')))}: {where}, {prose(str(one.get('why')))}.")
    unseen = [*_texts(details.get("unreached")), *_texts(details.get("sides_not_taken"))]
    if unseen:
        out.append(f"- What no run had: {prose('; '.join(unseen))}.")
    proven = _goals(details, proven=True)
    rest = " but the goals above" if proven else ""
    out.append(f"- Sizes that were not run: nothing is proven of them{rest}.")
    return "".join(f"{line}\n" for line in out)


def _passed(verdicts: Sequence[Verdict], gate: Gate) -> Mapping[str, Any]:
    """The details of a gate's pass; none where it did not pass."""
    last = {v.gate: v for v in verdicts}
    return last[gate].details if gate in last and last[gate].passed else {}


def _goals(details: Mapping[str, Any], *, proven: bool) -> dict[str, list[str]]:
    """Goals by what they are about: those that are proven on every arch, or the others."""
    answers: dict[tuple[str, str], set[str]] = {}
    for proof in _mappings(details.get("proofs")):
        key = str(proof.get("about")), str(proof.get("goal"))
        answers.setdefault(key, set()).add(str(proof.get("answer")))
    out: dict[str, list[str]] = {}
    for (about, goal), found in answers.items():
        if (found == {"proven"}) is proven:
            out.setdefault(about, []).append(goal)
    return out


def _sizes(details: Mapping[str, Any]) -> str:
    """At how many sizes runs were compared, and from which to which."""
    runs = [r for r in _mappings(details.get("runs") or details.get("cases"))
            if "skipped" not in r and r.get("compared", True)]  # fmt: skip
    seen: dict[str, list[tuple[int, ...]]] = {}
    found = {tuple(_SIZES.findall(str(run.get("case")))) for run in runs}
    for sizes in found:
        for name, *numbers in sizes:
            seen.setdefault(name, []).append(tuple(int(n) for n in numbers if n))
    if not seen:
        return ""
    between = ", ".join(_range(name, seen[name]) for name in sorted(seen, key=_ORDER.index))
    return f"{len(found)} size{'s' * (len(found) > 1)}, {between}"


def _range(name: str, found: Iterable[tuple[int, ...]]) -> str:
    sizes, name = sorted(found), {"heads": "Hq/Hkv"}.get(name, name)
    first, last = ("/".join(map(str, s)) for s in (sizes[0], sizes[-1]))
    return f"{name} {first}" if first == last else f"{name} {first} to {last}"


def _mappings(found: object) -> Iterator[Mapping[str, Any]]:
    for one in found if isinstance(found, Sequence) else ():
        if isinstance(one, Mapping):
            yield one


def _texts(found: object) -> Iterator[str]:
    yield from (str(one) for one in (found if isinstance(found, Sequence) else ()))
