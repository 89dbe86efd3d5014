"""A fraction of what `benchmarks/sweep` tries: masks reach text that the primitives can say.

A sweep that was stopped goes on, and its record says what it found.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.sweep import compiling
from benchmarks.sweep.compiling import refused
from benchmarks.sweep.drawn import KEY, kernel, optimised
from benchmarks.sweep.mutants import _classes
from benchmarks.sweep.pool import lines_of, sweep
from benchmarks.sweep.record import write_record
from benchmarks.sweep.tasks import TARGETS, Original, Task, originals
from engine.build.tools.toolchain import find_toolchain
from engine.cuir.canonical import canonical
from engine.cuir.parser import parse_module
from engine.errors import MissingTool
from engine.spec.recipes.recipe import Input, Recipe
from tests.engine.lower.random_masks import TABLES, Mask, lowered, random_mask, recipe_of
from tests.engine.spec.spec_grammar import draw_spec, read_drawn

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
        name: {str(n): lowered(kernel(name), recipe)[0] for n, recipe in enumerate(recipes)}
        for name in TARGETS
    }


@pytest.mark.parametrize("name", TARGETS)
def test_nvcc_compiles_what_the_checks_pass(name: str, texts: dict[str, dict[str, bytes]]) -> None:
    try:
        find_toolchain()
    except MissingTool:
        pytest.skip("there is no nvcc here")
    arch = Original(name, KEY).arch
    assert refused(name, arch, KEY, texts[name]) == {}
    # The check can fail: a call with an operand too many for its predicate.
    text = texts[name][str(len(RANDOM))]
    wrong = text.replace(b"keep(s, sink_keys,", b"keep(s, sink_keys, sink_keys,")
    assert wrong != text
    found = refused(name, arch, KEY, {"right": text, "wrong": wrong})
    assert list(found) == ["wrong"] and "error" in found["wrong"]


@pytest.mark.parametrize(("seed", "name"), [(540, TARGETS[0]), (120, TARGETS[1])])
def test_a_product_of_alternatives_spills_nothing(seed: int, name: str) -> None:
    """Six alternatives of two conditions each, written in full, did: 20 and 16 bytes."""
    try:
        find_toolchain()
    except MissingTool:
        pytest.skip("there is no nvcc here")
    recipe = recipe_of(random_mask(seed))
    assert recipe is not None
    arch = Original(name, KEY).arch
    assert compiling.spills(arch, KEY, lowered(kernel(name), recipe)[0]) == ""


def test_a_spec_that_spills_takes_the_next_smaller_tile(tmp_path: Path) -> None:
    """Two tables that are looked up for each pair spilled 4 bytes beside 32 keys."""
    try:
        find_toolchain()
    except MissingTool:
        pytest.skip("there is no nvcc here")
    path = tmp_path / "spec.py"
    path.write_text(draw_spec(900))
    recipe = read_drawn(path)
    assert isinstance(recipe, Recipe)
    name = TARGETS[0]
    text = lowered(kernel(name), recipe)[0]
    found = optimised(name, Original(name, KEY).arch, recipe, text)
    assert found == ("optimised", "1 step of keys fewer: spills 4 bytes")


def test_a_compiler_that_is_ended_says_nothing_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines run out of memory: a text is no better and no worse for it, and is asked again."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho \"nvcc error : 'cicc' died due to signal 9\" >&2\nexit 9\n")
    nvcc.chmod(0o755)
    found = SimpleNamespace(nvcc=SimpleNamespace(path=nvcc))
    monkeypatch.setattr(compiling, "find_toolchain", lambda: found)
    with pytest.raises(OSError, match="says nothing of the text"):
        compiling.ptx("sm_80", KEY, b"one text")


def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path) -> None:
    log, end = tmp_path / "log.jsonl", time.monotonic() + 100
    source = Original("flash_fwd_sm80", "bf16_64")
    log.write_text('{"item": "mutants/source on flash_fwd_sm80 bf16_64/2", "outcome": "same",\n')
    assert sweep([Task("mutants", source, (2,))], log, 1, end, "here") == 1
    assert sweep([Task("mutants", source, (2, 9))], log, 1, end, "there") == 1
    first, second = lines_of(log).values()
    assert (first["tree"], second["tree"]) == ("here", "there")
    assert first["outcome"] == second["outcome"] == "killed"
    # Too little time for anything: nothing is lost and nothing invented.
    assert sweep([Task("decks", "mask", (0,))], log, 1, time.monotonic(), "here") == 0


def test_a_record_tells_faults_and_survivors_from_the_rest(tmp_path: Path) -> None:
    log, to = tmp_path / "log.jsonl", tmp_path / "record.json"
    why = {"operator": "relation", "function": "f", "statement": "s", "change": "'<' -> '<='"}
    lines = [
        {"item": "mutants/a/0", "outcome": "killed", "why": "G2, a run: O is wrong", **why},
        {"item": "mutants/a/1", "outcome": "survived", "why": "identical PTX", **why},
        {"item": "decks/mask/7", "outcome": "read", "why": "",
         TARGETS[0]: {"outcome": "passes", "why": ""},
         TARGETS[1]: {"outcome": "refused", "why": "no rule for `x` at 12"}},
    ]  # fmt: skip
    log.write_text("".join(json.dumps({"tree": "t", **line}) + "\n" for line in lines))
    assert write_record(log, to) == 0
    told = json.loads(to.read_text())
    assert told["mutants"]["by"] == {"G2, a run": 1, "identical PTX": 1}
    assert list(told["mutants"]["survivors"]) == ["a/1"]
    assert told["decks of masks"]["refusals"] == {"no rule for … at N": 1}
    for outcome, step in (
        ("open", "mutants/a/2"), ("internal", "texts/spec/3"), ("open", "mutants, another set/a/1"),
    ):  # fmt: skip
        line = {"item": step, "outcome": outcome, "why": "?", "tree": "t"}
        log.write_text(json.dumps(line) + "\n")
        assert write_record(log, to) == 1
    told = json.loads(to.read_text())
    assert "decks of masks" in told, "steps of other logs stay"
    assert told["mutants, another set"]["mutants"] == 1


def test_specs_of_fixed_columns_are_drawn_where_a_kernel_is_built_for_them() -> None:
    of = {(one.kernel, one.key) for one in originals() if one.spec == "mla_causal"}
    assert of == {("flash_fwd_sm90", "bf16_192")}


CLASSES = """specialisation(arch='sm_80', T=bf16, D=64)


class Args:
    Nk: i32


@kernel(threads=32)
def class_tiles(args, *, BM, BN):
    kind = 0
    if BN <= args.Nk and BM > 3:
        kind = class_of[BM, BN](lambda i, j: j < args.Nk, at=[0, 0])
    put(lists[1:], kind)
"""


@pytest.mark.parametrize(
    ("old", "new", "covered"),
    [
        ("BN <= args.Nk and", "BN < args.Nk and", True),
        ("lists[1:]", "lists[2:]", False),  # a fault's place, and no text of its line, tells
        ("    if BN <= args.Nk and BM > 3:\n        kind = ", "    kind = ", False),
    ],
)
def test_what_classes_tiles_is_proven_of_what_it_asks(old: str, new: str, covered: bool) -> None:
    assert CLASSES.count(old) == 1
    text = CLASSES.replace(old, new)
    right, mutant = map(parse_module, (CLASSES, text))
    assert (canonical(_classes(right)) == canonical(_classes(mutant))) == covered
