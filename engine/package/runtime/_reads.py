"""Which sizes of q, k and v the spec's code reads on its way to a table.

A table depends on nothing else, so a table for one length of keys serves all where that length is
not read. Whatever could tell the code a size without being seen here counts as reading all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Place = tuple[str, int]  # of an input's dimension

_SHAPE = torch.Tensor.shape.__get__  # type: ignore[attr-defined]
_SIZES = (torch.Tensor.size, _SHAPE)
_SAME = {
    "to",
    "double",
    "float",
    "detach",
}  # give the same sizes, and are asked before the code runs
_RANK = (torch.Tensor.dim, torch.Tensor.ndim.__get__)  # type: ignore[attr-defined]


class Size:
    """A size that says when it is read. No int, since an int's value is read unseen."""

    def __init__(self, value: int, place: Place, read: set[Place]) -> None:
        self._value, self._place, self._read = value, place, read

    def __index__(self) -> int:
        self._read.add(self._place)
        return self._value

    def __float__(self) -> float:
        return float(operator.index(self))

    def __bool__(self) -> bool:
        return bool(operator.index(self))

    def __hash__(self) -> int:
        return hash(operator.index(self))

    def __repr__(self) -> str:
        return repr(operator.index(self))

    def __getattr__(self, name: str) -> Any:
        return getattr(operator.index(self), name)


def _delegated(name: str) -> Callable[..., Any]:
    def method(self: Size, *given: Any) -> Any:
        plain = [operator.index(g) if isinstance(g, Size) else g for g in given]
        return getattr(operator.index(self), name)(*plain)

    return method


_OPERATIONS = (
    *("add", "sub", "mul", "floordiv", "truediv", "mod", "divmod", "pow", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rfloordiv", "rtruediv", "rmod", "rdivmod", "rpow", "rlshift"),
    *("rrshift", "and", "or", "xor", "rand", "ror", "rxor", "neg", "pos", "abs", "invert", "int"),
    *("trunc", "floor", "ceil", "round", "eq", "ne", "lt", "le", "gt", "ge", "format", "str"),
)
for _name in _OPERATIONS:
    setattr(Size, f"__{_name}__", _delegated(f"__{_name}__"))


class Watch(TorchFunctionMode):
    """Hands out sizes that are watched; `read` holds the places that were read, of `all`."""

    def __init__(self, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.read: set[Place] = set()
        self._known = {id(tensor): name for name, tensor in inputs.items()}
        self._kept: list[torch.Tensor] = list(inputs.values())  # so that no id is given twice
        self.all = {(n, d) for n, t in inputs.items() for d in range(t.dim())}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        plain_args, plain_kwargs = _plain(args), _plain(kwargs or {})
        result = func(*plain_args, **plain_kwargs)
        name = self._known.get(id(args[0])) if args else None
        if func in _SIZES:
            return self._sizes(name, result, plain_args[1:], plain_kwargs)
        if isinstance(result, torch.Tensor):
            told = [a for a in _flat((plain_args, plain_kwargs)) if isinstance(a, torch.Tensor)]
            if name is not None and getattr(func, "__name__", "") in _SAME:
                self._known[id(result)] = name
                self._kept.append(result)
            elif not result.is_meta and any(t.is_meta for t in told):
                self.read |= self.all
        elif args and not _tells_nothing(func, result):
            self.read |= self.all
        return result

    def _sizes(
        self, name: str | None, result: Any, more: tuple[int, ...], named: dict[str, int]
    ) -> Any:
        if name is None:  # of a tensor that was made of others
            self.read |= self.all
            return result
        if isinstance(result, int):
            dimension = next(iter((*more, *named.values())))
            rank = sum(place[0] == name for place in self.all)
            return Size(result, (name, dimension % rank), self.read)
        return tuple(Size(n, (name, d), self.read) for d, n in enumerate(result))


def _tells_nothing(func: Any, result: Any) -> bool:
    """Whether what a function gives has no size in it."""
    kinds = (torch.dtype, torch.device, torch.layout, type(None))
    return func in _RANK or isinstance(result, kinds)


def _plain(value: Any) -> Any:
    """`value` with its sizes as ints: they are read."""
    if isinstance(value, Size):
        return operator.index(value)
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_plain(v) for v in value)
    return value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return _flat(tuple(value.values()))
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in _flat(v)]
    return [value]
