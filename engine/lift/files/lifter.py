"""`lift`: one CUDA source under one specialisation as a CuIR module."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Parser

from engine.cuir import arch as archs
from engine.cuir.nodes import (
    Expr,
    Function,
    Module,
    Name,
    Num,
    Opaque,
    Str,
)
from engine.errors import LiftError, Where
from engine.lift.cpp.provenance import BOM, Lifted, Lines, OpaqueOp
from engine.lift.cpp.source_text import Source
from engine.lift.cpp.syntax import NotAnExpression
from engine.lift.cpp.tokens import Tokens
from engine.lift.files.launch import bind, find_launch
from engine.lift.files.program import TopLevel
from engine.lift.files.toplevel import ARGS, FunctionItem, OtherItem, not_liftable
from engine.lift.functions.declarations import check_static_assert
from engine.lift.functions.expressions import Translator, Unknown
from engine.lift.functions.statements import FunctionLifter
from engine.lift.names.catalogue import Catalogue, default_catalogue
from engine.lift.names.constants import Constant, Evaluator, Facts
from engine.lift.names.scope import Instances, Local, Scope, safe

MAX_BYTES = 4 << 20


@cache
def _language() -> Language:
    return Language(tree_sitter_cuda.language())


def lift_source(
    data: bytes,
    specialisation: Mapping[str, str],
    arch: str,
    *,
    file: str = "kernel.cu",
    entry: str = "launch",
    catalogue: Catalogue | None = None,
) -> Lifted:
    """The program in `data` for `arch`, with the launch template's parameters bound.

    `specialisation` binds the template parameters of `entry` by name: element types as f16, bf16,
    f32, numbers as decimal text. Raises `LiftError` (file, line, fix) for a text that is no CUDA
    program of ours, and `InputError` for an unknown arch.
    """
    if catalogue is None:
        return _lifted_once(data, tuple(specialisation.items()), arch, file, entry)
    return _lifted(data, specialisation, arch, file, entry, catalogue)


@lru_cache(maxsize=64)
def _lifted_once(
    data: bytes, specialisation: tuple[tuple[str, str], ...], arch: str, file: str, entry: str
) -> Lifted:
    """By our own catalogue, and kept: the gates and views of a session ask for the same again and
    again. A lift takes 30 to 90 ms and holds less than a megabyte."""
    return _lifted(data, dict(specialisation), arch, file, entry, default_catalogue())


def _lifted(
    data: bytes, specialisation: Mapping[str, str], arch: str, file: str, entry: str,
    catalogue: Catalogue,
) -> Lifted:  # fmt: skip
    lifter = _Lifter(data, specialisation, arch, file, entry, catalogue)
    try:
        return lifter.run()
    except RecursionError:
        raise LiftError(
            "this source is nested too deeply", where=Where(file, 1), fix="write flatter code"
        ) from None


def template_parameters(
    data: bytes, entry: str = "launch", file: str = "kernel.cu"
) -> dict[str, str]:
    """The launch template's parameters with their kinds: type, i32, i64 or bool."""
    lifter = _Lifter(data, {}, next(iter(archs.archs())), file, entry, default_catalogue())
    launch = find_launch(lifter.top, lifter.root, entry)
    return dict(zip(launch.signature.consts, launch.signature.const_kinds, strict=True))


