"""Reading the top level of a source into a program: its functions, its names, and what is left."""

from __future__ import annotations

from tree_sitter import Node as Tree

from engine.cuir.nodes import Field
from engine.lift.catalogue import NUMBERS, Catalogue
from engine.lift.declarations import read_alias
from engine.lift.expressions import Translator, Typed, Unknown
from engine.lift.scope import C_TYPES, Local, Program, Scope, Signature
from engine.lift.source import Source
from engine.lift.syntax import NotAnExpression, parse_expression
from engine.lift.tokens import Token
from engine.lift.toplevel import (
    ARGS,
    FunctionItem,
    OtherItem,
    Unsupported,
    defined_names,
    definition_of,
    function_name,
    is_struct,
    items,
    other_name,
    read_args,
    read_function,
)

OUR_HEADERS = "cubridge/"


class TopLevel:
    """The items of a source in order; `program` is what its functions may name."""

    def __init__(self, source: Source, catalogue: Catalogue, root: Tree) -> None:
        self.source = source
        self.catalogue = catalogue
        self.functions: list[FunctionItem] = []
        self.order: list[FunctionItem | OtherItem] = []
        self.fields: tuple[Field, ...] = ()
        self.globals: dict[str, Local] = {}
        self.asserts: list[Tree] = []
        self.numbers: dict[str, int] = {}
        self.find_macros()
        self.read(list(items(root)))

    def find_macros(self) -> None:
        """Every name that a #define in this file gives a meaning of its own."""
        tokens = self.source.tokens.all
        for at in range(len(tokens) - 2):
            if tokens[at].text == "#" and tokens[at + 1].text in ("define", "undef"):
                self.source.macros.add(tokens[at + 2].text)

    def read(self, trees: list[Tree]) -> None:
        struct = next((t for t in trees if is_struct(t, ARGS)), None)
        if struct is not None:
            self.fields = read_args(self.source, struct)
        names = [function_name(d) for t in trees if (d := definition_of(t)) is not None]
        signatures: dict[str, Signature] = {}
        for tree in trees:
            definition = definition_of(tree)
            if tree is struct:
                continue
            if tree.type == "static_assert_declaration":
                self.asserts.append(tree)
            elif definition is not None:
                self.read_function(tree, definition, signatures, names)
            elif not self.is_silent(tree, set(names)):
                self.order.append(OtherItem(tree, "", ""))
        templates = self.catalogue.templates | {n for n, s in signatures.items() if s.consts}
        defined = set(signatures) | self.source.macros
        for entry in self.order:
            if isinstance(entry, OtherItem):
                defined |= defined_names(entry.tree)
        fields = {f.name: f.type for f in self.fields}
        self.program = Program(
            self.catalogue, fields, signatures, templates, frozenset(defined - {""})
        )
        self.name_others(set(names))

    def read_function(
        self,
        tree: Tree,
        definition: Tree,
        signatures: dict[str, Signature],
        names: list[str],
    ) -> None:
        name = function_name(definition)
        try:
            item = read_function(self.source, self.catalogue, tree, definition)
            if name in signatures:
                raise Unsupported(f"`{name}` is defined twice")
        except Unsupported as error:
            taken = {o.name for o in self.order if isinstance(o, OtherItem)}
            taken |= {n for n in names if n != name or names.count(n) > 1}
            self.order.append(
                OtherItem(tree, other_name(definition, taken, self.numbers), str(error))
            )
            return
        signatures[name] = item.signature
        self.functions.append(item)
        self.order.append(item)

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
            return tokens[1:2] == ["pragma"] and bool(self.catalogue.pragmas & {*tokens[2:3]})
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
                name = other_name(entry.tree, names, self.numbers)
                names.add(name)
                order.append(OtherItem(entry.tree, name, reason))
        self.order = order

    def global_name(self, tree: Tree) -> str | None:
        """None when the item became a global name; else why it has no meaning."""
        translator = Translator(self.program, Scope([dict(self.globals)]))
        tokens = self.source.within(tree)
        if any(t.text in self.source.macros for t in tokens):
            return "it uses a macro" if tree.type != "preproc_def" else "a macro"
        try:
            found: tuple[str, Typed] | None = None
            if tree.type == "alias_declaration":
                found = read_alias(tokens, translator, self.program)
            elif tree.type == "declaration":
                found = self.read_constant(tokens, translator)
        except (Unknown, NotAnExpression) as error:
            return str(error)
        if found is not None:
            self.globals[found[0]] = Local(found[1].expr, found[1].kind)
            return None
        if tree.type == "ERROR":
            return "it does not parse"
        return f"the kernel language has no {tree.type.replace('_', ' ')}"

    def read_constant(
        self, tokens: list[Token], translator: Translator
    ) -> tuple[str, Typed] | None:
        """`constexpr int N = 4;`: its uses stand for its value."""
        texts = [t.text for t in tokens]
        words = (
            [t for t in texts[: texts.index("=")] if t not in ("static", "inline")]
            if ("=" in texts)
            else []
        )
        if len(words) < 3 or words[0] != "constexpr" or texts[-1] != ";":
            return None
        node = parse_expression(tokens[texts.index("=") + 1 : -1], self.program.templates)
        typed = translator.translate(node)
        kind = C_TYPES.get(" ".join(w for w in words[1:-1] if w != "const"), "")
        if words[1:-1] != ["auto"]:
            if kind not in NUMBERS:
                raise Unknown("a constant of another type")
            typed = translator.converted(typed, kind)
        if typed.kind not in NUMBERS:
            raise Unknown("a constant that is no number")
        return words[-1], typed
