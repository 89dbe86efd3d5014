"""What nvcc makes of someone's kernel: its PTX, and its launcher linked to the recorder."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.build.folder.cache import default_cache, is_full, locked, no_room, prune, write
from engine.build.machine_code.ptxas import function_name, parse_uses
from engine.build.tools.diagnostics import parse_diagnostics
from engine.build.tools.process import run
from engine.build.tools.toolchain import Toolchain, compiler_environ
from engine.errors import InputError
from engine.foreign.includes import reached, read_included
from engine.foreign.launcher import Launcher
from engine.ptx.isa.observe import uncovered
from engine.ptx.syntax import Module
from engine.ptx.text.parser import parse_module

LIMIT = 1800.0  # seconds
# What the cache keeps calls a build's own folder, the source's and ours so.
_HERE, _THERE, _OURS = "@FOLDER@", "@SOURCE@", "@OURS@"
# Headers of ours in the place of torch's and cuBLAS's, where a launcher includes them.
STAND_INS = Path(__file__).with_name("stand_ins")
RECORDER = Path(__file__).with_name("recorder.cpp")

# Calls the launcher with what the command line gives, each argument as its parameter's type: for
# each call the number of its first allocation, then the arguments. A `main` of the source is not
# ours; no name here is one that sources have macros of.
_DRIVER = """\
#define main main_of_the_source
#include "{source}"
#undef main
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

extern "C" void cubridge_refuse(const char* what);
extern "C" void cubridge_call(const char* first);

template <class T_> T_ argument_from(const char* text) {{
#ifdef CUBRIDGE_TORCH
  if constexpr (std::is_same_v<std::decay_t<T_>, at::Tensor>) return at::Tensor::described(text);
  else
#endif
  if constexpr (std::is_pointer_v<T_>) return reinterpret_cast<T_>(strtoull(text, nullptr, 10));
  else if constexpr (std::is_floating_point_v<T_>) return static_cast<T_>(strtod(text, nullptr));
  else return static_cast<T_>(strtoll(text, nullptr, 10));
}}

template <class R_> void returned(const R_& result) {{
  if constexpr (std::is_same_v<R_, cudaError_t>)
    if (result != cudaSuccess) cubridge_refuse("a launch that it takes for a failure");
#ifdef CUBRIDGE_TORCH
  at::returned(result);
#endif
}}

template <class R_, class... T_, size_t... I_>
void call_with(R_ (*function)(T_...), char** text, std::index_sequence<I_...>) {{
  if constexpr (std::is_void_v<R_>) function(argument_from<std::decay_t<T_>>(text[I_])...);
  else returned(function(argument_from<std::decay_t<T_>>(text[I_])...));
}}

template <class R_, class... T_> char** call_with(R_ (*function)(T_...), char** text) {{
  cubridge_call(*text++);
  call_with(function, text, std::index_sequence_for<T_...>{{}});
  return text + sizeof...(T_);
}}

