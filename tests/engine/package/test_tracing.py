"""What traces, transforms and copies a package's operator, whose table its spec makes."""

from __future__ import annotations

import importlib
import math
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._dynamo.decorators import mark_unbacked
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from engine.package.export import Content, export
from tests.engine.package.conftest import (
    EXTRAS,
    Import,
    binding,
    content,
    content_with_extras,
    recipe,
)


def content_of(root: Path) -> Content:
    """ALiBi: its slopes are made by the spec's own code."""
    extras = content_with_extras(root)
    (slopes,) = (t for t in extras.binding.tensors if t.source == "slopes")
    return content(
        root, asked=recipe(EXTRAS[-1:]), binding=binding([slopes]), fields=extras.fields,
        spec_name=extras.spec_name, spec=extras.spec,
    )  # fmt: skip


@pytest.fixture(scope="module")
def alibi(root: Path, import_package: Import) -> ModuleType:
    return import_package(content_of(root), "alibi_traced")


def qkv(device: str = "meta", **change: int) -> list[torch.Tensor]:
    s = {"B": 2, "Hq": 4, "Hkv": 2, "Nq": 70, "Nk": 100} | change
    key = torch.empty(s["B"], s["Hkv"], s["Nk"], 64, dtype=torch.float16, device=device)
    query = torch.empty(s["B"], s["Hq"], s["Nq"], 64, dtype=torch.float16, device=device)
    return [query, key, key.clone()]


