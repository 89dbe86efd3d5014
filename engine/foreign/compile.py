"""What nvcc makes of someone's kernel: its PTX, and its launcher linked to the recorder."""

from __future__ import annotations

import re
import resource
from dataclasses import dataclass
from pathlib import Path

from engine.build.tools.process import run
from engine.build.tools.toolchain import Toolchain, compiler_environ
from engine.errors import InputError
from engine.foreign.launcher import Launcher
from engine.ptx.isa.observe import uncovered
from engine.ptx.parser import parse_module
from engine.ptx.syntax import Module

LIMIT = 1800.0  # seconds
# Headers of ours in the place of torch's and cuBLAS's, where a launcher includes them.
STAND_INS = Path(__file__).with_name("stand_ins")

# Calls the launcher with what the command line gives, each argument as its parameter's type. A
# `main` of the source is not ours.
_DRIVER = """\
#define main main_of_the_source
#include "{source}"
#undef main
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

extern "C" void cubridge_refuse(const char* what);

template <class T> T argument_from(const char* text) {{
#ifdef CUBRIDGE_TORCH
  if constexpr (std::is_same_v<std::decay_t<T>, at::Tensor>) return at::Tensor::described(text);
  else
#endif
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(strtoull(text, nullptr, 10));
  else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(strtod(text, nullptr));
  else return static_cast<T>(strtoll(text, nullptr, 10));
}}

template <class R> void returned(const R& result) {{
  if constexpr (std::is_same_v<R, cudaError_t>)
    if (result != cudaSuccess) cubridge_refuse("a launch that it takes for a failure");
#ifdef CUBRIDGE_TORCH
  at::returned(result);
#endif
}}

template <class R, class... T, size_t... I>
void call_with(R (*function)(T...), char** text, std::index_sequence<I...>) {{
  if constexpr (std::is_void_v<R>) function(argument_from<std::decay_t<T>>(text[I])...);
  else returned(function(argument_from<std::decay_t<T>>(text[I])...));
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
            f"-gencode=arch=compute_{code},code=compute_{code}",
            *(f"-I{Path(folder).resolve()}" for folder in self.includes),
            f"-I{STAND_INS}",
            *(f"-D{macro}" for macro in self.macros),
            *(self.more or ("-std=c++17",)),
        ]


class DoesNotCompile(InputError):
    """A source that nvcc refuses; `output` is all that it said."""

    def __init__(self, message: str, output: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.output = output


@dataclass(frozen=True, slots=True)
class Compiled:
    """The PTX, parsed, and the program that records a launch; what nvcc took for them, in seconds
    of the clock and of all processors."""

    module: Module
    program: Path
    seconds: float = 0.0
    processor: float = 0.0


def compile_kernel(
    source: Path, launcher: Launcher, flags: Flags, tools: Toolchain, folder: Path
) -> Compiled:
    """Compiles a source to PTX with source lines, inside of the program that records its launches.

    Raises:
        DoesNotCompile: with nvcc's first error; or it calls something of the CUDA runtime that the
            recorder has not, by its name.
    """
    source = source.resolve()
    driver = folder / "driver.cu"
    driver.write_text(_DRIVER.format(source=source, launcher=launcher.name), encoding="utf-8")
    program, kept = folder / "record", folder / "kept"
    kept.mkdir(exist_ok=True)
    command = [
        str(tools.nvcc.path), "-O1", "-w", "-lineinfo", "-cudart", "none", "--keep", "--keep-dir",
        str(kept), *tools.link_flags, f"-I{source.parent}", *flags.words(), str(driver),
        str(Path(__file__).with_name("recorder.cpp")), "-o", str(program),
    ]  # fmt: skip
    before = _children()
    done = run(command, cwd=folder, environ=compiler_environ(), limit=LIMIT)
    if not done.ok:
        output = done.output or f"nvcc ended with {done.returncode}"
        raise DoesNotCompile(_reason(output, source), output, advice(output))
    ptx = next(kept.glob("driver*.ptx"))
    module = parse_module(uncovered(ptx.read_text(encoding="utf-8")), "PTX")
    return Compiled(module, program, done.seconds, _children() - before)


def _children() -> float:
    """Seconds of processors that children have taken that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def advice(output: str) -> str:
    """What nvcc's own words say would help."""
    flag = re.search(r"flag '(--[\w-]+)' can be used|requires (--[\w-]+) nvcc flag", output)
    if flag is not None:
        return f"--nvcc={flag[1] or flag[2]}"
    header = re.search(r"fatal error: (\S+): No such file", output)
    return f"-I FOLDER, of the folder that has {header[1]}" if header else ""


def _reason(output: str, source: Path) -> str:
    missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", output)))
    if missing:
        return f"{source.name} calls {', '.join(missing)}, which the recorder does not have"
    lines = [line for line in output.splitlines() if "error" in line]
    return f"{source.name} does not compile: {lines[0] if lines else output.strip()[:400]}"
