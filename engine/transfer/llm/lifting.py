"""Meanings for opaque ops, from a model: prompts, strict reading, checks. Three steps, each small
enough to review: what an op does, who executes it, what it is in CuIR."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.cuir.nodes import (
    Assign,
    Call,
    For,
    Function,
    Module,
    Opaque,
    Path,
    Return,
    Stmt,
    stmt_exprs,
    walk_block,
    walk_expr,
)
from engine.cuir.ops import OPS, Who
from engine.cuir.parser import parse_block
from engine.cuir.printer import print_module, print_stmts
from engine.cuir.rewrite import get
from engine.errors import CuirError
from engine.lift.cpp.provenance import Lifted, OpaqueOp
from engine.lift.cpp.tokens import Tokens
from engine.lift.files.meanings import NOTHING, Block, Meaning
from engine.llm.types import Message
from engine.transfer.llm.answer import (
    AnswerError,
    AnswerRefused,
    addressed,
    visible,
)
from engine.transfer.llm.prompt import fenced, instruction_text, render
from engine.transfer.llm.sources import definitions

MAX_DOES = 400
MAX_DEFINITION = 6_000
MAX_DEFINITIONS = 40_000
_LINE = re.compile(r"^(does|reads|writes|by|unknown)\s*:\s*(.*)$")
_PLACES = frozenset({"memory", "barriers"})  # what no name shows


class Step(StrEnum):
    """The three steps, in order."""

    ANNOTATE = "annotate"
    BIND = "bind"
    TRANSLATE = "translate"

    @property
    def words(self) -> str:
        return {
            Step.ANNOTATE: "what the ops do",
            Step.BIND: "who executes them",
            Step.TRANSLATE: "what they are in CuIR",
        }[self]


@dataclass(frozen=True, slots=True)
class LiftTask:
    """All that the prompts of one lift are made of. `module` holds no meaning yet."""

    kernel: str
    arch: str
    module: Module
    ids: Mapping[Path, str]
    asked: tuple[OpaqueOp, ...]
    headers: tuple[tuple[str, bytes], ...]
    known: Mapping[str, Meaning]  # by op id: what the earlier steps said and a person accepted
    instruction: str = ""

    @classmethod
    def of(
        cls, kernel: str, lifted: Lifted, ids: Mapping[Path, str],
        headers: tuple[tuple[str, bytes], ...], known: Mapping[str, Meaning], instruction: str = "",
    ) -> LiftTask:  # fmt: skip
        """The task for every opaque op of `lifted`."""
        arch = str(lifted.specialisation.get("arch", ""))
        return cls(kernel, arch, lifted.module, ids, lifted.opaque, headers, known, instruction)

    def op(self, id: str) -> Opaque:
        """The opaque op with this id. Raises KeyError."""
        for asked in self.asked:
            if self.ids[asked.path] == id:
                stmt = get(self.module, asked.path)
                assert isinstance(stmt, Opaque)
                return stmt
        raise KeyError(id)

    def path(self, id: str) -> Path:
        return next(a.path for a in self.asked if self.ids[a.path] == id)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ids[a.path] for a in self.asked)


# --- prompts --------------------------------------------------------------------------------------


def lift_messages(step: Step, task: LiftTask, manual: str) -> tuple[Message, ...]:
    """The prompt of one step."""
    return (
        Message("system", render("lift_system", manual=manual)),
        Message(
            "user",
            render(
                "lift_task",
                kernel=task.kernel,
                arch=task.arch,
                module=fenced(print_module(task.module, task.ids), "cuir"),
                ops="\n".join(_asked(step, task)),
                definitions=_definitions(task),
                known=_known(step, task),
                instruction=instruction_text(task.instruction),
                number=str(1 + list(Step).index(step)),
                title=step.words,
                question=render(f"lift_{step.value}"),
            ),
        ),
    )


def open_ops(step: Step, task: LiftTask) -> tuple[str, ...]:
    """The ids that a step asks for: those of which the step before is known."""
    if step is Step.ANNOTATE:
        return task.names
    known = task.known
    if step is Step.BIND:
        return tuple(id for id in task.names if id in known and known[id].does)
    return tuple(id for id in task.names if id in known and known[id].by)


def _asked(step: Step, task: LiftTask) -> Iterator[str]:
    for op in task.asked:
        id = task.ids[op.path]
        if id in open_ops(step, task):
            stmt = task.op(id)
            yield (
                f"* `{id}`, line {op.span.start_line} of the source: {visible(op.reason)}\n\n"
                f"{fenced(stmt.text, 'cuda')}\n"
            )


def _known(step: Step, task: LiftTask) -> str:
    if step is Step.ANNOTATE:
        return ""
    lines = [
        f"* `{id}`: {visible(said.does)} Reads {', '.join(said.reads) or 'nothing'}; writes "
        f"{', '.join(said.writes) or 'nothing'}."
        + (f" Executed by: {', '.join(said.by)}." if step is Step.TRANSLATE else "")
        for id, said in task.known.items()
        if id in open_ops(step, task)
    ]
    return "\n## What has been said of them\n\n" + "\n".join(lines) + "\n"


def _definitions(task: LiftTask) -> str:
    """Definitions of the called names, code alone, as far as the source's headers hold them."""
    wanted = {
        token.text
        for id in task.names
        for token in Tokens(task.op(id).text.encode()).all
        if token.kind == "word"
    }
    parts: list[str] = []
    size = 0
    for file, data in task.headers:
        for text in definitions(data, wanted):
            shown = text if len(text) <= MAX_DEFINITION else text[:MAX_DEFINITION] + "\n..."
            size += len(shown)
            if size > MAX_DEFINITIONS:
                return "\n\n".join([*parts, "(more was left out: the definitions are long)"])
            parts.append(f"From `{visible(file)}`:\n\n{fenced(shown, 'cuda')}")
    return "\n\n".join(parts) or "Nothing: no header of the source defines them."


