"""Reading a kernel package: `kernel.toml`, the source, the headers it uses, its reference.

A package is a folder. A bare `.cu` file is read as a package without a reference whose
specialisations are not declared.
"""

from __future__ import annotations

import hashlib
import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from engine.cuir.arch import archs as known_archs
from engine.cuir.static.legal_sizes import KEYS, STRIDES, USUAL, LegalSizes
from engine.cuir.types import DTYPES
from engine.errors import InputError, Where
from engine.files import SOURCE_LIMIT, read_file
from engine.lift.cpp.tokens import Tokens
from engine.lift.names.catalogue import default_catalogue
from engine.lift.names.headers import bundled_headers, check_own_header
from engine.resources import KERNEL_SOURCE, include_dir, kernel_dir

MANIFEST = "kernel.toml"
_REQUIRED = ("name", "title", "entry", "archs", "specialisations", "reference")
_OPTIONAL = ("source", "refusals", "further", "domain")

Specialisation = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KernelPackage:
    """A kernel and all that its verdicts hang on.

    `headers` are the project's own headers that the source includes, transitively, by the name in
    the include line, sorted. `specialisations` are all legal bindings of the launch template's
    parameters in declared order; empty for a bare file. `further` are numbers of a parameter that
    are legal besides, where a session asks for one. `sizes` are those that it is for. `hashes` are
    SHA-256 in hex: `source`, `headers` (all of them), `reference`, `manifest`, and `package` (all
    of these).
    """

    name: str
    title: str
    folder: Path
    file: str
    entry: str
    source: bytes
    headers: tuple[tuple[str, bytes], ...]
    archs: tuple[str, ...]
    specialisations: tuple[Specialisation, ...]
    further: Mapping[str, range]
    reference: Path | None
    refusals: Mapping[str, str]
    sizes: LegalSizes
    hashes: Mapping[str, str] = field(repr=False)

    @property
    def executed(self) -> bool:
        """Whether it is a kernel of others, that is executed as PTX and not lifted."""
        return False

    def specialisation(self, key: str | Specialisation) -> Specialisation:
        """The legal specialisation that `key` ("bf16_128" or a binding) names.

        Raises `InputError` that lists the legal ones.
        """
        if not self.specialisations and not isinstance(key, str):
            return dict(key)
        names = tuple(self.specialisations[0]) if self.specialisations else ()
        given = dict(zip(names, key.split("_"), strict=False)) if isinstance(key, str) else key
        named = key if isinstance(key, str) else specialisation_key(key)
        if set(given) == set(names) and named.count("_") == len(names) - 1:
            wanted = {name: given[name] for name in names}
            if self._legal(wanted):
                return wanted
        legal = ", ".join(map(specialisation_key, self.specialisations))
        for name, numbers in self.further.items():
            legal += f"; {name} may also be a multiple of {numbers.step} "
            legal += f"from {numbers[0]} to {numbers[-1]}"
        raise InputError(
            f"{self.name} has no specialisation {named}",
            where=Where(str(self.folder / MANIFEST)),
            fix=f"name one of: {legal}",
        )

    def _legal(self, binding: Specialisation) -> bool:
        """Whether it is declared, or its every value is a declared or a further one."""
        if binding in self.specialisations:
            return True
        return all(
            any(known[name] == value for known in self.specialisations)
            or (value.isdecimal() and str(int(value)) == value
                and int(value) in self.further.get(name, ()))
            for name, value in binding.items()
        )  # fmt: skip

    def building(self, binding: Specialisation) -> KernelPackage:
        """The package with a legal specialisation among those that are built."""
        if not self.specialisations or binding in self.specialisations:
            return self
        return replace(self, specialisations=(*self.specialisations, binding))

    def with_source(self, path: Path) -> KernelPackage:
        """The package with the source at `path`, and the headers that it includes, for its own."""
        source = read_file(path, "give the path of a .cu file", SOURCE_LIMIT)
        headers = used_headers(source, str(path), include_dir(), path.parent)
        kept = {part: self.hashes[part] for part in ("reference", "manifest")}
        hashes = hashes_of({"source": source, "headers": _headers_digest(headers)}, kept)
        return replace(self, file=str(path), source=source, headers=headers, hashes=hashes)

    def check_arch(self, arch: str) -> None:
        """Raises `InputError` when the kernel is not for `arch`, with the reason that the
        manifest gives for it, else the one that it gives for `arch`, any other."""
        if arch in self.archs:
            return
        reason = self.refusals.get(arch, self.refusals.get("arch"))
        raise InputError(
            f"{self.name} is not for {arch}" + (f": {reason}" if reason else ""),
            where=Where(str(self.folder / MANIFEST)),
            fix=f"name one of: {', '.join(self.archs)}",
        )


