"""What a kernel's verdicts say to somebody who does not know us: what is proven, what was only run,
what is neither, and how fast it is. In Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.markdown import prose
from engine.spec.recipes.kept_pairs import EXAMPLES
from engine.types import Gate, Level, Verdict, VerdictKind
from engine.types.trust import rests_on

LEVELS = {
    Level.GPU_VERIFIED: "G1 to G4 pass: a GPU ran it against the spec.",
    Level.CPU_VERIFIED: "Gates G1 to G3 pass. **No GPU has run this kernel yet.**",
    Level.OVERRIDDEN: (
        "**A person overrode at least one gate** (see verdicts.json): this kernel is not proven."
    ),
    Level.NONE: "**Nothing is proven about this kernel**: its gates have not passed.",
}
GATES = {
    Gate.G1: "the kernel before the edit", Gate.G2: "the edited program",
    Gate.G3: "its source and machine code", Gate.G4: "on a GPU",
}  # fmt: skip
# What the runs of G2 were, by their mode.
RUNS = {
    "exact": "in float64 equal the spec, to 1e-10 of a row's largest number",
    "typed": "in its own types err at most twice as much as the spec does in them, plus a rounding",
    "keep set": "compare which keys each row keeps", "weights": "compare the weight of each key",
    "under mask": "have NaN in K and V where no row keeps a key",
    "a late warp": "has each warp late in turn",
}  # fmt: skip
# Why a rival was not timed, by the kind of its row.
ABSENT = {
    "lacks": "has no parameter for it", "raised": "its call fails", "wrong": "its output was wrong",
    "not installed": "not installed", "unsaid": "no call of it is known",
}  # fmt: skip
_ORDER = ("B", "heads", "Hq", "Hkv", "Nq", "Nk", "N", "D", "Dv")
REASON = 200  # characters of a gate's reason; verdicts.json has all of it
_SIZES = re.compile(rf"\b({'|'.join(_ORDER)}) (\d+)(?:/(\d+))?")
# Rows of times: the kernel, and the kernel with a plan.
_OURS, _HELD = "CuBridge", "CuBridge, lists held"


def level_words(level: Level, verdicts: Sequence[Verdict]) -> str:
    """What the level means, and what it rests on."""
    words = rests_on(verdicts)
    return LEVELS[level] + (f" Nothing is signed; {words}." if words else "")


def known(verdicts: Sequence[Verdict], judged: str = "") -> list[str]:
    """What each gate that was run found.

    Args:
        judged: the specialisation that G2 ran.
    """
    last = {v.gate: v for v in verdicts}
    out: list[str] = []
    for gate in (Gate.G2, Gate.G4, Gate.G3, Gate.G1):
        verdict = last.get(gate)
        if verdict is None or verdict.kind is VerdictKind.NOT_RUN:
            continue  # `not_known` has it
        reason = verdict.reason.removesuffix(f"; {rests_on(verdicts)}")  # it stands with the level
        said, details = prose(shortened(reason, REASON)), verdict.details
        if not verdict.passed:
            by = f"by {prose(verdict.by)}: " if verdict.by else ""
            out.append(f"{gate.value} ({GATES[gate]}): **{verdict.kind.value}**: {by}{said}")
        elif gate is Gate.G2:
            out += _proven(details)
            what = f"{f', as `{judged}`' if judged else ''}{_sizes(details)}"
            out.append(f"**Run on a CPU** (G2){what}: {_runs(details) or said}")
        elif gate is Gate.G3:
            out.append(f"**Compiled** (G3): {_compiled(details) or said}")
        else:
            title = "Run on a GPU" if gate is Gate.G4 else "The kernel before the edit"
            out.append(f"**{title}** ({gate.value}): {said}.")
    return out


def _proven(details: Mapping[str, Any]) -> Iterator[str]:
    goals = [
        f"{len(found)} of {prose(about)}" for about, found in _goals(details, proven=True).items()
    ]
    if goals:
        yield (
            f"**Proven for all sizes** by a solver (G2), goals: {', '.join(goals)} (which keys are "
            "visited, what each block does). Rounding is not proven."
        )


def _runs(details: Mapping[str, Any]) -> str:
    """How many runs of each kind were compared; empty where their kinds are not known."""
    kinds = Counter(mode for run in _compared(details) if (mode := run.get("mode")) in RUNS)
    said = ", ".join(f"{kinds[mode]} {words}" for mode, words in RUNS.items() if kinds[mode])
    return f"{said}. Rows without a key are 0." if said else ""


def _compiled(details: Mapping[str, Any]) -> str:
    """What G3's pass of a lowered kernel says; empty for another's."""
    build = details.get("build")
    if "speed" not in details or not isinstance(build, Mapping):
        return ""
    compiler = " ".join(str(build.get("compiler")).split()[:2])
    kinds = len(list(_mappings(build.get("specialisations"))))
    lines = details.get("changed_lines")
    changed = "" if lines is None else f", {lines} of its lines changed"
    conformance = details.get("conformance")
    alone = conformance.get("unproven") if isinstance(conformance, Mapping) else ()
    unproven = len(list(_mappings(alone)))
    return (
        f"by {prose(compiler)} for {build.get('arch')}, {kinds} types and head sizes, with no more "
        "spills, no fewer resident blocks and no kind of matrix instruction less than before the "
        f"edit; the source, read again, is the program that was run and proven{changed}."
        + f" {unproven} primitives that it calls were proven on no GPU."
        * bool(unproven)
    )


def shortened(reason: str, most: int) -> str:
    """The first clauses of a reason, up to `most` characters; a number is never cut in two."""
    if len(reason) <= most:
        return reason
    kept, _, _ = reason[:most].rpartition("; ")
    return f"{kept}; …" if kept else reason[: most - 1].rpartition(" ")[0] + " …"


def not_known(
    verdicts: Sequence[Verdict], judged: str = "", built: Iterable[str] = ()
) -> list[str]:
    """What no verdict says. `built` are all specialisations, `judged` is the one that G2 ran."""
    last = {v.gate: v for v in verdicts}
    missing = [f"{gate.value} ({about})" for gate, about in GATES.items()
               if gate not in last or last[gate].kind is VerdictKind.NOT_RUN]  # fmt: skip
    details = _passed(verdicts, Gate.G2)
    open_ = [f"of {prose(about)}: {prose('; '.join(goals))}"
             for about, goals in _goals(details, proven=False).items()]  # fmt: skip
    for one in _mappings(details.get("sampled")):
        where = f"sampled at {one['sizes']} sizes" if one.get("sizes") else "judged in runs alone"
        open_.append(f"{prose(str(one.get('about')))}: {where}, {prose(str(one.get('why')))}")
    out = [f"**Not proven**, {said}." for said in dict.fromkeys(open_)]  # one for each arch
    never = [" and ".join(missing)] if missing else []
    keys = {*built}
    if judged and (others := len(keys - {judged})):
        never.append(f"{others} of the {len(keys)} types and head sizes, on a CPU")
    never += [f"the lines {prose(lines)}" for lines in _texts(details.get("never_run"))]
    unseen = [*_texts(details.get("unreached")), *_texts(details.get("sides_not_taken"))]
    if unseen:
        never.append(f"a case of {prose(', of '.join(unseen))}")
    rest = " but the goals above" if _goals(details, proven=True) else ""
    never.append(f"other sizes; nothing is proven of them{rest}")
    return [*out, f"**Never run**: {'; '.join(never)}."]


# --- how fast ------------------------------------------------------------------------------------


def speed(verdicts: Sequence[Verdict]) -> str:
    """Times of G4, else the prediction of G3."""
    found = _passed(verdicts, Gate.G4)
    rows = list(_mappings(found.get("times")))
    cases: dict[str, dict[str, float]] = {}
    for row in rows:
        if isinstance(row.get("ms"), int | float):
            cases.setdefault(str(row.get("case")), {})[str(row.get("name"))] = float(row["ms"])
    timed = {case: times for case, times in cases.items() if _OURS in times}
    if timed:
        device = found.get("device") or {}
        return _timed(timed, rows, str(device.get("name", "a GPU that is not named")))
    guess = _passed(verdicts, Gate.G3).get("speed")
    if not isinstance(guess, Mapping) or guess.get("problem") or not guess.get("us"):
        return "nothing was timed."
    calls = int(guess.get("attentions", 1))
    example = f"by {EXAMPLES}, " if guess.get("examples") else ""
    return (
        f"predicted by a model, not measured: {example}{guess['us']:,.0f} us on an "
        f"{prose(str(guess.get('where')))}. Predicted for the kernel before the edit, which "
        f"computes something else: {calls * guess['bare_us']:,.0f} us"
        f"{f' for {calls} calls' * (calls > 1)}."
    )


def _timed(
    cases: Mapping[str, Mapping[str, float]], rows: Sequence[Mapping[str, Any]], device: str
) -> str:
    """The first shape in full, and of the others how far the fastest rival is away."""
    first, times = next(iter(cases.items()))
    ours = {_OURS: "**this**", _HELD: "with a plan"}
    scaled = {row.get("name") for row in rows
              if row.get("case") == first and "scaled" in str(row.get("note", ""))}  # fmt: skip
    said = [f"{ours[name]} {times[name]:.3g}" for name in ours if name in times]
    for name in sorted(set(times) - set(ours), key=lambda name: times[name]):
        more = " (scaled)" if name in scaled else ""
        said.append(f"{prose(name)} {times[name]:.3g}{more}")
    out = [f"median milliseconds on an {prose(device)}, {prose(first)}: {', '.join(said)}."]
    ratios = [
        min(other[name] for name in rivals) / other[_OURS] for case, other in cases.items()
        if case != first and (rivals := set(other) - set(ours))
    ]  # fmt: skip
    if ratios:
        shapes = f"{len(ratios)} other shapes" if len(ratios) > 1 else "another shape"
        between = " to ".join(dict.fromkeys(f"{r:.2f}" for r in (min(ratios), max(ratios))))
        out.append(f"At {shapes} the fastest of the others takes {between} times as long as this.")
    absent: dict[str, list[str]] = {}
    for row in rows:
        if row.get("case") == first and "ms" not in row:
            why = ABSENT.get(str(row.get("kind")), ABSENT["unsaid"])
            absent.setdefault(why, []).append(prose(str(row.get("name"))))
    if absent:
        named = "; ".join(f"{', '.join(which)} ({why})" for why, which in absent.items())
        out.append(f"Not timed: {named}.")
    return " ".join(out)


# --- reading details -----------------------------------------------------------------------------


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


def _compared(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The runs of which something was compared."""
    return [r for r in _mappings(details.get("runs") or details.get("cases"))
            if "skipped" not in r and r.get("compared", True) and r.get("rows") != 0]  # fmt: skip


def _sizes(details: Mapping[str, Any]) -> str:
    """At how many sizes runs were compared, and from which to which; empty where none is named."""
    seen: dict[str, list[tuple[int, ...]]] = {}
    found = {tuple(_SIZES.findall(str(run.get("case")))) for run in _compared(details)}
    for sizes in found:
        for name, *numbers in sizes:
            seen.setdefault(name, []).append(tuple(int(n) for n in numbers if n))
    if not seen:
        return ""
    between = ", ".join(_range(name, seen[name]) for name in sorted(seen, key=_ORDER.index))
    kinds = Counter(run.get("mode") for run in _compared(details))
    more = ", some with several inputs" if max(kinds.values()) > len(found) else ""
    return f", at {len(found)} size{'s' * (len(found) > 1)} ({between}){more}"


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
