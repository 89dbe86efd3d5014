"""What is found in a kernel does not hang on which load stands first."""

from __future__ import annotations

import re

from engine.cuir.nodes import Name
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.transfer.match import find_attention
from tests.engine.transfer.recipes import lifted


def test_the_key_head_is_that_of_the_load_of_keys() -> None:
    text = print_module(lifted("flash_fwd_sm90"))
    keys, values = (
        re.search(rf"tma_load\({tile}\[stage\].*", text) for tile in ("sK", "sV")
    )  # fmt: skip
    assert keys is not None and values is not None and keys.start() < values.start()
    other = values[0].replace("h_kv", "h_v")
    text = text.replace(values[0], keys[0]).replace(keys[0], other, 1)
    text = re.sub(r"( +)h_kv = (.*)\n", r"\1h_kv = \2\n\1h_v = \2\n", text, count=1)
    assert text.index("tma_load(sV") < text.index("tma_load(sK")
    found = find_attention(parse_module(text))
    assert found.kv_head == Name("h_kv")
