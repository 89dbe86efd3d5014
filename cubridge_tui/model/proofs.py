"""What was proven of a module for all sizes, line by line: each goal, its answer and its time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PROOFS = ("proofs", "sampled", "unreached")  # what of a verdict's details tells of them


def proof_lines(details: Mapping[str, Any]) -> list[str]:
    """The goals of a verdict's details, what was sampled in their place, and what no run saw."""
    lines = [_goal(proof) for proof in _mappings(details.get("proofs"))]
    for one in _mappings(details.get("sampled")):
        sizes = one.get("sizes")
        where = f"sampled at {sizes} sizes" if sizes else "judged in runs alone"
        lines.append(f"sampled   {one.get('about')}: {where}: {one.get('why')}{_arch(one)}")
    lines += [f"unseen    no run has {words}" for words in details.get("unreached") or ()]
    return lines


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


def _mappings(found: Any) -> Iterable[Mapping[str, Any]]:
    return [one for one in found or () if isinstance(one, Mapping)]
