"""A coding agent on a session that a person's app has open: over MCP, with the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubridge_tui.cli import READER_GONE, main
from cubridge_tui.commands.mcp import CALLS, command_of
from cubridge_tui.screens.adaptation import screen as screen_module
from engine.build.tools.toolchain import Toolchain
from engine.child.client import Child
from engine.errors import CuBridgeError, InputError
from engine.lift import lift
from engine.service.models.agent import agent_actor, check_ready
from engine.service.models.llm_gates import ModelGates
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.stage_work import Work
from engine.service.session.workbench import find_kernel, find_spec
from engine.service.writers.person import propose_by_person
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.llm.outcome import Outcome, Reached
from engine.types import Gate, Level, Origin, Stage, VerdictKind
from sessions.events import HunkDecided, Note, encode
from sessions.store import Store
from tests.cubridge_tui.made import ACTOR, PLAIN, TableChild, bench_of, placed, verdict_of
from tests.cubridge_tui.screens.test_adaptation import Driver
from tests.engine.transfer.llm.answers import id_of, line_of
from tests.engine.transfer.recipes import VARIANTS

pytestmark = pytest.mark.usefixtures("no_warm_up")
ROOT = Path(__file__).resolve().parents[3]
CLAIMED = "agent claude-code (as it names itself)"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "LOOK_SECONDS", 0.2)


class Watching(Driver):
    """The app on a session, without torch."""

    async def __aenter__(self) -> Watching:
        self.app.bench.child = TableChild(VARIANTS["softcap_causal"])  # type: ignore[assignment]
        await super().__aenter__()
        return self

    async def current(self, store: Store) -> None:
        """Until the app shows what the store holds, and writes."""
        count = store.load(self.screen.session).state.count

        def there() -> bool:
            snap = self.screen.snap
            return snap is not None and snap.state.count == count and not snap.read_only

        await self.until(there)

    async def sees(self, words: str) -> None:
        await self.until(lambda: words in self.text)

    async def until(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60.0
        while not there():
            assert time.monotonic() < deadline, self.text
            await asyncio.sleep(0.05)


async def test_an_agent_carries_an_adaptation_to_g3_while_a_person_watches_and_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toolchain: Toolchain
) -> None:
    pytest.importorskip("torch")
    mcp = pytest.importorskip("mcp", reason="the mcp extra is not installed")
    path = tmp_path / "store.git"
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    store = Store.open(path)
    package = find_kernel("flash_fwd_sm80")
    with bench_of(store) as bench:
        options = choose_options(package, only=True)  # one specialisation to compile
        session = start(bench, package, find_spec("softcap_causal"), options, ACTOR)
        with store.writer(session) as writer:
            Adaptation(bench, writer, ACTOR).lift()
    server = mcp.StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "cubridge_tui", "mcp", "--store", str(path)],
        env=dict(os.environ),
    )  # fmt: skip
    name = mcp.Implementation(name="claude-code", version="1")
    async with Watching(session) as d, mcp.Client(mcp.stdio_client(server), client_info=name) as c:

        async def call(tool: str, **arguments: str) -> Any:
            found = await c.call_tool(tool, {"session": session[:12], **arguments})
            assert not found.is_error, found.content[0].text
            return found.structured_content

        tools = [tool.name for tool in (await c.list_tools()).tools]
        assert tools == [*CALLS, "manual"]
        assert (await call("status"))["next"].startswith("Run the spec")
        made = await call("propose")
        count = len(made["hunks"])
        await d.sees(f"Decide on {count} hunks")
        await d.current(store)
        assert "READ-ONLY" not in d.text
        assert (await call("status"))["hunks"][0]["decision"] is None
        for refused in ("accept", "decide"):
            found = await c.call_tool(refused, {"session": session})
            assert found.is_error and "are the person's" in found.content[0].text
        assert store.load(session).state.acceptance is None

        await d.press("A")
        gates = (await call("check"))["stages"]
        assert [(row["gate"], row["verdict"]) for row in gates] == [("G1", "pass"), ("G2", "pass")]
        assert (await call("lower"))["verdict"]["kind"] == "pass"
        await d.sees("Accept the kernel at cpu-verified")
        assert d.screen.desk is not None
        shown = [encode(event) for event in d.screen.desk.writer.events]
    kept = store.load(session)
    assert shown == [encode(event) for event in kept.events]
    assert kept.state.verdict(Gate.G3) is not None and kept.state.acceptance is None
    by = {event.type: event.actor for event in kept.events}
    assert by["VerdictGiven"] == CLAIMED and by["ProposalMade"] == "rules"
    from cubridge_tui.headless import actor

    assert {e.actor for e in kept.events if isinstance(e.body, HunkDecided)} == {actor()}


def _edit(module: Any, factor: str) -> str:
    line = line_of(module, "scale_log2 =")
    return (
        f"Scale by {factor} \x1b[2J<script>\n\n```edit\n<<<<<<< {id_of(module, 'scale_log2 =')}\n"
        f"{line}\n=======\n{line} * {factor}\n>>>>>>>\n```\n"
    )


async def test_an_agents_own_edit_is_judged_as_a_models_and_appears_in_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.LIFTED)
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    monkeypatch.setattr(Work, "read_recipe", lambda *_: PLAIN)
    right = Outcome(Reached.PASSED, "")
    wrong = Outcome(Reached.G2, "O is wrong", details={"counterexample": {"i": 2}})

    def judge(self: ModelGates, recipe: object) -> Any:
        from engine.cuir.printer import print_module

        return lambda module, _: right if "* 2.0" in print_module(module) else wrong

    monkeypatch.setattr(ModelGates, "judge", judge)
    package = find_kernel("flash_fwd_sm80")
    options = choose_options(package)
    module = lift(package, options.specialisation, options.arch).module

    async def propose(text: str) -> tuple[int, str]:
        (tmp_path / "edit.md").write_text(text)
        words = ["propose", session, str(tmp_path / "edit.md"), "--agent", "claude-code"]
        said: list[str] = []
        monkeypatch.setattr("cubridge_tui.commands.propose.say", said.append)
        return await asyncio.to_thread(main, words), "".join(said)

    store = Store.open(path)
    async with Watching(session) as d:
        for text, why in (
            ("", "the answer is empty"),
            ("no edit \x1b]0;x\x07", "holds no ```edit block"),
            ("```edit spec.py\n<<<<<<< s1\na\n=======\nb\n>>>>>>>\n```", "only the target module"),
            (_edit(module, "4.0"), "O is wrong"),
        ):
            code, said = await propose(text)
            assert code == 1 and why in said
        assert store.load(session).state.proposals == ()
        code, said = await propose(_edit(module, "2.0"))
        assert code == 0, said
        await d.sees("Decide on 1 hunk")
        await d.sees(f"{CLAIMED}: model proposed 1 hunk (agent-1): Scale by 2.0")
        assert "\x1b" not in d.text
        (made,) = store.load(session).state.proposals
        assert (made.id, made.origin) == ("agent-1", Origin.MODEL)
        # One that nobody decided on is replaced; a person's decision stays what it is.
        await propose(_edit(module, "2.0 * 1.0"))
        assert [p.id for p in store.load(session).state.proposals] == ["agent-1"]
        await d.current(store)
        await d.press("A")
        state = store.load(session).state
        assert len(state.accepted_hunks) == 1
        # A proposal of the rules would drop that decision.
        assert await asyncio.to_thread(main, ["propose", session, "--agent", "x"]) == 2
        assert store.load(session).state.accepted_hunks == state.accepted_hunks


def test_recipe_and_lift_take_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.TARGET)
    asked = []

    def call(self: Child, name: str, payload: dict[str, Any], **_: Any) -> dict[str, Any]:
        asked.append(Path(payload["path"]).name)
        return {"recipe": recipe_to_json(PLAIN)}

    monkeypatch.setattr(Child, "call", call)
    for name in (session, "softcap_causal"):  # the whole id is a session, a spec's name a spec
        assert main(["recipe", name, "--json", "--store", str(path)]) == 0
        assert "clauses" in json.loads(capsys.readouterr().out)
    assert asked == ["softcap_causal.py"] * 2
    assert main(["lift", session[:12], "--ids", "--json", "--store", str(path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    target = Store.open(path).load(session).artifact(Stage.TARGET, "target.cuir").text
    assert re.sub(r" +#@[sf]\d+$", "", shown["cuir"], flags=re.MULTILINE) == target
    assert shown["lines"] == {}, "its ops stand elsewhere than the source's"
    assert main(["recipe", "no-such-thing", "--store", str(path)]) == 2
    assert "no bundled spec" in capsys.readouterr().err


def test_an_agents_proposal_never_revokes_an_acceptance(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.git")
    session = placed(store.path, Stage.LOWERED)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        work.accept()
        for anew in (False, True):
            with pytest.raises(InputError, match="accepted, which a proposal would revoke"):
                check_ready(work, anew=anew)


def test_the_rules_drop_no_proposal_that_waits_for_the_person(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.git")
    session = placed(store.path, Stage.LIFTED)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        work.propose_by_rules()
        check_ready(work, anew=True)
        text = work.text(Stage.LIFTED, "lifted.cuir")
        propose_by_person(work, text.replace("gemm(o, p, sV", "sync()\n        gemm(o, p, sV"))
        check_ready(work)
        with pytest.raises(InputError, match="person-1 would be dropped"):
            check_ready(work, anew=True)


def test_an_agent_judges_no_override_of_the_person_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.git"
    session = placed(path)
    monkeypatch.setattr(
        "engine.service.session.workbench.Bench", lambda store, progress: bench_of(store)
    )
    store = Store.open(path)
    with bench_of(store) as bench, store.writer(session) as writer:
        work = Adaptation(bench, writer, ACTOR)
        for gate in (Gate.G2, Gate.G3):
            found = verdict_of(work, gate, VerdictKind.PASS, "")
            work.give(replace(found, kind=VerdictKind.OVERRIDDEN, reason="I know", by=ACTOR))
        work.accept()
    for command in ("check", "lower"):
        assert main([command, session, "--agent", "x", "--json", "--store", str(path)]) == 0
        assert f"I know (left as {ACTOR} overrode it)" in capsys.readouterr().out
    state = store.load(session).state
    assert state.level is Level.OVERRIDDEN and state.acceptance_is_current


async def test_a_key_waits_for_whoever_was_let_write_and_is_about_what_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.TARGET)
    monkeypatch.setenv("CUBRIDGE_STORE", str(path))
    monkeypatch.setattr("cubridge_tui.desk.TAKE_BACK_SECONDS", 0.1)
    store = Store.open(path)
    async with Watching(session) as d:
        other = store.writer(session, wait=20.0, brief=True)
        saving = other._leased(())
        await asyncio.to_thread(saving.__enter__)
        await d.sees("READ-ONLY: ")
        await d.press("u")
        assert store.load(session).state.undo, "the other one still writes"
        other.append([Note("news")], actor="agent x")
        await d.press("u")  # it shows what is new, or the app has shown it before by itself
        await d.current(store)
        assert "READ-ONLY" not in d.text
        await d.press("u")
        assert not store.load(session).state.undo


def test_a_tool_names_a_session_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "store.git"
    session = placed(path, Stage.LIFTED)
    words, text = command_of("propose", {"session": session[:9], "edit": "x"}, "--me", str(path))
    assert words[:2] == ["propose", session] and words[-2:] == ["--agent=--me", "-"]
    assert text == "x"
    for name, given in (
        ("accept", {"session": session}),
        ("check", {}),
        ("check", {"session": "kernel.cu"}),
        ("lift", {"session": "flash_fwd_sm80"}),
        ("recipe", {"session": "--set"}),
        ("lower", {"session": session, "out": "/etc/passwd"}),
        ("lift", {"session": ["a"]}),
    ):
        with pytest.raises(CuBridgeError):
            command_of(name, given, "me", str(path))


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 61, "\x1b[2J", "\u202e"])
def test_an_agents_name_is_plain_words(name: str) -> None:
    with pytest.raises(CuBridgeError):
        agent_actor(name)


HELLO = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


def server_of(store: Path) -> subprocess.Popen[bytes]:
    """`cubridge mcp` after the handshake, on pipes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cubridge_tui", "mcp", "--store", str(store)], cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(HELLO)
    process.stdin.flush()
    assert b"cubridge" in process.stdout.readline()
    return process


