"""A package under PyTorch's SDPA and in diffusers, with the spec in the kernel's place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional

from engine.cuir.parser import parse_expr
from engine.package.export import package_files
from engine.package.host import host_facts
from tests.engine.package.conftest import Import, content
from tests.engine.package.models import in_float32, of_spec
from tests.engine.transfer.recipes import recipe as asked


@pytest.fixture(scope="module")
def full(root: Path, import_package: Import) -> ModuleType:
    return import_package(in_float32(of_spec(root, "full")), "full_in_hosts")


@pytest.fixture(scope="module")
def causal(root: Path, import_package: Import) -> ModuleType:
    return import_package(in_float32(of_spec(root, "causal")), "causal_in_hosts")


def qkv(rows: int = 5, keys: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, h, n, 16, generator=generator)
            for h, n in ((4, rows), (4, keys), (4, keys))]  # fmt: skip


def test_pytorch_s_registry_takes_it_and_gives_the_place_back(causal: ModuleType) -> None:
    attention = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl"):
        pytest.skip("this PyTorch has no registry of SDPA's implementations")
    assert causal.as_sdpa_implementation("ours") in attention.list_flash_attention_impls()
    attention.activate_flash_attention_impl("ours")
    assert attention.current_flash_attention_impl() == "ours"
    attention.restore_flash_attention_impl()
    assert attention.current_flash_attention_impl() is None


def test_what_sdpa_s_back_end_gets(causal: ModuleType) -> None:
    """What the dispatcher calls for CUDA tensors, called here with others."""
    host = causal._hosts.InSdpa(causal._OPERATOR)
    q, k, v = qkv()
    out, lse, *_ = host.flash(q, k, v, is_causal=True)
    torch.testing.assert_close(
        out, functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    )
    scores = (q @ k.mT / 4).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(lse, scores.logsumexp(-1))
    for said, change in {
        "has no dropout": {"dropout_p": 0.1},
        "is causal, and the model's attention is over all keys": {"is_causal": False},
        r"asks for x \* 1 \(D = 16\)": {"scale": 1.0},
    }.items():
        with pytest.raises(causal._hosts.Refused, match=said):
            host.flash(q, k, v, **{"is_causal": True, **change})
    with pytest.raises(causal._hosts.Refused, match="not 7 and 5"):
        host.flash(*qkv(5, 7), is_causal=True)
    with pytest.raises(causal._hosts.Refused, match="forward only"):
        host.no_backward()


@pytest.mark.extras
@torch.no_grad()
def test_diffusers_unet_runs_with_it(full: ModuleType) -> None:
    diffusers = pytest.importorskip(
        "diffusers", reason="optional: pip install -e '.[hosts]' brings diffusers"
    )
    torch.manual_seed(0)
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=2, out_channels=2, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), cross_attention_dim=12, attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()  # fmt: skip
    given = torch.randn(2, 2, 8, 8), 3, torch.randn(2, 7, 12)
    plain = model(*given).sample
    calls: list[Any] = []
    spec = full._OPERATOR.spec
    ran = spec.output
    spec.output = lambda values, sizes: calls.append(sizes) or ran(values, sizes)
    try:
        model.set_attn_processor(
            {n: full.as_attention_processor(p) for n, p in model.attn_processors.items()}
        )
        ours = model(*given).sample
        assert len(calls) == len(model.attn_processors)  # attention to itself and to the text
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)
        with pytest.raises(full._hosts.Refused, match="takes no attn_mask"):
            model(*given, encoder_attention_mask=torch.tensor([[1] * 5 + [0] * 2] * 2))
    finally:
        spec.output = ran


def test_a_causal_kernel_does_not_stand_in_for_full_attention(
    causal: ModuleType, full: ModuleType
) -> None:
    host = full._hosts.InSdpa(full._OPERATOR)
    with pytest.raises(full._hosts.Refused, match="is over all keys, and the model's"):
        host.sdpa(*qkv(), is_causal=True)
    assert host.sdpa(*qkv(3, 9)).shape == (2, 4, 3, 16)


def test_transformers_asks_for_nothing_that_is_not_known(full: ModuleType) -> None:
    """What changes nothing passes, and all else is refused that a model hands to its attention."""
    host = full._hosts.InSdpa(full._OPERATOR)
    module, given = torch.nn.Module(), (*qkv(), None)
    idle = {"position_ids": torch.arange(5), "use_cache": False, "output_attentions": False}
    out, _ = host.transformers(module, *given, is_causal=False, indices=None, **idle)
    assert out.shape == (2, 5, 4, 16)
    for name in ("indices", "sinks", "cu_seq_lens_q", "s_aux"):
        with pytest.raises(full._hosts.Refused, match=f"does not take {name}"):
            host.transformers(module, *given, is_causal=False, **{name: torch.zeros(4)})


def test_a_kernel_without_lse_is_none_of_sdpa_s(root: Path, import_package: Import) -> None:
    made = content(root)
    assert made.binding.tensors[-1].source == "LSE"
    module = import_package(of_spec(root, "sigmoid"), "sigmoid_in_hosts")
    assert not hasattr(module, "as_sdpa_implementation") and not hasattr(module, "_hosts")


@pytest.mark.parametrize("more", [{"sink": "0.0"}, {"output": "o * 2.0"}, {"lse": "2"}])
def test_another_sum_or_output_is_none_of_a_library_s(more: dict[str, Any]) -> None:
    assert "refused" in host_facts(asked("x * rsqrt(D)", **more), ())
    assert "refused" not in host_facts(asked("x * rsqrt(D)"), ())


@pytest.mark.parametrize("kv_head", ["h % Hkv", "h", "groups[h]", "h // (Hq // Hkv) * 0"])
def test_other_key_heads_are_none_of_a_library_s(kv_head: str) -> None:
    made = asked("x * rsqrt(D)", kv_head=kv_head)
    assert "other key heads" in host_facts(made, ())["refused"]


def test_as_many_key_heads_as_query_heads_are_a_library_s() -> None:
    made = replace(asked("x * rsqrt(D)", kv_head="h"), constraints=(parse_expr("Hq == Hkv"),))
    assert "refused" not in host_facts(made, ())


@pytest.mark.parametrize("more", [{"q": "q[b, h, i, dd] * 2.0"}, {"k": "k[b, h, j, dd] * 2.0"}])
def test_a_kernel_that_makes_q_or_k_is_none_of_a_library_s(more: dict[str, Any]) -> None:
    assert "before their product" in host_facts(asked("x * rsqrt(D)", **more), ())["refused"]


@pytest.mark.parametrize(
    ("spec", "has", "why"),
    [
        ("causal", ("as_attention_interface", "as_attention_processor", "as_sdpa_implementation"),
         ""),
        ("softcap_causal", ("as_attention_interface",), "is no multiple of x"),
        ("causal_document", ("as_attention_interface",), "document numbers"),
        ("prefix_lm", (), "is none that a library asks for"),
    ],
)  # fmt: skip
def test_an_export_has_what_can_be_asked_of_it(
    root: Path, spec: str, has: tuple[str, ...], why: str
) -> None:
    """What every call would be refused by is not there, and the README says why."""
    files = package_files(of_spec(root, spec), "ours")
    text, readme = files["__init__.py"].decode(), " ".join(files["README.md"].decode().split())
    assert sorted(re.findall(r"def (as_\w+)", text)) == sorted(has)
    assert [f'    "{name}",\n' in text for name in has] == [True] * len(has)
    assert ("_hosts.py" in files) == bool(has) and why in readme
    assert bool(why) == ("cannot stand in for" in readme)
    hosts = files.get("_hosts.py", b"").decode()
    assert ("class InSdpa" in hosts) == ("as_sdpa_implementation" in has)
