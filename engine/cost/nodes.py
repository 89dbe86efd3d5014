"""What is left of a kernel for the cost model: ops with their demands, and the control flow between
them that hangs on sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.cost.demand import Demand
from engine.cuir.ops.traits import MATMULS
from engine.cuir.types import TileType


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One op: what it asks for. `keep` is the number of groups that a wait leaves in flight."""

    name: str
    demand: Demand
    keep: int = 0
    tile: TileType | None = None  # a matmul's accumulator
    order: Order | None = None  # of an op that others wait for, or that waits

    @property
    def matmul(self) -> bool:
        return self.name in MATMULS


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """What an op gives a barrier: whole numbers by operand, and which array of mbarriers it is of
    (its first byte, or its name), empty for none."""

    barriers: int | str
    numbers: Mapping[str, Callable[[dict[str, Any]], Any]]
    reads: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    target: str
    value: Callable[[dict[str, Any]], Any]
    reads: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    test: Callable[[dict[str, Any]], Any]
    reads: frozenset[str]
    then: tuple[Node, ...]
    other: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    var: str
    bounds: tuple[Callable[[dict[str, Any]], Any], ...]
    reads: frozenset[str]
    body: tuple[Node, ...]
    inputs: frozenset[str] = frozenset()  # what its outcome hangs on
    writes: frozenset[str] = frozenset()  # what it leaves changed
    is_step: bool = False  # a round of it is a step over a key tile: an innermost loop of matmuls


Node = Op | Set | Branch | Loop


def flat(nodes: Sequence[Node]) -> list[Node]:
    """The nodes and those of their branches, not of their loops."""
    out: list[Node] = []
    for node in nodes:
        out.append(node)
        if isinstance(node, Branch):
            out += flat(node.then) + flat(node.other)
    return out


def has_steps(nodes: Sequence[Node]) -> bool:
    """Whether a loop over key tiles stands anywhere in the nodes."""
    for node in flat(nodes):
        if isinstance(node, Loop) and (node.is_step or has_steps(node.body)):
            return True
    return False


def shape(nodes: Sequence[Node]) -> tuple[object, ...]:
    """What two trees have in common when they ask for the same: all but the values of scalars."""
    out: list[object] = []
    for node in nodes:
        match node:
            case Op(name, demand, keep):
                out.append((name, demand, keep))
            case Set(target, _, reads):
                out.append((target, reads))
            case Branch(_, reads, then, other):
                out.append((reads, shape(then), shape(other)))
            case Loop(var, _, reads, body):
                out.append((var, reads, shape(body)))
    return tuple(out)


# --- slicing -------------------------------------------------------------------------------------


def sliced(nodes: Sequence[Node], *, orders: bool = False) -> list[Node]:
    """Without the scalars that nothing hangs on; loops know what their outcome hangs on. Of what
    barriers are given (stages, parities) nothing hangs, but with `orders`."""
    needed = _tests(nodes, orders)
    while True:
        more = needed | _feeding(nodes, needed)
        if more == needed:
            break
        needed = more
    return _kept(nodes, needed)


def _tests(nodes: Sequence[Node], orders: bool) -> frozenset[str]:
    out: frozenset[str] = frozenset()
    for node in nodes:
        match node:
            case Op(order=Order(reads=reads)) if orders:
                out |= reads
            case Branch(_, reads, then, other):
                out |= reads | _tests(then, orders) | _tests(other, orders)
            case Loop(_, _, reads, body):
                out |= reads | _tests(body, orders)
    return out


def _feeding(nodes: Sequence[Node], needed: frozenset[str]) -> frozenset[str]:
    out: frozenset[str] = frozenset()
    for node in nodes:
        match node:
            case Set(target, _, reads) if target in needed:
                out |= reads
            case Branch(_, _, then, other):
                out |= _feeding(then, needed) | _feeding(other, needed)
            case Loop(_, _, _, body):
                out |= _feeding(body, needed)
    return out


def _kept(nodes: Sequence[Node], needed: frozenset[str]) -> list[Node]:
    out: list[Node] = []
    for node in nodes:
        match node:
            case Set(target, _, _):
                if target in needed:
                    out.append(node)
            case Branch(test, reads, then, other):
                ways = tuple(_kept(then, needed)), tuple(_kept(other, needed))
                if ways[0] or ways[1]:
                    out.append(Branch(test, reads, ways[0], ways[1]))
            case Loop(var, bounds, reads, body):
                inner = tuple(_kept(body, needed))
                inputs, writes = _reads(inner) - {var}, _writes(inner)
                matmul = any(isinstance(n, Op) and n.matmul for n in flat(inner))
                step = matmul and not has_steps(inner)
                out.append(Loop(var, bounds, reads, inner, reads | inputs, writes, step))
            case Op():
                out.append(node)
    return out


def _reads(nodes: Sequence[Node]) -> frozenset[str]:
    """Names that are read before they are set in every way: here, all that are read."""
    out: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    for node in nodes:
        match node:
            case Set(target, _, reads):
                out |= reads - done
                done |= {target}
            case Branch(_, reads, then, other):
                out |= (reads | _reads(then) | _reads(other)) - done
            case Loop(var, _, reads, body):
                out |= (reads | (_reads(body) - {var})) - done
    return out


def _writes(nodes: Sequence[Node]) -> frozenset[str]:
    out: frozenset[str] = frozenset()
    for node in nodes:
        match node:
            case Set(target, _, _):
                out |= {target}
            case Branch(_, _, then, other):
                out |= _writes(then) | _writes(other)
            case Loop(var, _, _, body):
                out |= _writes(body) | {var}
    return out
