"""Write an accepted kernel as a folder that builds and imports without CuBridge.

The kernel and its headers are one file, the pages of `engine/package/runtime` one module. What
differs between packages is the public function with its data in `__init__.py`, and the README.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.build.folder.units import (
    COMPILE_FLAGS,
    LINK_FLAGS,
    Fields,
    arch_flags,
    struct_layout,
)
from engine.cuir.nodes import walk_expr
from engine.cuir.printer import print_expr
from engine.errors import InputError, StoreError
from engine.files import read_file, try_writing_below
from engine.package.fold import fold, unfold
from engine.package.host import host_facts
from engine.package.module import PAGES, hosts_text, runtime_text, spec_text, tables_text
from engine.package.runtime._expr import NotAnExpression, evaluate
from engine.package.source import source_text
from engine.package.texts import init_text, project_text, readme_text, stands_in
from engine.spec.python.signature import (
    Asked,
    Signature,
    recipe_of,
    signature_of,
    signature_to_json,
)
from engine.spec.recipes.recipe import Input, Recipe
from engine.spec.recipes.recipe_json import recipe_to_json
from engine.transfer.binding import SIZES, Binding
from engine.types import Level, Verdict, sha256_of
from engine.types.trust import rests_on

SCHEMA = 2
_NEEDED = frozenset({"torch", "triton", "numpy", "engine"})  # a package imports these itself
_COMPILE = tuple(f for f in COMPILE_FLAGS if f not in ("-Xptxas", "-v"))
_READ = ("score", "keep", "kv_head", "sink", "lse", "q", "k")  # what a package reads of a recipe


@dataclass(frozen=True, slots=True)
class Content:
    """What a package is made of.

    `kernel` names the kernel package it came from. `headers` are name and bytes below the include
    folder. `archs` come in the order of preference, the session's own first. `specialisations` are
    bindings of the launch template's parameters, in its order. `fields` are name and type of the
    argument struct's. `spec_modules` are the modules beside the spec that it imports, by their
    path in its folder. `value_columns` gives Dv by specialisation key where it is not D,
    `constants` the launcher's constants that a workspace's size depends on, by arch and key.
    `parameters` are what the spec's function calls its inputs, where that is not their name.
    `judged` is the key of the specialisation that the gates on the CPU ran.
    """

    kernel: str
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
    parameters: Mapping[str, str] = field(default_factory=dict)
    judged: str = ""


Layout = Callable[[Content, str], dict[str, bytes]]
"""Every file of an export by its path in the folder, whose name is given."""


def export(content: Content, folder: Path, make: Layout | None = None) -> Path:
    """Write the package into `folder`; the folder's path. `make` gives the files of another layout
    than a package's own. Raises as `write_files`."""
    return write_files(lambda name: (make or package_files)(content, name), folder)


def write_files(make: Callable[[str], Mapping[str, bytes]], folder: Path) -> Path:
    """Write the files that `make` gives for the folder's name into `folder`, which is new or an
    older export; the folder's path.

    The name is the name to import. The files that an export wrote there before, as its
    verdicts.json lists them, and what was built of them (build, __pycache__) are removed; anything
    else stays as it is.

    Raises:
        InputError: a folder that holds something else alone, a file that no export wrote where one
            is to be written, or a name that cannot be imported.
        StoreError: it cannot be written.
    """
    folder = folder.expanduser().absolute()
    old = _check_folder(folder)
    files = make(folder.name)
    _check_way(folder, files, old)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, data in files.items():
                path = part / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if folder.exists():
                # Verdicts that list what lies here are there all the time: where this is cut
                # short, the next export goes on.
                lists = {n for n in old if Path(n).name == "verdicts.json"}
                _remove(folder, old - files.keys() - lists, old)
                for name in sorted(files, key=lambda name: Path(name).name != "verdicts.json"):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (part / name).replace(folder / name)
                _remove(folder, lists - files.keys(), old)
            else:
                part.chmod(0o777 & ~_umask())
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
    try:
        try_writing_below(folder.parent)
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
    first = ("README.md", "__init__.py", "kernel.cu")  # what a reader looks at before the rest
    names = [*first, *(name for name in made if name not in first)]
    return {folder / name: made[name] for name in names}


