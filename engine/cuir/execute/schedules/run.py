"""Runs a whole program: the host function, and every block of every launch."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from engine.cuir.arch import WARPGROUP_THREADS, arch_of
from engine.cuir.execute.compiled.code import PART, Code, Stopped
from engine.cuir.execute.compiled.compiler import ProgramCompiler, kept_program
from engine.cuir.execute.compiled.program import Coverage, Limits, Program, Schedule
from engine.cuir.execute.compiled.pure import run_pure
from engine.cuir.execute.schedules.machine import BlockMachine
from engine.cuir.execute.state.global_memory import check_claims
from engine.cuir.execute.state.values import Tensor, TensorField
from engine.cuir.findings import Finding
from engine.cuir.nodes import Module, Path
from engine.cuir.scalar import Env, Mode, f32
from engine.cuir.types import KernelRef
from engine.errors import CuirError

_TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave.

    `ran`: to the end; `failed`: stopped by a finding; `not_run`: stopped at an opaque op without a
    meaning, at `stopped_at`. `outputs` holds every field that the program may write, NaN where no
    block wrote: float64 in exact mode, the declared element type in typed mode.
    """

    status: Literal["ran", "failed", "not_run"]
    outputs: dict[str, Tensor]
    findings: tuple[Finding, ...]
    coverage: Coverage
    returned: int | None = None
    stopped_at: Path | None = None
    reason: str = ""

    @property
    def clean(self) -> bool:
        return self.status == "ran" and not self.findings


class Host:
    """Executes the host function."""

    index = -1
    threads = None
    machine = None

    def __init__(self, program: Program, compiler: ProgramCompiler, args: dict[str, Any]) -> None:
        self.program = program
        self.compiler = compiler
        self.args = args
        self.path = 0

    def launch(
        self, ref: KernelRef, args: list[Any], grid: tuple[int, ...], threads: int, shared: int
    ) -> None:
        program = self.program
        code = self.compiler.codes[ref.name]
        path = self.path
        if len(args) != len(code.params):
            raise program.stop(
                "launch_mismatch", path,
                f"{ref.name} takes {len(code.params)} operands, not {len(args)}",
            )  # fmt: skip
        if min(grid) <= 0:
            raise program.stop("launch_mismatch", path, f"a grid of {list(grid)} blocks")
        env: Env = {"args": self.args, PART: self}
        env.update(zip(code.params, args, strict=True))
        env.update(zip(code.consts, ref.consts, strict=True))
        options = dict(code.options(env))
        bound = options.get("threads", threads)
        if bound != threads:
            raise program.stop("launch_mismatch", path, f"{threads} threads, and {ref.name} is "
                               f"compiled for {bound}")  # fmt: skip
        units = self.units(code, threads, path)
        panels = program.arch.async_tile > 0 and self.compiler.facts.by_async(code.function.name)
        registers = program.arch.registers_at_launch(threads, options.get("min_blocks", 1))
        full = (*grid, 1, 1)[:3]
        program.grid = full
        program.coverage.launches.append((ref.name, tuple(grid)))
        program.launch_first = program.block
        env.pop(PART)

        def block(place: tuple[int, int, int]) -> Iterator[None]:
            return BlockMachine(
                program, code, env, place,
                threads=threads, units=units, shared=shared, registers=registers, panels=panels,
            ).run()  # fmt: skip

        take_turns(program, block)
        check_claims(program)

    def units(self, code: Code, threads: int, path: int) -> int:
        """One unit per warpgroup where the kernel works by warpgroups, else one per block."""
        if not self.compiler.facts.by_warpgroups(code.function.name):
            return 1
        if threads % WARPGROUP_THREADS:
            raise self.program.stop(
                "launch_mismatch", path,
                f"{code.function.name} works by warpgroups of {WARPGROUP_THREADS} threads, and "
                f"{threads} threads are no whole number of them",
            )  # fmt: skip
        return threads // WARPGROUP_THREADS


