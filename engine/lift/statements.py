"""From the statements of one function to CuIR statements, with their provenance.

Tree-sitter says where statements begin, end and nest; their contents are read from tokens. What has
no meaning becomes an opaque op of the whole statement, never less and never nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node as Tree

from engine.cuir.nodes import (
    Assign, Binary, Call, Do, Expr, For, If, Lambda, Name, Num, Opaque, Path, Return, Stmt, Unary,
    children, walk_expr,
)  # fmt: skip
from engine.errors import LiftError
from engine.lift.catalogue import asm_hole, asm_words, fill
from engine.lift.constants import Constant, Evaluator, NotConstant
from engine.lift.effects import assigned, effects
from engine.lift.expressions import Translator, Typed, Unknown
from engine.lift.provenance import Lines, OpaqueOp, Range, Span
from engine.lift.scope import C_TYPES, NUMBERS, Local, Program, Scope
from engine.lift.syntax import KEYWORDS, Node, NotAnExpression, parse_expression
from engine.lift.tokens import Token, Tokens, join

_TOO_DEEP = 40
_COMPOUND = {"+=": "+", "-=": "-", "*=": "*", "/=": "/", "%=": "%"}
_DECLARATION_WORDS = frozenset({"const", "constexpr"})


@dataclass
class Source:
    """One source text with its tokens, and the tables that lifting fills."""

    data: bytes
    file: str
    tokens: Tokens
    lines: Lines
    provenance: dict[Path, Span] = field(default_factory=dict)
    parts: dict[tuple[Path, str], Range] = field(default_factory=dict)
    opaque: list[OpaqueOp] = field(default_factory=list)
    macros: set[str] = field(default_factory=set)

    def note(self, path: Path, start: int, end: int) -> None:
        self.provenance[path] = self.lines.span(start, end)
        self.parts[path, "statement"] = Range(start, end)
        indent = self.lines.indent(start)
        if indent is not None:
            self.parts[path, "indent"] = indent

    def within(self, tree: Tree) -> list[Token]:
        return self.tokens.inside(tree.start_byte, tree.end_byte)

    def plain_text(self, tree: Tree) -> str:
        """The text of `tree` as its formatting leaves it no say."""
        text = join(self.within(tree)).strip("\n")
        return text or " ".join((tree.text or b"").decode("utf-8", "replace").split())

    def fail(self, offset: int, message: str, fix: str) -> LiftError:
        return LiftError(message, where=self.lines.where(self.file, offset), fix=fix)


@dataclass
class FunctionLifter:
    """Lifts the body of one function.

    `constants` holds one set of compile-time values per instantiation that the file makes of it.
    """

    source: Source
    program: Program
    scope: Scope
    evaluator: Evaluator
    constants: list[dict[str, Constant]]
    result: str  # the kind that the function returns

    def __post_init__(self) -> None:
        self.translator = Translator(self.program, self.scope)
        self.depth = 0

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
        reads, writes = effects(tokens, self.program, self.scope)
        if tree.has_error and "*" not in writes:
            writes = tuple(sorted((*writes, "*")))
        out.append(Opaque(self.source.plain_text(tree), reads, writes))
        self.source.note(path, tree.start_byte, tree.end_byte)
        self.source.opaque.append(OpaqueOp(path, self.source.provenance[path], reason))
        if tree.type == "declaration":
            # Names declared here hide what they named outside, and mean nothing to us.
            for name in _declared(tree):
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
                inner = [c for c in tree.children if c.type not in ("attribute_declaration", "comment")]
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
            if not words <= self.program.catalogue.attributes:
                raise Unknown(f"unknown attribute {join(self.source.within(tree))}")

    def pragma(self, tree: Tree) -> None:
        words = [t.text for t in self.source.within(tree)]
        if words[:2] != ["#", "pragma"] or words[2:3] == [] or words[2] not in self.program.catalogue.pragmas:
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
            return self.asm(tokens)
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
            raise Unknown(f"a {kind.replace(':', ' of ')} is stored as a {variable.replace(':', ' of ')}")

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

    def asm(self, tokens: list[Token]) -> Stmt:
        """One PTX instruction that the catalogue knows."""
        inner = [t for t in tokens[1:] if t.text not in ("volatile", "__volatile__")]
        if len(inner) < 3 or inner[0].text != "(" or inner[-1].text != ")":
            raise Unknown("inline PTX")
        inner = inner[1:-1]
        split = next((at for at, t in enumerate(inner) if t.text in (":", "::", ":::")), len(inner))
        if any(t.kind != "string" or not t.text.startswith('"') for t in inner[:split]):
            raise Unknown("inline PTX")
        text = "".join(t.text[1:-1] for t in inner[:split])
        for escape in ("\\n", "\\t"):
            text = text.replace(escape, " ")
        words = asm_words(text)
        operands = self.asm_inputs(inner[split:])
        for pattern in self.program.catalogue.asm:
            if len(pattern.words) != len(words):
                continue
            holes: dict[str, Expr | tuple[Expr, ...]] = {}
            for wanted, word in zip(pattern.words, words, strict=True):
                hole = asm_hole(wanted)
                if hole is None:
                    if wanted != word:
                        break
                elif word.lstrip("-").isdigit():
                    holes[hole] = Num(int(word))
                elif word.startswith("%") and word[1:].isdigit() and int(word[1:]) < len(operands):
                    holes[hole] = self.translator.translate(operands[int(word[1:])]).expr
                else:
                    break
            else:
                call = fill(pattern.cuir, holes)
                assert isinstance(call, Call)
                return Do(call)
        raise Unknown(f"inline PTX: {' '.join(words)[:60]}")

    def asm_inputs(self, tokens: Sequence[Token]) -> list[Node]:
        """The operands of an asm without outputs: `:: "n"(N), "r"(x) : "memory"`."""
        if not tokens:
            return []
        texts = [t.text for t in tokens]
        start = 2 if texts[:2] == [":", ":"] else 1 if texts[0] == "::" else None
        if start is None:
            raise Unknown("inline PTX with outputs")
        out: list[Node] = []
        at = start
        while at + 1 < len(tokens) and tokens[at].kind == "string" and texts[at + 1] == "(":
            depth, end = 1, at + 2
            while end < len(tokens) and depth:
                depth += (texts[end] == "(") - (texts[end] == ")")
                end += 1
            out.append(self.parse(tokens[at + 2 : end - 1]))
            at = end + 1 if texts[end : end + 1] == [","] else end
        if at < len(tokens) and texts[at] != ":":
            raise Unknown("inline PTX with operands of another form")
        return out

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
                    inner_trees = branch.children if branch.type == "compound_statement" else [branch]
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
        tokens = self.source.tokens.inside(tree.start_byte, body.start_byte)
        if [t.text for t in tokens[:2]] != ["for", "("] or tokens[-1].text != ")":
            raise Unknown("a loop header of another form")
        close = tokens[-1].end
        pieces = _split(tokens[2:-1], ";")
        if len(pieces) != 3 or not all(pieces):
            raise Unknown("a loop that is not `for (int i = a; i < b; ++i)`")
        init, cond, update = pieces
        if [t.text for t in init[:1]] != ["int"] or len(init) < 4 or init[2].text != "=":
            raise Unknown("a loop variable that is not `int i = ...`")
        var = init[1]
        start = self.translator.converted(self.value(init[3:]), "i32")
        self.scope.open()
        try:
            chosen = self.scope.fresh(var.text)
            self.scope.declare(var.text, Local(Name(chosen), "i32"))
            step = self.loop_step(var, update)
            stop = self.loop_stop(var, cond, down=_is_negative(step))
            changed = assigned(self.source.within(body))
            bound_names = {t.text for t in (*cond, *update) if t.kind == "word"}
            if changed & bound_names:
                raise Unknown(f"the loop changes `{min(changed & bound_names)}`, which bounds it")
            here = (*path, len(out))
            parts = self.source.parts
            parts[here, "header"] = Range(tree.start_byte, close)
            parts[here, "var"] = Range(var.start, var.end)
            for role, expr in (("start", start.expr), ("stop", stop), ("step", step)):
                self.parts_of(here, role, expr)
            self.braces(here, "body", body)
            for constants in self.constants:
                constants.pop(chosen, None)
            inside = self.body(body, (*here, "body"))
        finally:
            self.scope.close()
        out.append(For(chosen, start.expr, stop, step, inside))
        self.source.note(here, tree.start_byte, tree.end_byte)

    def loop_step(self, var: Token, tokens: list[Token]) -> Expr:
        """`++i`, `i++`, `i += c`, `--i`, `i--`, `i -= c` as the range's step."""
        texts = [t.text for t in tokens]
        if len(tokens) == 2 and var.text in texts and {"++", "--"} & set(texts):
            return Num(1) if "++" in texts else Num(-1)
        if len(tokens) > 2 and texts[0] == var.text and texts[1] in ("+=", "-="):
            step = self.translator.scalar(self.parse(tokens[2:]))
            if step.kind != "i32":
                raise Unknown("a loop's step is an int")
            if texts[1] == "+=":
                return step.expr
            if isinstance(step.expr, Num):
                return Num(-step.expr.value)
            return Unary("-", step.expr)
        raise Unknown("a loop's step of another form")

    def loop_stop(self, var: Token, tokens: list[Token], down: bool) -> Expr:
        """The range's end from `i < b`, `i <= b`, or downwards `i > b`, `i >= b`."""
        node = self.parse(tokens)
        signs = (">", ">=") if down else ("<", "<=")
        if node.kind != "binary" or node.text not in signs or node.kids[0].text != var.text:
            raise Unknown("a loop's condition that does not go with its step")
        if node.kids[0].kind != "name":
            raise Unknown("a loop's condition of another form")
        stop = self.translator.scalar(node.kids[1])
        if stop.kind != "i32":
            raise Unknown("a loop's bound is an int")
        if var.text in {n.id for n in walk_expr(stop.expr) if isinstance(n, Name)}:
            raise Unknown("a loop's bound that names its variable")
        if node.text == "<=":
            return Binary("+", stop.expr, Num(1))
        if node.text == ">=":
            if isinstance(stop.expr, Num):
                return Num(stop.expr.value - 1)
            return Binary("-", stop.expr, Num(1))
        return stop.expr

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
        note_expression(self.source.parts, self.translator, path, role, expr)


