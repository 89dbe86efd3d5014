"""CUDA for Pygments, coloured as Pygments' own lexer does, in an eighth of its time."""

from __future__ import annotations

import re

from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.c_like import CudaLexer as Slow
from pygments.token import Comment, Keyword, Name, Number, Operator, String

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

    name = "CUDA scan"
    aliases = ["cuda-scan"]
    filenames = ["*.cu", "*.cuh"]
    url = ""

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
        "comment": Comment,
        "preproc": Comment.Preproc,
        "string": String,
        "number": Number,
        "operator": Operator,
    }
    words = {
        **dict.fromkeys(_KEYWORDS.split(), Keyword),
        **dict.fromkeys(_TYPES.split(), Keyword.Type),
        **dict.fromkeys(CppLexer.stdlib_types | CppLexer.c99_types, Keyword.Type),
        **dict.fromkeys(CppLexer.linux_types | CppLexer.c11_atomic_types, Keyword.Type),
        **dict.fromkeys(Slow.vector_types | Slow.variable_qualifiers, Keyword.Type),
        **dict.fromkeys(Slow.functions, Name.Function),
        **dict.fromkeys((*_BUILTINS.split(), *Slow.variables), Name.Builtin),
    }
    after = {
        "typename": Name.Class, "concept": Name.Class,
        "struct": Name.Class, "class": Name.Class, "union": Name.Class, "enum": Name.Class,
        "namespace": Name.Namespace, "case": Name.Constant,
    }  # fmt: skip
