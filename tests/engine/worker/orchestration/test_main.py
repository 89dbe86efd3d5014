"""The orchestrator, with programs that stand for nvcc and the GPU: builds, hangs, crashes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.build.tools.toolchain import Toolchain
from engine.gpu.job import Contents, ForeignJob, pack
from engine.resources import kernel_dir, list_kernels
from engine.worker.orchestration import building, device, main, sanitizer
from engine.worker.orchestration.building import build, resources
from engine.worker.orchestration.checklist import BY_RUN, CHECKS, explained, required
from engine.worker.orchestration.children import Child, last_line
from engine.worker.orchestration.job_options import parser
from engine.worker.orchestration.main import self_test_missed
from engine.worker.orchestration.manifest import JobError, read_job
from engine.worker.orchestration.mutants import mutants_of
from engine.worker.orchestration.sanitizer import sanitizer_rows
from engine.worker.problems.terms import Terms
from tests.engine.gpu.conftest import replace_file

Program = Callable[[str, str], Path]

NVCC = f"""#!{sys.executable}
import pathlib, sys
if "--version" in sys.argv:
    print("Build, V13.0.88,")
    sys.exit(0)
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
source = next((a for a in sys.argv if a.endswith((".cu", ".cpp"))), None)
with open(pathlib.Path(__file__).with_name("calls"), "a") as file:
    file.write(out.name + "\\n")
text = pathlib.Path(source).read_text() if source else ""
kernel = out.parent / "kernel.cu"
if kernel.exists():
    text += kernel.read_text()
if "#error" in text:
    print(f"{{source}}(1): error: not today")
    sys.exit(1)
print("ptxas info    : 8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads")
print("ptxas info    : Used 96 registers, used 1 barriers")
out.write_text("library")
"""
# A child that tells the rows of its plan and obeys it in all else.
CHILD = """
import json, pathlib, sys, time
kind, folder, library, key, *rest = sys.argv[2:]
here = pathlib.Path(folder)
plan = json.loads((here / "plan.json").read_text())
def tell(**what):
    print(json.dumps(what), flush=True)
if kind == "verify":
    mutant = "mutant" in library
    with open(here / "log", "a") as file:
        file.write(f"{key} {'mutant' if mutant else ''}\\n")
    tell(event="step", text="numbers: first")
    what = plan.get(key, "pass")
    if what == "hang":
        time.sleep(60)
    if what == "crash":
        tell(event="step", text="keep sets: B1")
        print("CUDA error: an illegal memory access")
        sys.exit(1)
    if what == "error":
        tell(event="error", text="RuntimeError: boom")
        sys.exit(1)
    for check in plan["required"][key]:
        bad = what == check or (mutant and check in plan["seen"])
        row = {"check": check, "specialisation": key, "verdict": "fail" if bad else "pass",
               "cases": 2, "seconds": 0.1}
        if bad:
            row["failures"] = ["as planned"]
        tell(event="row", row=row)
    (here / "work" / "sanitize.json").write_text("[]")
    tell(event="done", key=key)
if kind == "bench":
    tell(event="step", text="preparing")
    with open(here / "timers", "a") as file:
        file.write("started\\n")
    if len((here / "timers").read_text().split()) <= plan.get("crowded", 0):
        if "said" in plan:
            tell(event="error", text=plan["said"])
        if "late" in plan:
            tell(event="ready")
            sys.stdin.readline()
        print("the last of its words", file=sys.stderr)
        sys.exit(1)
    tell(event="ready")
    assert sys.stdin.readline().strip() == "go"
    (here / "asked.json").write_text(rest[0])
    lengths = json.loads(rest[0])["lengths"]
    for n in lengths:
        tell(event="row", row={"case": f"S {n}", "name": "CuBridge", "ms": 1.0, "iqr_ms": 0.1,
                               "tflops": 300.0})
        tell(event="row", row={"case": f"S {n}", "name": "SDPA cuDNN", "reason": "no"})
    tell(event="check", row={"check": "timed outputs", "specialisation": key, "verdict": "pass",
                             "cases": 1, "seconds": 0.0})
