"""The texts of a package that are written for people: public function and README."""

from __future__ import annotations

import pprint
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.markdown import code, flat, prose, wrapped
from engine.package.evidence import known, level_words, not_known, speed
from engine.package.fields import DTYPE_WORDS, named
from engine.resources import list_kernels
from engine.spec.python.signature import Asked, recipe_of
from engine.spec.recipes.recipe import Input, Recipe
from engine.types import Level, Verdict

_BY_SPEC = (
    "No rule reads this spec: its own function judged the kernel alone, element by element and, "
    "where its output is linear in V, by the weights that it gives one-hot V."
)
_NO_LSE = "Its log-sum-exp was compared with nothing, since only a recipe says what it is."
# Clauses that the inputs tell, and steps that the whole score does.
_TOLD = frozenset({"layout", "input", "scale", "bias", "softcap", "map"})
_TMA = ", and start and stride by multiples of 16 bytes elsewhere (the TMA reads them)"
WIDTH = 156  # columns of a README's lines, on a screen of 160
_NUMBER_TYPES = {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}


def _gives_lse(info: Mapping[str, Any]) -> bool:
    """Whether the kernel has a second output, the rows' log-sum-exp."""
    return any(row["source"] == "LSE" for row in info["binding"]["tensors"])


def stands_in(info: Mapping[str, Any]) -> bool:
    """Whether the kernel can be called in the place of a library's attention."""
    return "refused" not in info["host"]


def _in_sdpa(info: Mapping[str, Any]) -> bool:
    """Whether PyTorch's SDPA, and so diffusers, can ask for what the kernel computes."""
    return stands_in(info) and not info["host"]["sdpa_refused"]


def _takes_plans(info: Mapping[str, Any]) -> bool:
    """Whether the kernel lists the tiles that hold a kept pair, which a plan keeps."""
    return info["binding"].get("workspace") is not None


def _returned(asked: Asked) -> tuple[str, ...]:
    """The dimensions of O as the spec returns it; without a recipe heads and columns stay apart."""
    recipe = recipe_of(asked)
    return asked.output_dims if recipe is None else recipe.returned_dims


def _lse_words(recipe: Recipe | None) -> tuple[str, str]:
    """What the second output is, and the dimensions that the package gives it."""
    if recipe is None:
        return "natural log-sum-exp", "B, Hq, Nq"
    kind = "log-sum-exp in base 2" if recipe.lse == "2" else "natural log-sum-exp"
    sink = " with the sink in it" if recipe.sink is not None else ""
    return kind + sink, ", ".join(recipe.lse_dims)


def _lse_as_given(recipe: Recipe | None) -> str:
    """The kernel's [B, Hq, Nq] in the dimensions of `_lse_words`."""
    ours, text = ["B", "Hq", "Nq"], 'out["LSE"]'
    if recipe is None:
        return text
    for dim in [d for d in ours if d not in recipe.lse_dims]:
        text += f".squeeze({ours.index(dim)})"
        ours.remove(dim)
    order = [ours.index(d) for d in recipe.lse_dims]
    return text if order == sorted(order) else f"{text}.permute({', '.join(map(str, order))})"


def _table_words(inputs: Sequence[Input], plans: bool) -> list[str]:
    """The README's sentence about tables that the spec makes of inputs; none without any."""
    tables = [f"`{i.name}`" for i in inputs if i.derive]
    sources = [f"`{i.name}`" for i in inputs if i.role == "extra" and not i.derive and i.dims]
    if not tables or not sources:
        return []
    once = ", or use a plan, which keeps what its mask reads" if plans else ""
    return [
        f"Where {', '.join(tables)} is not given, the spec's own code makes it of "
        f"{', '.join(sources)}, on the CPU and in every call, which waits for the GPU: give it"
        f"{once}."
    ]


def _plan_words(info: Mapping[str, Any]) -> str:
    """What `attention` says of plans; empty where there are none."""
    if not _takes_plans(info):
        return ""
    return _PLAN.format(reads=", ".join(info["mask_inputs"]))


