"""An input may be called anything; where the name means something already, its field is another."""

from __future__ import annotations

import re

import pytest

from engine.cuir.ops import SPELLINGS
from engine.cuir.printer import print_module
from engine.cuir.static.kernel_names import CPP, meaning_of
from engine.errors import TransferError
from engine.lift import lift, load_package
from engine.lift.cpp.syntax import KEYWORDS
from engine.lift.files.lifter import lift_source
from engine.lift.names.scope import RESERVED
from engine.lower.lower import lower
from engine.lower.spelling.legal import legal
from engine.resources import include_dir, list_kernels
from engine.spec.recipes.recipe import Input
from engine.transfer.rules import apply, plan
from tests.engine.transfer.recipes import recipe

_TAKEN = """
map gmem keep fill zeros gemm store wait sync copy_async row_max load_cols arrive max exp2
tanh tanhf fmaxf int float auto template register threadIdx blockIdx half INFINITY NAN
__global__ _Bool T O LSE args tile_count flash_fwd launch tiles scale_log2 cubridge
return_lse straße
"""
TAKEN = _TAKEN.split()
FREE = ("bias", "slopes", "doc", "mask", "window", "table", "lens_2", "tanH", "mapp", "gain")


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("dims", [("Hq",), ()], ids=["tensor", "scalar"])
def test_a_name_that_means_something_is_not_the_field_s(name: str, dims: tuple[str, ...]) -> None:
    lifted = lift(load_package("flash_fwd_sm80"), "bf16_64")
    read = f"{name}[h]" if dims else name
    asked = recipe(f"x * 0.125 + {read}", extra=(Input(name, "extra", "f32", dims),))
    target = [*apply(lifted.module, plan(lifted.module, asked).steps)][-1][1]
    before = [f.name for f in lifted.module.fields]
    (field,) = [f.name for f in target.fields if f.name not in before]
    assert meaning_of(field) is None
    assert field != name or meaning_of(name) is None


@pytest.mark.parametrize("name", ["map", "template", "O", "straße"])
@pytest.mark.parametrize("dims", [("Hq",), ()], ids=["tensor", "scalar"])
def test_it_lifts_to_the_same_again(name: str, dims: tuple[str, ...]) -> None:
    test_any_other_name_lifts_to_the_same_again(name, dims)


@pytest.mark.parametrize("name", ["class", "map", "blockIdx"])
def test_so_is_a_dimension_s(name: str) -> None:
    module = lift(load_package("flash_fwd_sm80"), "bf16_64").module
    asked = recipe("x * 0.125 + t[h]", extra=(Input("t", "extra", "f32", (name,)),))
    with pytest.raises(TransferError, match=f"the dimension {name} of the spec's t cannot be"):
        list(apply(module, plan(module, asked).steps))


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("dims", [("Hq",), ("Nq", "Nk"), ()], ids=["row", "dense", "scalar"])
def test_any_other_name_lifts_to_the_same_again(name: str, dims: tuple[str, ...]) -> None:
    lifted = lift(load_package("flash_fwd_sm80"), "bf16_64")
    read = {0: name, 1: f"{name}[h]", 2: f"{name}[i, j]"}[len(dims)]
    asked = recipe(f"x * 0.125 + {read}", extra=(Input(name, "extra", "f32", dims),))
    target = legal([*apply(lifted.module, plan(lifted.module, asked).steps)][-1][1])
    lowered = lower(lifted, target)
    binding = {k: v for k, v in lifted.specialisation.items() if k != "arch"}
    again = lift_source(lowered.source, binding, lifted.specialisation["arch"])
    assert not again.opaque
    assert print_module(again.module) == print_module(target)


def test_the_lists_hold_what_the_lifter_and_the_kernels_use() -> None:
    assert (KEYWORDS - {k for k in KEYWORDS if k.startswith("__")}) <= CPP
    missing = {name for name in KEYWORDS | RESERVED if meaning_of(name) is None}
    assert missing == set()
    # Every primitive that a statement of a kernel may call, now or after an edit.
    headers = "".join(p.read_text() for p in include_dir().rglob("*.cuh"))
    defined = set(re.findall(r"\b(\w+)\s*\([^;{}]*\)\s*(?:const\s*)?\{", headers))
    texts = "\n".join(text for s in SPELLINGS for text in (*s.lift, *s.lower))
    for kernel in list_kernels():
        texts += load_package(kernel).source.decode()
    called = set(re.findall(r"(?<![\w.>])(\w+)(?:<[^;(]*>)?\(", texts))
    # `.at` and `f` in a pattern are no calls of functions by name.
    assert {n for n in called & defined if meaning_of(n) is None} <= {"at", "f"}
