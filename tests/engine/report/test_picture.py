"""A picture is the same in both formats, and what stands in it cannot break out of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.report.bars import Bar, Group, bars
from engine.report.picture import OURS, Box, Picture, Text, printable, svg

GROUPS = (
    Group(
        "S 8192 B 2 heads 32 D 128",
        (
            Bar("CuBridge", 600.0, "600 TFLOP/s", ours=True, mark=650.0),
            Bar("SDPA cuDNN", 300.0, "300 TFLOP/s"),
            Bar("FlashAttention-4", reason="not installed"),
        ),
    ),
)


def test_bars_have_lengths_in_proportion() -> None:
    boxes = [s for s in bars("t", GROUPS).shapes if isinstance(s, Box)]
    assert [b.fill == OURS for b in boxes] == [True, False]
    assert boxes[0].width == pytest.approx(2 * boxes[1].width)


def test_a_reason_stands_where_a_bar_would() -> None:
    words = [s.words for s in bars("t", GROUPS, ["H100"]).shapes if isinstance(s, Text)]
    assert "not installed" in words
    assert words[-1] == "H100"


def test_svg_is_xml_with_its_words() -> None:
    root = ET.fromstring(svg(bars("a < b & c", GROUPS)))
    words = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert words[0] == "a < b & c"
    assert "CuBridge" in words


@given(st.text(max_size=60))
def test_any_text_gives_a_valid_picture(words: str) -> None:
    picture = Picture(80, 20, (Text(2, 12, words),))
    found = [e.text or "" for e in ET.fromstring(svg(picture)).iter() if e.tag.endswith("text")]
    assert found == [printable(words)]
    assert not any(ord(c) < 32 for c in found[0])
