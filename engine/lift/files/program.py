"""Reading the top level of a source into a program: its functions, its names, and what is left."""

from __future__ import annotations

from tree_sitter import Node as Tree

from engine.cuir.nodes import Field
from engine.cuir.static.conversions import NUMBERS, UNSIGNED
from engine.errors import LiftError
from engine.lift.cpp import ignored_words as ignored
from engine.lift.cpp.source_text import Source
from engine.lift.cpp.syntax import NotAnExpression, parse_expression
from engine.lift.cpp.tokens import Token
from engine.lift.files.toplevel import (
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
from engine.lift.functions.declarations import read_alias
from engine.lift.functions.expressions import Translator, Typed, Unknown
from engine.lift.names.catalogue import Catalogue
from engine.lift.names.headers import (
    NAMESPACE,
    OUR_HEADERS,
    aliases,
    bundled_headers,
    defined_macros,
    header_words,
    includes,
    is_own,
    meant,
    words,
)
from engine.lift.names.scope import C_TYPES, Local, Program, Scope, Signature


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
        self.check_includes()
        self.read(list(items(root)))

    def find_macros(self) -> None:
        """Every name that a #define in this file gives a meaning of its own. Raises `LiftError` for
        one that has a meaning, and for a type by such a name."""
        tokens, taken = self.source.tokens.all, words(self.catalogue)
        macros = defined_macros(tokens)
        for name, offset in (*macros.items(), *((t.text, t.start) for t in aliases(tokens))):
            if name in taken:
                raise self.meant_already(offset, name)
        self.source.macros.update(macros)

    def check_includes(self) -> None:
        """Raises `LiftError` for a header that is not known, and for one of ours of
        which a macro before it changes a word."""
        known = bundled_headers() | ignored.HEADERS
        tokens = self.source.tokens.all
        for token, name in includes(tokens):
            own = token.kind == "string" and is_own(name)
            if name not in known and not own:
                ours = ", ".join(sorted(bundled_headers()))
                raise self.source.fail(
                    token.start,
                    f'what "{name}" defines is not known' if name else "an include by a macro",
                    f"write what the kernel needs of it into the source, or include one of {ours}",
                )
            before = defined_macros([t for t in tokens if t.start < token.start])
            changed = sorted(n for n in before if n in header_words() or n.startswith("_"))
            if name.startswith(OUR_HEADERS) and changed:
                raise self.source.fail(
                    token.start, f"the macro `{changed[0]}` changes what {name} says",
                    "include it before the first #define",
                )  # fmt: skip

    def meant_already(self, offset: int, name: str) -> LiftError:
        return self.source.fail(
            offset, f"`{name}` has a meaning already, which a second one would change",
            "name it otherwise",
        )  # fmt: skip

    def read(self, trees: list[Tree]) -> None:
        struct = next((t for t in trees if is_struct(t, ARGS)), None)
        if struct is not None:
            self.fields = read_args(self.source, struct)
        self.check_names(trees)
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
        fields = {f.name: f.type for f in self.fields}
        self.program = Program(self.catalogue, fields, signatures, templates)
        self.name_others(set(names))

    def check_names(self, trees: list[Tree]) -> None:
        """Raises `LiftError` where the source declares a name that has a meaning already, or one
        function twice: C++ would choose by the arguments' types."""
        taken = meant(self.catalogue)
        seen: set[str] = set()
        for tree in trees:
            if tree.type in ("preproc_include", "preproc_def", "preproc_function_def"):
                continue
            names, function = defined_names(tree), definition_of(tree) is not None
            for name in sorted(names):
                if name in taken or (function and name.startswith("_")):
                    raise self.meant_already(tree.start_byte, name)
            if not function:
                continue
            for name in sorted(names & seen):
                raise self.source.fail(
                    tree.start_byte, f"`{name}` is defined twice", "give each function its own name"
                )
            seen |= names

    def read_function(
        self,
        tree: Tree,
        definition: Tree,
        signatures: dict[str, Signature],
        names: list[str],
    ) -> None:
        name = function_name(definition)
        try:
            item = read_function(self.source, tree, definition)
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
            # What a header of the source's own defines has no meaning until somebody gives it one.
            known = bundled_headers() | ignored.HEADERS
            return all(name in known for _, name in includes(self.source.within(tree)))
        if tree.type == "preproc_call":
            return tokens[1:2] == ["pragma"] and bool(ignored.PRAGMAS & {*tokens[2:3]})
        if tree.type == "using_declaration":
            return tokens == ["using", "namespace", NAMESPACE, ";"]
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
        if typed.kind not in NUMBERS or typed.kind in UNSIGNED:
            raise Unknown("a constant that is no number with a sign")
        return words[-1], typed
