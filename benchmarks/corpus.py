"""The attention functions of published models: which are read, and which become kernels.

    python benchmarks/corpus.py [--only WORD] [--kernels] [--compile] [--json FILE]

Reads every file of `benchmarks/corpus`, each a minimal writing of our own of what a model or
library has, named in its first lines, and writes benchmarks/results/corpus.json. A recipe that is
read is held against the function at sizes of all remainders. With `--kernels` the rules and the
lowerer make a kernel of each recipe on both bundled kernels; with `--compile` nvcc and ptxas
compile it for bf16 and 128 columns, and it may spill nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.sweep.compiling import spills  # noqa: E402
from engine.cuir.printer import print_expr  # noqa: E402
from engine.errors import CuBridgeError, InputError, SpecError  # noqa: E402
from engine.lift.cpp.provenance import Lifted  # noqa: E402
from engine.lift.files.kernel_package import load_package  # noqa: E402
from engine.spec.python.load import surroundings  # noqa: E402
from engine.spec.python.program import program_of  # noqa: E402
from engine.spec.python.signature import fixed_sizes  # noqa: E402
from engine.spec.python.spec_file import read_source  # noqa: E402
from engine.spec.read import read_recipe  # noqa: E402
from engine.spec.recipes.recipe import Recipe  # noqa: E402
from engine.spec.validation.run_comparison import Misread, compare  # noqa: E402
from tests.engine.lower.fixtures import lifted  # noqa: E402
from tests.engine.lower.random_masks import lowered  # noqa: E402
from tests.engine.spec.spec_grammar import sizes_of_all_remainders  # noqa: E402

CORPUS = ROOT / "benchmarks" / "corpus"
RESULTS = ROOT / "benchmarks" / "results" / "corpus.json"
KERNELS = ("flash_fwd_sm80", "flash_fwd_sm90")
RUNS = 8
_EDITS = re.compile(r"Edits:\s*([^\n]*?)\.\n")


@cache
def kernel_of(name: str, columns: int = 128) -> Lifted | None:
    """The kernel at so many columns; None where it has none of so many."""
    package = load_package(ROOT / "kernels" / name)
    try:
        package.specialisation({"T": "bf16", "D": str(columns)})
    except InputError:
        return None
    return lifted(name, D=str(columns))


def edits_of(path: Path) -> str:
    """What its first lines say that it edits: before, score, mask, inputs, weight, after."""
    found = _EDITS.search(path.read_text())
    if found is None:
        raise SystemExit(f"{path.name}: its first lines say no edits, as in `Edits: mask, inputs.`")
    return found[1]


def held(path: Path, recipe: Recipe) -> str:
    """How the recipe differs from the function at sizes of all remainders; empty where it is it."""
    program = program_of(read_source(path, {}))
    with surroundings(program.source):
        for n, sizes in enumerate(sizes_of_all_remainders(len(path.stem), RUNS)):
            try:
                compare(program, recipe, sizes, 1.0, n)
            except Misread as error:
                return error.message
            except SpecError as error:
                if error.__cause__ is None:
                    return error.message
    return ""


def carried(recipe: Recipe, name: str, built: bool) -> str:
    """Why the rules, the lowerer or nvcc make no kernel of the recipe; empty where they do."""
    columns = fixed_sizes(recipe.constraints).get("D", 128)
    kernel = kernel_of(name, columns)
    if kernel is None:
        return f"refused: not built for {columns} columns"
    try:
        text = lowered(kernel, recipe)[0]
    except CuBridgeError as error:
        return f"refused: {error.message}"
    except Exception as error:
        return f"internal: {type(error).__name__}: {error}"
    if not built:
        return ""
    return spills(kernel.specialisation["arch"], f"bf16_{columns}", text)


def row(path: Path, kernels: bool, built: bool) -> dict[str, Any]:
    """What became of one spec."""
    import torch

    torch.set_num_threads(1)
    out: dict[str, Any] = {"spec": path.stem, "edits": edits_of(path)}
    began = time.process_time()
    try:
        recipe = read_recipe(path)
    except SpecError as error:
        words = f"{error.where.line if error.where else ''}: {error.message}"
        wrong = "misread" in words or "internal" in words
        return out | {"outcome": "no reason" if wrong else "refused", "words": words}
    except Exception as error:
        return out | {"outcome": "internal", "words": f"{type(error).__name__}: {error}"}
    out["seconds"] = round(time.process_time() - began, 2)
    wrong = held(path, recipe)
    out["outcome"] = "wrong" if wrong else "read"
    out["words"] = wrong
    out["score"], out["keep"] = print_expr(recipe.score), print_expr(recipe.keep)
    out["tables"] = [f"{i.name}[{' '.join(i.dims)}]" for i in recipe.inputs if i.derive]
    if kernels:
        out["kernels"] = {name: carried(recipe, name, built) for name in KERNELS}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="specs with this in their name")
    parser.add_argument("--kernels", action="store_true", help="make kernels too")
    parser.add_argument("--compile", action="store_true", help="make kernels and compile them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    made_too = asked.kernels or asked.compile
    paths = [p for p in sorted(CORPUS.glob("*.py")) if asked.only in p.stem]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for found in pool.map(partial(row, kernels=made_too, built=asked.compile), paths):
            rows.append(found)
            print(f"{found['spec']:32} {found['edits']:24} {found['outcome']:9}", end=" ")
            made = found.get("kernels", {})
            print(found["words"], *(f"\n    {k}: {w}" for k, w in made.items() if w))
    counted = dict(Counter(r["outcome"] for r in rows))
    made = {k: sum(r["kernels"][k] == "" for r in rows if "kernels" in r) for k in KERNELS}
    print(json.dumps({"specs": len(rows), **counted} | ({"kernels": made} if made_too else {})))
    if not asked.only or asked.json:
        record = {"specs": len(rows), "outcomes": counted, "rows": rows}
        record |= {"kernels": made} if made_too else {}
        (asked.json or RESULTS).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
