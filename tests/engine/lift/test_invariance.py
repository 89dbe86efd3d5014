"""What must not change a lift: blanks, comments, line ends, where the file lies, local names."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st

from engine.cuir.canonical import equal
from engine.cuir.printer import print_module
from engine.lift import lift, lift_source
from tests.engine.lift.formatting import reformatted, renamed, without_comments
from tests.engine.lift.sources import BINDING, CONTRACT, frame, kernel_bytes

OPAQUE = frame(
    """
  for (int k = 0; k < 3; k *= 2) {  /* 未知 */ x += 1.5; }
  asm volatile("mov.b32 %0, %1;" : "=r"(i) : "r"(j));
  unsigned y = 3u ; y >>= 2;
  x = x > 2.0 ? unknown_function<3, 4>(x)->field : -1.0f;
#if FLAG > 2  // why
  sync();
#endif
  while (i < 3) { ++i; }
  """,
    before="#define FLAG 3 /* c */\n#define F(a) \\\n  ((a) + 1)\n__device__ float *table;",
)
SOURCES = {
    "contract": (CONTRACT, "sm_80"),
    "sm80": (kernel_bytes("flash_fwd_sm80"), "sm_80"),
    "sm90": (kernel_bytes("flash_fwd_sm90"), "sm_90a"),
    "opaque": (OPAQUE, "sm_80"),
}


def text(source: bytes, arch: str) -> str:
    return print_module(lift_source(source, BINDING, arch).module)


PLAIN = {name: text(*source) for name, source in SOURCES.items()}


@given(st.sampled_from(sorted(SOURCES)), st.integers(0, 2**32))
@rules(max_examples=40)
def test_reformatting_changes_nothing(name: str, seed: int):
    source, arch = SOURCES[name]
    assert text(reformatted(source, seed), arch) == PLAIN[name]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_stripping_comments_changes_nothing(name: str):
    source, arch = SOURCES[name]
    assert text(without_comments(source), arch) == PLAIN[name]


@pytest.mark.parametrize("name", sorted(SOURCES))
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: s.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(lambda s: b"\xef\xbb\xbf" + s, id="bom"),
        pytest.param(lambda s: s.replace(b"  ", b"\t"), id="tabs"),
        pytest.param(lambda s: s.rstrip(), id="no-final-newline"),
        pytest.param(lambda s: re.sub(rb"(?<!\\)\n", b" \n", s), id="trailing-blanks"),
        pytest.param(lambda s: "/* 中文 é 🚀 */".encode() + s, id="wide-comment"),
        pytest.param(lambda s: b"// latin-1: \xe9\xff\n" + s, id="not-utf8-comment"),
        pytest.param(lambda s: s.replace(b"template", b"\ntemplate"), id="more-lines"),
    ],
)
def test_bytes_that_say_nothing_change_nothing(name: str, change):
    source, arch = SOURCES[name]
    changed = change(source)
    lifted = lift_source(changed, BINDING, arch)
    assert print_module(lifted.module) == PLAIN[name]
    assert lifted.source == changed


def test_moving_the_file_changes_nothing(tmp_path: Path):
    places = [tmp_path / "a.cu", tmp_path / "deep" / "b.cu"]
    texts = []
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(CONTRACT)
        texts.append(print_module(lift(place, BINDING, "sm_80").module))
    assert texts == [PLAIN["contract"]] * 2


LOCALS = {
    "contract": "Q K V O LSE sQ sK sV q_tiles q0 h b h_kv tiles scale_log2 o m l stage n ahead s "
    "m_prev alpha p lse blocks stream args step x top sum a prev now i j",
    "sm80": "Q K V O LSE sQ sK sV sO q_tiles q0 h b h_kv tiles o m l stage n s p lse blocks step",
    "sm90": "O LSE sQ sK sV q_full q_empty wg works round load work b h h_kv q0 tiles group after "
    "row0 o m l n0 s p stage parity step n alpha inverse lse q_map section g",
}


@given(st.sampled_from(sorted(LOCALS)), st.integers(0, 2**32))
@rules(max_examples=30)
def test_renaming_locals_changes_only_the_names(name: str, seed: int):
    source, arch = SOURCES[name]
    chooser = random.Random(seed)
    names = LOCALS[name].split()
    chosen = chooser.sample(names, chooser.randint(1, len(names)))
    fresh = chooser.sample(["lambda", "in", "is", "gemm_", "überlauf", "L1", "aa", "not_a_name"], 2)
    mapping = {n: f"{chooser.choice(fresh)}_{at}" for at, n in enumerate(chosen)}
    mapping[chosen[0]] = fresh[0]
    again = lift_source(renamed(source, mapping), BINDING, arch)
    plain = lift_source(source, BINDING, arch)
    assert again.opaque == ()
    assert equal(again.module, plain.module)


def test_the_argument_structs_parameter_may_have_any_name():
    source = renamed(CONTRACT, {"args": "params", "stream": "st"})
    assert text(source, "sm_80") == PLAIN["contract"]
