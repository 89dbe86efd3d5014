"""The tables that the spec's own code makes, such as slopes for any number of heads.

Which value of which line is a table was found by reading the spec as CuBridge does, so the part of
CuBridge that reads it runs here too: its modules are the comments at the end of the exported file.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ._reads import Place, Watch
from ._spec import for_kernel
from .build import HERE

MOST_TABLES = 64
FILE, LINE = "# === ", "#|"  # how a module of the reader begins, and each of its lines
_lock = threading.RLock()
_inside = False
_modules: dict[str, Any] = {}
_made: list[Made] = []  # those used last first


class Reader(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds `engine` in the comments of this file."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> Any:
        for name in (f"{fullname.replace('.', '/')}{end}" for end in (".py", "/__init__.py")):
            if name in sources():
                return importlib.machinery.ModuleSpec(
                    fullname, self, origin=name, is_package=name.endswith("/__init__.py")
                )
        return None

    def is_package(self, fullname: str) -> bool:
        return f"{fullname.replace('.', '/')}/__init__.py" in sources()

    def get_source(self, fullname: str) -> str:
        name = fullname.replace(".", "/")
        return sources()[f"{name}/__init__.py" if self.is_package(fullname) else f"{name}.py"]


@cache
def sources() -> dict[str, str]:
    """The reader's modules by file name."""
    _, *parts = Path(__file__).read_text(encoding="utf-8").split("\n" + FILE)
    return {
        name: "".join(line.removeprefix(LINE) + "\n" for line in text.splitlines())
        for name, _, text in (part.partition("\n") for part in parts)
    }


@contextmanager
def _reader() -> Iterator[None]:
    """`engine` is the one of this file inside; whatever bore that name before does so after."""

    def ours(name: str) -> bool:
        return name == "engine" or name.startswith("engine.")

    global _inside
    with _lock:
        if _inside:
            yield
            return
        before = {name: sys.modules.pop(name) for name in list(sys.modules) if ours(name)}
        sys.modules.update(_modules)
        finder = Reader()
        sys.meta_path.insert(0, finder)
        _inside = True
        try:
            yield
        finally:
            _inside = False
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if ours(name)]:
                _modules[name] = sys.modules.pop(name)
            sys.modules.update(before)


@dataclass(frozen=True, slots=True)
class Made:
    """Tables on a device, and the sizes that the spec's code read to make them."""

    device: torch.device
    read: Mapping[Place, int]
    tables: dict[str, torch.Tensor]

    def serves(self, device: torch.device, inputs: Mapping[str, torch.Tensor]) -> bool:
        """Whether the code would make the same for these inputs."""
        return device == self.device and all(
            inputs[name].shape[dimension] == size for (name, dimension), size in self.read.items()
        )


def tables(info: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tables that the spec builds itself, at these inputs' sizes and of the kernel's types.

    Runs the spec's own code. Where it takes no other tensor than q, k and v, a table is made once
    for all calls that have the sizes which it reads; those used last are kept.
    """
    inputs = {name: torch.as_tensor(value) for name, value in inputs.items()}
    device = next(iter(inputs.values())).device
    plain = all(i["role"] != "extra" or i["derive"] for i in info["inputs"])
    with _lock:
        for at, made in enumerate(_made if plain else ()):
            if made.serves(device, inputs):
                _made.insert(0, _made.pop(at))
                return made.tables
    extra = {i["name"] for i in info["inputs"] if i["role"] == "extra"}
    # A table is no inference tensor, whatever its caller's mode: a plan may hold it.
    with torch.inference_mode(False), torch.no_grad(), _reader():
        derived = importlib.import_module("engine.spec.readings.derived_inputs")
        text = importlib.import_module("engine.spec.recipes.recipe_json")
        asked = text.recipe_from_json(info["recipe"])
        given = {
            name: t.detach().cpu() if name in extra else torch.empty(t.shape, device="meta")
            for name, t in inputs.items()
        }

        def run() -> dict[str, torch.Tensor]:
            made: dict[str, torch.Tensor] = derived.derive_inputs(
                HERE / info["spec"], asked, given, info["spec_options"]
            )
            return made

        values = run()
        out = {
            i["name"]: for_kernel(i["name"], values[i["name"]], i["dtype"]).to(device)
            for i in info["inputs"]
            if i["derive"]
        }
        read = _sizes_read(given, values, run) if plain else {}
    if plain:
        with _lock:
            _made.insert(0, Made(device, read, out))
            del _made[MOST_TABLES:]
    return out


def _sizes_read(
    given: Mapping[str, torch.Tensor],
    values: Mapping[str, torch.Tensor],
    run: Callable[[], dict[str, torch.Tensor]],
) -> dict[Place, int]:
    """The sizes that the spec's code reads to make `values`; all where that cannot be seen."""
    watch = Watch(given)
    try:
        with watch:
            again = run()
        seen = all(torch.equal(value, again[name]) for name, value in values.items())
    except Exception:  # code that takes nothing but an int for a size
        seen = False
    places = watch.read if seen else watch.all
    return {(name, d): given[name].shape[d] for name, d in places}
