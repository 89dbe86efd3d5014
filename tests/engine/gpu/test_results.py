"""Results: verdicts come from rows, for exact bytes and one card; nothing is filled in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cubridge_tui.model import gpu_results
from engine.errors import InputError
from engine.gpu.bench_bars import groups_of, notes_of
from engine.gpu.job import Contents, hashes_of
from engine.gpu.predicted import resources_of, with_predictions
from engine.gpu.result import (
    differing,
    import_result,
    matching,
    merge,
    read_results,
    report,
    table,
    verdict_of,
)
from engine.gpu.schema import fault
from engine.types import Gate, Verdict, VerdictKind
from engine.worker.orchestration.checklist import (
    CHECKS,
    LISTS,
    OPTIONAL,
    SHORT,
    WHOLE,
    explained,
    required,
)
from engine.worker.orchestration.manifest import read_job
from engine.worker.orchestration.races import OF_SOURCE
from engine.worker.orchestration.results import Store, judge, outlives, write_result

DEVICE = {"name": "NVIDIA H100", "arch": "sm_90", "when": "2026-01-01T00:00:00+00:00"}


KEYS = ("bf16_64", "f16_64")
NO_DECK = ("build", "memcheck", "racecheck", "timed outputs")


def row(check: str, key: str = "bf16_64", verdict: str = "pass", **more: Any) -> dict[str, Any]:
    out = {"check": check, "specialisation": key, "verdict": verdict, "cases": 3, "seconds": 0.5}
    return {**out, **more}


def whole(lists: bool = False) -> list[dict[str, Any]]:
    """All that a result must hold, as a run makes it: the primary's rows on the whole deck."""
    out = []
    for key in KEYS:
        wanted = {*required(key, "bf16_64", True), *explained(key, "bf16_64", True, lists)}
        deck = {"deck": WHOLE if key == "bf16_64" else SHORT}
        out += [row(c, key, **({} if c in NO_DECK else deck)) for c in CHECKS if c in wanted]
    return out


def judged(rows: list[dict[str, Any]], lists: bool = False) -> tuple[str, str]:
    return judge(rows, KEYS, "bf16_64", True, (), True, lists)


def result_of(job: Path, rows: list[dict[str, Any]], device: dict[str, Any] = DEVICE) -> Any:
    store = Store(read_job(job), device, fresh=True)
    for item in rows:
        store.add("checks", item)
    return store.result("complete")


def test_required_checks() -> None:
    primary = required("a", "a", True)
    assert set(primary) == set(CHECKS) - set(OPTIONAL)
    assert "own kernels" not in required("b", "a", True)
    assert "lse" not in required("a", "a", False)
    assert set(primary) - set(required("a", "a", True, theirs=True)) == {"layouts"}
    assert "layouts" in explained("a", "a", theirs=True)


def test_layouts_withhold_nothing_of_someone_else_s_launcher_if_it_is_said() -> None:
    rows = whole()
    at = [r for r in rows if r["check"] == "layouts"]
    for r in at:
        r |= {"verdict": "not_run", "cases": 0, "reason": "contiguous tensors alone"}
    given = (KEYS, "bf16_64", True, (), True, False)
    assert judge(rows, *given)[0] == "not_run"
    kind, reason = judge(rows, *given, theirs=True)
    assert kind == "pass" and "not run: layouts" in reason
    del at[0]["reason"]
    assert judge(rows, *given, theirs=True)[0] == "not_run"