# --- answers --------------------------------------------------------------------------------------


def read_step(step: Step, text: str, task: LiftTask) -> tuple[Meaning, ...]:
    """What an answer says of the asked ops, on top of what is known.

    Raises:
        AnswerError: a part that is missing, unknown, or says what cannot be so.
        AnswerRefused: CUDA text where CuIR is asked for.
    """
    wanted = open_ops(step, task)
    parts = addressed(text, "meaning")
    for id in parts:
        if id not in wanted:
            raise AnswerError(f"{id} is not asked for; the ops are {', '.join(wanted)}")
    missing = [id for id in wanted if id not in parts]
    if missing:
        raise AnswerError(f"nothing is said of {', '.join(missing)}; `unknown: why` is an answer")
    out = [
        said
        for id in wanted
        if (said := read_part(step, id, "\n".join(parts[id]), task)) is not None
    ]
    if not out:
        raise AnswerError("no op got a meaning: every one is unknown")
    return tuple(out)


def read_part(step: Step, id: str, text: str, task: LiftTask) -> Meaning | None:
    """One part; None for an op that is said to be unknown. A person's edit is read by this too."""
    known = task.known.get(id, Meaning(id, task.op(id).text))
    first = _LINE.match(text.strip().split("\n")[0]) if text.strip() else None
    if first is not None and first[1] == "unknown":
        return None
    match step:
        case Step.ANNOTATE:
            said = _fields(id, text, ("does", "reads", "writes"))
            return replace(
                known,
                does=said["does"][:MAX_DOES],
                reads=_names(id, said["reads"], task),
                writes=_names(id, said["writes"], task),
            )
        case Step.BIND:
            words = _list(_fields(id, text, ("by",))["by"])
            unknown = [w for w in words if w.upper() not in Who.__members__]
            if unknown or not words:
                there = ", ".join(w.name.lower() for w in Who)
                raise AnswerError(f"{id}: `by` takes one or more of {there}")
            return replace(known, by=tuple(words))
        case Step.TRANSLATE:
            return replace(known, body=_body(id, text, known, task))


