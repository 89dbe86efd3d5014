"""A verdict's proofs as lines: what was proven, what has a witness, what was only sampled."""

from __future__ import annotations

from cubridge_tui.model.proofs import proof_lines


def test_what_is_proven_is_one_line_and_each_other_goal_says_its_answer() -> None:
    goal = {"about": "the tile schedule", "goal": "visited tiles exist", "seconds": 0.02}
    lines = proof_lines(
        {
            "proofs": [
                goal | {"answer": "proven", "solver": "z3"},
                goal | {"answer": "proven", "goal": "tiles are visited once"},
                goal | {"answer": "proven", "arch": "sm_86"},
                goal | {"answer": "proven", "goal": "tiles are visited once", "arch": "sm_86"},
                goal | {"answer": "proven", "about": "the order of work", "arch": "sm_86"},
                goal | {"answer": "witness", "witness": {"Nq": 1, "Nk": 65}, "smallest": True},
                goal | {"answer": "unknown", "reason": "the budget is spent", "arch": "sm_86"},
            ],
            "sampled": [{"about": "the order of work", "why": "a loop", "sizes": 210}],
            "unreached": ["tile_index is not 0"],
        }
    )
    assert lines == [
        "proven    the tile schedule also on sm_86: visited tiles exist; tiles are visited once",
        "proven    the order of work on sm_86: visited tiles exist",
        "witness   the tile schedule: visited tiles exist; not at Nq 1, Nk 65 (0.02 s)",
        "unknown   the tile schedule: visited tiles exist; the budget is spent (0.02 s) on sm_86",
        "sampled   the order of work: sampled at 210 sizes: a loop",
        "unseen    no run has tile_index is not 0",
    ]
    assert proof_lines({"runs": []}) == []