def test_it_is_compiled_and_exported_whole(alibi: ModuleType) -> None:
    class Model(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return alibi.attention(q, k, v, return_lse=True)

    compiled = torch.compile(Model(), backend="eager", fullgraph=True)
    assert compiled(*qkv())[0].shape == (2, 4, 70, 64)
    batch, rows, keys = (torch.export.Dim(name) for name in ("batch", "rows", "keys"))
    sizes: tuple[dict[int, Any], ...] = ({0: batch, 2: rows}, *2 * ({0: batch, 2: keys},))
    exported = torch.export.export(Model(), tuple(qkv()), dynamic_shapes=sizes)
    out, lse = exported.module()(*qkv(B=3, Nq=5, Nk=999))
    assert (out.shape, lse.shape) == ((3, 4, 5, 64), (3, 4, 5))


@pytest.mark.parametrize("which", [0, 1, 2, None])
def test_any_size_may_be_unknown_until_the_graph_runs(alibi: ModuleType, which: int | None) -> None:
    torch._dynamo.reset()
    given = qkv()
    for place, tensor in enumerate(given):
        if which in (None, place):
            for dimension in range(4):
                mark_unbacked(tensor, dimension)
    compiled = torch.compile(lambda *a: alibi.attention(*a) * 2, backend="eager", fullgraph=True)
    assert compiled(*given).shape == given[0].shape


def test_no_fake_tensor_is_left_in_a_cache(alibi: ModuleType) -> None:
    made = importlib.import_module("alibi_traced._tables")
    made._made.clear()
    with FakeTensorMode():
        assert alibi.attention(*qkv("cuda")).shape == (2, 4, 70, 64)
    assert not made._made
    given = qkv("cpu")
    slopes = alibi._OPERATOR.tables_of(dict(zip("qkv", given, strict=True)))["slopes"]
    assert type(slopes) is torch.Tensor and slopes.tolist() == [0.25, 0.0625, 0.015625, 0.00390625]


def test_the_cache_is_bounded(alibi: ModuleType) -> None:
    made = importlib.import_module("alibi_traced._tables")
    for heads in range(2, 2 * made.MOST_TABLES, 2):
        given = qkv("cpu", Hq=heads, Nq=1, Nk=2)
        alibi._OPERATOR.tables_of(dict(zip("qkv", given, strict=True)))
    assert len(made._made) <= made.MOST_TABLES


ALL = {(name, d) for name in "qkv" for d in range(4)}
READS: dict[str, tuple[Callable[..., Any], set[tuple[str, int]]]] = {
    # What code may do with q, k and v, and the sizes that it reads.
    "nothing": (lambda q, k, v: torch.tensor([1.0]), set()),
    "a size": (lambda q, k, v: torch.tensor([1 / (h + 1) for h in range(q.size(1))]), {("q", 1)}),
    "a shape, unpacked": (lambda q, k, v: (lambda b, h, n, d: h + 1)(*q.shape), {("q", 1)}),
    "a size, from the end": (lambda q, k, v: 2 * k.shape[-2], {("k", 2)}),
    "a branch": (lambda q, k, v: 1 if k.size(2) > 50 else 2, {("k", 2)}),
    "a function of C": (lambda q, k, v: math.log2(k.size(2)), {("k", 2)}),
    "a whole number": (lambda q, k, v: torch.arange(int(v.size(2))), {("v", 2)}),
    "a dictionary": (lambda q, k, v: {7: 1}.get(q.size(2)), {("q", 2)}),
    "a text": (lambda q, k, v: f"{q.size(3)}", {("q", 3)}),
    "a cast copy": (lambda q, k, v: q.double().to("meta").size(0) + 1, {("q", 0)}),
    "dtype and rank": (lambda q, k, v: (q.dtype, q.dim(), q.device), set()),
    "another tensor's size": (lambda q, k, v: k.mT.size(-1), ALL),
    "what a tensor counts": (lambda q, k, v: k.numel(), ALL),
    "a tensor made of one": (lambda q, k, v: torch.ones_like(k, device="cpu"), ALL),
}


@pytest.mark.parametrize("case", READS)
def test_what_code_reads_of_sizes_is_seen(alibi: ModuleType, case: str) -> None:
    watch = importlib.import_module("alibi_traced._tables").Watch
    code, reads = READS[case]
    given = dict(zip("qkv", qkv(), strict=True))
    with watch(given) as seen:
        code(**given)
    assert seen.read == reads


def test_code_that_takes_an_int_alone_reads_all_sizes(alibi: ModuleType) -> None:
    made = importlib.import_module("alibi_traced._tables")
    given = dict(zip("qkv", qkv(), strict=True))

    def run() -> dict[str, torch.Tensor]:
        return {"t": torch.arange(5) * (2 if isinstance(given["k"].size(2), int) else 1)}

    assert set(made._sizes_read(given, run(), run)) == ALL  # another table where it is watched
    plain = {"t": torch.arange(100)}
    assert (
        set(made._sizes_read(given, plain, lambda: {"t": torch.arange(given["k"].size(2))})) == ALL
    )


def test_a_decode_step_finds_its_table_at_once(alibi: ModuleType) -> None:
    made = importlib.import_module("alibi_traced._tables")
    made._made.clear()
    cache = qkv("cpu", Nk=300)
    first = alibi._OPERATOR.tables_of(dict(zip("qkv", cache, strict=True)))
    seconds = []
    for length in range(1, 300):
        given = {"q": cache[0], "k": cache[1][:, :, :length], "v": cache[2][:, :, :length]}
        begin = time.perf_counter()
        found = alibi._OPERATOR.tables_of(given)
        seconds.append(time.perf_counter() - begin)
        assert found is first
    assert min(seconds) < 1e-4 and len(made._made) == 1


def dual(call: Callable[..., Any], given: list[torch.Tensor], place: int) -> None:
    with forward_ad.dual_level():
        tensor = given[place]
        make = forward_ad.make_dual
        given[place] = make(tensor, torch.ones_like(tensor))  # type: ignore[no-untyped-call]
        call(*given)


def jvp(call: Callable[..., Any], given: list[torch.Tensor], place: int) -> None:
    def of_one(tensor: torch.Tensor) -> Any:
        return call(*(tensor if n == place else t for n, t in enumerate(given)))

    torch.func.jvp(of_one, (given[place],), (torch.ones_like(given[place]),))


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("transform", [dual, jvp])
def test_a_tangent_is_never_lost(
    alibi: ModuleType, transform: Callable[..., None], place: int
) -> None:
    with pytest.raises(RuntimeError, match=f"{'qkv'[place]} carries a tangent"):
        transform(alibi.attention, qkv("cpu"), place)


def test_a_copy_runs_its_own_code(root: Path, tmp_path: Path) -> None:
    """Two folders with one export: each has an operator of its own; the first one's has the name
    that other machines know."""
    first = export(content_of(root), tmp_path / "one" / "copied")
    second, third = (tmp_path / name / "copied" for name in ("two", "three"))
    shutil.copytree(first, second)
    shutil.copytree(first, third)
    source = second / "_runtime.py"
    text = source.read_text()
    assert "must be a tensor" in text
    source.write_text(text.replace("must be a tensor", "is edited"))

    def said(place: Path) -> tuple[str, str]:
        for name in [n for n in sys.modules if n.split(".")[0] == "copied"]:
            del sys.modules[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(place.parent))
            importlib.invalidate_caches()
            module = importlib.import_module("copied")
            with pytest.raises(TypeError) as raised:
                module.attention(1, 2, 3)
            name = module._OPERATOR.name
        return name.removeprefix("cubridge::"), str(raised.value)

    names, words = zip(*(said(place) for place in (first, second, third, first)), strict=True)
    assert [("is edited" in text) for text in words] == [False, True, False, False]
    assert names[0] == names[3] and len(set(names)) == 3
    assert all(name.startswith(names[0]) for name in names)