def specialisation_key(binding: Specialisation) -> str:
    """`bf16_128`: the values in the launch template's order."""
    return "_".join(binding.values())


def is_imported(folder: Path) -> bool:
    """Whether a folder holds the manifest that `cubridge import` writes: of a kernel that is
    executed as PTX, which `load_package` does not read."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return False
    try:
        return "compile" in tomllib.loads(read_file(manifest, "").decode("utf-8", "replace"))
    except tomllib.TOMLDecodeError:
        return False


def load_package(path: Path | str, include: Path | None = None) -> KernelPackage:
    """The kernel in a package folder, in its `kernel.toml` or source, or in a bare `.cu` file.

    A text without a folder separator that is no path is a bundled kernel's name. `include` is the
    folder of the project's headers (default: the bundled one). Raises `InputError` with file and
    key.
    """
    where = Path(path)
    if not where.exists() and where.name == str(path) and where.suffix != ".cu":
        where = kernel_dir(str(path))
    include = include if include is not None else include_dir()
    if where.is_dir():
        return _load_folder(where, include)
    if where.name == MANIFEST or (
        (where.parent / MANIFEST).is_file() and where.name == KERNEL_SOURCE
    ):
        return _load_folder(where.parent, include)
    return _load_bare(where, include)


def _load_bare(path: Path, include: Path) -> KernelPackage:
    fix = "give the path of a .cu file or a bundled kernel's name"
    source = read_file(path, fix, SOURCE_LIMIT)
    headers = used_headers(source, str(path), include, path.parent)
    parts = {"source": source, "headers": _headers_digest(headers)}
    return KernelPackage(
        path.stem, path.name, path.parent, str(path), "launch", source, headers,
        tuple(known_archs()), (), {}, None, {}, USUAL, hashes_of(parts),
    )  # fmt: skip


def _load_folder(folder: Path, include: Path) -> KernelPackage:
    manifest = folder / MANIFEST
    data = read_file(manifest, f"a kernel package is a folder with {MANIFEST} and {KERNEL_SOURCE}")
    reader = _Manifest(manifest, data)
    source_path = folder / reader.file_name("source", KERNEL_SOURCE)
    reference = folder / reader.file_name("reference", None)
    source = read_file(source_path, f"write it, or mend `source` in {manifest}", SOURCE_LIMIT)
    spec = read_file(reference, f"write it, or mend `reference` in {manifest}", SOURCE_LIMIT)
    headers = used_headers(source, str(source_path), include, folder)
    parts = {
        "source": source,
        "headers": _headers_digest(headers),
        "reference": spec,
        "manifest": data,
    }
    return KernelPackage(
        reader.text("name"), reader.text("title"), folder, str(source_path), reader.text("entry"),
        source, headers, reader.archs(), reader.specialisations(), reader.further(), reference,
        reader.refusals(), reader.sizes(), hashes_of(parts),
    )  # fmt: skip


class _Manifest:
    """`kernel.toml`, checked key by key."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.lines = data.decode("utf-8", errors="replace").splitlines()
        try:
            self.table: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(
                f"not TOML: {error}", where=Where(str(path)), fix="mend the file's syntax"
            ) from None
        for key in self.table:
            if key not in _REQUIRED + _OPTIONAL:
                self.fail(key, "unknown key", f"known are {', '.join(_REQUIRED + _OPTIONAL)}")
        for key in _REQUIRED:
            if key not in self.table:
                self.fail(key, "the key is missing", f"add `{key} = ...`")

    def fail(self, key: str, message: str, fix: str) -> NoReturn:
        name = key.split(".")[-1]
        line = next(
            (
                at
                for at, text in enumerate(self.lines, 1)
                if text.strip().startswith((name, f"[{name}"))
            ),
            None,
        )
        raise InputError(f"{key}: {message}", where=Where(str(self.path), line), fix=fix)

    def text(self, key: str) -> str:
        value = self.table[key]
        if not isinstance(value, str) or not value.strip() or "\n" in value:
            self.fail(key, "not one line of text", f'write `{key} = "..."`')
        return value

    def file_name(self, key: str, default: str | None) -> str:
        if key not in self.table and default is not None:
            return default
        value = self.text(key)
        if Path(value).name != value or value in (".", ".."):
            self.fail(key, "not the name of a file in the package", "write a plain file name")
        return value

    def archs(self) -> tuple[str, ...]:
        value = self.table["archs"]
        if not isinstance(value, list) or not value or len(set(map(str, value))) != len(value):
            self.fail("archs", "not a list of archs", 'write `archs = ["sm_80", ...]`')
        for arch in value:
            if arch not in known_archs():
                self.fail(
                    "archs", f"unknown arch {arch!r}", f"known are {', '.join(known_archs())}"
                )
        return tuple(value)

    def specialisations(self) -> tuple[Specialisation, ...]:
        table = self.table["specialisations"]
        example = (
            'write `[specialisations]` with lines such as `T = ["f16", "bf16"]`, `D = [64, 128]`'
        )
        if not isinstance(table, dict) or not table:
            self.fail("specialisations", "not a table of values", example)
        choices: list[list[str]] = []
        for name, values in table.items():
            key = f"specialisations.{name}"
            if not isinstance(values, list) or not values:
                self.fail(key, "not a list of values", example)
            choices.append([self.choice(key, value) for value in values])
            if len(set(choices[-1])) != len(choices[-1]):
                self.fail(key, "a value stands twice", "name each value once")
        return tuple(
            dict(zip(table, values, strict=True)) for values in itertools.product(*choices)
        )

    def further(self) -> Mapping[str, range]:
        table = self.table.get("further", {})
        example = "write `[further]` with lines such as `D = { multiple = 8, to = 256 }`"
        if not isinstance(table, dict):
            self.fail("further", "not a table", example)
        for name, numbers in table.items():
            key = f"further.{name}"
            if name not in self.table["specialisations"]:
                self.fail(key, "no parameter of [specialisations]", "name one that stands there")
            whole = isinstance(numbers, dict) and set(numbers) == {"multiple", "to"}
            if not whole or not all(type(n) is int for n in numbers.values()):
                self.fail(key, "not the numbers up to a last one", example)
            if not 0 < numbers["multiple"] <= numbers["to"]:
                self.fail(key, "there is no such number", example)
        return {name: range(n["multiple"], n["to"] + 1, n["multiple"]) for name, n in table.items()}

    def choice(self, key: str, value: object) -> str:
        match value:
            case bool():
                return "true" if value else "false"
            case int():
                return str(value)
            case str() if value in DTYPES:
                return value
        self.fail(
            key, f"{value!r} is no value", f"write numbers, true, false or {', '.join(DTYPES)}"
        )

    def sizes(self) -> LegalSizes:
        """The sizes of which its proofs speak: the usual ones where it says none."""
        table = self.table.get("domain", USUAL.most)
        example = f"write `[domain]` with lines such as `Nk = 131072` for {', '.join(KEYS)}"
        if not isinstance(table, dict) or table.keys() != set(KEYS):
            self.fail("domain", "not the largest number of each size", example)
        for name, most in table.items():
            if type(most) is not int or not 0 < most <= USUAL.most[STRIDES]:
                self.fail(f"domain.{name}", "not a whole number above 0", example)
        return LegalSizes({name: table[name] for name in KEYS})

    def refusals(self) -> Mapping[str, str]:
        table = self.table.get("refusals", {})
        if not isinstance(table, dict):
            self.fail("refusals", "not a table", 'write `[refusals]` with lines `sm_75 = "why"`')
        for name, reason in table.items():
            if not isinstance(reason, str) or not reason.strip():
                self.fail(f"refusals.{name}", "no reason", f'write `{name} = "why"`')
        return dict(table)


