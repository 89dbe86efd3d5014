"""What a target would take beside the bare kernel, and when that is too slow to pass.

Always for one card and one shape, so that all of a kernel's targets can be compared: the card that
its arch is of, `LENGTH` rows. TFLOP/s count the pairs that the spec keeps, never those that are
only visited: a target that visits more tiles is slower, not busier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from engine.cost.card import Card, card_of_arch
from engine.cost.model import Prediction, bound_words, predict
from engine.cost.plan import constants
from engine.cost.scalar import read_late
from engine.cuir.arch import arch_name
from engine.cuir.nodes import Attr, Lambda, Module, free_names, stmt_call, walk
from engine.cuir.ops.traits import ASYNC_MATMULS, MASKS
from engine.cuir.printer import print_expr
from engine.cuir.scalar import evaluate
from engine.errors import CuBridgeError, InputError
from engine.spec.recipes.kept_pairs import EXAMPLES, example_value, extent, kept_share, mask_inputs
from engine.spec.recipes.recipe import Recipe
from engine.transfer.binding import Binding
from engine.worker.problems.problem_sizes import Case, cases_of, label

LENGTH = 8192
SLOWEST = 0.5  # of the bare kernel's speed
LARGEST_ERROR = 0.32  # of what was measured, by how much the fastest beat its prediction: cost.md
SPEED = "speed"  # among the details of a G3 verdict: `Speed`


@dataclass(frozen=True, slots=True)
class Setting:
    """What every prediction of a session is for. `kept` is the share of pairs that the mask keeps,
    `examples` says that it reads inputs, for which example values stand. `numbers` are the values
    of the argument struct's number fields, as far as they are bound."""

    card: Card
    case: Case
    shape: str
    kept: float
    examples: bool
    numbers: Mapping[str, int | float]


def setting_of(module: Module, recipe: Recipe | None, binding: Binding | None) -> Setting:
    """The card and shape for a kernel, the share of pairs that the recipe keeps, and what the
    binding, where there is one, fills its number fields with.

    Raises:
        InputError: the cost model knows no card of the kernel's arch.
    """
    arch = arch_name(module)
    card = card_of_arch(arch)
    if card is None:
        raise InputError(f"the cost model has no card of the arch {arch or 'that is not given'}")
    width = int(constants(module).get("D", 128))
    case = cases_of({"lengths": [LENGTH], "shapes": None}, width)[0]
    kept = 1.0 if recipe is None else kept_share(recipe, case.sizes)
    shape = label({**case.sizes, "D": width, "Dv": width})
    examples = recipe is not None and bool(mask_inputs(recipe))
    numbers = bound_numbers(case, module, recipe, binding)
    return Setting(card, case, shape, kept, examples, numbers)


def bound_numbers(
    case: Case, module: Module, recipe: Recipe | None, binding: Binding | None
) -> dict[str, int | float]:
    """What the binding fills the number fields with: sizes, values of the spec, and what is
    computed from them; example values stand for inputs without dimensions."""
    if binding is None:
        return {}
    width = constants(module).get("D", 128)
    known: dict[str, Any] = {**case.sizes, "D": width, "Dv": constants(module).get("DV", width)}
    extra = () if recipe is None else recipe.extra()
    known |= {i.name: example_value(i, {}, known) for i in extra if not i.dims}
    found: dict[str, int | float] = {s.field: extent(s.size, known) for s in binding.sizes}
    for scalar in binding.scalars:
        if not free_names(scalar.value) - known.keys():
            found[scalar.field] = evaluate(scalar.value, known)
    return found


def arguments(
    case: Case, module: Module, numbers: Mapping[str, int | float]
) -> dict[str, int | float]:
    """Numbers for the argument struct: the sizes, a scale where the struct has one, and what is
    bound to its fields."""
    width = constants(module).get("D")
    scale = float(width) ** -0.5 if isinstance(width, int) and width > 0 else 0.125
    fields = {f.name for f in module.fields}
    return {**case.sizes, **({"scale": scale} if "scale" in fields else {}), **numbers}