"""
DEVICE = {"name": "NVIDIA H100", "capability": [9, 0], "when": "now"}


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, program: Program, job: Path
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run the orchestrator on `job`; gives the exit code and the result."""
    nvcc = program("nvcc", NVCC)
    monkeypatch.setattr(building, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(main, "find_nvcc", lambda: nvcc)
    monkeypatch.setattr(main, "describe_device", lambda: dict(DEVICE))
    monkeypatch.setattr(main, "SILENCE", 3.0)
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)

    def run(*words: str, folder: Path = job, **plan: Any) -> tuple[int, dict[str, Any]]:
        prepare(folder, **plan)
        code = main.main(list(words), folder)
        return code, json.loads((folder / "result.json").read_text())

    return run


@pytest.fixture
def sanitized(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compute-sanitizer that finds nothing."""
    tool = program("compute-sanitizer", SANITIZER.format(mode="clean"))
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: str(tool))


def prepare(job: Path, **plan: Any) -> None:
    replace_file(job, "run.py", CHILD.encode())
    keys = {}
    for key in ("bf16_64", "f16_64"):
        told = {*required(key, "bf16_64", True), *explained(key, "bf16_64", True, False)}
        keys[key] = [c for c in CHECKS if c in told - {"build", *BY_RUN}]
    (job / "plan.json").write_text(json.dumps({"required": keys, "seen": [], **plan}))


def runs(job: Path) -> list[str]:
    return sorted(line.strip() for line in (job / "log").read_text().splitlines())


def test_a_whole_run(here: Callable[..., Any], job: Path) -> None:
    code, result = here()
    assert code == 0 and result["verdict"] == "pass", result["reason"]
    assert result["state"] == "complete" and result["device"]["arch"] == "sm_90"
    assert result["hashes"] == dict(read_job(job).hashes)
    assert {r["specialisation"] for r in result["checks"]} == {"bf16_64", "f16_64"}
    built = next(r for r in result["checks"] if r["check"] == "build")
    assert built["notes"]["resources"][0]["registers"] == 96
    assert [r["name"] for r in result["times"]] == ["CuBridge", "SDPA cuDNN"] * 2
    assert "memcheck" in result["reason"]  # not run here, and said so


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("--no-sanitizer",), {"memcheck", "racecheck"}),
        (("--no-bench",), {"timed outputs"}),
        (("--no-bench", "--no-sanitizer"), {"memcheck", "racecheck", "timed outputs"}),
    ],
)
def test_what_an_option_leaves_out_has_a_row_that_names_it(
    here: Callable[..., Any], sanitized: None, words: tuple[str, ...], left: set[str]
) -> None:
    code, result = here(*words)
    unrun = {r["check"]: r["reason"] for r in result["checks"] if r["verdict"] == "not_run"}
    assert code == 0 and set(unrun) == left, result["reason"]
    asked = {"timed outputs": "times", "memcheck": "sanitizers", "racecheck": "sanitizers"}
    for check, reason in unrun.items():  # the app shows it: no option of a command line
        assert reason == f"{asked[check]} were not asked for"
    assert f"not run: {', '.join(sorted(left))}" in result["reason"]
    # What a later run makes takes its place, and one that leaves it out again does not undo that.
    assert "not run" not in here()[1]["reason"] and "not run" not in here(*words)[1]["reason"]


@pytest.mark.parametrize("gone", ["graph", "far offsets"])
def test_a_row_that_a_child_leaves_out_is_missed_and_made_by_the_next_run(
    here: Callable[..., Any], job: Path, gone: str
) -> None:
    prepare(job)
    keys = json.loads((job / "plan.json").read_text())["required"]
    code, result = here(required={**keys, "bf16_64": [c for c in keys["bf16_64"] if c != gone]})
    assert code == main.MISSING and result["verdict"] == "not_run"
    assert f"neither a verdict nor a reason for bf16_64 {gone}" in result["reason"]
    assert here()[0] == 0 and runs(job) == ["bf16_64", "bf16_64", "f16_64"]


@pytest.mark.parametrize("at", ["verified", "sanitized"])
def test_a_run_that_a_signal_ends_after_the_required_rows_is_no_pass(
    here: Callable[..., Any], sanitized: None, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    add = main.Run.add

    def stopping(run: main.Run, work: main.Work, row: dict[str, Any]) -> None:
        add(run, work, row)
        have = {(r["specialisation"], r["check"]) for r in work.store.checks}
        keys = ("bf16_64", "f16_64")
        all_there = all((k, c) in have for k in keys for c in required(k, keys[0], True))
        if all_there and (at == "verified" or row["check"] == "racecheck"):
            run.stop()

    monkeypatch.setattr(main.Run, "add", stopping)
    code, result = here()
    assert (code, result["verdict"], result["state"]) == (main.MISSING, "not_run", "interrupted")
    missing = {"verified": "bf16_64 memcheck, bf16_64 racecheck, ", "sanitized": ""}[at]
    assert f"neither a verdict nor a reason for {missing}bf16_64 timed outputs" in result["reason"]
    monkeypatch.setattr(main.Run, "add", add)
    assert here()[0] == 0


def test_a_failed_check_fails_and_is_not_timed(here: Callable[..., Any]) -> None:
    code, result = here(f16_64="keep sets")
    assert code == 1 and result["verdict"] == "fail"
    assert "f16_64 keep sets: as planned" in result["reason"] and result["times"] == []


@pytest.mark.parametrize(
    ("what", "check", "words"),
    [
        ("hang", "accuracy", "no word for 3 s"),
        ("crash", "keep sets", "illegal memory access"),
        ("error", "accuracy", "RuntimeError: boom"),
    ],
)
def test_a_hang_or_a_crash_is_a_failed_row(
    here: Callable[..., Any], what: str, check: str, words: str
) -> None:
    code, result = here(bf16_64=what)
    assert code == 1
    found = next(r for r in result["checks"] if r["verdict"] == "fail")
    assert found["check"] == check and words in found["failures"][0]
    # The other specialisation was still judged.
    assert any(r["specialisation"] == "f16_64" and r["check"] == "lse" for r in result["checks"])


def test_what_passed_is_not_run_again(here: Callable[..., Any], job: Path) -> None:
    assert here(f16_64="error")[0] == 1
    assert runs(job) == ["bf16_64", "f16_64"]
    code, result = here()
    assert code == 0 and result["verdict"] == "pass"
    assert runs(job) == ["bf16_64", "f16_64", "f16_64"]
    here("--fresh")
    assert len(runs(job)) == 5


def test_a_second_build_compiles_nothing(here: Callable[..., Any], job: Path) -> None:
    here()
    calls = job.parent / "programs" / "calls"
    before = calls.read_text()
    assert sorted(set(before.split())) == ["bf16_64.o", "dispatcher.o", "f16_64.o", "library.so"]
    here()
    assert calls.read_text() == before


def test_the_unedited_source_of_someone_s_kernel_is_built_beside(
    here: Callable[..., Any], contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = tmp_path / "reference.py"
    reference.write_bytes(contents.spec.read_bytes())
    kind = ForeignJob(
        contents.kind.fields, ("attention",), reference, ("-std=c++20", "-DHEAD=64"),
        ("root0",), ("source/root0",), Terms(32, (), True), {}, contents.asked,
    )  # fmt: skip
    pages = (("root0/x.cu", b"// patched\n"), ("unedited.cu", b"// page\n"))
    job = pack(replace(contents, kind=kind, headers=pages), tmp_path / "theirs")
    assert not (job / "module.cuir").exists() and (job / "reference/reference.py").is_file()
    commands: list[list[str]] = []
    ran = building._run
    monkeypatch.setattr(building, "_run", lambda c: (commands.append(list(c)), ran(c))[1])
    code, result = here(folder=job)
    assert code == 0 and result["cuir"] == "", result["reason"]
    assert "theirs" in result["hashes"]
    for folder, root in (("build-sm_90", "root0"), ("source-sm_90", "source/root0")):
        made = next(c for c in commands if c[-1].endswith(f"{folder}/bf16_64.o"))
        assert "-std=c++17" not in made and made.index("-std=c++20") > made.index("-O3")
        assert f"-I{job / 'kernel' / root}" in made and "-DHEAD=64" in made
    unit = (job / "work/source-sm_90/bf16_64.cu").read_text()
    assert '#include "unedited.cu"' in unit
    asked = json.loads((job / "asked.json").read_text())
    assert asked["source"] == str(job / "work/source-sm_90/library.so")


def test_a_kernel_without_an_edit_is_its_own_source(
    here: Callable[..., Any], contents: Contents, tmp_path: Path
) -> None:
    reference = tmp_path / "reference.py"
    reference.write_bytes(contents.spec.read_bytes())
    kind = ForeignJob(
        contents.kind.fields, ("attention",), reference, (), ("root0",), ("root0",),
        Terms(32, (), True), {}, contents.asked,
    )  # fmt: skip
    pages = (("root0/x.cu", b"// as it was\n"), ("unedited.cu", contents.source))
    job = pack(replace(contents, kind=kind, headers=pages), tmp_path / "theirs")
    code, result = here("--rivals", "sdpa", "flex", folder=job)
    assert code == 0, result["reason"]
    assert not (job / "work/source-sm_90").exists()
    asked = json.loads((job / "asked.json").read_text())
    assert asked["source"] == str(job / "work/build-sm_90/library.so")
    assert asked["rivals"] == ["sdpa", "flex"]


def test_a_kernel_that_does_not_compile_fails(here: Callable[..., Any], job: Path) -> None:
    nvcc_error = b'#error\n#include "cubridge/sm80.cuh"\n'
    replace_file(job, "kernel/kernel.cu", nvcc_error)
    text = NVCC.replace(
        'kernel = out.parent / "kernel.cu"', f'kernel = pathlib.Path("{job}/kernel/kernel.cu")'
    )
    (job.parent / "programs" / "nvcc").write_text(text)
    code, result = here()
    assert code == 1 and "not today" in result["reason"]
    assert not (job / "log").exists()


def test_the_self_test_wants_every_mutant_rejected_by_its_check(
    here: Callable[..., Any], job: Path
) -> None:
    source = (kernel_dir("flash_fwd_sm80") / "kernel.cu").read_bytes()
    replace_file(job, "kernel/kernel.cu", source)
    code, result = here("--self-test", "--no-bench", seen=["accuracy", "lse", "keep sets"])
    assert code == 0
    assert {r["mutant"]: r["verdict"] for r in result["self_test"]} == dict.fromkeys(
        ("mask", "scale", "heads", "lse"), "pass"
    )
    code, result = here("--self-test", "--no-bench", "--fresh", seen=["accuracy"])
    assert code == 1
    missed = {r["mutant"] for r in result["self_test"] if r["verdict"] == "fail"}
    assert missed == {"mask", "lse"}
    # A self-test says something of the checks, not of the kernel.
    assert result["verdict"] == "pass"


def test_a_card_that_the_kernel_is_not_for(
    here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "describe_device", lambda: {**DEVICE, "capability": [7, 5]})
    code, result = here()
    assert code == main.MISSING and result["verdict"] == "not_run"
    assert "sm_75" in result["checks"][0]["reason"]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "said", ["OutOfMemoryError: others hold it", "AcceleratorError: CUDA error: out of memory", ""]
)
@pytest.mark.parametrize(("crowded", "timed"), [(1, True), (2, False)])
def test_a_job_that_found_no_room_to_be_timed_gets_the_card_to_itself(
    here: Callable[..., Any],
    contents: Contents,
    job: Path,
    tmp_path: Path,
    crowded: int,
    timed: bool,
    said: str,
    late: bool,
) -> None:
    from dataclasses import replace

    second = pack(replace(contents, name="second", source=b"// other\n"), tmp_path / "second")
    prepare(second)
    plan = {"said": said} if said else {}
    _, first = here(str(second), crowded=crowded, **plan, **({"late": True} if late else {}))
    other = json.loads((second / "result.json").read_text())
    assert [r["name"] for r in other["times"]] == ["CuBridge", "SDPA cuDNN"] * 2
    assert bool(first["times"]) == timed
    why = said or "the last of its words"
    assert any(why in e and "its turn" in e for e in first["events"])
    assert len((job / "timers").read_text().split()) == 2
    # Where it was not timed, the row of that check says why, and so the verdict.
    (row,) = [r for r in first["checks"] if r["check"] == "timed outputs"]
    assert (row["verdict"] == "pass") == timed == ("timed outputs" not in first["reason"])
    assert timed or why in row["reason"]
    assert first["verdict"] == other["verdict"] == "pass"


def test_several_jobs_in_one_run(
    here: Callable[..., Any], contents: Contents, job: Path, tmp_path: Path
) -> None:
    from dataclasses import replace

    second = pack(replace(contents, name="second", source=b"// other\n"), tmp_path / "second")
    prepare(second, bf16_64="lse")
    out = tmp_path / "all.json"
    code, _ = here(str(second), "--out", str(out))
    assert code == 1
    data = json.loads(out.read_text())
    assert data["kind"] == "cubridge-gpu-results"
    assert [(r["name"], r["verdict"]) for r in data["results"]] == [
        ("flash-causal", "pass"),
        ("second", "fail"),
    ]
    assert json.loads((second / "result.json").read_text())["verdict"] == "fail"


def _lives(stat: Path) -> bool:
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_that_is_silent_is_ended_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(60)']); print('{\"event\": \"step\"}', flush=True); "
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    events: list[dict[str, Any]] = []
    begin = time.monotonic()
    ended = Child([sys.executable, "-c", code], tmp_path).follow(events.append, 2.0)
    assert ended is not None and ended.silent and not ended.ok
    assert time.monotonic() - begin < 15 and events == [{"event": "step"}]
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    # A killed process on a busy machine takes a moment to go.
    while _lives(stat) and time.monotonic() - begin < 30:
        time.sleep(0.05)
    assert not _lives(stat)


def test_lines_that_are_no_events_are_output(tmp_path: Path) -> None:
    code = "print('{broken'); print('plain'); print('{\"a\": 1}'); raise SystemExit(4)"
    events: list[dict[str, Any]] = []
    ended = Child([sys.executable, "-c", code], tmp_path).follow(events.append, 20.0)
    assert ended is not None and ended.code == 4 and events == []
    assert last_line(ended.output) == '{"a": 1}' and "plain" in ended.output
    assert last_line(" \n ") == "no message"


SANITIZER = """#!/bin/sh
printf '========= COMPUTE-SANITIZER\\n'
case "{mode}" in
  clean) printf 'launched a\\nlaunched b\\n========= ERROR SUMMARY: 0 errors\\n'; exit 0;;
  bad) printf 'launched a\\n========= Invalid __global__ read of size 2 bytes\\n'
    printf '========= ERROR SUMMARY: 3 errors\\n'; exit 9;;
  unable) printf '========= Device not supported\\n'; exit 1;;
  crash) printf 'Traceback\\nRuntimeError: libcuda\\n'; exit 1;;
  empty) printf '========= ERROR SUMMARY: 0 errors\\n'; exit 0;;
  slow) sleep 60;;
