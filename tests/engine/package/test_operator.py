"""The packaged operator without a GPU: shapes, checks, tracing, tables, filled arguments."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from engine.cuir.parser import parse_expr
from engine.cuir.scalar import CASTS, FUNCTIONS
from tests.engine.package.conftest import (
    Import,
    binding,
    content,
    content_with_extras,
    recipe,
)
from tests.engine.package.models import in_float32


@pytest.fixture(scope="module")
def full(root: Path, import_package: Import) -> ModuleType:
    return import_package(content(root), "full_attention")


@pytest.fixture(scope="module")
def extras(root: Path, import_package: Import) -> ModuleType:
    return import_package(content_with_extras(root), "with_extras")


def operator_of(module: ModuleType) -> Any:
    """The package's own operator object."""
    return module._OPERATOR


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def qkv(**change: Any) -> list[torch.Tensor]:
    s = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 70, "Nk": 100, "D": 64} | change
    keys = meta(s["B"], s["Hkv"], s["Nk"], s["D"])
    return [meta(s["B"], s["Hq"], s["Nq"], s["D"]), keys, keys.clone()]


def test_shapes_on_fake_cuda_tensors(full: ModuleType) -> None:
    with FakeTensorMode():
        q = torch.empty(2, 4, 70, 128, device="cuda", dtype=torch.float16)
        k = torch.empty(2, 2, 100, 128, device="cuda", dtype=torch.float16)
        out, lse = full.attention(q, k, k, return_lse=True)
    assert (out.shape, out.dtype, out.device.type) == (q.shape, torch.float16, "cuda")
    assert (lse.shape, lse.dtype) == ((2, 4, 70), torch.float32)


def test_it_can_be_traced_with_symbolic_sizes(full: ModuleType) -> None:
    graph = make_fx(lambda q, k, v: full.attention(q, k, v), tracing_mode="symbolic")(*qkv())
    assert "torch.ops.cubridge.full_attention_" in graph.code
    traced = graph(*qkv(Nq=33, Nk=5, B=3))
    assert traced.shape == (3, 4, 33, 64)


def test_it_can_be_compiled_whole(full: ModuleType) -> None:
    compiled = torch.compile(lambda *a: full.attention(*a) * 2, backend="eager", fullgraph=True)
    assert compiled(*qkv()).shape == (2, 4, 70, 64)


def test_backward_says_that_there_is_none(full: ModuleType) -> None:
    inputs = [t.requires_grad_() for t in qkv()]
    with pytest.raises(RuntimeError, match="forward only"):
        full.attention(*inputs).sum().backward()