def note_expression(
    parts: dict[tuple[Path, str], Range], translator: Translator, path: Path, role: str, expr: Expr
) -> None:
    """Writes the ranges of `expr` and everything in it under `role`."""
    pending = [(role, expr)]
    while pending:
        name, node = pending.pop()
        found = translator.ranges.get(id(node))
        if found is not None:
            parts[path, name] = found
        if isinstance(node, Lambda) and id(node) in translator.inner:
            parts[path, f"{name}/params"] = translator.inner[id(node)]
        pending += [(f"{name}/{at}", child) for at, child in enumerate(children(node))]


def braces_match(tree: Tree) -> bool:
    """Whether a compound statement's own braces stand in the source."""
    ends = (tree.children[:1] + tree.children[-1:]) if tree.child_count > 1 else []
    return bool(ends) and not any(child.is_missing for child in ends)


def read_alias(
    tokens: Sequence[Token], translator: Translator, program: Program
) -> tuple[str, Typed]:
    """`using Name = Type;`. Raises `Unknown`."""
    if len(tokens) < 5 or tokens[2].text != "=" or tokens[-1].text != ";":
        raise Unknown("an alias of another form")
    typed = translator.translate(parse_expression(tokens[3:-1], program.templates))
    if typed.kind not in ("type", "layout"):
        raise Unknown("an alias of what is no type")
    # A copy without ranges: where the alias is used, its parts stand nowhere.
    return tokens[1].text, Typed(fill(typed.expr, {}), typed.kind)


