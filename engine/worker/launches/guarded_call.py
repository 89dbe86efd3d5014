"""One launch of the kernel: arguments filled from the spec's inputs, everything under guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from engine.errors import InputError
from engine.transfer.binding import SLOTS, Binding, TensorField
from engine.transfer.fill import UNFILLED, filled, size_of
from engine.worker.launches.guard_bands import PLAIN, Guarded, Layout, bits, guarded, guarded_copy

Launch = Callable[[Mapping[str, Any]], int]
"""Values by field of the argument struct (tensors as views in the kernel's order) -> status."""


@dataclass
class Call:
    """Arguments in place, ready to be launched any number of times.

    `inputs` are the kernel's own copies by the spec's names, `outputs` are the spec's outputs by
    role ("O", "LSE"), `workspace` is what the kernel fills for itself and `planned` the field that
    says whether it holds that already; `lies` is the word that a launch finds in all of it, for a
    caller's workspace holds anything.
    """

    launch: Launch
    fields: dict[str, Any]
    inputs: dict[str, Guarded]
    outputs: dict[str, Guarded]
    workspace: Guarded | None = None
    planned: str = ""
    scratch: dict[str, Guarded] = field(default_factory=dict)
    lies: int = UNFILLED
    _before: dict[str, Tensor] = field(default_factory=dict)

    def run(self, *, held: bool = False, left: bool = False) -> int:
        """Fill the outputs with NaN, launch, and wait. The status is 0 or a cudaError_t.

        The workspace is overwritten first; `left` leaves in it what the last launch left, and so
        does `held`, which tells the launch to go by it.
        """
        self.blank(workspace=not held and not left)
        self._before = {n: g.buffer.clone() for n, g in self.inputs.items()}
        status = self.launch(self.held if held else self.fields)
        synchronise(next(iter(self.outputs.values())).buffer.device)
        return status

    def blank(self, *, workspace: bool = True) -> None:
        """Fill the outputs and what kernels hand on with NaN, and the workspace with what `lies` in
        it."""
        for output in (*self.outputs.values(), *self.scratch.values()):
            output.buffer.fill_(0xFF)
        if self.workspace is not None and workspace:
            self.workspace.buffer.fill_(0xFF)
            self.workspace.tensor.fill_(self.lies)

    @property
    def held(self) -> dict[str, Any]:
        """The fields of a launch that finds its workspace filled."""
        return {**self.fields, self.planned: 1} if self.planned else self.fields

    @property
    def o(self) -> Tensor:
        return self.outputs["O"].tensor

    @property
    def lse(self) -> Tensor | None:
        return self.outputs["LSE"].tensor if "LSE" in self.outputs else None

    def bits(self) -> list[Tensor]:
        """Every output's elements, to compare bit for bit."""
        return [bits(o.tensor).clone() for o in self.outputs.values()]

    def touched_outside(self) -> dict[str, int]:
        """Bytes changed outside of what the kernel may write, by what it is, where any were."""
        written = {**self.outputs, **self.scratch}
        if self.workspace is not None:
            written["workspace"] = self.workspace
        return {n: c for n, o in written.items() if (c := o.touched_outside())}

    def changed_inputs(self) -> list[str]:
        """Inputs of which any byte (guard bands included) changed in the last run."""
        return [n for n, g in self.inputs.items() if not torch.equal(g.buffer, self._before[n])]

    def untouched(self) -> bool:
        """Whether no output holds anything but the fill."""
        return all(bool((o.buffer == 0xFF).all()) for o in self.outputs.values())


def make_call(
    launch: Launch,
    binding: Binding,
    inputs: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    dtype: torch.dtype,
    layouts: Mapping[str, Layout] | None = None,
    constants: Mapping[str, int] | None = None,
    slots: int = SLOTS,
) -> Call:
    """Copy the inputs under guard, make the outputs, fill the fields.

    `layouts` gives the memory layout by the spec's input name or output role, `constants` those of
    the launcher that the workspace's size depends on, `slots` how many tiles have their mask in it.

    Raises:
        InputError: an input holds integers that the kernel's 32 bits do not.
    """
    layouts = layouts or {}
    device = next(v.device for v in inputs.values() if isinstance(v, Tensor))
    kept: dict[str, Guarded] = {}
    outputs: dict[str, Guarded] = {}

    def placed(item: TensorField) -> Tensor:
        layout = layouts.get(item.source, PLAIN)
        kind = stored(item, dtype)
        if item.output:
            made = guarded([size_of(d, sizes) for d in item.source_dims], kind, device, layout)
            outputs[item.source] = made
        else:
            check_holds(item.source, inputs[item.source], kind)
            made = guarded_copy(inputs[item.source], kind, layout)
            kept[item.source] = made
        return made.tensor

    fields = filled(binding, placed, sizes, inputs)
    call = Call(launch, fields, kept, outputs)
    space = binding.workspace
    if space is not None:
        known = {**(constants or {}), **sizes, space.slots: slots}
        shape = [size_of(d, known) for d in space.dims]
        call.workspace, call.planned = guarded(shape, torch.int32, device), space.planned
        fields |= {space.field: call.workspace.tensor, space.planned: 0, space.slots: slots}
    for row in binding.scratch:
        kind = torch.float32 if row.dtype == "f32" else dtype
        passed = guarded([size_of(d, sizes) for d in row.dims], kind, device)
        call.scratch[row.field] = passed
        fields[row.field] = passed.tensor
    return call


def words_that_lie(slots: int) -> tuple[int, ...]:
    """What a workspace may hold beforehand that lists would believe: no kept pair, only kept pairs,
    the first slot that is not there, and -1."""
    return (0, 2, 3 + slots, UNFILLED)


def stored(item: TensorField, dtype: torch.dtype) -> torch.dtype:
    """The element type that the kernel reads."""
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "bool": torch.bool,
             "int64": torch.int64}  # fmt: skip
    return dtype if item.dtype == "T" else kinds.get(item.dtype, torch.int32)


def check_holds(name: str, value: Tensor, kind: torch.dtype) -> None:
    """Raises `InputError` where `kind`, 32 bits, does not hold all of the integers of `value`."""
    if kind != torch.int32 or value.dtype != torch.int64 or not value.numel():
        return
    low, high = int(value.min()), int(value.max())
    if low < -(2**31) or high >= 2**31:
        raise InputError(
            f"{name} holds integers from {low} to {high}, and the kernel reads 32 bits",
            fix=f"number what {name} names from 0 on",
        )


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