@pytest.mark.parametrize("lists", [False, True])
def test_a_whole_result_passes_and_any_hole_does_not(lists: bool) -> None:
    rows = whole(lists)
    kind, reason = judged(rows, lists)
    assert (kind, reason) == ("pass", f"{len(rows)} checks on {3 * len(rows)} cases")
    names = {r["check"] for r in rows if r["specialisation"] == "bf16_64"}
    assert names == set(CHECKS) - (set() if lists else set(LISTS))
    for n, gone in enumerate(rows):
        kind, reason = judged(rows[:n] + rows[n + 1 :], lists)
        assert kind == "not_run" and f"{gone['specialisation']} {gone['check']}" in reason
        assert ("neither a verdict nor a reason" in reason) == (gone["check"] in OPTIONAL)
        # Not run, without a word why: the same hole.
        mute = [*rows[:n], gone | {"verdict": "not_run", "cases": 0}, *rows[n + 1 :]]
        assert judged(mute, lists)[0] == "not_run"
        # With the reason a row that may be left out withholds nothing, and is named.
        mute[n] = mute[n] | {"reason": "not on this machine"}
        kind, reason = judged(mute, lists)
        assert kind == ("pass" if gone["check"] in OPTIONAL else "not_run")
        assert gone["check"] in reason
    assert judge([], ("bf16_64",), "bf16_64", True)[0] == "not_run"
    assert judge(rows, (), "bf16_64", True)[0] == "not_run"
    assert judge(rows, ("f16_64",), "bf16_64", True)[0] == "not_run"


def test_all_that_may_be_left_out_left_out_without_a_word_is_no_pass() -> None:
    rows = [r for r in whole(lists=True) if r["check"] not in OPTIONAL]
    kind, reason = judged(rows, lists=True)
    assert kind == "not_run" and all(f"bf16_64 {check}" in reason for check in OPTIONAL)
    # A result that does not say whether there are lists is asked for their rows where any is.
    one = [*rows, row("stale lists", "f16_64")]
    result = {"checks": one, "keys": KEYS, "primary": "bf16_64", "hashes": {"recipe": "0"}}
    assert "bf16_64 held lists" in verdict_of(result)[1]
    assert "held lists" in verdict_of(result | {"checks": rows, "lists": True})[1]
    assert "held lists" not in verdict_of(result | {"checks": rows})[1]
    assert "held lists" in verdict_of(result | {"checks": rows, "cuir": "a\n    planned: i32\n"})[1]


def test_the_short_deck_is_no_pass_of_the_primary() -> None:
    for n, one in enumerate(whole()):
        if one["specialisation"] == "bf16_64" and "deck" in one:
            rows = whole()
            rows[n]["deck"] = SHORT
            kind, reason = judged(rows)
            assert kind == "not_run" and "bf16_64 has only the short deck (--quick)" in reason
    # Rows of before there was the field count as of the whole deck; a short one of that time has
    # no row of far offsets.
    old = [{k: v for k, v in r.items() if k != "deck"} for r in whole()]
    assert judged(old)[0] == "pass"
    kind, reason = judged([r for r in old if r["check"] != "far offsets"])
    assert kind == "not_run" and "bf16_64 far offsets" in reason


def test_what_was_done_outlives_what_was_not() -> None:
    done = row("graph", deck=WHOLE)
    unrun = row("graph", verdict="not_run", reason="no memory", deck=WHOLE)
    bad = row("graph", verdict="fail")
    short = row("graph", deck=SHORT)
    assert outlives(done, unrun) and outlives(bad, unrun) and not outlives(unrun, done)
    assert outlives(done, short) and outlives(bad | {"deck": WHOLE}, short)
    assert outlives(unrun, unrun | {"deck": SHORT})
    assert not outlives(short, done) and not outlives(done, done)
    assert not any(outlives(old, bad) for old in (done, unrun, short))
    timed, absent = {"case": "a", "name": "x", "ms": 1.0}, {"case": "a", "name": "x", "reason": "?"}
    assert outlives(timed, absent) and not outlives(absent, timed) and not outlives(timed, timed)


def test_any_failed_row_fails_also_an_optional_one() -> None:
    for check in CHECKS:
        rows = [r for r in whole() if (r["check"], r["specialisation"]) != (check, "bf16_64")]
        rows.append(row(check, verdict="fail", failures=["at b 0 h 1"]))
        kind, reason = judged(rows)
        assert kind == "fail" and check in reason and "at b 0 h 1" in reason


def test_a_missing_tool_is_named_and_withholds_nothing() -> None:
    rows = [*whole(), row("racecheck", verdict="not_run", cases=0, reason="not on this machine")]
    kind, reason = judged(rows)
    assert kind == "pass" and "not run: racecheck" in reason


def test_races_that_the_unedited_source_has_too_are_counted() -> None:
    rows = [*whole(), row("racecheck", notes={OF_SOURCE: ["Read x.h:1, Write x.h:2"]})]
    kind, reason = judged(rows)
    assert kind == "pass" and f"racecheck reports 1, each {OF_SOURCE}" in reason


