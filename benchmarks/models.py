"""Exported packages in transformers' Gemma 2 on a GPU: right beside eager, and tokens per second.

    python benchmarks/models.py OUT.json [--device cpu] [--limit SECONDS]

Packages `softcap_causal`, `causal_document` and, for SDPA, `causal_attention` must be importable,
with their libraries built: a compiler is hidden here. Right is FlashAttention's rule: the logits'
error against an eager model in float32 is at most twice that of eager in bfloat16. Weights are
random, layers are few and as wide as Gemma 2 2B's, heads as long as Gemma 2 27B's (FlexAttention's
FLASH back end refuses those of 256), and every contestant has the same weights.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers

PACKAGES = {"softcap_causal": 50.0, "causal_document": None}
PARTS = ("logits", "speed", "check", "long", "flex", "compiled")  # time may run out
PROCESSES = 4  # that load a package at once
LATE = "the time was up"


def model(implementation: str, softcap: float | None, dtype: torch.dtype, device: str) -> Any:
    large = device == "cuda"
    config = transformers.Gemma2Config(
        vocab_size=4096 if large else 128, hidden_size=2304 if large else 64,
        intermediate_size=9216 if large else 64, num_hidden_layers=4 if large else 2,
        num_attention_heads=16 if large else 8, num_key_value_heads=8 if large else 4,
        head_dim=128, query_pre_attn_scalar=128, attn_logit_softcapping=softcap,
        layer_types=["full_attention"] * (4 if large else 2), pad_token_id=0, eos_token_id=None,
        max_position_embeddings=16384, sliding_window=16384,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        made = transformers.Gemma2ForCausalLM(config).eval().to(dtype)
    made.set_attn_implementation(implementation)
    return made


def ids(rows: int, length: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, 128, (rows, length), generator=generator).to(device)


def left_padding(tokens: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(tokens)
    for row in range(len(tokens)):
        mask[row, : row * tokens.shape[1] // (2 * len(tokens))] = 0
    return mask


def stepped(made: Any, tokens: torch.Tensor, mask: torch.Tensor, steps: int) -> torch.Tensor:
    """Logits of the last places, each step with the cache of those before."""
    before = tokens.shape[1] - steps
    out = made(tokens[:, :before], attention_mask=mask[:, :before], use_cache=True)
    cache, kept = out.past_key_values, [out.logits[:, -1:]]
    for at in range(before, tokens.shape[1]):
        out = made(
            tokens[:, at : at + 1], attention_mask=mask[:, : at + 1], past_key_values=cache,
            use_cache=True,
        )  # fmt: skip
        kept.append(out.logits)
    return torch.cat(kept, 1)


def errors(ours: torch.Tensor, eager: torch.Tensor, right: torch.Tensor) -> dict[str, Any]:
    off, usual = (float((t.float() - right).abs().max()) for t in (ours, eager))
    return {"error": off, "eager_error": usual, "passed": off <= 2 * usual + 1e-6}


def correctness(name: str, softcap: float | None, device: str) -> dict[str, Any]:
    length = 1024 if device == "cuda" else 24
    tokens = ids(4, length, device)
    mask = left_padding(tokens)
    real = mask.bool()
    bf16 = torch.bfloat16
    ours, eager, right = (
        model(how, softcap, kind, device)
        for how, kind in ((name, bf16), ("eager", bf16), ("eager", torch.float32))
    )
    everything = torch.ones_like(mask)
    out = {
        "prefill": errors(*(m(tokens).logits for m in (ours, eager, right))),
        "padded batch": errors(*(m(tokens, attention_mask=mask).logits[real]
                                 for m in (ours, eager, right))),
        "steps with a cache": errors(*(stepped(m, tokens, everything, 8)
                                       for m in (ours, eager, right))),
        "steps, padded": errors(*(stepped(m, tokens, mask, 8) for m in (ours, eager, right))),
    }  # fmt: skip
    made = [
        m.generate(tokens, attention_mask=mask, max_new_tokens=16, do_sample=False)[:, length:]
        for m in (ours, eager)
    ]
    out["generate"] = {"same_tokens_as_eager": float((made[0] == made[1]).float().mean())}
    if name == "causal_document":
        numbers = (torch.arange(length, device=device) * 5 // length).expand(1, -1)
        packed = ours(tokens[:1], document_ids=numbers).logits
        alone = [[m(tokens[:1, numbers[0] == n]).logits for n in range(5)] for m in (eager, right)]
        out["packed documents"] = errors(packed, *(torch.cat(parts, 1) for parts in alone))
    return out


def compiled(name: str, softcap: float | None, device: str) -> dict[str, Any]:
    made = model(name, softcap, torch.bfloat16, device)
    tokens = ids(2, 512 if device == "cuda" else 24, device)
    whole = torch.compile(made, fullgraph=True)
    off = (whole(tokens, use_cache=False).logits - made(tokens, use_cache=False).logits).float()
    return {"fullgraph": True, "largest_difference": float(off.abs().max())}


def under_sdpa() -> dict[str, Any]:
    """The causal kernel as SDPA's FLASH back end, by PyTorch's registry."""
    package = importlib.import_module("causal_attention")
    attention = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl"):
        return {"not_run": f"torch {torch.__version__} has no registry of SDPA's implementations"}
    q, k, v = (torch.randn(4, 16, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def run() -> torch.Tensor:
        with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        right = torch.nn.functional.scaled_dot_product_attention(
            *(t.float() for t in (q, k, v)), is_causal=True
        )
    torch_s, torch_seconds = run(), seconds(run, "cuda")
    attention.activate_flash_attention_impl(package.as_sdpa_implementation("causal_attention"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        ours = run()
    row = errors(ours, torch_s, right)
    row |= {"seconds": seconds(run, "cuda"), "torch_seconds": torch_seconds}
    row["kernels"] = sorted({event.name[:80] for event in profile.events()})
    try:
        q.requires_grad_()
        with torch.enable_grad():
            run().sum().backward()
        row["backward"] = "not refused"
    except Exception as error:
        row["backward"] = str(error).splitlines()[0][:200]
    attention.restore_flash_attention_impl()
    q.requires_grad_(False)
    row["restored"] = bool(torch.equal(run(), torch_s))
    return row


def seconds(run: Any, device: str, times: int = 5) -> float:
    def once() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    once(), once()
    return statistics.median(once() for _ in range(times))


def speed(
    titles: Iterable[str], rows: int, length: int, decoded: bool, softcap: float | None,
    device: str, ends: float,
) -> dict[str, Any]:  # fmt: skip
    """Tokens per second of contestants: prefill, and, `decoded`, a padded one and steps after it.

    `differs` is the largest difference of the last logits from those of the first contestant, the
    package; where the package did not run nothing has it. A package that raises has `failed`, a
    rival that does was `not_run`.
    """
    out: dict[str, Any] = {}
    first: torch.Tensor | None = None
    tokens = ids(rows, length, device)
    for number, title in enumerate(titles):
        row: dict[str, Any] = {}
        out[title] = row
        if time.monotonic() > ends:
            row["not_run"] = LATE
            continue
        more = {"kernel_options": {"BACKEND": "FLASH"}} if title.endswith("FLASH") else {}
        try:
            made = model(title.split()[0], softcap, torch.bfloat16, device)
            torch._dynamo.reset()  # each size compiled for itself, where something is compiled

            def prefill(mask: Any = None, made: Any = made, more: Any = more) -> torch.Tensor:
                given = {"attention_mask": mask, "use_cache": False, "logits_to_keep": 1}
                return made(tokens, **given, **more).logits

            row["prefill"] = round(rows * length / seconds(prefill, device))
            last = prefill().float()
            first = last if number == 0 else first
            if first is not None:
                row["differs"] = float((last - first).abs().max())
            if decoded and not title.startswith("flex"):  # compiles anew as the cache grows
                mask, new = left_padding(tokens), 32 if device == "cuda" else 4
                padded = functools.partial(prefill, mask)
                row["padded prefill"] = round(rows * length / seconds(padded, device))
                decode = functools.partial(
                    made.generate, tokens, max_new_tokens=new, do_sample=False
                )
                row[f"generate {new}"] = round(rows * new / seconds(decode, device, 3))
        except Exception as error:
            word = "not_run" if number else "failed"
            row[word] = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0][:230]
    return out


def together(name: str) -> dict[str, Any]:
    """Several processes that load the package at once and run its check."""
    package = importlib.import_module(name)
    code = f"import {name}; assert {name}.check()"
    begin = time.monotonic()
    running = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    said = [process.communicate()[1] for process in running]
    return {
        "exit": [process.returncode for process in running],
        "read_only": bool(os.statvfs(Path(package.__file__).parent).f_flag & os.ST_RDONLY),
        "seconds": round(time.monotonic() - begin, 1),
        "said": [text.strip().splitlines()[-1][:200] for text in said if text.strip()],
    }


def nvcc_found(builder: Any) -> str:
    """The compiler that a package would build itself with, or that there is none."""
    try:
        return str(builder.find_nvcc())
    except RuntimeError as error:
        return str(error)


def hidden() -> Path:
    """In the place of a package's search for nvcc."""
    raise RuntimeError("nvcc is hidden here")


