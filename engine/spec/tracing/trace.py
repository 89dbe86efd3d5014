"""Trace a spec: run it on small tensors and read, beside each value, what it is symbolically.

Two modes sit under the user's function. A function mode sees the Python calls (it places tensors
on the CPU, keeps data away from Python, and writes `scaled_dot_product_attention` out). A dispatch
mode sees every ATen op with the line that caused it, keeps every float in float64 and gives each
result its symbolic twin. Nothing is guessed from names or source text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from engine.cuir.nodes import Expr, Num
from engine.errors import SpecError, Where
from engine.scalar_algebra.kinds import Kind
from engine.scalar_algebra.rewrite import FALSE, TRUE
from engine.spec.expressions import build
from engine.spec.python.modes import DispatchMode, OnCpu, lifted, neutral
from engine.spec.python.size_values import expression_of
from engine.spec.tracing.aten_ops import HANDLERS, RANDOM, VIEWS, Unreadable
from engine.spec.tracing.folding import SUMS, Tables, folded
from engine.spec.tracing.sdpa import written_out
from engine.spec.tracing.symbolic import Indices, Sym, Tracked, View, constant

TO_PYTHON = frozenset((
    "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__",
    "__contains__", "is_nonzero",
))  # fmt: skip
MAX_WRITES = 4  # in place through views of one constant tensor, before it counts as a loop's
FIX_FLOW = "write the choice per element, with torch.where or masked_fill"


class Lines:
    """Which line of the spec (or of a module beside it) is running."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.folder = str(path.parent)

    def here(self) -> int | None:
        """The innermost running line of the spec file itself, 1-based."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.path:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None


class Trace:
    """The state of one run: live tensors, variables, and what is known of each expression."""

    def __init__(
        self,
        path: Path,
        kinds: dict[str, Kind],
        wanted: frozenset[str] = frozenset(),
        tables: Tables = Tables.FORMULAS,
        plain: frozenset[str] = frozenset(),
    ) -> None:
        """`plain` are the names of q, k and v, where they are known: for tables of all else."""
        self.path = path
        self.tables = tables
        self.floats = plain or frozenset(name for name, kind in kinds.items() if kind == "float")
        # The inputs whose values Python has seen: what is made from then on, of anything but q, k
        # and v, may depend on them.
        self.seen: frozenset[str] = frozenset()
        self.where = Lines(path)
        self.wanted = wanted
        self.captured: dict[str, torch.Tensor] = {}
        self.kinds = kinds
        self.tracked: dict[int, Tracked] = {}
        self.extents: dict[str, int] = {}
        self.lines: dict[Expr, set[int]] = {}
        self.leaves: dict[str, Leaf] = {}
        self.made: list[Leaf] = []
        self.counts: dict[tuple[int | None, str], int] = {}
        self.writes: dict[int, int] = {}
        self.fresh = 0
        # Where random numbers were drawn, by the name that what depends on them depends on.
        self.draws: dict[str, tuple[str, int | None]] = {}
        # What the numbers of the running Python call are of the sizes, by value.
        self.numbers: dict[float, Expr] = {}

    # --- variables and lines ---------------------------------------------------------------------

    def variable(self, extent: int) -> str:
        """A reduction variable over 0..extent-1."""
        name = f"%r{self.fresh}"
        self.fresh += 1
        self.ranged(name, extent)
        return name

    def ranged(self, name: str, extent: int) -> None:
        """`name` is an index variable over 0..extent-1."""
        self.extents[name] = extent
        self.kinds[name] = "int"

    def number(self, value: float) -> Expr:
        """An argument of an op: the expression that Python computed it by, where it is known."""
        known = None if isinstance(value, bool) else self.numbers.get(value)
        return Num(value) if known is None else known

    def drawn(self, name: str, line: int | None) -> str:
        """A dependency on random numbers: harmless where nothing of it reaches the output."""
        dependency = f"%random {len(self.draws)}"
        self.draws[dependency] = (name, line)
        return dependency

    def refuse_random(self, deps: Iterable[str]) -> None:
        """Raises `SpecError` at the draw where `deps` hold one."""
        for name, line in (self.draws[d] for d in sorted(deps) if d in self.draws):
            words = "draws random numbers, and a spec must be a function of its inputs"
            if name in ("bernoulli", "native_dropout"):
                fix = "write what evaluation computes: without dropout (p=0.0, or training=False)"
                raise self.error(f"dropout: {name} {words}", line, fix)
            raise self.error(f"{name} {words}", line, "remove dropout and random tensors")

    def error(self, message: str, line: int | None, fix: str | None = None) -> SpecError:
        return SpecError(message, where=Where(str(self.path), line), fix=fix)

    def noted(self, sym: Sym, line: int | None) -> Sym:
        """`sym`, whose expressions remember that `line` made them."""
        sym.line = line
        if line is None:
            return sym
        raw = sym.read_raw

        def read(index: Indices) -> Expr:
            expr = raw(index)
            if build.value_of(expr) is None:
                self.lines.setdefault(expr, set()).add(line)
            return expr

        sym.read_raw = read
        return sym

    # --- tensors ---------------------------------------------------------------------------------

    def give(self, tensor: torch.Tensor, sym: Sym) -> None:
        self.tracked[id(tensor)] = Tracked(tensor, sym)

    def input(self, name: str, tensor: torch.Tensor) -> None:
        shape = tuple(tensor.shape)
        self.give(tensor, Sym(shape, lambda index: build.load(name, index), frozenset((name,))))

    def sym(self, tensor: torch.Tensor) -> Sym:
        """The symbolic twin of a tensor as it is now."""
        held = self.tracked.get(id(tensor))
        if held is None:
            # Made outside the trace's sight: a value of the spec's own, known only by number.
            self.give(tensor, self.leaf(tensor, "a tensor of the spec's own", frozenset(), None))
            held = self.tracked[id(tensor)]
        if held.sym is None and held.view is None:
            line = self.where.here()
            self.give(tensor, self.leaf(tensor, "a tensor filled in a loop", self.seen, line))
            held = self.tracked[id(tensor)]
        if held.sym is not None:
            return held.sym
        assert held.view is not None
        base, forward = self.sym(held.view.base), held.view.forward
        return Sym(
            tuple(tensor.shape), lambda index: base.read(forward(index)), base.deps, base.line
        )

    def write(self, tensor: torch.Tensor, new: Sym, line: int | None) -> None:
        """`tensor` holds `new` from now on, and so does what it is a view of."""
        held = self.tracked.get(id(tensor))
        if held is None or held.view is None:
            self.give(tensor, new)
            return
        view = held.view
        writes = self.writes[id(view.base)] = self.writes.get(id(view.base), 0) + 1
        base = self.tracked.get(id(view.base))
        if self.seen and not (new.deps | self.sym(view.base).deps) & self.floats:
            root = self._root(view.base)
            self.tracked[id(root)] = Tracked(root, None)
            return
        constant_base = base is not None and base.view is None and not (base.sym and base.sym.deps)
        if writes > MAX_WRITES and not new.deps and constant_base:
            # Filled row by row in a Python loop: known by its values, once they are read.
            self.tracked[id(view.base)] = Tracked(view.base, None)
            return
        old = self.sym(view.base)
        if view.inverse is None:
            if new.deps | old.deps:
                raise self.error(
                    "a value is written in place through a view that no rule reads", line
                )
            self.give(view.base, self.leaf(view.base, "written in place", frozenset(), line))
            return
        inverse = view.inverse

        def read(index: Indices) -> Expr:
            inside, own = inverse(index)
            if inside == FALSE:
                return old.read(index)
            return build.select(inside, new.read(own), old.read(index))

        self.write(view.base, Sym(old.shape, read, old.deps | new.deps), line)

    def _root(self, tensor: torch.Tensor) -> torch.Tensor:
        """What a view is a view of in the end."""
        held = self.tracked.get(id(tensor))
        while held is not None and held.view is not None:
            tensor = held.view.base
            held = self.tracked.get(id(tensor))
        return tensor

    def count(self, line: int | None, op: str) -> int:
        """How often `op` at `line` was counted before."""
        count = self.counts[(line, op)] = self.counts.get((line, op), -1) + 1
        return count

    def by_value(self, deps: frozenset[str]) -> bool:
        """Whether what depends on `deps` is a table, since Python has seen values of inputs."""
        return bool(self.seen) and not deps & self.floats

    def look(self, deps: frozenset[str], op: str) -> None:
        """Python asks for values of `deps` by `op`: of tables, as where a slice ends, it may.
        Raises `SpecError` where it decides by them, or where they are not those of a table."""
        self.refuse_random(deps)
        decides = op in ("__bool__", "is_nonzero", "equal", "__contains__")
        if self.tables is Tables.WHOLE and not deps & self.floats and not decides:
            self.seen |= deps
        elif deps:
            raise self.error(
                f"Python control flow needs the values of {', '.join(sorted(deps))} ({op})",
                self.where.here(), FIX_FLOW,
            )  # fmt: skip

    def capture(self, key: str, value: torch.Tensor | None) -> None:
        """Keep a wanted table. Raises `AllCaptured` when it was the last one."""
        if value is not None:
            self.captured[key] = value
        if len(self.captured) == len(self.wanted):
            raise AllCaptured

    def leaf(
        self,
        tensor: torch.Tensor,
        op: str,
        deps: frozenset[str],
        line: int | None,
        key: str | None = None,
    ) -> Sym:
        """A tensor that is known by its values alone (and by how it came about)."""
        if key is None:
            key = f"{line}:{op}:{self.count(line, op)}"
            if self.tables is not Tables.FORMULAS:
                key += f":{self.tables.value}"
        value = tensor.detach().clone()
        if key in self.wanted:
            self.capture(key, value)
        if not deps and not value.is_meta and value.numel() and _uniform(value):
            return constant(tuple(value.shape), self.number(value.reshape(-1)[0].item()))
        twin = next((m for m in self.made if m.same_as(value, op)), None)
        made = twin or Leaf(value, op, deps, line, key)
        if twin is None and op in ("a constant", "torch.tensor"):
            self.made.append(made)

        def read(index: Indices) -> Expr:
            if not made.name:  # named in the order of first use, which all sizes share
                made.name = f"table{len(self.leaves)}"
                self.leaves[made.name] = made
                self.kinds[made.name] = kind_of_dtype(value.dtype)
            return build.load(made.name, index)

        return Sym(tuple(value.shape), read, deps, line)


class AllCaptured(BaseException):
    """Every wanted table is there: the rest of the run is of no interest."""


def _uniform(value: torch.Tensor) -> bool:
    return bool((value == value.reshape(-1)[0]).all())


class Leaf:
    """A tensor that the trace cannot express: its values at this size, and where it came from."""

    def __init__(
        self, value: torch.Tensor, op: str, deps: frozenset[str], line: int | None, key: str
    ) -> None:
        self.value, self.op, self.deps, self.line, self.key = value, op, deps, line, key
        self.name = ""

    def same_as(self, value: torch.Tensor, op: str) -> bool:
        """Whether this is the table of the same constant, met a second time."""
        return op == self.op and value.shape == self.value.shape and torch.equal(value, self.value)


def kind_of_dtype(dtype: torch.dtype) -> Kind:
    if dtype == torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point else "int"


class PythonMode(OnCpu):
    """Sees Python-level calls: data leaving for Python, the fused attention function."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def called(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if name in TO_PYTHON and args and isinstance(args[0], torch.Tensor):
            self.trace.look(self.trace.sym(args[0]).deps, name)
        if name == "__getitem__":
            args = (args[0], _lists_as_tensors(args[1]))
        if name == "scaled_dot_product_attention":
            with self:  # its own calls are seen too: the scale may be an expression of sizes
                return written_out(*args, **kwargs)
        outer = self.trace.numbers
        self.trace.numbers = _expressions((args, kwargs))
        try:
            return func(*args, **kwargs)
        finally:
            self.trace.numbers = outer


