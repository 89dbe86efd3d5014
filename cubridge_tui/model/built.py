"""What a build says of each kernel beside the expert's, and what the cost model predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import typeable
from engine.cuir.nodes import Module, Num
from engine.errors import CuBridgeError

if TYPE_CHECKING:  # what the first frame does not need is loaded when it is asked for
    from engine.cost.card import Card
    from engine.cost.model import Prediction

LENGTHS = (2048, 8192)
FORMULA = "TFLOP/s = 2 (D + Dv) x pairs of the visited tiles / time"
_HEAD = ("registers", "spilled B", "blocks/SM", "shared bytes")


def resource_lines(details: Mapping[str, Any]) -> list[str]:
    """What ptxas and the occupancy rules give each kernel of a G3 verdict, with the expert's number
    in brackets; empty where G3 built nothing."""
    made, expert = (_kernels(details.get(name)) for name in ("build", "expert"))
    if not made:
        return []
    rows: list[tuple[str, ...]] = [("kernel", *_HEAD)]
    for place, kernel in made.items():
        before = expert.get(place)
        told = (
            f"{now} ({was})" if before is not None else str(now)
            for now, was in zip(_numbers(kernel), _numbers(before or {}), strict=True)
        )
        rows.append((" ".join(place), *told))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    build = details["build"]
    where = f"{build.get('arch', '')}, {build.get('compiler', '')}"
    return [
        f"as compiled for {typeable(where)}; the expert's in brackets",
        *("  " + "  ".join(t.ljust(w) for t, w in zip(r, widths, strict=True)).rstrip()
          for r in rows),
    ]  # fmt: skip


def occupancy_lines(details: Mapping[str, Any]) -> list[str]:
    """The blocks of each kernel that a multiprocessor holds at once, and what limits them."""
    out = []
    for place, kernel in _kernels(details.get("build")).items():
        blocks, threads = kernel.get("resident_blocks"), kernel.get("threads")
        if isinstance(blocks, int) and isinstance(threads, int):
            limit = (
                f", limited by {kernel['resident_limit']}" if kernel.get("resident_limit") else ""
            )
            words = f"{' '.join(place)}: {blocks} x {threads} threads a multiprocessor{limit}"
            out.append(f"occupancy  {words}")
    return out


def kernel_words(details: Mapping[str, Any], function: str) -> list[str]:
    """A line for each specialisation of one kernel: what it uses, the expert's in brackets."""
    made, expert = (_kernels(details.get(name)) for name in ("build", "expert"))
    out = []
    for (key, name), kernel in made.items():
        if name != function:
            continue
        before = _numbers(expert.get((key, name), {}))
        told = (f"{now} ({was}) {what}" for now, was, what in
                zip(_numbers(kernel), before, _HEAD, strict=True))  # fmt: skip
        out.append(f"{key}: {', '.join(told)}")
    return out


def conformance_lines(details: Mapping[str, Any]) -> list[str]:
    """The primitives that no conformance run proves for these header bytes, and the runs."""
    found = details.get("conformance")
    if not isinstance(found, Mapping):
        return []
    if found.get("fix"):
        return [f"conformance is not known: {typeable(str(found['fix']))}"]
    unproven = [u for u in found.get("unproven") or () if isinstance(u, Mapping)]
    runs = [
        f"{r.get('suite')} on {r.get('device')}, {r.get('date')}"
        for r in found.get("runs") or () if isinstance(r, Mapping)
    ]  # fmt: skip
    count = len(unproven)
    head = f"conformance: {count} primitive{'s' * (count != 1)} unproven alone on a GPU"
    if not unproven:
        head = "conformance: every primitive is proven alone on a GPU"
    lines = [head, f"  runs: {'; '.join(runs) or 'none is recorded'}"]
    lines += [f"  {u.get('primitive')}: {u.get('why')}" for u in unproven]
    commands = dict.fromkeys(str(u.get("command")) for u in unproven if u.get("command"))
    return [typeable(line) for line in (*lines, *(f"  to prove: {c}" for c in commands))]


# --- the cost model ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Predicted:
    """A shape in words, and the predictions for the target and the expert's kernel."""

    shape: str
    target: Prediction
    expert: Prediction


def predictions(target: Module, expert: Module) -> list[str]:
    """Lines of what the cost model predicts; it takes half a second a module, off the UI thread."""
    from engine.cost.card import card_of_arch
    from engine.gpu.worker.shapes import cases_of, label
    from engine.service.cost import arch_of, costs

    card = card_of_arch(arch_of(target))
    if card is None:
        return ["the cost model has no card of this arch"]
    found = dict(target.spec).get("D")
    width = int(found.value) if isinstance(found, Num) else 128
    cases = cases_of({"lengths": list(LENGTHS), "shapes": None}, width)
    try:
        made, base = costs(target, cases, card), costs(expert, cases, card)
    except CuBridgeError as error:
        return [f"the cost model gives no prediction: {typeable(error.message)}"]
    rows = [
        Predicted(label({**case.sizes, "D": width, "Dv": width}), now, was)
        for case, now, was in zip(cases, made, base, strict=True)
    ]
    return predicted_lines(rows, card)


def predicted_lines(rows: Sequence[Predicted], card: Card) -> list[str]:
    """Predictions as lines, with the card, the method and the formula."""
    lines = [f"predicted, not measured: {card.title}"]
    lines += [f"  by the cost model (docs/cost.md), {FORMULA}; the expert's in brackets"]
    for row in rows:
        now, was = row.target, row.expert
        lines.append(
            f"  {row.shape}: {now.microseconds:,.0f} ({was.microseconds:,.0f}) us, "
            f"{now.tflops:,.0f} ({was.tflops:,.0f}) TFLOP/s, bound by {now.bound}"
        )
    return lines


def _kernels(build: object) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The kernels of a build by specialisation and name."""
    if not isinstance(build, Mapping):
        return {}
    return {
        (str(special.get("key")), str(kernel.get("name"))): kernel
        for special in build.get("specialisations") or ()
        for kernel in special.get("kernels") or ()
    }


def _numbers(kernel: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Registers a thread, bytes spilled, resident blocks a multiprocessor, bytes of shared memory
    a block; a dash for what is not known."""
    spilled = [kernel.get(n) for n in ("spill_store_bytes", "spill_load_bytes")]
    shared = [kernel.get(n) for n in ("static_shared", "dynamic_shared")]
    values = (
        kernel.get("registers"),
        sum(spilled) if all(isinstance(n, int) for n in spilled) else None,  # type: ignore[arg-type]
        kernel.get("resident_blocks"),
        sum(shared) if all(isinstance(n, int) for n in shared) else None,  # type: ignore[arg-type]
    )
    a, b, c, d = (f"{v:,}" if isinstance(v, int) else "–" for v in values)
    return a, b, c, d
