"""What was proven of a module for all sizes, as lines: what is proven of one thing in one line,
each other goal with its answer in one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PROVEN = "proven"
PROOFS = ("proofs", "sampled", "unreached")  # what of a verdict's details tells of them


def proof_lines(details: Mapping[str, Any]) -> list[str]:
    """The goals of a verdict's details, what was sampled in their place, and what no run saw."""
    proofs = _mappings(details.get("proofs"))
    lines = [*_proven([p for p in proofs if p.get("answer") == PROVEN])]
    lines += [_goal(proof) for proof in proofs if proof.get("answer") != PROVEN]
    for one in _mappings(details.get("sampled")):
        sizes = one.get("sizes")
        where = f"sampled at {sizes} sizes" if sizes else "judged in runs alone"
        lines.append(f"sampled   {one.get('about')}: {where}: {one.get('why')}{_arch(one)}")
    lines += [f"unseen    no run has {words}" for words in details.get("unreached") or ()]
    return lines


def _proven(proofs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each thing that goals are about, and the archs that they were proven on."""
    archs: dict[tuple[str, str], list[str]] = {}
    for proof in proofs:
        name = (str(proof.get("about")), str(proof.get("goal")))
        archs.setdefault(name, []).append(str(proof.get("arch", "")))
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (about, goal), on in archs.items():
        alike.setdefault((about, tuple(dict.fromkeys(on))), []).append(goal)
    for (about, where), goals in alike.items():
        others = ", ".join(filter(None, where))
        there = f" {'also ' * ('' in where)}on {others}" if others else ""
        yield f"{PROVEN:<9} {about}{there}: {'; '.join(goals)}"


def _goal(proof: Mapping[str, Any]) -> str:
    line = f"{proof.get('answer', '')!s:<9} {proof.get('about')}: {proof.get('goal')}"
    witness = proof.get("witness")
    if isinstance(witness, Mapping):
        smallest = "" if proof.get("smallest") else ", perhaps not the smallest"
        line += f"; not at {', '.join(f'{n} {v}' for n, v in witness.items())}{smallest}"
    if proof.get("reason"):
        line += f"; {proof['reason']}"
    return f"{line} ({proof.get('seconds', 0)} s){_arch(proof)}"


def _arch(one: Mapping[str, Any]) -> str:
    return f" on {one['arch']}" if "arch" in one else ""


def _mappings(found: Any) -> Sequence[Mapping[str, Any]]:
    return [one for one in found or () if isinstance(one, Mapping)]