def test_fewer_specialisations_are_named() -> None:
    rows = [r for r in whole() if r["specialisation"] == "bf16_64"]
    kind, reason = judge(rows, ("bf16_64",), "bf16_64", True, ("f16_64", "bf16_64"), True, False)
    assert kind == "pass" and "of 2 specialisations only bf16_64" in reason


def test_rows_survive_a_run_that_was_cut_off(job: Path) -> None:
    first = Store(read_job(job), DEVICE, fresh=True)
    for item in whole()[:5]:
        first.add("checks", item)
    with first.path.open("a") as file:
        file.write('{"hashes": {"ker')
    again = Store(read_job(job), DEVICE, fresh=False)
    assert again.checks == whole()[:5]
    assert not again.has_checks("bf16_64")
    for item in whole()[5:]:
        again.add("checks", item)
    assert again.has_checks("bf16_64") and again.has_checks("f16_64")
    other = Store(read_job(job), {**DEVICE, "name": "NVIDIA A100"}, fresh=False)
    assert other.checks == []  # never filled from another card


def test_a_run_goes_on_from_whole_rows_alone(job: Path) -> None:
    """What a verifying child has to make: each of its rows is asked for, and its deck."""
    late = ("build", "memcheck", "racecheck", "timed outputs")  # made beside it, in every run
    for n, one in enumerate(whole()):
        key = one["specialisation"]
        unnamed = {k: v for k, v in one.items() if k != "deck"}  # of an earlier version
        mute = one | {"verdict": "not_run", "cases": 0}
        for changed in (None, one | {"deck": SHORT}, unnamed, mute, one | {"verdict": "fail"}):
            store = Store(read_job(job), DEVICE, fresh=True)
            store.checks = [r for m, r in enumerate(whole()) if m != n]
            store.checks += [changed] if changed else []
            deck = changed is not None and changed["verdict"] == "pass"
            good = one["check"] in late or (deck and key != "bf16_64")
            assert store.has_checks(key) == good, (one, changed)


def test_rows_of_other_bytes_are_not_taken_up(job: Path) -> None:
    store = Store(read_job(job), DEVICE, fresh=True)
    store.add("checks", row("accuracy"))
    lines = store.path.read_text().replace(read_job(job).hashes["kernel"], "f" * 64)
    store.path.write_text(lines)
    assert Store(read_job(job), DEVICE, fresh=False).checks == []


def test_a_failed_row_is_replaced_when_it_runs_again(job: Path) -> None:
    store = Store(read_job(job), DEVICE, fresh=True)
    store.add("checks", row("accuracy", verdict="fail"))
    store.add("checks", row("accuracy"))
    assert [r["verdict"] for r in store.checks] == ["pass"]


