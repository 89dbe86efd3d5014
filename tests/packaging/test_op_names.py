"""An op's name is quoted where ops are declared and run, in rules and in the attention; all others
ask traits (`engine.cuir.ops.traits`), so that a new op is in no list that somebody forgot."""

from __future__ import annotations

import ast
from pathlib import Path

from engine.cuir.ops import OPS
from tests.packaging.rooms import PACKAGES, imported, modules, within

HOME = (
    "engine.cuir.ops", "engine.cuir.execute", "engine.transfer.rules", "engine.transfer.match",
    "engine.transfer.schedule", "engine.transfer.recipe", "engine.transfer.binding",
)  # fmt: skip
# Still quoted. No name is added: a trait, or a field of the declaration, takes its place.
QUOTED = {
    "engine.cost.overlap": {"mma_commit", "mma_wait"},
    "engine.cost.tree": {"grid_dim"},
    "engine.cost.values": {"block_id", "grid_dim", "sm_count"},
    "engine.gates.analysis.exempt_sides": {"row_reduce"},
    "engine.gates.widths.value_ranges": {
        "block_id", "claim", "compact", "fetch", "greatest", "grid_dim", "least", "post",
    },
    "engine.gates.reachability.name_values": {"block_id", "sm_count", "warpgroup_id"},
    "engine.gates.analysis.path_conditions": {"grid_dim"},
    # Lemmas are about what these ops say of one pair.
    "engine.gates.schedules.list_goals": {
        "block_id", "class_of", "greatest", "grid_dim", "least", "put",
    },
    "engine.gates.schedules.work_pieces": {"block_id", "grid_dim"},
    "engine.lift.names.constants": {"sizeof"},
    "engine.service.views.drawn_lists": {
        "block_id", "class_of", "compact", "greatest", "grid_dim", "least", "put", "put_bits",
    },
}  # fmt: skip
# The same word for another thing: kinds of C++ values, operands, keys of data, operators of ATen.
OTHER = {
    "cubridge_tui.screens.recipe": {"keep"},
    "engine.build.host_plan": {"shared"},
    "engine.build.machine_code.occupancy": {"shared"},
    "engine.build.machine_code.products": {"keep"},
    "engine.cost.plan": {"shared"},
    "engine.cuir.static.check": {"shared"},
    "engine.gates.g3_source.conformance": {"sizeof"},
    "engine.lift.names.catalogue": {"row_map", "shared", "tensor_map"},
    "engine.lift.files.launch": {"run"},
    "engine.lift.functions.effects": {"sizeof"},
    "engine.lift.functions.expressions": {"shared"},
    "engine.lift.names.scope": {"row_map", "tensor_map"},
    "engine.lower.patches.statements": {"row_map", "tensor_map"},
    "engine.package.export": {"keep"},
    "engine.spec.attention.clauses": {"map"},
    "engine.spec.decks.extreme_biases": {"greatest"},
    "engine.spec.tracing.ops_elementwise": {"copy", "fill"},
    "engine.spec.tracing.ops_make": {"zeros"},
    "engine.spec.tracing.ops_view": {"transpose"},
    "engine.spec.recipes.recipe_json": {"keep"},
}


def quoted(path: Path) -> set[str]:
    """Ops whose names stand as strings in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return {name for name in OPS if name in texts}


def test_an_op_is_known_by_name_where_it_is_at_home() -> None:
    found = {
        module: names
        for package in PACKAGES
        for module, path in modules(package).items()
        if any(within(name, ["engine.cuir"]) for name in imported(path, module))
        and not within(module, HOME)
        and (names := quoted(path))
    }
    assert found == {**QUOTED, **OTHER}
    assert not QUOTED.keys() & OTHER.keys()