def test_cpu_tensors_run_the_spec(full: ModuleType) -> None:
    q = torch.zeros(1, 1, 1, 64, dtype=torch.float16)
    assert full.attention(q, q, q).shape == q.shape


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"D": 96}, ValueError, "no specialisation for torch.bfloat16, D 96"),
        ({"Hq": 3}, ValueError, "Hq must be a multiple of Hkv, not 3 over 2"),
        ({"Hkv": 0}, ValueError, "multiple of Hkv"),
        ({"Nq": 2**31}, ValueError, "32-bit"),
        ({"B": 2**20, "Nq": 2**20}, ValueError, "32-bit"),
    ],
)
def test_sizes_are_checked(
    full: ModuleType, change: dict[str, int], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        full.attention(*qkv(**change))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_inputs_are_checked(full: ModuleType, device: str) -> None:
    """The same on every device: a test on a CPU refuses what a GPU would."""
    q, k, v = (torch.empty_like(t, device=device) for t in qkv())
    other = "cpu" if device == "meta" else "meta"
    narrow = [t[..., :32] for t in (q, k, v)]
    said = "no specialisation for torch.{}".format
    wrong: list[tuple[list[Any], type[Exception], str]] = [
        ([q, k, v[:, :, 1:]], ValueError, "v has size 99 in dimension 2, not Nk = 100"),
        ([q, k[:1], v], ValueError, "k has size 1 in dimension 0, not B = 2"),
        ([q, k.half(), v], TypeError, "k must have dtype torch.bfloat16, not torch.float16"),
        *(
            ([t.to(dtype) for t in (q, k, v)], ValueError, said(str(dtype).split(".")[1]))
            for dtype in (
                torch.float32,
                torch.float64,
                torch.int32,
                torch.bool,
                torch.float8_e4m3fn,
                torch.complex64,
            )
        ),
        (narrow, ValueError, said("bfloat16, D 32")),
        ([q[0], k, v], ValueError, r"q must be \[B, Hq, Nq, D\], not \[4, 70, 64\]"),
        ([q, k, [1]], TypeError, "v must be a tensor, not list"),
        ([q, k, torch.zeros_like(v, device=other)], ValueError, f"v is on {other}, q on {device}"),
    ]
    if device == "cpu":
        turned = v.transpose(2, 3).contiguous().transpose(2, 3)
        wrong += [
            ([q.to_sparse(), k, v], ValueError, "q must be a dense tensor, not torch.sparse_coo"),
            ([q, k, turned], ValueError, r"v has stride 100 along Dv, not 1"),
        ]
    for given, error, words in wrong:
        with pytest.raises(error, match=words):
            full.attention(*given)


def test_layout_and_scale_are_checked(root: Path, import_package: Import, full: ModuleType) -> None:
    checks = operator_of(full).checks
    q, k, v = (torch.zeros(t.shape) for t in qkv())
    names = {"D": 64}
    checks.check_layout({"q": q, "k": k, "v": v}, names)
    turned = v.transpose(2, 3).contiguous().transpose(2, 3)
    with pytest.raises(ValueError, match=r"v has stride 100 along Dv, not 1: call v\.contiguous"):
        checks.check_layout({"q": q, "k": k, "v": turned}, names)
    for scale, said in (("-1.0 * D", "must be positive"), ("inf", "must be finite")):
        made = content(root, binding=binding(scale=scale))
        module = import_package(made, f"scaled_{len(scale)}")
        with pytest.raises(ValueError, match=said):
            operator_of(module).checks.check_layout({"q": q, "k": k, "v": v}, names)
    # Without a softmax the sign is free.
    sigmoid = recipe(weight=parse_expr("1.0 / (1.0 + exp(-s))"))
    made = content(root, asked=sigmoid, binding=binding(scale="-1.0 * D"))
    module = import_package(made, "sigmoid_like")
    operator_of(module).checks.check_layout({"q": q, "k": k, "v": v}, names)


def test_extra_inputs(extras: ModuleType) -> None:
    q, k, v = qkv()
    doc, bias = meta(2, 100, dtype=torch.int32), meta(1, 4, 70, 100)
    table, slopes = meta(199, dtype=torch.float32), meta(4, dtype=torch.float32)
    good = [q, k, v, doc, bias, table, slopes]
    assert extras.attention(*good).shape == q.shape
    wrong: list[tuple[int, torch.Tensor, str]] = [
        (3, doc.to(torch.int16), "doc must have dtype torch.int32, not torch.int16$"),
        # Ids that differ by 2^32 would be one id in 32 bits.
        (3, doc.long(), r"not torch.int64: the kernel reads 32 bits .* doc\.to\(torch\.int32\) if"),
        (4, meta(2, 4, 70, 100), "bias has size 2 in dimension 0, not 1"),
        (4, bias.float(), "bias must have dtype torch.bfloat16"),
        (5, meta(200, dtype=torch.float32), "table has size 200 in dimension 0, not 2 . Nk - 1"),
        (6, meta(2, dtype=torch.float32), "slopes has size 2 in dimension 0, not Hq = 4"),
    ]
    for at, value, said in wrong:
        given = [value if n == at else t for n, t in enumerate(good)]
        with pytest.raises((TypeError, ValueError), match=said):
            extras.attention(*given)
    q, k, v = qkv(Nq=120)
    with pytest.raises(ValueError, match="the spec needs Nq <= Nk"):
        extras.attention(q, k, v, doc, meta(1, 4, 120, 100), table, slopes)


def test_tables_come_from_the_spec(root: Path, import_package: Import) -> None:
    extra = content_with_extras(root).asked.inputs[-1]
    made = content_with_extras(root)
    rows = tuple(
        t for t in made.binding.tensors if t.output or t.source in ("q", "k", "v", "slopes")
    )
    alibi = import_package(
        content(
            root, asked=recipe((extra,)), binding=binding(rows[5:]), fields=made.fields,
            spec_name=made.spec_name, spec=made.spec,
        ),
        "alibi",
    )  # fmt: skip
    ours = sys.modules["engine.spec.recipes.recipe"]
    operator = alibi._OPERATOR
    q, k, v = (torch.empty(t.shape, dtype=torch.bfloat16) for t in qkv(Hq=6))
    made_tables = operator.tables_of({"q": q, "k": k, "v": v})
    expected = [2.0 ** (-8 * (h + 1) / 4) for h in range(4)] + [
        2.0 ** (-4 * (h + 1) / 4) for h in (0, 2)
    ]
    torch.testing.assert_close(made_tables["slopes"], torch.tensor(expected))
    assert operator.tables_of({"q": q, "k": k, "v": v}) is made_tables  # once for these sizes
    assert sys.modules["engine.spec.recipes.recipe"] is ours  # the vendored engine is gone again
    assert alibi.attention(q, k, v).shape == q.shape  # with its table, which LSE needs


def test_on_a_cpu_it_is_the_spec_with_the_recipe_s_log_sum_exp(
    root: Path, import_package: Import
) -> None:
    full = import_package(in_float32(content(root)), "full_in_float32")
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, h, n, 64, generator=generator) for h, n in ((2, 5), (1, 7), (1, 7)))
    out, lse = full.attention(q, k, v, return_lse=True)
    scores = q @ k.transpose(-2, -1) / 8
    torch.testing.assert_close(out, torch.softmax(scores, -1) @ v)
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1))
    low = full.attention(q.half(), k.half(), v.half())
    assert low.dtype == torch.float16 and 1e-6 < float((low - out).abs().max()) < 1e-2


