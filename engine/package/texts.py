"""The texts of a package that are written for people: public function, README, build.ninja."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from engine.markdown import cell, code, prose
from engine.package.fields import DTYPE_WORDS, c_fields, field_rows, named
from engine.spec.recipe import Input, Recipe
from engine.spec.signature import Asked, recipe_of
from engine.types import Gate, Level, Verdict, VerdictKind
from engine.types.trust import rests_on

_LEVELS = {
    Level.GPU_VERIFIED: (
        "Gates G1 to G4 pass on exactly these bytes: the algebra, the rounding, the source text "
        "and the machine code were checked, and a GPU ran the kernel against the spec."
    ),
    Level.CPU_VERIFIED: (
        "Gates G1 to G3 pass on exactly these bytes. **No GPU has run this kernel yet**: it was "
        "checked by executing its IR, by lifting the source again and by compiling it."
    ),
    Level.OVERRIDDEN: (
        "**A person overrode at least one gate** (see verdicts.json): this kernel is not proven."
    ),
    Level.NONE: "**Nothing is proven about this kernel**: its gates have not passed.",
}
_BY_SPEC = (
    "No rule reads this spec: its own function judged the kernel alone, element by element and, "
    "where its output is linear in V, by the weights that it gives one-hot V."
)
_NO_LSE = "Its log-sum-exp was compared with nothing, since only a recipe says what it is."
_TMA = ", and start and stride by multiples of 16 bytes elsewhere (the TMA reads them)"
_NUMBER_TYPES = {"f32": "float", "i32": "int", "i64": "int", "bool": "bool"}


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


def _plan_use(info: Mapping[str, Any], call: str) -> str:
    """The lines of the README about plans; empty where there are none."""
    if info["binding"].get("workspace") is None:
        return ""
    name = info["name"]
    return (
        "\n\n# Which tiles hold a kept pair is found out in every call, or once for many:\n"
        f"held = {name}.Plan()\n"
        f"out = {name}.attention({call}, plan=held)  # fills it\n"
        f"out = {name}.attention({call}, plan=held)  # the same mask, any q, k and v"
    )


def _table_words(inputs: Sequence[Input], plans: bool) -> str:
    """The README's sentence about tables that the spec makes of inputs; empty without any."""
    tables = [f"`{i.name}`" for i in inputs if i.derive]
    sources = [f"`{i.name}`" for i in inputs if i.role == "extra" and not i.derive and i.dims]
    if not tables or not sources:
        return ""
    once = ", or use a plan, which keeps what its mask reads" if plans else ""
    return (
        f"\nWhere {', '.join(tables)} is not given, the spec's own code makes it of "
        f"{', '.join(sources)}, on the CPU\nand in every call, which waits for the GPU: "
        f"give it{once}.\n"
    )


def _plan_words(info: Mapping[str, Any]) -> str:
    """The README's paragraph about what a plan holds; empty where there are no plans."""
    if info["binding"].get("workspace") is None:
        return ""
    reads = ", ".join(f"`{name}`" for name in info["mask_inputs"])
    return f"""
A plan keeps the tensors that the mask reads ({reads}) and is for these objects alone, as long as
they do not change: an equal copy, another tensor or a change in place is a ValueError. Changes that
PyTorch does not count (through `.data`, by another library's kernel, by the replay of a CUDA graph)
cannot be seen: take a new plan after one. Inference tensors are refused, for PyTorch counts none of
their changes. Fill a plan before a CUDA graph is captured, and keep it as long as the graph.
Calls with one plan run one after another, on other streams too; a graph that holds one must not be
replayed beside another use of its plan.
"""


_PLAN = """
    Which tiles hold a kept pair depends on the inputs, and each call finds out first. A `plan`, a
    `Plan()` of the caller's, keeps that from its first call on, for calls with the same sizes and
    the very tensors that the mask reads, unchanged (ValueError where they are others). Changes that
    PyTorch does not count (`.data`, other libraries' kernels) are the caller's to avoid. A call
    with a plan is for running: torch.compile and torch.export do not trace it.
"""


