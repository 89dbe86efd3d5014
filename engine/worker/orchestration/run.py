"""Run this job: `python3 run.py [--out result.json]`; see `python3 run.py --help`.

Needs Python 3.10, torch and nvcc; everything else is in this folder. Nothing is imported from the
current folder.
"""

import math
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILDREN = {
    "verify": "verification.verify",
    "bench": "contests.bench",
    "sanitize": "verification.sanitize",
}


def start() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036 - the GPU machine's Python is its own
        print("run.py: Python 3.10 or newer is needed", file=sys.stderr)
        return 2
    # New in Python 3.11; the scalar language names it.
    vars(math).setdefault("exp2", lambda x: 2.0**x)
    # The script's own folder is out, the worker that came with the job is in.
    sys.path[0] = str(HERE / "worker")
    words = sys.argv[1:]
    if words[:1] == ["--child"]:
        from importlib import import_module

        if len(words) < 2 or words[1] not in CHILDREN:
            print(f"run.py: --child is one of {', '.join(CHILDREN)}", file=sys.stderr)
            return 2
        code: int = import_module(f"engine.worker.{CHILDREN[words[1]]}").main(words[2:])
        return code
    from engine.worker.orchestration.main import main

    return main(words, HERE)


if __name__ == "__main__":
    sys.exit(start())
