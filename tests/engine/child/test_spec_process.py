"""A person's spec runs apart from what judges it: all it can change is what it says it computes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.child.client import Child
from engine.child.environment import child_environment
from engine.child.spec_process import SpecEnded, SpecProcess
from engine.child.tensors import described, received, to_bytes
from engine.child.wire import Broken
from engine.cuir.nodes import Module
from engine.cuir.parser import parse_module
from engine.cuir.printer import print_module
from engine.errors import CuirError, SpecError
from engine.gates.g1_g2.by_recipe import none_compared
from engine.lift import lift, load_package
from engine.spec import recipe_from_json
from engine.spec.function import PersonsFunction
from engine.transfer.rules import plan

SPEC = """
import gc, os, sys, torch
{top}

def attention(
    q: Float[Tensor, "B H Nq D"], k: Float[Tensor, "B H Nk D"], v: Float[Tensor, "B H Nk D"]
):
    {body}
    s = q @ k.transpose(-2, -1) * 0.125
    return torch.softmax(s, -1) @ v {after}
"""


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as running:
        yield running


@pytest.fixture(scope="module")
def base() -> Module:
    package = load_package("flash_fwd_sm80")
    return lift(package, "bf16_64", package.archs[0]).module


def write(folder: Path, top: str = "", body: str = "pass", after: str = "") -> Path:
    path = folder / "spec.py"
    path.write_text(SPEC.format(top=top, body=body, after=after))
    return path


def judged(child: Child, base: Module, spec: Path, module: Module | None = None) -> dict[str, Any]:
    recipe = child.call("recipe", {"path": str(spec), "options": {}})["recipe"]
    payload = {
        "module": print_module(module or base), "recipe": recipe, "spec": str(spec), "options": {},
        "binding": plan(base, recipe_from_json(recipe)).binding.to_json(),
    }  # fmt: skip
    return child.call("judge", payload, seconds=300)


def zeroed(base: Module) -> Module:
    """The kernel with an output of nothing."""
    text, right = print_module(base), "lambda x, r: x * r)"
    assert text.count(right) == 1
    return parse_module(text.replace(right, "lambda x, r: x * 0.0)"))


NOTHING = "lambda *a, **k: (None, [])"
ATTACKS = {
    "the deck": f"import engine.gates.g1_g2.judge as g; g.run_deck = {NOTHING}",
    "the judge": f"import engine.gates.g1_g2.judge as g; g._judged = {NOTHING}",
    "the comparison": "import engine.gates.g1_g2.by_recipe as g; "
    "g.rows_equal = lambda *a: (None, 0.0)",
    "torch's maximum": "torch.Tensor.max = lambda *a, **k: torch.zeros(())",
    "a command": "import engine.torch_child.commands as c; c.COMMANDS = {}",
    "every function that compares": (
        "for m in list(sys.modules.values()):\n"
        "    for n in ('rows_equal', 'run_deck', 'exact', 'judge_json', 'judge_choices'):\n"
        "        if hasattr(m, n): setattr(m, n, lambda *a, **k: (None, []))"
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_spec_cannot_rewrite_what_judges(
    attack: str, child: Child, base: Module, tmp_path: Path
) -> None:
    spec = write(tmp_path, top=ATTACKS[attack])
    try:
        found = judged(child, base, spec, zeroed(base))
    except SpecError as refused:  # what it broke was its own answers
        assert "is no answer" in str(refused)
        return
    assert not found["ok"] and "O is wrong" in found["reason"]


def test_what_judges_keeps_its_pipes_to_itself_from_a_process_of_the_same_user() -> None:
    """Its memory and descriptors in /proc are for those alone that may trace any process."""
    code = """
import ctypes, os, sys
from engine.child.keeper import hide_memory
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(header, none) == 0  # as a user who is not root
hide_memory(sys.argv[1] == "hidden")
if os.fork() == 0:
    try:
        open(f"/proc/{os.getppid()}/fd/1", "wb", 0).write(b"forged")
    except OSError:
        pass
    os._exit(0)