def test_rows_without_a_key_are_zero_on_a_cpu_too(root: Path, import_package: Import) -> None:
    spec = root / "kernels" / "specs" / "causal.py"
    keep = parse_expr("j <= i + Nk - Nq")
    made = content(root, asked=recipe(keep=keep), spec_name="causal.py", spec=spec.read_bytes())
    module = import_package(in_float32(made), "causal_rows")
    q, k = torch.ones(1, 1, 5, 64), torch.ones(1, 1, 3, 64)
    out, lse = module.attention(q, k, k, return_lse=True)
    assert torch.equal(out[0, 0, :, 0], torch.tensor([0.0, 0, 1, 1, 1]))
    assert torch.equal(torch.isneginf(lse[0, 0]), torch.tensor([True, True, False, False, False]))


def test_a_wrong_kernel_fails_the_check(full: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = importlib.import_module("full_attention._spec")
    sizes = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 5, "Nk": 7, "D": 64, "Dv": 64}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def verdict(kernel: Any, **change: int) -> bool:
        monkeypatch.setattr(operator_of(full), "call_named", kernel)
        row = checker.run_case(
            operator_of(full), sizes | change, torch.float16, True, 1, device="cpu"
        )
        return bool(row["passed"])

    def kernel(factor: float = 1.0, drop: int = 0, base: float = 1.0) -> Any:
        def run(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            q, k, v = (values[n].double() for n in "qkv")
            scores = q @ k[:, :, drop:].transpose(-2, -1) / 8 * factor
            out = torch.softmax(scores, -1) @ v[:, :, drop:]
            return {"O": out.half(), "LSE": torch.logsumexp(scores, -1).float() * base}

        return run

    assert verdict(kernel())
    assert not verdict(kernel(factor=1.02))
    assert not verdict(kernel(drop=1))
    assert not verdict(kernel(base=1.4427))  # a base-2 LSE
    nan = float("nan")
    assert not verdict(lambda v: {"O": v["q"] * nan, "LSE": kernel()(v)["LSE"]})
    assert not verdict(lambda v: {"O": kernel()(v)["O"], "LSE": v["q"][..., 0].float() * nan})
    # Without keys: O = 0 and LSE = -inf.
    empty, minus = torch.zeros(1, 2, 5, 64), torch.full((1, 2, 5), -float("inf"))
    assert verdict(lambda v: {"O": empty, "LSE": minus}, Nk=0)
    assert not verdict(lambda v: {"O": empty, "LSE": minus * 0}, Nk=0)
    assert not verdict(lambda v: {"O": empty + 1, "LSE": minus}, Nk=0)


def test_arguments_are_filled_from_views(extras: ModuleType) -> None:
    storage = torch.zeros(2, 70, 3, 4, 64)
    q = storage[:, :, 1].transpose(1, 2)  # a slice of a fused projection
    k = torch.zeros(2, 2, 100, 64)
    values = {
        "q": q, "k": k, "v": k, "O": torch.zeros(2, 4, 70, 64), "LSE": torch.zeros(2, 4, 70),
        "doc": torch.zeros(2, 100, dtype=torch.int32), "bias": torch.zeros(1, 4, 70, 100),
        "table": torch.zeros(199), "slopes": torch.zeros(4),
    }  # fmt: skip
    names = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 70, "Nk": 100, "D": 64, "Dv": 64}
    filled = operator_of(extras).filler.fill(values, names)
    assert filled.q.data == q.data_ptr()
    assert list(filled.q.stride) == [70 * 3 * 4 * 64, 64, 3 * 4 * 64, 1]
    assert list(filled.lse.stride) == [280, 70, 1, 0]
    assert list(filled.slopes.stride) == [1, 0, 0, 0]
    assert (filled.Hq, filled.Nk) == (4, 100)
    assert filled.scale == 0.125
    with pytest.raises(ValueError, match="does not fit"):
        operator_of(extras).filler.fill(values, names | {"Nk": 2**31})


