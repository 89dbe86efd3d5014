"""`cubridge mcp`: a coding agent works on sessions over MCP, on standard input and output.

Every tool is one `cubridge` command with `--json`, run as a process of its own, one at a time;
what it writes is the result. A tool names a session and nothing else: no file, no kernel, no spec.
There is none that decides on hunks, overrides a gate or accepts a kernel: that is the person's, in
the app.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cubridge_tui import __version__
from cubridge_tui.headless import add_store
from engine.errors import CuBridgeError, InputError, MissingTool

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.lowlevel import Server

INSTRUCTIONS = (
    "CuBridge carries an expert's CUDA attention kernel to a new variant as hunks of CuIR, a "
    "tile-level text. A person has a session open in its app and decides on every hunk; you "
    "propose. In turn: `status` (which sessions there are; what is owed next), `recipe` (what the "
    "person's function asks for), `lift` (the text that you edit), `manual` (how an edit is "
    "written), `propose`; after the person has accepted hunks `check` (gates G1 and G2) and "
    "`lower` (CUDA, G3). No tool accepts a hunk or a kernel, overrides a gate, or changes a spec."
)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool: its words, and the command that it is; `acts` are those that write into the session
    in the agent's name, `edits` the one that takes an edit."""

    words: str
    command: tuple[str, ...]
    acts: bool = False
    edits: bool = False


CALLS = {
    "status": Call(
        "A session's verdicts, hunks, decisions, comments and what is owed next; without a session "
        "the list of sessions.",
        ("sessions", "show"),
    ),
    "recipe": Call(
        "What the person's function asks for, clause by clause and as expressions. Runs that "
        "function's file, which the person named.",
        ("recipe",),
    ),
    "lift": Call(
        "The kernel as CuIR with what the person accepted so far, every op with its id (#@s12): "
        "the text that `propose` edits.",
        ("lift", "--ids"),
    ),
    "propose": Call(
        "Propose an edit, in the form that `manual` describes (a paragraph of reasons, then one "
        "fenced `edit`, `cuir` or `diff` block). It is judged by G2 first, and only what passes "
        "becomes hunks that the person decides on; else the reason and a counterexample come back. "
        "Your own undecided proposal is replaced. Without an edit the rules propose.",
        ("propose",),
        acts=True,
        edits=True,
    ),
    "check": Call(
        "Run G1 and G2 on what the person accepted: half a minute.", ("check",), acts=True
    ),
    "lower": Call(
        "Write the accepted target back into the CUDA source and run G3, with nvcc where it is.",
        ("lower",),
        acts=True,
    ),
}  # fmt: skip
MANUAL = "manual"
NO_DECISIONS = "deciding on hunks, overriding and accepting are the person's, in the app"


