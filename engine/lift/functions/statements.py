"""From the statements of one function to CuIR statements, with their provenance.

Tree-sitter says where statements begin, end and nest; their contents are read from tokens. What has
no meaning becomes an opaque op of the whole statement, never less and never nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node as Tree

from engine.cuir.nodes import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    If,
    Name,
    Num,
    Opaque,
    Path,
    Return,
    Stmt,
)
from engine.cuir.static.conversions import NUMBERS, UNSIGNED
from engine.lift.cpp import ignored_words as ignored
from engine.lift.cpp.provenance import OpaqueOp, Range
from engine.lift.cpp.source_text import Source, braces_match, declared
from engine.lift.cpp.syntax import KEYWORDS, Node, NotAnExpression, parse_expression
from engine.lift.cpp.tokens import Token, join
from engine.lift.functions.declarations import check_static_assert, read_alias
from engine.lift.functions.effects import effects
from engine.lift.functions.expressions import Translator, Typed, Unknown
from engine.lift.functions.inline_ptx import read_asm
from engine.lift.functions.loops import read_loop
from engine.lift.names.constants import Evaluator, NotConstant
from engine.lift.names.scope import C_TYPES, Instances, Local, Program, Scope, Signature

_TOO_DEEP = 40
_COMPOUND = {"+=": "+", "-=": "-", "*=": "*", "/=": "/", "%=": "%"}
_DECLARATION_WORDS = frozenset({"const", "constexpr"})


@dataclass
class FunctionLifter:
    """Lifts the body of one function.

    `constants` holds one set of compile-time values per instantiation that its callers make.
    """

    source: Source
    program: Program
    scope: Scope
    evaluator: Evaluator
    instances: Instances
    signature: Signature

    def __post_init__(self) -> None:
        self.translator = Translator(self.program, self.scope)
        self.depth = 0
        self.constants = self.instances.of(self.signature.name)
        self.result = self.signature.result

    # --- blocks ------------------------------------------------------------------------------

    def body(self, tree: Tree, path: Path) -> tuple[Stmt, ...]:
        """The statements of a compound statement, or the single statement that `tree` is."""
        out: list[Stmt] = []
        self.scope.open()
        if tree.type == "compound_statement":
            self.statements(tree.children, path, out)
        else:
            self.statement(tree, path, out)
        self.scope.close()
        return tuple(out)

    def statements(self, trees: Sequence[Tree], path: Path, out: list[Stmt]) -> None:
        for tree in trees:
            if tree.type not in ("{", "}", "comment"):
                self.statement(tree, path, out)

    def statement(self, tree: Tree, path: Path, out: list[Stmt]) -> None:
        """Appends what `tree` means to `out`, whose statements lie under `path`."""
        here = (*path, len(out))
        self.depth += 1
        try:
            if self.depth > _TOO_DEEP:
                raise Unknown("nested too deeply")
            self.known(tree, path, out)
        except (Unknown, NotAnExpression) as error:
            # Nothing is noted and no block begun before the last thing that can fail.
            self.opaque(tree, here, str(error), out)
        finally:
            self.depth -= 1

    def opaque(self, tree: Tree, path: Path, reason: str, out: list[Stmt]) -> None:
        tokens = self.source.within(tree)
        if tree.start_byte == tree.end_byte:
            return
        self.instances.opaque(tokens)
        reads, writes = effects(tokens, self.program, self.scope)
        if tree.has_error and "*" not in writes:
            writes = tuple(sorted((*writes, "*")))
        out.append(Opaque(self.source.plain_text(tree), reads, writes))
        self.source.note(path, tree.start_byte, tree.end_byte)
        self.source.opaque.append(OpaqueOp(path, self.source.provenance[path], reason))
        if tree.type == "declaration":
            # Names declared here hide what they named outside, and mean nothing to us.
            for name in declared(tree):
                chosen = self.scope.fresh(name)
                self.scope.declare(name, Local(Name(chosen), "opaque"))

    def known(self, tree: Tree, path: Path, out: list[Stmt]) -> None:
        match tree.type:
            case "compound_statement":
                if not braces_match(tree):
                    raise Unknown("its braces do not match")
                self.scope.open()
                self.statements(tree.children, path, out)
                self.scope.close()
            case "if_statement":
                self.if_(tree, path, out)
            case "for_statement":
                self.for_(tree, path, out)
            case "attributed_statement":
                inner = [
                    c for c in tree.children if c.type not in ("attribute_declaration", "comment")
                ]
                attributes = [c for c in tree.children if c.type == "attribute_declaration"]
                self.attributes(attributes)
                self.statements(inner, path, out)
            case "preproc_call":
                self.pragma(tree)
            case "alias_declaration":
                self.alias(tree)
            case "static_assert_declaration":
                self.static_assert(tree)
            case "declaration" | "expression_statement" | "return_statement":
                self.simple(tree, path, out)
            case "ERROR":
                raise Unknown("it does not parse")
            case _:
                raise Unknown(f"the kernel language has no {tree.type.replace('_', ' ')}")

    # --- what is no op -----------------------------------------------------------------------

    def attributes(self, trees: Sequence[Tree]) -> None:
        for tree in trees:
            words = {t.text for t in self.source.within(tree) if t.kind == "word"}
            if not words <= ignored.ATTRIBUTES:
                raise Unknown(f"unknown attribute {join(self.source.within(tree))}")

    def pragma(self, tree: Tree) -> None:
        words = [t.text for t in self.source.within(tree)]
        if words[:2] != ["#", "pragma"] or words[2:3] == [] or words[2] not in ignored.PRAGMAS:
            raise Unknown("a preprocessor line inside a function")

    def alias(self, tree: Tree) -> None:
        name, typed = read_alias(self.source.within(tree), self.translator, self.program)
        self.scope.declare(name, Local(typed.expr, typed.kind))

    def static_assert(self, tree: Tree) -> None:
        check_static_assert(
            self.source, tree, self.translator, self.program, self.evaluator, self.constants
        )

    # --- simple statements -------------------------------------------------------------------

    def parse(self, tokens: Sequence[Token]) -> Node:
        for token in tokens:
            if token.text in self.source.macros:
                raise Unknown(f"the macro `{token.text}`")
        return parse_expression(tokens, self.program.templates)

    def simple(self, tree: Tree, path: Path, out: list[Stmt]) -> None:
        attributes = [c for c in tree.children if c.type == "attribute_declaration"]
        self.attributes(attributes)
        begin = max((a.end_byte for a in attributes), default=tree.start_byte)
        tokens = self.source.tokens.inside(begin, tree.end_byte)
        if tree.start_byte == tree.end_byte or [t.text for t in tokens] == [";"]:
            return
        if not tokens or tokens[-1].text != ";":
            raise Unknown("a statement without its semicolon")
        here = (*path, len(out))
        stmt = self.leaf(tokens[:-1], here)
        out.append(stmt)
        self.source.note(here, tree.start_byte, tree.end_byte)

    def leaf(self, tokens: list[Token], here: Path) -> Stmt:
        """A declaration, assignment, step, call, return or asm, without its semicolon."""
        texts = [t.text for t in tokens]
        if texts[0] == "return":
            return self.return_(tokens[1:], here)
        if texts[0] in ("asm", "__asm__"):
            return Do(read_asm(tokens, self.parse, self.translator))
        if len(texts) == 2 and {"++", "--"} & set(texts):
            return self.step(tokens, here)
        if len(texts) > 1 and tokens[0].kind == "word":
            if texts[1] in ("=", *_COMPOUND):
                return self.assign(tokens, here)
            if tokens[1].kind == "word":
                return self.declaration(tokens, here)
        value = self.parse(tokens)
        typed = self.translator.translate(value)
        if not isinstance(typed.expr, Call):
            raise Unknown("an expression without effect")
        self.parts_of(here, "call", typed.expr)
        return Do(typed.expr)

    def return_(self, tokens: list[Token], here: Path) -> Stmt:
        if bool(tokens) == (self.result == "none"):
            raise Unknown("a return that does not fit the function's type")
        if not tokens:
            return Return()
        typed = self.translator.converted(self.value(tokens), self.result)
        self.parts_of(here, "value", typed.expr)
        return Return(typed.expr)

    def value(self, tokens: Sequence[Token]) -> Typed:
        """A right side: an expression that has a value."""
        typed = self.translator.translate(self.parse(tokens))
        if typed.kind.split(":")[0] in ("none", "lambda", "kernel", "layout", "type"):
            raise Unknown(f"a {typed.kind} is no value")
        return typed

    def target(self, token: Token) -> Local:
        local = self.scope.find(token.text)
        if local is None or not isinstance(local.cuir, Name) or local.kind == "opaque":
            raise Unknown(f"`{token.text}` is no variable with a known meaning")
        return local

    def assign(self, tokens: list[Token], here: Path) -> Stmt:
        local = self.target(tokens[0])
        assert isinstance(local.cuir, Name)
        typed = self.value(tokens[2:])
        if tokens[1].text != "=":
            before = Typed(Name(local.cuir.id), local.kind)
            self.translator.note(before.expr, _node(tokens[0]))
            typed = self.translator.arithmetic(_COMPOUND[tokens[1].text], before, typed)
        self.storable(typed.kind, local.kind)
        typed = self.translator.converted(typed, local.kind)
        self.source.parts[here, "target"] = Range(tokens[0].start, tokens[0].end)
        self.source.parts[here, "operator"] = Range(tokens[1].start, tokens[1].end)
        self.parts_of(here, "value", typed.expr)
        return Assign(local.cuir.id, typed.expr)

    def storable(self, kind: str, variable: str) -> None:
        """Whether a value of `kind` may go where `variable` is declared; else `Unknown`."""
        if kind != variable and not (kind in NUMBERS and variable in NUMBERS):
            raise Unknown(
                f"a {kind.replace(':', ' of ')} is stored as a {variable.replace(':', ' of ')}"
            )

    def step(self, tokens: list[Token], here: Path) -> Stmt:
        name, sign = tokens if tokens[0].kind == "word" else tokens[::-1]
        local = self.target(name)
        if local.kind not in ("i32", "i64") or not isinstance(local.cuir, Name):
            raise Unknown(f"`{sign.text}` on a {local.kind}")
        read = Name(local.cuir.id)
        self.translator.note(read, _node(name))
        expr = Binary("+" if sign.text == "++" else "-", read, Num(1))
        self.source.parts[here, "target"] = Range(name.start, name.end)
        self.source.parts[here, "operator"] = Range(sign.start, sign.end)
        self.parts_of(here, "value", expr)
        return Assign(local.cuir.id, expr)

    def declaration(self, tokens: list[Token], here: Path) -> Stmt:
        equals = next((at for at, t in enumerate(tokens) if t.text == "="), None)
        if equals is None:
            raise Unknown("a declaration without a value")
        words = tokens[:equals]
        if len(words) < 2 or any(w.kind != "word" for w in words):
            raise Unknown("a declaration that is not `const auto x = ...` or `int x = ...`")
        name = words[-1]
        if name.text in self.source.macros or words[0].text in self.source.macros:
            raise Unknown("a macro")
        plain = [w.text for w in words]
        if name.text in KEYWORDS or any(plain.count(w) > 1 for w in _DECLARATION_WORDS):
            raise Unknown("a declaration that does not parse")
        type_text = " ".join(w.text for w in words[:-1] if w.text not in _DECLARATION_WORDS)
        typed = self.value(tokens[equals + 1 :])
        if type_text == "auto" and typed.kind in UNSIGNED:
            raise Unknown("a variable without a sign: declare it int")
        if type_text != "auto":
            kind = C_TYPES.get(type_text)
            if kind is None:
                raise Unknown(f"a variable of type `{type_text}`")
            self.storable(typed.kind, kind)
            typed = self.translator.converted(typed, kind)
        chosen = self.scope.fresh(name.text)
        self.scope.declare(name.text, Local(Name(chosen), typed.kind))
        self.source.parts[here, "target"] = Range(name.start, name.end)
        self.source.parts[here, "type"] = Range(words[0].start, words[-2].end)
        self.source.parts[here, "operator"] = Range(tokens[equals].start, tokens[equals].end)
        self.parts_of(here, "value", typed.expr)
        self.settle(chosen, typed.expr, constant=bool(_DECLARATION_WORDS & {w.text for w in words}))
        return Assign(chosen, typed.expr)

    def settle(self, name: str, expr: Expr, constant: bool) -> None:
        """Keeps the compile-time value of a constant where there is one."""
        for constants in self.constants:
            constants.pop(name, None)
            if not constant:
                continue
            try:
                constants[name] = self.evaluator.value(expr, constants)
            except NotConstant:
                continue

    # --- control flow ------------------------------------------------------------------------

    def if_(self, tree: Tree, path: Path, out: list[Stmt]) -> None:
        clause = _field(tree, "condition")
        then = _field(tree, "consequence")
        alternative = tree.child_by_field_name("alternative")
        constexpr = any(c.type == "constexpr" for c in tree.children)
        self.no_error(tree, (then, alternative))
        cond = self.translator.condition(self.parse(self.source.within(clause)[1:-1]))
        otherwise = None
        if alternative is not None:
            inner = [c for c in alternative.children if c.type not in ("else", "comment")]
            if len(inner) != 1:
                raise Unknown("an else without one statement")
            otherwise = inner[0]
        if constexpr:
            taken = self.decided(cond)
            if taken is not None:
                branch = then if taken else otherwise
                if branch is not None:
                    self.scope.open()
                    inner_trees = (
                        branch.children if branch.type == "compound_statement" else [branch]
                    )
                    self.statements(inner_trees, path, out)
                    self.scope.close()
                return
        here = (*path, len(out))
        parts = self.source.parts
        parts[here, "header"] = Range(tree.start_byte, clause.end_byte)
        self.parts_of(here, "condition", cond)
        self.braces(here, "then", then)
        then_body = self.body(then, (*here, "then"))
        other_body: tuple[Stmt, ...] = ()
        if alternative is not None and otherwise is not None:
            word = alternative.children[0]
            parts[here, "else"] = Range(word.start_byte, word.end_byte)
            self.braces(here, "other", otherwise)
            other_body = self.body(otherwise, (*here, "other"))
        out.append(If(cond, then_body, other_body))
        self.source.note(here, tree.start_byte, tree.end_byte)

    def decided(self, cond: Expr) -> bool | None:
        """The compile-time value of a condition, when every instantiation agrees on it."""
        values = set()
        for constants in self.constants:
            try:
                values.add(bool(self.evaluator.value(cond, constants)))
            except NotConstant:
                return None
        return values.pop() if len(values) == 1 else None

    def for_(self, tree: Tree, path: Path, out: list[Stmt]) -> None:
        body = _field(tree, "body")
        self.no_error(tree, (body,))
        header = self.source.tokens.inside(tree.start_byte, body.start_byte)
        self.scope.open()
        try:
            loop = read_loop(header, self.source.within(body), self.parse, self.translator)
            here = (*path, len(out))
            parts = self.source.parts
            parts[here, "header"] = Range(tree.start_byte, loop.end)
            parts[here, "var"] = Range(loop.var.start, loop.var.end)
            for role, expr in (("start", loop.start), ("stop", loop.stop), ("step", loop.step)):
                self.parts_of(here, role, expr)
            self.braces(here, "body", body)
            for constants in self.constants:
                constants.pop(loop.name, None)
            inside = self.body(body, (*here, "body"))
        finally:
            self.scope.close()
        out.append(For(loop.name, loop.start, loop.stop, loop.step, inside))
        self.source.note(here, tree.start_byte, tree.end_byte)

    def no_error(self, tree: Tree, bodies: Sequence[Tree | None]) -> None:
        """The header of a block statement must have parsed; its body speaks for itself."""
        ids = {b.id for b in bodies if b is not None}
        for body in bodies:
            if body is not None and body.type == "compound_statement" and not braces_match(body):
                raise Unknown("its braces do not match")
        for child in tree.children:
            if child.id not in ids and (child.has_error or child.is_missing):
                raise Unknown("it does not parse")

    # --- provenance --------------------------------------------------------------------------

    def braces(self, path: Path, role: str, tree: Tree) -> None:
        parts = self.source.parts
        parts[path, role] = Range(tree.start_byte, tree.end_byte)
        if tree.type == "compound_statement":
            parts[path, f"{role}.open"] = Range(tree.start_byte, tree.start_byte + 1)
            parts[path, f"{role}.close"] = Range(tree.end_byte - 1, tree.end_byte)

    def parts_of(self, path: Path, role: str, expr: Expr) -> None:
        self.translator.write_ranges(self.source.parts, path, role, expr)
        # Now, since a later block may give a constant's name to another one.
        self.instances.calls(expr, self.constants)


def _node(token: Token) -> Node:
    return Node("name", token.text, (), token.start, token.end)


def _field(tree: Tree, name: str) -> Tree:
    found = tree.child_by_field_name(name)
    if found is None:
        raise Unknown("it does not parse")
    return found
