"""Plans of a packaged kernel whose mask depends on data, with the launch itself left out."""

from __future__ import annotations

import contextlib
import gc
import importlib
import weakref
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.package.conftest import Import, content
from tests.engine.package.models import carried

# The mask reads a table that the spec makes of another input.
STARTS = """
import torch
from torch import Tensor
from jaxtyping import Float, Int64

def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"],
    starts: Int64[Tensor, "B Nk"],
):
    ids = torch.cumsum(starts, dim=-1)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    keep = ids[:, None, : q.shape[2], None] == ids[:, None, None, :]
    return torch.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1) @ v
"""


@pytest.fixture(scope="module")
def package(root: Path, import_package: Import) -> ModuleType:
    return import_package(carried(root, root / "kernels" / "specs" / "document.py"), "documents")


@pytest.fixture
def launches(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    return launches_of(package, monkeypatch)


def launches_of(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The argument structs of the launches; tensors are on the CPU."""
    op = importlib.import_module(f"{package.__name__}._runtime")
    seen: list[Any] = []
    stream = SimpleNamespace(
        cuda_stream=0, record_event=lambda: "event", wait_event=lambda event: None
    )
    monkeypatch.setattr(op, "library", lambda device, struct: None)
    monkeypatch.setattr(op, "launch", lambda loaded, args, key, stream: seen.append((args, key)))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    # What the dispatcher does for CUDA tensors.
    operator = package._OPERATOR
    monkeypatch.setattr(operator, "op", operator.forward)
    monkeypatch.setattr(operator, "planned", lambda plan, *v: operator.forward(*v, plan=plan))
    return seen


def inputs(n: int = 300, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    q, k = torch.zeros(2, 4, n, 128, dtype=dtype), torch.zeros(2, 2, n, 128, dtype=dtype)
    documents = torch.arange(n).div(70, rounding_mode="floor").int().expand(2, n).contiguous()
    return {"q": q, "k": k, "v": k.clone(), "doc_q": documents, "doc_k": documents.clone()}


def test_a_call_brings_its_own_workspace(package: ModuleType, launches: list[Any]) -> None:
    given = inputs()
    for _ in range(2):
        package.attention(**given)
    (first, key), (second, _) = launches
    assert key == "bf16_128"
    assert (first.planned, first.slots) == (second.planned, second.slots) == (0, 16)
    # [B, blocks of 128 rows, 4 + 3 * tiles of 32 keys + bits] for sm_80's tiles of 128 x 32.
    words = 4 + 3 * 10 + 4 * 128 * 16
    assert list(first.lists.stride)[:3] == [3 * words, words, 1]


def test_a_plan_is_filled_once_and_taken_again(package: ModuleType, launches: list[Any]) -> None:
    held = package.Plan()
    given = inputs()
    assert not held.filled
    package.attention(**given, plan=held)
    assert held.filled
    # Other q, k and v with the same mask.
    package.attention(**{**given, "q": given["q"] + 1, "v": given["v"] + 1}, plan=held)
    out, lse = package.attention(**given, plan=held, return_lse=True)
    assert [args.planned for args, _ in launches] == [0, 1, 1]
    assert len({args.lists.data for args, _ in launches}) == 1
    assert out.shape == given["q"].shape and lse.shape == (2, 4, 300)


def test_a_plan_for_another_call_is_refused(package: ModuleType, launches: list[Any]) -> None:
    held = package.Plan()
    given = inputs()
    package.attention(**given, plan=held)
    with pytest.raises(ValueError, match=r"another N[qk]: use a new Plan"):
        package.attention(**inputs(200), plan=held)
    with pytest.raises(ValueError, match="another dtype or head size"):
        package.attention(**(inputs(dtype=torch.float16) | {"doc_q": given["doc_q"],
                             "doc_k": given["doc_k"]}), plan=held)  # fmt: skip
    with pytest.raises(ValueError, match=r"another doc_k \(equal values in"):
        package.attention(**{**given, "doc_k": given["doc_k"].clone()}, plan=held)
    two = {name: t.repeat(2, *[1] * (t.dim() - 1)) for name, t in given.items()}
    with pytest.raises(ValueError, match="another B"):
        package.attention(**two, plan=held)
    given["doc_q"][0, 5] = 3
    with pytest.raises(ValueError, match="doc_q has changed since the plan was made: use a"):
        package.attention(**given, plan=held)
    assert len(launches) == 1


def test_a_plan_of_another_package_is_refused(
    root: Path, package: ModuleType, launches: list[Any], import_package: Import,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spec = root / "kernels" / "specs" / "causal_document.py"
    other = import_package(carried(root, spec), "causal_documents")
    of_other = launches_of(other, monkeypatch)
    held, given = package.Plan(), inputs()
    package.attention(**given, plan=held)
    with pytest.raises(ValueError, match="another package: use a new Plan"):
        other.attention(**given, plan=held)
    other.attention(**given, plan=other.Plan())
    assert len(launches) == len(of_other) == 1


def test_a_plan_is_not_taken_for_what_lies_at_an_old_address(
    package: ModuleType, launches: list[Any]
) -> None:
    """As where the allocator gives a freed block to the next batch's ids: same address, sizes,
    strides and count of changes, another tensor."""
    given, held = inputs(), package.Plan()
    memory = given["doc_k"].numpy()
    given["doc_k"] = torch.from_numpy(memory)
    package.attention(**given, plan=held)
    other = torch.from_numpy(memory)
    assert (other.data_ptr(), other._version) == (given["doc_k"].data_ptr(), 0)
    with pytest.raises(ValueError, match="another doc_k"):
        package.attention(**{**given, "doc_k": other}, plan=held)
    package.attention(**given, plan=held)
    assert len(launches) == 2


def test_a_plan_keeps_what_the_mask_reads_alive(package: ModuleType, launches: list[Any]) -> None:
    given, held = inputs(), package.Plan()
    package.attention(**given, plan=held)
    alive = {name: weakref.ref(tensor) for name, tensor in given.items()}
    given.clear()
    gc.collect()
    assert {name for name, ref in alive.items() if ref() is not None} == {"doc_q", "doc_k"}
    del held
    gc.collect()
    assert not any(ref() is not None for ref in alive.values())


@pytest.mark.parametrize("how", ["view", "no_grad", "inference_mode", "resize", "data"])
def test_a_change_in_place_is_seen(package: ModuleType, launches: list[Any], how: str) -> None:
    given, held = inputs(), package.Plan()
    documents = given["doc_q"]
    package.attention(**given, plan=held)
    if how == "view":
        documents[0].view(-1)[:3].fill_(9)
    elif how == "data":  # other memory under the same object
        documents.data = documents.clone()
    else:
        modes = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
        with modes.get(how, contextlib.nullcontext)():
            documents.transpose_(0, 1).transpose_(0, 1) if how == "resize" else documents.add_(1)
    with pytest.raises(ValueError, match="doc_q has changed"):
        package.attention(**given, plan=held)


def test_inference_tensors_are_refused(package: ModuleType, launches: list[Any]) -> None:
    held = package.Plan()
    with torch.inference_mode():
        given = inputs()
        with pytest.raises(ValueError, match="doc_q, an inference tensor: PyTorch does not count"):
            package.attention(**given, plan=held)
        assert not held.filled and not launches
        package.attention(**given)  # without a plan they serve
        with torch.inference_mode(False):  # what the message says to do
            fixed = {name: given[name].clone() for name in ("doc_q", "doc_k")}
        for _ in range(2):  # q, k and v may be inference tensors
            package.attention(**{**given, **fixed}, plan=held)
    assert [args.planned for args, _ in launches] == [0, 0, 1]


def test_a_plan_keeps_the_tables_that_it_was_filled_with(package: ModuleType) -> None:
    """A table that the spec makes of other inputs is made again for others only."""
    made: list[dict[str, Any]] = []

    def make(inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        made.append(inputs)
        return {"ids": torch.zeros(3)}

    q, lengths = torch.zeros(1, 2, 3, 4), torch.ones(2)
    held = package.Plan()
    ids = held.tables({"q": q, "lengths": lengths, "n": 3}, ["q"], make)["ids"]
    assert held.tables({"q": q + 1, "lengths": lengths, "n": 3}, ["q"], make)["ids"] is ids
    assert len(made) == 1
    for change in ({"lengths": lengths.clone()}, {"q": q[:, :1]}, {"n": 4}):
        held = package.Plan()
        held.tables({"q": q, "lengths": lengths, "n": 3}, ["q"], make)
        given = {"q": q, "lengths": lengths, "n": 3} | change
        assert held.tables(given, ["q"], make)["ids"] is not ids
    lengths.add_(1)
    held = package.Plan()
    first = held.tables({"lengths": lengths}, [], make)
    lengths.add_(1)
    assert held.tables({"lengths": lengths}, [], make) is not first


def test_a_mask_over_a_table_that_the_spec_makes(
    root: Path, import_package: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "starts.py"
    spec.write_text(STARTS)
    package = import_package(carried(root, spec), "of_starts")
    seen = launches_of(package, monkeypatch)
    recorded: set[int] = set()
    record = lambda tensor, stream: recorded.add(tensor.data_ptr())  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "record_stream", record)
    starts = (torch.arange(96) % 40 == 0).long().expand(2, 96).contiguous()
    q = torch.zeros(2, 2, 96, 128, dtype=torch.bfloat16)
    held = package.Plan()
    package.attention(q, q, q, starts)  # makes the table in the call
    for _ in range(2):
        package.attention(q + 1, q, q, starts, plan=held)
    assert [args.planned for args, _ in seen] == [0, 0, 1]
    assert recorded == {seen[2][0].ids.data, seen[2][0].lists.data}  # all that the plan allocated
    assert seen[1][0].ids.data == seen[2][0].ids.data  # the plan's own table
    with torch.inference_mode():  # a table made here can be held all the same
        package.attention(q, q, q, starts, plan=package.Plan())
    with pytest.raises(ValueError, match="another ids"):
        package.attention(q, q, q, starts.clone(), plan=held)
    starts[0, 3] = 1
    with pytest.raises(ValueError, match="another ids"):
        package.attention(q, q, q, starts, plan=held)
    with pytest.raises(TypeError, match=r"ids must have dtype torch\.int32, not torch\.int64"):
        package.attention(q, q, q, starts, starts.cumsum(-1))
    with pytest.raises(ValueError, match="ids holds integers that do not fit"):
        package.attention(q, q, q, starts * 2**32)
    readme = Path(package.__file__ or "").with_name("README.md").read_text(encoding="utf-8")
    readme = " ".join(readme.split())
    assert "Where `ids` is not given, the spec's own code makes it of `starts`" in readme
    assert "`starts` [B, Nk], int32 or int64, read by the spec's own code alone; " in readme
    assert "`ids` [B, Nk], int32; where it is not given, line" in readme


def test_a_package_with_plans_says_what_they_hold(package: ModuleType) -> None:
    said = " ".join((package.attention.__doc__ or "").split())
    for words in ("(doc_q, doc_k)", "`.data`", "Inference tensors are refused", "int32"):
        assert words in said
    readme = Path(package.__file__ or "").with_name("README.md").read_text(encoding="utf-8")
    assert "held = documents.Plan()" in readme


def test_a_plan_is_filled_before_a_capture(
    package: ModuleType, launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, given = package.Plan(), inputs()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="before the graph is captured"):
        package.attention(**given, plan=held)
    package.attention(**given)  # without a plan the lists are made inside the graph
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    package.attention(**given, plan=held)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    package.attention(**given, plan=held)
    assert [args.planned for args, _ in launches] == [0, 0, 1]


def test_calls_with_one_plan_run_one_after_another(
    package: ModuleType, launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts the pieces of work in the plan's memory, so that the next call waits for it, on
    whatever stream; a capture neither waits nor is waited for."""
    done: list[str] = []

    def stream(name: str) -> SimpleNamespace:
        return SimpleNamespace(
            cuda_stream=0,
            record_event=lambda: f"{name}, launch {len(launches)}",
            wait_event=lambda event: done.append(f"{name} waits for {event}"),
        )

    def call(name: str, held: Any, capturing: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream(name))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
        package.attention(**given, plan=held)

    held, given = package.Plan(), inputs()
    call("one", held)
    call("one", held)
    call("two", held)
    call("graph", held, capturing=True)
    call("one", held)
    call("one", package.Plan())  # another plan's memory is another
    assert done == [
        "one waits for one, launch 1", "two waits for one, launch 2", "one waits for two, launch 3",
    ]  # fmt: skip


def test_a_plan_needs_a_gpu_and_no_gradient(package: ModuleType) -> None:
    given = inputs()
    with pytest.raises(RuntimeError, match="needs CUDA tensors"):
        package.attention(**given, plan=package.Plan())
    given["q"].requires_grad_()
    with pytest.raises(RuntimeError, match="forward only"):
        package.attention(**given, plan=package.Plan())


def test_a_mask_over_indices_has_no_plan(root: Path, import_package: Import) -> None:
    plain = import_package(content(root), "plain")
    assert not hasattr(plain, "Plan")
    with pytest.raises(TypeError, match="plan"):
        plain.attention(None, None, None, plan=None)
