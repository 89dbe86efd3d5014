"""Moving data: registers, memory, atomics (PTX ISA, "Data Movement and Conversion")."""

from __future__ import annotations

import numpy as np

from engine.ptx.between import fences_gpu
from engine.ptx.decode import Decoder, Site
from engine.ptx.flags import decides_alone
from engine.ptx.floats import from_half, halves, to_half
from engine.ptx.isa.arithmetic import HALVES, Function
from engine.ptx.lanes import Lanes
from engine.ptx.machine import Run
from engine.ptx.memory import LOCAL, PARAM, SHARED
from engine.ptx.registers import Values, dtype
from engine.ptx.syntax import Address, Instruction, Register, Special, Symbol, Vector, width

SPACES = ("global", "shared", "local", "param", "const", "shared::cta", "shared::cluster",
          "param::entry", "param::func")  # fmt: skip
CACHE = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_last", "L1::evict_first",
         "L1::no_allocate", "L1::evict_normal", "L1::evict_unchanged", "L2::64B", "L2::128B",
         "L2::256B", "L2::cache_hint", "L2::evict_last", "L2::evict_first")  # fmt: skip
ORDER = ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu",
         "sys")  # fmt: skip
MEETS = ("volatile", "relaxed", "acquire", "release")
# Time, which here is the number of instructions executed so far.
CLOCKS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")
VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def meeting(at: Instruction) -> bool:
    """Whether blocks meet at an access: at a count or a flag, which may be seen before it is
    written. A float is data: one that nothing orders is a race, volatile or not."""
    return any(at.has(m) for m in MEETS) and not at.type.startswith("f")


def space_of(site: Site) -> str:
    """The state space of an access, "" for a generic address."""
    found = [m for m in site.at.modifiers if m in SPACES]
    name = found[0] if found else ""
    if name == "const":
        return "global"
    return "shared" if name.startswith("shared") else "param" if name.startswith("param") else name


def _mov(site: Site) -> Run:
    site.takes()
    site.count(2)
    target, source, type = site.operand(0), site.operand(1), site.type
    if isinstance(target, Vector) or isinstance(source, Vector) or type == "b128":
        return _pack(site)
    if isinstance(source, Symbol):
        place = site.machine.symbols.get(source.name)
        if place is None:
            raise site.refuse(f"the address of {source.name} is not known")
        put, constant = site.store(), site.registers.constant(place, type)
        return lambda lanes: put(lanes, constant[:, : len(lanes)])
    if isinstance(source, Special) and source.name.startswith("%envreg"):
        raise site.refuse("a barrier of the whole grid (cooperative groups) is not executed yet")
    if isinstance(source, Special) and source.name in CLOCKS:
        put, machine, held = site.store(), site.machine, dtype(type)
        return lambda lanes: put(lanes, np.full((2, len(lanes)), machine.executed, held))
    fetch, put = site.fetch(1), site.store()
    return lambda lanes: put(lanes, fetch(lanes))


def _pack(site: Site) -> Run:
    """`mov` between one wide register and several narrow ones, the lowest bits first."""
    wide, one = site.operand(0), site.operand(1)
    if isinstance(wide, Vector) and isinstance(one, Register):
        size = width(site.type) // len(wide.items)
        source = site.registers.array(one.name)
        puts = site.stores(0, f"b{8 * size}")

        def unpack(lanes: Lanes) -> None:
            parts = lanes.of(source)
            narrow = np.ascontiguousarray(parts).view(np.dtype(f"u{size}"))
            narrow = narrow.reshape(2, len(lanes), len(puts))
            for k, put in enumerate(puts):
                put(lanes, narrow[..., k])

        return unpack
    if isinstance(one, Vector) and isinstance(wide, Register):
        size = width(site.type) // len(one.items)
        fetches = site.fetches(1, f"b{8 * size}")
        array = site.registers.array(wide.name)
        held = np.dtype(np.uint64) if site.type == "b128" else dtype(site.type)

        def pack(lanes: Lanes) -> None:
            narrow = np.stack([f(lanes) for f in fetches], -1)
            out = np.ascontiguousarray(narrow).view(held)
            lanes.put(array, out if site.type == "b128" else out[..., 0])

        return pack
    if isinstance(wide, Register) and isinstance(one, Register):
        to, whence = site.registers.array(wide.name), site.registers.array(one.name)

        def copy(lanes: Lanes) -> None:
            lanes.put(to, lanes.of(whence))

        return copy
    raise site.refuse("this move is not executed yet")