class _Lifter:
    def __init__(
        self,
        data: bytes,
        specialisation: Mapping[str, str],
        arch: str,
        file: str,
        entry: str,
        catalogue: Catalogue,
    ) -> None:
        self.specialisation = dict(specialisation)
        self.arch = arch
        self.facts = archs.arch(arch)
        self.entry = entry
        text = data
        if data.startswith(BOM):
            # Blanks keep every offset as it is in the file.
            text = b" " * len(BOM) + data[len(BOM) :]
        self.source = Source(data, file, Tokens(text), Lines(data))
        if len(data) > MAX_BYTES or b"\0" in data:
            raise LiftError(
                "this is not CUDA source: it is too large or holds zero bytes",
                where=self.source.lines.where(file, 0),
                fix="give the path of a .cu file",
            )
        for start, end in self.source.tokens.comments:
            if data[start : start + 2] == b"/*" and (
                data[end - 2 : end] != b"*/" or end - start < 4
            ):
                raise self.source.fail(start, "this comment has no end", "close it with */")
        self.root = Parser(_language()).parse(text).root_node
        if self.root.type == "ERROR":
            raise not_liftable(
                self.source,
                self.root,
                "this text has no structure that could be read as CUDA",
                "mend the syntax error here, or give the path of a .cu file",
            )
        self.top = TopLevel(self.source, catalogue, self.root)
        self.program = self.top.program

    def run(self) -> Lifted:
        top = self.top
        launch = find_launch(top, self.root, self.entry)
        binding = bind(self.source, launch, self.specialisation)
        done: dict[str, Function] = {}
        fields = tuple(f.type for f in top.fields)
        self.evaluator = Evaluator(Facts(self.facts, ARGS, fields, done))
        self.instances = Instances((f.signature for f in top.functions), self.evaluator)
        self.check_compile_time_functions(done)
        self.instances.clear()
        self.instances.add(launch.signature.name, binding)
        self.forward_uses()
        # Callers stand after what they call, so each function meets all its instantiations.
        notes: dict[str, tuple[OpaqueOp, ...]] = {}
        for item in reversed(top.functions):
            self.source.opaque.clear()
            self.forget(item.signature.name)
            done[item.signature.name] = self.function(item)
            notes[item.signature.name] = tuple(self.source.opaque)
        functions = tuple(
            done[entry.signature.name] if isinstance(entry, FunctionItem) else self.other(entry)
            for entry in top.order
        )
        self.top_level_asserts()
        opaque: list[OpaqueOp] = []
        for entry in top.order:
            if isinstance(entry, FunctionItem):
                opaque += notes[entry.signature.name]
            else:
                path = (safe(entry.name), 0)
                opaque.append(OpaqueOp(path, self.source.provenance[path], entry.reason))
        spec = (("arch", Str(self.arch)), *((k, _spec_value(v)) for k, v in binding.items()))
        module = Module(spec, top.fields, functions)
        constants = {
            f.signature.name: dict(known)
            for f in top.functions
            for known in self.instances.known(f.signature.name)[:1]
        }
        return Lifted(
            module,
            self.source.provenance,
            self.source.parts,
            tuple(opaque),
            self.source.data,
            self.source.file,
            {"arch": self.arch, **self.specialisation},
            constants,
        )

    def other(self, item: OtherItem) -> Function:
        """An item without meaning as a function of one opaque op."""
        path = (item.name, 0)
        self.source.note((item.name,), item.tree.start_byte, item.tree.end_byte)
        self.source.note(path, item.tree.start_byte, item.tree.end_byte)
        body = (Opaque(self.source.plain_text(item.tree), (), ("*",)),)
        return Function("device", item.name, (), (), (), body)

    # --- functions ---------------------------------------------------------------------------

    def scope_of(self, item: FunctionItem) -> Scope:
        scope = Scope([dict(self.top.globals)])
        for name, kind in zip(item.signature.consts, item.signature.const_kinds, strict=True):
            scope.declare(name, Local(Name(name), kind))
        for name, kind in item.names:
            if kind == "args":
                scope.args = name
            else:
                scope.declare(name, Local(Name(safe(name)), kind))
        scope.open()
        return scope

    def forward_uses(self) -> None:
        """Functions used before their definition, or by what has no meaning, in unknown ways."""
        seen: list[FunctionItem] = list(self.top.functions)
        for item in self.top.functions:
            later = {f.signature.name for f in seen}
            self.instances.opaque(t for t in self.source.within(item.body) if t.text in later)
            seen.remove(item)
        for other in self.top.order:
            if isinstance(other, OtherItem):
                self.instances.opaque(self.source.within(other.tree))

    def function(self, item: FunctionItem) -> Function:
        scope = self.scope_of(item)
        signature = item.signature
        lifter = FunctionLifter(
            self.source, self.program, scope, self.evaluator, self.instances, signature
        )
        path = (safe(signature.name),)
        self.source.note(path, item.tree.start_byte, item.tree.end_byte)
        for role, found in item.ranges.items():
            self.source.parts[path, role] = found
        options: list[tuple[str, Expr]] = []
        for role, piece in zip(("threads", "min_blocks"), item.launch_bounds, strict=False):
            try:
                expr = lifter.translator.scalar(lifter.parse(piece)).expr
            except (Unknown, NotAnExpression) as error:
                raise self.source.fail(
                    piece[0].start, f"launch bounds that have no meaning: {error}",
                    "write __launch_bounds__ with template parameters and numbers",
                ) from None  # fmt: skip
            options.append((role, expr))
            lifter.translator.write_ranges(self.source.parts, path, role, expr)
        body = lifter.body(item.body, path)
        return Function(
            signature.kind, path[0], item.params, signature.consts, tuple(options), body
        )

    def forget(self, name: str) -> None:
        """Drops what an earlier reading of this function noted."""
        path = safe(name)
        for key in [k for k in self.source.provenance if k[0] == path]:
            del self.source.provenance[key]
        for part in [k for k in self.source.parts if k[0][0] == path]:
            del self.source.parts[part]

    def check_compile_time_functions(self, done: dict[str, Function]) -> None:
        """Host and device functions that later constant expressions may call, read once plainly."""
        for item in self.top.functions:
            tokens = self.source.tokens.inside(item.definition.start_byte, item.body.start_byte)
            if any(t.text == "constexpr" for t in tokens):
                done[item.signature.name] = self.function(item)

    def top_level_asserts(self) -> None:
        translator = Translator(
            self.program, Scope([{**self.top.globals, ARGS: Local(Name(ARGS), "type")}])
        )
        for tree in self.top.asserts:
            check_static_assert(self.source, tree, translator, self.program, self.evaluator, [{}])


def _spec_value(value: Constant) -> Expr:
    return Name(value) if isinstance(value, str) else Num(value)