esac
"""


@pytest.mark.parametrize(
    ("mode", "verdict", "words"),
    [
        ("clean", "pass", ""),
        ("bad", "fail", "Invalid __global__ read"),
        ("unable", "not_run", "Device not supported"),
        ("crash", "fail", "libcuda"),
        ("empty", "fail", ""),  # nothing was launched: nothing was proven
        ("slow", "not_run", "no end within"),
    ],
)
def test_what_compute_sanitizer_says(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    verdict: str,
    words: str,
) -> None:
    tool = program("compute-sanitizer", SANITIZER.format(mode=mode))
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: str(tool))
    dump = tmp_path / "dump.json"
    dump.write_text("[]")
    rows = list(sanitizer_rows(["true"], "bf16_64", dump, tmp_path, 2.0))
    assert [r["check"] for r in rows] == ["memcheck", "racecheck"]
    for row in rows:
        assert row["verdict"] == verdict
        assert words in " ".join([row.get("reason", ""), *row.get("failures", [])])


@pytest.mark.parametrize("name", list_kernels())
def test_mutants_change_one_thing_of_every_bundled_kernel(name: str) -> None:
    source = (kernel_dir(name) / "kernel.cu").read_text()
    made = {m.name: m.text for m in mutants_of(source)}
    assert set(made) == {"mask", "scale", "heads", "lse"}
    for mutant, text in made.items():
        assert text is not None, mutant
        changed = [
            (a, b) for a, b in zip(source.splitlines(), text.splitlines(), strict=True) if a != b
        ]
        assert changed
        old, new = changed[0]
        if mutant == "mask":
            assert "(j + 1)" in new
        if mutant == "heads":
            assert "% args.Hkv" in new and len(changed) == 1
        if mutant == "lse":
            assert "log2(" in new and old.count("log(") == new.count("log2(")
        if mutant == "scale":
            assert "args.scale" not in text


LISTS = """class_tiles list_tiles
  return lists(b, q0 / BM, 1 + n) == 2;
  return lists(b, q0 / BM, 1 + n) - 3;
      kind = class_of<BM, BN>(at(q0, first_key), [&](int i, int j) {
        return doc_k(b, j) == doc_q(b, i);
      });
    put(lists.tile(b, row_block, 1 + ceil_div(args.Nk, BN) + n), kind);
    put_bits<8, BN>(lists.tile(b, 4 * row), lists.tile(b, 2), at(q0 + row, n * BN),
                    [&](int i, int j) {
      return doc_k(b, j) == doc_q(b, i);
    });
        s = keep(s, k, q, at(q0, n * BN),
            [&](int k, int q, int i, int j) {
          return j < args.Nk && k == q;
        });
