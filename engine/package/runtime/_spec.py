"""The spec itself, run in plain torch: what the operator is on a CPU, and what `check` compares."""

from __future__ import annotations
import __future__ as future

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ._args import axes
from ._checks import DTYPES
from ._expr import NotAnExpression, evaluate
from ._recipe import Recipe
from .build import HERE

# What a size is called in the package, for a FlexAttention factory that names it.
_FACTORY_SIZES = ("B", "Hq", "Hkv", "Nq", "Nk", "D")


class Spec:
    """The spec's own function, and the rows' log-sum-exp by its recipe."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        self.path: Path = HERE / info["spec"]
        self.recipe = Recipe(info)
        self.output_dims: list[str] = next(
            row["source_dims"] for row in info["binding"]["tensors"] if row["source"] == "O"
        )

    def output(self, values: dict[str, Any], sizes: dict[str, int]) -> torch.Tensor:
        """The function's output in the inputs' own types, its heads and columns apart; no gradient.
        Of a function that gives the rows' log-sum-exp too, the output alone."""
        given = {n: v for n, v in values.items() if v is not None}
        device = given[next(iter(given))].device
        for item in self.info["unused"]:  # the values of such an input change nothing
            shape = [evaluate(dim, sizes) for dim in item["dims"]]
            given[item["name"]] = torch.zeros(shape, dtype=DTYPES[item["dtype"]], device=device)
        names = self.info["parameters"]
        of_spec = {
            names.get(i["name"], i["name"]): given[i["name"]]
            for i in (*self.info["inputs"], *self.info["unused"])
            if not i["derive"]
        }
        with torch.no_grad(), torch.device(device), _importing(self.path.parent):
            if hasattr(self._module, "attention"):
                out = self._module.attention(**of_spec, **self.info["spec_options"])
            else:
                out = self._flex(of_spec, sizes)
        first = out[0] if isinstance(out, tuple | list) else out
        tensor: torch.Tensor = torch.as_tensor(first)
        merged = tensor.dim() < len(self.output_dims)
        return tensor.reshape(*tensor.shape[:-1], sizes["Hq"], -1) if merged else tensor

    def rows(
        self, values: dict[str, Any], sizes: dict[str, int], out: torch.Tensor,
        rounded: torch.dtype | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        """Which rows keep a key, in `out`'s layout with a last dimension of 1, and their
        log-sum-exp [B, Hq, Nq] in float64, where something says what it is (`Recipe.rows`)."""
        try:
            found = self.recipe.rows(values, sizes, rounded)
        except NotAnExpression:
            found = None
        if found is None:
            return ~out.isnan().all(-1, keepdim=True), None
        kept, lse = found
        places = [p for p in axes(["B", "Hq", "Nq"], self.output_dims[:-1]) if p is not None]
        return kept.permute(places)[..., None], lse

    @cached_property
    def _module(self) -> types.ModuleType:
        module = types.ModuleType(self.path.stem)
        module.__file__ = str(self.path)
        text = self.path.read_text(encoding="utf-8-sig")
        # Annotations say shapes to CuBridge; nothing here evaluates them.
        flags = future.annotations.compiler_flag
        code = compile(text, str(self.path), "exec", flags=flags, dont_inherit=True)
        with _importing(self.path.parent):
            exec(code, module.__dict__)
        return module

    def _flex(self, extras: dict[str, Any], sizes: dict[str, int]) -> torch.Tensor:
        """A factory of FlexAttention's mods, under PyTorch's own `flex_attention`."""
        from torch.nn.attention import flex_attention as flex

        factory: Callable[..., Any] = self._module.attention_mods
        q, k, v = (extras.pop(name) for name in "qkv")
        for name, parameter in inspect.signature(factory).parameters.items():
            free = parameter.default is parameter.empty and name not in extras
            if name in _FACTORY_SIZES and free:
                extras[name] = sizes[name]
        made = factory(**extras, **self.info["spec_options"])
        mods = [m for m in (made if isinstance(made, tuple | list) else [made]) if m is not None]
        scores = [mod for mod in mods if _parameters(mod) == 5]
        masks = [mod for mod in mods if _parameters(mod) == 4]

        def score_mod(score: Any, *at: Any) -> Any:
            for mod in scores:
                score = mod(score, *at)
            return score

        mask = None
        if masks:
            mask = flex.create_block_mask(
                flex.and_masks(*masks), q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.device
            )
        grouped = q.shape[1] != k.shape[1]
        out: torch.Tensor = flex.flex_attention(
            q, k, v, score_mod if scores else None, mask, enable_gqa=grouped
        )
        return out


def _parameters(mod: Callable[..., Any]) -> int:
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    listed = inspect.signature(mod).parameters.values()
    return sum(p.kind in kinds and p.default is p.empty for p in listed)


class _Annotations(types.ModuleType):
    """Stands for jaxtyping where it is not installed: a spec's annotations are not evaluated."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **options: given[0] if given else lambda function: function


@contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """The modules beside the spec can be imported, and jaxtyping need not be installed."""
    stands_in = "jaxtyping" not in sys.modules
    if stands_in:
        try:
            import jaxtyping  # type: ignore[import-not-found]  # noqa: F401
        except ImportError:
            sys.modules["jaxtyping"] = _Annotations("jaxtyping")
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if stands_in and isinstance(sys.modules.get("jaxtyping"), _Annotations):
            del sys.modules["jaxtyping"]


def for_kernel(name: str, value: torch.Tensor, dtype: str) -> torch.Tensor:
    """A table or a drawn input in the type that the kernel reads.

    ValueError for an integer that 32 bits do not hold: looks at the values, so they are on the CPU.
    """
    kind = DTYPES.get(dtype, value.dtype)
    made = value.to(kind)
    if kind == torch.int32 and not torch.equal(made.to(value.dtype), value):
        raise ValueError(f"{name} holds integers that do not fit the 32 bits that the kernel reads")
    return made
