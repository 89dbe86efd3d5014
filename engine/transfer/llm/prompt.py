"""Prompts as artifacts: typed data in, messages out, through templates that are files.

Texts from files go into data fences that nothing inside them can close. The spec is sent as code
alone, without comments and docstrings: what defines the result is what it executes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

from engine.cuir.nodes import Module, Path
from engine.cuir.printer import print_expr, print_module
from engine.llm.types import Message
from engine.spec.recipes.recipe import OUTPUT, Recipe
from engine.transfer.llm.answer import visible
from engine.transfer.llm.bind import Interface
from engine.transfer.llm.outcome import Outcome

MAX_SPEC = 60_000
MAX_WORDS = 20_000
ROWS = 12


@dataclass(frozen=True, slots=True)
class Comment:
    """A person's words about a hunk."""

    hunk: str
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """All that a first prompt is made of."""

    kernel: str
    base: Module
    ids: Mapping[Path, str]
    spec_name: str
    spec_text: str
    recipe: Recipe | None
    unread: str  # why there is no recipe
    interface: Interface
    room: str = ""  # what the kernel uses and may use, as lines
    answers: int = 1  # how many there may be
    instruction: str = ""
    comments: tuple[Comment, ...] = ()


def first_messages(task: Task, manual: str) -> tuple[Message, ...]:
    """System and task message."""
    return (
        Message("system", render("system", manual=manual)),
        Message("user", task_text(task)),
    )


def task_text(task: Task) -> str:
    return render(
        "task",
        kernel=task.kernel,
        module=fenced(print_module(task.base, task.ids), "cuir"),
        spec_name=task.spec_name,
        spec=fenced(code_alone(task.spec_text), "python"),
        recipe=_recipe(task),
        inputs=_inputs(task.interface),
        room=render("room", room=task.room) if task.room else "",
        left=_left(task.answers),
        instruction=instruction_text(task.instruction),
        comments=_comments(task.comments),
    )


def repair_text(
    found: Outcome[Any], earlier: Sequence[str], steer: str, what: str, left: int
) -> str:
    """What goes back after an attempt that did not get through; `what` is to be answered again, and
    `left` answers remain, that one among them."""
    where = f"\nThe op where it was found:\n\n{fenced(found.shown, 'cuir')}\n"
    return render(
        "repair",
        stage=found.stage,
        reason=fenced(found.reason),
        op=where if found.shown else "",
        found=f"\nAll that was found:\n\n{fenced(found.found)}\n" if found.found else "",
        counterexample=_counterexample(found.details),
        earlier=_earlier(earlier),
        steer=instruction_text(steer),
        what=what,
        left=_left(left),
    )


def incomplete_text(reason: str, left: int, steer: str = "") -> str:
    """What goes back after an answer that was cut off, filtered or empty."""
    return render(
        "incomplete", reason=visible(reason), steer=instruction_text(steer), left=_left(left)
    )


def better_text(found: str, left: int) -> str:
    """What goes back after an answer that passed: `found` says how it could be better."""
    return render("better", found=found, left=_left(left))


def _left(answers: int) -> str:
    if answers == 1:
        return "This is the last answer."
    return f"{answers} answers remain, with this one."


def render(name: str, /, **values: str) -> str:
    """A template with its values. A value is put in once and never read as a template."""
    text = files("engine.transfer.llm").joinpath("templates", f"{name}.md").read_text("utf-8")
    return Template(text).substitute(values)


def fenced(text: str, kind: str = "text") -> str:
    """`text` in a fence longer than any run of backticks inside it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{visible(text.rstrip())}\n{fence}"


def code_alone(text: str) -> str:
    """A Python text without comments and docstrings; what is no Python is cut to nothing of it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "# (the file is not Python)"
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [s for s in body if not _is_text(s)]
            if len(kept) != len(body):
                node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    out = ast.unparse(ast.fix_missing_locations(tree))
    if len(out) > MAX_SPEC:
        out = out[:MAX_SPEC] + "\n# ... (cut: the file is longer)"
    return out


def _is_text(stmt: object) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Constant)
        and isinstance(stmt.value.value, str)
    )


