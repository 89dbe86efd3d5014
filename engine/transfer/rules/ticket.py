"""Pieces of work that are handed out while blocks run, where only data says how long each is.

A share of the work that is fixed before the launch leaves multiprocessors idle at its end, and more
blocks than multiprocessors pay a block's start for every few pieces. With tickets a block takes its
first piece by its number and each later one by a claim: the loading thread asks for the next piece
as soon as it has one, while the tiles before it are still worked on, and tells it to all in one of
two words of shared memory, which barriers guard as they guard the stages of K and V. It fetches the
word itself when it is done: at the large head sizes its few registers hold no number more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.cuir.nodes import (
    THEN,
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    Index,
    Module,
    Name,
    Num,
    Stmt,
)
from engine.errors import TransferError
from engine.transfer.match import Attention
from engine.transfer.rewrite import Block, map_blocks, map_function
from engine.transfer.rules.inputs import names_in
from engine.transfer.rules.lists import Lists, queue_of, with_view
from engine.transfer.rules.names import locals_for
from engine.transfer.rules.sharing import (
    BARRIER_BYTES,
    MORE_BYTES,
    SLOTS,
    WORDS_AT,
    Sharing,
    sharing_of,
)


def hand_out(module: Module, found: Attention, lists: Lists) -> Module:
    """Each block claims its next piece of work from the queue in the lists' workspace."""
    sharing = sharing_of(module, found)
    if sharing is None:
        raise TransferError(f"the blocks of {found.kernel} share their work in another way now")
    kernel = module.function(found.kernel)
    fresh = locals_for(module, (kernel,), names_in(module, found))
    names = ("queue", "next_full", "next_empty", "next_work", "turn", "next", "ticket", "word")
    ticket = _Ticket(sharing, *(Name(fresh(name)) for name in names))
    body, consts = with_view(kernel.body, found, lists)
    view = next(n for n, s in enumerate(body) if isinstance(s, Assign) and s.target == lists.field)
    queue = Assign(ticket.queue.id, queue_of(lists, consts))
    body = (*body[: view + 1], queue, *body[view + 1 :])
    edited = replace(kernel, body=map_blocks(body, ticket.edit))
    module = map_function(module, kernel.name, lambda f: edited)
    return _with_bytes(module, found.host, sharing.bytes)


@dataclass(frozen=True, slots=True)
class _Ticket:
    """What one kernel gets, and the names for it."""

    sharing: Sharing
    queue: Name
    full: Name
    empty: Name
    word: Name
    turn: Name
    next: Name
    ticket: Name
    index: Name

    def edit(self, stmts: Block) -> Block:
        """A block of statements with what belongs into it."""
        out: list[Stmt] = []
        for stmt in stmts:
            if stmt == self.sharing.set_up:
                out += (self.set_up(), stmt)
            elif stmt == self.sharing.last:
                out += (stmt, *self.places())
            elif stmt == self.sharing.loading:
                out += self.loop(stmt, self.told(self.sharing.loading), (self.fetched,))
            elif stmt == self.sharing.computing:
                out += self.loop(stmt, self.sharing.computing.body, self.heard())
            else:
                out.append(stmt)
        return tuple(out) if len(out) > len(stmts) else stmts

    def places(self) -> Block:
        """The barriers and words, behind the last bytes of shared memory."""
        end, count = self.sharing.end, (Num(SLOTS),)
        second, words = (Binary("+", end, Num(n)) for n in (SLOTS * BARRIER_BYTES, WORDS_AT))
        return (
            Assign(self.full.id, Call("mbarriers", (end,), (), count)),
            Assign(self.empty.id, Call("mbarriers", (second,), (), count)),
            Assign(self.word.id, Call("shared_words", (words,), (), count)),
        )

    def set_up(self) -> For:
        """Every computing thread frees a word, since each has fetched it for itself."""
        counts = ((self.full, Num(1)), (self.empty, self.sharing.threads))
        return For(
            self.index.id, Num(0), Num(SLOTS), Num(1),
            tuple(Do(Call("mbarrier_init", (Index(b, (self.index,)), n))) for b, n in counts),
        )  # fmt: skip

    def loop(self, loop: Stmt, body: Block, after: Block) -> Block:
        assert isinstance(loop, For)
        turned = Assign(self.turn.id, Binary("+", self.turn, Num(1)))
        zeros = (Assign(self.turn.id, Num(0)), Assign(self.next.id, Num(0)))
        step = Call(THEN, (self.next,))
        return (*zeros, replace(loop, step=step, body=(*body, *after, turned)))

    def told(self, loop: For) -> Block:
        """The loop's body with the claim before the scalars that it begins with, some of which come
        from memory too, and the post behind them."""
        first = next(n for n, s in enumerate(loop.body) if not isinstance(s, Assign))
        claim = Assign(self.ticket.id, Call("claim", (self.queue, loop.stop)))
        number = Binary("+", loop.step, self.ticket)
        post = (
            Do(Call("wait", (self.this(self.empty), Binary("-", Num(1), self.parity)))),
            Do(Call("post", (self.this(self.word), number))),
            Do(Call("arrive", (self.this(self.full),))),
        )
        return (claim, *loop.body[:first], *post, *loop.body[first:])

    def heard(self) -> Block:
        return (
            Do(Call("wait", (self.this(self.full), self.parity))),
            self.fetched,
            Do(Call("arrive", (self.this(self.empty),))),
        )

    @property
    def fetched(self) -> Assign:
        return Assign(self.next.id, Call("fetch", (self.this(self.word),)))

    def this(self, many: Name) -> Index:
        return Index(many, (Binary("%", self.turn, Num(SLOTS)),))

    @property
    def parity(self) -> Expr:
        return Binary("%", Binary("//", self.turn, Num(SLOTS)), Num(2))


def _with_bytes(module: Module, host: str, name: str) -> Module:
    """The launch asks for the barriers' and the words' bytes too."""

    def edit(stmts: Block) -> Block:
        return tuple(
            Assign(s.target, Binary("+", s.value, Num(MORE_BYTES)))
            if isinstance(s, Assign) and s.target == name
            else s
            for s in stmts
        )

    return map_function(module, host, lambda f: replace(f, body=map_blocks(f.body, edit)))
