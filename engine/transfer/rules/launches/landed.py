"""What happens to q before it is multiplied, where its rows have landed in shared memory.

A row of q is multiplied by the block that holds it and by no other, so what is made of that row
alone is made there once: the warpgroup reads its rows back into registers, 64 columns at a time so
that they fit beside its accumulators, and writes them to where its matmuls read them, rounded as
the spec rounds them. Rows of k are read by every block of rows, so they are made ready before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.cuir.nodes import Binary, Call, Expr, Index, Module, Name, Num
from engine.cuir.ops.movement import PANEL
from engine.cuir.rewrite import Block, map_expr, substitute
from engine.cuir.static.facts import own_names
from engine.cuir.static.kernel_names import Fresh
from engine.cuir.text.quote import block, expr
from engine.errors import TransferError
from engine.transfer.match import block_at
from engine.transfer.rules.base.input_views import scalar_inputs
from engine.transfer.rules.base.landing import landing_of
from engine.transfer.rules.base.prepared_operands import COLUMN
from engine.transfer.rules.base.rule import Case, Rule
from engine.transfer.rules.base.score_sites import put_block
from engine.transfer.rules.launches.prepare import ZERO, Writer, canonical


@dataclass
class _Panels(Writer):
    """Writes the statements panel by panel: each sum is a loop over the columns of its own."""

    columns: Expr = ZERO  # of the shared tile

    def reduction(self, fn: str, column: str, body: Expr, extent: Expr) -> Name:
        body = substitute(body, {column: Name(COLUMN)})
        key = Call(fn, (body, extent))
        if key in self.known:
            return self.known[key]
        if not _vanishes(body, self.view):  # columns that fill the tile's last 128 bytes are zeros
            body = expr("body if c < extent else 0.0", body=body, c=Name(COLUMN), extent=extent)
        total = Name(self.fresh("total"))
        self.inside += block("total = zeros(rows)", total=total,
                             rows=Index(Name("row_of"), (self.layout,)))  # fmt: skip
        self.panels(
            body, "terms",
            lambda _, terms: block("total = row_sum(terms, total)", total=total, terms=terms),
        )  # fmt: skip
        self.inside += block("total = row_reduce(total)", total=total)
        self.row_vector(total)
        self.known[key] = total
        return total

    def panels(self, body: Expr, wanted: str, then: Callable[[Name, Name], Block]) -> None:
        """A loop over the panels that makes a tile of `body` of each, and then what `then` says."""
        body = map_expr(body, self.of_row)
        column = Name(self.fresh("column"))
        one = replace(self, before=[], loads=[], inside=[], known={}, column=column)
        tile = one.mapped(body, wanted)
        self.inside += block(
            """
            for column in range(0, count, panel):
                *each
            """,
            column=column, count=self.columns, panel=PANEL,
            each=(*one.before, *one.loads, *one.inside, *then(column, tile)),
        )  # fmt: skip

    def named(self, wanted: str, tiles: list[str], vectors: list[str]) -> Name:
        """The tile itself where it takes up vectors, which a warpgroup's tile does in place."""
        return Name(tiles[0]) if vectors else super().named(wanted, tiles, vectors)


def _vanishes(body: Expr, view: str) -> bool:
    """Whether it is 0 for an element of 0: a product with one."""
    match body:
        case Index(Name(id), _):
            return id == view
        case Binary("*", left, right):
            return _vanishes(left, view) or _vanishes(right, view)
    return False


def make_ready(module: Module, case: Case) -> Module:
    """The module whose warpgroups make their own rows of q ready."""
    landing = landing_of(module, case.found)
    if landing is None:
        raise TransferError("the rows of q land nowhere any more: a rule before moved their wait")
    (item,) = (i for i in case.prepared if i.landed)
    found, recipe, words = case.found, case.recipe, case.words
    raw = next(i for i in recipe.inputs if i.role == item.role)
    kernel = module.function(found.kernel)
    fresh = Fresh(own_names(kernel) | set(kernel.consts) | words.names | {"i", "j"})
    view = fresh(item.role.upper())
    layout = Index(Name(landing.accumulator), (landing.rows, Num(PANEL)))
    writer = _Panels(
        item, raw, view, {i.name: i for i in words.tensors}, fresh, layout, Name("h"),
        found.sites[0].rows, landed=landing.tile, columns=landing.columns,
    )  # fmt: skip
    made = canonical(scalar_inputs(item.made, recipe), raw, view)
    writer.panels(
        writer.reduced(words.of_before(made, {"b": found.batch, "h": found.head})), "ready",
        lambda column, ready: block("store_shared(tile, column, ready)", tile=landing.tile,
                                    column=column, ready=ready),
    )  # fmt: skip
    # Rows of which no tile is visited are not made ready: nothing orders them with the next copy.
    new = block(
        """
        if first < end:
            *inside
            fence_async()
        """,
        first=landing.loop.start, end=landing.loop.stop, inside=tuple(writer.inside),
    )  # fmt: skip
    body, at = block_at(module, landing.block), landing.position
    return put_block(module, landing.block, (*body[:at], *new, *body[at:]))


RULE = Rule(
    "landed",
    "Make q ready where its rows have landed",
    "a row of q is multiplied by one block alone, which has it in shared memory: made ready there, "
    "in the registers of the warpgroup that multiplies it, it costs no pass over memory and no "
    "launch, and is rounded as before; k is read by every block of rows and is made ready before",
    "before",
    applies=lambda case: case.landed is not None,
    edit=make_ready,
    after=("prepare",),
)