def configure(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.epilog = "An MCP client starts it. `pip install 'cubridge-tui[mcp]'` brings the library."


def run(args: argparse.Namespace) -> int:
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise MissingTool(
            "the MCP library is not installed", fix="pip install 'cubridge-tui[mcp]'"
        ) from None
    server = make_server(args.store)

    async def serve() -> None:
        lines: Any = _lines(sys.stdin.fileno())
        async with stdio_server(stdin=lines) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    try:
        anyio.run(serve)
    except BaseExceptionGroup as group:
        _, others = group.split(BrokenPipeError)
        if others is not None:
            raise
        raise BrokenPipeError from None  # the client went away, in the middle of an answer or not
    return 0


async def _lines(fd: int) -> AsyncIterator[str]:
    """What the client sends, line by line, by a reader that Ctrl-C ends: the library's own reads in
    a thread, which ends with the client alone."""
    import anyio

    rest = b""
    while True:
        # What is no pipe (a file) is always readable, and cannot be waited for.
        with contextlib.suppress(PermissionError):
            await anyio.wait_readable(fd)
        chunk = os.read(fd, 1 << 16)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in [*lines, *([] if chunk or not rest else [rest])]:
            yield _whole(line.decode("utf-8", "replace"))
        if not chunk:
            return


def _whole(line: str) -> str:
    """The line with U+FFFD for each half of a surrogate pair, which UTF-8 cannot say: the library
    drops a request that has one, and its client would wait for the answer."""
    if "\\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line  # the library's to refuse
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def make_server(store: str | None) -> Server[Any]:
    """The server, not yet connected."""
    import anyio
    from mcp import types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    one_at_a_time = anyio.Lock()

    async def list_tools(_: ServerRequestContext[Any], __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*map(_tool, CALLS), _tool(MANUAL)])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        client = context.session.client_params
        agent = client.client_info.name if client is not None else "without a name"
        try:
            if params.name == MANUAL:
                from engine.service.models.agent import how_to_edit

                return _result(how_to_edit())
            words, text = command_of(params.name, params.arguments or {}, agent, store)
        except CuBridgeError as error:
            return _result(str(error), failed=True)
        async with one_at_a_time:
            return await _run(words, text)

    return Server(
        "cubridge", version=__version__, instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def command_of(
    name: str, given: dict[str, Any], agent: str, store: str | None
) -> tuple[list[str], str]:
    """The command line of a call, and what it reads from standard input.

    Raises:
        InputError: no such tool, or arguments that it does not take.
        StoreError: there is no such session.
    """
    from engine.service.models.agent import agent_actor
    from sessions.store import Store

    call = CALLS.get(name)
    if call is None:
        fix = f"use one of: {', '.join([*CALLS, MANUAL])}"
        raise InputError(f"there is no tool {name[:40]!a}: {NO_DECISIONS}", fix=fix)
    takes = {"session", *(("edit",) if call.edits else ())}
    wrong = {key[:40] for key in given.keys() - takes}
    wrong |= {key for key in takes & given.keys() if not isinstance(given[key], str)}
    if wrong:
        fix = f"give {' and '.join(sorted(takes, reverse=True))} as text"
        raise InputError(f"{name} does not take {sorted(wrong)!a}", fix=fix)
    here = Store.open(store)
    where = ["--store", str(here.path)]  # the process has another current folder
    if call.command == ("sessions", "show") and "session" not in given:
        return ["sessions", "list", "--json", *where], ""
    if "session" not in given:
        raise InputError(f"{name} needs a session", fix="`status` lists them")
    # By its whole id, which no file, kernel or spec that a command also takes is called.
    words = [*call.command, here.find(given["session"]), "--json", *where]
    if call.acts:
        agent_actor(agent)
        words.append(f"--agent={agent}")
    return words + ["-"] * ("edit" in given), given.get("edit", "")


async def _run(words: list[str], text: str) -> types.CallToolResult:
    """The command's JSON, or what it said where it came to none."""
    import anyio

    done = await anyio.run_process(
        [sys.executable, "-P", "-m", "cubridge_tui", *words],
        input=text.encode("utf-8", "replace"), check=False, cwd="/",
    )  # fmt: skip
    out = done.stdout.decode("utf-8", "replace")
    try:
        return _result(out, data=json.loads(out))
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip()
        return _result(said or f"it ended with the code {done.returncode}", failed=True)


def _result(
    text: str, *, failed: bool = False, data: dict[str, Any] | None = None
) -> types.CallToolResult:
    from mcp import types

    from cubridge_tui.console import printable

    return types.CallToolResult(
        content=[types.TextContent(type="text", text=printable(text))],
        structured_content=data,
        is_error=failed,
    )


def _tool(name: str) -> types.Tool:
    from mcp import types

    session = {"type": "string", "description": "a session's id, or the beginning of one"}
    call = CALLS.get(name)
    if call is None:
        words = "How an edit is written: the form of an answer, conventions, the manual of CuIR."
        schema: dict[str, Any] = {"type": "object", "properties": {}}
    else:
        words = call.words
        properties = {"session": session}
        if call.edits:
            properties["edit"] = {"type": "string", "description": "the edit, see `manual`"}
        required = [] if name == "status" else ["session"]
        schema = {"type": "object", "properties": properties, "required": required}
    return types.Tool(name=name, description=words, input_schema=schema)