def has_failed(said: Any) -> bool:
    """Whether anything of a record failed, is not right, or ended with an exit code.

    What was not run did not fail: the record says why.
    """
    if not isinstance(said, dict):
        return False
    return (
        "failed" in said
        or False in (said.get("passed"), said.get("restored"))
        or said.get("backward") == "not refused"
        or any(said.get("exit", ()))
        or any(map(has_failed, said.values()))
    )


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--limit", type=float, default=130, help="seconds: what has not begun by "
                        "then is left out, and said")  # fmt: skip
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    device = arguments.device
    ends = time.monotonic() + arguments.limit
    said: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sizes": "speed: 4 x 2048 tokens, long: 2 x 8192, flex: 4 x 2048; tokens per second",
    }
    runs: list[tuple[str, str, Any]] = []
    for name, softcap in PACKAGES.items():
        package = importlib.import_module(name)
        package.as_attention_interface(name)
        builder = importlib.import_module(f"{name}.build")
        version = builder.settings()["version"]  # with the source's hash
        said[name] = {"level": package.LEVEL, "version": version, "nvcc": nvcc_found(builder)}
        builder.find_nvcc = hidden
        # FlexAttention's FLASH back end needs flash-attn-4; its own templates compile longest.
        titles = [name, "eager", *(["sdpa"] if softcap is None else []), "flex_attention FLASH"]
        timed = functools.partial(speed, softcap=softcap, device=device, ends=ends)
        short, long = ((4, 2048), (2, 8192)) if device == "cuda" else ((2, 24), (1, 40))
        runs += [
            (name, "logits", functools.partial(correctness, name, softcap, device)),
            (name, "speed", functools.partial(timed, titles, *short, True)),
            (name, "long", functools.partial(timed, titles, *long, False)),
            (name, "flex", functools.partial(timed, [name, "flex_attention"], *short, False)),
            (name, "compiled", functools.partial(compiled, name, softcap, device)),
        ]
        if device == "cuda":
            runs.append((name, "check", functools.partial(together, name)))
    if device == "cuda":
        runs.append(("sdpa", "check", under_sdpa))
    for name, part, run in sorted(runs, key=lambda row: PARTS.index(row[1])):
        if part not in arguments.parts:
            continue
        begin = time.monotonic()
        row = said.setdefault(name, {})
        try:
            row[part] = {"not_run": LATE} if begin > ends else run()
        except Exception as error:
            row[part] = {"failed": f"{type(error).__name__}: {error}"[:600]}
        row[f"{part}_seconds"] = round(time.monotonic() - begin, 1)
        arguments.out.write_text(json.dumps(said, indent=2) + "\n")
    print(json.dumps(said, indent=2))
    return 1 if has_failed(said) else 0


if __name__ == "__main__":
    raise SystemExit(main())
