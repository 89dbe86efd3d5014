"""Launchers' signatures: what each parameter is, by its name, and what is refused."""

from __future__ import annotations

import pytest

from engine.errors import InputError
from engine.foreign.draft import draft_launcher, kernels_in
from engine.foreign.functions import declaration, has_function
from engine.foreign.launcher import SHAPES, Launcher, read_launcher


def read(text: str, name: str = "launch", **more: object) -> Launcher:
    return read_launcher(text, "k.cu", name, {}, "bf16", **more)  # type: ignore[arg-type]


def kinds(launcher: Launcher) -> list[tuple[str, str, str]]:
    return [(p.kind, p.means, p.dtype) for p in launcher.parameters]


def test_names_say_what_parameters_are() -> None:
    launcher = read(
        "void launch(const __half* __restrict__ Q, const void *k, nv_bfloat16 const* d_v, "
        "float* out, float *lse_ptr, const int b, unsigned int Nq, int n, size_t Hkv, "
        "float softmax_scale = 1.f, cudaStream_t s = 0) {}"
    )
    assert kinds(launcher) == [
        ("tensor", "q", "f16"), ("tensor", "k", "bf16"), ("tensor", "v", "bf16"),
        ("tensor", "o", "f32"), ("tensor", "lse", "f32"), ("size", "B", ""), ("size", "Nq", ""),
        ("size", "N", ""), ("size", "Hkv", ""), ("scalar", "scale", ""), ("stream", "stream", ""),
    ]  # fmt: skip
    assert [p.means for p in launcher.outputs] == ["o", "lse"]


def test_torch_launchers_return_their_outputs() -> None:
    one = read(
        "torch::Tensor forward(torch::Tensor Q, const at::Tensor& K, Tensor v) {}", "forward"
    )
    assert kinds(one) == [("tensor", n, "bf16") for n in "qkv"]
    assert [p.means for p in one.outputs] == ["o"]
    assert {"Hkv", "Nk"} <= one.sizes
    two = read("std::vector<at::Tensor> f(at::Tensor q, at::Tensor k, at::Tensor v) {}", "f")
    assert [p.means for p in two.outputs] == ["o", "lse"]


def test_scalars_of_the_reference_are_known() -> None:
    launcher = read("void launch(float* q, int window, float cap) {}", scalars=("window", "cap"))
    assert kinds(launcher)[1:] == [("scalar", "window", ""), ("scalar", "cap", "")]


def test_a_source_may_have_names_of_its_own_for_elements_and_sizes() -> None:
    launcher = read(
        "typedef at::BFloat16 bf; using fp32 = float;\n"
        "void launch(bf* q, fp32* k, const long long* v, unsigned* o, int T, int C) {}",
        sizes=("T", "C"),
    )
    assert kinds(launcher) == [
        ("tensor", "q", "bf16"), ("tensor", "k", "f32"), ("tensor", "v", "i64"),
        ("tensor", "o", "i32"), ("size", "T", ""), ("size", "C", ""),
    ]  # fmt: skip


def test_a_launcher_of_another_name_is_told() -> None:
    text = "__global__ void k() {}\n__device__ int f() { return 1; }\nvoid forward(int n) {}"
    with pytest.raises(InputError, match="no function named launch; it has forward"):
        read(text)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("\nvoid launch(float* q,\n float* bias) {}", "what is bias?", 3),
        ("void launch(float* q, int stages) {}", "what is stages?", 1),
        ("void launch(float* q, float eps) {}", "what is eps?", 1),
        ("void launch(Params p[4]) {}", "a parameter that is not plain", 1),
        ("void launch(Thing* q) {}", "elements of type Thing", 1),
    ],
)
def test_what_a_name_does_not_say_is_refused_at_its_line(
    text: str, message: str, line: int
) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert message in caught.value.message
    assert caught.value.where is not None and caught.value.where.line == line


