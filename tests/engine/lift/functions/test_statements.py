"""One C++ statement at a time: what it means, and what is opaque with which reason."""

from __future__ import annotations

import pytest

from engine.cuir.nodes import Opaque, Stmt, walk_block
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import LiftError
from tests.engine.lift.sources import lift_body, text_of_body

KNOWN = {
    # declarations and assignments
    "const int a = i + 1;": "a = i + 1",
    "const auto a = x;": "a = x",
    "[[maybe_unused]] const int a = 3;": "a = 3",
    "int a = x;": "a = i32(x)",
    "float a = i;": "a = f32(i)",
    "float a = 3;": "a = 3.0",
    "long long a = i;": "a = i64(i)",
    "long long a = 3;": "a = 3",
    "const bool a = i;": "a = i != 0",
    "int a = i < j;": "a = i32(i < j)",
    "i += j * 2;": "i = i + j * 2",
    "i /= 3;": "i = i // 3",
    "x /= 3;": "x = x / 3",
    "x -= i;": "x = x - i",
    "++i;": "i = i + 1",
    "i--;": "i = i - 1",
    "i = x;": "i = i32(x)",
    ";;": "",
    # arithmetic: C++'s precedence, integer division, casts
    "i = (i + j) * 2 - -j % 3;": "i = (i + j) * 2 - -j % 3",
    "i = i / j / 2;": "i = i // j // 2",
    "i = i / (j / 2);": "i = i // (j // 2)",
    "x = x / i;": "x = x / i",
    "x = 1.0f / 3;": "x = 1.0 / 3",
    "x = float(i) / j;": "x = f32(i) / j",
    "x = (float)i / static_cast<float>(j);": "x = f32(i) / f32(j)",
    "x = i / 2 * x;": "x = i // 2 * x",
    "i = i << 2 | j & 1 ^ 3;": "i = i << 2 | j & 1 ^ 3",
    "i = i >> 1;": "i = i >> 1",
    "ok = i < j && j > (i);": "ok = i < j and j > i",
    "ok = i < j && j <= 3 || !ok;": "ok = i < j and j <= 3 or not ok",
    "ok = !(i && x) == ok;": "ok = (not (i != 0 and x != 0.0)) == ok",
    "ok = i < j < 3;": "ok = (i < j) < 3",
    "i = ok ? i : j > 3 ? 1 : 2;": "i = i if ok else 1 if j > 3 else 2",
    "i = (ok ? i : j) + 1;": "i = (i if ok else j) + 1",
    "x = -INFINITY;": "x = -inf",
    "x = -1.5e-3f + .5f + 2.f + 0x1p-3f;": "x = -0.0015 + 0.5 + 2.0 + 0.125",
    "i = 0x1F + 1'000 + 0b101 + 017;": "i = 31 + 1000 + 5 + 15",
    "ok = true;": "ok = True",
    # scalar functions take floats
    "x = exp2(x) + exp2_approx(i);": "x = exp2(x) + exp2_approx(f32(i))",
    "x = fmaxf(x, exp2f(x));": "x = max(x, exp2(x))",
    "i = min(i, 3) + floor_mod(i - j, 2);": "i = min(i, 3) + floor_mod(i - j, 2)",
    "x = min(x, i);": "x = min(x, i)",
    "x = cubridge::tanh(x);": "x = tanh(x)",
    # tensors, tiles, barriers
    "x = slope(i);": "x = slope[i]",
    "x = slope(i + 1) * 2;": "x = slope[i + 1] * 2",
    "sync();": "sync()",
    "__syncthreads();": "sync()",
    "wait_async<2 - 1>();": "wait_async(2 - 1)",
    "wait_async<(D > 64) ? 1 : 0>();": "wait_async(1 if D > 64 else 0)",
    "copy_async(sK[i % 2], Q.tile(i, j, i * 64));": "copy_async(sK[i % 2], Q[i, j, i * 64:])",
    "gemm(s, sK[0], transpose(sK[1]));": "gemm(s, sK[0], transpose(sK[1]))",
    "wait(bars[i], 1 - i % 2);": "wait(bars[i], 1 - i % 2)",
    "m = load_rows<MmaAcc<64, 64, 4>>(slope.tile(i));":
        "m = load_rows[mma_acc[64, 64, 4]](slope[i:])",
    "s = map(s, m, [&](float a, float b) { return a - b; });": "s = map(s, m, lambda a, b: a - b)",
    "s = map(s, at(i, j), [=](float a, int r, int c) { return a * (r - c); });":
        "s = map(s, lambda a, r, c: a * (r - c), at=[i, j])",
    "m = map(m, at(i, j), [&](float a, int r) { return a + r; });":
        "m = map(m, lambda a, r: a + r, at=[i, j])",
    "const auto t = map(s, [&](float a) { return a > 0; });": "t = map(s, lambda a: a > 0)",
    "s = map(s, ids, [&](float a, int k) { return k == 3 ? a : -INFINITY; });":
        "s = map(s, ids, lambda a, k: a if k == 3 else -inf)",
    "s = keep(s, ids, at(i, j), [&](int k, int r, int c) { return k == ids_of(r); });":
        "s = keep(s, ids, lambda k, r, c: k == ids_of[r], at=[i, j])",
    "const auto t = load_cols<MmaAcc<64, 64, 4>>(slope.tile(i));"
    "s = map(s, t, [&](float a, float b) { return a + b; });":
        "t = load_cols[mma_acc[64, 64, 4]](slope[i:])\ns = map(s, t, lambda a, b: a + b)",
    "s = keep(s, at(i, j), [&](int r, int c) { return c - r; });":
        "s = keep(s, lambda r, c: c - r != 0, at=[i, j])",
    "s = keep(s, at(i, j), [&](int r, int c) { return slope(r) < c; });":
        "s = keep(s, lambda r, c: slope[r] < c, at=[i, j])",
    "s = map(s, [&](float s) { return s * x; });": "s = map(s, lambda s: s * x)",
    "using Row = RowOf<MmaAcc<64, 64, 4>>; m = zeros<Row>();":
        "m = zeros(row_of[mma_acc[64, 64, 4]])",
    "using A = MmaAcc<64, 64, 4>; using R = RowOf<A>; m = fill<R>(1);":
        "m = fill(row_of[mma_acc[64, 64, 4]], 1.0)",
    # the file's own functions
    "i = helper<T>(args, j);": "i = helper[T](args, j)",
    "i = helper<T>(args, x);": "i = helper[T](args, i32(x))",
    "i = args.Hq / args.B;": "i = args.Hq // args.B",
    "i = blockIdx.y + gridDim.x;": "i = block_id(1) + grid_dim(0)",
    "i = j * sizeof(T) - blockIdx.y;": "i = j * sizeof(T) - block_id(1)",
    "i = static_cast<int>(blockIdx.x) / j;": "i = i32(block_id(0)) // j",
    "ok = blockIdx.x == 0;": "ok = block_id(0) == 0",
    "i = blockIdx.x % 4;": "i = block_id(0) % 4",
    "x = blockIdx.x;": "x = f32(block_id(0))",
    "i += blockIdx.x;": "i = i + block_id(0)",
    "const long long a = 1LL * i;": "a = i64(1) * i",
    "i = j << args.n;": "i = j << args.n",
    # claimed work
    "const int a = claim(ids_of.tile(0), i * j);": "a = claim(ids_of[0:], i * j)",
    "const auto w = shared_words<2>(65568); post(w[i % 2], j); j = fetch(w[0]);":
        "w = shared_words[2](65568)\npost(w[i % 2], j)\nj = fetch(w[0])",
    "for (int k = i; k < 9; k = j) { j = k + 2; }":
        "for k in range(i, 9, then(j)):\n    j = k + 2",
    "for (int k = i; k <= 9; k = j) { int j = 1; ++j; }":
        "for k in range(i, 9 + 1, then(j)):\n    j_1 = 1\n    j_1 = j_1 + 1",
    # control flow
    "for (int k = 0; k < 3; ++k) { sync(); }": "for k in range(3):\n    sync()",
    "for (int k = 0; k < 3; k++) sync();": "for k in range(3):\n    sync()",
    "for (int k = i; k <= j; k += 2) {}": "for k in range(i, j + 1, 2):\n    pass",
    "for (int k = j - 1; k >= 0; --k) {}": "for k in range(j - 1, -1, -1):\n    pass",
    "for (int k = j; k > i; k -= 3) {}": "for k in range(j, i, -3):\n    pass",
    "for (int k = blockIdx.x; k < i; k += gridDim.x) {}":
        "for k in range(block_id(0), i, grid_dim(0)):\n    pass",
    "for (int k = blockIdx.x; k < i; k += gridDim.x) { x = 2.0f; }":  # another x
        "for k in range(block_id(0), i, grid_dim(0)):\n    x = 2.0",
    "#pragma unroll\nfor (int k = 0; k < 3; ++k) {}": "for k in range(3):\n    pass",
    "if (i) { sync(); }": "if i != 0:\n    sync()",
    "if (ok) sync(); else ++i;": "if ok:\n    sync()\nelse:\n    i = i + 1",
    "if (ok) { } else if (i < 3) { sync(); } else { ++i; }":
        "if ok:\n    pass\nelse:\n    if i < 3:\n        sync()\n    else:\n        i = i + 1",
    "if constexpr (D == 128) { sync(); } else { nonsense(); }": "sync()",
    "if constexpr (D == 64) { nonsense(); }": "",
    "if constexpr (std::is_same_v<T, bf16>) sync();": "sync()",
    "if constexpr (sizeof(T) == 4) { } else { ++i; }": "i = i + 1",
    "static_assert(D % 16 == 0 && sizeof(T) == 2, \"no\");": "",
    "{ const int a = 1; i = a; }": "a = 1\ni = a",
    "return;": "return",
    # scopes
    "{ int i = 3; ++i; } ++i;": "i_1 = 3\ni_1 = i_1 + 1\ni = i + 1",
    "{ int a = 1; i = a; } { int a = 2; i = a; }": "a = 1\ni = a\na = 2\ni = a",
    "for (int i = 0; i < 2; ++i) { j += i; } j = i;":
        "for i_1 in range(2):\n    j = j + i_1\nj = i",
    "if (ok) { const float x = 1.0f; j = x; } x = 2;":
        "if ok:\n    x_1 = 1.0\n    j = i32(x_1)\nx = 2.0",
    "const int lambda = 1; i = lambda;": "lambda_ = 1\ni = lambda_",
    # inline PTX
    'asm volatile("cp.async.commit_group;\\n" ::);': "commit_async()",
    'asm volatile("cp.async.wait_group %0;" :: "n"(2) : "memory");': "wait_async(2)",
    'asm volatile("bar.sync " "1, %0;" : : "r"(i + 32));': "named_sync(1, i + 32)",
    'asm volatile("bar.sync 0;");': "sync()",
    'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");': "fence_async()",
    'asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");': "lower_registers(24)",
    'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"'
    ':: "r"(bars[i]), "r"(j * 2));':
        "arrive_expect(bars[i], j * 2)",
    'asm volatile("mbarrier.init.shared::cta.b64 [%1], %0;" :: "n"(1), "r"(bars[0]) : "memory");':
        "mbarrier_init(bars[0], 1)",
    'asm volatile("wgmma.wait_group.sync.aligned %0;\\n" :: "n"(D / 128) : "memory");':
        "mma_wait(D // 128)",
}  # fmt: skip


