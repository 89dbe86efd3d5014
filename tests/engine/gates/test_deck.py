"""What the deck must be able to see: each of these targets is wrong and once passed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.gates.analysis.tile_sizes import tiles_of
from engine.gates.deck import Tiles, beyond, past, quick, quick_deck
from engine.gates.g1_g2.by_recipe import BY_RECIPE
from engine.gates.g1_g2.judge import judge
from engine.gates.runs.case_run import run_deck
from engine.gates.runs.deck_cases import DRAWS, data_cases, read_cases
from engine.gates.runs.subject import Subject
from engine.gates.widths.overflow import overflow
from engine.lift import lift, load_package
from engine.lower.spelling.legal import legal
from engine.spec.read import read_recipe
from engine.transfer.rules import apply, plan
from tests.engine.gates.g1_g2.test_judge import subject_of as target_of

HEAD = "from jaxtyping import Bool, Float, Int32\nfrom torch import Tensor\nimport torch\n\n\n"
WINDOW = """\
def attention_mods(window: int = 1024):
    def mask(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < window)
    return mask
"""
FAR_WINDOW = """\
def attention_mods(Nq, Nk, window: int = 4096):
    def mask(b, h, q_idx, kv_idx):
        i = q_idx + Nk - Nq
        return (i >= kv_idx) & (i - kv_idx < window)
    return mask
"""
LENGTHS = """\
def attention_mods(lens: Int32[Tensor, "B"]):
    def mask(b, h, q_idx, kv_idx):
        return kv_idx < lens[b]
    return mask
"""
BIAS = """\
def attention(q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"],
              v: Float[Tensor, "B H Nk D"], bias: Float[Tensor, "H Nq Nk"]):
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    return torch.softmax(s, -1) @ v
"""
PRODUCT = """\
def attention_mods():
    def mask(b, h, q_idx, kv_idx):
        return (q_idx * 1103515245 + kv_idx * 12345) % 7 != 0
    return mask
"""
SCALARS = """\
def attention_mods(plen: Int32[Tensor, ""], gain: Float[Tensor, ""]):
    def mask(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) | (kv_idx < plen)
    def mod(score, b, h, q_idx, kv_idx):
        return score * gain
    return mod, mask
"""
TEMPERATURE = """\
def attention(q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"],
              v: Float[Tensor, "B H Nk D"], tau: Float[Tensor, ""]):
    return torch.softmax(q @ k.transpose(-1, -2) * tau, -1) @ v
"""
TWICE = """\
def attention_mods(t: Float[Tensor, "B Nk"]):
    def mod(score, b, h, q_idx, kv_idx):
        return score + t[b, kv_idx] + 0.5 * t[0, kv_idx] + t[b, q_idx]
    return mod
