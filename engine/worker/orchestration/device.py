"""The card and its software, as a result names them."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
from typing import Any

from engine.worker.orchestration.children import last_line
from engine.worker.orchestration.manifest import JobError
from engine.worker.orchestration.rates import peak_tflops


def describe_device() -> dict[str, Any]:
    """The card and its software, from a child that imports torch.

    Raises:
        JobError: no torch, or no GPU that it can use.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PROBE],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        said = last_line(done.stderr)
        if "No module named 'torch'" in said:
            raise JobError(
                f"{sys.executable} has no torch: start the job with a Python that has it"
            )
        raise JobError(f"torch finds no GPU here: {said}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    found["driver"] = _nvidia_smi("driver_version")
    found["power_limit"] = _nvidia_smi("power.limit")
    found["clocks_max_sm"] = _nvidia_smi("clocks.max.sm")
    found["python"] = platform.python_version()
    found["when"] = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    return found


def peak_here() -> float | None:
    """TFLOP/s that this card's matmuls cannot pass; None where nothing says."""
    import torch

    card = torch.cuda.get_device_properties(0)
    return peak_tflops({
        "capability": (card.major, card.minor), "multiprocessors": card.multi_processor_count,
        "clocks_max_sm": _nvidia_smi("clocks.max.sm"),
    })  # fmt: skip


_PROBE = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({
    "name": p.name, "capability": [p.major, p.minor], "multiprocessors": p.multi_processor_count,
    "memory_bytes": p.total_memory, "l2_bytes": getattr(p, "L2_cache_size", 0),
    "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
}))
"""


def _nvidia_smi(query: str) -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "unknown"
    command = [tool, "-i", "0", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"
