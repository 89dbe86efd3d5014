"""Spans and parts: the bytes that they name are the bytes that the ops came from."""

from __future__ import annotations

from engine.cuir.nodes import Assign, Do, For, If, Return, children, walk
from engine.lift import Lifted, lift_source
from engine.lift.cpp.provenance import Lines
from tests.engine.lift.formatting import reformatted
from tests.engine.lift.sources import BINDING, CONTRACT, PRELUDE, kernel_bytes, lift_body


def part(lifted: Lifted, path: tuple, role: str) -> str:
    return lifted.parts[path, role].of(lifted.source).decode()


def test_lines_and_columns_count_code_points():
    source = "\ufeffab\r\né中🚀 x\n\tlast".encode()
    lines = Lines(source)
    for text, place in (("ab", (1, 1)), ("é", (2, 1)), ("x", (2, 5)), ("last", (3, 2))):
        assert lines.place(source.index(text.encode())) == place
    span = lines.span(source.index(b"x"), len(source))
    assert (span.start_line, span.end_line) == (2, 3)
    assert lines.indent(source.index(b"last")).of(source) == b"\t"
    assert lines.indent(source.index(b"x")) is None


def test_parts_of_a_declaration():
    body = "const auto  a =\n    exp2(x * 2.0f) + slope(i + 1);"
    lifted = lift_body(body)
    path = ("kernel", PRELUDE)
    assert part(lifted, path, "statement") == body
    assert part(lifted, path, "type") == "const auto"
    assert part(lifted, path, "target") == "a"
    assert part(lifted, path, "operator") == "="
    assert part(lifted, path, "value") == "exp2(x * 2.0f) + slope(i + 1)"
    assert part(lifted, path, "value/0/0/1") == "2.0f"
    assert part(lifted, path, "value/1") == "slope(i + 1)"
    assert part(lifted, path, "value/1/1/0") == "i"


def test_parts_of_a_call_with_a_lambda():
    body = "s = keep(s, at(i, j * 64), [&](int r, int c) { return r < c; });"
    lifted = lift_body(body)
    path = ("kernel", PRELUDE)
    assert part(lifted, path, "value/0") == "s"
    assert part(lifted, path, "value/1") == "[&](int r, int c) { return r < c; }"
    assert part(lifted, path, "value/1/params") == "int r, int c"
    assert part(lifted, path, "value/1/0") == "r < c"
    assert part(lifted, path, "value/2/1") == "j * 64"


def test_parts_of_control_flow():
    body = """for (int k = 1; k < j; k += 2) {
    if (ok && i < 3) {
      sync();
    } else if (ok)
      ++i;
    else { }
  }"""
    lifted = lift_body(body)
    loop = ("kernel", PRELUDE)
    assert part(lifted, loop, "header") == "for (int k = 1; k < j; k += 2)"
    assert [part(lifted, loop, r) for r in ("var", "start", "stop", "step")] == ["k", "1", "j", "2"]
    assert part(lifted, loop, "body.open") == "{" and part(lifted, loop, "body.close") == "}"
    branch = (*loop, "body", 0)
    assert part(lifted, branch, "condition") == "ok && i < 3"
    assert part(lifted, branch, "header") == "if (ok && i < 3)"
    assert part(lifted, branch, "then").startswith("{") and part(lifted, branch, "then").endswith(
        "}"
    )
    assert part(lifted, branch, "else") == "else"
    assert part(lifted, branch, "indent") == "    "
    assert (branch, "other.open") not in lifted.parts
    inner = (*branch, "other", 0)
    assert part(lifted, inner, "then") == "++i;"
    assert (inner, "then.open") not in lifted.parts
    assert part(lifted, inner, "other.open") == "{"
    assert (inner, "indent") not in lifted.parts


def test_parts_of_functions_and_the_argument_struct():
    lifted = lift_source(CONTRACT, BINDING, "sm_80")
    path = ("flash_fwd",)
    assert (
        part(lifted, path, "consts") == "typename T, int D, int BM, int BN, int STAGES, int WARPS"
    )
    assert part(lifted, path, "const1") == "int D"
    assert part(lifted, path, "threads") == "WARPS * 32"
    assert part(lifted, path, "min_blocks") == "1"
    assert part(lifted, path, "params") == "const __grid_constant__ Args args"
    assert part(lifted, path, "launch_bounds") == "__launch_bounds__(WARPS * 32, 1)"
    assert part(lifted, path, "body.open") == "{" and part(lifted, path, "body.close") == "}"
    assert part(lifted, ("tile_count",), "param3") == "int q0"
    assert part(lifted, ("Args",), "body.close") == "}"
    names = [f.name for f in lifted.module.fields]
    assert [part(lifted, ("Args", at), "name") for at in range(len(names))] == names
    assert part(lifted, ("Args", 1), "type").strip() == "TensorArg"
    assert part(lifted, ("Args", 6), "statement") == "int B, Hq, Hkv, Nq, Nk;"


def test_every_part_lies_in_its_statement_and_children_in_their_parents():
    for source, arch in (
        (kernel_bytes("flash_fwd_sm90"), "sm_90a"),
        (reformatted(CONTRACT, 3), "sm_80"),
    ):
        lifted = lift_source(source, BINDING, arch)
        roots = {"value", "call", "condition", "start", "stop", "step"}
        for path, stmt in walk(lifted.module):
            whole = lifted.parts[path, "statement"]
            assert lifted.provenance[path].range == whole
            if isinstance(stmt, (Assign, Return, Do)):
                assert lifted.text(path).rstrip().endswith(";")
            elif isinstance(stmt, (For, If)):
                assert (path, "header") in lifted.parts
        for (path, role), found in lifted.parts.items():
            if path[0] == "Args" or role == "indent":
                continue
            whole = lifted.parts[path, "statement"]
            assert whole.start <= found.start <= found.end <= whole.end
            above, _, last = role.rpartition("/")
            if last.isdigit() and above.split("/")[0] in roots and (path, above) in lifted.parts:
                outer = lifted.parts[path, above]
                assert outer.start <= found.start <= found.end <= outer.end


def test_all_expressions_that_the_source_spells_have_a_range():
    lifted = lift_source(CONTRACT, BINDING, "sm_80")
    roots = {Assign: "value", Return: "value", Do: "call", If: "cond", For: "stop"}
    missing = 0
    for path, stmt in walk(lifted.module):
        name = roots[type(stmt)]
        expr = getattr(stmt, name)
        role = {"cond": "condition"}.get(name, name)
        if expr is None:
            continue
        for at, child in enumerate(children(expr)):
            missing += (path, f"{role}/{at}") not in lifted.parts
            del child
    # Only `a_operand`, `[...]` around coordinates and run's keyword lists are CuIR's own.
    assert missing < 12
