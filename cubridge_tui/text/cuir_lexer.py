"""CuIR for Pygments: its ops, layouts, types and scalar functions told apart."""

from __future__ import annotations

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Token,
)

from engine.cuir.ops import OPS

TYPES = (
    "tensor", "i32", "i64", "f32", "f16", "bf16", "f64", "bool", "mma_acc", "mma_a", "wgmma_acc",
    "wgmma_a", "row_of", "col_of", "a_operand",
)  # fmt: skip
CONSTANTS = ("True", "False", "None", "inf", "nan", "LOG2E", "LN2", "success")


class CuirLexer(RegexLexer):  # type: ignore[misc, unused-ignore]
    """CuIR text (`.cuir`)."""

    name = "CuIR"
    aliases = ["cuir"]
    filenames = ["*.cuir"]
    url = ""

    tokens = {
        "root": [
            (r"\s+", Text),
            (r"#@[\w.-]+", Comment.Special),
            (r"#.*", Comment),
            (r"@\w+", Name.Decorator),
            (r"(def)(\s+)(\w+)", bygroups(Keyword, Text, Name.Function)),
            (r"(class)(\s+)(\w+)", bygroups(Keyword, Text, Name.Class)),
            (
                words(
                    ("for", "in", "if", "elif", "else", "return", "lambda", "pass", "with", "def"),
                    suffix=r"\b",
                ),
                Keyword,
            ),
            (words(("and", "or", "not"), suffix=r"\b"), Operator.Word),
            (words(CONSTANTS, suffix=r"\b"), Keyword.Constant),
            (words(TYPES, suffix=r"\b"), Keyword.Type),
            (r"specialisation\b", Name.Namespace),
            (words(tuple(sorted(OPS)), suffix=r"\b(?=[\[(])"), Name.Builtin),
            (r"(\.)(\w+)", bygroups(Punctuation, Name.Attribute)),
            (r"[A-Za-z_]\w*(?=[\[(])", Name.Function),
            (r"[A-Za-z_]\w*", Name),
            (r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"", String),
            (r"\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+", Number.Float),
            (r"\d+", Number.Integer),
            (r"[-+*/%<>=!&|^~]+", Operator),
            (r"[\[\](){}:,.]", Punctuation),
            (r".", Token.Text),
        ]
    }