def package_files(content: Content, name: str) -> dict[str, bytes]:
    """Every file of the package, by its path in the folder."""
    info = package_data(content, name)
    inputs = [i for i in content.asked.inputs if _used(i.name, content)]
    folded = fold(content.source, dict(content.headers))
    verdicts = verdicts_json(content, name)
    files = {
        "README.md": readme_text(
            info, content.asked, inputs, content.level, content.verdicts,
            content.kernel, list(content.archs), content.judged,
        ),
        "__init__.py": init_text(info, content.asked, inputs, content.level, content.kernel),
        "_runtime.py": runtime_text(plans=content.binding.workspace is not None),
        "_spec.py": spec_text(),
        "build.py": (PAGES / "build.py").read_text(encoding="utf-8"),
        "pyproject.toml": project_text(name, str(verdicts["version"])),
    }  # fmt: skip
    if stands_in(info):
        files["_hosts.py"] = hosts_text(sdpa=not info["host"]["sdpa_refused"])
    if any(i.derive for i in inputs):
        files["_tables.py"] = tables_text()
    out = {path: text.encode() for path, text in files.items()}
    out["kernel.cu"] = source_text(folded, info, content.entry, content.fields, content.kernel)
    out[info["spec"]] = content.spec
    out |= {f"spec/{path}": data for path, data in content.spec_modules.items()}
    return with_verdicts(out, "verdicts.json", verdicts)


def with_verdicts(
    files: Mapping[str, bytes], path: str, verdicts: Mapping[str, Any]
) -> dict[str, bytes]:
    """`files` and the verdicts at `path`, which list all of them with their hashes: what a later
    export may remove, what a wheel holds, and what is still as it was written. Their own is ""."""
    hashes = {name: sha256_of(data) for name, data in sorted(files.items()) if name != path}
    return {**files, path: _json({**verdicts, "files": {**hashes, path: ""}})}


def verdicts_json(content: Content, name: str) -> dict[str, Any]:
    """What was judged, how it is built, and what the gates found."""
    hashes = _hashes(content)
    return {
        "schema": SCHEMA,
        "name": name,
        "version": f"1.0+{_digest(hashes)}",
        "level": content.level.value,
        "rests_on": rests_on(content.verdicts),
        "kernel": content.kernel,
        # Of the files that were judged; kernel.cu holds the source and the headers whole.
        "judged": {
            **hashes,
            "files": {
                header or "kernel.cu": sha256_of(data)
                for header, data in sorted(
                    unfold(fold(content.source, dict(content.headers))).items()
                )
            },
        },
        "build": {
            "archs": {arch: list(arch_flags(arch)) for arch in content.archs},
            "compile": list(_COMPILE),
            "link": list(LINK_FLAGS),
            "units": len(content.specialisations) + 1,
        },
        "verdicts": [v.to_json() for v in content.verdicts],
    }


def _hashes(content: Content) -> dict[str, str]:
    recipe = recipe_of(content.asked)
    out = {
        "kernel": sha256_of(content.source),
        "headers": sha256_of(b"".join(n.encode() + b"\0" + d for n, d in content.headers)),
        "spec": sha256_of(content.spec),
        "signature" if recipe is None else "recipe": sha256_of(_asked(content)),
        "binding": sha256_of(_json(content.binding.to_json())),
    }
    if content.spec_modules:
        modules = {n: sha256_of(data) for n, data in sorted(content.spec_modules.items())}
        out["spec_modules"] = sha256_of(_json(modules))
    return out


def _digest(hashes: Mapping[str, str]) -> str:
    return sha256_of(_json(hashes))[:8]


def package_data(content: Content, name: str) -> dict[str, Any]:
    """The data that the package's code works from: `KERNEL` in its `__init__.py`."""
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
    given = tuple(i.name for i in inputs if i.role == "extra" and not i.derive)
    return {
        "name": name,
        # The operator's name is unique to the content: two versions can be imported side by side.
        "op": f"{name}_{_digest(_hashes(content))}",
        "inputs": [_input(i) for i in inputs],
        "unused": [_input(i) for i in signature.inputs if i not in inputs],
        "constraints": [print_expr(c) for c in signature.constraints],
        "grouped": signature.grouped if recipe is None else "Hkv" in print_expr(recipe.kv_head),
        "specialisations": specialisations,
        "value_columns": dict(content.value_columns),
        # How the argument struct is filled, field by field.
        "fields": [list(f) for f in content.fields],
        "binding": content.binding.to_json(),
        "constants": {arch: dict(keys) for arch, keys in content.constants.items()},
        # What a plan depends on besides the sizes.
        "mask_inputs": _mask_inputs(recipe, [i.name for i in inputs]),
        # Where nobody can say what the weights are, a scale is held to what a softmax needs.
        "softmax": recipe is None or recipe.weight is None,
        # Whether q, k and v are read by the TMA, which takes fewer layouts.
        "tma": b"tensor_map<" in content.source,
        "spec": _spec_path(content),
        "spec_options": dict(content.spec_options),
        "parameters": dict(content.parameters),
        "recipe": _recipe_data(recipe, inputs),
        "host": host_facts(content.asked, given),
    }  # fmt: skip


