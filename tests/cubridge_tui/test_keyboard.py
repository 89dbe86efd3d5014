"""The terminal's bytes: none of them ends the reading, and what follows them is heard."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from benchmarks.app_bytes import measure, sequence
from cubridge_tui.keyboard import BEGIN, FLOOD, STALLED, Keystrokes


def keys(text: str) -> list[str]:
    return [m.key for m in Keystrokes().read(text) if isinstance(m, events.Key)]


@pytest.mark.parametrize(
    "broken",
    [
        b"\xff", b"\x1b[M\xff\xfe\xfd", b"\x1b[M \x80\x80", b"\xc3", b"\xf0\x9f\x98",
        b"\x1b[1114112u", b"\x1b[99999999999999u", b"\x1b[97;99999999999999u",
        b"\x1b[97;1:99999999999u", b"\x1b[48;1;1;1;1t", b"\x1b[<0;99999999999999;1M",
    ],
)  # fmt: skip
def test_a_key_after_broken_bytes_is_heard(broken: bytes) -> None:
    assert keys(broken.decode("utf-8", "replace") + "xj")[-2:] == ["x", "j"]


@pytest.mark.parametrize(
    ("report", "size"),
    [
        ("\x1b[48;40;120;800;1200t", (120, 40)),
        ("\x1b[48;1000000000;120;800;1200t", None),
        ("\x1b[48;40;1000000000;800;1200t", None),
        ("\x1b[48;0;120;0;0t", None),
    ],
)
def test_a_size_that_no_terminal_has_is_passed_over(
    report: str, size: tuple[int, int] | None
) -> None:
    sizes = [tuple(m.size) for m in Keystrokes().read(report) if isinstance(m, events.Resize)]
    assert sizes == ([size] if size else [])


@given(st.lists(st.integers(0, 2**32)))
def test_no_bytes_end_the_reading(seeds: list[int]) -> None:
    keystrokes = Keystrokes()
    for seed in seeds:
        keystrokes.read(sequence(random.Random(seed)).decode("utf-8", "replace"))
    keystrokes.read("\x1b[201~")
    assert isinstance(keystrokes.read("  x")[-1], events.Key)


@given(
    st.text(st.sampled_from("aAKq日\n\t\x1b[<0;1M~O")).filter(lambda t: "\x1b[201~" not in t),
    st.lists(st.integers(1, 9)),
)
def test_what_is_pasted_presses_no_key(text: str, sizes: list[int]) -> None:
    """Whatever it holds, and wherever it is cut in two on its way."""
    raw = f"j\x1b[200~{text}\x1b[201~k"
    keystrokes = Keystrokes()
    found: list[object] = []
    for size in sizes:
        found += keystrokes.read(raw[:size])
        raw = raw[size:]
    found += keystrokes.read(raw)
    assert [type(m) for m in found] == [events.Key, events.Paste, events.Key]
    assert [m.key for m in found if isinstance(m, events.Key)] == ["j", "k"]
    (pasted,) = (m.text for m in found if isinstance(m, events.Paste))
    assert pasted == text.replace("\x1b", "␛")


def test_a_paste_without_an_end_leaves_the_app_deaf_for_no_longer_than_it_stalls() -> None:
    typed = Keystrokes()
    assert not typed.read(BEGIN + "A") and not typed.read("x")
    found = [message for _ in range(STALLED) for message in typed.read("")]
    assert [message.text for message in found if isinstance(message, events.Paste)] == ["Ax"]
    assert [m.key for m in typed.read("q") if isinstance(m, events.Key)] == ["q"]


def test_a_paste_that_the_terminal_does_not_mark_presses_no_key() -> None:
    keystrokes = Keystrokes()
    (found,) = keystrokes.read("A\n" * FLOOD)
    assert isinstance(found, events.Paste)
    assert [type(m) for m in keystrokes.read("jk")] == [events.Key] * 2
    assert len(keys("j" * (FLOOD - 1))) == FLOOD - 1


@pytest.mark.xdist_group("terminal")
def test_random_bytes_leave_the_app_alive_or_cleanly_ended() -> None:
    """A hundredth of what benchmarks/app_bytes.py types."""
    assert measure(100, 100, seed=7)["failures"] == []
