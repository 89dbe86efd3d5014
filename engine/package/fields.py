"""A package's argument struct in words and in C, for callers without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.transfer.binding import SLOTS

DTYPE_WORDS = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32",
    "i32": "int32", "i64": "int32 (an int64 tensor is refused: convert it where it fits)",
    "bool": "bool",
}  # fmt: skip


def named(info: Mapping[str, Any], role: str) -> str:
    """The spec's own name of q, k or v."""
    return next((i["name"] for i in info["inputs"] if i["role"] == role), role)


_C_TYPES = {"tensor": "struct TensorArg", "i32": "int", "i64": "long long", "f32": "float"}


def c_fields(fields: Sequence[Sequence[str]]) -> str:
    """The members of the argument struct in C."""
    return " ".join(f"{_C_TYPES[kind]} {name};" for name, kind in fields)


def field_comments(info: Mapping[str, Any]) -> str:
    """What each field of the argument struct holds, as comments of C."""
    binding = info["binding"]
    said: dict[str, str] = {}
    for row in binding["tensors"]:
        dims = ", ".join(row["dims"])
        dtype = DTYPE_WORDS.get(row["dtype"], f"{named(info, 'q')}'s dtype").split(" (")[0]
        what = "output" if row["output"] else "input"
        said[row["field"]] = f"{what} {row['source']}, {dtype}, strides of [{dims}]"
    said |= {row["field"]: f"the size {row['size']}" for row in binding["sizes"]}
    said |= {row["field"]: row["value"] for row in binding["scalars"]}
    if (space := binding.get("workspace")) is not None:
        dims = ", ".join(space["dims"])
        said[space["field"]] = (
            f"int32 scratch memory [{dims}], row-major, with anything in it (KERNEL of __init__.py "
            "has the constants)"
        )
        said[space["planned"]] = "0; 1 where the scratch memory is an earlier call's, same mask"
        said[space["slots"]] = f"{SLOTS}"
    for row in binding.get("scratch", ()):
        dims = ", ".join(row["dims"])
        kind = "float32" if row["dtype"] == "f32" else f"{named(info, 'q')}'s dtype"
        said[row["field"]] = f"scratch memory [{dims}], {kind}, row-major, with anything in it"
    unread = "0: the kernel does not read it"
    return "\n".join(f"//   {name}: {said.get(name, unread)}" for name, _ in info["fields"])
