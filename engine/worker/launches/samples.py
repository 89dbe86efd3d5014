"""A few small launches whose outputs a result carries whole, so that they can be computed again.

Inputs are drawn on the CPU from a seed that the sample names: whoever has the job's files draws the
same ones, runs the spec's own function on them and compares, without a GPU.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.errors import SpecError
from engine.spec.decks.deck_inputs import make_inputs
from engine.spec.python.signature import Asked
from engine.worker.launches.specialisation import Subject
from engine.worker.problems.problem_sizes import Case

SAMPLES = (
    Case(2, 4, 2, 19, 70, seed=9300),  # two batches, shared keys, two tiles of keys
    Case(1, 2, 1, 140, 33, seed=9301, turn=1),  # two blocks of rows, more rows than keys
)
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def samples(subject: Subject) -> Iterator[dict[str, Any]]:
    """One sample for each case that the spec takes and the kernel runs."""
    for wanted in SAMPLES:
        case = subject.adapted(wanted)
        if case is None:
            continue
        subject.say(f"samples: {case}")
        sizes = subject.run.sizes(case, subject.d, subject.dv)
        asked = subject.run.recipe or subject.run.signature
        drawn = sample_inputs(asked, sizes, case.seed, case.turn, subject.dtype)
        try:
            inputs = subject.run.with_derived(drawn)
        except SpecError:
            continue
        on_card = {name: tensor.to(subject.run.device) for name, tensor in inputs.items()}
        call = subject.made(on_card, sizes)
        if call.run() == 0:
            yield {
                "specialisation": subject.key, "sizes": sizes, "seed": case.seed,
                "turn": case.turn, "dtype": type_name(subject.dtype),
                "inputs": {name: digest(tensor) for name, tensor in sorted(drawn.items())},
                "outputs": {name: encoded(o.tensor) for name, o in call.outputs.items()},
            }  # fmt: skip


def sample_inputs(
    asked: Asked, sizes: Mapping[str, int], seed: int, turn: int, dtype: torch.dtype
) -> dict[str, Tensor]:
    """A sample's inputs but for derived ones, on the CPU, in the spec's layout."""
    return make_inputs(asked, sizes, seed, dtype=dtype, turn=turn)


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def raw(tensor: Tensor) -> bytes:
    """The elements in row-major order."""
    data = bytearray(tensor.numel() * tensor.element_size())
    if data:
        torch.frombuffer(data, dtype=tensor.dtype).view(tensor.shape).copy_(tensor.cpu())
    return bytes(data)


def digest(tensor: Tensor) -> str:
    """SHA-256 of type, shape and bytes."""
    head = f"{type_name(tensor.dtype)} {list(tensor.shape)} "
    return hashlib.sha256(head.encode() + raw(tensor)).hexdigest()


def encoded(tensor: Tensor) -> dict[str, Any]:
    """A tensor as JSON: type, shape, base64 of its bytes."""
    data = base64.b64encode(raw(tensor)).decode("ascii")
    return {"dtype": type_name(tensor.dtype), "shape": list(tensor.shape), "data": data}


def decoded(data: Mapping[str, Any]) -> Tensor:
    """The tensor that `encoded` wrote. Raises `ValueError` for anything else."""
    try:
        dtype, shape = TYPES[data["dtype"]], [int(n) for n in data["shape"]]
        content = bytearray(base64.b64decode(data["data"], validate=True))
        flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
        return flat.view(shape)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"no tensor: {error}") from None
