"""A spec's file is loaded fresh, with its neighbours, and leaves nothing behind."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cuir.printer import print_expr
from engine.errors import SpecError
from engine.resources import specs_dir
from engine.spec import Recipe, read_recipe
from engine.spec.python.load import load_function, surroundings
from engine.spec.python.spec_file import read_source

Read = Callable[..., Recipe]
QKV = 'q: Float[Tensor, "B H N D"], k: Float[Tensor, "B H N D"], v: Float[Tensor, "B H N D"]'
IMPORTS = "import math\nimport torch\nfrom torch import Tensor\nfrom jaxtyping import Float\n"
CAUSAL_BODY = (
    "    keep = torch.ones(q.size(2), q.size(2)).tril()\n"
    "    return (q @ k.mT).masked_fill(keep == 0, -math.inf).softmax(-1) @ v\n"
)


def test_masks_cached_in_module_globals_do_not_leak_between_sizes(read: Read) -> None:
    recipe = read(
        f"{IMPORTS}\n_mask = None\n\ndef attention({QKV}):\n"
        "    global _mask\n    if _mask is None:\n"
        "        _mask = torch.ones(q.size(2), q.size(2)).tril()\n"
        "    return (q @ k.mT).masked_fill(_mask == 0, -math.inf).softmax(-1) @ v\n"
    )
    assert print_expr(recipe.keep) == "j <= i"


def test_local_modules_are_imported_and_forgotten(tmp_path: Path) -> None:
    (tmp_path / "masks_beside_the_spec.py").write_text(
        "import torch\nfrom jaxtyping import Bool\nfrom torch import Tensor\n_cache = {}\n\n\n"
        'def causal(n: int) -> Bool[Tensor, "n n"]:\n    if 0 not in _cache:\n'
        "        _cache[0] = torch.ones(n, n, dtype=torch.bool).triu(1)\n    return _cache[0]\n"
    )
    spec = tmp_path / "spec.py"
    spec.write_text(
        f"{IMPORTS}from masks_beside_the_spec import causal\n\ndef attention({QKV}):\n"
        "    return (q @ k.mT).masked_fill(causal(q.size(2)), -math.inf).softmax(-1) @ v\n"
    )
    before = (set(sys.modules), list(sys.path), torch.get_default_dtype(), torch.compile)
    assert print_expr(read_recipe(spec).keep) == "j <= i"
    assert "masks_beside_the_spec" not in sys.modules
    assert (list(sys.path), torch.get_default_dtype(), torch.compile) == before[1:]
    assert "jaxtyping" in before[0] or "jaxtyping" not in sys.modules


def test_a_folder_of_modules_is_loaded_fresh_and_left_clean(tmp_path: Path) -> None:
    (tmp_path / "parts_of_it").mkdir()
    (tmp_path / "parts_of_it" / "cached.py").write_text("import torch\nkept = []\n")
    spec = tmp_path / "spec.py"
    spec.write_text(
        f"{IMPORTS}from parts_of_it.cached import kept\n\ndef attention({QKV}):\n"
        "    if not kept:\n        kept.append(torch.ones(q.size(2), q.size(2)).tril())\n"
        "    return (q @ k.mT).masked_fill(kept[0] == 0, -math.inf).softmax(-1) @ v\n"
    )
    assert print_expr(read_recipe(spec).keep) == "j <= i"
    assert not [n for n in sys.modules if n.startswith("parts_of_it")]
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize("name", ["engine", "torch", "ast", "numpy"])
def test_hostile_names_beside_the_spec_are_never_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('hijacked')\n")
    spec = tmp_path / "spec.py"
    spec.write_text(f"{IMPORTS}import numpy\nimport ast\n\ndef attention({QKV}):\n{CAUSAL_BODY}")
    assert print_expr(read_recipe(spec).keep) == "j <= i"


@pytest.mark.parametrize(
    "annotations",
    [
        "from __future__ import annotations\n" + IMPORTS,
        "import math\nimport torch\nimport jaxtyping\nfrom torch import Tensor\n",
        "import math\nimport torch\nfrom torch import Tensor\n",  # never imported at all
        "import math\nimport torch\nfrom torch import Tensor\nfrom jaxtyping import Float as Fl\n",
        IMPORTS + "from jaxtyping import jaxtyped\nfrom beartype import beartype\n\n\n"
        "@jaxtyped(typechecker=beartype)",
    ],
)  # fmt: skip
def test_annotations_are_read_and_never_run(annotations: str, read: Read) -> None:
    parameters = QKV
    if "import jaxtyping\n" in annotations:
        parameters = QKV.replace("Float[", "jaxtyping.Float[")
    if "as Fl" in annotations:
        parameters = QKV.replace("Float[", "Fl[")
    recipe = read(f"{annotations}\ndef attention({parameters}):\n{CAUSAL_BODY}")
    assert print_expr(recipe.keep) == "j <= i"


def test_quoted_and_torch_qualified_annotations(read: Read) -> None:
    parameters = ", ".join(f"{n}: 'Float[torch.Tensor, \"B H N D\"]'" for n in "qkv")
    assert (
        print_expr(read(f"{IMPORTS}\ndef attention({parameters}):\n{CAUSAL_BODY}").keep) == "j <= i"
    )


def test_compiled_and_decorated_functions_run_eagerly(read: Read) -> None:
    for decorator in ("@torch.compile", "@torch.compile(dynamic=True)", "@torch.no_grad()"):
        recipe = read(f"{IMPORTS}\n{decorator}\ndef attention({QKV}):\n{CAUSAL_BODY}")
        assert print_expr(recipe.keep) == "j <= i"


def test_devices_that_are_not_here_are_no_obstacle(read: Read) -> None:
    recipe = read(
        f"{IMPORTS}\ndef attention({QKV}):\n    n = q.size(2)\n"
        "    keep = torch.ones(n, n, device='cuda').tril().to('cuda:0').cuda() > 0\n"
        "    return (q @ k.mT).masked_fill(~keep.to(device=q.device), -math.inf).softmax(-1) @ v\n"
    )
    assert print_expr(recipe.keep) == "j <= i"


def test_constants_made_at_import(read: Read) -> None:
    recipe = read(
        f"{IMPORTS}\nWINDOW = 3\nSCALE = torch.tensor(0.25)\n\n"
        f"def attention({QKV}, window: int = WINDOW):\n"
        "    i = torch.arange(q.size(2))\n"
        "    keep = (i[:, None] - i[None]).abs() < window\n"
        "    return (q @ k.mT * SCALE).masked_fill(~keep, -math.inf).softmax(-1) @ v\n"
    )
    assert print_expr(recipe.score) == "x * 0.25"
    assert print_expr(recipe.keep) == "j <= i + 2 and j >= i - 2"


def test_printing_and_random_state_are_left_alone(read: Read) -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    read(f"{IMPORTS}\ndef attention({QKV}):\n{CAUSAL_BODY}")
    assert bool((torch.rand(3) == wanted).all())


def test_an_error_in_a_neighbour_is_the_specs(tmp_path: Path) -> None:
    (tmp_path / "neighbour_with_an_error.py").write_text("x = 1\nraise KeyError('lost')\n")
    spec = tmp_path / "spec.py"
    spec.write_text(
        f"import neighbour_with_an_error\n{IMPORTS}\ndef attention({QKV}):\n{CAUSAL_BODY}"
    )
    with pytest.raises(SpecError, match="KeyError") as caught:
        read_recipe(spec)
    assert caught.value.where is not None and caught.value.where.line == 1


def test_a_spec_is_parsed_once_for_all_its_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module is fresh each time nevertheless: what it counts begins anew."""
    spec = tmp_path / "spec.py"
    spec.write_text(f"{IMPORTS}\ncalls = []\n\ndef attention({QKV}):\n{CAUSAL_BODY}")
    source = read_source(spec, {})
    parsed: list[str] = []
    parse = ast.parse

    def counted(text: str, *arguments: Any, **more: Any) -> ast.AST:
        parsed.append(text)
        return parse(text, *arguments, **more)

    monkeypatch.setattr(ast, "parse", counted)
    with surroundings(source):
        first, second = load_function(source), load_function(source)
        other = load_function(source, {1: 2})
    assert first.__globals__["calls"] is not second.__globals__["calls"]
    assert parsed == [source.text] * 2
    assert first.__code__ is second.__code__ and other.__code__ is not first.__code__