_PLAN = """
    Which tiles hold a kept pair depends on the inputs, and each call finds out first. A `plan`, a
    `Plan()` of the caller's, keeps that from its first call on, for calls with the same sizes and
    the very tensors that the mask reads ({reads}), unchanged: an equal copy, another tensor or a
    change in place is a ValueError. Changes that PyTorch does not count (through `.data`, by
    another library's kernel, by the replay of a CUDA graph) cannot be seen: take a new plan after
    one. Inference tensors are refused, for PyTorch counts none of their changes. Fill a plan before
    a CUDA graph is captured, and keep it as long as the graph. Calls with one plan run one after
    another, on other streams too; a graph that holds one must not be replayed beside another use of
    its plan. A call with a plan is for running: torch.compile and torch.export do not trace it.
"""


def init_text(
    info: Mapping[str, Any], asked: Asked, inputs: Sequence[Input], level: Level, kernel: str
) -> str:
    """`__init__.py`: one public function with the spec's own parameters."""
    recipe, has_lse = recipe_of(asked), _gives_lse(info)
    # Tables that the spec builds itself come last: they need not be given.
    ordered = sorted(inputs, key=lambda i: i.derive is not None)
    params = ", ".join(map(_parameter, ordered))
    function, names = "call", ", ".join(i.name for i in inputs)
    lines = [f"    {i.name}: {_quoted(_describe(i, info))}" for i in ordered]
    if any(i.derive for i in inputs):
        named_inputs = ", ".join(f'"{i.name}": {i.name}' for i in inputs)
        function, names = "call_named", f"{{{named_inputs}}}"
    kernel, spec = _quoted(kernel), _quoted(info["spec"])
    returns = f"O as [{', '.join(_returned(asked))}]"
    out = 'out["O"]' + (".flatten(-2)" if _returned(asked) != asked.output_dims else "")
    ending = ""
    if has_lse:
        given = recipe is not None and recipe.lse is not None
        params += f", *, return_lse: bool = {given}"
        kind, lse_dims = _lse_words(recipe)
        returns += f"; with `return_lse` also the rows' {kind}, [{lse_dims}] float32"
        if recipe is None:
            returns += " (as the kernel has it: it was compared with nothing)"
        ending = f"    if return_lse:\n        return {out}, {_lse_as_given(recipe)}\n"
    about_plan = imports = given_plan = ""
    modules, names_ = ["_runtime", "_spec"], ["KERNEL", "LEVEL", "attention", "check"]
    if stands_in(info):
        modules.insert(0, "_hosts")
        names_[2:2] = ["as_attention_interface"]
    if _in_sdpa(info):
        names_[3:3] = ["as_attention_processor", "as_sdpa_implementation"]
    typed = "from typing import Any\n\n" if _in_sdpa(info) else ""
    if _takes_plans(info):
        params += (", " if has_lse else ", *, ") + "plan: Plan | None = None"
        about_plan = _plan_words(info)
        imports, given_plan = "from ._runtime import Plan\n", ", plan=plan"
        names_.insert(2, "Plan")
    kind = "Tensor | tuple[Tensor, Tensor]" if has_lse else "Tensor"
    empty = ""
    if has_lse and recipe is not None:
        empty = f" and LSE = {'-inf' if recipe.sink is None else 'the sink'}"
    exported = "\n".join(f'    "{name}",' for name in names_)
    text = "\n".join(lines)
    return f'''"""{info["name"]}: an attention kernel, adapted by CuBridge from {kernel}.

Level: {level.value} (README.md says what that means). Where no library is built, the first call on
a GPU builds it with nvcc. CPU tensors run the spec itself, for tests without a GPU.
"""

from __future__ import annotations

{typed}from torch import Tensor

from . import {", ".join(modules)}
{imports}
__all__ = [
{exported}
]

LEVEL = "{level.value}"
"""How far the kernel was checked."""


def attention({params}) -> {kind}:
    """The attention of {spec}, forward only.

{text}

    Returns {returns}. Rows without a kept key give O = 0{empty}.
{about_plan}
    TypeError, ValueError: an input that the kernel cannot take. RuntimeError: not on a GPU that it
    has code for, or it cannot be built or launched.
    """
    out = _OPERATOR.{function}({names}{given_plan})
{ending}    return {out}


{_IN_A_MODEL if stands_in(info) else ""}{_IN_SDPA if _in_sdpa(info) else ""}def check() -> bool:
    """Run the kernel beside the spec on this machine's GPU; whether they agree."""
    return _spec.check(_OPERATOR)


KERNEL = {_literal(info)}
"""What the kernel takes, and how its argument struct is filled."""

_OPERATOR = _runtime.{"Planned" * _takes_plans(info)}Operator(KERNEL, _spec.Spec(KERNEL))
'''


