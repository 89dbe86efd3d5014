"""The way of an extra input from the launcher to a place: through parameters, or through a struct
that comes there already. Never a device global, so that two streams do not share one.

Whether a struct comes there is told by what probing found: sizes that are its members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tree_sitter import Node

from engine.errors import TransferError
from engine.foreign.cuda_tree import parsed
from engine.foreign.functions import declarator_of
from engine.foreign.probe.places import Place
from engine.graft.edits import Edit, Files, fresh
from engine.spec.recipes.recipe import Input

_STRUCTS = ("struct_specifier", "class_specifier")
Struct = tuple[Path, Node, Node]  # its file, its body, and the declaration of one member
_TYPES = {"f32": "float", "i32": "int", "i64": "int64_t", "bool": "unsigned char"}


@dataclass(slots=True)
class Router:
    """Brings inputs to places of one kernel.

    Args:
        files: what the kernel is made of: its source, and headers that were observed.
        launcher: the name of the function that a caller calls, in `source`.
    """

    files: Files
    source: Path
    launcher: str
    edits: list[Edit] = field(default_factory=list)
    _trees: dict[Path, Node] = field(default_factory=dict)
    _done: set[tuple[str, str]] = field(default_factory=set)

    def bring(self, item: Input, place: Place) -> str:
        """What the input is called at the place.

        Raises:
            TransferError: no way is found, with where it ended; or an element type that no C++
                type is known for.
        """
        if item.dtype not in _TYPES:
            raise TransferError(f"the input {item.name} has elements of the kernel's own type: "
                                "only f32, i32, i64 and bool are brought in")  # fmt: skip
        function = self._enclosing(place.file, place.after)
        member = self._member(place, function)
        if member is not None:
            return self._by_struct(item, *member)
        return self._value(item, function, place.file)

    def _value(self, item: Input, function: Node, file: Path) -> str:
        """What the input is called in a function, which a parameter brings it to, else a struct
        that it is given.

        Raises:
            TransferError: neither does.
        """
        edits, done = list(self.edits), set(self._done)
        try:
            self._by_parameter(item, _name(function), file)
            return self._passed(item, function)
        except TransferError as error:
            self.edits, self._done = edits, done
            name = self._through(item, function)
            if name is None:
                raise error
            return name

    def _named(self, item: Input, function: str) -> str:
        """What the input is called in a function: a word that is not there yet. A caller knows the
        launcher's parameter by the input's own name.

        Raises:
            TransferError: the launcher has another thing of that name.
        """
        texts = [n.text or b"" for _, n in self._functions() if _name(n) == function]
        name = fresh(item.name, *texts)
        if function == self.launcher and name != item.name:
            raise TransferError(
                f"{function} has something called {item.name} already",
                fix="give the spec's input another name",
            )
        return name

    # --- through parameters ------------------------------------------------------------------

    def _by_parameter(self, item: Input, function: str, file: Path) -> None:
        """Gives a function a parameter for the input, and so all that call it: before a stream and
        before parameters with a default, and its argument at the same place of each call."""
        if (item.name, function) in self._done:
            return
        self._done.add((item.name, function))
        found = [(f, n) for f, n in self._functions() if _name(n) == function]
        if not found or not function.isidentifier():  # `operator()` is called by no name
            raise TransferError(f"{file.name}: no function {function} is seen, so {item.name} "
                                "has no way there")  # fmt: skip
        entry = function == self.launcher
        name = self._named(item, function)
        places: dict[int, int] = {}  # of so many parameters, after how many ours comes
        for at, node in (*found, *self._prototypes(function)):
            declarator = declarator_of(node)
            assert declarator is not None
            listed = declarator.child_by_field_name("parameters")
            assert listed is not None
            own = _listed(listed)
            before = places.setdefault(len(own), _before(own))
            declared = _declared(item, name, _tensor(listed) if entry else "")
            self._append(item, at, listed, declared, f"a parameter of {function}", before)
        if entry:
            return
        calls = list(self._calls(function))
        if not calls:
            raise TransferError(f"{file.name}: no call of {function} is seen, so {item.name} has "
                                "no way there")  # fmt: skip
        for at, call, caller in calls:
            listed = call.child_by_field_name("arguments")
            assert listed is not None
            given = len(_listed(listed))
            before = places.get(given, next(iter(places.values())))
            passed = self._passed(item, caller)
            self._append(item, at, listed, passed, f"an argument of {function}", before)
            self._by_parameter(item, _name(caller), at)

    def _passed(self, item: Input, function: Node) -> str:
        """How a function that has the input as a parameter gives it on."""
        declarator = declarator_of(function)
        name = self._named(item, _name(function))
        if _name(function) == self.launcher and declarator is not None and _tensor(declarator):
            return f"{name}.data_ptr<{_TYPES[item.dtype]}>()"
        return name

    def _append(
        self, item: Input, file: Path, listed: Node, text: str, what: str, before: int
    ) -> None:
        """Puts a text into a list in parentheses or braces, after so many of what is there."""
        inside = _listed(listed)
        if not inside:
            at, put = listed.start_byte + 1, text
        elif before < len(inside):
            at, put = inside[before].start_byte, f"{text}, "
        else:
            at, put = inside[-1].end_byte, f", {text}"
        self.edits.append(
            Edit(file, at, at, put, f"Pass {item.name}", f"{item.name} is {what}", "input")
        )

    # --- through a struct --------------------------------------------------------------------

    def _member(self, place: Place, function: Node) -> tuple[str, str, Struct] | None:
        """A parameter of the function, a member of it that probing found to be a size, and the
        struct that has it: of several the one of the parameter's type."""
        declarator = declarator_of(function)
        listed = declarator.child_by_field_name("parameters") if declarator else None
        types = {_parameter_name(n): re.findall(rb"\w+", n.text or b"")
                 for n in (listed.named_children if listed else ())}  # fmt: skip
        for text in (*place.sizes.values(), place.to_score, *place.coordinates.values()):
            for object, arrow, member in re.findall(r"\b(\w+)(\.|->)(\w+)\b", text):
                held = list(self._structs(member)) if object in types else []
                named = [x for x in held if _struct_name(x[1]) in types[object]]
                if len(named or held) == 1:
                    return f"{object}{arrow}", member, (named or held)[0]
        return None

    def _by_struct(self, item: Input, through: str, member: str, held_by: Struct) -> str:
        """Gives the struct with `member` one of the input's name, set where `member` is."""
        file, struct, own = held_by
        called = fresh(item.name, struct.text or b"")
        name = f"{through}{called}"
        if (item.name, f"struct {member}") in self._done:
            return name
        self._done.add((item.name, f"struct {member}"))
        title, whole = f"Pass {item.name}", (struct.text or b"").decode()
        held = f"{_declared(item, called, '')};"
        set_at = list(self._assignments(member))
        if set_at:
            after, indent = own.end_byte, _indent(self.files[file], own.start_byte)
            for at, statement, object, function in set_at:
                space = _indent(self.files[at], statement.start_byte)
                text = f"\n{space}{object}{called} = {self._passed(item, function)};"
                end = statement.end_byte
                why = f"{item.name} is set where {member} is"
                self.edits.append(Edit(at, end, end, text, title, why, "input"))
                self._by_parameter(item, _name(function), at)
        else:
            fields = [n for n in struct.named_children if _is_data(n)]
            after, indent = fields[-1].end_byte, _indent(self.files[file], fields[-1].start_byte)
            count = sum(len(n.children_by_field_name("declarator")) for n in fields)
            made = [m for m in self._initialisers() if len(m[1].named_children) == count]
            if not made:
                raise TransferError(
                    f"{file.name}: nothing is seen that sets {member} of "
                    f"{whole.splitlines()[0][:40]}..., so {item.name} has no way there"
                )
            for at, listed, function in made:
                passed = self._passed(item, function)
                self._append(item, at, listed, passed, "the last member", count)
                self._by_parameter(item, _name(function), at)
        self.edits.append(Edit(file, after, after, f"\n{indent}{held}", title,
                               f"{item.name} goes where {member} goes", "input"))  # fmt: skip
        return name

    # --- through structs that are made of structs --------------------------------------------

    def _through(self, item: Input, function: Node) -> str | None:
        """The input as a member of a struct that a function is given; None where there is no way
        there."""
        declarator = declarator_of(function)
        listed = declarator.child_by_field_name("parameters") if declarator else None
        for parameter in listed.named_children if listed is not None else ():
            struct = self._struct_named(_type_name(parameter), function)
            if struct is None:
                continue
            arrow = "->" if b"*" in (parameter.text or b"") else "."
            edits, done = list(self.edits), set(self._done)
            try:
                return f"{_parameter_name(parameter)}{arrow}{self._member_of(item, *struct)}"
            except TransferError:
                self.edits, self._done = edits, done
        return None

    def _struct_named(self, name: str, function: Node) -> tuple[Path, Node] | None:
        """The struct of a name that a function sees: of its own class, else the one of all files;
        with its file."""
        held = [(f, n) for f, n in self._nodes() if n.type in _STRUCTS
                and _struct_name(n.child_by_field_name("body")) == name.encode()]  # fmt: skip
        own = [(f, n) for f, n in held if (outer := _class_of(n)) is not None
               and outer == _class_of(function)]  # fmt: skip
        return (own or held)[0] if len(own or held) == 1 and name else None

    def _member_of(self, item: Input, file: Path, struct: Node) -> str:
        """Gives a struct a last member for the input, set wherever one is made; its name.

        Raises:
            TransferError: nothing is seen that makes one, or it has no way there.
        """
        body = struct.child_by_field_name("body")
        assert body is not None
        called, type = fresh(item.name, body.text or b""), _struct_name(body).decode()
        key = (item.name, f"struct {file}:{body.start_byte}")
        if key in self._done:
            return called
        self._done.add(key)
        fields = [n for n in body.named_children if _is_data(n)]
        count = sum(len(n.children_by_field_name("declarator")) for n in fields)
        lists = [m for m in self._lists(type, struct) if len(_listed(m[1])) == count]
        filled = list(self._filled(type))
        if not lists and not filled:
            raise TransferError(f"{file.name}: nothing is seen that makes a {type}")
        for at, listed, function in lists:
            self._append(item, at, listed, self._value(item, function, at), "the last member",
                         count)  # fmt: skip
        why = f"{item.name} goes where the other members of {type} go"
        for at, statement, object, function in filled:
            space, end = _indent(self.files[at], statement.start_byte), statement.end_byte
            text = f"\n{space}{object}{called} = {self._value(item, function, at)};"
            self.edits.append(Edit(at, end, end, text, f"Pass {item.name}", why, "input"))
        after, indent = fields[-1].end_byte, _indent(self.files[file], fields[-1].start_byte)
        held = f"\n{indent}{_declared(item, called, '')};"
        self.edits.append(Edit(file, after, after, held, f"Pass {item.name}", why, "input"))
        return called

    def _lists(self, type: str, struct: Node) -> Iterator[tuple[Path, Node, Node]]:
        """Lists in braces that make a struct: what a function of its class returns, and the value
        of a variable of that type."""
        outer = _class_of(struct)
        for file, node in self._nodes():
            function = _around(node) if node.type == "initializer_list" else None
            above = node.parent
            if function is None or above is None:
                continue
            if above.type == "return_statement":
                same = outer is not None and _class_of(function) == outer
                made = same and _type_name(function) == type
            else:
                while above is not None and above.type in ("init_declarator", "initializer_list"):
                    above = above.parent if node.parent == above else None
                made = above is not None and above.type == "declaration" and (
                    _type_name(above) == type)  # fmt: skip
            if made:
                yield file, node, function

    def _filled(self, type: str) -> Iterator[tuple[Path, Node, str, Node]]:
        """Of each variable of the source that has a type, the first statement that sets a member,
        and how it names the variable."""
        for file, node in self._nodes():
            function = _around(node) if node.type == "declaration" else None
            if file != self.source or function is None or _type_name(node) != type:
                continue
            for declarator in node.children_by_field_name("declarator"):
                object = re.match(r"\w+", (declarator.text or b"").decode())
                for inner in _walk(function):
                    set_ = object and inner.type == "expression_statement" and re.match(
                        rf"{object[0]}\.\w+\s*=[^=]", (inner.text or b"").decode())  # fmt: skip
                    if object and set_:
                        yield file, inner, f"{object[0]}.", function
                        break

    # --- what the files hold -----------------------------------------------------------------

    def _nodes(self) -> Iterator[tuple[Path, Node]]:
        for file, data in self.files.items():
            if file not in self._trees:
                self._trees[file] = parsed(data)
            for node in _walk(self._trees[file]):
                yield file, node

    def _functions(self) -> Iterator[tuple[Path, Node]]:
        for file, node in self._nodes():
            if node.type == "function_definition" and declarator_of(node) is not None:
                yield file, node

    def _prototypes(self, function: str) -> Iterator[tuple[Path, Node]]:
        """The declarations of a function without its body, and instantiations of a template."""
        kinds = ("declaration", "field_declaration", "template_instantiation")
        for file, node in self._nodes():
            if node.type in kinds and _name(node) == function:
                yield file, node

    def _enclosing(self, file: Path, at: int) -> Node:
        inside = [n for f, n in self._functions() if f == file and n.start_byte < at <= n.end_byte]
        if not inside:
            raise TransferError(f"{file.name}: no function is seen around byte {at}")
        return min(inside, key=lambda n: n.end_byte - n.start_byte)

    def _calls(self, function: str) -> Iterator[tuple[Path, Node, Node]]:
        """The calls and launches of a function, also by a variable that holds its address."""
        for file, node in self._nodes():
            if node.type != "call_expression":
                continue
            caller = _around(node)
            called = node.child_by_field_name("function")
            if caller is None or called is None:
                continue
            name = _plain(called)
            held = re.search(
                rf"\b{re.escape(name)}\s*=\s*&?\s*[\w:]*\b{function}\b".encode(), caller.text or b""
            )
            if name == function or (held and name):
                yield file, node, caller

    def _structs(self, member: str) -> Iterator[Struct]:
        """The bodies of structs with a member, and its declaration."""
        for file, node in self._nodes():
            if node.type == "field_declaration" and node.parent is not None:
                for one in node.children_by_field_name("declarator"):
                    if re.sub(rb"[*&\s]", b"", one.text or b"") == member.encode():
                        yield file, node.parent, node

    def _assignments(self, member: str) -> Iterator[tuple[Path, Node, str, Node]]:
        """Statements of the source that set a member, what stands before its name, and where."""
        for file, node in self._nodes():
            if file != self.source or node.type != "expression_statement":
                continue
            set_ = re.match(rf"([\w\[\]]+(?:\.|->)){member}\s*=[^=]", (node.text or b"").decode())
            function = _around(node)
            if set_ and function is not None:
                yield file, node, set_[1], function

    def _initialisers(self) -> Iterator[tuple[Path, Node, Node]]:
        """Lists of the source that make a struct."""
        for file, node in self._nodes():
            function = _around(node) if node.type == "initializer_list" else None
            if file == self.source and function is not None:
                yield file, node, function