def test_the_recipe_and_its_words_need_no_torch() -> None:
    code = (
        "import sys; import engine.spec, engine.spec.recipes.recipe_json; "
        "import engine.spec.recipes.recipe; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


def test_a_cold_recipe_takes_less_than_eight_seconds() -> None:
    code = (
        "import time; t = time.perf_counter()\nfrom pathlib import Path\n"
        "from engine.spec import read_recipe\n"
        f"read_recipe(Path({str(specs_dir() / 'softcap_causal.py')!r}))\n"
        "assert time.process_time() < 8, time.process_time()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


@pytest.mark.parametrize(
    ("heads", "said"),
    [("G", "G was taken for a size of its own; usual names that are free: Hkv, Dv"),
     ("kv_heads", None), ("Hkv", None)],
)  # fmt: skip
def test_a_dimension_of_another_name_is_told_with_the_names_that_are_free(
    heads: str, said: str | None, read: Read
) -> None:
    """A `G` for the key heads gets a size that does not divide Hq: the name is what is wrong."""
    text = (
        f'{IMPORTS}\ndef attention(q: Float[Tensor, "B Hq Nq D"], '
        f'k: Float[Tensor, "B {heads} Nk D"], v: Float[Tensor, "B {heads} Nk D"]):\n'
        "    g = q.size(1) // k.size(1)\n"
        "    k, v = k.repeat_interleave(g, dim=1), v.repeat_interleave(g, dim=1)\n"
        "    return (q @ k.mT).softmax(-1) @ v\n"
    )
    if said is None:
        assert print_expr(read(text).kv_head) == "h // (Hq // Hkv)"
        return
    with pytest.raises(SpecError) as caught:
        read(text)
    assert said in str(caught.value.fix)


def test_usual_names_are_not_told(read: Read) -> None:
    with pytest.raises(SpecError) as caught:
        read(
            f'{IMPORTS}\ndef attention(q: Float[Tensor, "B Hq Nq D"], '
            'k: Float[Tensor, "B Hkv Nk D"], v: Float[Tensor, "B Hkv Nk D"]):\n'
            "    return (q @ k.mT).softmax(-1) @ v\n"
        )
    assert "taken for" not in str(caught.value.fix)
