"""What the bundled specs become on both kernels, as texts to compare before and after a change.

    python benchmarks/goldens.py FOLDER

Writes, for each spec and kernel, the recipe, the rules' steps, the hunks in their order, the target
and the lowered source. A change that should alter none of them leaves `diff -r` silent.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from engine.cuir.changes.ids import assign  # noqa: E402
from engine.cuir.printer import print_module  # noqa: E402
from engine.errors import CuBridgeError  # noqa: E402
from engine.lift.cpp.provenance import Lifted  # noqa: E402
from engine.lift.files.meanings import released  # noqa: E402
from engine.lower.lower import lower  # noqa: E402
from engine.lower.spelling.legal import legal  # noqa: E402
from engine.spec.read import read_recipe  # noqa: E402
from engine.spec.recipes.recipe_json import recipe_to_json  # noqa: E402
from engine.transfer.proposals.review import propose  # noqa: E402
from engine.transfer.rules import apply, plan  # noqa: E402
from engine.types import Origin  # noqa: E402
from tests.engine.lower.fixtures import lifted  # noqa: E402

KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")


def write(folder: Path, kernel: Lifted, name: str, spec: Path) -> None:
    """The texts of one spec on one kernel, into `folder`."""
    recipe = read_recipe(spec)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(recipe_to_json(recipe), indent=1))
    base = kernel.module
    planned = plan(base, recipe)
    trail = list(apply(base, planned.steps))
    steps = [(s.title, s.reason, s.clause) for s in planned.steps]
    (folder / "steps.json").write_text(json.dumps(steps, indent=1))
    (folder / "binding.json").write_text(json.dumps(planned.binding.to_json(), indent=1))
    target = released(base, legal(trail[-1][1] if trail else base))
    (folder / "target.cuir").write_text(print_module(target))
    made = propose(
        base, target, id="rules", origin=Origin.RULES, reason="", ids=assign(base), trail=trail
    )
    (folder / "hunks.txt").write_text("\n\n".join(repr(hunk) for hunk in made.hunks))
    (folder / "kernel.cu").write_bytes(lower(kernel, target).source)


def main(out: str) -> None:
    for name in KERNELS:
        kernel = lifted(name)
        for spec in sorted((ROOT / "kernels" / "specs").glob("*.py")):
            folder = Path(out) / name / spec.stem
            try:
                write(folder, kernel, name, spec)
            except CuBridgeError as error:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "refused.txt").write_text(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