def part_text(step: Step, said: Meaning) -> str:
    """What a step said of an op, in the form that `read_part` reads."""
    match step:
        case Step.ANNOTATE:
            return (
                f"does: {said.does}\nreads: {', '.join(said.reads)}\n"
                f"writes: {', '.join(said.writes)}"
            )
        case Step.BIND:
            return f"by: {', '.join(said.by)}"
        case Step.TRANSLATE:
            return "\n".join(print_stmts(said.body, 0, (), {}))


def _fields(id: str, text: str, names: tuple[str, ...]) -> dict[str, str]:
    out: dict[str, str] = {}
    last = ""
    for line in text.split("\n"):
        found = _LINE.match(line.strip())
        if found and found[1] in names:
            if found[1] in out:
                raise AnswerError(f"{id}: `{found[1]}:` stands twice")
            last = found[1]
            out[last] = visible(found[2].strip())
        elif line.strip() and last == "does":
            out[last] += " " + visible(line.strip())
        elif line.strip():
            raise AnswerError(f"{id}: not a line of this step: {visible(line.strip())[:60]!r}")
    missing = [name for name in names if name not in out]
    if missing or not out[names[0]]:
        raise AnswerError(f"{id}: the part needs the lines {', '.join(f'`{n}:`' for n in names)}")
    return out


def _list(text: str) -> list[str]:
    words = (w.strip().strip("`") for w in text.rstrip(".").split(","))
    return [w for w in words if w and w.lower() not in ("none", "nothing")]


def _names(id: str, text: str, task: LiftTask) -> tuple[str, ...]:
    op = task.op(id)
    there = {*op.reads, *op.writes, *_PLACES} - {"*"}
    there |= {t.text for t in Tokens(op.text.encode()).all if t.kind == "word"}
    names = _list(text)
    for name in names:
        if name not in there:
            raise AnswerError(f"{id}: {visible(name)!r} does not stand in the op's text")
    return tuple(dict.fromkeys(names))


def _body(id: str, text: str, known: Meaning, task: LiftTask) -> Block:
    if text.strip() == "pass":
        text = f"{NOTHING} = True"
    if not text.strip():
        raise AnswerError(f"{id}: no statements; `pass` is an op without any effect")
    try:
        body = parse_block(text.strip("\n") + "\n", id)
    except CuirError as error:
        raise AnswerError(f"{id} does not parse: {error}") from None
    function = task.module.function(str(task.path(id)[0]))
    fresh = _assigned(function)
    allowed = set(known.by)
    for _, stmt in walk_block(body, ("",)):
        match stmt:
            case Opaque():
                raise AnswerRefused(f"{id}: a meaning is made of CuIR ops, not of opaque text")
            case Return():
                raise AnswerError(f"{id}: a meaning cannot return from its function")
            case Assign(target) if target in fresh and target not in known.writes:
                raise AnswerError(
                    f"{id}: it assigns {target!r}, which step 1 did not say that it writes"
                )
            case For(var) if var in fresh:
                raise AnswerError(f"{id}: the loop variable {var!r} is a name of the function")
        _who(id, stmt, allowed)
    return body


def _who(id: str, stmt: Stmt, allowed: set[str]) -> None:
    """Ops of a meaning are executed by whom step 2 named."""
    for expr in stmt_exprs(stmt):
        for node in walk_expr(expr):
            if not isinstance(node, Call) or node.fn not in OPS:
                continue
            who = OPS[node.fn].who
            if who is not Who.ANY and who.name.lower() not in allowed:
                raise AnswerError(
                    f"{id}: `{node.fn}` is executed by {who.name.lower()} ({who.value}), and step "
                    f"2 said {', '.join(sorted(allowed))}"
                )


def _assigned(function: Function) -> set[str]:
    """Names that the function has already."""
    out = {p.name for p in function.params} | set(function.consts)
    for _, stmt in walk_block(function.body, ("",)):
        match stmt:
            case Assign(target):
                out.add(target)
            case For(var):
                out.add(var)
            case Opaque(_, reads, writes):
                out |= set(reads) | set(writes)
    return out - {"*"}