def _cvta(site: Site) -> Run:
    """Between an address in a state space and a generic one."""
    site.takes("to", SPACES)
    space = space_of(site)
    base = {"shared": SHARED, "local": LOCAL, "param": PARAM}.get(space, 0)
    step = np.uint64((-base if site.at.has("to") else base) & (1 << 64) - 1)
    operand = site.operand(1)
    put, type = site.store(), site.type
    if isinstance(operand, Symbol):
        place = site.machine.symbols.get(operand.name)
        if place is None:
            raise site.refuse(f"the address of {operand.name} is not known")
        constant = site.registers.constant(place + int(step), type)
        return lambda lanes: put(lanes, constant[:, : len(lanes)])
    fetch = site.fetch(1)
    # In shared space an address has 32 bits that count; generic ones have 64.
    low = np.uint64(0xFFFFFFFF if space == "shared" and site.at.has("to") else (1 << 64) - 1)
    if type == "u32":
        return lambda lanes: put(lanes, fetch(lanes))
    return lambda lanes: put(lanes, (fetch(lanes) + step) & low)


def _load_parameter(site: Site) -> Run:
    operand = site.operand(1)
    assert isinstance(operand, Address)
    size, puts = width(site.type), site.stores(0, site.type)
    results = {v.name for v in site.machine.kernel.variables if v.space == "param"}
    if isinstance(operand.base, Symbol) and operand.base.name in results:
        nothing = np.zeros((2, 1), dtype(site.type))  # what printf returns

        def result(lanes: Lanes) -> None:
            for put in puts:
                put(lanes, nothing)

        return result
    memory = site.machine.memory
    block = memory.parameters
    held = dtype(site.type)
    address = site.address(1)

    def load(lanes: Lanes) -> None:
        where = (
            memory.same(address(lanes), lanes, site.at, "an address").astype(np.int64)
            & 0xFFFFFFFFFF
        )
        for k, put in enumerate(puts):
            index = where[:, None] + k * size + np.arange(size)
            if int(index.max()) >= len(block):
                raise site.refuse("a read past the kernel's parameters")
            values = np.ascontiguousarray(block[index]).view(held)[:, 0]
            put(lanes, np.broadcast_to(values, (2, len(lanes))))

    return load


