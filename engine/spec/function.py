"""A person's function and the questions that a judge has for it.

`answer` runs the user's code: it is called in the process that runs the spec, and in no other. See
`engine.child.spec_process`, which asks from the process that judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.spec.read import read_recipe
from engine.spec.readings.derived_inputs import derive_inputs
from engine.spec.recipes.recipe_json import recipe_from_json, recipe_to_json
from engine.spec.reference.oracle import oracle, run_spec

Data = Mapping[str, Any]
Tensors = Mapping[str, Tensor]
OUTPUT = "O"


class PersonsFunction:
    """The function of the spec at `path`, with its scalars overridden by `options`."""

    def __init__(self, path: Path, options: Mapping[str, object]) -> None:
        self._path = path
        self._options = dict(options)

    def answer(self, question: str, data: Data, tensors: Tensors) -> tuple[Data, Tensors]:
        """JSON and tensors, for JSON and tensors. Raises `SpecError`."""
        return _ANSWERS[question](self, data, tensors)

    def recipe(self, data: Data, _: Tensors) -> tuple[Data, Tensors]:
        """What tracing says; `head_sizes` are pairs (D, Dv) to look at beside the usual ones."""
        sizes = [(int(d), int(dv)) for d, dv in data.get("head_sizes", ())]
        return {"recipe": recipe_to_json(read_recipe(self._path, self._options, sizes))}, {}

    def wide(self, _: Data, tensors: Tensors) -> tuple[Data, Tensors]:
        """The output in float64, in the spec's own layout."""
        return {}, {OUTPUT: oracle(self._path, tensors, self._options)}

    def low(self, _: Data, tensors: Tensors) -> tuple[Data, Tensors]:
        """The output in the types that the inputs have, as PyTorch computes it."""
        return {}, {OUTPUT: run_spec(self._path, tensors, self._options)}

    def derived(self, data: Data, tensors: Tensors) -> tuple[Data, Tensors]:
        """The recipe's derived inputs for these inputs."""
        recipe = recipe_from_json(data["recipe"])
        return {}, derive_inputs(self._path, recipe, tensors, self._options)


_ANSWERS: Mapping[str, Callable[[PersonsFunction, Data, Tensors], tuple[Data, Tensors]]] = {
    "recipe": PersonsFunction.recipe,
    "wide": PersonsFunction.wide,
    "low": PersonsFunction.low,
    "derived": PersonsFunction.derived,
}
