"""`lift`: one CUDA source under one specialisation as a CuIR module."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import tree_sitter_cuda
from tree_sitter import Language, Parser
from tree_sitter import Node as Tree

from engine.cuir import arch as archs
from engine.cuir.nodes import (
    Call, Expr, Field, For, Function, If, Index, Module, Name, Num, Opaque, Return, Stmt, Str,
    walk_block, walk_expr,
)  # fmt: skip
from engine.errors import LiftError, Where
from engine.lift.catalogue import Catalogue, default_catalogue
from engine.lift.constants import TYPE_BYTES, Constant, Evaluator, Facts, NotConstant, TypeName
from engine.lift.expressions import Translator, Unknown
from engine.lift.provenance import BOM, Lifted, Lines, OpaqueOp
from engine.lift.scope import Local, Program, Scope, Signature, safe
from engine.lift.statements import (
    FunctionLifter, Source, check_static_assert, note_expression, read_alias,
)  # fmt: skip
from engine.lift.syntax import NotAnExpression, parse_expression
from engine.lift.tokens import Tokens
from engine.lift.toplevel import (
    ARGS, FunctionItem, OtherItem, Unsupported, defined_names, definition_of, function_name, is_struct, items,
    not_liftable, other_name, read_args, read_function,
)  # fmt: skip

MAX_BYTES = 4 << 20
OUR_HEADERS = "cubridge/"


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
    lifter = _Lifter(data, specialisation, arch, file, entry, catalogue or default_catalogue())
    try:
        return lifter.run()
    except RecursionError:
        raise LiftError(
            "this source is nested too deeply", where=Where(file, 1), fix="write flatter code"
        ) from None


def template_parameters(data: bytes, entry: str = "launch") -> dict[str, str]:
    """The launch template's parameters with their kinds: type, i32, i64 or bool."""
    lifter = _Lifter(data, {}, next(iter(archs.archs())), "kernel.cu", entry, default_catalogue())
    lifter.find_macros()
    lifter.read_top_level()
    launch = lifter.find_launch()
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
        self.limit = archs.arch(arch).shared_block
        self.entry = entry
        self.catalogue = catalogue
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
            if data[start : start + 2] == b"/*" and (data[end - 2 : end] != b"*/" or end - start < 4):
                raise self.source.fail(start, "this comment has no end", "close it with */")
        self.root = Parser(_language()).parse(text).root_node
        self.functions: list[FunctionItem] = []
        self.order: list[FunctionItem | OtherItem] = []
        self.fields: tuple[Field, ...] = ()
        self.globals: dict[str, Local] = {}

    def run(self) -> Lifted:
        self.find_macros()
        self.read_top_level()
        launch = self.find_launch()
        binding = self.bind(launch)
        program = self.program
        instances: dict[str, list[dict[str, Constant]]] = {
            launch.signature.name: [dict(binding)],
        }
        done: dict[str, Function] = {}
        self.evaluator = Evaluator(
            Facts(self.limit, ARGS, tuple(f.type for f in self.fields), done)
        )
        self.check_compile_time_functions(done)
        # Callers stand after what they call, so each function meets all its instantiations.
        notes: dict[str, tuple[OpaqueOp, ...]] = {}
        for item in reversed(self.functions):
            self.source.opaque.clear()
            self.forget(item.signature.name)
            found = instances.get(item.signature.name, [])
            done[item.signature.name] = self.function(item, found)
            notes[item.signature.name] = tuple(self.source.opaque)
            self.instantiate(done[item.signature.name], found, instances)
        functions = tuple(
            done[entry.signature.name] if isinstance(entry, FunctionItem) else self.other(entry)
            for entry in self.order
        )
        self.top_level_asserts(program)
        opaque: list[OpaqueOp] = []
        for entry in self.order:
            if isinstance(entry, FunctionItem):
                opaque += notes[entry.signature.name]
            else:
                path = (safe(entry.name), 0)
                opaque.append(OpaqueOp(path, self.source.provenance[path], entry.reason))
        spec = (("arch", Str(self.arch)), *((k, _spec_value(v)) for k, v in binding.items()))
        module = Module(spec, self.fields, functions)
        constants = {
            name: {k: v.name if isinstance(v, TypeName) else v for k, v in found[0].items()}
            for name, found in instances.items()
            if found
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

    # --- the top level -----------------------------------------------------------------------

    def find_macros(self) -> None:
        """Every name that a #define in this file gives a meaning of its own."""
        tokens = self.source.tokens.all
        for at in range(len(tokens) - 2):
            if tokens[at].text == "#" and tokens[at + 1].text in ("define", "undef"):
                self.source.macros.add(tokens[at + 2].text)

    def read_top_level(self) -> None:
        trees = list(items(self.root))
        struct = next((t for t in trees if is_struct(t, ARGS)), None)
        if struct is not None:
            self.fields = read_args(self.source, struct)
        definitions = [(t, d) for t in trees if (d := definition_of(t)) is not None]
        taken = {function_name(d) for _, d in definitions}
        self.asserts = [t for t in trees if t.type == "static_assert_declaration"]
        pending: list[Tree] = []
        signatures: dict[str, Signature] = {}
        for tree in trees:
            definition = definition_of(tree)
            if tree is struct or tree.type == "static_assert_declaration":
                continue
            if definition is not None:
                name = function_name(definition)
                try:
                    item = read_function(self.source, self.catalogue, tree, definition)
                    if name in signatures:
                        raise Unsupported(f"`{name}` is defined twice")
                except Unsupported as error:
                    chosen = other_name(definition, {o.name for o in self.order
                                                     if isinstance(o, OtherItem)} | set(signatures))  # fmt: skip
                    self.order.append(OtherItem(tree, chosen, str(error)))
                    continue
                signatures[name] = item.signature
                self.functions.append(item)
                self.order.append(item)
            elif not self.is_silent(tree, taken):
                pending.append(tree)
                self.order.append(OtherItem(tree, "", ""))
        templates = self.catalogue.templates | {n for n, s in signatures.items() if s.consts}
        defined = set(signatures) | self.source.macros
        for entry in self.order:
            if isinstance(entry, OtherItem):
                defined |= defined_names(self.source, entry.tree)
        fields = {f.name: f.type for f in self.fields}
        self.program = Program(
            self.catalogue, fields, signatures, templates, frozenset(defined - {""})
        )
        self.name_others(taken)

    def is_silent(self, tree: Tree, functions: set[str]) -> bool:
        """Items that say nothing of their own: includes, pragmas, our namespace, prototypes."""
        tokens = [t.text for t in self.source.within(tree)]
        if tokens in ([], [";"]):
            return True
        if tree.type == "preproc_include":
            # Headers of ours and of the system; what another one defines is unknown.
            named = [t for t in tokens if t != "\n"][2:]
            if named[:1] == ["<"]:
                return named.index(">") == len(named) - 1 if ">" in named else False
            return len(named) == 1 and named[0][1:].startswith(OUR_HEADERS)
        if tree.type == "preproc_call":
            return tokens[1:2] == ["pragma"] and tokens[2:3] != [] and tokens[2] in self.catalogue.pragmas
        if tree.type == "using_declaration":
            return tokens in (["using", "namespace", "cubridge", ";"],)
        declaration = tree
        if tree.type == "template_declaration":
            declaration = next((c for c in tree.children if c.type == "declaration"), tree)
        declarator = declaration.child_by_field_name("declarator")
        return (
            declaration.type == "declaration"
            and declarator is not None
            and declarator.type == "function_declarator"
            and function_name(declaration) in functions
        )

    def name_others(self, taken: set[str]) -> None:
        """Reads aliases and constants into the global scope; what is left gets a name."""
        order: list[FunctionItem | OtherItem] = []
        names = set(taken)
        for entry in self.order:
            if isinstance(entry, FunctionItem) or entry.name:
                order.append(entry)
                continue
            reason = self.global_name(entry.tree)
            if reason is not None:
                name = other_name(entry.tree, names)
                names.add(name)
                order.append(OtherItem(entry.tree, name, reason))
        self.order = order

    def global_name(self, tree: Tree) -> str | None:
        """None when the item became a global name; else why it has no meaning."""
        scope = Scope([dict(self.globals)])
        translator = Translator(self.program, scope)
        tokens = self.source.within(tree)
        if any(t.text in self.source.macros for t in tokens):
            return "it uses a macro" if tree.type != "preproc_def" else "a macro"
        try:
            if tree.type == "alias_declaration":
                name, typed = read_alias(tokens, translator, self.program)
                self.globals[name] = Local(typed.expr, typed.kind)
                return None
            texts = [t.text for t in tokens]
            if tree.type == "declaration" and texts[0] == "constexpr" and "=" in texts:
                equals = texts.index("=")
                node = parse_expression(tokens[equals + 1 : -1], self.program.templates)
                typed = translator.translate(node)
                declared = " ".join(texts[1 : equals - 1])
                kind = typed.kind if declared == "auto" else translator.type_kind(
                    parse_expression(tokens[1 : equals - 1], ()))  # fmt: skip
                typed = translator.converted(typed, kind)
                if typed.kind != kind:
                    raise Unknown("a constant of another type")
                self.globals[texts[equals - 1]] = Local(typed.expr, typed.kind)
                return None
        except (Unknown, NotAnExpression) as error:
            return str(error)
        if tree.type == "ERROR":
            return "it does not parse"
        return f"the kernel language has no {tree.type.replace('_', ' ')}"

    def other(self, item: OtherItem) -> Function:
        """An item without meaning as a function of one opaque op."""
        path = (item.name, 0)
        self.source.note((item.name,), item.tree.start_byte, item.tree.end_byte)
        self.source.note(path, item.tree.start_byte, item.tree.end_byte)
        body = (Opaque(self.source.plain_text(item.tree), (), ("*",)),)
        return Function("device", item.name, (), (), (), body)

    def find_launch(self) -> FunctionItem:
        if not any(f.signature.kind == "kernel" for f in self.functions):
            reasons = [o for o in self.order if isinstance(o, OtherItem)]
            for other in reasons:
                if any(t.text == "__global__" for t in self.source.within(other.tree)):
                    raise self.source.fail(
                        other.tree.start_byte,
                        f"the kernel here cannot be lifted: {other.reason}",
                        "write it as docs/lift.md says: one `Args` struct, typed template parameters",
                    )
            raise not_liftable(
                self.source, self.root, "no kernel: there is no __global__ function in this text",
                "give the path of a .cu file with a kernel and its launch function",
            )  # fmt: skip
        hosts = [f for f in self.functions if f.signature.kind == "host"]
        named = [f for f in hosts if f.signature.name == self.entry]
        if not named:
            launching = [
                f for f in hosts
                if any(t.text == "run" for t in self.source.within(f.body))
            ]  # fmt: skip
            named = launching if len(launching) == 1 else []
        if not named:
            for other in self.order:
                if isinstance(other, OtherItem) and other.name == self.entry:
                    raise self.source.fail(
                        other.tree.start_byte,
                        f"the launch function {self.entry} cannot be lifted: {other.reason}",
                        "write `template <typename T, int D> cudaError_t launch(const Args& args, "
                        "cudaStream_t stream)`",
                    )
            raise self.source.fail(
                self.functions[-1].tree.end_byte,
                f"no launch: there is no host function {self.entry} that runs the kernel",
                f"add `cudaError_t {self.entry}(const Args& args, cudaStream_t stream)` which "
                "returns run<kernel<...>>(...)",
            )
        return named[0]

    def bind(self, launch: FunctionItem) -> dict[str, Constant]:
        """The specialisation's values by template parameter. Raises `LiftError`."""
        consts = launch.signature.consts
        if set(self.specialisation) != set(consts):
            given = ", ".join(self.specialisation) or "nothing"
            raise self.source.fail(
                launch.tree.start_byte,
                f"the specialisation binds {given}, but {launch.signature.name} has the template "
                f"parameters {', '.join(consts) or '(none)'}",
                "bind exactly these, as in T=bf16, D=128",
            )
        binding: dict[str, Constant] = {}
        for name, kind in zip(consts, launch.signature.const_kinds, strict=True):
            value = self.specialisation[name]
            if kind == "type" and value in TYPE_BYTES:
                binding[name] = TypeName(value)
            elif kind == "bool" and value in ("true", "false"):
                binding[name] = value == "true"
            elif kind in ("i32", "i64") and value.lstrip("-").isdecimal() and len(value) < 12:
                binding[name] = int(value)
            else:
                wanted = {"type": ", ".join(TYPE_BYTES), "bool": "true or false"}.get(kind, "a number")
                raise self.source.fail(
                    launch.tree.start_byte,
                    f"{name}={value} is no value of the template parameter {name}",
                    f"give {wanted}",
                )
        return binding

    # --- functions ---------------------------------------------------------------------------

    def scope_of(self, item: FunctionItem) -> Scope:
        scope = Scope([dict(self.globals)])
        for name, kind in zip(item.signature.consts, item.signature.const_kinds, strict=True):
            scope.declare(name, Local(Name(name), kind))
        for name, kind in item.names:
            if kind == "args":
                scope.args = name
            else:
                scope.declare(name, Local(Name(safe(name)), kind))
        scope.open()
        return scope

    def function(self, item: FunctionItem, instances: list[dict[str, Constant]]) -> Function:
        scope = self.scope_of(item)
        signature = item.signature
        lifter = FunctionLifter(
            self.source, self.program, scope, self.evaluator, instances, signature.result
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
            note_expression(self.source.parts, lifter.translator, path, role, expr)
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
        for item in self.functions:
            tokens = self.source.tokens.inside(item.definition.start_byte, item.body.start_byte)
            if any(t.text == "constexpr" for t in tokens):
                done[item.signature.name] = self.function(item, [])

    def instantiate(
        self,
        function: Function,
        found: list[dict[str, Constant]],
        instances: dict[str, list[dict[str, Constant]]],
    ) -> None:
        """Records the template arguments with which `function` calls and launches others."""
        for _, stmt in walk_block(function.body, (function.name,)):
            for expr in _expressions(stmt):
                for node in walk_expr(expr):
                    callee, args = _callee(node)
                    target = next((f for f in self.functions if safe(f.signature.name) == callee), None)
                    if target is None or len(args) != len(target.signature.consts):
                        continue
                    known = instances.setdefault(target.signature.name, [])
                    for constants in found:
                        values: dict[str, Constant] = {}
                        for name, arg in zip(target.signature.consts, args, strict=True):
                            try:
                                values[name] = self.evaluator.value(arg, constants)
                            except NotConstant:
                                continue
                        if values not in known:
                            known.append(values)

    def top_level_asserts(self, program: Program) -> None:
        translator = Translator(program, Scope([{**self.globals, ARGS: Local(Name(ARGS), "type")}]))
        for tree in self.asserts:
            check_static_assert(self.source, tree, translator, program, self.evaluator, [{}])


def _expressions(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case For(_, start, stop, step, _):
            return (start, stop, step)
        case If(cond, _, _):
            return (cond,)
        case Return(value):
            return () if value is None else (value,)
        case Opaque():
            return ()
    return (stmt.value,) if hasattr(stmt, "value") else (stmt.call,)


def _callee(expr: Expr) -> tuple[str, tuple[Expr, ...]]:
    """The function that an expression calls or launches, and its constants."""
    match expr:
        case Call("run", (Index(Name(kernel), args), *_)):
            return kernel, args
        case Call(fn, _, _, params):
            return fn, params
    return "", ()


def _spec_value(value: Constant) -> Expr:
    return Name(value.name) if isinstance(value, TypeName) else Num(value)
