"""Workspaces, held lists and captured launches, on a kernel made of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.transfer.binding import SLOTS, Workspace
from engine.worker.launches.graphs import check_graph
from engine.worker.launches.specialisation import Subject
from engine.worker.problems import problem_sizes as cases
from engine.worker.problems.problem_sizes import Case
from engine.worker.verification.checks import check_held, check_numbers, check_repeats, check_stale
from tests.engine.gpu.fakes import Fake, subject

SPACE = Workspace(
    "lists", ("B", "ceil_div(Nq, BM)", "2 + 3 * ceil_div(Nk, BN) + 4 * BM * slots"), "planned",
    "slots",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "REPEAT_CASE", Case(1, 2, 1, 65, 70, seed=1))


def with_lists(tmp_path: Path, finish: Callable[[Fake, Mapping[str, Any]], None]) -> Subject:
    """A subject whose kernel keeps a word of its own in a workspace."""
    made = subject(tmp_path, Fake(finish=finish))
    binding = replace(made.binding, workspace=SPACE)
    return replace(made, binding=binding, constants={"BM": 64, "BN": 32})


def right(fake: Fake, fields: Mapping[str, Any]) -> None:
    assert fields["slots"] == SLOTS
    if fields["planned"]:
        assert int(fields["lists"][0, 0, 0]) == 7, "the lists of an earlier launch"
    else:
        fields["lists"][0, 0, 0] = 7


def test_the_workspace_has_the_size_of_the_case(tmp_path: Path) -> None:
    made = with_lists(tmp_path, right)
    call, _ = made.call(Case(2, 2, 1, 65, 70, seed=1))
    assert call.workspace is not None
    assert call.workspace.tensor.shape == (2, 2, 2 + 3 * 3 + 4 * 64 * SLOTS)
    assert call.fields["planned"] == 0 and call.held["planned"] == 1


def test_a_run_starts_from_a_workspace_that_holds_nothing(tmp_path: Path) -> None:
    seen: list[int] = []
    made = with_lists(tmp_path, lambda fake, fields: seen.append(int(fields["lists"].max())))
    call, _ = made.call(cases.REPEAT_CASE)
    for held in (False, True, False):
        call.run(held=held)
        call.fields["lists"].fill_(5)
    assert seen == [-1, 5, -1]


def test_a_right_kernel_passes(tmp_path: Path) -> None:
    made = with_lists(tmp_path, right)
    check_held(made)
    check_repeats(made)
    assert made.tallies["held lists"].row()["verdict"] == "pass"
    assert made.tallies["repeats"].row()["verdict"] == "pass"


def _rebuilds(fake: Fake, fields: Mapping[str, Any]) -> None:
    fields["lists"][0, 0, 0] = fake.calls


def _forgets(fake: Fake, fields: Mapping[str, Any]) -> None:
    if fields["planned"]:
        fields["o"].mul_(0.5)


@pytest.mark.parametrize("broken", [_rebuilds, _forgets])
def test_held_lists_that_do_not_hold_fail(
    tmp_path: Path, broken: Callable[[Fake, Mapping[str, Any]], None]
) -> None:
    made = with_lists(tmp_path, broken)
    check_held(made)
    assert made.tallies["held lists"].row()["verdict"] == "fail"


def test_bytes_beside_the_workspace_are_seen(tmp_path: Path) -> None:
    def beyond(fake: Fake, fields: Mapping[str, Any]) -> None:
        lists = fields["lists"]
        lists.as_strided((1,), (1,), lists.storage_offset() + lists.numel())[0] = 3

    made = with_lists(tmp_path, beyond)
    call, _ = made.call(Case(2, 2, 1, 65, 70, seed=1))
    call.run()
    assert call.touched_outside() == {"workspace": 4}


def _believes(fake: Fake, fields: Mapping[str, Any]) -> None:
    """A class that was never written: 0 drops a tile."""
    if int(fields["lists"][0, 0, 1]) == 0:
        fields["o"].mul_(0.5)


def _remembers(fake: Fake, fields: Mapping[str, Any]) -> None:
    """A list that is made once."""
    lists = fields["lists"]
    if int(lists[0, 0, 0]) != 7:
        lists[0, 0, 0] = 7
        fake.memory["q"] = fields["q"].clone()
    fields["o"].add_(float((fake.memory["q"] != fields["q"]).any()))


def test_what_the_workspace_held_does_not_matter(tmp_path: Path) -> None:
    made = with_lists(tmp_path, lambda fake, fields: None)
    check_stale(made)
    row = made.tallies["stale lists"].row()
    assert row["verdict"] == "pass" and row["cases"] == 10


@pytest.mark.parametrize("broken", [_believes, _remembers])
def test_lists_that_believe_what_lay_there_fail(
    tmp_path: Path, broken: Callable[[Fake, Mapping[str, Any]], None]
) -> None:
    made = with_lists(tmp_path, broken)
    check_stale(made)
    assert made.tallies["stale lists"].row()["verdict"] == "fail"


def test_the_numbers_are_judged_on_many_tiles_and_few_slots(tmp_path: Path) -> None:
    seen: set[tuple[int, int, int]] = set()

    def look(fake: Fake, fields: Mapping[str, Any]) -> None:
        word = int(fields["lists"][0, 0, 0]) if fields["lists"].numel() else 0
        seen.add((fields["Nk"], fields["slots"], word))

    check_numbers(with_lists(tmp_path, look))
    assert {(n, slots) for n, slots, _ in seen} >= {(70 * 32 + 3, s) for s in (SLOTS, 1, 0)}
    assert {word for _, _, word in seen} >= {0, 2, 3 + SLOTS, -1}


def _replayed(launch: Callable[[], int]) -> Callable[[], None]:
    def replay() -> None:
        launch()

    return replay


def _never(launch: Callable[[], int]) -> Callable[[], None]:
    launch()
    return lambda: None


def test_a_replay_is_held_to_a_launch(tmp_path: Path) -> None:
    assert check_graph(with_lists(tmp_path, right), _replayed)["verdict"] == "pass"
    assert check_graph(with_lists(tmp_path, right), _never)["verdict"] == "fail"
    assert check_graph(subject(tmp_path, Fake()), _replayed)["verdict"] == "pass"


def test_a_replay_of_old_inputs_fails(tmp_path: Path) -> None:
    def frozen(launch: Callable[[], int]) -> Callable[[], None]:
        return lambda: stale()

    made = with_lists(tmp_path, right)
    assert made.repeat_case is not None
    call, _ = made.call(made.repeat_case)
    call.run()
    first = call.o.clone()
    held: list[Any] = []
    make = made.made

    def remember(*given: Any) -> Any:
        held.append(make(*given))
        return held[-1]

    object.__setattr__(made, "made", remember)

    def stale() -> None:
        held[-1].o.copy_(first)

    assert check_graph(made, frozen)["verdict"] == "fail"


def test_a_launch_that_cannot_be_captured_fails(tmp_path: Path) -> None:
    def refuse(launch: Callable[[], int]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    row = check_graph(subject(tmp_path, Fake()), refuse)
    assert row["verdict"] == "fail" and "not permitted" in row["failures"][0]
    assert torch.get_num_threads() == 1