def _recipe(task: Task) -> str:
    recipe = task.recipe
    if recipe is None:
        return render("unread", why=fenced(task.unread))
    clauses = "\n".join(f"* {visible(c.words)}" for c in recipe.clauses) or "* plain attention"
    lines = [
        f"score   = {print_expr(recipe.score)}",
        f"keep    = {print_expr(recipe.keep)}",
        "weight  = "
        + ("softmax over kept keys" if recipe.weight is None else print_expr(recipe.weight)),
        f"kv_head = {print_expr(recipe.kv_head)}",
    ]
    for role, made in (("q", recipe.q), ("k", recipe.k)):
        if made is not None:
            lines.append(f"before the product an element of {role} becomes {print_expr(made)}")
    if recipe.sink is not None:
        lines.append(f"the softmax's sum has exp({print_expr(recipe.sink)}) added; LSE contains it")
    if recipe.late is not None:
        lines.append(f"a normalised weight is multiplied by {print_expr(recipe.late)}")
    if recipe.other is not None:
        other = recipe.other
        lines.append(f"the same with {other.q} for q and {other.k} for k gives o2, and o becomes "
                     f"{print_expr(other.value)}")  # fmt: skip
    if recipe.output != OUTPUT:
        lines.append(f"an element o of O becomes {print_expr(recipe.output)}")
    lines += [f"only where {print_expr(c)}" for c in recipe.constraints]
    return render("recipe", clauses=clauses, expressions=fenced("\n".join(lines)))


def _inputs(interface: Interface) -> str:
    rows = ["| input | role | element type | dimensions |", "| --- | --- | --- | --- |"]
    for item in interface.inputs:
        dims = " ".join(item.dims) or "a number"
        derived = " (a table that the spec builds; it arrives as an input)" if item.derive else ""
        rows.append(f"| `{item.name}` | {item.role}{derived} | {item.dtype} | {dims} |")
    rows.append(f"| output | O | T | {' '.join(interface.output_dims)} |")
    if interface.scalars:
        values = ", ".join(f"{name} = {value!r}" for name, value in interface.scalars)
        rows.append(f"\nScalars of the spec: {values}.")
    rows.append(
        "\nThe kernel's own fields are filled already; `scale` holds 1 / sqrt(D) unless a bind "
        "line says otherwise."
    )
    return "\n".join(rows)


def instruction_text(text: str) -> str:
    words = text.strip()[:MAX_WORDS]
    return render("instruction", instruction=visible(words)) if words else ""


def _comments(comments: Sequence[Comment]) -> str:
    if not comments:
        return ""
    lines = "\n".join(f"* {visible(c.hunk)}: {visible(c.text.strip())}" for c in comments)
    return render("comments", comments=lines[:MAX_WORDS])


def _counterexample(details: Mapping[str, Any]) -> str:
    """The gate's counterexample as lines; nothing where there is none."""
    found = details.get("counterexample")
    case = details.get("case")
    if not isinstance(found, Mapping):
        return f"\nIt happened at {case}.\n" if case else ""
    lines = []
    if "case" in found:
        lines.append(f"sizes: {found['case']}")
    place = ", ".join(f"{n}={found[n]}" for n in ("b", "h", "i", "j", "d") if n in found)
    if place:
        lines.append(f"at {place}: expected {_show(found.get('expected'))}, got "
                     f"{_show(found.get('got'))}")  # fmt: skip
    if "wrong_rows" in found:
        lines.append(f"wrong rows: {found['wrong_rows']} of {found.get('rows')}")
    if "diagnosis" in found:
        lines.append(str(found["diagnosis"]))
    keys = found.get("keys")
    if isinstance(keys, list) and keys:
        lines.append(f"weights of row i={found.get('i')} that differ ({found.get('wrong_keys')}):")
        lines += [
            f"  j={k['j']}: expected {_show(k['expected'])}, got {_show(k['got'])}"
            for k in keys[:ROWS]
        ]
    if not lines:
        return ""
    return f"\nThe smallest counterexample that was found:\n\n{fenced(chr(10).join(lines))}\n"


def _show(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _earlier(earlier: Sequence[str]) -> str:
    if not earlier:
        return ""
    lines = "\n".join(f"* {visible(e.splitlines()[0] if e else '')}" for e in earlier)
    return f"\nEarlier attempts failed like this; do not go back to them:\n\n{lines}\n"