# --- headers -----------------------------------------------------------------------------------


def used_headers(
    source: bytes, file: str, include: Path, folder: Path
) -> tuple[tuple[str, bytes], ...]:
    """The headers that `source` includes with quotes, transitively: name and bytes, sorted.

    Looked up in the including file's folder, then in `include`. Raises `InputError` with file and
    line for one that is nowhere.
    """
    found: dict[str, bytes] = {}
    pending = [(source, file, folder)]
    while pending:
        data, name, place = pending.pop()
        for line, wanted in _includes(data):
            beside = place / wanted
            if wanted in bundled_headers() and beside.is_file() and not _is_in(beside, include):
                raise InputError(
                    f'#include "{wanted}": {beside} would stand for the header of kernel text',
                    where=Where(name, line),
                    fix="remove or rename that file",
                )
            path = beside if beside.is_file() else include / wanted
            if not path.is_file():
                raise InputError(
                    f'#include "{wanted}": there is no such header',
                    where=Where(name, line),
                    fix=f"put it beside the file or in {include}",
                )
            known = _header_name(path, include, folder)
            if known not in found:
                found[known] = read_file(path, "make it readable", SOURCE_LIMIT)
                if not _is_in(path, include):
                    check_own_header(found[known], str(path), default_catalogue())
                pending.append((found[known], str(path), path.parent))
    return tuple(sorted(found.items()))


