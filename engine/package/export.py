"""Write an accepted kernel as a folder that builds and imports without CuBridge.

The folder's Python files are those of `engine/package/runtime`, as they are; what differs between
packages is data (`package.json`), the public function in `__init__.py`, and the README.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import keyword
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.build.units import (
    COMPILE_FLAGS,
    LINK_FLAGS,
    Fields,
    arch_flags,
    dispatcher_text,
    struct_layout,
    unit_text,
)  # fmt: skip
from engine.cuir.nodes import walk_expr
from engine.cuir.printer import print_expr
from engine.errors import InputError, StoreError
from engine.files import read_file
from engine.package.runtime._expr import NotAnExpression, evaluate
from engine.package.texts import init_text, license_text, ninja_text, readme_text
from engine.package.vendor import vendored
from engine.spec.recipe import Recipe
from engine.spec.signature import Asked, Signature, recipe_of, signature_of, signature_to_json
from engine.spec.text import recipe_to_json
from engine.transfer.binding import SIZES, Binding
from engine.types import Level, Verdict, sha256_of
from engine.types.trust import rests_on

SCHEMA = 1
RUNTIME = Path(__file__).with_name("runtime")
RUNTIME_FILES = (
    "_args.py",
    "_checks.py",
    "_expr.py",
    "_library.py",
    "_op.py",
    "_plan.py",
    "_reads.py",
    "_spec.py",
    "build.py",
    "check.py",
)
_NEEDED = frozenset({"torch", "triton", "numpy", "engine"})  # a package imports these itself
_COMPILE = tuple(f for f in COMPILE_FLAGS if f not in ("-Xptxas", "-v"))


@dataclass(frozen=True, slots=True)
class Content:
    """What a package is made of.

    `kernel` names the kernel package it came from. `headers` are name and bytes below the include
    folder. `archs` come in the order of preference, the session's own first. `specialisations` are
    bindings of the launch template's parameters, in its order. `fields` are name and type of the
    argument struct's. `spec_modules` are the modules beside the spec that it imports, by their
    path in its folder. `value_columns` gives Dv by specialisation key where it is not D,
    `constants` the launcher's constants that a workspace's size depends on, by arch and key.
    """

    kernel: str
    title: str
    source: bytes = field(repr=False)
    headers: Sequence[tuple[str, bytes]] = field(repr=False)
    entry: str
    archs: Sequence[str]
    specialisations: Sequence[Mapping[str, str]]
    fields: Fields
    asked: Asked
    binding: Binding
    spec_name: str
    spec: bytes = field(repr=False)
    spec_options: Mapping[str, Any] = field(default_factory=dict)
    spec_modules: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    verdicts: Sequence[Verdict] = ()
    level: Level = Level.NONE
    value_columns: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)


def export(content: Content, folder: Path) -> Path:
    """Write the package into `folder`, which is new or an older export; the folder's path.

    The folder's name is the name to import. What an export wrote there before is replaced as a
    whole (its built libraries too); anything else is never touched.

    Raises:
        InputError: a folder that holds something else, or whose name cannot be imported.
        StoreError: it cannot be written.
    """
    folder = folder.expanduser().absolute()
    _check_folder(folder)
    files = package_files(content, folder.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, data in files.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            part.chmod(0o777 & ~_umask())
            if folder.exists():
                shutil.rmtree(folder)
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return folder


def check_place(folder: Path) -> None:
    """Whether a package could be written into `folder`, before there is one; nothing is left there.

    Raises:
        InputError, StoreError: as `export`.
    """
    folder = folder.expanduser().absolute()
    _check_folder(folder)
    above = folder.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        tempfile.TemporaryFile(dir=above).close()
    except OSError as error:
        raise _unwritable(folder, error) from None


def files_for(content: Content, folder: Path) -> dict[Path, bytes]:
    """The package's files by their path in `folder`, which is new or an older export; nothing is
    written.

    Raises:
        InputError: as `export`.
    """
    folder = folder.expanduser().absolute()
    _check_folder(folder)
    made = package_files(content, folder.name)
    first = ("README.md", "csrc/kernel.cu")  # what a reader looks at before the rest
    names = [*first, *(name for name in made if name not in first)]
    return {folder / name: made[name] for name in names}


def package_files(content: Content, name: str) -> dict[str, bytes]:
    """Every file of the package, by its path in the folder."""
    info = package_json(content, name)
    inputs = [i for i in content.asked.inputs if _used(i.name, content)]
    files = {f: (RUNTIME / f).read_bytes() for f in RUNTIME_FILES}
    files |= {f"_vendor/{path}": data for path, data in vendored().items()}
    files["csrc/kernel.cu"] = content.source
    for header, data in content.headers:
        files[f"csrc/include/{header}"] = data
    for key in info["specialisations"]:
        files[f"csrc/units/{key}.cu"] = unit_text(key, content.entry, content.fields).encode()
    files["csrc/units/dispatcher.cpp"] = dispatcher_text(list(info["specialisations"])).encode()
    files |= {f"spec/{name}": data for name, data in content.spec_modules.items()}
    files[f"spec/{_file_name(content.spec_name)}"] = content.spec
    files["package.json"] = _json(info)
    files[info["asked"]] = _asked(content)
    files["verdicts.json"] = _json(
        {
            "level": content.level.value,
            "rests_on": rests_on(content.verdicts),
            "verdicts": [v.to_json() for v in content.verdicts],
        }
    )
    files["build.ninja"] = ninja_text(
        info, sorted(f for f in files if f.startswith("csrc/"))
    ).encode()
    files["__init__.py"] = init_text(info, content.asked, inputs, content.level).encode()
    files["README.md"] = readme_text(
        info, content.asked, inputs, content.level, content.verdicts, content.title
    ).encode()
    files["LICENSE"] = license_text(content.kernel).encode()
    files[".gitignore"] = b"build/\n__pycache__/\n"
    return files


def package_json(content: Content, name: str) -> dict[str, Any]:
    """The data that the package's code works from."""
    struct_layout(content.fields)  # an unknown type must not get as far as the user's compiler
    specialisations = {"_".join(b.values()): dict(b) for b in content.specialisations}
    if not specialisations or not content.archs:
        raise InputError("a package needs at least one specialisation and one arch")
    recipe, signature = recipe_of(content.asked), signature_of(content.asked)
    inputs = [i for i in signature.inputs if _used(i.name, content)]
    for item in inputs:
        if not item.name.isidentifier() or keyword.iskeyword(item.name):
            raise InputError(f"the input {item.name!r} cannot be a parameter's name")
    _check_numbers(content, [i.name for i in inputs if not i.dims])
    hashes = {
        "kernel": sha256_of(content.source),
        "headers": sha256_of(b"".join(n.encode() + b"\0" + d for n, d in content.headers)),
        "spec": sha256_of(content.spec),
        "signature" if recipe is None else "recipe": sha256_of(_asked(content)),
        "binding": sha256_of(_json(content.binding.to_json())),
    }
    if content.spec_modules:
        modules = {n: sha256_of(data) for n, data in sorted(content.spec_modules.items())}
        hashes["spec_modules"] = sha256_of(_json(modules))
    digest = sha256_of(_json(hashes))
    return {
        "schema": SCHEMA,
        "name": name,
        # The operator's name is unique to the content: two versions can be imported side by side.
        "op": f"{name}_{digest[:8]}",
        "kernel": content.kernel,
        "entry": content.entry,
        "archs": {arch: list(arch_flags(arch)) for arch in content.archs},
        "compile": [*_COMPILE, "-Icsrc", "-Icsrc/include"],
        "link": list(LINK_FLAGS),
        "units": [
            *(f"csrc/units/{key}.cu" for key in specialisations), "csrc/units/dispatcher.cpp",
        ],
        "specialisations": specialisations,
        "value_columns": dict(content.value_columns),
        "constants": {arch: dict(keys) for arch, keys in content.constants.items()},
        # What a plan depends on besides the sizes.
        "mask_inputs": _mask_inputs(recipe, [i.name for i in inputs]),
        "fields": [list(f) for f in content.fields],
        "inputs": [
            {
                "name": i.name, "role": i.role, "dtype": i.dtype, "dims": list(i.dims),
                "derive": i.derive,
            }
            for i in inputs
        ],
        "binding": content.binding.to_json(),
        "constraints": [print_expr(c) for c in signature.constraints],
        "grouped": signature.grouped if recipe is None else "Hkv" in print_expr(recipe.kv_head),
        # Where nobody can say what the weights are, a scale is held to what a softmax needs.
        "softmax": recipe is None or recipe.weight is None,
        # Whether q, k and v are read by the TMA, which takes fewer layouts.
        "tma": b"tensor_map<" in content.source,
        "asked": "signature.json" if recipe is None else "recipe.json",
        "spec": f"spec/{_file_name(content.spec_name)}",
        "spec_options": dict(content.spec_options),
        "hashes": hashes,
    }  # fmt: skip


