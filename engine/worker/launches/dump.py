"""Small calls written to a file, so that a process without torch can launch them.

compute-sanitizer instruments every kernel of a process; torch's own would take most of the time.
"""

from __future__ import annotations

import base64
import ctypes
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.worker.launches.specialisation import Subject
from engine.worker.problems.problem_sizes import SANITIZER_CASES


def dump_cases(subject: Subject, path: Path) -> None:
    """The sanitizer's deck: per field a number, or a tensor's bytes and strides, tightly packed."""
    out: list[dict[str, Any]] = []
    for case in SANITIZER_CASES:
        fitted = subject.adapted(case)
        if fitted is None:
            continue
        call, _ = subject.call(fitted)
        written = {item.field for item in subject.binding.tensors if item.output}
        if subject.binding.workspace is not None:
            written.add(subject.binding.workspace.field)
        written |= {row.field for row in subject.binding.scratch}
        fields: dict[str, Any] = {}
        for name, value in call.fields.items():
            if isinstance(value, Tensor):
                fields[name] = _tensor(value, output=name in written)
            else:
                fields[name] = value
        out.append({"case": str(fitted), "key": subject.key, "fields": fields})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(out), encoding="utf-8")


def _tensor(view: Tensor, output: bool) -> dict[str, Any]:
    tight = view.contiguous().cpu()
    size = tight.numel() * tight.element_size()
    data = b"" if output else ctypes.string_at(tight.data_ptr(), size)
    # A dimension that the view repeats keeps its stride of 0.
    strides = [0 if s == 0 else t for s, t in zip(view.stride(), tight.stride(), strict=True)]
    return {"bytes": size, "strides": strides, "data": base64.b64encode(data).decode()}
