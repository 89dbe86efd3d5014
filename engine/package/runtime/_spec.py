"""The spec, run by the part of CuBridge in `_vendor`: its tables, and its output in float64."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .build import HERE, package

_lock = threading.RLock()
_inside = False
_modules: dict[str, Any] = {}
_tables: dict[tuple[Any, ...], dict[str, torch.Tensor]] = {}


@contextmanager
def _vendor() -> Iterator[None]:
    """`engine` is the vendored one inside; whatever bore that name before does so again after."""

    def ours(name: str) -> bool:
        return name == "engine" or name.startswith("engine.")

    global _inside
    with _lock:
        if _inside:
            yield
            return
        before = {name: sys.modules.pop(name) for name in list(sys.modules) if ours(name)}
        sys.modules.update(_modules)
        sys.path.insert(0, str(HERE / "_vendor"))
        _inside = True
        try:
            yield
        finally:
            _inside = False
            sys.path.remove(str(HERE / "_vendor"))
            for name in [name for name in sys.modules if ours(name)]:
                _modules[name] = sys.modules.pop(name)
            sys.modules.update(before)


def spec_path() -> Path:
    """The package's copy of the spec."""
    return HERE / str(package()["spec"])


def unread() -> bool:
    """Whether no rule reads the spec: its function is then all that says what it asks for."""
    return str(package()["asked"]) == "signature.json"


def asked() -> Any:
    """What the spec asks for, from recipe.json, or what it declares, from signature.json."""
    data = json.loads((HERE / str(package()["asked"])).read_text(encoding="utf-8"))
    with _vendor():
        if unread():
            return importlib.import_module("engine.spec.signature").signature_from_json(data)
        return importlib.import_module("engine.spec.text").recipe_from_json(data)


def tables(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tables that the spec builds itself, at these inputs' sizes and of the kernel's types.

    Runs the spec's own code. Where it takes no other tensor than q, k and v, a table is made once
    for each set of sizes.
    """
    info = package()
    inputs = {name: torch.as_tensor(value) for name, value in inputs.items()}
    first = next(iter(inputs.values()))
    plain = all(i["role"] != "extra" or i["derive"] for i in info["inputs"])
    key = (first.device, *(tuple(t.shape) for t in inputs.values()))
    if plain and key in _tables:
        return _tables[key]
    extra = {i["name"] for i in info["inputs"] if i["role"] == "extra"}
    # A table is no inference tensor, whatever its caller's mode: a plan may hold it.
    with torch.inference_mode(False), torch.no_grad(), _vendor():
        derived = importlib.import_module("engine.spec.derived")
        given = {
            name: t.detach().cpu() if name in extra else torch.empty(t.shape, device="meta")
            for name, t in inputs.items()
        }
        made = derived.derive_inputs(spec_path(), asked(), given, info["spec_options"])
        out = {}
        for item in info["inputs"]:
            if item["derive"]:
                name = item["name"]
                out[name] = for_kernel(name, made[name], item["dtype"]).to(first.device)
    if plain:
        _tables[key] = out
    return out


def for_kernel(name: str, value: torch.Tensor, dtype: str) -> torch.Tensor:
    """A table or a drawn input in the type that the kernel reads.

    ValueError for an integer that 32 bits do not hold: looks at the values, so they are on the CPU.
    """
    kinds = {"f32": torch.float32, "i32": torch.int32, "i64": torch.int32, "bool": torch.bool}
    kind = kinds.get(dtype, value.dtype)
    made = value.to(kind)
    if kind == torch.int32 and not torch.equal(made.to(value.dtype), value):
        raise ValueError(f"{name} holds integers that do not fit the 32 bits that the kernel reads")
    return made


def in_float64(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The spec's output with every value kept in float64, on the CPU."""
    with _vendor():
        oracle = importlib.import_module("engine.spec.oracle")
        given = {name: t.detach().cpu() for name, t in inputs.items()}
        out: torch.Tensor = oracle.oracle(spec_path(), given, package()["spec_options"])
        return out


def empty_rows_and_lse(
    inputs: dict[str, torch.Tensor], wide: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Which rows keep no key, in the output's layout with a last dimension of 1, and the natural
    log-sum-exp [B, Hq, Nq] in float64 (None without softmax), as the recipe has them.

    Where no rule reads the spec these are the rows that its float64 output `wide` gives as NaN, and
    nothing says what a log-sum-exp is.
    """
    if unread():
        return wide.isnan().all(-1, keepdim=True), None
    with _vendor():
        oracle = importlib.import_module("engine.spec.oracle")
        wanted = asked()
        made = {} if not any(i.derive for i in wanted.inputs) else tables(inputs)
        expected = oracle.expected(wanted, {**{n: t.cpu() for n, t in inputs.items()}, **made})
        order = ["B", "Hq", "Nq"]
        rows = [dim for dim in wanted.output_dims if dim in order]
        return expected.empty.permute([order.index(dim) for dim in rows])[..., None], expected.lse


def in_low_precision(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The spec's output as PyTorch computes it in the inputs' own types, on the CPU."""
    with _vendor():
        oracle = importlib.import_module("engine.spec.oracle")
        load = importlib.import_module("engine.spec.load")
        modes = importlib.import_module("engine.spec.modes")
        source = importlib.import_module("engine.spec.source").read_source(
            spec_path(), package()["spec_options"]
        )
        program = importlib.import_module("engine.spec.program").program_of(source)
        given = {name: t.detach().cpu() for name, t in inputs.items()}
        with load.surroundings(source), modes.OnCpu():
            torch.set_default_dtype(torch.float32)
            out: torch.Tensor = program.run(given, oracle.vmapped_mods)
            return out


class NotForTheseSizes(ValueError):
    """Sizes that the spec is not for, so that nothing can be compared there."""


def make_inputs(
    sizes: dict[str, int], seed: int, kind: str, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Inputs for a check, on the CPU; `NotForTheseSizes` where the spec is for others."""
    with _vendor():
        inputs = importlib.import_module("engine.spec.inputs")
        errors = importlib.import_module("engine.errors")
        wanted = asked()
        try:
            made: dict[str, torch.Tensor] = inputs.make_inputs(wanted, sizes, seed, kind, dtype)
        except errors.InputError as error:
            raise NotForTheseSizes(str(error)) from None
        if unread():
            redrawn = importlib.import_module("engine.spec.unread").integers_redrawn
            made = redrawn(wanted, made, sizes, seed, runs)
            if sizes["Nk"] and not runs(made):
                raise NotForTheseSizes("the spec's function does not run at these sizes")
        return made


def runs(inputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether the spec's function takes these inputs."""
    with _vendor():
        errors = importlib.import_module("engine.errors")
        try:
            in_float64(dict(inputs))
        except errors.SpecError:
            return False
        return True
