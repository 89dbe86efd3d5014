"""Where a shared tile's bytes lie: puns between shapes, alignment, and the room for rounding up."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from helpers import exact_error, faults, golden_text, make_inputs, path_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.cuir.arch import archs
from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.execute.state.shared_memory import Access, Region, SharedMemory
from engine.cuir.parser import parse_module
from engine.cuir.types import SharedType

HOPPER, SM80 = golden_text("hopper_pingpong"), golden_text("sm80_flash")
FEW = Limits(sm_count=3)
SIZE = 12288


@dataclass(frozen=True)
class Touch:
    """A write or a read of rows first..last of a tile of 128-byte columns; bytes."""

    write: bool
    rows: int
    panels: int
    start: int
    first: int
    last: int

    @property
    def type(self):
        return SharedType("bf16", self.rows, 64 * self.panels)

    def places(self, by_panels):
        """(byte row by row, byte as the header lays it) of each 16 bytes that are touched."""
        pitch = 128 * self.panels
        for row in range(self.first, self.last):
            for chunk in range(8 * self.panels):
                if by_panels:  # sm90_async.cuh: SharedTile
                    lies = chunk // 8 * self.rows * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16
                else:  # shared.cuh: Shared::chunk
                    lies = row * pitch + (chunk ^ row % 8) * 16
                yield self.start + row * pitch + chunk * 16, self.start + lies


def touches(align):
    """Of few tiles, which overlap in many ways: all rows, or eight of them."""
    sizes = st.tuples(st.sampled_from((8, 16, 24)), st.integers(1, 3), st.integers(0, 2))
    tiles = sizes.flatmap(
        lambda of: st.tuples(st.booleans(), st.integers(0, of[0] // 8)).map(
            lambda how: Touch(
                how[0], *of[:2], align * of[2], 8 * max(0, how[1] - 1), 8 * how[1] or of[0]
            )
        )
    )
    return st.lists(tiles, max_size=10)


# Eight rows of a wide tile lie in two places, a tile of eight rows in one: what each leaves of the
# other, and what a third one has put there meanwhile.
EIGHT, BEHIND = (8, 2, 0, 0, 8), (8, 2, 2048, 0, 8)
OF_SIXTEEN, SIXTEEN = (16, 2, 0, 0, 8), (16, 2, 0, 0, 16)
LEFT = [
    [Touch(True, *EIGHT), Touch(True, *OF_SIXTEEN), Touch(False, *EIGHT)],
    [Touch(True, *SIXTEEN), Touch(True, *EIGHT), Touch(False, *OF_SIXTEEN)],
    [Touch(True, *OF_SIXTEEN), Touch(True, *BEHIND), Touch(True, *EIGHT), Touch(False, *BEHIND)],
]


def findings_and_hardware(trace, by_panels):
    """What is found at each read, and what the header's layout says of it."""
    found = []
    memory = SharedMemory(
        SIZE, 1, torch.float64, lambda kind, *rest: found.append(kind), panels=by_panels
    )
    clock = np.ones(1, np.int32)
    kept, lying = {}, {}
    for step, touch in enumerate(trace):
        who = Access(0, 1, 0, clock, step, step, 0)
        region = memory.region(touch.type, touch.start, rows=(touch.first, touch.last))
        places = list(touch.places(by_panels))
        if touch.write:
            memory.write(region, who, "bf16", fenced=True)
            for place, lies in places:
                kept[place] = lying[lies] = (step, place)
            continue
        memory.read(region, who, "bf16", through_async=False)
        if any(lies not in lying for _, lies in places):
            wanted = ["early_read"]
        elif any(kept.get(place) != lying[lies] for place, lies in places):
            wanted = ["punned_read"]
        else:
            wanted = []
        yield found.copy(), wanted
        found.clear()


@settings(max_examples=300, deadline=None)
@given(touches(1024))
@example(LEFT[0])
@example(LEFT[1])
@example(LEFT[2])
def test_a_pun_is_found_exactly_where_panels_hold_something_else(trace):
    for found, wanted in findings_and_hardware(trace, by_panels=True):
        assert found == wanted


