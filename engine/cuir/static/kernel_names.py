"""Names that an input of a spec, or one of its dimensions, cannot bear in a kernel, and those that
are free for what a rule adds.

Such an input becomes a field of the argument struct and a variable of the kernel. There a word of
C++ does not compile, and the name of an operation would hide the operation from the statements that
use it. A test holds these lists against the words of the lifter and of the catalogues.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from engine.cuir.nodes import Function, Module
from engine.cuir.ops import OPS
from engine.cuir.scalar import CASTS, CONSTANTS, FUNCTIONS
from engine.cuir.static.facts import own_names

_CPP = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export
extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local
throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
xor xor_eq
"""
CPP = frozenset(_CPP.split())
"""Keywords."""

_CUDA = """
threadIdx blockIdx blockDim gridDim warpSize dim3 half half2 nv_bfloat16 cudaStream_t
cudaError_t cudaSuccess int32_t int64_t uint32_t uint64_t size_t int2 int4 uint4 float2 float4
INFINITY NAN NULL EOF INT_MAX INT_MIN M_PI FLT_MAX FLT_MIN assert errno std main unix linux
cubridge TensorArg TensorMap RowMap CUtensorMap is_same_v
"""
CUDA = frozenset(_CUDA.split())
"""What CUDA's and C's headers define, macros among them."""

PRIMITIVES = frozenset({"to_operand"}).union(*(fn.also for fn in FUNCTIONS.values()))
"""Calls in C++ that are no op or function of CuIR by their name."""

_OURS = """
T D BM BN O LSE inf nan args stream opaque success f16 bf16 f32 i32 i64 mma_acc mma_a wgmma_acc
wgmma_a lines row_of col_of a_operand launch return_lse
"""
OURS = frozenset(_OURS.split())
"""Words of CuIR, of the kernels' own layout, and of the packages' public function."""


def meaning_of(name: str) -> str | None:
    """What `name` means already, in words for a person; None for a name that is free."""
    if name in CPP:
        return "a word of C++"
    if name in CUDA or name.startswith("__") or (name[:1] == "_" and name[1:2].isupper()):
        return "a name of CUDA's own headers"
    if name in OPS:
        return "the name of an operation of CuIR"
    if name in FUNCTIONS or name in CONSTANTS or name in CASTS:
        return "a function or a constant of scalar expressions"
    if name in PRIMITIVES:
        return "the name of a primitive"
    if name in OURS:
        return "a word of CuIR or of the kernels"
    if not name.isascii():
        return "no name that every C++ compiler takes"
    return None


class Fresh:
    """Names that nothing has yet."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def __call__(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name


def locals_for(module: Module, functions: Iterable[Function], more: Set[str]) -> Fresh:
    """Names for variables that a rule adds to `functions`: neither a name of the module, nor of
    their own, nor one of `more` (those of the spec's inputs, which the functions may read)."""
    taken = {f.name for f in module.functions} | {f.name for f in module.fields} | more
    taken |= {c for f in module.functions for c in f.consts} | {"args", "T"}
    return Fresh(taken.union(*map(own_names, functions)))
