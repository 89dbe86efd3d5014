"""CuIR for Pygments: its ops, layouts, types and scalar functions told apart."""

from __future__ import annotations

import re
from typing import Any

from pygments.token import Comment, Keyword, Name, Number, Operator, String

from cubridge_tui.text.scan import ScanLexer
from engine.cuir.ops import OPS

TYPES = (
    "tensor", "i32", "i64", "f32", "f16", "bf16", "f64", "bool", "mma_acc", "mma_a", "wgmma_acc",
    "wgmma_a", "row_of", "col_of", "a_operand",
)  # fmt: skip
CONSTANTS = ("True", "False", "None", "inf", "nan", "LOG2E", "LN2", "success")
KEYWORDS = (
    "for", "in", "if", "elif", "else", "return", "lambda", "pass", "with", "def", "class",
)  # fmt: skip


class CuirLexer(ScanLexer):
    """CuIR text (`.cuir`)."""

    name = "CuIR"
    aliases = ["cuir"]
    filenames = ["*.cuir"]
    url = ""

    # The commonest first: each token tries the alternatives in this order.
    pattern = re.compile(
        r"""
        (?P<word> (?<!\.) [A-Za-z_] \w*)
      | (?P<operator> [][(){}:,.+*/%<>=!&|^~-]+)
      | (?P<number> \d+ (?: \.\d*)? (?: [eE][+-]?\d+)?)
      | (?P<attribute> (?<=\.) \w+)
      | (?P<id> \#@ [\w.-]+)
      | (?P<comment> \# .*)
      | (?P<decorator> @ \w+)
      | (?P<string> ' (?: \\. | [^'\\\n])* ' | " (?: \\. | [^"\\\n])* ")
        """,
        re.VERBOSE,
    )
    groups = {
        "id": Comment.Special,
        "comment": Comment,
        "decorator": Name.Decorator,
        "string": String,
        "attribute": Name.Attribute,
        "number": Number,
        "operator": Operator,
    }
    words = {
        **dict.fromkeys(KEYWORDS, Keyword),
        **dict.fromkeys(("and", "or", "not"), Operator.Word),
        **dict.fromkeys(CONSTANTS, Keyword.Constant),
        **dict.fromkeys(TYPES, Keyword.Type),
        "specialisation": Name.Namespace,
    }
    after = {"def": Name.Function, "class": Name.Class}

    def word(self, word: str, following: str) -> Any:
        if following not in ("[", "("):
            return Name
        return Name.Builtin if word in OPS else Name.Function
