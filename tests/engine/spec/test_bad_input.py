"""Bad input gets one clear error: file, line and what to do."""

# ruff: noqa: E501  (a spec in a table reads better on few lines)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import SpecError, Where
from engine.spec import read_recipe
from engine.spec.python.declarations import declared
from engine.spec.python.spec_file import read_source

HEAD = """\
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int32
from torch import Tensor


def attention(q: Float[Tensor, "B Hq Nq D"], k: Float[Tensor, "B Hq Nk D"], v: Float[Tensor, "B Hq Nk D"]"""
# (what, text after HEAD or a whole file, line of the error, words of the message or the fix)
CASES = [
    ("syntax error", HEAD + ":\n    return q\n", 7, "not Python"),
    ("no attention function", "def attn(q, k, v):\n    return q\n", None, "no attention function"),
    ("never multiplies q and k", HEAD + "):\n    return torch.softmax(q, -1) * 2\n", 8, "q times k"),
    ("never multiplies by v", HEAD + "):\n    return q @ k.mT\n", 8, "product of weights and v"),
    ("v unused", HEAD + "):\n    return (q @ k.mT).softmax(-1) @ k\n", None, "same input"),
    ("extra input without annotation", HEAD + ", bias):\n    return q\n", 7, "bias has no annotation"),
    ("q without annotation", "def attention(q, k, v):\n    return q\n", 1, "q has no annotation"),
    ("data-dependent control flow",
     HEAD + "):\n    s = q @ k.mT\n    if s.max() > 3:\n        s = s / 2\n    return s.softmax(-1) @ v\n",
     9, "control flow"),
    ("data leaves for Python",
     HEAD + "):\n    s = q @ k.mT / float(q.abs().max())\n    return s.softmax(-1) @ v\n", 8, "control flow"),
    ("data leaves for numpy",
     HEAD + "):\n    s = q @ k.mT + torch.tensor(q.detach().numpy()[0, 0, 0, 0])\n"
     "    return s.softmax(-1) @ v\n", 8, "numpy"),
    ("wrong dimensions", HEAD + "):\n    return (q @ k).softmax(-1) @ v\n", 8, "RuntimeError"),
    ("unread op", HEAD + "):\n    s = (q @ k.mT).cumsum(-1)\n    return s.softmax(-1) @ v\n", 8, "aten.cumsum"),
    ("dropout", HEAD + "):\n    p = F.dropout((q @ k.mT).softmax(-1), 0.1)\n    return p @ v\n", 8, "random"),
    ("a tuple", HEAD + "):\n    p = (q @ k.mT).softmax(-1)\n    return p @ v, p\n", 7, "returns a tuple"),
    ("wrong output annotation",
     HEAD + ') -> Float[Tensor, "B Nq Hq D"]:\n    return (q @ k.mT).softmax(-1) @ v\n', 7, "[B Hq Nq D], its annotation"),
    ("nothing", HEAD + "):\n    p = (q @ k.mT).softmax(-1)\n", 7, "returns nothing"),
    ("batch and heads merged",
     HEAD + "):\n    o = (q @ k.mT).softmax(-1) @ v\n    return o.flatten(0, 1)\n", None, "heads merged"),
    ("a matrix before the product",
     HEAD + ', w: Float[Tensor, "D D"]):\n    return (q @ w @ k.mT).softmax(-1) @ v\n', None,
     "multiplied by a matrix"),
    ("a norm over all rows",
     HEAD + "):\n    q = q * q.square().mean((2, 3), True).rsqrt()\n"
     "    return (q @ k.mT).softmax(-1) @ v\n", None, "over its rows"),
    ("a largest element of all heads",
     HEAD + "):\n    q = q / q.abs().amax((1, 3), True)\n"
     "    return (q @ k.mT).softmax(-1) @ v\n", None, "such as over all heads"),
    ("q from two inputs",
     HEAD + ', p: Float[Tensor, "B Hq Nq D"]):\n    return ((q + p) @ k.mT).softmax(-1) @ v\n', None,
     "made of several inputs"),
    ("a row before",
     HEAD + "):\n    q = q + q.roll(1, 2)\n    return (q @ k.mT).softmax(-1) @ v\n", None,
     "made of several rows"),
    ("two products",
     HEAD + "):\n    s = q @ k.mT + (q * 2) @ v.mT\n    return s.softmax(-1) @ v\n", None, "more than one product"),
    ("branches on sizes",
     HEAD + "):\n    s = q @ k.mT\n    if k.size(2) > 18:\n        s = torch.tanh(s)\n"
     "    return s.softmax(-1) @ v\n", None, "another size"),
    ("star arguments", "def attention(*args):\n    return args[0]\n", 1, "named parameters"),
    ("scalar without a value", HEAD + ", window: int):\n    return q\n", 7, "window has no value"),
    ("optional tensor", HEAD + ', m: Float[Tensor, "Nq Nk"] = None):\n    return q\n', 7, "may be None"),
    ("odd dimension", HEAD + ', m: Float[Tensor, "... Nk"]):\n    return q\n', 7, "'...'"),
    ("missing module", "import no_such_module_here\n" + HEAD + "):\n    return q\n", 1, "beside the spec"),
    ("exception", HEAD + "):\n    raise ValueError('no such window')\n", 8, "no such window"),
    ("exit", "import sys\n" + HEAD + "):\n    sys.exit(3)\n", 9, "SystemExit"),
    ("mods of three parameters", "def attention_mods():\n    return lambda a, b, c: a\n", 1, "3 parameters"),
    ("no mod", "def attention_mods():\n    return None\n", 1, "no mod"),
    ("both kinds", HEAD + "):\n    return q\n\ndef attention_mods():\n    return None\n", None, "keep one"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_one_clear_error(
    text: str, line: int | None, words: str, write: Callable[[str], Path]
) -> None:
    path = write(text)
    with pytest.raises(SpecError) as caught:
        read_recipe(path)
    error = caught.value
    assert words in str(error)
    assert error.where is not None and error.where.file == str(path)
    assert error.fix
    if line is not None:
        assert error.where.line == line
    assert "Traceback" not in str(error)


def test_an_exception_s_text_is_bounded(write: Callable[[str], Path]) -> None:
    path = write(HEAD + "):\n    raise ValueError('long ' * 1_000_000)\n")
    with pytest.raises(SpecError, match="the spec raised ValueError: long long") as caught:
        read_recipe(path)
    assert len(str(caught.value)) < 1000


def test_unknown_option(write: Callable[[str], Path]) -> None:
    path = write(HEAD + ", window: int = 3):\n    return q\n")
    with pytest.raises(SpecError, match="--set widow: the spec has no scalar") as caught:
        read_recipe(path, {"widow": 4})
    assert "window" in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "value", "word"),
    [
        ("window: int = 3", "abc", "int"), ("window: int = 3", 2.5, "int"),
        ("window: int = 3", True, "int"), ("window: int = 3", [1], "int"),
        ("window=3", None, "int"), ("cap: float = 3.0", "x", "float"),
        ("cap: float | None = None", "x", "None or float"), ("cap=3.0", float("nan"), "float"),
        ("on: bool = True", 1, "bool"), ("mode: str = 'a'", 1, "str"),
    ],
)  # fmt: skip
def test_an_option_of_another_kind_is_named(
    declared: str, value: object, word: str, write: Callable[[str], Path]
) -> None:
    path = write(HEAD + f", {declared}):\n    return q\n")
    name = declared.split(":")[0].split("=")[0]
    with pytest.raises(SpecError, match=f"--set {name}=.* is {word}, not ") as caught:
        read_recipe(path, {name: value})
    assert caught.value.where == Where(str(path)) and f"--set {name}=" in str(caught.value.fix)