def _mask_inputs(recipe: Recipe | None, inputs: Sequence[str]) -> list[str]:
    if recipe is None:
        return []
    read = {getattr(e, "id", "") for e in walk_expr(recipe.keep)}
    return [name for name in inputs if name in read]


def _check_numbers(content: Content, scalars: Sequence[str]) -> None:
    """Every number that the package computes for a field is one that its code can say.

    Raises `InputError` at export, rather than an error at the first call.
    """
    dims = {d for t in content.binding.tensors for d in t.source_dims if d.isidentifier()}
    names = dict.fromkeys((*SIZES, *dims), 64) | dict.fromkeys(scalars, 1.0)
    for row in content.binding.scalars:
        text = print_expr(row.value)
        try:
            with contextlib.suppress(ArithmeticError):  # these sizes may be no sizes of the spec's
                evaluate(text, names)
        except NotAnExpression as error:
            raise InputError(
                f"the field {row.field} is {text}, which a package cannot compute: {error}",
                fix="write it with arithmetic, comparisons and the functions of docs/cuir.md",
            ) from None
        except ValueError:  # a number outside of a function's domain, likewise
            continue


def _asked(content: Content) -> bytes:
    """What the spec asks for: its recipe, or what it declares where no rule reads it."""
    asked = content.asked
    return _json(
        signature_to_json(asked) if isinstance(asked, Signature) else recipe_to_json(asked)
    )