def run_program(
    module: Module,
    inputs: Mapping[str, Tensor | int | float],
    mode: Mode = "exact",
    schedule: Schedule | None = None,
    limits: Limits | None = None,
    *,
    unfilled: Collection[str] = (),
    compiler: Callable[[Module, Mode], ProgramCompiler] = kept_program,
) -> Outcome:
    """Runs `module`'s host function on `inputs`: one value per field of its argument struct.

    Tensors may have any strides; outputs are given as tensors of their shape and are not changed.
    `unfilled` names written fields that hold nothing of the caller's (a workspace): a read of one
    of their elements that no block wrote before is a finding. `compiler` turns the text into code:
    another one may watch what its expressions give.
    Raises `CuirError` for a module without a host function or a field without a value.
    """
    facts = arch_of(module)
    schedule, limits = schedule or Schedule(), limits or Limits()
    try:
        compiled = compiler(module, mode)
    except Stopped as stop:
        return Outcome(
            "failed",
            {},
            (stop.finding,) if stop.finding else (),
            Coverage(),
            None,
            stop.path,
            stop.reason,
        )
    program = Program(facts, mode, compiled.paths, compiled.codes, schedule, limits)
    program.module = module
    args = _arguments(module, inputs, program, compiled.written, unfilled)
    hosts = [f for f in module.functions if f.kind == "host"]
    if not hosts:
        raise CuirError("the module has no host function to run", fix="@host def launch(args): ...")
    host = Host(program, compiled, args)
    code = compiled.codes[hosts[-1].name]
    env: Env = {"args": args, PART: host}
    for param in code.params:
        env.setdefault(param, 0)  # the stream: launches run in order
    for const in code.consts:
        if const not in compiled.spec_values:
            raise CuirError(f"the specialisation does not bind {const}",
                            fix=f"specialisation(arch=..., {const}=...)")  # fmt: skip
        env[const] = compiled.spec_values[const]
    status: Literal["ran", "failed", "not_run"] = "ran"
    stopped: Stopped | None = None
    returned: int | None = None
    try:
        with torch.inference_mode():  # no tensor of a run is ever differentiated
            result = run_pure(code, env, compiled.paths)
        returned = result if isinstance(result, int) else None
    except Stopped as stop:
        stopped = stop
        status = "failed" if stop.finding else "not_run"
    findings = list(program.findings.values())
    if stopped is not None and stopped.finding is not None:
        findings.append(stopped.finding)
    _finish(program, compiled)
    return Outcome(
        status, _outputs(program, mode), tuple(findings), program.coverage, returned,
        stopped.path if stopped else None, stopped.reason if stopped else "",
    )  # fmt: skip


def _arguments(
    module: Module,
    inputs: Mapping[str, Tensor | int | float],
    program: Program,
    written: Collection[str],
    unfilled: Collection[str],
) -> dict[str, Any]:
    args: dict[str, Any] = {}
    for field in module.fields:
        if field.name not in inputs:
            raise CuirError(f"no value for args.{field.name}")
        value = inputs[field.name]
        if field.type != "tensor":
            if isinstance(value, torch.Tensor):
                raise CuirError(f"args.{field.name} is {field.type}, and a tensor was given")
            number = float(value) if field.type == "f32" else int(value)
            args[field.name] = (
                f32(number) if field.type == "f32" and program.mode == "typed" else number
            )
            continue
        if not isinstance(value, torch.Tensor):
            raise CuirError(f"args.{field.name} is a tensor, and {value!r} was given")
        floats = value.dtype.is_floating_point
        data = value.detach().to(program.float if floats else torch.int64)
        made = TensorField(field.name, data)
        if field.name in written:
            made.written = True
            made.unfilled = field.name in unfilled
            # Whole numbers have no NaN: a workspace starts with what the caller left in it.
            made.data = data.clone(memory_format=torch.contiguous_format)
            if floats:
                made.data.fill_(float("nan"))
        elif floats and not bool(torch.isfinite(data).all()):
            program.clean_inputs = False
        args[field.name] = made
        program.fields[field.name] = made
    return args


def _finish(program: Program, compiler: ProgramCompiler) -> None:
    counts = program.coverage.ops
    for code in compiler.codes.values():
        for instr in code.instrs:
            path = program.paths[instr.path]
            if len(path) > 1:
                counts[path] = max(counts.get(path, 0), instr.count)


def _outputs(program: Program, mode: Mode) -> dict[str, Tensor]:
    out = {}
    for name, field in program.fields.items():
        if field.written:
            kind = _TORCH.get(field.low or "")
            out[name] = field.data.to(kind) if kind is not None and mode == "typed" else field.data
    return out


Place = tuple[int, int, int]


def take_turns(program: Program, block: Callable[[Place], Iterator[None]]) -> None:
    """Runs every block of the grid to its end; `block` begins one, which stops at its claims.

    Which block gets which piece is decided where they claim, so there another one may go on: with
    seed 0 in turns, as multiprocessors of one speed would; with another seed any of those that have
    begun, or the next one; where a part is starved the first block claims all that there is.
    """
    choice = random.Random(f"{program.schedule.seed}/{program.launch_first}")
    places = _places(*program.grid)
    begun: list[tuple[int, Iterator[None]]] = []  # those that stopped at a claim, oldest first
    last, place = program.launch_first, next(places, None)
    while begun or place is not None:
        pick = _pick(program.schedule, choice, len(begun), place is not None)
        if pick < len(begun):
            program.block, going = begun.pop(pick)
        else:
            assert place is not None
            program.block = last = last + 1
            going = block(place)
            place = next(places, None)
        if next(going, _DONE) is not _DONE:
            begun.append((program.block, going))
    program.block = last


def _pick(schedule: Schedule, choice: random.Random, begun: int, more: bool) -> int:
    """The place among those that have begun of the one to go on; past them: the next one begins."""
    if schedule.starve is not None:
        return 0
    if schedule.seed:
        return choice.randrange(begun + more)
    return begun if more else 0


_DONE = object()


def _places(across: int, down: int, deep: int) -> Iterator[Place]:
    """Every block's indices, axis 0 first."""
    for z in range(deep):
        for y in range(down):
            for x in range(across):
                yield x, y, z