int main(int, char** argv) {{
  for (char** at = argv + 1; *at;) at = call_with(&{launcher}, at);
}}
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
    of the clock and of all processors; and the registers of a thread by kernel, where ptxas was
    asked."""

    module: Module
    program: Path
    seconds: float = 0.0
    processor: float = 0.0
    registers: Mapping[str, int] = field(default_factory=dict)


def compile_kernel(
    source: Path, launcher: Launcher, flags: Flags, tools: Toolchain, folder: Path
) -> Compiled:
    """Compiles a source to PTX with source lines, inside of the program that records its launches.
    What was compiled before with the same texts and flags is taken from the cache of builds.

    Raises:
        DoesNotCompile: with the first error of nvcc or ptxas; or it calls something of the CUDA
            runtime that the recorder has not, by its name.
    """
    build = _Build(source.resolve(), launcher, flags, tools, folder)
    program, kept = folder / "record", folder / "kept"
    kept.mkdir(exist_ok=True)
    words = ["-cudart", "none", "--keep", "--keep-dir", str(kept), *tools.link_flags]
    began, before = time.monotonic(), _children()
    build.made([*words, "-o", str(program)], {"program": program}, kept, [_recorder(tools)])
    ptx = next(kept.glob("driver*.ptx"))
    registers = build.assembled(ptx)
    took = time.monotonic() - began, _children() - before
    return Compiled(_module(ptx), program, *took, registers)


def compile_again(
    base: Compiled, source: Path, launcher: Launcher, flags: Flags, tools: Toolchain, folder: Path
) -> Compiled:
    """Compiles a source whose launcher does what that of `base` does: its kernels alone, with the
    program of `base`; whole where its kernels have other names.

    Raises:
        DoesNotCompile: as `compile_kernel`.
    """
    build = _Build(source.resolve(), launcher, flags, tools, folder)
    ptx = folder / "again.ptx"
    build.made(["-ptx", "-o", str(ptx)], {"ptx": ptx}, None)
    module = _module(ptx)
    if set(module.kernels) == set(base.module.kernels):
        return Compiled(module, base.program)
    return compile_kernel(source, launcher, flags, tools, folder)


def _recorder(tools: Toolchain) -> Path:
    """The recorder's object file, which is compiled once for all sources: a third of what nvcc
    takes for a small one."""
    content = RECORDER.read_bytes()
    key = hashlib.sha256(tools.identity.encode() + b"\0" + content).hexdigest()
    made = default_cache().with_name("executed") / key / "recorder.o"
    with locked(made.parent, None):
        if not made.is_file():
            part = made.with_name("part.o")
            command = [str(tools.nvcc.path), "-O1", "-w", "-std=c++17", "-c", str(RECORDER)]
            done = run([*command, "-o", str(part)], cwd=made.parent, environ=compiler_environ(),
                       limit=LIMIT)  # fmt: skip
            if not done.ok and is_full(made.parent):
                raise no_room(made.parent, "XDG_CACHE_HOME")
            if not done.ok:
                words = done.output.strip() or f"nvcc ended with {done.returncode}"
                raise InputError(f"nvcc does not compile {RECORDER.name}: {words}")
            part.replace(made)
    return made


def _module(ptx: Path) -> Module:
    return parse_module(uncovered(_of_every_build(ptx.read_text("utf-8"))), "PTX")


def _of_every_build(text: str) -> str:
    """Names without the digits that nvcc gives an anonymous namespace, which are of one build."""
    return re.sub(r"(_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}", r"\g<1>00000000", text)


@dataclass(frozen=True, slots=True)
class _Build:
    """One call of nvcc on a source with a driver around it."""

    source: Path
    launcher: Launcher
    flags: Flags
    tools: Toolchain
    folder: Path

    def made(
        self, words: Sequence[str], files: Mapping[str, Path], kept: Path | None,
        linked: Sequence[Path] = (),
    ) -> None:  # fmt: skip
        """Makes the files, or copies those of an equal build; `kept` has the PTX then.

        Args:
            linked: object files of ours, whose sources the key has.
        """
        if set(str(self.source)) & set('"\\\n'):
            raise InputError(
                f"nvcc includes no file that is called {str(self.source)!r}",
                fix="rename it: without quotes, backslashes and line ends",
            )
        driver = self.folder / "driver.cu"
        text = _DRIVER.format(source=self.source, launcher=self.launcher.name)
        driver.write_text(text, encoding="utf-8")
        named = dict(files) if kept is None else {**files, "ptx": kept / "driver.ptx"}
        cache = default_cache().with_name("executed") / self.key(words, text)
        depends = self.folder / "depends"
        with locked(cache, None):
            if all((cache / name).is_file() for name in named):
                for name, path in named.items():
                    self.copy(cache / name, path, self.here)
                return
            refused = cache / "refused"
            if refused.is_file():
                raise self.refusal(self.here(refused.read_text("utf-8")))
            command = [
                str(self.tools.nvcc.path), "-O1", "-w", "-lineinfo", *words, "-MD", "-MF",
                str(depends), f"-I{self.source.parent}", *self.flags.words(), *map(str, linked),
                str(driver),
            ]  # fmt: skip
            # What nvcc leaves when it is killed is removed with the folder.
            environ = compiler_environ() | {"TMPDIR": str(self.folder)}
            done = run(command, cwd=self.folder, environ=environ, limit=LIMIT)
            if not done.ok:
                if is_full(self.folder):
                    raise no_room(self.folder.parent, "TMPDIR")
                if ": error" in done.output:
                    write(refused, self.anywhere(done.output).encode())
                raise self.refusal(done.output or f"nvcc ended with {done.returncode}")
            if kept is not None:
                next(kept.glob("driver*.ptx")).replace(named["ptx"])
            if self.known(depends):
                for name, path in named.items():
                    self.copy(path, cache / name, self.anywhere)
        prune(cache.parent, cache)

    def assembled(self, ptx: Path) -> dict[str, int]:
        """The registers of a thread that ptxas gives each kernel; none where there is no ptxas."""
        if self.tools.ptxas is None:
            return {}
        text = ptx.read_text("utf-8", "surrogateescape")
        parts = [self.tools.identity, self.flags.arch, self.anywhere(text)]
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
        cache = default_cache().with_name("executed") / key
        with locked(cache, None):
            log = cache / "assembled"
            if not log.is_file():
                command = [str(self.tools.ptxas.path), "-v", f"-arch={self.flags.arch}", str(ptx),
                           "-o", os.devnull]  # fmt: skip
                done = run(command, cwd=self.folder, environ=compiler_environ(), limit=LIMIT)
                if not done.ok:
                    raise self.not_assembled(done.output, text, ptx)
                write(log, done.output.encode())
            output = log.read_text("utf-8")
        return {use.symbol: use.registers for use in parse_uses(_of_every_build(output))}

    def not_assembled(self, output: str, text: str, ptx: Path) -> DoesNotCompile:
        """What ptxas refuses, at the source's line: of an instruction, or of the kernel named."""
        name = self.source.name
        said = parse_diagnostics(output, read_included(self.source).decode("utf-8", "replace"),
                                 name, {ptx.name: text})  # fmt: skip
        words = str(said[0]) if said else output.strip()[:400]
        for kernel in () if said and said[0].where else _module(ptx).kernels.values():
            if kernel.name in words:
                words = words.replace(kernel.name, function_name(kernel.name))
                words = f"{kernel.code[0].source or name}: {words}"
        return DoesNotCompile(f"ptxas does not assemble {name}: {words}", output)

    def refusal(self, output: str) -> DoesNotCompile:
        return DoesNotCompile(_reason(output, self.source, self.launcher.name), output,
                              advice(output))  # fmt: skip

    def key(self, words: Sequence[str], driver: str) -> str:
        """A digest of all that decides what nvcc makes, wherever the source and the build lie."""
        parts = [self.tools.identity, driver, *words, *self.flags.words()]
        out = hashlib.sha256()
        for text in parts:
            out.update(self.anywhere(text).encode() + b"\0")
        ours = [RECORDER, *STAND_INS.rglob("*.*")]
        ours += [Path(w) for w in self.flags.more if Path(w).is_file()]
        for file in [*reached(self.source, self.flags.includes), *sorted(ours)]:
            content = hashlib.sha256(read_included(file)).hexdigest()
            out.update(f"{self.anywhere(str(file))} {content}".encode())
        return out.hexdigest()

    def known(self, depends: Path) -> bool:
        """Whether the key has all files that nvcc read, but for those of the system: an include
        that a macro names is not found by reading."""
        words = depends.read_text("utf-8").partition(" : ")[2].split()
        read = {Path(w).resolve() for w in words if w != "\\"}
        read -= {*reached(self.source, self.flags.includes), *map(Path, self.flags.more)}
        read.discard(self.folder.resolve() / "driver.cu")
        system = (self.tools.root.resolve(), Path("/usr"), STAND_INS)
        return all(any(f.is_relative_to(s) for s in system) for f in read)

    def folders(self) -> dict[str, str]:
        """The folders of this build and its source by what stands for each, the longest first: one
        may lie in another. A patched copy of an include folder is one that is made anew."""
        named = {f"@{n}@": Path(f).resolve() for n, f in enumerate(self.flags.includes)}
        named |= {_THERE: self.source.parent, _OURS: RECORDER.parent, _HERE: self.folder.resolve()}
        return dict(sorted(((n, str(f)) for n, f in named.items()), key=lambda x: -len(x[1])))

    def anywhere(self, text: str) -> str:
        """A text without the places of this build and its source."""
        text = text.replace(str(self.folder), str(self.folder.resolve()))
        for name, folder in self.folders().items():
            text = text.replace(folder, name)
        return text

    def here(self, text: str) -> str:
        """The text of `anywhere`, at this build and its source."""
        for name, folder in self.folders().items():
            text = text.replace(name, folder)
        return text

    @staticmethod
    def copy(source: Path, target: Path, named: Callable[[str], str]) -> None:
        """PTX with its folders named anew; a program as it is."""
        data = source.read_bytes()
        is_ptx = b".version" in data[:4096]
        write(target, os.fsencode(named(os.fsdecode(data))) if is_ptx else data)
        if os.access(source, os.X_OK):
            target.chmod(0o755)


def advice(output: str) -> str:
    """What nvcc's own words say would help."""
    flag = re.search(r"flag '(--[\w-]+)' can be used|requires (--[\w-]+) nvcc flag", output)
    if flag is not None:
        return f"--nvcc={flag[1] or flag[2]}"
    header = re.search(r"fatal error: (\S+): No such file", output)
    return f"-I FOLDER, of the folder that has {header[1]}" if header else ""


def _children() -> float:
    """Seconds of processors that children have taken that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reason(output: str, source: Path, launcher: str) -> str:
    missing = sorted(set(re.findall(r"undefined reference to `(\w+)'", output)))
    if missing:
        return f"{source.name} calls {', '.join(missing)}, which the recorder does not have"
    lines = [line for line in output.splitlines() if "error" in line]
    if lines and (ours := re.match(r"\S*/driver\.cu\(\d+\): error: ", lines[0])):
        return f"{launcher} of {source.name} cannot be called: {lines[0][ours.end() :]}"
    return f"{source.name} does not compile: {lines[0] if lines else output.strip()[:400]}"
