"""What is judged once in another specialisation, and when it is judged again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.cuir.nodes import Module
from engine.gates.outcome import Found
from engine.lift import lift, load_package
from engine.service.session.other_specialisations import judged_elsewhere
from engine.spec.read import read_recipe
from engine.transfer.rules import plan

PACKAGE = load_package("flash_fwd_sm80")
SPEC = "from helper import SCALE\n\n\ndef attention(q, k, v):\n    return q * SCALE\n"


def test_a_module_that_the_spec_imports_takes_part_in_what_was_judged(tmp_path: Path) -> None:
    spec, helper = tmp_path / "spec.py", tmp_path / "helper.py"
    spec.write_text(SPEC)
    helper.write_text("SCALE = 1\n")
    lifted = lift(PACKAGE, "bf16_64", PACKAGE.archs[0])
    asked: list[Module] = []

    def ask_judge(module: Module, *_: Any, **__: Any) -> Found:
        asked.append(module)
        return Found(True, "equal", {"runs": []})

    work: Any = SimpleNamespace(
        lifted=lifted, package=PACKAGE, spec=spec, elsewhere={}, ask_judge=ask_judge,
        ruled=lambda: lifted.module, bench=SimpleNamespace(progress=lambda _: None),
        options=SimpleNamespace(spec={}, arch=PACKAGE.archs[0]),
    )  # fmt: skip
    assert PACKAGE.reference is not None
    binding = plan(lifted.module, read_recipe(PACKAGE.reference, {})).binding
    for changed, times in ((None, 1), (None, 1), (helper, 2), (spec, 3), (None, 3)):
        if changed is not None:
            changed.write_text(changed.read_text() + "\n# more\n")
        found = judged_elsewhere(work, lifted.module, binding, None)
        assert found is not None and found.ok
        assert len(asked) == times, changed
