"""The colours of CuIR: its ops, layouts, types and scalar functions told apart."""

from __future__ import annotations

import re

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
        "id": "id",
        "comment": "comment",
        "decorator": "decorator",
        "string": "string",
        "attribute": "attribute",
        "number": "number",
        "operator": "operator",
    }
    words = {
        **dict.fromkeys((*KEYWORDS, "and", "or", "not"), "keyword"),
        **dict.fromkeys(CONSTANTS, "constant"),
        **dict.fromkeys(TYPES, "type"),
        "specialisation": "decorator",
    }
    after = {"def": "function", "class": "type"}

    def word(self, word: str, following: str) -> str:
        if following not in ("[", "("):
            return ""
        return "op" if word in OPS else "function"
