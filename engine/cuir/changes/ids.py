"""Short ids of a module's statements and functions: what a prompt, a hunk or a verdict calls them.

An id is `s` and a number for a statement, `f` and a number for a function, in reading order.
"""

from __future__ import annotations

from engine.cuir.nodes import Module, Path, walk

Ids = dict[Path, str]


def assign(module: Module) -> Ids:
    """The ids of all of `module`, numbered from 1."""
    paths: list[Path] = []
    for function in module.functions:
        paths.append((function.name,))
        paths += [path for path, _ in walk(Module((), (), (function,)))]
    return {path: f"{'f' if len(path) == 1 else 's'}{n}" for n, path in enumerate(paths, 1)}