@pytest.mark.parametrize("cxx", KNOWN)
def test_known_statements(cxx: str):
    lifted = lift_body(cxx)
    assert [o.reason for o in lifted.opaque] == []
    assert text_of_body(cxx) == KNOWN[cxx]
    assert parse_module(print_module(lifted.module)) == lifted.module


OPAQUE = {
    "x = 1.5;": "double",
    "x = x * 2e3;": "double",
    "i = 3u;": "unsigned",
    "ok = i >= 0 * gridDim.x;": "without a sign",
    "if (i - blockIdx.x < 0) sync();": "without a sign",
    "i = max(0, blockIdx.x - 1);": "without a sign",
    "i = min(blockIdx.x, gridDim.x);": "without a sign",
    "i = blockIdx.x / j;": "without a sign",
    "i = (i - sizeof(T)) % 3;": "without a sign",
    "i = (blockIdx.x - 3) >> 1;": "without a sign",
    "x = i - blockIdx.x;": "without a sign",
    "const long long a = i - blockIdx.x;": "without a sign",
    "i = ok ? i - blockIdx.x : args.n;": "without a sign",
    "if (i - sizeof(T)) sync();": "without a sign",
    "const auto a = blockIdx.x;": "declare it int",
    "for (int k = 0; k < gridDim.x; ++k) {}": "bound",
    "for (int k = 0; k < args.B; ++k) { args.B = 3; }": "changes `args`",
    "s = map(s, [&](float a) { return sizeof(T); });": "scalar with a sign",
    "unsigned a = 3;": "unsigned",
    "int a;": "without a value",
    "int a = 1, b = 2;": "unexpected",
    "auto& a = i;": "unexpected",
    "i = j = 3;": "unexpected `=`",
    "i = unknown(j);": "unknown",
    "unknown();": "unknown",
    "slope(i);": "without effect",
    "i + j;": "without effect",
    "s = s * 2;": "arithmetic on a tile",
    "i = s;": "stored as",
    "s = 3;": "stored as",
    "s = m + m;": "arithmetic",
    "x = exp2(s);": "number",
    "i = x % 3;": "floats",
    "i = args.nothing;": "no field",
    "i = other.field;": "unknown field",
    "sync(1);": "unknown",
    "wait_async<0, 1>();": "unknown",
    "copy_async(sK, Q.tile(i, j, 0));": "unknown",
    "gemm(sK[0], s, sK[1]);": "unknown",
    "s = map(s, [&](int a) { return a; });": "lambda takes",
    "s = map(s, m, [&](float a) { return a; });": "lambda takes",
    "s = map(s, ids, [&](float a, float k) { return a; });": "lambda takes",
    "s = map(s, [&](float a) { return 1; });": "stored as",
    "s = keep(s, at(i, j), [&](float r, float c) { return r < c; });": "lambda takes",
    "s = map(s, [&](float a) { float b = a; return b; });": "one return",
    "s = map(s, [&](float& a) { return a; });": "by value",
    "const auto f = [&](float a) { return a; };": "no value",
    "i = helper<T>(args, j, 1);": "other parameters",
    "i = helper(args, j);": "template parameters",
    "i = helper<3>(args, j);": "takes a type",
    "for (int k = 0; k < 3; --k) {}": "go with its step",
    "for (int k = 0; k > 3; ++k) {}": "go with its step",
    "for (int k = 0; k != 3; ++k) {}": "go with its step",
    "for (int k = 0; k < 3; k *= 2) {}": "step",
    "for (int k = 0; k < 3; ++i) {}": "step",
    "for (int k = 0; k < 3; k = 2) {}": "next value",
    "for (int k = 0; k < 3; k = i + 1) { ++i; }": "step",
    "for (int k = 0; k < 3; k = x) { ++x; }": "next value",
    "for (int k = 9; k > 3; k = i) { --i; }": "go with its step",
    "for (int k = 0; k < j; k = i) { ++i; ++j; }": "bounds",
    "for (int k = 0; k < 3; k = i) { k = 2; ++i; }": "bounds",
    "for (int k = 0; k < i; ++k) { ++i; }": "bounds",
    "for (int k = 0; k < i; ++k) { k += 1; }": "bounds",
    "for (float k = 0; k < 3; ++k) {}": "loop variable",
    "for (;;) {}": "loop",
    "while (i < 3) { ++i; }": "while",
    "do { ++i; } while (i < 3);": "do statement",
    "switch (i) { case 0: sync(); }": "switch",
    "if (int a = i) { sync(); }": "",
    "if (s) { sync(); }": "arithmetic",
    "goto end;": "goto",
    "for (int k = 0; k < 3; ++k) { break; }": "break",
    "#define A 3": "preproc",
    "#if D > 3\nsync();\n#endif": "preproc",
    "[[unknown]] const int a = 3;": "attribute",
    "sync()": "",
    "i = (j;": "",
    "int if = 3;": "",
    'asm volatile("mov.u32 %0, 3;" : "=r"(i));': "PTX",
    'asm volatile("bar.sync 0; bar.sync 1, 128;");': "PTX",
    'asm volatile("trap;");': "PTX: trap",
    'asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(i));': "PTX: mbarrier.init",
    "i = args;": "",
    "int a = __float2int_rn(x);": "unknown",
    "i = \"text\";": "",
    "x = slope[i];": "",
    "i = sK;": "stored",
    "return 3;": "",
    "lower_registers(24);": "unknown",
}  # fmt: skip