def _used(name: str, content: Content) -> bool:
    """Whether a call needs the input: q, k and v, what the kernel is given, and what the spec needs
    to make a table of the kernel's. One whose values change nothing is not asked for."""
    item = next(i for i in content.asked.inputs if i.name == name)
    if item.role != "extra":
        return True
    tables = [i.name for i in content.asked.inputs if i.derive]
    if not item.derive and any(_used(table, content) for table in tables):
        return True
    names = {getattr(e, "id", "") for s in content.binding.scalars for e in walk_expr(s.value)}
    return name in names or any(t.source == name for t in content.binding.tensors)


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{folder} cannot be written: {error.strerror or error}",
        fix="name a folder that you may write to",
    )


def _check_folder(folder: Path) -> None:
    if not folder.name.isidentifier() or keyword.iskeyword(folder.name):
        better = re.sub(r"[^0-9A-Za-z_]+", "_", folder.name).strip("_")
        usable = better.isidentifier() and not keyword.iskeyword(better)
        better = better if usable else f"attention_{better}".rstrip("_")
        raise InputError(f"{folder.name!r} cannot be imported", fix=f"name the folder {better}")
    if _shadows(folder):
        raise InputError(
            f"a package called {folder.name} would take the place of Python's own {folder.name}, "
            "or of a library's, wherever it is imported",
            fix=f"name the folder attention_{folder.name}, or another name that nothing has",
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file", fix="name a new folder")
    try:
        ours = json.loads(read_file(folder / "package.json", "")).get("schema") == SCHEMA
    except (InputError, ValueError, AttributeError):
        ours = not any(folder.iterdir())
    if not ours:
        raise InputError(
            f"{folder} holds something else than an exported package", fix="name a new folder"
        )


def _shadows(folder: Path) -> bool:
    """Whether the folder's name is a module that Python finds already, somewhere else."""
    if folder.name in sys.stdlib_module_names or folder.name in _NEEDED:
        return True
    try:
        found = importlib.util.find_spec(folder.name)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [] if found is None else [found.origin, *(found.submodule_search_locations or ())]
    own = folder.resolve()
    return any(
        place is not None and not Path(place).resolve().is_relative_to(own) for place in places
    )


def _file_name(name: str) -> str:
    base = Path(name).name
    return base if base.endswith(".py") else f"{base}.py"


def _json(data: object) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
