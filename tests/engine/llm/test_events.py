"""The event stream, cut anywhere, with all that gateways put between its events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.llm.events import Event, EventReader

BODY = (
    "\ufeff: hello\n\nid: 7\n\nretry: 100\r\n\r\ndata: :\n\ndata: : PROCESSING\n\n"
    "event: ping\ndata: {}\n\nevent: heartbeat\ndata: soon\n\ndata:\n\ndata\n\nunknown\n\n"
    'id: 8\ndata: {"a":\ndata: "ä\u2028😀"}\r\n\rdata:{"b": 1}\n\n'
    "event: error\ndata: full\n\ndata: [DONE]"
).encode()
EVENTS = [
    Event("", '{"a":\n"ä\u2028😀"}'),
    Event("", '{"b": 1}'),
    Event("error", "full"),
    Event("", "[DONE]"),
]


@given(st.lists(st.integers(0, len(BODY)), max_size=30))
def test_where_the_body_is_cut_changes_nothing(cuts: list[int]) -> None:
    reader, events, at = EventReader(), [], 0
    for cut in sorted(cuts):
        events += reader.feed(BODY[at:cut])
        at = cut
    events += reader.feed(BODY[at:])
    assert events + reader.end() == EVENTS


@given(st.lists(st.binary()))
def test_no_bytes_break_the_reader(parts: list[bytes]) -> None:
    reader = EventReader()
    events = [event for part in parts for event in reader.feed(part)] + reader.end()
    assert all(event.data.strip() for event in events)