@pytest.mark.parametrize("cxx", OPAQUE)
def test_opaque_statements(cxx: str):
    lifted = lift_body(f"++j;\n{cxx}\n  sync();")
    assert lifted.opaque, text_of_body(f"++j;\n{cxx}\n  sync();")
    assert OPAQUE[cxx] in lifted.opaque[0].reason
    assert parse_module(print_module(lifted.module)) == lifted.module
    assert any(isinstance(s, Opaque) for _, s in _walk(lifted.module.function("kernel").body))


def _walk(body: tuple[Stmt, ...]):
    return walk_block(body, ("kernel",))


EFFECTS = {
    "unsigned a = i + x;": (("i", "x"), ("a",)),
    "x = 1.5 * i;": (("i", "x"), ("x",)),
    "i = unknown(j, s);": (("i", "j", "s"), ("*", "i", "j", "s")),
    "foo(args.Nq, x + 1.5);": (("args", "x"), ("*",)),
    "while (ok) { ++i; }": (("i", "ok"), ("*", "i")),
    "x = x > 2.0 ? exp2(x) : x;": (("x",), ("x",)),
    "int* p = &i;": (("i",), ("i", "p")),
    "for (int k = 0; k < 3; k *= 2) { break; }": ((), ("*", "k")),
    "*p = i;": (("i",), ("*",)),
    "unsigned a = claim(ids_of.tile(0), i);": (("i", "ids_of"), ("*", "a")),
    "{ int i = 3; i = 1.5; }": (("i_1",), ("i_1",)),
}


