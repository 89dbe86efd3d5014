"""Make `docs/session.html`, one adaptation as `cubridge replay SESSION --html` writes it:
`python docs/make_session_page.py`.

The engine is the real one (a minute or two; G3 needs nvcc, and says so where there is none): the
hunks of a rule are rejected, G2 finds what they were for, the rejection is undone, and the rest
goes its way.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cubridge_tui.cli import main
from engine.service.session.adaptation import Adaptation, start
from engine.service.session.session_options import choose_options
from engine.service.session.workbench import Bench, find_kernel, find_spec
from engine.types import Decision, DecisionKind
from sessions.store import Store

PAGE = Path(__file__).resolve().parent / "session.html"
WHO = "person"


def adapt(store: Store) -> str:
    """The session, in the store; its id."""
    package = find_kernel("flash_fwd_sm80")
    with Bench(store, progress=print) as bench:
        options = choose_options(package, only=True)
        session = start(bench, package, find_spec("softcap_causal"), options, WHO)
        with store.writer(session) as writer:
            work = Adaptation(bench, writer, WHO)
            work.lift()
            proposal = work.propose_by_rules()
            guards = [h for h in proposal.hunks if h.title.startswith("Guard rows")]
            kept = [h for h in proposal.hunks if h not in guards]
            work.decide(*(_decision(h.id, DecisionKind.ACCEPTED) for h in kept))
            why = "does a causal mask leave rows without a key?"
            work.decide(*(_decision(h.id, DecisionKind.REJECTED, why) for h in guards))
            work.judge_target()
            work.undo()
            why = "it does, where Nq > Nk"
            work.decide(*(_decision(h.id, DecisionKind.ACCEPTED, why) for h in guards))
            work.judge_target()
            work.judge_lowered(work.lower())
    return session


def _decision(hunk: str, kind: DecisionKind, comment: str = "") -> Decision:
    return Decision(f"rules/{hunk}", kind, WHO, comment)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUBRIDGE_STORE"] = f"{folder}/store.git"
        session = adapt(Store.open())
        raise SystemExit(main(["replay", session, "--html", str(PAGE)]))
