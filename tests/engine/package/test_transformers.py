"""A package in the place of transformers' attention, with the spec in the kernel's place."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.engine.package.conftest import Import
from tests.engine.package.models import in_float32, of_spec

pytestmark = pytest.mark.extras
transformers = pytest.importorskip(
    "transformers", reason="optional: pip install -e '.[hosts]' brings transformers"
)


@pytest.fixture(scope="module")
def softcap(root: Path, import_package: Import) -> ModuleType:
    module = import_package(in_float32(of_spec(root, "softcap_causal")), "softcap_in_models")
    assert module.as_attention_interface("softcap") == "softcap"
    return module


@pytest.fixture(scope="module")
def documents(root: Path, import_package: Import) -> ModuleType:
    module = import_package(in_float32(of_spec(root, "causal_document")), "documents_in_models")
    module.as_attention_interface("documents")
    return module


def gemma2(implementation: str, softcap: float | None = 50.0, **change: Any) -> Any:
    """A small Gemma 2 with the same weights whatever its attention."""
    config = transformers.Gemma2Config(
        vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16,
        attn_logit_softcapping=softcap, pad_token_id=0, eos_token_id=None, **change,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Gemma2ForCausalLM(config).eval()
    model.set_attn_implementation(implementation)
    return model


def tokens(rows: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(1, 128, (rows, length), generator=torch.Generator().manual_seed(1))


def padding(side: str) -> torch.Tensor:
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, slice(0, 5) if side == "left" else slice(8, 12)] = 0
    return mask


KERNELS = {"softcap": 50.0, "documents": None}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("side", ["left", "right", None])
@torch.no_grad()
def test_logits_are_those_of_eager(
    name: str, side: str | None, softcap: ModuleType, documents: ModuleType
) -> None:
    mask = None if side is None else padding(side)
    ours, eager = (
        gemma2(how, KERNELS[name])(tokens(), attention_mask=mask).logits for how in (name, "eager")
    )
    real = torch.ones(2, 12, dtype=torch.bool) if mask is None else mask.bool()
    torch.testing.assert_close(ours[real], eager[real], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_it_generates_with_a_cache_as_eager_does(
    name: str, softcap: ModuleType, documents: ModuleType
) -> None:
    made = [
        gemma2(how, KERNELS[name]).generate(
            tokens(), attention_mask=padding("left"), max_new_tokens=6, do_sample=False
        )
        for how in (name, "eager")
    ]
    assert torch.equal(*made)


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_it_is_compiled_whole(name: str, softcap: ModuleType, documents: ModuleType) -> None:
    torch._dynamo.reset()
    model = gemma2(name, KERNELS[name])
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for mask in (None, padding("left")):
        given = {"input_ids": tokens(), "attention_mask": mask, "use_cache": False}
        real = torch.ones(2, 12, dtype=torch.bool) if mask is None else mask.bool()
        torch.testing.assert_close(compiled(**given).logits[real], model(**given).logits[real])


@torch.no_grad()
def test_documents_are_told_apart(documents: ModuleType) -> None:
    model = gemma2("documents", None)
    ids, eager = tokens(1), gemma2("eager", None)
    numbers = torch.tensor([[3] * 5 + [8] * 7])
    # Rotary positions are relative, so that each document is as if it stood alone.
    packed = model(ids, document_ids=numbers).logits
    alone = [eager(part).logits for part in (ids[:, :5], ids[:, 5:])]
    torch.testing.assert_close(packed, torch.cat(alone, 1), atol=2e-5, rtol=1e-4)
    # As transformers packs a batch: positions that begin again.
    places = torch.cat([torch.arange(5), torch.arange(7)])[None]
    again = model(ids, position_ids=places, use_cache=False).logits
    torch.testing.assert_close(again, torch.cat(alone, 1), atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_what_the_kernel_has_not_is_refused_in_a_sentence(softcap: ModuleType) -> None:
    refused = softcap._hosts.Refused
    cases: dict[str, Any] = {
        "asks for x \\* 0.25, capped at 30": lambda: gemma2("softcap", 30.0)(tokens()),
        "asks for x \\* 0.25 \\(D": lambda: gemma2("softcap", None)(tokens()),
        "has no window of 4 keys": lambda: gemma2("softcap", sliding_window=4)(tokens()),
        "takes no mask of all pairs": lambda: gemma2("softcap")(
            tokens(), attention_mask=torch.zeros(2, 1, 12, 12)
        ),
        "does not tell documents apart": lambda: gemma2("softcap")(
            tokens(), document_ids=torch.zeros(2, 12)
        ),
        "no run of places": lambda: gemma2("softcap")(
            tokens(), attention_mask=torch.tensor([[1, 1, 0, 1] * 3] * 2)
        ),
        "which a static cache does not give": lambda: gemma2("softcap").generate(
            tokens(), max_new_tokens=3, cache_implementation="static"
        ),
        "the mask of its spec, and the model asks for another": lambda: gemma2("softcap")(
            tokens(1), position_ids=torch.tensor([[0, 1, 2, 3, 4, 5] * 2]), use_cache=False
        ),
        "does not give attention weights": lambda: gemma2("softcap")(
            tokens(), output_attentions=True
        ),
    }  # fmt: skip
    for said, call in cases.items():
        with pytest.raises((refused, ValueError), match=said):
            call()


def test_training_is_refused(softcap: ModuleType) -> None:
    model = gemma2("softcap", attention_dropout=0.1).train()
    with pytest.raises(softcap._hosts.Refused, match="has no dropout"):
        model(tokens())
    loss = gemma2("softcap")(tokens()).logits.sum()
    with pytest.raises(RuntimeError, match="forward only"):
        loss.backward()


def test_a_kernel_that_no_model_asks_for(root: Path, import_package: Import) -> None:
    module = import_package(of_spec(root, "prefix_lm"), "prefix_in_models")
    assert not hasattr(module, "as_attention_interface")