@pytest.mark.parametrize("cxx", EFFECTS)
def test_opaque_reads_and_writes(cxx: str):
    lifted = lift_body(cxx)
    stmt = next(s for _, s in _walk(lifted.module.function("kernel").body) if isinstance(s, Opaque))
    reads, writes = EFFECTS[cxx]
    assert stmt.reads == reads
    assert set(writes) <= set(stmt.writes)


def test_what_an_opaque_op_declares_hides_the_outer_name():
    lifted = lift_body("{ unsigned x = 3; float y = x; }\n  float z = x;")
    assert ["unsigned" in o.reason or "`x`" in o.reason for o in lifted.opaque] == [True, True]
    assert text_of_body("{ unsigned x = 3; float y = x; }\n  float z = x;").endswith("z = x")


@pytest.mark.parametrize(
    "before",
    [
        "__device__ int kernel(float* x) { return 1; }",
        "__device__ int* helper(int i) { return nullptr; }",
        "#define launch 3",
        "__device__ int a(int* i); __device__ int a(int* i) { return 1; }",
        "struct a { int x; }; __device__ int* a() { return nullptr; }",
        "int b tile(int a) { return 1; }",
        'asm(""); asm("");',
    ],
)
def test_names_of_what_is_unknown_never_clash(before: str):
    try:
        module = lift_body("sync();", before).module
    except LiftError:
        return
    assert parse_module(print_module(module)) == module