_IN_A_MODEL = '''\
def as_attention_interface(name: str) -> str:
    """Register the kernel with transformers, for attn_implementation=`name`; gives the name."""
    return _hosts.as_attention_interface(_OPERATOR, name)


'''

_IN_SDPA = '''\
def as_sdpa_implementation(name: str) -> str:
    """Register the kernel with PyTorch, for torch.nn.attention.activate_flash_attention_impl(name):
    SDPA's FLASH back end is then this kernel; gives the name."""
    return _hosts.as_sdpa_implementation(_OPERATOR, name)


def as_attention_processor(processor: Any) -> Any:
    """A diffusers attention processor like `processor`, with the kernel in the place of SDPA."""
    return _hosts.as_attention_processor(_OPERATOR, processor)


'''


def _literal(info: Mapping[str, Any]) -> str:
    return pprint.pformat(dict(info), width=99, sort_dicts=False, compact=True)


def project_text(name: str, version: str) -> str:
    """pyproject.toml: the folder as a wheel, made by its own build.py."""
    return f"""\
# `pip install .` builds the library with nvcc and makes a wheel of it (by build.py, which needs
# nothing else); `-C arch=NAME,NAME` names archs.
[build-system]
requires = []
build-backend = "build"
backend-path = ["."]

[project]
name = "{name}"
version = "{version}"
requires-python = ">=3.10"
dependencies = ["torch>=2.6"]
"""


def _parameter(item: Input) -> str:
    if item.derive:
        return f"{item.name}: Tensor | None = None"
    return f"{item.name}: {'Tensor' if item.dims else _NUMBER_TYPES.get(item.dtype, 'float')}"


def _quoted(text: str) -> str:
    """Text of others inside a docstring: one line that cannot end it."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).replace("\\", "/").replace('"', "'")


def _describe(item: Input, info: Mapping[str, Any]) -> str:
    if not item.dims:
        return "a number"
    made = ""
    if item.derive:
        line = item.derive.split(":")[0]
        made = f"; where it is not given, line {line} of the spec makes it"
    words = DTYPE_WORDS.get(item.dtype, item.dtype)
    if item.role == "q" and item.dtype == "T":
        held = dict.fromkeys(b.get("T", "f16") for b in info["specialisations"].values())
        words = " or ".join(DTYPE_WORDS.get(t, t) for t in held)
    elif item.dtype == "T":
        words = f"{named(info, 'q')}'s dtype"
    if item.dtype in ("i32", "i64") and not any(
        row["source"] == item.name for row in info["binding"]["tensors"]
    ):
        words = "int32 or int64, read by the spec's own code alone"
    return f"[{', '.join(item.dims)}], {words}{made}"


def readme_text(
    info: Mapping[str, Any],
    asked: Asked,
    inputs: Sequence[Input],
    level: Level,
    verdicts: Sequence[Verdict],
    kernel: str,
    archs: Sequence[str],
    judged: str,
) -> str:
    """README.md, one screen: what to call, what it computes, what is proven, what was only run,
    what is not there, how fast. `judged` is the specialisation that the CPU's gates ran."""
    name, spec = info["name"], code(info["spec"])
    options = "".join(f", {code(f'{k} = {v}')}" for k, v in info["spec_options"].items())
    told = level_words(level, verdicts)
    if recipe_of(asked) is None:
        told += f" {_BY_SPEC}" + (f" {_NO_LSE}" if _gives_lse(info) else "")
    licence = f"{_licence(kernel)} ({spec}: its author's)"
    expert = f"the expert kernel {prose(kernel)}, edited by CuBridge. Licence: {licence}"
    built = f"# pip install ./{name}: nvcc (CUDA 12 or newer) builds it; pip wheel makes a file to "
    lines = [
        *known(verdicts, judged),
        *not_known(verdicts, judged, info["specialisations"]),
        "**Judged by no gate**: the Python files, the library's C entry; other compilers and flags "
        f"than verdicts.json names; other GPUs than {archs[0]}.",
        f"**Not there**: a backward pass, dropout{_no_host(info)}.",
        f"**How fast**: {speed(verdicts)}",
        f"**Check it**: `{name}.check()` runs it beside {spec} on your GPU. verdicts.json has "
        "every run, goal, time and hash.",
    ]
    return f"""# {name}
{wrapped(f"Attention, forward only, as {spec}{options} computes it: {expert}.", WIDTH)}
{wrapped(f"Level: {level.value}. {told}", WIDTH)}

## Call it
```python
{built}carry where there is no nvcc
import {name}
{_calls(info, inputs)}
```
{_list(_takes(info, asked, inputs, archs))}
## What it computes
{_list(_wants(asked, spec))}
## What is known of it
{_list(lines)}"""


