"""What a model must know to write what builds: the room that a kernel has, before it answers; and
all that the compilers found, each error at its op, after it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.cost.launched import Launched
from engine.cost.plan import Launch, launches
from engine.cuir.arch import arch_of
from engine.cuir.changes.diff import diff
from engine.cuir.nodes import Module, Path, names_in, stmt_call, walk
from engine.cuir.ops.traits import FIELD_VIEWS, REALLOCATIONS
from engine.cuir.printer import print_expr
from engine.cuir.static.calls import launched
from engine.cuir.static.check import names_at
from engine.cuir.static.host_constants import constants_of, host_constants
from engine.cuir.types import describe
from engine.errors import CuBridgeError
from engine.gates.g3_source.speed import Speed, arguments, setting_of
from engine.lift.cpp.provenance import Lifted, Lines
from engine.lift.files.toplevel import ARGS
from engine.transfer.llm.editing import statement_text

MOST_ERRORS = 20  # that a message lists; of more it says how many
Ids = Mapping[Path, str]


# --- before an answer -----------------------------------------------------------------------------


def room_words(module: Module) -> str:
    """The registers and shared memory that each kernel may use and does use, and the launcher's
    numbers that an edit may change; empty where the cost model cannot follow the module."""
    try:
        setting = setting_of(module, None, None)
        sizes, facts = arguments(setting.case, module, {}), arch_of(module)
        found = launches(module, sizes, setting.card, facts)
        walked = [Launched(module, facts, one, sizes, setting.card, None, []) for one in found]
    except CuBridgeError:
        return ""
    lines = [_room(one, one.launch) for one in walked]
    dealt = [
        f"`{print_expr(call)}` ({constants_of(module).get(print_expr(call.args[0]))})"
        for _, stmt in walk(module)
        if (call := stmt_call(stmt)) is not None and call.fn in REALLOCATIONS
    ]
    if dealt:
        lines.append(f"Warpgroups deal the registers among themselves: {', '.join(dealt)}.")
    free = ", ".join(f"{name} = {value}" for name, value in _free(module).items())
    lines.append(
        f"The launcher's numbers that an edit may change: {free}. What is computed from them "
        "follows; tiles, shared memory and registers must go on to fit."
    )
    return "\n".join(f"* {line}" for line in lines)


def _free(module: Module) -> dict[str, int]:
    """The whole numbers that kernels are launched with and that are no size of a tensor."""
    calls = [call for _, stmt in walk(module) if (call := stmt_call(stmt)) is not None]
    consts = [e for call in calls if (found := launched(call)) is not None for e in found.consts]
    fixed = [name for name, _ in module.spec]
    fixed += names_in(*(e for call in calls if call.fn in FIELD_VIEWS for e in call.args))
    free = names_in(*consts) - {*fixed}
    return {name: value for name, value in host_constants(module).items() if name in free}


def _room(one: Launched, launch: Launch) -> str:
    return (
        f"`{launch.kernel}`: {launch.threads} threads a block, at most {one.allowed()} registers a "
        f"thread at its launch, of which tiles take up to {one.alive():.0f} at one place, if none "
        f"shares another's. {launch.shared:,} of {one.facts.shared_block:,} bytes of shared "
        f"memory. Resident blocks on a multiprocessor: {one.residency.blocks}, limited by "
        f"{one.residency.limit}."
    )


# --- after it -------------------------------------------------------------------------------------


def found_words(
    details: Mapping[str, Any], source: bytes, again: Lifted | None, module: Module, ids: Ids
) -> str:
    """All that G3 found in the text that an answer became; empty where it found no place.

    `source` is the lowered text and `again` what it lifts to, where it does; `module` is the
    answer's own, `ids` what the model knows those of its statements by that it did not write.
    """
    build = details.get("build")
    errors = [d for d in build["diagnostics"] if d["severity"] == "error"] if build else []
    if not errors and isinstance(details.get("line"), int):
        errors = [{"line": details["line"], "column": None, "message": "", "origin": ""}]
    return "\n".join([*_errors(errors, source, again, module, ids), *_use(details)])


def _errors(
    errors: Sequence[Mapping[str, Any]], source: bytes, again: Lifted | None, module: Module,
    ids: Ids,
) -> Iterator[str]:  # fmt: skip
    lines = source.decode("utf-8", "replace").split("\n")
    same = {} if again is None else diff(again.module, module).pairs
    places = [_op_at(again, error) for error in errors]
    ops = [None if place is None else same.get(place) for place in places]
    types = names_at(module, [op for op in ops if op is not None])
    for number, (error, op) in enumerate(zip(errors[:MOST_ERRORS], ops, strict=False), start=1):
        line = error["line"]
        yield f"{number}. {error['message'] or 'here'}" + (
            f" (in {error['origin']})" if error["origin"] else ""
        )
        if isinstance(line, int) and 1 <= line <= len(lines):
            yield f"   C++: {lines[line - 1].strip()}"
        if op is not None:
            name = f"{ids[op]}, " if op in ids else ""
            yield f"   op: {name}{statement_text(module, op).strip()}"
            known = [f"{name} is {describe(kind)}" for name, kind in types[op].items()]
            if known:
                yield f"   types: {'; '.join(known)}"
    if len(errors) > MOST_ERRORS:
        yield f"and {len(errors) - MOST_ERRORS} more"


def _op_at(again: Lifted | None, error: Mapping[str, Any]) -> Path | None:
    """The smallest statement of the lifted text that holds an error's place."""
    if again is None or not isinstance(error["line"], int):
        return None
    line, column = error["line"], error["column"]
    at = Lines(again.source).offset(line, column) if column else None
    holding = [
        (span.end - span.start, path)
        for path, span in again.provenance.items()
        if len(path) > 1 and path[0] != ARGS and (
            span.start <= at < span.end if at is not None
            else span.start_line <= line <= span.end_line
        )
    ]  # fmt: skip
    return min(holding, default=(0, None))[1]