def init_text(info: Mapping[str, Any], asked: Asked, inputs: Sequence[Input], level: Level) -> str:
    """`__init__.py`: one public function with the spec's own parameters."""
    has_lse = any(row["source"] == "LSE" for row in info["binding"]["tensors"])
    # Tables that the spec builds itself come last: they need not be given.
    ordered = sorted(inputs, key=lambda i: i.derive is not None)
    params = ", ".join(map(_parameter, ordered))
    names = ", ".join(i.name for i in inputs)
    lines = [f"    {i.name}: {_quoted(_describe(i, info))}" for i in ordered]
    if any(i.derive for i in inputs):
        names = "{" + ", ".join(f'"{i.name}": {i.name}' for i in inputs) + "}"
    function = "call_named" if names.startswith("{") else "call"
    kernel, spec = _quoted(info["kernel"]), _quoted(info["spec"])
    returns = f"O as [{', '.join(_returned(asked))}]"
    out = 'out["O"]' + (".flatten(-2)" if _returned(asked) != asked.output_dims else "")
    ending = ""
    read = recipe_of(asked)
    sink = read is not None and read.sink is not None
    if has_lse:
        given = read is not None and read.lse is not None
        params += f", *, return_lse: bool = {given}"
        kind, lse_dims = _lse_words(read)
        returns += f"; with `return_lse` also the rows' {kind}, [{lse_dims}] float32"
        if recipe_of(asked) is None:
            returns += " (as the kernel has it: it was compared with nothing)"
        ending = f'    if return_lse:\n        return {out}, {_lse_as_given(read)}\n'
    plans = info["binding"].get("workspace") is not None
    about_plan = imports = given_plan = ""
    exported = '"LEVEL", "attention"'
    if plans:
        params += (", " if has_lse else ", *, ") + "plan: Plan | None = None"
        about_plan = _PLAN
        imports, given_plan = "from ._plan import Plan\n", ", plan=plan"
        exported = '"LEVEL", "Plan", "attention"'
    kind = "Tensor | tuple[Tensor, Tensor]" if has_lse else "Tensor"
    nothing = "the sink" if sink else "-inf"
    empty = f" and LSE = {nothing}" if has_lse and recipe_of(asked) is not None else ""
    text = "\n".join(lines)
    return f'''"""{info["name"]}: an attention kernel, adapted by CuBridge from {kernel}.

Level: {level.value} (see verdicts.json). `python build.py` builds it; else the first call does.
"""

from __future__ import annotations

from torch import Tensor

from ._op import operator
{imports}
__all__ = [{exported}]

_OPERATOR = operator()
LEVEL = "{level.value}"
"""How far the kernel is proven; README.md says what that means."""


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
'''


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
    title: str,
) -> str:
    """README.md: what it is, how far it is proven, how to build and use it."""
    name = info["name"]
    recipe = recipe_of(asked)
    call = ", ".join(i.name for i in inputs if not i.derive)
    key = next(iter(info["specialisations"]))
    table = "\n".join(f"| `{i.name}` | {_describe(i, info)} |" for i in inputs)
    archs = ", ".join(info["archs"])
    options = "".join(f", {code(f'{k} = {v}')}" for k, v in info["spec_options"].items())
    lse = any(row["source"] == "LSE" for row in info["binding"]["tensors"])
    second = f"\nout, lse = {name}.attention({call}, return_lse=True)" if lse else ""
    kind, lse_dims = _lse_words(recipe)
    lse_words = f"; `lse` [{lse_dims}] float32, each row's {kind}" if lse else ""
    level_words = _LEVELS[level] + _trust(verdicts)
    if recipe is not None:
        wants = "\n".join(f"- {prose(c.words)}" for c in recipe.clauses) or "- full attention"
    else:
        wants = f"What the function in {code(info['spec'])} computes."
        level_words += "\n\n" + _BY_SPEC + (f" {_NO_LSE}" if lse else "")
    limits = [f"`{text}`" for text in info["constraints"]]
    if info["grouped"]:
        limits.append("Hq is a multiple of Hkv")
    limits += [
        f"{', '.join(named(info, r) for r in 'qk')} and {named(info, 'v')} have contiguous rows"
        + (_TMA if info["tma"] else " (any strides elsewhere)"),
        "forward only, no dropout",
    ]
    return f"""# {name}

An attention kernel for {code(info["spec"])}{options}, adapted by CuBridge from the expert kernel
{prose(info["kernel"])} ({prose(title)}).

## Level: {level.value}

{level_words}

| gate | verdict | reason |
|---|---|---|
{_verdict_rows(verdicts)}

verdicts.json has what was measured; its hashes are those of the files here (package.json).

## What it computes

{wants}

The comments in csrc/kernel.cu are the expert kernel's own: where they say what the whole computes,
they say it of that kernel.

## Use

```python
import {name}  # with the folder that holds {name} on sys.path

out = {name}.attention({call}){second}{_plan_use(info, call)}
```

`out` is [{", ".join(_returned(asked))}] of {named(info, "q")}'s dtype{lse_words}.
{_plan_words(info)}{_table_words(inputs, info["binding"].get("workspace") is not None)}
| input | what |
|---|---|
{table}

Limits: {"; ".join(limits)}. Built for {", ".join(f"`{key}`" for key in info["specialisations"])}
({archs}). It is a torch operator (`torch.ops.cubridge.{info["op"]}`), so `torch.compile` and
`torch.export` can trace it.

## Build

It needs Python 3.10, torch 2.6, nvcc and a C++ compiler, or newer ones (sm_90a: CUDA 12; CuBridge
itself compiles with CUDA 13.0); ninja is used when it is there. The first call builds the library
for the GPU at hand into `build/`. To build it beforehand, with or without a GPU, in this folder:

```
python build.py --arch {next(iter(info["archs"]))}     # or several, or: all
```

A library that is built of these sources is loaded as it is: nvcc is not needed then, and nothing is
written, so the folder may be copied to where it is read-only.

To see it run beside the spec on your GPU, from the folder that holds {name}:

```
python -m {name}.check
```

Without torch, call the library's C function with the struct of `csrc/kernel.cu`. The pointers are
device pointers; strides count elements, outermost dimension first, and 0 stands where a tensor has
no such dimension. The last dimension of {", ".join(named(info, r) for r in "qkv")} has stride 1.

```c
struct TensorArg {{ void* data; long long stride[4]; }};
struct Args {{ {c_fields(info["fields"])} }} args;
int cubridge_launch(const void* args, long long args_size,
                    const char* specialisation, void* stream);

cubridge_launch(&args, sizeof(args), "{key}", stream);  // 0, or a status for cubridge_error_text
```

| field | what |
|---|---|
{field_rows(info)}
"""