def _list(lines: Sequence[str]) -> str:
    return "".join(f"{wrapped(f'- {line}', WIDTH, '  ')}\n" for line in lines)


def _calls(info: Mapping[str, Any], inputs: Sequence[Input]) -> str:
    """The calls, as lines of Python."""
    name, call = info["name"], ", ".join(i.name for i in inputs if not i.derive)
    more = "  # with return_lse=True: out, lse" if _gives_lse(info) else ""
    lines = [f"out = {name}.attention({call}){more}"]
    if _takes_plans(info):
        lines += [
            f"held = {name}.Plan(); out = {name}.attention({call}, plan=held)  # tiles listed "
            f"once; other {', '.join(info['mask_inputs'])} are a ValueError",
        ]
    if not stands_in(info):
        return "\n".join(lines)
    lines += [
        "from transformers import AutoModelForCausalLM  # 5 or newer; padded batches, a dynamic "
        "cache; another score, mask or option is an error",
        f'name = {name}.as_attention_interface("{name}")',
        "model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=name, "
        'dtype="bfloat16").to("cuda")',
    ]
    if info["host"].get("documents"):
        lines.append(
            "model(ids, document_ids=numbers)  # [B, Nk] integers; or transformers' own packed "
            "mask; without either one document"
        )
    if _in_sdpa(info):
        lines.append(
            f"# PyTorch's SDPA: {name}.as_sdpa_implementation; diffusers: "
            f"{name}.as_attention_processor"
        )
    return "\n".join(lines)


def _takes(
    info: Mapping[str, Any], asked: Asked, inputs: Sequence[Input], archs: Sequence[str]
) -> list[str]:
    """What a call takes and gives, and what becomes of anything else."""
    alike: dict[str, list[str]] = {}
    for item in inputs:
        alike.setdefault(_describe(item, info), []).append(f"`{item.name}`")
    takes = "; ".join(f"{', '.join(names)} {words}" for words, names in alike.items())
    gives = f"`out` [{', '.join(_returned(asked))}], {named(info, 'q')}'s dtype"
    if _gives_lse(info):
        kind, dims = _lse_words(recipe_of(asked))
        gives += f"; `lse` [{dims}], float32, each row's {kind}"
    limits = [f"`{text}`" for text in info["constraints"]]
    if info["grouped"]:
        limits.append("Hq is a multiple of Hkv")
    rows = f"{', '.join(named(info, r) for r in 'qk')} and {named(info, 'v')} have contiguous rows"
    limits.append(rows + (_TMA if info["tma"] else " (any strides elsewhere)"))
    return [
        f"In: {takes}.",
        *_table_words(inputs, _takes_plans(info)),
        f"Out: {gives}.",
        f"Built for {_built_words(info)}, on {_gpus(archs)}; Linux, Python 3.10 and "
        f"torch 2.6 or newer. Limits: {'; '.join(limits)}.",
        "Another type, shape, head size or layout raises TypeError or ValueError, a GPU that it "
        "has no code for RuntimeError. CPU tensors: the spec runs.",
    ]


def _licence(kernel: str) -> str:
    """Of all but the spec; of a kernel of someone else nothing is known."""
    if kernel in list_kernels():
        return "Apache-2.0"
    return f"that of {prose(kernel)} for kernel.cu, Apache-2.0 for the Python files"


