"""One declaration per op: the executor, the docs and the import rules follow it."""

import importlib
import inspect
import re
import subprocess
import sys

import pytest

from engine.cost import ops as costs
from engine.cuir.ops import OPS, traits
from engine.cuir.ops.spec import Effect, Pending, Proxy, Trait
from engine.cuir.parser import parse_block, parse_module
from engine.cuir.text.docgen import GROUPS, document
from engine.resources import docs_dir


def test_reference_is_current():
    text = (docs_dir() / "cuir.md").read_text(encoding="utf-8")
    assert text == document(), "python -m engine.cuir.text.docgen"


def test_every_op_is_in_the_reference_and_in_a_group():
    groups = {name for name, _ in GROUPS}
    for spec in OPS.values():
        assert spec.group in groups
        assert f"**`{spec.signature}`**" in document()
        assert spec.doc.endswith(".")


@pytest.mark.parametrize("name", OPS)
def test_every_op_has_an_executor(name):
    module, function = OPS[name].execute.split(":")
    found = getattr(importlib.import_module(f"engine.cuir.execute.families.run_{module}"), function)
    # part, the result's type, then the operands in the signature's order
    assert found.__code__.co_argcount == 2 + len(OPS[name].operands)


def test_every_op_has_a_cost_and_every_cost_an_op():
    found = {
        name for name, item in vars(costs).items()
        if inspect.isfunction(item) and not name.startswith("_")
        and next(iter(inspect.signature(item).parameters.values())).annotation == "Bound"
        and inspect.signature(item).return_annotation == "Demand"
    }  # fmt: skip
    named = {spec.cost for spec in OPS.values() if not spec.is_value}
    assert named == found - {"cost"}


@pytest.mark.parametrize("name", OPS)
def test_declarations_are_coherent(name):
    spec = OPS[name]
    if spec.pending is not Pending.NONE:
        assert spec.proxy is not Proxy.NONE, "what is in flight goes through a proxy"
    if {Effect.READS_SHARED, Effect.WRITES_SHARED} & spec.effects and name != "mbarrier_init":
        assert spec.proxy is not Proxy.NONE
    if spec.is_value:
        assert not spec.effects
    if name in traits.GLOBAL_WRITES:
        first = next(o for o in spec.operands if o.place == "args")
        assert first.kind in ("tile", "place", "map"), "what it writes comes first"


def test_every_trait_is_some_ops_and_every_set_holds_some():
    assert {t for spec in OPS.values() for t in spec.traits} == set(Trait)
    assert all(found for found in vars(traits).values() if isinstance(found, frozenset))


def test_examples_in_the_reference_parse():
    blocks = re.findall(r"```python\n(.*?)```", document(), re.S)
    assert len(blocks) > 4
    for block in blocks:
        if "specialisation" in block:  # `...` stands for what an example leaves out
            parse_module(block.replace("    ...\n", "    pass\n"))
        elif block.startswith("@"):
            parse_module(block)
        else:
            parse_block(block)


def test_nothing_but_the_executor_loads_torch():
    code = (
        "import sys, engine.cuir.nodes, engine.cuir.parser, engine.cuir.printer, engine.cuir.ops, "
        "engine.cuir.types, engine.cuir.static.check, engine.cuir.scalar, engine.cuir.arch, "
        "engine.cuir.text.docgen; from engine.cuir.scalar import evaluate; "
        "from engine.cuir.parser import parse_expr; "
        "assert evaluate(parse_expr('a // 2 + 1'), {'a': -3}) == 0; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
