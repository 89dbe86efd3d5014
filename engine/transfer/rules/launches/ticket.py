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

from engine.cuir.nodes import Assign, Binary, For, Module, Name, Num, Stmt
from engine.cuir.rewrite import Block, map_blocks, map_function, map_statements
from engine.cuir.static.kernel_names import locals_for
from engine.cuir.text.quote import block, stmt
from engine.errors import TransferError
from engine.transfer.match import Attention
from engine.transfer.rules.base.input_views import names_in
from engine.transfer.rules.base.list_layout import Lists, queue_of, with_view
from engine.transfer.rules.base.rule import Rule
from engine.transfer.rules.base.work_sharing import (
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
    at = 1 + next(
        n for n, s in enumerate(body) if isinstance(s, Assign) and s.target == lists.field
    )
    body = (*body[:at], Assign(ticket.queue.id, queue_of(lists, consts)), *body[at:])
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
        for one in stmts:
            if one == self.sharing.set_up:
                out += (self.set_up(), one)
            elif one == self.sharing.last:
                out += (one, *self.places())
            elif one == self.sharing.loading:
                out += self.loop(one, self.told(self.sharing.loading), (self.fetched,))
            elif one == self.sharing.computing:
                out += self.loop(one, self.sharing.computing.body, self.heard())
            else:
                out.append(one)
        return tuple(out) if len(out) > len(stmts) else stmts

    def places(self) -> Block:
        """The barriers and words, behind the last bytes of shared memory."""
        return block(
            """
            full = mbarriers[slots](end)
            empty = mbarriers[slots](end + second)
            word = shared_words[slots](end + words)
            """,
            full=self.full, empty=self.empty, word=self.word, slots=SLOTS,
            end=self.sharing.end, second=SLOTS * BARRIER_BYTES, words=WORDS_AT,
        )  # fmt: skip

    def set_up(self) -> Stmt:
        """Every computing thread frees a word, since each has fetched it for itself."""
        return stmt(
            """
            for index in range(slots):
                mbarrier_init(full[index], 1)
                mbarrier_init(empty[index], threads)
            """,
            index=self.index, slots=SLOTS, full=self.full, empty=self.empty,
            threads=self.sharing.threads,
        )  # fmt: skip

    def loop(self, loop: Stmt, body: Block, after: Block) -> Block:
        assert isinstance(loop, For)
        return block(
            """
            turn = 0
            next = 0
            for work in range(first, works, then(next)):
                *body
                *after
                turn = turn + 1
            """,
            turn=self.turn, next=self.next, work=loop.var, first=loop.start, works=loop.stop,
            body=body, after=after,
        )  # fmt: skip

    def told(self, loop: For) -> Block:
        """The loop's body with the claim before the scalars that it begins with, some of which come
        from memory too, and the post behind them."""
        first = next(n for n, s in enumerate(loop.body) if not isinstance(s, Assign))
        return block(
            """
            ticket = claim(queue, works)
            *scalars
            wait(empty[turn % slots], 1 - turn // slots % 2)
            post(word[turn % slots], blocks + ticket)
            arrive(full[turn % slots])
            *loads
            """,
            ticket=self.ticket, queue=self.queue, works=loop.stop, scalars=loop.body[:first],
            empty=self.empty, word=self.word, full=self.full, turn=self.turn, slots=SLOTS,
            blocks=loop.step, loads=loop.body[first:],
        )  # fmt: skip

    def heard(self) -> Block:
        return block(
            """
            wait(full[turn % slots], turn // slots % 2)
            *fetched
            arrive(empty[turn % slots])
            """,
            full=self.full, empty=self.empty, turn=self.turn, slots=SLOTS, fetched=self.fetched,
        )  # fmt: skip

    @property
    def fetched(self) -> Stmt:
        return stmt("next = fetch(word[turn % slots])", next=self.next, word=self.word,
                    turn=self.turn, slots=SLOTS)  # fmt: skip


def _with_bytes(module: Module, host: str, name: str) -> Module:
    """The launch asks for the barriers' and the words' bytes too."""

    def edit(one: Stmt) -> Stmt:
        if isinstance(one, Assign) and one.target == name:
            return replace(one, value=Binary("+", one.value, Num(MORE_BYTES)))
        return one

    return map_statements(module, host, edit)


RULE = Rule(
    "ticket",
    "Hand out the work by tickets",
    "how long a block of rows takes depends on its list, so nothing is dealt out beforehand: a "
    "thread block that has done one takes the next number from a counter, and no multiprocessor "
    "idles while others have work left",
    "mask",
    applies=lambda case: case.queue,
    edit=lambda module, case: hand_out(module, case.found, case.the_lists()),
    after=("bits",),
)