def _built_words(info: Mapping[str, Any]) -> str:
    """The types and head sizes, each with all of the others; else each specialisation."""
    bindings = list(info["specialisations"].values())
    types, sizes = (list(dict.fromkeys(b.get(name, "") for b in bindings)) for name in "TD")
    if len(types) * len(sizes) != len(bindings) or "" in (*types, *sizes):
        return ", ".join(f"`{key}`" for key in info["specialisations"])
    words = " and ".join(DTYPE_WORDS.get(t, t) for t in types)
    return f"{words}, head size{'s' * (len(sizes) > 1)} {' and '.join(sizes)}"


def _gpus(archs: Sequence[str]) -> str:
    """The archs, the first one's cards named."""
    cards = {"sm_80": " (A100)", "sm_90a": " (H100, H200)"}.get(archs[0], "")
    return f"{archs[0]}{cards}" + (f"; with `-C arch=all` {', '.join(archs[1:])}" * bool(archs[1:]))


def _no_host(info: Mapping[str, Any]) -> str:
    """Why it cannot be used in a library, or not in all of them; empty where it can."""
    if not stands_in(info):
        why = prose(info["host"]["refused"])
        return f". It cannot stand in for a library's attention: {why}"
    why = prose(info["host"]["sdpa_refused"])
    return f". It cannot stand in for PyTorch's SDPA, nor in diffusers: {why}" if why else ""


def adapted_text(
    name: str, source: str, declaration: str, compile: str, recipe: Recipe, lse: bool,
    level: Level, verdicts: Sequence[Verdict], changed: int,
) -> str:  # fmt: skip
    """README.md of a kernel of others with its edits, one screen, as `readme_text`.

    Args:
        declaration: the launcher's, in C++.
        compile: the command that compiles the source as it was judged.
        lse: whether the kernel writes LSE.
        changed: lines that the patch adds or removes.
    """
    lines = [
        *known(verdicts), *not_known(verdicts),
        "**Judged by no gate**: other compilers, flags and architectures than those above.",
        f"**How fast**: {speed(verdicts)}",
        "**Check it**: `cubridge check .` executes the cases again; `patch` with target.patch "
        "makes the same of the author's files. verdicts.json has the cases and the hashes.",
        "**Licence**: the source stays under its author's.",
    ]  # fmt: skip
    edited = f"The kernel {prose(name)} with {changed} changed lines (target.patch), adapted by "
    return f"""# {prose(name)}
{wrapped(f"{edited}CuBridge to `reference.py`.", WIDTH)}
{wrapped(f"Level: {level.value}. {level_words(level, verdicts)}", WIDTH)}

## Call it
```cpp
// {flat(source)}: {flat(compile)}
{flat(declaration)}
```
The author's own launcher, with what the spec takes besides; all else is as it was.

## What it computes
{_list(_wants(recipe, "`reference.py`", lse))}
## What is known of it
{_list(lines)}"""


def _wants(asked: Asked, spec: str, lse: bool = True) -> list[str]:
    """What the spec asks for, in words; what they say of LSE only where it is written."""
    recipe = recipe_of(asked)
    if recipe is None:
        return [f"what the function in {spec} computes"]
    said = [c.words for c in recipe.clauses if c.kind not in _TOLD]
    if not lse:
        said = [re.sub(r"; LSE [^;]*| and LSE = [^;,]*", "", words) for words in said]
    return [prose(words) for words in said] or ["full attention"]


def source_words(
    file: str, kernel: str, asked: Asked, verdicts: Sequence[Verdict], level: Level,
    session: str, sha256: str,
) -> str:  # fmt: skip
    """What a lowered source is that stands alone, in Markdown: its own comments are the expert's,
    and its bytes are what was verified, so nothing can be added to them."""
    recipe = recipe_of(asked)
    clauses = recipe.clauses if recipe is not None else ()
    wants = "\n".join(f"- {prose(c.words)}" for c in clauses) or "- what its spec computes"
    return f"""# {prose(file)}

The source of the expert kernel {prose(kernel)}, adapted by CuBridge (session {prose(session)},
sha256 {sha256}). It computes:

{wants}

**The comment at the top of the file is the expert kernel's own** and says what that one computes.

Level: {level.value}. {level_words(level, verdicts)}

It does not build alone: headers and launch code are in the kernel package, which
{code(f"cubridge export {session} FOLDER")} writes.
"""
