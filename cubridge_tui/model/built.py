"""What a build says of each kernel beside the expert's, and what the cost model predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cubridge_tui.console import typeable
from cubridge_tui.model.costs import Costs, told
from engine.cuir.nodes import Module
from engine.errors import CuBridgeError
from engine.service.views.costing import EXPERT

if TYPE_CHECKING:
    from engine.spec.recipes.recipe import Recipe
    from engine.transfer.binding import Binding

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
    head = f"conformance: {count} primitive{'s' * (count != 1)} not run alone on a GPU"
    if not unproven:
        head = "conformance: every primitive ran right alone on a GPU"
    lines = [head, f"  runs: {'; '.join(runs) or 'none is recorded'}"]
    lines += [f"  {u.get('primitive')}: {u.get('why')}" for u in unproven]
    commands = dict.fromkeys(str(u.get("command")) for u in unproven if u.get("command"))
    return [typeable(line) for line in (*lines, *(f"  to prove: {c}" for c in commands))]


# --- the cost model ------------------------------------------------------------------------------


def predictions(
    target: Module, expert: Module, recipe: Recipe | None, binding: Binding | None
) -> list[str]:
    """Lines of what the cost model predicts; it takes a second a module, off the UI thread."""
    from engine.gates.g3_source.speed import setting_of
    from engine.service.views.consequence import cost_of, where_of

    try:
        setting = setting_of(expert, recipe, binding)
        found = {"target": cost_of(target, setting), EXPERT: cost_of(expert, setting)}
    except CuBridgeError as error:
        return [f"the cost model gives no prediction: {typeable(error.message)}"]
    return told(Costs(where_of(setting), found), "target")


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
