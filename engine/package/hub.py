"""The package in the layout of the kernels hub, for `kernel-builder` to build.

The hub builds a torch extension for every PyTorch, so that the library's three C functions become
operators of it; all else is the package's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import InputError
from engine.package.export import Content, package_files, verdicts_json, with_verdicts
from engine.resources import list_kernels

_NAME = r"[a-z][a-z0-9_]*[a-z0-9]"  # of kernels_data's KernelName, with _ for -
_NOT_THERE = ("build.py", "pyproject.toml", "README.md", "kernel.cu")


def hub_files(content: Content, name: str) -> dict[str, bytes]:
    """Every file of the hub's source repository, by its path in the folder.

    It builds for the first arch alone: a kernel differs by arch, and the hub compiles for all with
    the same flags.

    Raises:
        InputError: a name that the hub has no kernel by.
    """
    if not re.fullmatch(_NAME, name):
        raise InputError(
            f"the hub names no kernel {name!r}",
            fix="name the folder with two or more of a-z, 0-9 and _, a letter first and no _ last",
        )
    content = replace(content, archs=content.archs[:1])
    made = package_files(content, name)
    verdicts = verdicts_json(content, name)
    build: Mapping[str, Any] = verdicts["build"]
    arch = next(iter(build["archs"]))
    files = {f"torch-ext/{name}/{path}": data for path, data in made.items()
             if path not in _NOT_THERE}  # fmt: skip
    files[f"torch-ext/{name}/build.py"] = _SETTINGS
    files[f"{name}_cuda/kernel.cu"] = made["kernel.cu"]
    files["torch-ext/torch_binding.h"] = _HEADER
    files["torch-ext/torch_binding.cpp"] = _BINDING
    files["build.toml"] = _toml(name, arch, build, content.kernel).encode()
    files["flake.nix"] = _FLAKE.replace("NAME", name).encode()
    files["README.md"] = b"---\nlibrary_name: kernels\n---\n\n" + _card(made["README.md"], name)
    return with_verdicts(files, f"torch-ext/{name}/verdicts.json", verdicts)


def _toml(name: str, arch: str, build: Mapping[str, Any], kernel: str) -> str:
    # Of a kernel of someone else nothing is known.
    licence = "apache-2.0" if kernel in list_kernels() else "other"
    number = arch.removeprefix("sm_")
    digits = number.rstrip("af")
    capability = f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}"
    defined = [flag for flag in build["archs"][arch] if flag.startswith("-D")]
    flags = json.dumps([*defined, *build["compile"]])
    return f"""\
[general]
edition = 5
name = "{name.replace("_", "-")}"
version = 1
license = "{licence}"
backends = ["cuda"]

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]
pyext = ["py", "json"]

# Compiled as it was judged (verdicts.json), for {arch} alone.
[kernel.{name}]
backend = "cuda"
depends = ["torch"]
src = ["{name}_cuda/kernel.cu"]
cuda-capabilities = ["{capability}"]
cuda-flags = {flags}
"""


def _card(readme: bytes, name: str) -> bytes:
    text = readme.decode()
    begin, ours = text.index("# pip install"), f"import {name}\n"
    end = text.index(ours, begin) + len(ours)
    return (
        f"{text[:begin]}from kernels import get_kernel\n\n"
        f'{name} = get_kernel("OWNER/{name.replace("_", "-")}", version=1, trust_remote_code=True)'
        f"\n{text[end:]}"
    ).encode()


_SETTINGS = b'''\
"""How the kernel was built when it was judged; the hub has built the library already."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@cache
def settings() -> dict[str, Any]:
    data = json.loads((HERE / "verdicts.json").read_text(encoding="utf-8"))
    return {"name": data["name"], "version": data["version"], **data["build"]}
'''

_HEADER = b"""\
#pragma once

#include <cstdint>
#include <string>

int64_t args_size();
int64_t launch(int64_t args, int64_t size, std::string specialisation, int64_t stream);
std::string error_text(int64_t status);
"""

_BINDING = b"""\
// The library's C functions (kernel.cu) as operators; Python fills the argument struct.
#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

extern "C" {
int cubridge_launch(const void* args, long long args_size, const char* specialisation,
                    void* stream);
long long cubridge_args_size();
const char* cubridge_error_text(int status);
}

int64_t args_size() { return cubridge_args_size(); }

int64_t launch(int64_t args, int64_t size, std::string specialisation, int64_t stream) {
  return cubridge_launch(reinterpret_cast<const void*>(args), size, specialisation.c_str(),
                         reinterpret_cast<void*>(stream));
}

std::string error_text(int64_t status) { return cubridge_error_text(static_cast<int>(status)); }

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("args_size() -> int", &args_size);
  ops.def("launch(int args, int size, str specialisation, int stream) -> int", &launch);
  ops.def("error_text(int status) -> str", &error_text);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""

_FLAKE = """\
{
  description = "Flake for NAME";
  inputs.kernel-builder.url = "github:huggingface/kernels";
  outputs = { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs { inherit self; path = ./.; };
}
"""
