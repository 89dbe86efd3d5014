"""The Hopper golden program and its broken copies, each reported at its op."""

import pytest
from helpers import exact_error, faults, golden, golden_text, make_inputs, path_of, typed_ok

from engine.cuir.execute import Limits, Schedule, run_program
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.cuir.static.check import check

TEXT = golden_text("hopper_pingpong")
FEW = Limits(sm_count=3)

SHAPES = [
    {"Nq": 128, "Nk": 128},
    {"Nq": 300, "Nk": 300},
    {"Nq": 213, "Nk": 403, "Hq": 4, "Hkv": 2, "B": 2},
    {"Nq": 1, "Nk": 1, "Hq": 6, "Hkv": 1},
    {"Nq": 300, "Nk": 0},
    {"Nq": 0, "Nk": 64},
]


def test_golden_text_is_canonical():
    assert print_module(golden("hopper_pingpong")) == TEXT


def test_golden_passes_the_static_checks():
    assert faults(golden("hopper_pingpong")) == ()
    # Its epilogue goes by way of shared memory, which no primitive of ours does.
    (finding,) = check(golden("hopper_pingpong"))
    assert finding.kind == "no_primitive" and "goes straight to global" in finding.message


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_exact_and_typed(shape, seed):
    inputs = make_inputs(**shape)
    module = golden("hopper_pingpong")
    exact = run_program(module, inputs, "exact", Schedule(seed), FEW)
    assert exact.status == "ran" and exact.findings == ()
    error, lse = exact_error(exact.outputs, inputs)
    assert error < 1e-10 and lse < 1e-10
    typed = run_program(module, inputs, "typed", Schedule(seed), FEW)
    assert typed.status == "ran" and typed.findings == ()
    assert typed_ok(typed.outputs, inputs)


def test_more_work_than_blocks():
    outcome = run_program(
        golden("hopper_pingpong"), make_inputs(Nq=300, Nk=100), limits=Limits(sm_count=2)
    )
    assert outcome.clean
    assert outcome.coverage.launches == [("flash_fwd", (2,))]
    assert not any(bool(outcome.outputs[name].isnan().any()) for name in ("o", "lse"))


def test_four_parts_to_a_warpgroup():
    inputs = make_inputs(Nq=130, Nk=130)
    outcome = run_program(golden("hopper_pingpong"), inputs, "exact", Schedule(3, parts=4), FEW)
    assert outcome.clean and exact_error(outcome.outputs, inputs)[0] < 1e-10


S_GEMM = "gemm_async_init(s, sQ[group], transpose(sK[stage]))"
O_GEMM = "gemm_async(o, p, sV[stage])"
K_LOAD = "tma_load(sK[stage], k_map, [0, n * BN, h_kv, b], k_full[stage])"
K_EXPECT = "arrive_expect(k_full[stage], BN * D * sizeof(T))"
NORMALISE = "o = map(o, l, lambda x, sum: 0.0 if sum == 0.0 else x * rcp_approx(sum))"
ROWS = {"Nq": 200, "Nk": 300}