def test_packing_is_the_layout_of_the_struct(extras: ModuleType) -> None:
    """The struct module packs where ctypes has the fields, whatever their order."""
    args = sys.modules["with_extras._runtime"]
    fields = [["n", "i32"], ["x", "tensor"], ["scale", "f32"], ["big", "i64"], ["last", "f32"]]
    binding = {
        "tensors": [{"field": "x", "source": "x", "source_dims": ["N"], "dims": ["N"]}],
        "sizes": [{"field": "n", "size": "N"}, {"field": "big", "size": "N"}],
        "scalars": [{"field": "scale", "value": "0.5"}, {"field": "last", "value": "N / 2"}],
    }
    filler = args.Filler(fields, binding)
    x = torch.zeros(7)
    made = filler.fill({"x": x}, {"N": 7})
    assert (made.n, made.scale, made.big, made.last) == (7, 0.5, 7, 3.5)
    assert (made.x.data, list(made.x.stride)) == (x.data_ptr(), [1, 0, 0, 0])


def test_an_input_in_another_layout(root: Path, import_package: Import) -> None:
    """A spec whose tensors are [B, Nq, Hq, D] gets its output in that layout."""
    import dataclasses

    bshd = ("B", "Nq", "Hq", "D")
    inputs = (dataclasses.replace(recipe().inputs[0], dims=bshd), *recipe().inputs[1:])
    rows = [
        dataclasses.replace(t, source_dims=bshd) if t.source in ("q", "O") else t
        for t in binding().tensors
    ]
    made = content(
        root,
        asked=recipe(inputs=inputs, output_dims=bshd),
        binding=dataclasses.replace(binding(), tensors=tuple(rows)),
    )
    module = import_package(made, "bshd")
    q, k, v = qkv()
    assert module.attention(q.transpose(1, 2), k, v).shape == (2, 70, 4, 64)


def test_expressions_are_read_not_run(full: ModuleType) -> None:
    evaluate = importlib.import_module("full_attention._runtime").evaluate
    names = {"D": 64, "Nq": -7}
    assert evaluate("rsqrt(D)", names) == 0.125
    assert evaluate("Nq // 2", names) == -3  # toward zero, as in C
    assert evaluate("Nq % 4", names) == -3
    assert evaluate("floor_div(Nq, 2)", names) == -4
    assert evaluate("1 if Nq == -7 and not D < 3 else 0", names) == 1
    assert evaluate("rsqrt(f32(D))", names) == 0.125  # a model's own scale
    for wrong in ("__import__('os')", "D.real", "Nk", "[1]", "'x'", "lambda: 0", "sqrt(x=1)"):
        with pytest.raises(ValueError, match="is not an expression"):
            evaluate(wrong, names)


def test_a_package_can_say_what_cuir_can(full: ModuleType) -> None:
    evaluate = importlib.import_module("full_attention._runtime").evaluate
    for name, function in FUNCTIONS.items():
        for given in itertools.product((0.5, 2.0), repeat=3):
            args = given[: next(n for n in (1, 2, 3) if _takes(function.number, n))]
            names = dict(zip("abc", args, strict=False))
            text = f"{name}({', '.join(names)})"
            assert evaluate(text, names) == pytest.approx(float(function.number(*args)), 1e-12)
    for cast in CASTS:
        assert evaluate(f"{cast}(a)", {"a": 1}) == 1


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        function(*[0.5] * count)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize(
    ("capability", "archs", "arch"),
    [
        ((8, 0), ["sm_80", "sm_90"], "sm_80"),
        ((9, 0), ["sm_80", "sm_90"], "sm_90"),
        ((9, 0), ["sm_90", "sm_90a"], "sm_90a"),
        ((8, 7), ["sm_80", "sm_86", "sm_89"], "sm_86"),
        ((12, 1), ["sm_90", "sm_120"], "sm_120"),
        ((10, 0), ["sm_90", "sm_120"], None),
        ((9, 0), ["sm_80", "sm_89"], None),
        ((10, 0), ["sm_90a"], None),
        ((7, 5), ["sm_80"], None),
    ],
)
def test_the_arch_of_a_device(
    full: ModuleType, capability: tuple[int, int], archs: list[str], arch: str | None
) -> None:
    choose = importlib.import_module("full_attention._runtime").arch_of
    if arch is None:
        with pytest.raises(RuntimeError, match="has no code for sm_"):
            choose(capability, archs)
    else:
        assert choose(capability, archs) == arch