def _use(details: Mapping[str, Any]) -> Iterator[str]:
    """Every loss, and what ptxas gives each kernel beside what it gave the source's."""
    for problem in details.get("problems") or ():
        yield f"* {problem['specialisation']} {problem['kernel']}: {problem['message']}"
    made, source = (_kernels(details.get(name)) for name in ("build", "expert"))
    if made:
        yield "As ptxas compiled it (in brackets the source):"
    for (key, name), now in made.items():
        was = source.get((key, name), {})
        spilled = now["spill_store_bytes"] + now["spill_load_bytes"]
        was_spilled = sum(was.get(n, 0) for n in ("spill_store_bytes", "spill_load_bytes"))
        yield (
            f"  {key} {name}: {now['registers']} registers a thread ({was.get('registers', '-')}), "
            f"{spilled} bytes spilled ({was_spilled}), {now['resident_blocks']} blocks on a "
            f"multiprocessor ({was.get('resident_blocks', '-')}), limited by "
            f"{now['resident_limit']}"
        )


def _kernels(build: Mapping[str, Any] | None) -> dict[tuple[str, str], Mapping[str, Any]]:
    found = () if build is None else build["specialisations"]
    return {(s["key"], k["name"]): k for s in found for k in s["kernels"]}


def speed_words(speed: Speed, details: Mapping[str, Any]) -> str:
    """What is said of a right edit's speed when it could be better."""
    said = [
        f"The cost model expects {speed.us:,.0f} us for it, and {speed.bare_us:,.0f} us for the "
        f"base module, which computes plain attention ({speed.where}): {speed.share:.2f} of the "
        "base module's speed."
    ]
    if speed.attentions > 1:
        said.append(f"The function asks for {speed.attentions} attentions, which is counted in.")
    said.append(
        f"It visits {speed.visited:.2f} pairs for each that the function keeps, and is bound by "
        f"{speed.bound}."
    )
    if speed.late:
        said.append(
            f"Its mask reads {speed.late} behind `and`: such a read is not made ahead, so it is a "
            "branch for each element of a tile. A name that holds what is read, assigned before "
            "the loop over keys (`offset = args.Nk - args.Nq`), takes the branches away."
        )
    return "\n".join([*said, *_use(details)])