def _is_in(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _header_name(path: Path, include: Path, folder: Path) -> str:
    resolved = path.resolve()
    for root in (include.resolve(), folder.resolve()):
        if resolved.is_relative_to(root):
            return resolved.relative_to(root).as_posix()
    return resolved.name


@lru_cache(maxsize=256)
def _includes(data: bytes) -> tuple[tuple[int, str], ...]:
    """Line and name of every quoted include; comments and strings are no includes. Kept, as the
    package is read from the disk before each gate, to see that it is as it was."""
    tokens = Tokens(data).all
    out: list[tuple[int, str]] = []
    for at, token in enumerate(tokens[:-2]):
        quoted = tokens[at + 2]
        if token.text == "#" and tokens[at + 1].text == "include" and quoted.kind == "string":
            out.append((data.count(b"\n", 0, token.start) + 1, quoted.text[1:-1]))
    return tuple(out)


def _headers_digest(headers: tuple[tuple[str, bytes], ...]) -> bytes:
    # Lengths keep apart what a name or a file's end could otherwise imitate.
    return b"".join(b"%d %d\n" % (len(n.encode()), len(d)) + n.encode() + d for n, d in headers)


def hashes_of(parts: Mapping[str, bytes], known: Mapping[str, str] = {}) -> Mapping[str, str]:
    """The parts' hashes, with those that are known, and of all together."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in parts.items()} | {**known}
    whole = "\n".join(f"{name} {digest}" for name, digest in sorted(hashes.items()))
    return {**hashes, "package": hashlib.sha256(whole.encode()).hexdigest()}