os.wait()
"""
    for how, written in (("hidden", b""), ("open", b"forged")):
        command = [sys.executable, "-c", code, how]
        done = subprocess.run(command, env=child_environment(), capture_output=True, check=True)
        assert done.stdout == written


def test_a_copy_that_a_spec_forks_off_ends_as_it_comes_out_of_it(
    child: Child, tmp_path: Path
) -> None:
    """Else each would read on, and fork at each call, until there are too many processes."""
    for after in ("* (1.0 + 0 * os.fork())", "* (1.0 + 0 * os.fork() * (1 / 0 if gone() else 1))"):
        top = "pid = os.getpid()\ngone = lambda: os.getpid() != pid"
        spec = write(tmp_path, top=top, after=after)
        assert child.call("recipe", {"path": str(spec), "options": {}})["recipe"]


def test_one_that_is_left_alone_passes(child: Child, base: Module, tmp_path: Path) -> None:
    found = judged(child, base, write(tmp_path))
    assert found["ok"], found["reason"]
    compared = [row for row in found["details"]["runs"] if "O" in row]
    assert len(compared) >= 10 and not found["reason"].startswith("0 ")


def test_a_spec_that_computes_something_else_than_when_it_was_traced_is_refused(
    child: Child, base: Module, tmp_path: Path
) -> None:
    spec = write(tmp_path, after="* (1.0 if os.path.exists(__file__ + '.read') else 2.0)")
    (tmp_path / "spec.py.read").touch()
    recipe = child.call("recipe", {"path": str(spec), "options": {}})["recipe"]
    (tmp_path / "spec.py.read").unlink()
    payload = {
        "module": print_module(base), "recipe": recipe, "spec": str(spec), "options": {},
        "binding": plan(base, recipe_from_json(recipe)).binding.to_json(),
    }  # fmt: skip
    with pytest.raises(SpecError, match="something else than what was read from it") as caught:
        child.call("judge", payload)
    assert caught.value.fix and caught.value.where and caught.value.where.file == str(spec)


def test_runs_of_which_none_was_compared_are_no_pass() -> None:
    assert none_compared([]) is not None
    row = {"case": "c", "mode": "exact"}
    assert none_compared([row | {"skipped": "why"}, row, row | {"O": 0.0, "rows": 0}]) is not None
    assert none_compared([row | {"mode": "typed", "O": 0.0}]) is not None
    assert none_compared([row | {"O": 0.0}]) is None


# --- the process itself --------------------------------------------------------------------------


def inputs(rows: int = 5) -> dict[str, torch.Tensor]:
    one = torch.randn(1, 2, rows, 8, generator=torch.Generator().manual_seed(1)).double()
    return {"q": one, "k": one + 1, "v": one - 1}


def test_what_a_spec_leaves_behind_ends_with_its_process(tmp_path: Path) -> None:
    top = "calls = sys.modules.setdefault('calls', [])"
    body = "calls.append(0); v = v * len(calls)"
    path = write(tmp_path, top=top, body=body)
    given = inputs()
    with SpecProcess(path, {}) as spec:
        first, second = spec.wide(given), spec.wide(given)
        assert bool((second == 2 * first).all())
    assert "calls" not in sys.modules
    with SpecProcess(path, {}) as spec:
        assert bool((spec.wide(given) == first).all())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("os._exit(3)", 3),
        ("os.kill(os.getpid(), 9)", -9),
        ("import ctypes; ctypes.string_at(0)", -11),
    ],
)
def test_its_end_is_told_and_the_next_question_starts_another(
    body: str, code: int, tmp_path: Path
) -> None:
    flag = tmp_path / "end"
    flag.touch()
    path = write(tmp_path, body=f"if os.path.exists({str(flag)!r}): {body}")
    with SpecProcess(path, {}) as spec:
        with pytest.raises(SpecEnded) as caught:
            spec.wide(inputs())
        assert caught.value.code == code
        flag.unlink()
        assert spec.wide(inputs()).shape == (1, 2, 5, 8)


@pytest.mark.parametrize("after", ["* 1j", "; return 3", ".to_sparse()"])
def test_an_output_that_is_no_dense_tensor_of_numbers_is_refused(
    after: str, tmp_path: Path
) -> None:
    if after.startswith(";"):
        path = write(tmp_path, body="return 3")
    else:
        path = write(tmp_path, after=after)
    with SpecProcess(path, {}) as spec, pytest.raises(SpecError):
        spec.wide(inputs())


def test_a_tensor_of_a_class_of_its_own_is_its_bytes(tmp_path: Path) -> None:
    top = (
        "class Odd(torch.Tensor):\n"
        "    def __eq__(self, other): return True\n"
        "    def __reduce_ex__(self, n): return os.system, ('touch ' + __file__ + '.ran',)"
    )
    path = write(tmp_path, top=top, body="return (q * 0).as_subclass(Odd)")
    with SpecProcess(path, {}) as spec:
        out = spec.wide(inputs())
    assert type(out) is torch.Tensor and bool((out == 0).all())
    assert not (tmp_path / "spec.py.ran").exists()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (1,)])
def test_tensors_arrive_as_they_were_sent(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    sent = {"a": torch.randn(shape).to(dtype), "b": torch.ones(3, 4)[:, 1:]}
    stream = b"".join(map(to_bytes, sent.values()))
    place = 0

    def read(n: int) -> bytearray:
        nonlocal place
        place += n
        return bytearray(stream[place - n : place])

    got = received(described(sent), read)
    for name, tensor in sent.items():
        there = got[name]
        assert (there.dtype, there.shape) == (tensor.dtype, tensor.shape)
        assert there.stride() == tensor.stride() or not tensor.numel()
        assert torch.equal(there, tensor)


@pytest.mark.parametrize(
    "rows",
    [
        None, {}, [3], [["a"]], [["a", "float64", [2], None]], [["a", "float64", [2], [1, 1]]],
        [["a", "object", [2], [1]]], [["a", ["float64"], [2], [1]]], [["a", "int8", [-1], [1]]],
        [["a", "int8", [True], [1]]], [["a", "int8", [1 << 39, 1 << 39], [1, 1]]],
        [["a", "float64", [2, 2], [1 << 39, 1]]], [[3, "float64", [2], [1]]],
    ],
)  # fmt: skip
def test_what_describes_no_tensor_is_refused(rows: object) -> None:
    with pytest.raises(Broken):
        received(rows, lambda n: bytearray(n))


def test_an_error_of_ours_comes_back_as_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise CuirError("max_over is no scalar function", fix="report it")

    monkeypatch.setattr(PersonsFunction, "answer", fails)  # the process is split off this one
    path = write(tmp_path)
    with SpecProcess(path, {}) as spec, pytest.raises(CuirError) as caught:
        spec.recipe()
    error = caught.value
    assert (error.message, error.fix) == ("max_over is no scalar function", "report it")
    assert error.where is not None and error.where.file == str(path)
