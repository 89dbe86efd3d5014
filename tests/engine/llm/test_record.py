"""Record against a server, replay without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import InputError
from engine.llm.ask import ask
from engine.llm.errors import NotRecorded
from engine.llm.record import Recorder, Replayer
from engine.llm.types import Ending, Message, Request
from tests.engine.llm import server as acts
from tests.engine.llm.conftest import KEY, Serve

ONE = Request("fake", (Message("user", "one\ntwo\nthree"),))
OTHER = Request("fake", (Message("user", "one\ntwo\nfour"),))


def test_a_recording_answers_without_the_server(serve: Serve, tmp_path: Path) -> None:
    server, client = serve(
        acts.answer("first \u2028\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")),
        acts.answer("second"),
        acts.answer("half", "length"),
    )
    recorder = Recorder(client, tmp_path / "rec")
    live = [ask(recorder, r) for r in (ONE, ONE, OTHER)]
    server.stop()
    for _ in range(2):
        replayer = Replayer(tmp_path / "rec")
        assert [ask(replayer, r) for r in (OTHER, ONE, ONE)] == [live[2], live[0], live[1]]
    assert live[2].ending is Ending.LENGTH
    files = list((tmp_path / "rec").iterdir())
    assert len(files) == 3 and not any(KEY.encode() in f.read_bytes() for f in files)


def test_what_was_not_recorded_says_where_it_differs(serve: Serve, tmp_path: Path) -> None:
    _, client = serve(acts.answer("first"))
    ask(Recorder(client, tmp_path), ONE)
    with pytest.raises(NotRecorded, match="message 1 differs near its line 3"):
        ask(Replayer(tmp_path), OTHER)
    replayer = Replayer(tmp_path)
    ask(replayer, ONE)
    with pytest.raises(NotRecorded, match="more often"):
        ask(replayer, ONE)
    with pytest.raises(NotRecorded, match="model was 'fake', now 'new'"):
        ask(Replayer(tmp_path), Request("new", ONE.messages))


def test_a_damaged_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recording"):
        Replayer(tmp_path / "nowhere")
    (tmp_path / "0001-abc.json").write_text("{}")
    with pytest.raises(InputError, match="not a recorded answer"):
        Replayer(tmp_path)