def test_import_gives_the_rows_verdict(contents: Contents, job: Path, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(path, result_of(job, whole()))
    expected = hashes_of(contents)
    found = matching(read_results(path), expected, path)
    verdict = import_result(found, expected, (("artifact", "a"), ("spec", "b")), path)
    assert verdict.gate is Gate.G4 and verdict.kind is VerdictKind.PASS
    assert "NVIDIA H100 (sm_90)" in verdict.reason
    assert verdict.subject == (("artifact", "a"), ("spec", "b"))
    assert Verdict.from_json(verdict.to_json()) == verdict


def test_what_a_file_says_of_itself_is_not_believed(
    contents: Contents, job: Path, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    data = result_of(job, [*whole()[1:], row("accuracy", verdict="fail", failures=["wrong"])])
    data |= {"verdict": "pass", "reason": "all is well"}
    write_result(path, data)
    expected = hashes_of(contents)
    verdict = import_result(read_results(path)[0], expected, (), path)
    assert verdict.kind is VerdictKind.FAIL and "wrong" in verdict.reason


@pytest.mark.parametrize("name", ["kernel", "headers", "spec", "recipe", "binding", "options"])
def test_a_result_for_other_bytes_is_refused(
    contents: Contents, job: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "result.json"
    data = result_of(job, whole())
    data["hashes"][name] = "e" * 64
    write_result(path, data)
    expected = hashes_of(contents)
    assert differing(data, expected) == [name]
    with pytest.raises(InputError, match="for other bytes") as found:
        import_result(read_results(path)[0], expected, (), path)
    assert "eeeeeeeeeeee there" in str(found.value) and str(path) in str(found.value)
    del data["hashes"][name]
    assert differing(data, expected) == [name]


def test_the_right_one_of_many_is_found(contents: Contents, job: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    mine = result_of(job, whole())
    other = json.loads(json.dumps(mine))
    other["hashes"]["kernel"] = "0" * 64
    write_result(path, {"kind": "cubridge-gpu-results", "results": [other, mine]})
    found = matching(read_results(path), hashes_of(contents), path)
    assert found["hashes"] == mine["hashes"]


def test_partial_results_of_one_card_merge(contents: Contents, job: Path) -> None:
    a, b = result_of(job, whole()[:9]), result_of(job, whole()[7:])
    assert verdict_of(a)[0] == "not_run"
    assert merge([a, b])["verdict"] == "pass"
    # A quick run of the same bytes takes nothing away, and adds no pass.
    quick = [r | ({"deck": SHORT} if "deck" in r else {}) for r in whole()]
    assert merge([a, b, result_of(job, quick)])["verdict"] == "pass"
    assert merge([a, result_of(job, quick)])["verdict"] == "not_run"
    bad = result_of(job, [row("accuracy", verdict="fail", failures=["x"])])
    assert merge([bad, a, b])["verdict"] == "fail"
    assert merge([a, b, bad])["verdict"] == "fail"


def test_cards_and_bytes_do_not_mix(contents: Contents, job: Path, tmp_path: Path) -> None:
    a = result_of(job, whole()[:9])
    b = result_of(job, whole()[7:], {**DEVICE, "name": "NVIDIA A100"})
    with pytest.raises(InputError, match="do not merge"):
        merge([a, b])
    other = json.loads(json.dumps(a))
    other["hashes"]["spec"] = "1" * 64
    with pytest.raises(InputError, match="different bytes"):
        merge([a, other])
    # Of results from two cards the newest card's alone count.
    b["device"]["when"] = "2026-02-01T00:00:00+00:00"
    found = matching([a, b], hashes_of(contents), tmp_path / "r.json")
    assert found["device"]["name"] == "NVIDIA A100" and verdict_of(found)[0] == "not_run"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"kind": "cubridge-gpu-result"}', '{"kind": "cubridge-gpu-results"}',
     '{"kind": "cubridge-gpu-results", "results": [3]}', "[" * 100_000,
     '{"kind": "cubridge-gpu-result", "schema": 2}'],
)  # fmt: skip
def test_a_damaged_result_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError) as found:
        read_results(path)
    assert str(path) in str(found.value) and found.value.fix
    with pytest.raises(InputError, match="cannot be read"):
        read_results(tmp_path / "none.json")


def true_result(job: Path) -> dict[str, Any]:
    """A result with every kind of row, as a job writes it."""
    accuracy = row("accuracy", worst=0.5, worst_case="S 8", notes={"integers": [1, "n"]})
    built = row("build", notes={"resources": [
        {"specialisation": "bf16_64", "registers": 168, "spill_stores": 0, "spill_loads": 0}
    ]})  # fmt: skip
    rows = [r for r in whole() if r["check"] not in ("accuracy", "build")]
    failed = row("racecheck", verdict="fail", cases=0, failures=["at S 8"], failed=1)
    data = result_of(job, [*rows, accuracy, built, failed])
    sizes = {"B": 1, "Hq": 8, "Hkv": 8, "Nq": 1024, "Nk": 1024, "D": 64}
    ours = {
        "case": "S 8", "name": "CuBridge", "ms": 2.0, "iqr_ms": 0.1, "tflops": 300.0,
        "ours_is": 1.0, "of_floor": 0.4, "matmul_tflops": 600.0, "flops": 1e9, "sizes": sizes,
        "mask": "causal", "clocks": {"before": {"sm": 1980}, "after": None},
    }  # fmt: skip
    rival = {"case": "S 8", "name": "SDPA", "ms": 1.0, "iqr_ms": 0.1, "tflops": 600.0}
    none = {"case": "S 8", "name": "cuDNN", "reason": "takes no mask"}
    data["times"] = [ours, {**rival, "ours_is": 0.5}, none]
    data["self_test"] = [{"mutant": "mask", "verdict": "pass", "reason": "rejected"}]
    out: dict[str, Any] = json.loads(json.dumps(data))
    return out