def _load(site: Site) -> Run:
    site.takes(SPACES, CACHE, ORDER, VECTORS)
    space = space_of(site)
    if space == "param":
        return _load_parameter(site)
    puts, address = site.stores(0, site.type), site.address(1)
    item, count = width(site.type), len(puts)
    size = item * count
    memory, at, held = site.machine.memory, site.at, dtype(site.type)
    steps = [np.array(k * item) for k in range(count)]
    own = memory.frames(held) if space == "local" else None
    meets, acquires = meeting(at), fences_gpu(at)
    read_only = at.has("nc")
    polled = meets and decides_alone(site.machine.kernel.code, at)

    def load(lanes: Lanes) -> None:
        if own is not None:
            first = memory.own(address(lanes), size)
            if first is not None:
                frames, known = own
                memory.note_read(space, known[lanes.at[1], first : first + size], at)
                for k, put in enumerate(puts, start=first // item):
                    put(lanes, lanes.of(frames[..., k]))
                return
        where, offset, _ = memory.load(space, address(lanes), size, lanes, at, meets=meets,
                                       polled=polled)  # fmt: skip
        if read_only:
            memory.unwritten(offset, size, lanes, at)
        if acquires:
            memory.clocks.fence_gpu(lanes.warps)
        memory.note_unset(where, offset, size, at)
        for step, put in zip(steps, puts, strict=True):
            put(lanes, memory.read(where, offset + step, item).view(held))

    return load


def _store(site: Site) -> Run:
    site.takes(SPACES, CACHE, ORDER, VECTORS)
    space = space_of(site)
    if space == "param":
        # Arguments of a call that only reports a failed assertion.
        return lambda lanes: None
    fetches, address = site.fetches(1, site.type), site.address(0)
    item, count = width(site.type), len(fetches)
    size = item * count
    memory, at = site.machine.memory, site.at
    bits = np.dtype(f"u{item}")
    own = memory.frames(bits) if space == "local" else None
    meets, releases = meeting(at), fences_gpu(at)

    def store(lanes: Lanes) -> None:
        if own is not None:
            first = memory.own(address(lanes), size)
            if first is not None:
                frames, known = own
                known[lanes.at[1], first : first + size] = True
                for k, fetch in enumerate(fetches, start=first // item):
                    lanes.put(frames[..., k], fetch(lanes).view(bits))
                return
        if releases:
            memory.clocks.fence_gpu(lanes.warps)
        where, offset, inside = memory.store(space, address(lanes), size, lanes, at, meets=meets)
        every = bool(inside.all())
        for k, fetch in enumerate(fetches):
            values = fetch(lanes)
            if where == "global":
                memory.same(values.view(bits), lanes, at, "an output")
            if not every:
                values = values[:, inside]
            memory.write(where, offset + k * item, values.view(bits), item)
            memory.lost(where, offset + k * item, values.view(bits), item, lanes, at)

    return store


_ATOMICS: dict[str, Function] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, new: new,
    "inc": lambda old, most: np.where(old >= most, 0, old + 1),
    "dec": lambda old, most: np.where((old == 0) | (old > most), most, old - 1),
}  # fmt: skip


def _halves_of(function: Function, type: str) -> Function:
    """A function of halves, alone or in pairs, as one of their bits."""
    kind, packed = type.removesuffix("x2"), type.endswith("x2")

    def of(*bits: Values) -> Values:
        wide = [from_half(halves(b) if packed else b, kind).astype(np.float64) for b in bits]
        out = np.ascontiguousarray(to_half(function(*wide), kind))
        return out.view(np.uint32)[..., 0] if packed else out

    return of


def _atom(site: Site) -> Run:
    """Atomics, one lane after another: the order that the ISA leaves open is the lanes'."""
    site.takes(SPACES, ORDER, CACHE, _ATOMICS, VECTORS, "cas", "noftz")
    swaps = site.at.has("cas")
    function = _ATOMICS[site.one(*_ATOMICS)] if not swaps else _swap
    space, type = space_of(site), site.type
    if type in HALVES and not (swaps or site.at.has("exch")):
        function = _halves_of(function, type)
    returns = site.at.name == "atom"
    first = 1 if returns else 0
    address, count = site.address(first), len(site.items(first + 1))
    operands = [site.fetches(k, type) for k in range(first + 1, first + (3 if swaps else 2))]
    puts = site.stores(0, type) if returns else None
    memory, at, item, held = site.machine.memory, site.at, width(type), dtype(type)
    clocks, gpu = memory.clocks, fences_gpu(at)

    def atomic(lanes: Lanes) -> None:
        where, offset, inside = memory.place(space, address(lanes), item * count, lanes, at,
                                             "updates")  # fmt: skip
        if gpu and not at.has("acquire"):
            clocks.fence_gpu(lanes.warps)
        if where == "global":
            clocks.meet(offset, lanes, True, True)
        elif kept := lanes.where(inside):
            memory.meet_warps(where, offset[inside], kept, at, True, True)
            memory.order(where, offset[inside], item * count, kept, at, True, strong=True)
        if gpu and not at.has("release"):
            clocks.fence_gpu(lanes.warps)
        for part in range(count):
            values = [fetches[part](lanes) for fetches in operands]
            old, made = np.zeros((2, len(lanes)), held), np.zeros((2, len(lanes)), f"u{item}")
            memory.note_unset(where, np.where(inside, offset, 0), item * count, at)
            for k in np.flatnonzero(inside):
                one, lane = offset[k : k + 1] + part * item, slice(k, k + 1)
                old[:, lane] = memory.read(where, one, item).view(held)
                new = function(old[:, lane], *(v[:, lane] for v in values)).astype(held)
                made[:, lane] = new.view(f"u{item}")
                memory.write(where, one, made[:, lane], item)
            if where == "global":
                memory.same(made, lanes, at, "an output")
            if puts is not None:
                puts[part](lanes, old)
        site.machine.events += 1

    return atomic


def _swap(old: Values, wanted: Values, new: Values) -> Values:
    return np.where(old == wanted, new, old)


def _nothing(site: Site) -> Run:
    """Hints that change no value."""
    return lambda lanes: None


OPS: dict[str, Decoder] = {
    "mov": _mov,
    "cvta": _cvta,
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atom,
    "red": _atom,
    "prefetch": _nothing,
    "prefetchu": _nothing,
    "applypriority": _nothing,
}
