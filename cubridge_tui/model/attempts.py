"""A model's answers as rows: the list, and one of them as text, edit, verdict or prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cubridge_tui.model.linediff import opcodes, unified
from cubridge_tui.model.rows import PaneText, Row, RowKind
from cubridge_tui.model.topics import Topic
from cubridge_tui.text.cells import split_lines

if TYPE_CHECKING:
    from cubridge_tui.model.live import Live
    from cubridge_tui.model_desk import Ready
    from engine.cuir.nodes import Module
    from engine.llm.types import Message, Reply, Request
    from engine.transfer.llm.editing import Edit
    from engine.transfer.llm.loop import Attempt


class Look(StrEnum):
    """What is shown of an attempt."""

    ANSWER = "answer"
    EDIT = "edit"
    VERDICT = "verdict"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True)
class Said:
    """One part of an answer about opaque ops or regions: its name, what is there, what is said."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer, whatever it was asked for; `module` or `parts` where it could be read."""

    id: str
    passed: bool
    reached: str
    reason: str
    request: Request
    reply: Reply
    words: str = ""
    op: str = ""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    module: Module | None = None
    parts: tuple[Said, ...] = ()
    language: str = "cuir"

    @classmethod
    def of_edit(cls, a: Attempt[Edit]) -> Answered:
        """An answer to the question for an edit."""
        edit = a.outcome.value
        made = cls._of(a.id, a)
        return made if edit is None else replace(made, words=edit.words, module=edit.module)

    @classmethod
    def of_parts(
        cls, name: str, attempt: Attempt[Any], parts: Sequence[Said], language: str
    ) -> Answered:
        """An answer to the question for meanings or for a lowering."""
        made = cls._of(f"{name}{attempt.round}", attempt)
        return replace(made, parts=tuple(parts), language=language)

    @classmethod
    def _of(cls, id: str, a: Attempt[Any]) -> Answered:
        out = a.outcome
        return cls(
            id, a.passed, a.reached.word, a.reason, a.request, a.reply, op=out.op,
            details=out.details,
        )  # fmt: skip


def attempt_rows(attempts: Sequence[Answered], marked: int = -1) -> tuple[Row, ...]:
    """The list: id, how far it got, why no further, what it took."""
    return tuple(
        Row(
            f"{a.id:<6} {_mark(a)} {a.reached:<10} {a.reply.seconds:5.1f} s"
            f" {_tokens(a):>14}  {a.reason}",
            number=i,
            sign="◆" if i - 1 == marked else " ",
        )
        for i, a in enumerate(attempts, start=1)
    )


def _mark(attempt: Answered) -> str:
    return "✓" if attempt.passed else "✗"


def _tokens(attempt: Answered) -> str:
    used = attempt.reply.usage
    if used.prompt is None and used.answer is None:
        return "tokens unknown"
    return f"{used.prompt or 0}+{used.answer or 0} tok"


def shown(attempt: Answered, look: Look, base: str) -> PaneText:
    """An attempt; `base` is the target that it edits, as text."""
    title = f"{attempt.id}  {look.value}"
    if look is Look.EDIT:
        return _edit(attempt, base, title)
    if look is Look.PROMPT:
        return prompt_text(attempt.request.messages, title)
    if look is Look.VERDICT:
        return PaneText(_plain("\n".join(_verdict(attempt))), "", title)
    thought = attempt.reply.reasoning
    rows = [*_plain(attempt.reply.text, "model")]
    if thought:
        head = Row(f"reasoning, {len(thought)} characters", RowKind.HEAD)
        rows = [*rows, Row(""), head, *_plain(thought)]
    return PaneText(tuple(rows), "", title, "the answer is empty")


def _edit(attempt: Answered, base: str, title: str) -> PaneText:
    from engine.cuir.printer import print_module

    if attempt.parts:
        return PaneText(_parts(attempt), attempt.language, title)
    if attempt.module is None:
        return PaneText((), "cuir", title, f"nothing could be read from it: {attempt.reason}")
    old, new = split_lines(base), split_lines(print_module(attempt.module))
    rows = unified(old, new, opcodes(old, new), {}, {}, {}, {}, {})
    made = tuple(
        Row(r.text, r.kind, r.number, "model" if r.kind is RowKind.ADD else r.origin) for r in rows
    )
    return PaneText(made, "cuir", title)


