"""The rooms of the engine: who imports whom, read from every file, and a picture of it.

    python -m tests.packaging.rooms

writes the tree of folders and the picture into docs/architecture.md; a test holds them up to date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "sessions", "cubridge_tui")
BASE = "base"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- python -m tests.packaging.rooms writes from here -->"
END = "<!-- to here -->"

# What each room imports, no more and no less, the lowest first: all that a room imports stands
# above it. `base` is what lies in `engine/` itself (errors, files, ...) and `engine/types`.
ROOMS: Mapping[str, tuple[str, ...]] = {
    BASE: (),
    "report": (),
    "llm": (BASE,),
    "cuir": (BASE,),
    "scalar_algebra": ("cuir",),
    "prove": (BASE, "cuir"),
    "lift": (BASE, "cuir"),
    "lower": (BASE, "cuir", "lift"),
    "build": (BASE, "cuir", "lift"),
    "cost": (BASE, "cuir", "build"),
    "spec": (BASE, "cuir", "scalar_algebra", "prove"),
    "child": (BASE, "spec"),
    "ptx": (BASE,),
    "foreign": (BASE, "scalar_algebra", "build", "spec", "child", "ptx"),
    "transfer": (BASE, "llm", "cuir", "scalar_algebra", "lift", "lower", "spec"),
    "package": (BASE, "cuir", "scalar_algebra", "build", "spec", "transfer"),
    "worker": (BASE, "cuir", "scalar_algebra", "build", "spec", "transfer", "package"),
    "gates": (
        BASE, "cuir", "prove", "lift", "lower", "build", "cost", "spec", "child", "transfer",
        "worker",
    ),
    "graft": (
        BASE, "cuir", "scalar_algebra", "lift", "lower", "build", "spec", "child", "ptx", "foreign",
        "transfer", "gates",
    ),
    "torch_child": (BASE, "spec", "child", "gates"),
    "gpu": (
        BASE, "report", "cuir", "build", "cost", "spec", "child", "transfer", "worker", "gates",
    ),
    "sessions": (BASE,),
    "service": (
        BASE, "llm", "cuir", "scalar_algebra", "lift", "lower", "build", "cost", "spec", "child",
        "foreign", "transfer", "worker", "gates", "graft", "gpu", "package", "sessions",
    ),
    "cubridge_tui": (
        BASE, "report", "llm", "cuir", "lift", "lower", "cost", "spec", "child", "ptx", "foreign",
        "transfer", "worker", "gates", "gpu", "package", "sessions", "service",
    ),
}  # fmt: skip

# Folders that import each other, with the reason why they still do. No folder is added.
CIRCLES: Mapping[str, str] = {
    "engine.ptx": "launch runs the instructions of isa, which are written over its machine",
    "engine.ptx.isa": "see engine.ptx",
    "cubridge_tui": "its own folder holds the entrance, which is above the screens, and the desk "
    "and the console, which are below them",
    "cubridge_tui.actions": "see cubridge_tui",
    "cubridge_tui.commands": "see cubridge_tui",
    "cubridge_tui.model": "see cubridge_tui",
    "cubridge_tui.screens": "see cubridge_tui",
    "cubridge_tui.screens.adaptation": "see cubridge_tui",
    "cubridge_tui.widgets": "see cubridge_tui",
}


def imports(source: str, module: str) -> Iterator[str]:
    """Dotted names that a module's source imports, wherever in it, relative ones resolved.

    `from a import b` yields both `a` and `a.b`, since `b` may be a module. An `import_module` or
    `__import__` with a literal counts too.
    """
    return _imports(ast.parse(source), module)


def _imports(tree: ast.AST, module: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            first = node.args[0]
            if name in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield str(first.value)


def modules(package: str) -> dict[str, Path]:
    """Every module of a package of ours, by dotted name."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "_data" in parts:
            continue
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _read(path: Path, module: str) -> tuple[frozenset[str], frozenset[str]]:
    """What a file imports, and what of it runs; read once, since every rule asks for it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    whole = frozenset(_imports(tree, module))
    for node in ast.walk(tree):
        test = node.test if isinstance(node, ast.If) else None
        if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return whole, frozenset(_imports(tree, module))


def imported(path: Path, module: str) -> frozenset[str]:
    """What a file imports."""
    return _read(path, module)[0]


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def all_modules() -> dict[str, Path]:
    return {name: path for package in PACKAGES for name, path in modules(package).items()}


@cache
def graph() -> Mapping[str, set[str]]:
    """Each module of ours, and those of ours that run when it is imported.

    `from a import b` names the package `a` too: it counts where b is no module, so b lies in it.
    """
    paths = all_modules()
    out = {}
    for module, path in paths.items():
        names = _read(path, module)[1]  # less those that only a type checker follows
        out[module] = {
            other
            for other in names & paths.keys() - {module}
            if not any(within(more, [other]) and more != other and more in paths for more in names)
        }
    return out


def folder_of(module: str, paths: Mapping[str, Path]) -> str:
    """The dotted name of the folder that a module lies in; a package lies in itself."""
    return module if paths[module].name == "__init__.py" else module.rpartition(".")[0]


def room_of(module: str) -> str:
    """The room that a module belongs to: a name of `ROOMS`, if it is declared."""
    package, _, rest = module.partition(".")
    if package != "engine":
        return package
    room = rest.partition(".")[0]
    is_folder = (ROOT / "engine" / room).is_dir() if room else False
    return BASE if not is_folder or room == "types" else room


def rooms() -> dict[str, set[str]]:
    """Each room, and the rooms that it imports, those for the type checker included."""
    paths = all_modules()
    out: dict[str, set[str]] = {}
    for module, path in paths.items():
        here = out.setdefault(room_of(module), set())
        names = imported(path, module) & paths.keys()
        here |= {room_of(name) for name in names if name != "engine"}
    return {room: others - {room} for room, others in out.items()}


def circles() -> dict[str, set[str]]:
    """Folders that import each other, straight or by way of others: each, with its circle."""
    paths = all_modules()
    folders: dict[str, set[str]] = {}
    for module, names in graph().items():
        here = folder_of(module, paths)
        folders.setdefault(here, set()).update(
            there for name in names if (there := folder_of(name, paths)) != here
        )
    reached: dict[str, set[str]] = {}
    for folder in folders:
        seen: set[str] = set()
        pending = [folder]
        while pending:
            more = folders.get(pending.pop(), set()) - seen
            seen |= more
            pending += more
        reached[folder] = seen
    return {
        folder: {other for other in seen if folder in reached[other]}
        for folder, seen in reached.items()
        if folder in seen
    }


def reduced(edges: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """`edges` without those that follow from others; `edges` has no circle and names rooms below.

    Names come in the order of `edges`.
    """
    order = {name: place for place, name in enumerate(edges)}
    below: dict[str, set[str]] = {}
    out = {}
    for name, others in edges.items():
        implied = {each for other in others for each in below[other]}
        below[name] = {*others, *implied}
        out[name] = sorted({*others} - implied, key=order.__getitem__)
    return out


def picture() -> str:
    """The rooms as a Mermaid flow chart, what follows from other arrows left out."""
    lines = ["```mermaid", "flowchart BT"]
    for room, below in reduced(ROOMS).items():
        lines += [f"  {room} --> {other}" for other in below]
    return "\n".join([*lines, "```"])


def title(folder: Path) -> str:
    """The first line of what a folder's `__init__` says of itself."""
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def tree() -> str:
    """The engine's folders, each with what it says of itself."""
    folders = [init.parent for init in sorted((ROOT / "engine").rglob("__init__.py"))]
    names = ["  " * (len(f.relative_to(ROOT).parts) - 1) + f"{f.name}/" for f in folders]
    width = max(map(len, names))
    lines = [f"{n:<{width}}  {title(f)}" for n, f in zip(names, folders, strict=True)]
    return "\n".join(["```text", *lines, "```"])


def page(text: str) -> str:
    """docs/architecture.md with the tree and the picture as the folders are now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{picture()}\n\n{tree()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
