"""What nvcc makes of someone's kernel: its PTX, and its launcher linked to the recorder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from engine.build.process import run
from engine.build.toolchain import Toolchain, compiler_environ
from engine.errors import InputError
from engine.foreign.launcher import Launcher
from engine.ptx.parser import parse_module
from engine.ptx.syntax import Module

LIMIT = 600.0  # seconds

# Calls the launcher with what the command line gives, each argument as its parameter's type.
_DRIVER = """\
#include "{source}"
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

template <class T> T argument_from(const char* text) {{
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(strtoull(text, nullptr, 10));
  else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(strtod(text, nullptr));
  else return static_cast<T>(strtoll(text, nullptr, 10));
}}

template <class R, class... T, size_t... I>
void call_with(R (*function)(T...), char** text, std::index_sequence<I...>) {{
  function(argument_from<T>(text[I])...);
}}

template <class R, class... T> void call_with(R (*function)(T...), char** text) {{
  call_with(function, text, std::index_sequence_for<T...>{{}});
}}

int main(int, char** argv) {{ call_with(&{launcher}, argv + 1); }}
"""


@dataclass(frozen=True, slots=True)
class Flags:
    """How a kernel is compiled: its arch ("sm_90a"), include folders, macros, further flags."""

    arch: str
    includes: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    def words(self) -> list[str]:
        code = self.arch.removeprefix("sm_")
        return [
            f"-gencode=arch=compute_{code},code=sm_{code}",
            *(f"-I{folder}" for folder in self.includes),
            *(f"-D{macro}" for macro in self.macros),
            *(self.more or ("-std=c++17",)),
        ]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The PTX, parsed, and the program that records a launch."""

    module: Module
    program: Path


def compile_kernel(
    source: Path, launcher: Launcher, flags: Flags, tools: Toolchain, folder: Path
) -> Compiled:
    """Compiles a source twice at once: to PTX with source lines, and to the recording program.

    Raises:
        InputError: the source does not compile, with nvcc's first error; or it calls something of
            the CUDA runtime that the recorder has not, by its name.
    """
    source = source.resolve()
    driver = folder / "driver.cu"
    driver.write_text(_DRIVER.format(source=source, launcher=launcher.name), encoding="utf-8")
    recorder = Path(__file__).with_name("recorder.cpp")
    ptx, program = folder / "kernel.ptx", folder / "record"
    words = [f"-I{source.parent}", *flags.words()]
    nvcc = str(tools.nvcc.path)
    commands = (
        [nvcc, "-ptx", "-lineinfo", *words, str(driver), "-o", str(ptx)],
        [nvcc, "-O1", "-w", "-cudart", "none", *tools.link_flags, *words, str(driver),
         str(recorder), "-o", str(program)],
    )  # fmt: skip
    environ = compiler_environ()

    def compile_one(command: Sequence[str]) -> str:
        done = run(command, cwd=folder, environ=environ, limit=LIMIT)
        return "" if done.ok else done.output or f"nvcc ended with {done.returncode}"

    with ThreadPoolExecutor(2) as pool:
        failures = [text for text in pool.map(compile_one, commands) if text]
    if failures:
        raise InputError(_reason(failures[0], source))
    return Compiled(parse_module(ptx.read_text(encoding="utf-8"), "PTX"), program)


def _reason(output: str, source: Path) -> str:
    missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", output)))
    if missing:
        return f"{source.name} calls {', '.join(missing)}, which the recorder does not have"
    lines = [line for line in output.splitlines() if "error" in line]
    return f"{source.name} does not compile: {lines[0] if lines else output.strip()[:400]}"