def asked(name: str, session: str) -> bytes:
    call = {"name": name, "arguments": {"session": session}}
    wire = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}
    return json.dumps(wire).encode() + b"\n"


def test_a_client_that_goes_away_in_a_call_ends_the_server_quietly(tmp_path: Path) -> None:
    process = server_of(tmp_path / "store.git")
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()
    process.stdin.write(asked("lift", "none"))
    process.stdin.flush()
    assert process.stderr is not None
    assert process.stderr.read() == b"" and process.wait(30) == READER_GONE
    process.stdin.close()


def test_ctrl_c_ends_the_server_while_its_client_is_there(tmp_path: Path) -> None:
    process = server_of(tmp_path / "store.git")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.stderr is not None and process.stderr.read() == b"cubridge: interrupted\n"


@pytest.mark.parametrize(
    "session", ["\ud800", "x\udfff", "s" * 100_000], ids=["half a pair", "the other", "long"]
)
def test_each_request_gets_an_answer_and_a_short_one(tmp_path: Path, session: str) -> None:
    process = server_of(tmp_path / "store.git")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(asked("lift", session))
    process.stdin.flush()
    line = process.stdout.readline()
    answer = json.loads(line)
    assert (answer["id"], answer["result"]["isError"]) == (7, True) and len(line) < 1000
    assert "cannot be a session's id" in answer["result"]["content"][0]["text"]
    assert process.communicate(timeout=30) == (b"", b"") and process.returncode == 0


def test_without_the_library_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    assert main(["mcp"]) == 3
    assert "pip install 'cubridge-tui[mcp]'" in capsys.readouterr().err