def _trust(verdicts: Sequence[Verdict]) -> str:
    """What the level rests on, as a sentence of its own."""
    words = rests_on(verdicts)
    return f"\n\nNo result is signed: {words}." if words else ""


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

Level: {level.value}. {_LEVELS[level]}{_trust(verdicts)}

It does not build alone: the primitives' headers, the launch units and the tests are in the kernel
package, which {code(f"cubridge export {session} FOLDER")} writes.
"""


def _verdict_rows(verdicts: Sequence[Verdict]) -> str:
    last = {v.gate: v for v in verdicts}
    rows = []
    for gate in Gate:
        verdict = last.get(gate)
        kind = verdict.kind if verdict else VerdictKind.NOT_RUN
        reason = verdict.reason if verdict else ""
        if verdict and verdict.by:
            reason = f"by {verdict.by}: {reason}"
        rows.append(f"| {gate.value} | {kind.value} | {_cell(reason)} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return cell(text if len(text) <= 200 else text[:199] + "…")


def ninja_text(info: Mapping[str, Any], sources: Sequence[str]) -> str:
    """build.ninja: one target per arch, the first the default."""
    lines = [
        "# ninja ARCH builds build/ARCH/lib" + info["name"] + ".so with the nvcc on PATH.",
        "ninja_required_version = 1.5",
        "nvcc = nvcc",
        f"flags = {_shell(info['compile'])}",
        f"link_flags = {_shell(info['link'])}",
        "builddir = build",
        "",
        "rule compile",
        "  command = $nvcc $arch_flags $flags -c $in -o $out",
        "  description = compile $out",
        "rule link",
        "  command = $nvcc $arch_flags $link_flags -o $out.part $in && mv $out.part $out",
        "  description = link $out",
    ]
    headers = [s for s in sources if not s.startswith("csrc/units/")]
    for arch, flags in info["archs"].items():
        lines += ["", f"# {arch}"]
        objects = []
        for unit in info["units"]:
            stem = unit.rsplit("/", 1)[-1].rsplit(".", 1)[0]
            objects.append(f"build/{arch}/{stem}.o")
            lines.append(f"build {objects[-1]}: compile {unit} | {' '.join(headers)}")
            lines.append(f"  arch_flags = {_shell(flags)}")
        library = f"build/{arch}/lib{info['name']}.so"
        lines += [
            f"build {library}: link {' '.join(objects)}",
            f"  arch_flags = {_shell(flags)}",
            f"build {arch}: phony {library}",
        ]
    lines += ["", f"default {next(iter(info['archs']))}"]
    return "\n".join(lines) + "\n"


def _shell(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words).replace("$", "$$")


LICENSE_TEXT = """\
The Python files here and csrc/include/cubridge are part of CuBridge, licensed under the Apache
License, Version 2.0 (http://www.apache.org/licenses/LICENSE-2.0): use, change and redistribution
are granted under its conditions, without warranties of any kind.

csrc/kernel.cu is derived from {kernel} and stays under that kernel's licence. For the kernels that
come with CuBridge this is the Apache License, Version 2.0, too.

The spec in spec/ belongs to its author.
"""


def license_text(kernel: str) -> str:
    """LICENSE: what belongs to whom."""
    return LICENSE_TEXT.format(kernel=_quoted(kernel))