@settings(max_examples=300, deadline=None)
@given(touches(128))
def test_a_pun_is_found_exactly_where_swizzled_rows_hold_something_else(trace):
    for found, wanted in findings_and_hardware(trace, by_panels=False):
        assert found == wanted


def test_another_element_type_and_a_word_are_found():
    found = []
    memory = SharedMemory(4096, 1, torch.float64, lambda kind, *rest: found.append(rest[2]),
                          panels=True)  # fmt: skip
    who = Access(0, 1, 0, np.ones(1, np.int32), 0, 0, 0)
    numbers, tile = SharedType("i32", 8, 32), SharedType("bf16", 8, 64)
    memory.write(memory.region(numbers, 0), who, "i32", fenced=True)
    memory.read(memory.region(tile, 0), who, "bf16", through_async=False)
    memory.write(memory.region(tile, 0), who, "bf16", fenced=True)
    memory.write(Region(3, 4), who, "i32", fenced=True)  # as `post` does
    memory.read(Region(3, 4), who, "i32", through_async=False)
    assert found == ["reads bf16 where another element type was written"]
    memory.read(memory.region(tile, 0), who, "bf16", through_async=False)
    memory.read(Region(4, 5), who, "i32", through_async=False)
    assert [text.split()[1] for text in found[1:]] == ["bf16", "i32"]


# --- programs --------------------------------------------------------------------------------

Q_LOAD = "tma_load(sQ[g], q_map, [0, q0 + g * 64, h, b], q_full[g])"
K_LOAD = "tma_load(sK[stage], k_map, [0, n * BN, h_kv, b], k_full[stage])"
V_LOAD = "tma_load(sV[stage], v_map, [0, n * BN, h_kv, b], v_full[stage])"
S_GEMM = "gemm_async_init(s, sQ[group], transpose(sK[stage]))"
O_GEMM = "gemm_async(o, p, sV[stage])"
O_STORE = "tma_store(o_map, [0, row0, h, b], sO[group])"
SHARED = "* sizeof(T) + 1024 + 128)"
D128 = ("T=bf16, D=64", "T=bf16, D=128")
HALVES = (
    ("    sQ = shared_stages[T, GROUPS, 64, D](0)\n",
     "    sQ = shared_stages[T, GROUPS, 64, D](0)\n"
     "    sH = shared_stages[T, 2 * GROUPS, 32, D](0)\n"),
    (f"{' ' * 24}{Q_LOAD}\n",
     f"{' ' * 24}tma_load(sH[2 * g], q_map, [0, q0 + g * 64, h, b], q_full[g])\n"
     f"{' ' * 24}tma_load(sH[2 * g + 1], q_map, [0, q0 + g * 64 + 32, h, b], q_full[g])\n"),
    ("[args.B, args.Hq, args.Nq, D], box=[64, D], swizzle=128)\n    k_map",
     "[args.B, args.Hq, args.Nq, D], box=[32, D], swizzle=128)\n    k_map"),
)  # fmt: skip
OUT_HALVES = (
    ("    sO = shared_stages[T, GROUPS, 64, D](O_AT)\n",
     "    sO = shared_stages[T, GROUPS, 64, D](O_AT)\n"
     "    sH = shared_stages[T, 2 * GROUPS, 32, D](O_AT)\n"),
    (f"{' ' * 16}{O_STORE}\n",
     f"{' ' * 16}tma_store(o_map, [0, row0, h, b], sH[2 * group])\n"
     f"{' ' * 16}tma_store(o_map, [0, row0 + 32, h, b], sH[2 * group + 1])\n"),
    ("args.Nq, D], box=[64, D], swizzle=128)\n    return",
     "args.Nq, D], box=[32, D], swizzle=128)\n    return"),
)  # fmt: skip
# Threads alone use the tile: any 16 bytes do, and it reaches global memory without the TMA.
BY_THREADS = (
    ("    sO = shared_stages[T, GROUPS, 64, D](O_AT)\n",
     "    sO = shared_stages[T, GROUPS, 64, D](O_AT + 16)\n"
     "    O = gmem[T](args.o, args.B, args.Hq, args.Nq, D)\n"),
    ("BARRIERS_AT = O_AT + BM * D * sizeof(T)", "BARRIERS_AT = O_AT + BM * D * sizeof(T) + 16"),
    (f"            if elect():\n                {O_STORE}\n                tma_commit()\n",
     "            copy(O[b, h, row0:], sO[group])\n"),
)  # fmt: skip