def _struct_name(body: Node | None) -> bytes:
    struct = body.parent if body is not None else None
    name = struct.child_by_field_name("name") if struct is not None else None
    return (name.text or b"") if name is not None else b""


def _type_name(node: Node) -> str:
    """The last word of the type that a declaration, a parameter or a function has."""
    type = node.child_by_field_name("type")
    text = (type.text or b"").decode() if type is not None else ""
    while text != (text := re.sub(r"<[^<>]*>", "", text)):  # template arguments, inside first
        pass
    words: list[str] = re.findall(r"\w+", text)
    return words[-1] if words else ""


def _class_of(node: Node) -> Node | None:
    """The struct or class that something is declared in."""
    at = node.parent
    while at is not None and at.type not in _STRUCTS:
        at = at.parent
    return at


def _is_data(node: Node) -> bool:
    text = node.text or b""
    return node.type == "field_declaration" and b"(" not in text and b"static" not in text


def _declared(item: Input, name: str, tensor: str) -> str:
    """A parameter or a member. `tensor`: PyTorch's type as the source spells it, else ""."""
    if tensor:
        return f"{tensor} {name}"
    element = _TYPES[item.dtype]
    return f"const {element}* {name}" if item.dims else f"{element} {name}"


def _tensor(node: Node) -> str:
    """PyTorch's type as it is spelled there; "" where it is not."""
    found = re.search(r"(?:\w+::)*\bTensor\b", (node.text or b"").decode("utf-8", "replace"))
    return found[0] if found else ""