"""


def subject_of(folder: Path, text: str, key: str = "bf16_64") -> Subject:
    path = folder / "spec.py"
    path.write_text(HEAD + text)
    package = load_package("flash_fwd_sm80")
    target = lift(package, key, package.archs[0]).module
    recipe = read_recipe(path, {})
    planned = plan(target, recipe)
    for _, after in apply(target, planned.steps):
        target = after
    return Subject(legal(target), recipe, planned.binding, path, {})


def edited(subject: Subject, old: str, new: str) -> Subject:
    text, count = re.subn(old, new, print_module(subject.module))
    assert count, old
    module = parse_module(text)
    return Subject(module, subject.recipe, subject.binding, subject.spec, subject.options)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (WINDOW, "1023", "900"),
        (FAR_WINDOW, "4095", "3000"),
        (LENGTHS, r"return max\(0, ceil_div\(.*", "return min(1, ceil_div(args.Nk, BN))"),
        (BIAS, r"lambda x: 0.0 if x == -inf else x", "lambda x: x"),
    ],
)
def test_a_wrong_target_is_seen(tmp_path: Path, text: str, old: str, new: str) -> None:
    failure, _ = judge(edited(subject_of(tmp_path, text), old, new), lambda _: None)
    assert failure is not None


@pytest.mark.parametrize("text", [LENGTHS, BIAS, SCALARS, TEMPERATURE, TWICE])
def test_the_rules_carry_it(tmp_path: Path, text: str) -> None:
    failure, _ = judge(subject_of(tmp_path, text), lambda _: None)
    assert failure is None


def test_a_product_beyond_32_bits_is_found(tmp_path: Path) -> None:
    wide = subject_of(tmp_path, PRODUCT)
    found = overflow(wide.module)
    assert found is not None and "1103515245 * i" in found.message
    failure, _ = judge(wide, lambda _: None)
    assert failure is not None and failure.op is not None
    assert overflow(edited(wide, "1103515245", "1103").module) is None


def test_the_deck_reaches_past_a_constant_from_both_sides(tmp_path: Path) -> None:
    cases = quick_deck(subject_of(tmp_path, WINDOW).recipe.expressions())
    assert any(c.Nq > 1024 for c in cases) and any(c.Nk > 1024 for c in cases)


BLOCKS = """\
def attention_mods(Nq, Nk, block: int = 512):
    def mask(b, h, q_idx, kv_idx):
        return (q_idx // block == kv_idx // block) & (q_idx >= kv_idx)
    return mask
"""


def test_blocks_need_a_square_past_them(tmp_path: Path) -> None:
    """Only rows and keys past a block together see that the second block is wrong."""
    right = subject_of(tmp_path, BLOCKS)
    assert judge(right, lambda _: None)[0] is None
    text = print_module(right.module)
    at = text.index("keep(s, lambda i, j:") + len("keep(s, lambda i, j:")
    module = parse_module(text[:at] + " i < 512 and" + text[at:])
    wrong = Subject(module, right.recipe, right.binding, right.spec, right.options)
    failure, done = judge(wrong, lambda _: None)
    assert failure is not None
    assert "Nq 646, Nk 646" in done[-1]["case"]  # its last block of 128 rows begins past 512


@given(st.sets(st.integers(1, 20_000), max_size=6))
@example({2048, 8192})  # the dearest
def test_every_constant_is_reached_or_named(found: set[int]) -> None:
    deck = (*quick(), *past(sorted(found)))
    said = {int(number) for number in re.findall(r"\d+", beyond(sorted(found)))}
    for constant in found:
        named_far = constant > 8192
        assert (constant in said) == (constant > 2048)
        rows = any(c.Nq > constant + 2 for c in deck)
        keys = any(c.Nk > constant + 2 for c in deck)
        square = any(min(c.Nq, c.Nk) > constant + 2 for c in deck)
        assert (rows and keys) == (not named_far)
        assert square == (constant <= 2048)
    assert sum(c.Nq * c.Nk for c in deck) < 6_500_000


def test_the_verdict_names_what_no_run_reaches(tmp_path: Path) -> None:
    from engine.gates.g1_g2.judge import judge_json
    from engine.spec import recipe_to_json

    subject = subject_of(tmp_path, FAR_WINDOW.replace("4096", "16384"))
    found = judge_json(
        {
            "module": print_module(subject.module), "recipe": recipe_to_json(subject.recipe),
            "binding": subject.binding.to_json(), "spec": str(subject.spec), "options": {},
        },
        lambda _: None,
    )  # fmt: skip
    assert found["ok"] and "no run reaches past 16383" in found["reason"]


@given(st.integers(200, 2048), st.sampled_from([64, 128, 192]))
def test_a_block_of_rows_begins_past_each_constant(constant: int, rows: int) -> None:
    """Where keys are past it too: a window's schedule counts from a block's first row."""
    deck = past([constant], Tiles(rows, 64))
    assert any((c.Nq - 1) // rows * rows > constant and c.Nk > constant for c in deck)


@given(
    st.integers(9, 8192), st.sampled_from([64, 128, 192]), st.sampled_from([32, 64, 112, 128]),
    st.booleans(),
)  # fmt: skip
def test_blocks_of_rows_begin_at_other_tiles_than_the_first(
    window: int, rows: int, keys: int, at_ends: bool
) -> None:
    """A window's schedule, aligned at the ends or the beginnings: its first tile is not 0 for two
    blocks of rows of one case at least, or for one of a case whose blocks are longer."""
    deck = past([window], Tiles(rows, keys))

    def firsts(nq: int, nk: int) -> list[int]:
        shift = nk - nq if at_ends else 0
        lowest = (max(q0 + shift - window + 1, 0) for q0 in range(0, nq, rows))
        return [low // keys for low in lowest if low < nk]

    assert any(sum(first > 0 for first in firsts(c.Nq, c.Nk)) >= 1 for c in deck)
    if at_ends:
        assert any(len({f for f in firsts(c.Nq, c.Nk) if f}) >= 2 or
                   sum(f > 0 for f in firsts(c.Nq, c.Nk)) >= 2 for c in deck)  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(copy_async(?:_rows)?\(sV\[stage\], V\[b, h_kv, first) \* BN", r"\1 * BM"),
        (r"(copy_async\(sK\[stage\], K\[b, h_kv, first) \* BN", r"\1 * BM"),
        (r"(def tile_index.*?:\n)(?:    .*\n)+", r"\1    return step\n"),
    ],
    ids=["values by rows", "keys by rows", "no first tile"],
)
def test_a_window_s_first_tile_is_seen(old: str, new: str) -> None:
    """Each was once right at all sizes that ran: the first tile was 0 wherever keys were loaded."""
    right = target_of("sliding_window_causal", "flash_fwd_sm80")
    wrong = edited(right, old, new)
    deck = [c for c in read_cases(right) if c.B * c.Hq == 1 and max(c.Nq, c.Nk) > 1200]
    failure, _ = run_deck(BY_RECIPE, wrong, deck, lambda _: None)
    assert failure is not None


def test_rectangles_of_every_draw() -> None:
    """`args.Nk` for `args.Nq` in the class of a tile is right for as many rows as keys, and where
    no tile is of one document."""
    right = target_of("causal_document", "flash_fwd_sm80")
    wrong = edited(right, r"(first_key \+ BN \+ args\.)Nq", r"\1Nk")
    cases = data_cases(tiles_of(right.module))
    tall, wide = (
        {(c.turn or 0) % DRAWS for c in cases if (c.Nq > c.Nk) == more} for more in (True, False)
    )
    assert tall == wide == {*range(DRAWS)}
    failure, _ = run_deck(BY_RECIPE, wrong, cases, lambda _: None)
    assert failure is not None