def edited(text, *changes):
    for old, new in changes:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return parse_module(text)


def run(module, D=64, **shape):
    inputs = make_inputs(**{"Nq": 200, "Nk": 300, "D": D} | shape)
    return run_program(module, inputs, "exact", Schedule(1), FEW), inputs


def clean(module, D=64):
    assert faults(module) == ()
    outcome, inputs = run(module, D)
    assert outcome.clean, outcome.findings
    assert max(exact_error(outcome.outputs, inputs)) < 1e-10
    return True


# name: (changes, where it is read)
PUNS = {
    "loaded as halves, multiplied whole": (HALVES, S_GEMM),
    "stored whole, copied out as halves": (
        OUT_HALVES, "tma_store(o_map, [0, row0, h, b], sH[2 * group])"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUNS)
def test_a_tile_read_as_another_is_found_where_it_is_read(name):
    changes, statement = PUNS[name]
    module = edited(HOPPER, D128, *changes)
    outcome, _ = run(module, 128)
    found = [(f.kind, f.path) for f in outcome.findings]
    assert {kind for kind, _ in found} == {"punned_read"}
    assert set(path_of(module, statement)) & {path for _, path in found}
    assert "another shape" in outcome.findings[0].message


@pytest.mark.parametrize("name", PUNS)
def test_parts_whose_bytes_lie_as_the_whole_tile_s_are_no_pun(name):
    """With 64 columns there is one panel: half the rows lie where the whole tile has them."""
    assert clean(edited(HOPPER, *PUNS[name][0]))


def test_the_golden_program_with_two_panels_is_clean():
    assert clean(edited(HOPPER, D128), 128)


COPY_OUT = "    copy(O[b, h, q0:], sO)\n"


@pytest.mark.parametrize(("rows", "kinds"), [(1, {"punned_read"}), (8, set())])
def test_rows_are_swizzled_by_their_number_in_their_tile(rows, kinds):
    """On sm_80 a tile that starts some rows later is another unless these are eight, or sixteen."""
    module = edited(
        SM80,
        ("    sO = shared[T, BM, D](0)\n",
         "    sO = shared[T, BM, D](0)\n"
         f"    sL = shared[T, BM - 8, D]({rows} * D * sizeof(T))\n"),
        (COPY_OUT, f"    copy(O[b, h, q0 + {rows}:], sL)\n"),
    )  # fmt: skip
    outcome, _ = run(module)
    assert {f.kind for f in outcome.findings} == kinds
    assert {f.path for f in outcome.findings} <= set(
        path_of(module, f"copy(O[b, h, q0 + {rows}:], sL)")
    )


@pytest.mark.parametrize("arch", ["sm_86", "sm_90", "sm_120"])
def test_the_sm80_program_is_clean_and_needs_no_more_memory_on_later_archs(arch):
    assert clean(edited(SM80, ("arch='sm_80'", f"arch='{arch}'")))


# --- alignment -------------------------------------------------------------------------------


def moved(name, by):
    """The tiles `name` by so many bytes, with room for it behind the last."""
    line = next(s for s in HOPPER.split("\n") if s.startswith(f"    {name} = "))
    at = "0" if name == "sQ" else f"{name[1]}_AT"
    return (
        (line, line.replace(f"({at})", f"({at} + {by})")),
        ("BARRIERS_AT = O_AT + BM", "BARRIERS_AT = O_AT + 1024 + BM"),
        (SHARED, SHARED.replace("1024", "2048")),
    )


USES = {"sQ": (Q_LOAD, S_GEMM), "sK": (K_LOAD, S_GEMM), "sV": (V_LOAD, O_GEMM), "sO": (O_STORE,)}


@pytest.mark.parametrize("by", [16, 512])
@pytest.mark.parametrize("name", USES)
def test_a_tile_that_the_async_proxy_cannot_take_is_found_at_each_use(name, by):
    module = edited(HOPPER, *moved(name, by))
    found = [(f.kind, f.path) for f in faults(module)]
    assert {kind for kind, _ in found} == {"misaligned"}
    for statement in USES[name]:
        assert set(path_of(module, statement)) <= {path for _, path in found}
    outcome, _ = run(module)
    assert outcome.findings[-1].kind == "misaligned"
    assert outcome.findings[-1].path in {p for s in USES[name] for p in path_of(module, s)}


def test_a_column_view_is_aligned_as_its_tile():
    wide = S_GEMM.replace("sQ[group]", "columns[48](sQ[group])").replace(
        "sK[stage]", "columns[48](sK[stage])"
    )
    module = edited(HOPPER, (S_GEMM, wide), *moved("sK", 16))
    found = [(f.kind, f.path) for f in faults(module)]
    assert ("misaligned", path_of(module, wide)[0]) in found


def test_an_offset_known_when_it_runs_alone_is_judged_then():
    module = edited(HOPPER, *moved("sO", "args.Nk % 2 * 16"))
    assert faults(module) == ()
    assert run(module)[0].clean
    outcome, _ = run(module, Nk=301)
    assert outcome.status == "failed"
    assert [(outcome.findings[-1].kind, outcome.findings[-1].path)] == [
        ("misaligned", path_of(module, O_STORE)[0])
    ]


def test_a_tile_that_threads_alone_use_starts_at_any_16_bytes():
    assert clean(edited(HOPPER, *BY_THREADS))


def test_an_aligned_tile_elsewhere_is_clean():
    assert clean(edited(HOPPER, *moved("sV", 0)))


def test_sm80_tiles_start_at_any_16_bytes():
    module = edited(
        SM80,
        ("sK = shared_stages[T, STAGES, BN, D](BM * D * sizeof(T))",
         "sK = shared_stages[T, STAGES, BN, D](BM * D * sizeof(T) + 16)"),
        ("sV = shared_stages[T, STAGES, BN, D]((BM + STAGES * BN) * D * sizeof(T))",
         "sV = shared_stages[T, STAGES, BN, D]((BM + STAGES * BN) * D * sizeof(T) + 16)"),
        ("shared=(BM + 2 * STAGES * BN) * D * sizeof(T))",
         "shared=(BM + 2 * STAGES * BN) * D * sizeof(T) + 16)"),
    )  # fmt: skip
    assert clean(module)


def test_archs_with_an_async_proxy_say_what_its_tiles_need():
    for arch in archs().values():
        assert arch.async_tile == (1024 if arch.has("tma") or arch.has("wgmma") else 0)


# --- room for rounding the start up ----------------------------------------------------------

BARRIERS = 16 * 2 + 32 * 2  # bytes of the golden program's mbarriers
LAST = "v_empty = mbarriers[STAGES](BARRIERS_AT + 16 * GROUPS + 24 * STAGES)"


def test_a_launch_that_leaves_room_for_rounding_up_is_clean():
    assert clean(edited(HOPPER, (SHARED, f"* sizeof(T) + {BARRIERS + 1023})")))


@pytest.mark.parametrize(
    ("bytes", "statement"),
    [(BARRIERS + 1022, LAST), (128, "sO = shared_stages[T, GROUPS, 64, D](O_AT)")],
)
def test_a_launch_without_room_for_rounding_up_is_found(bytes, statement):
    module = edited(HOPPER, (SHARED, f"* sizeof(T) + {bytes})"))
    wanted = ("out_of_bounds", path_of(module, statement)[0])
    found = [(f.kind, f.path) for f in faults(module)]
    assert wanted in found and found[0] == wanted
    assert "1023" in faults(module)[0].message
    outcome, _ = run(module)
    assert outcome.status == "failed"
    assert (outcome.findings[-1].kind, outcome.findings[-1].path) == wanted
    assert outcome.findings[-1].message == faults(module)[0].message