def test_options_that_fit(write: Callable[[str], Path]) -> None:
    path = write(HEAD + ", cap: float = 3.0, n: int | None = None, m=2):\n    return q\n")
    source = read_source(path, {"cap": 4, "n": None, "m": 5})
    assert [s.value for s in source.scalars] == [4, None, 5]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_recipe(tmp_path / "none.py")


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "spec.py"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(SpecError, match="UTF-8"):
        read_recipe(path)


@pytest.mark.parametrize("dims", ["B H N N", "B B N D", "B D N D"])
def test_one_name_for_two_dimensions_of_an_input(dims: str, read: Callable[..., object]) -> None:
    inputs = ", ".join(f'{n}: Float[Tensor, "{dims}"]' for n in "qkv")
    with pytest.raises(SpecError, match="two dimensions of q are called") as caught:
        read(
            "import torch\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
            f"def attention({inputs}):\n    return (q @ k.mT).softmax(-1) @ v\n"
        )
    assert caught.value.where is not None
    assert caught.value.where.line == 4
    assert "its own name" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("template", "word of C"), ("blockIdx", "CUDA's own headers"), ("gmem", "operation of CuIR")],
)
def test_a_dimension_that_cannot_bear_its_name_in_a_kernel(
    name: str, meaning: str, write: Callable[[str], Path]
) -> None:
    path = write(HEAD + f', t: Float[Tensor, "Hq 1 {name}"]):\n'
                 f"    return (q @ k.mT + t[..., :1]).softmax(-1) @ v\n")  # fmt: skip
    with pytest.raises(SpecError, match=f"{name} cannot be called so.*{meaning}") as e:
        read_recipe(path)
    assert e.value.where == Where(str(path), 7)
    assert e.value.fix == "rename it in the spec"
    with pytest.raises(SpecError, match=f"{name} cannot be called so"):
        declared(read_source(path, {}))


def test_a_square_extra_input_is_no_such_mistake(write: Callable[[str], Path]) -> None:
    path = write(
        HEAD.replace("Nq", "N").replace("Nk", "N") + ', bias: Float[Tensor, "N N"]):\n'
        "    return (q @ k.mT + bias).softmax(-1) @ v\n"
    )
    assert read_recipe(path).extra()[0].name == "bias"


def test_fixed_sizes_that_are_too_large_to_run(write: Callable[[str], Path]) -> None:
    path = write(HEAD.replace("B Hq Nq D", "1 1 1000000 128") + "):\n    return q\n")
    with pytest.raises(SpecError, match="q has 128000000 elements by its numbers alone") as caught:
        read_recipe(path)
    assert caught.value.where == Where(str(path), 7)


def test_tensors_that_no_memory_holds(write: Callable[[str], Path]) -> None:
    path = write(HEAD + "):\n    torch.empty(10**7, 10**7)\n    return q\n")
    with pytest.raises(SpecError, match="allocate") as caught:
        read_recipe(path)
    assert caught.value.where == Where(str(path), 8)
    assert "build smaller tensors" in str(caught.value.fix)
