"""Wrong edits of kernels that are executed as PTX: does a gate tell each from the right one?

    python benchmarks/wild_edits.py [KERNEL] [SPEC ...]

Kernels of ours (a plain one, and one with raw mma) carry specs by right edits, which must pass;
each wrong one changes a few characters of one, as a hand that slips would, and must fail. Writes
benchmarks/results/wild_edits.json: every edit, the gate's words, and how many passed. What was
judged already, of the same text at the same sizes, is not judged again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.wrong_edits.edit import Edited, Right, replaced  # noqa: E402
from benchmarks.wrong_edits.mma_kernel import MMA  # noqa: E402
from benchmarks.wrong_edits.plain_kernel import PLAIN  # noqa: E402
from engine.child.client import Child  # noqa: E402
from engine.errors import InputError  # noqa: E402
from engine.foreign.check import Asked  # noqa: E402
from engine.foreign.compile import Flags  # noqa: E402
from engine.graft.judge import judge_run  # noqa: E402

KERNELS = {"plain": PLAIN, "mma": MMA}
RESULTS = ROOT / "benchmarks" / "results" / "wild_edits.json"
RIGHT_ONE = "the right one"
SPECS = ROOT / "kernels" / "specs"


def sources(kernel: Edited, right: Right) -> Iterator[tuple[str, str]]:
    """The right source under the name "", then each wrong one."""
    text = (ROOT / kernel.source).read_text(encoding="utf-8")
    good = replaced(text, (*kernel.first, *right.edits))
    yield "", good
    for name, edits in right.wrong.items():
        yield name, replaced(good, edits)


def judge(kernel: Edited, right: Right, text: str, child: Child, folder: Path) -> tuple[bool, str]:
    """Whether it passes, and the gate's words."""
    source = folder / kernel.source.name
    source.write_text(text, encoding="utf-8")
    asked = Asked(source, Flags("sm_80"), reference=SPECS / f"{right.spec}.py", sizes=kernel.sizes,
                  options=right.options)  # fmt: skip
    try:
        found = judge_run(asked, child, lambda text: None).found
    except InputError as error:
        return False, error.message
    return found.ok, found.reason.replace(str(source), source.name)


def digest(kernel: Edited, right: Right, text: str) -> str:
    """What a row is of."""
    whole = json.dumps([text, list(map(dict, kernel.sizes)), right.spec, dict(right.options)])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def main() -> int:
    words = sys.argv[1:]
    chosen = [w for w in words if w in KERNELS] or list(KERNELS)
    specs = [w for w in words if w not in KERNELS]
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "{}"
    rows: dict[str, dict[str, Any]] = json.loads(text).get("edits", {})
    bad = 0
    with tempfile.TemporaryDirectory() as folder, Child() as child:
        for name in chosen:
            kernel = KERNELS[name]
            for right in kernel.rights:
                if specs and right.spec not in specs:
                    continue
                for wrong, source in sources(kernel, right):
                    key = f"{name}: {right.spec}: {wrong or RIGHT_ONE}"
                    of = digest(kernel, right, source)
                    if rows.get(key, {}).get("of") != of:
                        passed, said = judge(kernel, right, source, child, Path(folder))
                        rows[key] = {"of": of, "wrong": bool(wrong), "passed": passed, "said": said}
                        RESULTS.write_text(summed(rows), encoding="utf-8")
                        print("BAD" if passed == bool(wrong) else "ok ", key, said, flush=True)
                    bad += rows[key]["passed"] == bool(wrong)
    return 1 if bad else 0


def summed(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """All edits with what there is of them."""
    found = {
        "wrong edits": sum(r["wrong"] for r in rows.values()),
        "wrong passes": sum(r["wrong"] and r["passed"] for r in rows.values()),
        "right edits refused": sum(not r["wrong"] and not r["passed"] for r in rows.values()),
        "edits": rows,
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
