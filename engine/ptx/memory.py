"""Global, shared, local and parameter memory of a batch of blocks, in two worlds.

Each state space is one array of bytes for each world; addresses are checked before anything is
read or written: against the tensor or the block's shared memory that they fall into, for
alignment, and against what other agents did there (`ordering`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.ptx.arrays import Array
from engine.ptx.findings import Finding, Findings
from engine.ptx.flags import Flags
from engine.ptx.lanes import Lanes
from engine.ptx.ordering import THREADS, Clocks, History
from engine.ptx.registers import UNDEFINED, Values
from engine.ptx.syntax import Instruction

# Where each state space begins in the generic address space. A tensor has 64 GiB for itself and
# lies in the middle of them, so that an address before its begin is told from one of another.
WINDOW = 36
GLOBAL = 1 << 40
SHARED, LOCAL, PARAM = 0x7F << 40, 0x7E << 40, 0x7D << 40
HALF = 1 << WINDOW - 1
SPACE = np.array(40)  # bits of an address within its state space
LOOKS = 4  # executions of a load for which is noted whose values it reads
SHIFTS = {size: np.array(size.bit_length() - 1) for size in (1, 2, 4, 8)}
# So many bytes of `Memory.set` that all hold a value, as one number.
WHOLE = {n: np.frombuffer(b"\1" * n, f"u{n}")[0] for n in SHIFTS}


@dataclass(slots=True)
class Tensor:
    """A piece of global memory that the launcher made.

    Args:
        data: its values; a run leaves there what the kernel wrote.
        set: which bytes hold a value; None: all.
        workspace: whether it is the launcher's own, where undefined values may lie unused.
        lines: of the last run, the PTX line that last wrote each granule of global memory, where
            this tensor begins there, and the bytes of a granule.
    """

    name: str
    data: Values
    set: Values | None = None
    lines: tuple[Values, int, int] | None = None
    workspace: bool = False

    @property
    def by(self) -> Values:
        """The PTX line that wrote each byte last; 0 where nothing did."""
        if self.lines is None:
            return np.zeros(self.data.nbytes, np.int32)
        lines, start, granule = self.lines
        return lines[start // granule :].repeat(granule)[: self.data.nbytes]

    @staticmethod
    def output(name: str, data: Values) -> Tensor:
        """A tensor that holds nothing yet."""
        return Tensor(name, data, np.zeros(data.nbytes, np.bool_))


class Memory:
    """Memory of a launch.

    Args:
        tensors: pieces of global memory in the order of their addresses.
        shared: bytes of shared memory of a block.
        local: bytes of local memory of a thread.
        arrays: the array of shared memory that an access is of, by its PTX line, where it is known.
        ordered: whether the order of accesses is looked at, and the registers of matmuls.
    """

    def __init__(
        self, tensors: list[Tensor], blocks: int, threads: int, shared: int, local: int,
        parameters: bytes, clocks: Clocks, findings: Findings, granule: int, first_block: int,
        lines: dict[int, Instruction], arrays: dict[int, Array], ordered: bool = True,
    ) -> None:  # fmt: skip
        self.tensors, self.blocks, self.threads = tensors, blocks, threads
        self.flags, self.arrays = Flags(clocks), arrays
        self.clocks, self.findings, self.first_block = clocks, findings, first_block
        self.granule, self.lines, self.ordered = granule, lines, ordered
        self.shift, self.counted = np.array(granule.bit_length() - 1), np.arange(64)
        self.warps_per_block = clocks.per_block
        sizes = [-(-t.data.nbytes // 256) * 256 for t in tensors]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.lengths = np.array([t.data.nbytes for t in tensors], np.int64)
        self.spaces = {
            "global": self._undefined(int(self.starts[-1])),
            "shared": self._undefined(blocks * shared),
            "local": self._undefined(blocks * threads * local),
        }
        self.views: dict[tuple[str, int], Values] = {}
        self.shared_bytes, self.local_bytes = shared, local
        self.parameters = np.frombuffer(parameters.ljust(8, b"\0"), np.uint8)
        self.history = {
            "global": History(int(self.starts[-1]) // granule + 1, clocks, True),
            "shared": History(blocks * shared // granule + 1, clocks, False),
        }
        self.set = {space: np.zeros(held.shape[1], np.bool_) for space, held in self.spaces.items()}
        for start, tensor in zip(self.starts, tensors, strict=False):
            part = slice(int(start), int(start) + tensor.data.nbytes)
            here = np.True_ if tensor.set is None else tensor.set
            self.set["global"][part] = here
            held, data = self.spaces["global"][:, part], tensor.data.reshape(-1).view(np.uint8)
            held[...] = np.where(here, data, held)
        self.unset: Finding | None = None
        # By the PTX line of a load, for each of its first executions: the lines that wrote what it
        # read; 0 where nothing did.
        self.carried: dict[int, list[Values]] = {}

    @staticmethod
    def _undefined(size: int) -> Values:
        out = np.empty((2, -(-size // 256) * 256), np.uint8)
        for world, word in enumerate(UNDEFINED):
            out[world] = np.resize(word, out.shape[1])
        return out

    def address(self, tensor: int) -> int:
        """The generic address of a tensor's first byte."""
        return GLOBAL + (tensor << WINDOW) + HALF

    def give_back(self) -> None:
        """The tensors hold what the run left in them, as the first world has it."""
        for start, tensor in zip(self.starts, self.tensors, strict=False):
            part = slice(int(start), int(start) + tensor.data.nbytes)
            if tensor.data.flags.writeable:
                tensor.data.reshape(-1).view(np.uint8)[:] = self.spaces["global"][0, part]
                if tensor.set is not None:
                    # What differs in the two worlds is undefined, for the next one to read it.
                    first, second = self.spaces["global"][:, part]
                    tensor.set[:] = self.set["global"][part] & (first == second)
                    lines = self.history["global"].write_line
                    tensor.lines = lines, int(start), self.granule

    # Checks.

    def same(self, values: Values, lanes: Lanes, at: Instruction, what: str) -> Values:
        """The first world's values; a finding where the second one's differ."""
        first: Values = values[0]
        differs = first != values[1]
        if np.count_nonzero(differs):
            k = int(differs.reshape(len(lanes), -1).any(1).argmax())
            self.report_undefined(at, what, int(lanes.threads[k]))
        return first

    def output(self, values: Values, offset: Values, threads: Values, at: Instruction) -> None:
        """A finding where the worlds' values for these places in global memory differ, one for each
        thread; in the launcher's own workspace they may, and are looked at where they are used."""
        differs = values[0] != values[1]
        if np.count_nonzero(differs):
            differs = differs.reshape(len(threads), -1).any(1)
            tensors = np.searchsorted(self.starts, offset, "right") - 1
            differs &= ~np.array([*(t.workspace for t in self.tensors), False])[tensors]
            if np.count_nonzero(differs):
                thread = int(threads[int(differs.argmax())])
                self.report_undefined(at, "an output", thread)

    def report_undefined(self, at: Instruction, what: str, thread: int) -> None:
        words = f"{what} depends on a value that nothing defined"
        cause = self.unset
        other = None if cause is None else cause.at
        if cause is not None:
            words += f"; {cause.words}"
        self.report("undefined value", at, words, thread, other)

    def report(
        self, kind: str, at: Instruction, words: str, thread: int, other: Instruction | None = None
    ) -> None:
        block, own = divmod(thread, self.threads)
        self.findings.add(kind, at, words, (self.first_block + block, own), other)

    def place(
        self, space: str, address: Values, size: int, lanes: Lanes, at: Instruction, verb: str
    ) -> tuple[str, Values, np.ndarray[Any, Any]]:
        """Where `size` bytes at each lane's address lie: the space, offsets in it, and which exist.

        Args:
            space: `global`, `shared`, `local`, or "" for a generic address.
            address: [2, lanes], bytes.
        """
        where = self.same(address, lanes, at, "an address").astype(np.int64, copy=False)
        if space == "":
            space, where = self.generic(where, at)
        far, array, begin = None, None, 0
        if space == "shared":
            length, start = self.shared_bytes, lanes.base(self.threads, self.shared_bytes)
            if array := self.arrays.get(at.line):
                begin, length = array.begin, array.size
        elif space == "local":
            length, start = self.local_bytes, lanes.base(1, self.local_bytes)
        else:
            tensor = (int(where[0]) - GLOBAL) >> WINDOW
            if not 0 <= tensor < len(self.tensors):
                return self._far(where, size, lanes, at, verb)
            length, start, far = int(self.lengths[tensor]), self.starts[tensor], where
            where = where - (GLOBAL + (tensor << WINDOW) + HALF)
        # Seen without a sign, what is below 0 is beyond every length.
        within = where - begin if begin else where
        inside = within.view(np.uint64) < np.uint64(max(length - size + 1, 0))
        if np.count_nonzero(inside) < len(inside):
            if far is not None:
                return self._far(far, size, lanes, at, verb)
            k = int((~inside).argmax())
            name = f"{array.spelled}, which has {length}" if array else self.name(space, -1)
            words = f"{verb} {size} bytes at byte {int(within[k])} of {name}"
            self.report("out of bounds", at, words, int(lanes.threads[k]))
        self._aligned(space, where, size, inside, lanes, at, verb)
        return space, where + start, inside

    def _far(
        self, where: Values, size: int, lanes: Lanes, at: Instruction, verb: str
    ) -> tuple[str, Values, np.ndarray[Any, Any]]:
        """The same in global memory, of lanes that are at several tensors, or at none."""
        tensor = (where - GLOBAL) >> WINDOW
        known = (tensor >= 0) & (tensor < len(self.tensors))
        tensor = np.where(known, tensor, 0)
        where = where - GLOBAL - (tensor << WINDOW) - HALF
        inside = known & (where >= 0)
        if len(self.tensors):
            inside &= where + size <= self.lengths[tensor]
        if not inside.all():
            k = int((~inside).argmax())
            name = self.name("global", int(tensor[k]) if known[k] else -1)
            words = f"{verb} {size} bytes at byte {int(where[k])} of {name}"
            self.report("out of bounds", at, words, int(lanes.threads[k]))
        self._aligned("global", where, size, inside, lanes, at, verb)
        return "global", self.starts[tensor] + where, inside

    def _aligned(
        self, space: str, where: Values, size: int, inside: np.ndarray[Any, Any], lanes: Lanes,
        at: Instruction, verb: str,
    ) -> None:  # fmt: skip
        """Takes those out of `inside` whose address is no multiple of the size: a finding."""
        off = where & ((size if size & (size - 1) == 0 else 16) - 1)
        if np.count_nonzero(off):
            k = int((off != 0).argmax())
            words = f"{verb} {size} bytes at byte {int(where[k])} of {space} memory"
            self.report("misaligned", at, words, int(lanes.threads[k]))
            inside &= off == 0

    def generic(self, where: Values, at: Instruction) -> tuple[str, Values]:
        """The space of generic addresses, and where in it they are."""
        spaces = where >> SPACE
        if np.count_nonzero(spaces != spaces[:1]) and int(spaces.max()) >= LOCAL >> int(SPACE):
            raise at.refused("lanes at several state spaces are not executed yet")
        if where[0] >= SHARED:
            return "shared", where - SHARED
        if where[0] >= LOCAL:
            return "local", where - LOCAL
        return "global", where

    def name(self, space: str, tensor: int) -> str:
        """What a finding calls a memory, with its size in bytes."""
        if space == "global":
            if tensor < 0:
                return "no tensor"
            return f"{self.tensors[tensor].name}, which has {int(self.lengths[tensor])}"
        has = self.shared_bytes if space == "shared" else self.local_bytes
        return f"{space} memory, which has {has}"

    def order(
        self, space: str, offset: Values, size: int, lanes: Lanes, at: Instruction, write: bool,
        kind: int = THREADS, proxy: bool = False, lane: int = -1, strong: bool = False,
    ) -> None:  # fmt: skip
        """Checks an access against what other agents did to these bytes, and notes it.

        Args:
            lane: SEVERAL or ALL, where the warp makes the access and not each lane for itself.
            strong: whether it does not race with others that are.
        """
        if space == "local" or not self.ordered:
            return
        each = max(size // self.granule, 1)
        granules = offset >> self.shift
        if each > 1:
            granules = (granules[:, None] + self.counted[:each]).reshape(-1)
        party = self.clocks.party(lanes, kind, each, lane)
        if space == "global" and at.has("volatile"):
            party = replace(party, volatile=True)
        history = self.history[space]
        if write:
            conflict = history.write(granules, party, at.line, strong)
        else:
            if len(looks := self.carried.setdefault(at.line, [])) < LOOKS:
                looks.append(np.unique(history.write_line[granules]))
            conflict = history.read(granules, party, at.line, proxy, strong)
        if conflict is not None:
            k = conflict.index // each
            verb = "writes" if write else "reads"
            past = "wrote" if conflict.verb == "wrote" else "read"
            words = f"{verb} {space} memory that another access {past}, and nothing orders the two"
            if conflict.lanes:
                words = (
                    f"{verb} {space} memory that another lane of the warp wrote, and no __syncwarp "
                    "orders the two"
                )
            if conflict.kind == "early read":
                words = f"{verb} {space} memory before an asynchronous copy was waited for"
                if conflict.waited:
                    words = (
                        f"{verb} {space} memory that an asynchronous copy of another warp wrote: "
                        "that warp waited for it, and no barrier stands between its wait and this"
                    )
            elif conflict.kind == "missing proxy fence":
                words = "the asynchronous proxy reads what was written without fence.proxy.async"
            other = self.lines.get(conflict.line)
            self.report(conflict.kind, at, words, int(lanes.threads[k]), other)

    # Accesses.

    def load(
        self, space: str, address: Values, size: int, lanes: Lanes, at: Instruction,
        lane: int = -1, meets: bool = False,
    ) -> tuple[str, Values, Values]:  # fmt: skip
        """Checks a load of `size` bytes for each lane: the space, the offsets, and which exist.

        Args:
            meets: whether warps and blocks meet here (`Flags`), rather than race.
        """
        space, offset, inside = self.place(space, address, size, lanes, at, "reads")
        if np.count_nonzero(inside) < len(inside):
            offset = np.where(inside, offset, 0)
        if meets and self.ordered:
            self.flags.meet(space, offset, lanes, at, True, False)
        self.order(space, offset, size, lanes, at, False, lane=lane, strong=meets)
        return space, offset, inside

    def unwritten(self, offset: Values, size: int, lanes: Lanes, at: Instruction) -> None:
        """A finding where a load that takes global memory for read-only, for as long as the kernel
        runs (PTX ISA, "ld.global.nc"), reads what the kernel wrote."""
        history, each = self.history["global"], max(size // self.granule, 1)
        granules = offset >> self.shift
        if each > 1:
            granules = (granules[:, None] + self.counted[:each]).reshape(-1)
        wrote = history.writer.take(granules) >= 0
        if np.count_nonzero(wrote):
            k = int(wrote.argmax())
            words = "reads what the kernel wrote, by a load for what no kernel writes (__ldg)"
            line = int(history.write_line[granules[k]])
            self.report("race", at, words, int(lanes.threads[k // each]), self.lines.get(line))

    def read(self, space: str, offset: Values, item: int) -> Values:
        """Items of `item` bytes at offsets: [2, ...]."""
        out: Values = self.items(space, item).take(offset >> SHIFTS[item], 1)
        return out

    def items(self, space: str, item: int) -> Values:
        """A memory as items of so many bytes: [2, ...]."""
        found = self.views.get((space, item))
        if found is None:
            found = self.views[space, item] = self.spaces[space].view(np.dtype(f"u{item}"))
        return found

    def own(self, address: Values, size: int) -> int | None:
        """The byte that all lanes access of their own local memory; None where it is not one for
        all, or there is none: `load` and `store` say what it is then.

        Args:
            address: [2, lanes], in local space.
        """
        first = int(address[0, 0])
        aligned = first % (size if size & (size - 1) == 0 else 16) == 0
        if not aligned or not 0 <= first <= self.local_bytes - size:
            return None
        return None if np.count_nonzero(address != first) else first

    def frames(self, type: np.dtype[Any]) -> tuple[Values, Values]:
        """Local memory as items of a type, [2, threads, items], and which of its bytes hold a
        value, [threads, bytes]."""
        threads = self.blocks * self.threads
        used = slice(0, threads * self.local_bytes)
        items = self.spaces["local"][:, used].view(type).reshape(2, threads, -1)
        return items, self.set["local"][used].reshape(threads, -1)

    def note_unset(self, space: str, offset: Values, size: int, at: Instruction) -> None:
        """Remembers the first load of bytes that nothing wrote: a cause to name later."""
        if self.unset is not None:
            return
        if size <= self.granule:  # what no store leaves in part
            self.note_read(space, self.set[space][offset], at)
            return
        item = min(size, 8)
        for start in range(0, size, item):
            known = self.set[space].view(f"u{item}")[offset + start >> SHIFTS[item]]
            self.note_read(space, known == WHOLE[item], at)

    def note_read(self, space: str, known: Values, at: Instruction) -> None:
        """The same of a load that knows which of its bytes hold a value."""
        if self.unset is None and not known.all():
            self.unset = Finding(
                "undefined value", at, f"{space} memory was read before a defined value was written"
            )

    def store(
        self, space: str, address: Values, size: int, lanes: Lanes, at: Instruction,
        lane: int = -1, meets: bool = False,
    ) -> tuple[str, Values, Any]:  # fmt: skip
        """Checks a store of `size` bytes for each lane: the space, the offsets, and which exist."""
        space, offset, inside = self.place(space, address, size, lanes, at, "writes")
        if np.count_nonzero(inside) < len(inside):
            kept = lanes.where(inside)
            if kept is None:
                return space, offset[:0], inside
            offset, lanes = offset[inside], kept
        if meets and self.ordered:
            self.flags.meet(space, offset, lanes, at, False, True)
        self.order(space, offset, size, lanes, at, True, lane=lane, strong=meets)
        return space, offset, inside

    def write(self, space: str, offset: Values, values: Values, item: int) -> None:
        """Writes items at offsets, [2, ...], and notes that they are set."""
        index = offset >> SHIFTS[item]
        held = self.items(space, item)
        held[:, index] = values
        self.mark(space, index, held.dtype)

    def lost(
        self, space: str, offset: Values, values: Values, item: int, lanes: Lanes, at: Instruction
    ) -> None:
        """A finding where lanes of one store wrote different values to one place."""
        now = self.items(space, item)[0][offset >> SHIFTS[item]]
        if np.count_nonzero(now != values[0]):
            words = f"threads write different values to one place of {space} memory at once"
            k = int((now != values[0]).argmax())
            self.report("race", at, words, int(lanes.threads[min(k, len(lanes) - 1)]), at)

    def mark(self, space: str, index: Values, type: np.dtype[Any]) -> None:
        """Notes that the items of a type at these places hold a value."""
        self.set[space].view(type)[index] = (
            np.array(1, np.uint8).repeat(type.itemsize).view(type)[0]
        )