def test_a_local_variable_hides_an_op():
    lifted = lift_body("const auto exp2 = slope;\n  x = exp2(i);")
    assert lifted.opaque == ()
    assert text_of_body("const auto exp2 = slope;\n  x = exp2(i);") == "exp2 = slope\nx = exp2[i]"


def test_two_instantiations_keep_an_if_constexpr_that_they_disagree_on():
    before = """
template <int N> __device__ int pick(int a) {
  if constexpr (N > 4) { return a; } else { return 2 * a; }
}
template <int N> __device__ int same(int a) { if constexpr (N > 4) { return a; } return 3; }
"""
    lifted = lift_body("i = pick<3>(i) + pick<5>(j) + same<5>(i) + same<6>(i);", before)
    text = print_module(lifted.module)
    assert "if N > 4:\n        return a\n    else:\n        return 2 * a" in text
    assert "def same(a: i32, *, N):\n    return a\n    return 3" in text


PICK = "template <int N> __device__ int pick(int a) { if constexpr (N > 4) return a; return 2; }"


@pytest.mark.parametrize(
    ("body", "before"),
    [
        pytest.param(
            "{ constexpr int N = 3; i = pick<N>(i); } { constexpr int N = 5; i = pick<N>(i); }",
            PICK,
            id="two constants of one name",
        ),
        pytest.param("i = pick<5>(i); unsigned u = pick<3>(i);", PICK, id="used by an opaque op"),
        pytest.param(
            "i = pick<5>(i);",
            PICK + "\n__device__ float* other(int a) { return pick<3>(a); }",
            id="used by an opaque function",
        ),
        pytest.param(
            "i = pick<5>(i) + early(i);",
            "template <int N> __device__ int pick(int a);\n"
            "__device__ int early(int a) { return pick<3>(a); }\n" + PICK,
            id="used before its definition",
        ),
        pytest.param(
            "i = pick<5>(i);", PICK.replace("return 2", "return pick<N - 1>(a)"), id="recursive"
        ),
    ],
)
def test_an_if_constexpr_stays_unless_every_use_is_known(body: str, before: str):
    assert "if N > 4:" in print_module(lift_body(body, before).module)


def test_a_static_assert_is_checked_for_every_known_use():
    before = PICK.replace("{ if", '{ static_assert(N != 3, "no"); if')
    assert lift_body("i = pick<5>(i);", before).opaque == ()
    with pytest.raises(LiftError, match="N != 3"):
        lift_body("i = pick<5>(i) + pick<3>(i);", before)