def places_of(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the root aside."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [p for k, v in items for p in ((*at, k), *places_of(v, (*at, k)))]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([10**400, 2**63, -1, 1e308, 1e-320, "\ud800", "pass", "CuBridge", 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)  # fmt: skip


@settings(
    deadline=None, max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(data=st.data())
def test_no_change_of_a_true_result_is_more_than_one_clear_error(
    data: st.DataObject, contents: Contents, job: Path, tmp_path: Path
) -> None:
    made = true_result(job)
    for _ in range(data.draw(st.integers(1, 3))):
        *to, last = data.draw(st.sampled_from(places_of(made)))
        holder = made
        for key in to:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[last] = data.draw(ODD)
        else:
            del holder[last]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(made))
    expected = hashes_of(contents)
    try:
        (found,) = read_results(path)
        assert report(found) and verdict_of(found)[0] in ("pass", "fail", "not_run")
        predicted = with_predictions(found)
        assert table(predicted) and groups_of(predicted["times"], predicted["device"])
        assert notes_of(found["device"], found["method"])
        resources_of(found)
        verdict = import_result(matching([found, found], expected, path), expected, (), path)
        assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
        assert gpu_results.table(verdict).rows and gpu_results.bars(verdict.details, 80).rows
    except InputError as error:
        assert str(path) in str(error)


def test_a_true_result_is_whole(job: Path) -> None:
    assert fault(true_result(job)) == ""


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("checks", 0, "seconds"), "x", r"checks\[0\]\.seconds is no number"),
        (("checks", 0, "seconds"), float("inf"), "is not finite"),
        (("checks", 0, "failures"), 5, "is no list"),
        (("checks", 0, "verdict"), "marvellous", "none of pass, fail, not_run"),
        (("declared",), 5, "declared is no list"),
        (("device", "name"), ["x"], r"device\.name is no text"),
        (("times", 0, "tflops"), "z", r"times\[0\]\.tflops is no number"),
        (("times", 0, "ms"), -5, "out of range"),
        (("times", 1, "ours_is"), "x", "is no number"),
        (("times", 0, "sizes", "Nk"), 2**40, "out of range"),
        (("hashes", "kernel"), 5, r"hashes\.kernel is no text"),
        (("reason",), "\ud800", "half a character"),
    ],
)
def test_a_damaged_field_is_named_with_its_place(
    place: tuple[Any, ...], value: Any, words: str, job: Path, tmp_path: Path
) -> None:
    made = true_result(job)
    holder = made
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    path = tmp_path / "result.json"
    for whole_file in (made, {"kind": "cubridge-gpu-results", "results": [made]}):
        path.write_text(json.dumps(whole_file))
        with pytest.raises(InputError, match=words) as found:
            read_results(path)
        assert found.value.fix


def test_report_and_table_are_lines(job: Path) -> None:
    data = result_of(job, [*whole(), row("memcheck", verdict="not_run", reason="no tool")])
    data["times"] = [
        {"case": "S 8", "name": "CuBridge", "ms": 2.0, "iqr_ms": 0.1, "tflops": 300.0,
         "ours_is": 1.0, "of_floor": 0.4},
        {"case": "S 8", "name": "FlexAttention", "ms": 1.0, "iqr_ms": 0.1, "tflops": 600.0,
         "ours_is": 0.5},
        {"case": "S 8", "name": "SDPA cuDNN", "reason": "takes no mask"},
    ]  # fmt: skip
    data["self_test"] = [{"mutant": "mask", "verdict": "pass", "reason": "rejected by keep sets"}]
    lines = report(data)
    assert lines[0].startswith("flash-causal: pass")
    assert any("mutant mask" in line for line in lines)
    rows = table(data)
    assert rows[1].split()[0] == "CuBridge" and "ours is 0.50 x" in rows[2]
    assert "takes no mask" in rows[3]