class AtenMode(DispatchMode):
    """Runs every ATen op in float64 and records its symbolic twin."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args = tuple(map(neutral, args))
        kwargs = {k: neutral(v) for k, v in (kwargs or {}).items()}
        trace = self.trace
        full = func._schema.name.split("::")[-1]
        in_place = full.endswith("_") and not full.endswith("__")
        name = full.rstrip("_") if in_place else full
        line = trace.where.here()
        # Twins are taken before the op runs: an op in place changes what its operands hold.
        before = {
            id(t): trace.sym(t)
            for t in _tensors((args, kwargs))
            if name not in ("empty", "lift_fresh")
        }
        out = lifted(func, _run(func, args, kwargs))
        if name in ("detach", "alias", "lift_fresh") and isinstance(args[0], torch.Tensor):
            if name == "lift_fresh":
                trace.give(out, trace.leaf(out, "torch.tensor", frozenset(), line))
            else:
                trace.tracked[id(out)] = Tracked(
                    out, None, View(args[0], lambda i: i, lambda i: (TRUE, i))
                )
            return out
        if name in VIEWS and not in_place and _is_view(out, args[0]):
            self._views(name, args, kwargs, out)
            return out
        deps = frozenset().union(*(s.deps for s in before.values()))
        if trace.tables is not Tables.FORMULAS and not in_place:
            self._fold((args, kwargs), before, out, deps, line)
        if name in RANDOM:
            deps |= {trace.drawn(name, line)}
        made = None
        if trace.by_value(deps):
            deps |= trace.seen
        elif name not in RANDOM and not self._is_table(name, deps):
            made = self._read(name, args, kwargs, out)
        outs = (
            [out]
            if isinstance(out, torch.Tensor)
            else list(out)
            if isinstance(out, (list, tuple))
            else []
        )
        syms = made if isinstance(made, list) else [made] * len(outs)
        for position, tensor in enumerate(outs):
            if not isinstance(tensor, torch.Tensor):
                continue
            sym = syms[position]
            if sym is None:
                sym = trace.leaf(tensor, f"aten.{name}", deps, line)
            else:
                sym = trace.noted(sym, line)
            if in_place or "out" in kwargs:
                trace.write(tensor, sym, line)
            else:
                trace.give(tensor, sym)
        if name in ("_local_scalar_dense", "item", "equal", "is_nonzero") and deps:
            trace.look(deps, name)
        return out

    def _read(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """The result's twin, or None where no handler reads this use of the op."""
        handler = HANDLERS.get(name)
        if handler is None:
            return None
        try:
            made = handler(self.trace, args, kwargs, out)
            if isinstance(made, Sym) and not made.deps:
                # Constants are few and small: find out now whether every element can be read.
                made.read(tuple(build.probe(n) for n in range(len(made.shape))))
        except Unreadable:
            return None
        return made

    def _fold(
        self,
        operands: Any,
        before: Mapping[int, Sym],
        out: Any,
        deps: frozenset[str],
        line: int | None,
    ) -> None:
        """Constants among the operands of an op: formulas, or tables."""
        early = self.trace.tables is Tables.EARLY and isinstance(out, torch.Tensor)
        whole = self.trace.tables is Tables.WHOLE
        for tensor in _tensors(operands):
            sym = before.get(id(tensor))
            if sym is None or sym.deps or not tensor.dim():
                continue
            meets = "float" if deps & self.trace.floats else "nothing"
            if whole and deps:
                meets = "an input"
            if early and not deps and _wide(out) > 1 == _wide(tensor):
                meets = "dimensions"
            made = folded(self.trace, tensor, sym, line, meets=meets)
            if made is not sym:
                self.trace.give(tensor, made)

    def _is_table(self, name: str, deps: frozenset[str]) -> bool:
        """Whether a sum over what reads no float input is taken by its values."""
        trace = self.trace
        return trace.tables is not Tables.FORMULAS and name in SUMS and not deps & trace.floats

    def _views(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        made = VIEWS[name](self.trace, args, kwargs, out)
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        for tensor, view in zip(outs, made if isinstance(made, list) else [made], strict=True):
            self.trace.tracked[id(tensor)] = Tracked(tensor, None, view)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an op; beside a tensor without values (see `derived`), every operand loses its own."""
    if any(t.is_meta for t in _tensors((args, kwargs))):
        args, kwargs = _valueless(args), _valueless(kwargs)
    return func(*args, **kwargs)


def _lists_as_tensors(index: Any) -> Any:
    """An index whose lists are tensors: of a tensor without values they would lose theirs."""
    if isinstance(index, tuple):
        return tuple(map(_lists_as_tensors, index))
    if isinstance(index, list) and all(isinstance(n, int) for n in index):
        return torch.tensor(index)
    return index


def _valueless(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(_valueless(v) for v in value)
    if isinstance(value, dict):
        return {
            k: torch.device("meta") if k == "device" else _valueless(v) for k, v in value.items()
        }
    return value


def _wide(tensor: torch.Tensor) -> int:
    return sum(n > 1 for n in tensor.shape)


def _is_view(out: Any, base: Any) -> bool:
    return isinstance(base, torch.Tensor) and out is not base


def _expressions(value: Any) -> dict[float, Expr]:
    """The numbers among a call's arguments whose expression is known."""
    expr = expression_of(value)
    if expr is not None:
        return {float(value): expr}
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return {number: e for item in value for number, e in _expressions(item).items()}
    return {}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    return []