def check_static_assert(
    source: Source,
    tree: Tree,
    translator: Translator,
    program: Program,
    evaluator: Evaluator,
    instantiations: Sequence[Mapping[str, Constant]],
) -> None:
    """Passes over an assertion that holds. Raises `LiftError` on one that does not."""
    condition = _field(tree, "condition")
    text = join(source.within(condition))
    try:
        node = parse_expression(source.within(condition), program.templates)
        expr = translator.condition(node)
        held = [bool(evaluator.value(expr, constants)) for constants in instantiations]
    except (Unknown, NotAnExpression, NotConstant) as error:
        raise source.fail(
            tree.start_byte,
            f"static_assert({text}) cannot be evaluated: {error}",
            "assert on template parameters, constexpr values and sizes of element types",
        ) from None
    if not all(held):
        raise source.fail(
            tree.start_byte,
            f"static_assert({text}) fails for this specialisation",
            "choose a specialisation that the kernel allows",
        )


def _declared(tree: Tree) -> list[str]:
    """The names that a declaration declares."""
    out: list[str] = []
    for at, child in enumerate(tree.children):
        if tree.field_name_for_child(at) != "declarator":
            continue
        node: Tree | None = child
        while node is not None and node.type not in ("identifier", "field_identifier"):
            inner = node.child_by_field_name("declarator")
            if inner is None:
                inner = next((c for c in node.children if c.is_named), None)
            node = inner
        if node is not None and node.text is not None:
            out.append(node.text.decode("utf-8", errors="replace"))
    return out


def _split(tokens: Sequence[Token], sign: str) -> list[list[Token]]:
    """`tokens` cut at every `sign` outside brackets."""
    out: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text == sign and not depth:
            out.append([])
        else:
            out[-1].append(token)
    return out


def _is_negative(step: Expr) -> bool:
    if isinstance(step, Unary):
        return step.op == "-"
    return isinstance(step, Num) and step.value < 0


def _node(token: Token) -> Node:
    return Node("name", token.text, (), token.start, token.end)


def _field(tree: Tree, name: str) -> Tree:
    found = tree.child_by_field_name(name)
    if found is None:
        raise Unknown("it does not parse")
    return found