@pytest.mark.parametrize(
    "text",
    ["#define ARGS const float* q, int Nq, \\\n    float scale\nvoid launch(ARGS) {}",
     "#define IN const float*  // an input\nvoid launch(IN q, int Nq, float scale) {}",
     "#define T float\n#define R __restrict__\nvoid launch(const T* R q, int Nq, float scale) {}"],
)  # fmt: skip
def test_macros_of_the_source_are_replaced_in_parameters(text: str) -> None:
    said = [(p.name, p.kind, p.dtype) for p in read(text).parameters]
    assert said == [("q", "tensor", "f32"), ("Nq", "size", ""), ("scale", "scalar", "")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#define IN(x) const float* x\nvoid launch(IN(q)) {}", "that is not plain: IN(q)"),
        ("void launch(ARGS) {}", "a parameter without a name: ARGS"),
        ("void launch(float* q, int = 3) {}", "a parameter without a name: int = 3"),
        ("void launch(const Params& p) {}", "of a type that is not known: const Params& p"),
        ("#ifdef HALF\n#define T half\n#else\n#define T float\n#endif\nvoid launch(T* q) {}",
         "elements of type T are not known"),
        ("#define MAKE(name) void name(float* q)\nMAKE(launch) {}", "no function named launch"),
        ("template <int D> void launch(float* q) {}", "launch is a template"),
        ("struct A { void launch(float* q) {} };", "A::launch needs an object"),
        ("namespace a { void launch(float* q) {} }\nnamespace b { void launch(float* q) {} }",
         "several functions named launch; it has a::launch, b::launch"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_or_read_is_said(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "name", "called"),
    [
        ("struct A { static void launch(float* q) {} };", "launch", "A::launch"),
        ("struct A { static void launch(float* q) {} };", "A::launch", "A::launch"),
        ("struct A { static void go(float* q); };\nvoid A::go(float* q) {}", "go", "A::go"),
        ("namespace a { namespace { void launch(float* q) {} } }", "launch", "a::launch"),
        ("namespace a::b { void launch(float* q) {} }", "b::launch", "a::b::launch"),
        ("namespace a { template <int D> void go(float* q) {} }", "go<64>", "a::go<64>"),
        ("template <class T> struct A { static void go(float* q) {} };", "A<X<3>>::go",
         "A<X<3>>::go"),
    ],
)  # fmt: skip
def test_a_launcher_is_called_by_its_full_name(text: str, name: str, called: str) -> None:
    assert read(text, name).name == called


def test_all_that_names_do_not_say_is_in_one_message() -> None:
    with pytest.raises(InputError) as caught:
        read("void launch(float* q, float* bias, int stages, float eps, bool causal) {}")
    error = caught.value
    assert "what are stages, causal? a whole number is one of B, Hq" in error.message
    assert "what is bias?" in error.message and "what is eps?" in error.message
    assert '--sizes "stages=1 causal=1"' in (error.fix or "")


def test_usual_names_of_dimensions_are_known() -> None:
    sizes = ("batch", "heads_q", "num_heads_kv", "len_q", "seqlen_k", "head_dim", "heads")
    text = f"void launch({', '.join(f'int {name}' for name in sizes)}) {{}}"
    means = [p.means for p in read(text, sizes=("heads",)).parameters]
    assert means == ["B", "Hq", "Hkv", "Nq", "Nk", "D", "Hq"]


def test_a_missing_launcher_is_drafted() -> None:
    text = (
        "template <int D> __global__ void fwd(const float* __restrict__ Q, const float* K, "
        "const float* V, float* O, int N, int tiles) {}\n__global__ void merge(float* x) {}\n"
    )
    assert not has_function(text, "launch")
    with pytest.raises(InputError, match="no function named launch"):
        read(text)
    assert [(k.name, k.template) for k in kernels_in(text)] == [("fwd", True), ("merge", False)]
    draft = draft_launcher(text, "theirs.cu", SHAPES, "launcher.cu")
    assert "fwd<><<<grid, block, shared, stream>>>(q, k, v, o, Nk, tiles);" in draft
    assert "int tiles{};  // FILL IN" in draft and "merge" in draft
    assert [p.means for p in read(draft).tensors] == ["q", "k", "v", "o"]


def test_a_source_without_a_kernel_has_no_draft() -> None:
    with pytest.raises(InputError, match="no __global__ function"):
        draft_launcher("int x;", "a.cu", SHAPES, "launcher.cu")


def test_a_declaration_stands_in_what_its_names_are_of() -> None:
    text = """namespace fa { using bf16 = __nv_bfloat16;
        struct Of { static void run(bf16* o) {} };
        void launch(const bf16* q,
                    bf16* o) { run(q, o); } }
        void plain(float* o) {}"""
    assert declaration(text, "fa::launch") == (
        "namespace fa { void launch(const bf16* q, bf16* o); }"
    )
    assert declaration(text, "run") == "namespace fa { struct Of { static void run(bf16* o); }; }"
    assert declaration(text, "plain") == "void plain(float* o);"