# name: (old text, new text, kind, the statement it is reported at)
BROKEN = {
    "early read: no wait for the keys": (
        "                wait(k_full[stage], parity)\n", "", "early_read", S_GEMM),
    "early read: no wait for the values": (
        "                wait(v_full[stage], parity)\n", "", "early_read", O_GEMM),
    "overwritten stage: no wait for the empty stage": (
        "                    wait(k_empty[stage], 1 - parity)\n", "", "overwritten_stage", K_LOAD),
    "overwritten stage: released before the matmul is done": (
        "                mma_wait(0)\n                if elect():\n"
        "                    arrive(k_empty[stage])\n",
        "                if elect():\n                    arrive(k_empty[stage])\n"
        "                mma_wait(0)\n",
        "overwritten_stage", K_LOAD),
    "lost arrival: one warpgroup releases no keys": (
        "                if elect():\n                    arrive(k_empty[stage])\n",
        "                if elect() and wg == 1:\n                    arrive(k_empty[stage])\n",
        "lost_arrival", "wait(k_empty[stage], 1 - parity)"),
    "lost arrival: nobody releases values": (
        "                if elect():\n                    arrive(v_empty[stage])\n", "",
        "lost_arrival", "wait(v_empty[stage], 1 - parity)"),
    "doubled arrival: keys released twice": (
        "                    arrive(k_empty[stage])\n",
        "                    arrive(k_empty[stage])\n"
        "                    arrive(k_empty[stage])\n",
        "doubled_arrival", "arrive(k_empty[stage])"),
    "doubled arrival: the load arrives twice": (
        f"                    {K_EXPECT}\n",
        f"                    {K_EXPECT}\n                    arrive(k_full[stage])\n",
        "doubled_arrival", "arrive(k_full[stage])"),
    "wrong phase: the consumer waits for the other one": (
        "wait(k_full[stage], parity)", "wait(k_full[stage], 1 - parity)",
        "wrong_phase", "wait(k_full[stage], 1 - parity)"),
    "wrong phase: the phase never turns": (
        "wait(v_full[stage], parity)", "wait(v_full[stage], 0)",
        "wrong_phase", "wait(v_full[stage], 0)"),
    "wrong phase: the producer waits for an empty stage that is empty": (
        "wait(k_empty[stage], 1 - parity)", "wait(k_empty[stage], parity)",
        "wrong_phase", "wait(k_empty[stage], parity)"),
    "wrong byte count: too many": (
        K_EXPECT, "arrive_expect(k_full[stage], 2 * BN * D * sizeof(T))",
        "wrong_byte_count", "arrive_expect(k_full[stage], 2 * BN * D * sizeof(T))"),
    "wrong byte count: too few": (
        K_EXPECT, "arrive_expect(k_full[stage], BN * D)",
        "wrong_byte_count", "arrive_expect(k_full[stage], BN * D)"),
    "missing group wait: scores used in flight": (
        "                mma_wait(0)\n                if elect():\n"
        "                    arrive(k_empty[stage])\n",
        "                if elect():\n                    arrive(k_empty[stage])\n",
        "missing_group_wait", "m = row_max(s, m)"),
    "missing group wait: output used in flight": (
        "                mma_wait(0)\n                if elect():\n"
        "                    arrive(v_empty[stage])\n",
        "                if elect():\n                    arrive(v_empty[stage])\n",
        "missing_group_wait", NORMALISE),
    "missing matmul fence": (
        "                mma_fence()\n                gemm_async(o, p, sV[stage])\n",
        "                gemm_async(o, p, sV[stage])\n", "missing_mma_fence", O_GEMM),
    "missing proxy fence: output stored by threads": (
        "            fence_async()\n", "", "missing_proxy_fence",
        "tma_store(o_map, [0, row0, h, b], sO[group])"),
    "missing proxy fence: after the barrier": (
        "            fence_async()\n            named_sync(wg + GROUPS, 128)\n",
        "            named_sync(wg + GROUPS, 128)\n            fence_async()\n",
        "missing_proxy_fence", "tma_store(o_map, [0, row0, h, b], sO[group])"),
    "missing proxy fence: barriers set up": (
        "            fence_barrier_init()\n", "", "missing_proxy_fence",
        "tma_load(sQ[g], q_map, [0, q0 + g * 64, h, b], q_full[g])"),
    "output overwritten while it is stored": (
        "            if elect():\n                tma_wait(0)\n"
        "            named_sync(wg + GROUPS, 128)\n",
        "", "overwritten_stage", "store(sO[group], o)"),
    "wrong named-barrier count": (
        "named_sync(wg, 256)", "named_sync(wg, 128)", "wrong_named_count", "named_sync(wg, 128)"),
    "wrong named-barrier count: arrival": (
        "named_arrive(after, 256)", "named_arrive(after, 384)", "wrong_named_count",
        "named_arrive(after, 384)"),
    "wrong named-barrier count: nobody waits for it": (
        "                named_sync(wg, 256)\n", "", "wrong_named_count",
        "named_arrive(after, 256)"),
    "the block ends while its output is being stored": (
        "        if elect():\n            tma_wait(0)\n\n", "\n", "unfinished_copy",
        "tma_store(o_map, [0, row0, h, b], sO[group])"),
    "deadlock: nobody begins": (
        "        if wg == GROUPS:\n            named_arrive(1, 256)\n", "", "deadlock",
        "named_sync(wg, 256)"),
    "divergent collective: matmul by one thread": (
        "                gemm_async(o, p, sV[stage])\n",
        "                if elect():\n                    gemm_async(o, p, sV[stage])\n",
        "divergent_collective", O_GEMM),
    "divergent collective: sync by one role": (
        "        raise_registers(240)\n", "        raise_registers(240)\n        sync()\n",
        "divergent_collective", "sync()"),
    "barrier used before it is set up": (
        "            fence_barrier_init()\n    sync()\n", "            fence_barrier_init()\n",
        "uninitialised_barrier", "wait(q_full[group], rounds % 2)"),
    "out of bounds: keys of a head that does not exist": (
        "[0, n * BN, h_kv, b], k_full", "[0, n * BN, h_kv + args.Hkv, b], k_full",
        "out_of_bounds",
        "tma_load(sK[stage], k_map, [0, n * BN, h_kv + args.Hkv, b], k_full[stage])"),
    "out of bounds: a tile before the first": (
        "[0, n * BN, h_kv, b], v_full", "[0, (n - 1) * BN, h_kv, b], v_full", "out_of_bounds",
        "tma_load(sV[stage], v_map, [0, (n - 1) * BN, h_kv, b], v_full[stage])"),
    "a load by every thread": (
        "        lower_registers(24)\n        if elect():\n",
        "        lower_registers(24)\n        if wg == 0:\n", "not_elected",
        "tma_load(sQ[g], q_map, [0, q0 + g * 64, h, b], q_full[g])"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name):
    old, new, kind, statement = BROKEN[name]
    assert TEXT.count(old) == 1, TEXT.count(old)
    text = TEXT.replace(old, new)
    module = parse_module(text)
    for seed in (0, 1, 2):
        outcome = run_program(module, make_inputs(**ROWS), "exact", Schedule(seed), FEW)
        found = [(f.kind, f.path) for f in outcome.findings]
        assert any((kind, path) in found for path in path_of(module, statement)), outcome.findings


def _expected_after(text: str) -> str:
    """Each load before the arrival that tells its barrier of the bytes."""
    lines = text.splitlines(keepends=True)
    for at in range(len(lines) - 1):
        if "arrive_expect(" in lines[at] and "tma_load(" in lines[at + 1]:
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
    return "".join(lines)


AFTER = _expected_after(TEXT)


def test_bytes_may_be_expected_after_the_load():
    """The arrival is pending until then, so the phase cannot complete before it is told."""
    assert AFTER.count("arrive_expect(") == 3 and AFTER != TEXT
    for seed in (0, 1, 2):
        inputs = make_inputs(**ROWS)
        outcome = run_program(parse_module(AFTER), inputs, "exact", Schedule(seed), FEW)
        assert outcome.clean, outcome.findings
        assert exact_error(outcome.outputs, inputs)[0] < 1e-10


# The same faults with the load first, and loads that no arrival tells of: (text, old, new)
MISCOUNTED = {
    "too many": (AFTER, K_EXPECT, "arrive_expect(k_full[stage], 2 * BN * D * sizeof(T))"),
    "too few": (AFTER, K_EXPECT, "arrive_expect(k_full[stage], BN * D)"),
    "none": (AFTER, K_EXPECT, "arrive(k_full[stage])"),
    "none, before the load": (TEXT, K_EXPECT, "arrive(k_full[stage])"),
    "none of Q's": (TEXT, "arrive_expect(q_full[g], 64 * D * sizeof(T))", "arrive(q_full[g])"),
}


@pytest.mark.parametrize("name", MISCOUNTED)
def test_bytes_that_no_arrival_tells_of(name):
    text, old, new = MISCOUNTED[name]
    assert text.count(old) == 1
    module = parse_module(text.replace(old, new))
    for seed in (0, 1, 2):
        outcome = run_program(module, make_inputs(**ROWS), "exact", Schedule(seed), FEW)
        assert "wrong_byte_count" in {f.kind for f in outcome.findings}, outcome.findings


# A block of rows that visits no tile must leave every barrier balanced.
EMPTY_ROWS = {
    "keys are waited for although there are none": (
        "            if tiles > 0:\n                wait(q_full[group], rounds % 2)\n",
        "            wait(q_full[group], rounds % 2)\n",
        "row_without_tiles", "wait(q_full[group], rounds % 2)"),
    "nothing guards the division": (
        "0.0 if sum == 0.0 else x * rcp_approx(sum)", "x * rcp_approx(sum)",
        "nan_output", "tma_store(o_map, [0, row0, h, b], sO[group])"),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY_ROWS)
def test_rows_without_tiles(name):
    old, new, kind, statement = EMPTY_ROWS[name]
    assert TEXT.count(old) == 1
    module = parse_module(TEXT.replace(old, new))
    outcome = run_program(module, make_inputs(Nq=64, Nk=0), "exact", limits=FEW)
    found = [(f.kind, f.path) for f in outcome.findings]
    assert any((kind, path) in found for path in path_of(module, statement)), outcome.findings


# Found without running: name: (old, new, kind, statement)
STATIC = {
    "layout mismatch between the matmuls": (
        "gemm_async(o, p, sV[stage])", "gemm_async(o, s, sV[stage])", "layout_mismatch",
        "gemm_async(o, s, sV[stage])"),
    "shared memory over the limit": (
        "    STAGES = 2\n", "    STAGES = 16\n", "shared_over_limit",
        "sV = shared_stages[T, STAGES, BN, D](V_AT)"),
    "a launch over the limit": (
        "* sizeof(T) + 1024 + 128)", "* sizeof(T) + 200000)", "shared_over_limit", None),
    "registers over the file": (
        "raise_registers(240)", "raise_registers(256)", "registers_over_file",
        "raise_registers(256)"),
    "registers not given back": (
        "        lower_registers(24)\n", "", "registers_over_file", "raise_registers(240)"),
    "more than a thread holds": (
        "    BN = 64\n", "    BN = 1024\n", "registers_over_file",
        "s = zeros(wgmma_acc[64, BN])"),
    "wrong named-barrier count": (
        "named_sync(wg, 256)", "named_sync(wg, 128)", "wrong_named_count", "named_sync(wg, 128)"),
    "an instruction of another arch": (
        "arch='sm_90a'", "arch='sm_90'", "not_on_arch", "lower_registers(24)"),
    "a tile past the launch's shared memory": (
        "* sizeof(T) + 1024 + 128)", "* sizeof(T) - 128)", "out_of_bounds",
        "sO = shared_stages[T, GROUPS, 64, D](O_AT)"),
    "inner sizes that differ": (
        "sV = shared_stages[T, STAGES, BN, D](V_AT)",
        "sV = shared_stages[T, STAGES, 2 * BN, D](V_AT)",
        "type_mismatch", "gemm_async(o, p, sV[stage])"),
}  # fmt: skip


@pytest.mark.parametrize("name", STATIC)
def test_static(name):
    old, new, kind, statement = STATIC[name]
    assert TEXT.count(old) == 1
    module = parse_module(TEXT.replace(old, new))
    found = [(f.kind, f.path) for f in faults(module)]
    paths = path_of(module, statement) if statement else [("launch", 9)]
    assert any((kind, path) in found for path in paths), found


@pytest.mark.parametrize("name", ["registers over the file", "registers not given back"])
def test_registers_run_out_when_it_runs(name):
    old, new, kind, statement = STATIC[name]
    module = parse_module(TEXT.replace(old, new))
    outcome = run_program(module, make_inputs(**ROWS), "exact", limits=FEW)
    found = [(f.kind, f.path) for f in outcome.findings]
    assert any((kind, path) in found for path in path_of(module, statement)), found


V_LOAD = "tma_load(sV[stage], v_map, [0, n * BN, h_kv, b], v_full[stage])"
V_MAP = "v_map = tensor_map["
ROWS_OF_V = (
    (V_LOAD, V_LOAD.replace("load(", "load_rows(")[:-1] + ", 0, args.Nk)"),
    (V_MAP, V_MAP.replace("tensor_map", "row_map")),
)


@pytest.mark.parametrize(
    ("edits", "kind"),
    [
        (ROWS_OF_V, None),
        ((*ROWS_OF_V, ("0, args.Nk)", "0, n * BN + BN)")), "out_of_bounds"),
        ((*ROWS_OF_V, ("0, args.Nk)", "-1, args.Nk)")), "out_of_bounds"),
        (ROWS_OF_V[:1], "type_mismatch"),
        (ROWS_OF_V[1:], "type_mismatch"),
    ],
)
def test_a_range_of_rows(edits, kind):
    text = TEXT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    module = parse_module(text)
    found = {f.kind for f in faults(module)}
    if not found:
        inputs = make_inputs(Nq=130, Nk=100)
        outcome = run_program(module, inputs, "exact", limits=FEW)
        found = {f.kind for f in outcome.findings}
        assert kind or exact_error(outcome.outputs, inputs)[0] < 1e-10
    assert found == ({kind} if kind else set())
