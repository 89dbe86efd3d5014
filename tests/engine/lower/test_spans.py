"""G3's checks must catch what the lowerer must not do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lift.cpp.provenance import Range
from engine.lower.lower import lower
from engine.lower.spans import allowed_spans, union, verify_spans
from tests.engine.lower.fixtures import edit, lifted, source
from tests.engine.lower.random_edits import QUICK, edits


def allowed_text(name: str, *changes: tuple[str, str]) -> list[str]:
    kernel = lifted(name)
    spans = allowed_spans(kernel, edit(kernel.module, *changes))
    return [place.of(kernel.source).decode() for place in spans]


def test_no_edit_allows_nothing() -> None:
    kernel = lifted("odd")
    assert allowed_spans(kernel, kernel.module) == ()
    assert verify_spans(kernel.source, kernel.source, ()) is None
    offence = verify_spans(kernel.source, kernel.source.replace(b"seen > 0", b"seen > 1"), ())
    assert offence is not None
    assert (
        "seen > 0" in offence.text
        and offence.line == kernel.source[: offence.place.start].count(b"\n") + 1
    )


def test_a_changed_statement_allows_its_own_bytes() -> None:
    places = allowed_text("flash_fwd_sm80", ("j < args.Nk", "j <= args.Nk"))
    keep = "s = keep(s, at(q0, n * BN), [&](int i, int j) { return j < args.Nk; });"
    # A variable with another assignment may need another declaration.
    assert keep in places
    assert {p for p in places if p != keep} <= {"auto ", ""}


def test_a_changed_loop_allows_its_header_only() -> None:
    places = allowed_text(
        "flash_fwd_sm80", ("for step in range(tiles)", "for step in range(1, tiles)")
    )
    assert places == ["for (int step = 0; step < tiles; ++step)"]


def test_a_deleted_statement_allows_its_lines() -> None:
    places = allowed_text("odd", ("    store(sQ, o)\n", ""))
    assert [p.strip() for p in places if p.strip()] == ["store(sQ, o);"]


def test_a_field_allows_a_line_of_the_struct() -> None:
    kernel = lifted("flash_fwd_sm80")
    spans = allowed_spans(
        kernel, edit(kernel.module, ("    scale: f32\n", "    scale: f32\n    cap: f32\n"))
    )
    assert all(place.start == place.end for place in spans)
    lines = {kernel.source[: p.start].decode().split("\n")[-2].strip() for p in spans}
    assert "float scale;  // positive" in lines


@pytest.mark.parametrize("name", ["odd", "flash_fwd_sm80", "flash_fwd_sm90"])
@settings(QUICK, max_examples=12)
@given(data=st.data())
def test_a_byte_changed_elsewhere_is_found(name: str, data: st.DataObject) -> None:
    kernel = lifted(name)
    target = data.draw(edits(kernel.module))
    allowed = allowed_spans(kernel, target)
    done = lower(kernel, target).source
    assert verify_spans(kernel.source, done, allowed) is None
    # A long piece between two allowed spans stands in the lowered text; spoil one byte of it.
    ends = [0, *(p.end for p in allowed)]
    starts = [*(p.start for p in allowed), len(kernel.source)]
    pieces = [Range(a, b) for a, b in zip(ends, starts, strict=True) if b - a > 60]
    piece = data.draw(st.sampled_from(pieces))
    text = piece.of(kernel.source)
    if done.count(text) != 1:
        return
    at = done.index(text) + data.draw(st.integers(0, len(text) - 1))
    other = bytes([done[at] ^ 1])
    spoiled = data.draw(
        st.sampled_from(
            [
                done[:at] + other + done[at + 1 :],
                done[:at] + done[at + 1 :],
                done[:at] + b"#" + done[at:],
            ]
        )
    )
    if text in spoiled:
        return  # the byte was put beside the piece
    offence = verify_spans(kernel.source, spoiled, allowed)
    assert offence is not None
    assert piece.start <= offence.place.start <= piece.end


def test_a_comment_may_not_be_dropped() -> None:
    kernel = lifted("odd")
    target = edit(kernel.module, ("    seen = 0\n    copy", "    seen = 2\n    copy"))
    done = lower(kernel, target).source
    without = done.replace(b"  // The loop.\n", b"")
    assert verify_spans(kernel.source, done, allowed_spans(kernel, target)) is None
    offence = verify_spans(kernel.source, without, allowed_spans(kernel, target))
    assert offence is not None and "The loop" in offence.text


def test_text_appended_to_the_file_is_found() -> None:
    kernel = lifted("odd")
    target = edit(kernel.module, ("    seen = 0\n    copy", "    seen = 2\n    copy"))
    done = lower(kernel, target).source + b"int more;\n"
    assert verify_spans(kernel.source, done, allowed_spans(kernel, target)) is not None


def test_line_endings_may_not_change() -> None:
    kernel = lifted("odd")
    target = edit(kernel.module, ("    seen = 0\n    copy", "    seen = 2\n    copy"))
    done = lower(kernel, target).source.replace(b"\n", b"\r\n")
    assert verify_spans(kernel.source, done, allowed_spans(kernel, target)) is not None


def test_the_spans_of_several_specialisations_are_joined() -> None:
    spans = union([[Range(5, 7), Range(0, 1)], [Range(6, 9)], [Range(20, 20)]])
    assert spans == (Range(0, 1), Range(5, 9), Range(20, 20))
    assert len(source("odd")) > 20