def _input(item: Input) -> dict[str, Any]:
    return {
        "name": item.name, "role": item.role, "dtype": item.dtype, "dims": list(item.dims),
        "derive": item.derive,
    }  # fmt: skip


def _recipe_data(recipe: Recipe | None, inputs: Sequence[Input]) -> dict[str, Any] | None:
    """What a package says of the spec's mathematics; all of it where tables are made."""
    if recipe is None:
        return None
    data = recipe_to_json(recipe)
    if any(i.derive for i in inputs):
        return data
    return {key: data[key] for key in _READ if key in data}


def _spec_path(content: Content) -> str:
    """Where the spec is: alone, or in a folder with the modules that it imports."""
    return f"spec/{_file_name(content.spec_name)}" if content.spec_modules else "spec.py"


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


def _check_folder(folder: Path) -> frozenset[str]:
    """The files there that an export wrote, by path; raises `InputError` as `export`."""
    if not _is_name(folder.name):
        better = re.sub(r"[^0-9A-Za-z_]+", "_", folder.name).strip("_")
        better = better if _is_name(better) else f"attention_{better}".rstrip("_")
        raise InputError(
            f"{folder.name!r} cannot be imported and installed", fix=f"name the folder {better}"
        )
    if _shadows(folder):
        raise InputError(
            f"a package called {folder.name} would take the place of Python's own {folder.name}, "
            "or of a library's, wherever it is imported",
            fix=f"name the folder attention_{folder.name}, or another name that nothing has",
        )
    if os.path.islink(folder):
        raise InputError(
            f"{folder} is a link: what it leads to would be rewritten under another name",
            fix="name the folder itself, or a new one",
        )
    if not os.path.exists(folder):  # not Path's, which raises where it may not look
        return frozenset()
    if not folder.is_dir():
        raise InputError(f"{folder} is a file", fix="name a new folder")
    verdicts = ("verdicts.json", f"torch-ext/{folder.name}/verdicts.json")  # by layout
    written = frozenset[str]().union(*(_written(folder, name) for name in verdicts))
    if any(folder.iterdir()) and not written:
        raise InputError(
            f"{folder} holds something else than an exported package", fix="name a new folder"
        )
    return written


def _is_name(name: str) -> bool:
    """Whether Python imports it as it is written, torch takes it as an operator's and pip installs
    it: `import` normalises letters beyond ASCII, and pip has no name with _ at its ends."""
    return bool(re.fullmatch("[A-Za-z](?:[0-9A-Za-z_]*[0-9A-Za-z])?", name)) and not (
        keyword.iskeyword(name)
    )


def _written(folder: Path, verdicts: str) -> frozenset[str]:
    """What an export's verdicts list as its files, by path in the folder; none where there are no
    verdicts of an export. A list that leads out of the folder is none of an export's."""
    try:
        data = json.loads(read_file(folder / verdicts, ""))
        files = data["files"] if data["schema"] == SCHEMA else []
        own = folder.resolve()
        inside = all((own / name).parent.resolve().is_relative_to(own) for name in files)
        return frozenset(files) if inside else frozenset()
    except (InputError, ValueError, LookupError, TypeError):
        return frozenset()


def _check_way(folder: Path, files: Mapping[str, bytes], old: frozenset[str]) -> None:
    """Raises `InputError` where something that no export wrote is in the way of a file."""
    for name in files:
        for part in (Path(name), *Path(name).parents[:-1]):
            place = folder / part
            folder_above = part != Path(name) and place.is_dir()
            if os.path.lexists(place) and not folder_above and part.as_posix() not in old:
                raise InputError(
                    f"{place} is in the way, and no export wrote it",
                    fix="move it, or name a new folder",
                )


def _remove(folder: Path, gone: Iterable[str], old: frozenset[str]) -> None:
    """Remove files of the `old` ones that an export wrote, what was built of them all, and the
    folders that are empty then."""
    parents = {above for name in old for above in Path(name).parents}
    for name in gone:
        (folder / name).unlink(missing_ok=True)
    for built in (folder / "build", *(folder / above / "__pycache__" for above in parents)):
        if built.exists():
            shutil.rmtree(built)
    for above in sorted(parents - {Path()}, key=lambda path: -len(path.parts)):
        with contextlib.suppress(OSError):  # not empty
            (folder / above).rmdir()


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
