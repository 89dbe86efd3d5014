"""What a server sends becomes text that a file can hold, wherever the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.llm.scrub import STARS, Scrubber

KEY = "sk-secret"
PARTS = st.lists(
    st.text(st.sampled_from("sk-secrt a\U0001f600\ud83d\ude00\ufffd"), max_size=6)
    | st.sampled_from([KEY, KEY[:4], KEY[4:], "\ud83d", "\ude00"])
)


@given(PARTS)
def test_a_stream_is_the_whole_text_without_key_and_halves(parts: list[str]) -> None:
    scrub = Scrubber(KEY)
    shown = "".join([*map(scrub.feed, parts), scrub.rest()])
    shown.encode("utf-8")
    assert KEY not in shown
    assert shown == scrub.whole("".join(parts))


def test_halves_of_a_pair_become_one_character() -> None:
    scrub = Scrubber("")
    assert [scrub.feed("a\ud83d"), scrub.feed("\ude00b")] == ["a", "\U0001f600b"]
    assert [scrub.feed("a\ud83d"), scrub.feed("b"), scrub.rest()] == ["a", "\ufffdb", ""]
    assert scrub.feed("\ude00") == "\ufffd"
    assert scrub.feed("\ud83d") + scrub.rest() == "\ufffd"
    assert Scrubber(KEY).whole(f"{KEY} \udfff") == f"{STARS} \ufffd"