def _parts(attempt: Answered) -> tuple[Row, ...]:
    """Op by op, or region by region: what is there, and what the answer says."""
    rows: list[Row] = []
    for said in attempt.parts:
        rows.append(Row(said.name, RowKind.HEAD, None, "model"))
        for text, kind in ((said.before, RowKind.DEL), (said.after, RowKind.ADD)):
            origin = "model" if kind is RowKind.ADD else "expert"
            lines = text.rstrip("\n").split("\n") if text else []
            rows += [Row(line, kind, None, origin) for line in lines]
    return tuple(rows)


def _verdict(attempt: Answered) -> list[str]:
    lines = [f"{attempt.id}: {attempt.reached}", "", attempt.reason, ""]
    if attempt.words:
        lines += ["the model's own reason", f"  {attempt.words}", ""]
    if attempt.op:
        lines += [f"op {attempt.op}", ""]
    example = attempt.details.get("counterexample")
    if isinstance(example, dict):
        lines.append("counterexample")
        lines += [f"  {name:<12} {value}" for name, value in example.items()]
        lines.append("")
    reply = attempt.reply
    lines.append(f"answer {reply.ending.value}, {reply.seconds:.1f} s, {reply.tries} tries")
    if reply.note:
        lines.append(f"note: {reply.note}")
    lines.append(f"model {reply.model or attempt.request.model}")
    return lines


def prompt_text(messages: Sequence[Message], title: str) -> PaneText:
    """A whole prompt, each message under its role."""
    rows: list[Row] = []
    for message in messages:
        size = len(message.text.encode("utf-8", "replace"))
        rows.append(Row(f"{message.role}, {size} bytes", RowKind.HEAD))
        rows += _plain(message.text)
        rows.append(Row(""))
    return PaneText(tuple(rows), "", title)


def ready_text(ready: Ready) -> PaneText:
    """What would be sent, and where: read before the key that sends it."""
    out = ready.outgoing
    manner = out.manner or ready.settings.manner
    candidates = ready.asking.candidates if ready.topic is Topic.EDIT else 1
    lines = [
        f"asks for   {ready.topic.words}",
        f"to         {out.place}   ({manner})",
        f"model      {out.model}",
        f"requests   at most {out.requests}: {candidates} from scratch, each with up "
        f"to {ready.asking.rounds} repairs",
        f"bytes      {out.bytes} in the first request:",
        *(f"           {p.bytes:>8}  {p.name}" for p in out.parts),
        "           later ones add the model's own answers and what the gates found",
    ]
    if ready.asking.instruction:
        lines.append(f"your words {ready.asking.instruction}")
    lines += [f"comment    {c.hunk}: {c.text}" for c in ready.comments]
    if ready.rest:
        count = len(ready.rest)
        lines.append(
            f"sent back  {count} undecided hunk{'s' * (count != 1)}: rejected when this is sent "
            "(u undoes it)"
        )
    lines += ["", "Nothing has left this machine yet."]
    return PaneText(_plain("\n".join(lines)), "", "what would be sent")


NO_SERVER = """Any server that speaks OpenAI's Chat Completions can be asked: vLLM,
Ollama, llama.cpp, or a hosted one. m names its base URL and the
model for this session. To keep them:

    export OPENAI_BASE_URL=http://127.0.0.1:8000/v1
    export CUBRIDGE_MODEL=name
    export OPENAI_API_KEY=...   (only where the server wants a key)

or base_url and model in $XDG_CONFIG_HOME/cubridge/llm.toml.

A model is never required: the rules carry every recipe that the
project documents, and e and W on the panes write by hand.
Nothing has left this machine."""


def no_server_text(problem: str) -> PaneText:
    """What is missing before anything can be asked, and how to name it."""
    return PaneText(_plain(f"{problem}\n\n{NO_SERVER}"), "", "what would be sent")


def stream_rows(live: Live) -> tuple[Row, ...]:
    """The running answer so far."""
    return _plain(live.text(), "model")


def _plain(text: str, origin: str = "") -> tuple[Row, ...]:
    lines = text.split("\n")
    return tuple(Row(line, number=i, origin=origin) for i, line in enumerate(lines, start=1))