def kept_flops(module: Module, setting: Setting) -> float:
    """2 (D + Dv) for every kept pair."""
    case, numbers = setting.case, constants(module)
    widths = [float(numbers.get("D", 128)), float(numbers.get("DV", numbers.get("D", 128)))]
    return setting.kept * 2 * sum(widths) * case.B * case.Hq * case.Nq * case.Nk


def prediction_of(module: Module, setting: Setting) -> Prediction:
    """What the cost model says of a module. Raises `CuBridgeError` where it cannot follow it."""
    sizes = arguments(setting.case, module, setting.numbers)
    return predict(module, sizes, setting.card, flops=kept_flops(module, setting))


@dataclass(frozen=True, slots=True)
class Speed:
    """Predicted microseconds of a target, and of the kernel that it was made from, at one shape of
    one card (`where`). `attentions` is how many of them the spec asks for, each as much work as the
    bare kernel's; `visited` how many pairs are visited for each kept one, `bound` what bounds it in
    words. `examples` says that example values stand for inputs of the mask, `problem` why nothing
    is predicted. `late` are arguments that a mask reads in a branch for each element."""

    us: float = 0.0
    bare_us: float = 0.0
    attentions: int = 1
    visited: float = 0.0
    bound: str = ""
    where: str = ""
    examples: bool = False
    problem: str = ""
    late: str = ""

    @property
    def share(self) -> float:
        """Of the bare kernel's speed; above 1 where a mask leaves work out."""
        return self.attentions * self.bare_us / self.us

    @property
    def slow(self) -> bool:
        """True where it is too slow to pass, were it as much faster than predicted as any kernel
        was. What example values say of a mask says nothing of real ones, and fails nobody."""
        return not (self.problem or self.examples) and self.share < SLOWEST * (1 - LARGEST_ERROR)

    @property
    def words(self) -> str:
        """One clause."""
        if self.problem:
            return f"its speed is not predicted: {self.problem}"
        bare = "the bare kernel" if self.attentions == 1 else f"{self.attentions} bare calls"
        words = (
            f"predicted to take {self.us:,.0f} us, {bare} {self.attentions * self.bare_us:,.0f} us "
            f"({self.where})"
        )
        if self.slow or self.share >= SLOWEST:
            return words
        why = f"within the model's largest error, {LARGEST_ERROR:.0%}"
        if self.examples:
            why = f"by {EXAMPLES}"
        return f"{words}: below half of that speed, {why}"

    def to_json(self) -> dict[str, Any]:
        """For a verdict's details."""
        return asdict(self)

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Self | None:
        """What a G3 verdict's details say of speed; None where it did not come to that."""
        found = details.get(SPEED)
        return cls(**found) if isinstance(found, dict) else None


def beside(bare: Module, target: Module, recipe: Recipe | None, binding: Binding | None) -> Speed:
    """A target's predicted speed beside its bare kernel's, or why the model cannot follow one.

    A bare kernel with a mask of its own that visits fewer pairs than the spec keeps is taken to
    need as much longer for these.
    """
    try:
        setting = setting_of(bare, recipe, binding)
        was, now = prediction_of(bare, setting), prediction_of(target, setting)
        if not was.visited_flops:
            return Speed(problem="the bare kernel is seen to visit no pair")
        return Speed(
            now.microseconds, was.microseconds * max(1.0, was.flops / was.visited_flops),
            2 if recipe is not None and recipe.other else 1, now.visited_flops / now.flops,
            bound_words(now), f"{setting.card.title}, {setting.shape}", setting.examples,
            late=_late(target),
        )  # fmt: skip
    except CuBridgeError as error:
        return Speed(problem=error.message)


def _late(target: Module) -> str:
    """What masks of warpgroups' scores read behind a branch for each element, as it is written."""
    calls = [call for _, stmt in walk(target) if (call := stmt_call(stmt)) is not None]
    if not any(call.fn in ASYNC_MATMULS for call in calls):
        return ""
    masks = [f for c in calls if c.fn in MASKS for f in c.args if isinstance(f, Lambda)]
    late = frozenset[Attr]().union(*(read_late(f.body) for f in masks))
    return " and ".join(sorted(map(print_expr, late)))