"""


def test_mutants_of_a_kernel_that_makes_tile_lists() -> None:
    made = {m.name: m.text or "" for m in mutants_of(LISTS)}
    assert made["mask"].count("(j + 1)") == 3
    assert ") != 0;" in made["full"] and ") - 2;" in made["slot"]
    assert "if (n % 2 == 0) put(" in made["classes"]


@pytest.mark.parametrize(
    ("verdicts", "missed"),
    [([], False), (["pass", "not_run"], False), (["not_run"], True), (["pass", "fail"], True)],
)
def test_a_self_test_of_nothing_is_missed(verdicts: list[str], missed: bool) -> None:
    assert self_test_missed({"self_test": [{"verdict": v} for v in verdicts]}) is missed


def test_a_mutation_that_does_not_apply_is_no_mutant() -> None:
    assert all(m.text is None for m in mutants_of("int main() { return 0; }"))


def test_resources_are_read_per_kernel() -> None:
    log = (
        "[bf16_128]\nptxas info : Function properties\n"
        "    8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info : Used 255 registers, used 1 barriers\n[f16_64]\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info : Used 128 registers\n"
    )
    assert resources(log) == [
        {"specialisation": "bf16_128", "spill_stores": 16, "spill_loads": 24, "registers": 255},
        {"specialisation": "f16_64", "spill_stores": 0, "spill_loads": 0, "registers": 128},
    ]


def test_a_real_build_loads_and_asserts_the_struct(tmp_path: Path, toolchain: Toolchain) -> None:
    """nvcc compiles the units; a struct that is not the signature's does not compile."""
    source = tmp_path / "kernel.cu"
    source.write_text(
        "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n"
        "namespace cubridge { using f16 = __half; }\n"
        "struct Args { int n; float x; };\n"
        "template <typename T> cudaError_t launch(const Args&, cudaStream_t) {\n"
        "  return cudaSuccess;\n}\n"
    )
    with ThreadPoolExecutor(1) as pool:
        include = tmp_path / "include"
        include.mkdir()
        nvcc = toolchain.nvcc.path
        good = (("n", "i32"), ("x", "f32"))
        made = build(pool, source, include, tmp_path / "a", "launch", ["f16"], good, "sm_80", nvcc)
        assert made.ok, made.log
        bad = (("n", "i64"), ("x", "f32"))
        made = build(pool, source, include, tmp_path / "b", "launch", ["f16"], bad, "sm_80", nvcc)
        assert not made.ok and "signature" in made.log


def test_options() -> None:
    found = parser().parse_args(["a", "b", "--lengths", "128", "256", "--no-bench"])
    assert found.jobs == [Path("a"), Path("b")] and found.lengths == [128, 256]
    assert not found.bench and found.sanitize


def test_a_python_without_torch_is_not_called_a_machine_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(JobError, match="has no torch: start the job") as caught:
        device.describe_device()
    assert "GPU" not in str(caught.value)
