"""Key tiles that leave registers for a dense tile.

Beside asynchronous matmuls a dense tile is loaded before the score's matmul is waited for, and held
until the score is there. A thread has a register of the score for every two keys, and one for every
four of a tile of 16 bits: with more than 80 keys both do not fit beside the output's accumulator,
and with more than 64 not beside a mask, a second tile or elements of 32 bits either.

Where matmuls are waited for at once, operands are loaded when they are taken up, and all of them
are in registers then. What the whole tile leaves of those is too little for a dense mask or for
many vectors beside a wide accumulator, and for a dense mask and a bias, or three biases, anywhere:
such kernels take 16 to 32 keys fewer. With asynchronous matmuls three dense tiles do not fit beside
the rows of a warpgroup that shares its multiprocessor with two others: there the fewest rows are
taken. Six vectors of a mask take a step of keys there.

These are estimates; nvcc has the last word. Where it said that a text spills what its source does
not, rules are asked again with a step of keys fewer, and again while that spills too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.cuir.nodes import (
    Assign,
    Call,
    Expr,
    Function,
    Index,
    Lambda,
    Module,
    Name,
    Num,
    Select,
    Stmt,
    blocks,
)
from engine.cuir.rewrite import Block
from engine.cuir.static.facts import statements
from engine.transfer.match import Attention
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.tile_sizes import chosen, tile_const, with_tile
from engine.transfer.rules.elements.stage import starts_matmul

KEYS_ALONE = 80
KEYS = 64
STEP = 16  # keys: what a tile's width is a multiple of
VECTORS = 4  # operands of a mask that fit beside the widest accumulators
MANY_TILES = 3  # dense tiles, a mask's counted twice
FEW_KEYS = 48  # a launcher that takes no more of them has wide accumulators


def narrow_tiles(module: Module, found: Attention, sizes: Mapping[str, int], plain: bool) -> Module:
    """Key tiles that leave registers for the dense tiles whose loads start before a matmul.

    `sizes` are the bytes of the elements of each tensor; `plain` says that the rest is a softmax
    without a mask. The module stays as it is where no tile is held so, and where the launcher's
    tiles are narrower or no numbers known at compile time.
    """
    kernel = module.function(found.kernel)
    keys = tile_const(kernel, found, 1)
    held = list(_held(kernel.body))
    if keys is None or not held or len(_dense(kernel, found)) >= MANY_TILES:
        return module
    alone = plain and held_alone(module, found, sizes)
    wanted = KEYS_ALONE if alone else KEYS

    def fewer(value: Expr) -> Expr:
        if not _wider(value, wanted):
            return value
        return _fewer(value) if alone else Num(wanted)

    return with_tile(module, found, keys, fewer)


def take_smaller_tiles(module: Module, found: Attention) -> Module:
    """Tiles that leave registers for all operands of a mask or a score, where whole ones do not.

    Without asynchronous matmuls fewer keys, in all specialisations or in those with few keys and
    wide accumulators; with them, for three dense tiles, the launcher's fewest rows and 64 or 48
    keys.
    """
    kernel = module.function(found.kernel)
    keys, rows = tile_const(kernel, found, 1), tile_const(kernel, found, 0)
    stmts = list(statements(kernel))
    if keys is None:
        return module
    dense = _dense(kernel, found)
    masks = [set(_operands(s, "keep")) for s in stmts]
    masked = any(dense & operands for operands in masks)
    taken = [*masks, *(set(_operands(s, "map")) for s in stmts)]
    vectors = max(len(operands - dense) for operands in taken)
    if any(map(starts_matmul, stmts)):
        if len(dense) < MANY_TILES or rows is None:
            if vectors < VECTORS + 2:
                return module
            return with_tile(module, found, keys, lambda value: chosen(value, _one_step))
        module = with_tile(module, found, rows, _least)
        return with_tile(module, found, keys, _narrow)
    everywhere = len(dense) + masked >= MANY_TILES or vectors > VECTORS + 2

    def fewer(number: int) -> int:
        if number > FEW_KEYS:
            return number - STEP if everywhere else number
        if masked or len(dense) >= MANY_TILES:
            return min(number, STEP)
        if vectors > VECTORS:
            return max(number - STEP, STEP)
        return min(number, 2 * STEP) if vectors > VECTORS - 2 else number

    return with_tile(module, found, keys, lambda value: chosen(value, fewer))


def take_fewer_keys(module: Module, found: Attention, steps: int) -> Module:
    """Tiles of so many steps of keys fewer, in all specialisations."""
    keys = tile_const(module.function(found.kernel), found, 1)
    if keys is None:
        return module
    return with_tile(
        module, found, keys,
        lambda value: chosen(value, lambda n: max(n - steps * STEP, min(n, STEP))),
    )  # fmt: skip


def _price(case: Case) -> str:
    """Why a build that spilled takes fewer keys, and how many more tiles that makes."""
    fewer = case.narrower * STEP
    more = (
        f"{keys / (keys - fewer):.2g} times as many of {keys - fewer} keys as of {keys}"
        for keys in (128, 112, 64, 48, 32)
        if keys > fewer
    )
    return (
        f"nvcc's build of {fewer - STEP or 'no'} keys fewer spills registers, which the source's "
        f"does not; the price is more tiles, each with its barriers and row maxima: "
        + ", ".join(more)
    )


def _one_step(number: int) -> int:
    """A step fewer of many keys: what six vectors of a mask take beside an asynchronous matmul."""
    return number - STEP if number > KEYS else number


def _least(value: Expr) -> Expr:
    """The least of a choice among numbers."""
    numbers = [n for n in _choices(value) if n is not None]
    return Num(min(numbers)) if numbers else value


def _narrow(value: Expr) -> Expr:
    """A choice among numbers of keys with those that leave registers for three dense tiles."""
    return chosen(value, lambda n: KEYS if n > KEYS_ALONE else min(n, FEW_KEYS) if n != KEYS else n)


def _operands(stmt: Stmt, op: str) -> tuple[str, ...]:
    """The names of what a keep or a map takes beside its first tile."""
    match stmt:
        case Assign(_, Call(name, (_, *operands, Lambda()))) if name == op:
            return tuple(o.id for o in operands if isinstance(o, Name))
    return ()


def _dense(kernel: Function, found: Attention) -> set[str]:
    """The names of the dense tiles that a kernel loads for its scores."""
    after = {
        name
        for stmt in statements(kernel)
        if isinstance(stmt, Assign) and stmt.target == found.accumulator
        for name in _operands(stmt, "map")
    }
    return {
        stmt.target
        for stmt in statements(kernel)
        if isinstance(stmt, Assign)
        and isinstance(stmt.value, Call)
        and stmt.value.fn == "load_tile"
        and stmt.target not in after
    }


def held_alone(module: Module, found: Attention, sizes: Mapping[str, int]) -> bool:
    """True where one dense tile is held, of 16-bit elements."""
    return [sizes.get(name) for name in _held(module.function(found.kernel).body)] == [2]


def _held(body: Block) -> Iterator[str]:
    """The tensors of tiles that are loaded ahead of the first asynchronous matmul of their list."""
    matmuls = [n for n, stmt in enumerate(body) if starts_matmul(stmt)]
    for stmt in body[: matmuls[0]] if matmuls else ():
        match stmt:
            case Assign(_, Call("load_tile", (Index(Name(tensor)), _))):
                yield tensor
    for stmt in body:
        for _, inner in blocks(stmt):
            yield from _held(inner)


def _wider(value: Expr, keys: int) -> bool:
    """True for a number, or a choice among numbers, none of which is less and one is more."""
    numbers = list(_choices(value))
    known = [n for n in numbers if n is not None]
    return len(known) == len(numbers) and min(known) >= keys < max(known)


def _fewer(value: Expr) -> Expr:
    """A choice among numbers with those for a tile held alone, one step ahead: where the kernel's
    own are as few, wide accumulators leave fewer registers."""
    return chosen(value, lambda n: KEYS_ALONE if n > KEYS_ALONE else KEYS)


def _choices(value: Expr) -> list[int | None]:
    match value:
        case Num(int() as number):
            return [number]
        case Select(_, then, other):
            return [*_choices(then), *_choices(other)]
    return [None]


NARROW = Rule(
    "narrow_tiles",
    "Take key tiles that leave registers for the dense tile",
    "its loads start before the score's matmul is waited for: their latency passes "
    "under the matmul, and their elements are held until the score is there",
    "input",
    applies=lambda case: bool(case.words.tensors),
    edit=lambda module, case: narrow_tiles(module, case.found, case.bytes, case.plain),
    after=("stage",),
)
SMALLER = Rule(
    "smaller_tiles",
    "Take tiles that leave registers for what is read",
    "all that the score and the mask read at once would spill beside a whole tile; the "
    "price is more tiles, each with its barriers and row maxima: a third more of 48 "
    "keys than of 64, twice as many of 16 as of 32, three times as many as of 48",
    "input",
    applies=lambda case: bool(case.words.tensors),
    edit=lambda module, case: take_smaller_tiles(module, case.found),
    after=("narrow_tiles",),
)
BUILT = Rule(
    "built_tiles",
    "Take fewer keys a tile, since more spilled when they were built",
    _price,
    "input",
    applies=lambda case: case.narrower > 0,
    edit=lambda module, case: take_fewer_keys(module, case.found, case.narrower),
    after=("edge_tiles",),
)
