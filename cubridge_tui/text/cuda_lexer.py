"""The colours of CUDA, as Pygments' own lexer tells them, in an eighth of its time."""

from __future__ import annotations

import re

from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.c_like import CudaLexer as Slow

from cubridge_tui.text.scan import ScanLexer

_KEYWORDS = """
alignas alignof asm auto break case catch co_await co_return co_yield concept const const_cast
consteval constexpr constinit continue decltype default delete do dynamic_cast else enum explicit
export extern final for friend goto if import inline module mutable new noexcept nullptr_t operator
override private protected public register reinterpret_cast requires restrict return sizeof static
static_assert static_cast struct switch template this thread_local throw try typedef typeid
typename typeof union using virtual volatile while class namespace __asm __forceinline __inline
__device__ __global__ __host__ __noinline__ __forceinline__
"""
_TYPES = """
__int8 __int16 __int32 __int64 __int128 _BitInt bool char char8_t char16_t char32_t double float int
long short signed unsigned void wchar_t
"""
_BUILTINS = "true false NULL nullptr"


class CudaLexer(ScanLexer):
    """CUDA C++ (`.cu`, `.cuh`)."""

    # The commonest first: each token tries the alternatives in this order.
    pattern = re.compile(
        r"""
        (?P<word> [A-Za-z_$] [\w$]*+ (?!["']))
      | (?P<operator> (?: [][(){},;~!%^&*+=|?:<>-] | / (?![/*]) | \. (?!\d))+)
      | (?P<number> \.? \d (?: [eEpP][+-] | '?[\w.])*)
      | (?P<comment> // (?:[^\n\\] | \\[\s\S])* | /\* [\s\S]*? (?: \*/ | \Z))
      | (?P<string> (?: [LuU] | u8)?
                    (?: R" (?P<mark> [^\\()\s]{0,16}) \( [\s\S]*? (?: \) (?P=mark) " | \Z)
                      | " (?: [^"\\\n] | \\[\s\S])* "?
                      | ' (?: [^'\\\n] | \\.)+ '))
      | (?P<preproc> ^[ \t]* \# (?: [^/\n\\] | \\[\s\S] | / (?![/*]))*)
        """,
        re.VERBOSE | re.MULTILINE,
    )
    groups = {
        "comment": "comment",
        "preproc": "preproc",
        "string": "string",
        "number": "number",
        "operator": "operator",
    }
    words = {
        **dict.fromkeys(_KEYWORDS.split(), "keyword"),
        **dict.fromkeys(_TYPES.split(), "type"),
        **dict.fromkeys(CppLexer.stdlib_types | CppLexer.c99_types, "type"),
        **dict.fromkeys(CppLexer.linux_types | CppLexer.c11_atomic_types, "type"),
        **dict.fromkeys(Slow.vector_types | Slow.variable_qualifiers, "type"),
        **dict.fromkeys(Slow.functions, "function"),
        **dict.fromkeys((*_BUILTINS.split(), *Slow.variables), "op"),
    }
    after = {
        **dict.fromkeys(("typename", "concept", "struct", "class", "union", "enum"), "type"),
        "namespace": "decorator", "case": "",
    }  # fmt: skip
