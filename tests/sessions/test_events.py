"""Events as lines: exact round trips, and nothing lost that cannot be read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Stage, sha256_of
from sessions.events import (
    BODIES,
    ArtifactSet,
    Body,
    Event,
    Note,
    SessionCreated,
    Unknown,
    decode,
    decode_log,
    encode,
    encode_log,
    stamp,
)
from sessions.ids import is_event_id, is_session_id, new_event_id, new_session_id
from tests.sessions import strategies as own


@given(own.logs())
def test_log_round_trip(events: list[Event]) -> None:
    log = encode_log(events)
    again = decode_log(log)
    assert encode_log(again) == log
    for event, back in zip(events, again, strict=True):
        if not isinstance(event.body, Unknown):
            assert back == event


@given(own.known_bodies)
def test_every_line_is_printable_ascii(body: Body) -> None:
    line = encode(Event(new_event_id(), "t", "ana\x1b[2J", body))
    assert all(32 <= byte < 127 for byte in line)


@given(st.binary(max_size=80).filter(lambda line: b"\n" not in line and line))
def test_any_bytes_become_an_event_that_keeps_them(line: bytes) -> None:
    event = decode(line)
    assert encode(event) == line or not isinstance(event.body, Unknown)


@pytest.mark.parametrize("name", sorted(BODIES))
def test_a_newer_schema_of_a_known_type_is_kept_as_unknown(name: str) -> None:
    line = json.dumps({"schema": 2, "id": "x", "time": "t", "actor": "a", "type": name, "data": {}})
    event = decode(line.encode())
    assert isinstance(event.body, Unknown)
    assert (event.type, event.id, event.actor) == (name, "x", "a")
    assert "newer version" in event.body.why
    assert encode(event) == line.encode()


def test_hostile_names_in_a_log_do_not_become_artifacts() -> None:
    event = Event(new_event_id(), "t", "a", ArtifactSet(Stage.TARGET, "x.cuir", None))
    line = encode(event).replace(b'"x.cuir"', b'"../../hooks/x"')
    assert isinstance(decode(line).body, Unknown)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".git",
        "a/b",
        "../x",
        "-x",
        "a\nb",
        "x.lock",
        "x.",
        "a b",
        "é",
        "a\0",
        "x" * 200,
    ],
)
def test_hostile_artifact_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        ArtifactSet(Stage.SOURCE, name, sha256_of("x"))


def test_hashes_must_be_hashes() -> None:
    with pytest.raises(ValueError):
        ArtifactSet(Stage.SOURCE, "kernel.cu", "../../etc/passwd")
    with pytest.raises(ValueError):
        SessionCreated("t", "k", "abc", "s", sha256_of("s"))


@given(st.lists(st.integers(0, 2**47), min_size=1, max_size=20))
def test_ids_sort_in_the_order_they_were_made_whatever_the_clock_does(clock: list[int]) -> None:
    ids: list[str] = []
    for now in clock:
        ids.append(new_event_id(ids[-1] if ids else None, now_ms=now))
    assert ids == sorted(set(ids))
    assert all(is_event_id(found) for found in ids)


def test_stamped_events_follow_the_last_one() -> None:
    first = stamp([Note("a"), Note("b")], "ana", None)
    later = stamp([Note("c")], "ana", first[-1].id)
    assert [e.id for e in (*first, *later)] == sorted(e.id for e in (*first, *later))


@given(st.text(max_size=60))
def test_any_title_makes_a_safe_session_id(title: str) -> None:
    found = new_session_id(title)
    assert is_session_id(found)
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize(
    "name", ["--upload-pack=x", "../../x", "a\nb", "x.lock", "@{", "@{-1}", "", "HEAD^", "a b", "A"]
)
def test_hostile_session_names_are_no_ids(name: str) -> None:
    assert not is_session_id(name)
