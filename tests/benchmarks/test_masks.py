"""A fraction of what `benchmarks/masks.py` tries: masks reach text that the primitives can say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.masks import KERNELS, compile_batch, kernel_of
from engine.build.tools.toolchain import find_toolchain
from engine.errors import MissingTool
from engine.spec.recipes.recipe import Input
from tests.engine.lower.random_masks import TABLES, Mask, lowered, random_mask, recipe_of

RANDOM = (4, 20, 33)
# Bool tables under `or` and `not`, and up to eight operands at once.
WRITTEN = (
    "sink[h, j] or valid[b, j] and doc[b, i] == doc_k[b, j]",
    "(valid[b, j] or not live[b, i]) and (early[j] or not wide[h])",
    "not (flags[b, 0, i, j] and pos[b, i] >= pos_k[b, j] or until[b, i] > j)",
    "doc[b, i] == doc_k[b, j] and pos[b, i] >= pos_k[b, j]",
    "doc[b, i] == doc_k[b, j] and (pos[b, i] >= pos_k[b, j] or until[b, i] > j and valid[b, j])"
    " or turn[j] > 3 and live[b, i]",
)


@pytest.fixture(scope="module")
def texts() -> dict[str, dict[int, bytes]]:
    """Each mask's lowered text by kernel, after the checks that run nothing."""
    masks = [random_mask(seed) for seed in RANDOM]
    for text in WRITTEN:
        read = [n for n in TABLES if re.search(rf"\b{n}\[", text)]
        masks.append(Mask(text, tuple(Input(n, "extra", *TABLES[n]) for n in read)))
    recipes = [recipe for mask in masks if (recipe := recipe_of(mask)) is not None]
    assert len(recipes) == len(masks)
    return {
        kernel: {n: lowered(kernel_of(kernel), recipe)[0] for n, recipe in enumerate(recipes)}
        for kernel in KERNELS
    }


@pytest.mark.parametrize("kernel", KERNELS)
def test_nvcc_compiles_what_the_checks_pass(
    kernel: str, texts: dict[str, dict[int, bytes]], tmp_path: Path
) -> None:
    try:
        find_toolchain()
    except MissingTool:
        pytest.skip("there is no nvcc here")
    assert compile_batch(kernel, texts[kernel], tmp_path) == ""
    # The check can fail: a call with an operand too many for its predicate.
    text = texts[kernel][len(RANDOM)].replace(
        b"keep(s, sink_keys,", b"keep(s, sink_keys, sink_keys,"
    )
    assert text != texts[kernel][len(RANDOM)]
    assert "error" in compile_batch(kernel, {0: text}, tmp_path)