def _listed(node: Node) -> list[Node]:
    return [n for n in node.named_children if n.type != "comment"]


def _before(parameters: Sequence[Node]) -> int:
    """After how many parameters one more may come: before a stream at the end, and defaults."""
    for number, one in enumerate(parameters):
        stream = b"cudaStream_t" in (one.text or b"") and number == len(parameters) - 1
        if stream or one.type == "optional_parameter_declaration":
            return number
    return len(parameters)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.named_children:
        yield from _walk(child)


def _around(node: Node) -> Node | None:
    """The function that a node is in."""
    at = node.parent
    while at is not None and at.type != "function_definition":
        at = at.parent
    return at


def _plain(called: Node) -> str:
    """A function's own name, without namespaces and template arguments."""
    text = re.sub(r"<.*", "", (called.text or b"").decode(), flags=re.DOTALL)
    return text.split("::")[-1].split(".")[-1].strip()


def _name(function: Node) -> str:
    declarator = declarator_of(function)
    name = declarator.child_by_field_name("declarator") if declarator else None
    return "" if name is None else _plain(name)


def _parameter_name(node: Node) -> str:
    return re.sub(r".*?(\w+)\s*(=.*)?$", r"\1", (node.text or b"").decode(), flags=re.DOTALL)


def _indent(data: bytes, at: int) -> str:
    line = data[data.rfind(b"\n", 0, at) + 1 : at].decode("utf-8", "replace")
    return line if not line.strip() else ""


def values_at(
    router: Router, items: Mapping[str, Input], names: Sequence[str], place: Place
) -> dict[str, str]:
    """What each of the named inputs is called at a place."""
    return {name: router.bring(items[name], place) for name in names}
