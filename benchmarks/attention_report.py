"""What is recorded of attention kernels, as tables for people and as plots.

A record is one card's: entries (kernel, spec, specialisation) with their verdicts and timed rows.
"""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.scatter import Point, scatter  # noqa: E402
from engine.gpu.bench_bars import groups_of, notes_of  # noqa: E402
from engine.gpu.predicted import HELD, OURS, resources_of  # noqa: E402
from engine.report.bars import Group, bars  # noqa: E402
from engine.report.picture import Picture, svg  # noqa: E402
from engine.worker.contests.around import AROUND  # noqa: E402
from engine.worker.contests.registry import NEEDS  # noqa: E402
from engine.worker.orchestration.device import rate_of  # noqa: E402

README = ROOT / "README.md"
MEASURED = ROOT / "docs" / "measured.md"
COST = ROOT / "docs" / "cost.md"
PLOTS = ROOT / "docs" / "plots"
BEGIN, END = "<!-- {name}: made by `python benchmarks/attention.py readme` -->", "<!-- end -->"
FA4, FLASH, CUDNN, FA2, FLEX = (
    "FlashAttention-4", "FlexAttention FLASH", "SDPA cuDNN", "SDPA FlashAttention-2",
    "FlexAttention",
)  # fmt: skip
EAGER = "eager PyTorch"
SCALED = "~"  # beside a figure that was measured on a part of the heads
SHOWN = (FA4, FLASH, CUDNN, FLEX, FA2, "torch.compile")
# The rows that the README shows: what people ask of attention first, one of each kind.
KERNEL, SHAPE = "flash_fwd_sm90", "S 8192 B 2 heads 32 D 128"
BOTH = (KERNEL, "flash_fwd_sm80")
PAPER = RESULTS / "paper_h200.json"
ROWS = (
    "full", "causal", "sliding_window_causal", "softcap_causal", "alibi_causal", "causal_document",
    "prefix_lm", "share_question", "global_sliding_window", "sigmoid",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timed:
    """One case of one kernel: ours and the rivals of the same run."""

    kernel: str
    spec: str
    case: str
    verdict: str
    rows: Mapping[str, Mapping[str, Any]]
    absent: Mapping[str, str]
    registers: int | None
    spilled: int | None
    when: str = ""

    @property
    def ours(self) -> Mapping[str, Any]:
        return self.rows[OURS]

    @property
    def rate(self) -> float:
        return float(self.ours["tflops"])

    @property
    def predicted(self) -> float | None:
        made = self.ours.get("prediction")
        value = made.get("tflops") if isinstance(made, Mapping) else None
        return float(value) if isinstance(value, int | float) else None

    @property
    def of_matmul(self) -> float | None:
        matmul = self.ours.get("matmul_tflops")
        return self.rate / float(matmul) if isinstance(matmul, int | float) and matmul else None

    def best_rival(self) -> tuple[str, float] | None:
        rivals = [(n, float(r["tflops"])) for n, r in self.rows.items() if n not in (OURS, HELD)]
        return max(rivals, key=lambda item: item[1], default=None)


def load_records(paths: Iterable[Path] | None = None) -> list[dict[str, Any]]:
    """The records in files, by name; default: every `attention*.json` of the results."""
    found = sorted(RESULTS.glob("attention*.json")) if paths is None else list(paths)
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def timed_of(record: Mapping[str, Any]) -> list[Timed]:
    """Every case of a record in which ours was timed."""
    out = []
    for entry in record["entries"]:
        kernel, spec = kernel_and_spec(str(entry["name"]))
        registers, spilled = resources_of({**entry, "primary": entry.get("primary")})
        for case in dict.fromkeys(str(r["case"]) for r in entry["times"]):
            rows = [r for r in entry["times"] if str(r["case"]) == case]
            rates = {str(r["name"]): rate_of(r, record["device"]) for r in rows}
            timed = {n: r for r in rows if rates[n := str(r["name"])].tflops is not None}
            absent = {
                n: str(r.get("reason") or rates[n].note)
                for r in rows
                if (n := str(r["name"])) not in timed
            }
            if OURS in timed:
                out.append(
                    Timed(
                        kernel,
                        spec,
                        case,
                        str(entry["verdict"]),
                        timed,
                        absent,
                        registers,
                        spilled,
                        str(entry.get("when", "")),
                    )
                )
    return out


def timed_cases(entry: Mapping[str, Any]) -> set[str]:
    """The cases of an entry in which ours was timed."""
    return {str(r["case"]) for r in entry["times"] if r["name"] == OURS and "ms" in r}


def why_untimed(entry: Mapping[str, Any]) -> str:
    """Why an entry has no time of ours, as the machine said it; empty where it says nothing."""
    if entry["verdict"] == "fail":
        return f"G4 failed: {entry['reason']}"
    reasons = [str(r.get("reason", "")) for r in entry["checks"] if r["check"] == "timed outputs"]
    said = [*reasons, *map(str, entry.get("events", ()))]
    if found := next((lines[0] for text in said if (lines := text.strip().splitlines())), ""):
        return found
    state = str(entry.get("state", "complete"))
    return "" if state == "complete" else f"the run was {state}"


def untimed_of(record: Mapping[str, Any]) -> list[str]:
    """The entries of a record in which ours was never timed, each with its reason."""
    out = []
    for entry in record["entries"]:
        if not timed_cases(entry):
            kernel, spec = kernel_and_spec(str(entry["name"]))
            why = why_untimed(entry) or "no reason is recorded"
            out.append(f"{spec} {entry['primary']} on {kernel} ({why})")
    return out


def kernel_and_spec(name: str) -> tuple[str, str]:
    """`flash_fwd_sm90-causal` -> (`flash_fwd_sm90`, `causal`); a kernel alone is `full`."""
    kernel, _, spec = name.partition("-")
    return kernel, spec or "full"


# --- tables --------------------------------------------------------------------------------------


def table(record: Mapping[str, Any]) -> list[str]:
    """Markdown: one row per variant and shape, with everything that the bench knows of it."""
    device = record["device"]
    timed = timed_of(record)
    names = [n for n in dict.fromkeys(n for t in timed for n in t.rows) if n != OURS]
    head = ["kernel", "variant", "shape", "G4", "ours", *names, "ours / best rival"]
    head += ["of matmul", "predicted", "registers", "spilled bytes"]
    lines = [
        f"{device['name']}, torch {device['torch']}, driver {device['driver']}; bf16 forward, "
        "TFLOP/s = 2 (D + Dv) x kept pairs / time, median (interquartile range in % of it)",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for case in timed:
        best = case.best_rival()
        cells = [case.kernel, case.spec, case.case, case.verdict, _rate(case.ours)]
        cells += [_rate(case.rows[n]) if n in case.rows else "" for n in names]
        cells += [
            f"{case.rate / best[1]:.2f}" if best else "",
            f"{100 * case.of_matmul:.0f}%" if case.of_matmul else "",
            f"{case.predicted:.0f}" if case.predicted else "",
            str(case.registers if case.registers is not None else ""),
            str(case.spilled if case.spilled is not None else ""),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if untimed := untimed_of(record):
        lines += ["", f"Not timed: {'; '.join(untimed)}."]
    return lines


def _rate(row: Mapping[str, Any]) -> str:
    spread = 100 * float(row.get("iqr_ms", 0.0)) / max(float(row["ms"]), 1e-9)
    return f"{float(row['tflops']):.0f} ({spread:.0f}%)"


def readme_table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The README's table: the rows that matter on the Hopper kernel, beside the best rival of each.

    Of a row, a run that asked FlexAttention's FLASH back end stands there before one that did not:
    that one says nothing of what a user could take instead, and the page says so.
    """
    best: dict[str, tuple[Timed, Mapping[str, Any]]] = {}
    for record in records:
        for case in timed_of(record):
            if case.kernel == KERNEL and case.case == SHAPE and case.spec in ROWS:
                have = best.get(case.spec)
                if have is None or (_asked(case), case.when) > (_asked(have[0]), have[0].when):
                    best[case.spec] = (case, record["device"])
    shown = [best[spec] for spec in ROWS if spec in best]
    cards: dict[str, str] = {}  # a run's own machine, with the rival's version where one was asked
    for case, d in shown:
        machine = f"{d['name']} (torch {d['torch']}, driver {d['driver']}"
        cards[machine] = cards.get(machine) or _versions(case)
    machines = "; one ".join(f"{machine}{version})" for machine, version in cards.items())
    lines = _wrapped(
        f"One {machines}: {KERNEL}, {SHAPE}, bf16, forward, cold L2, contestants "
        "interleaved in one process; TFLOP/s = 2 (D + Dv) x kept pairs / time. Every variant was "
        "made by the rules at the first proposal. The best rival is the fastest of SDPA's back "
        "ends, FlexAttention (its Triton template by several options, and its FLASH back end), "
        "FlashAttention-4 (its own arguments, and functions printed from the recipe), "
        "torch.compile and eager; each was right before it was timed. "
        "Ids that a mask reads are of 12 documents, all of about one length. "
        f"{SCALED}: measured on the heads that fit, and scaled to all."
    )
    lines += ["", "| variant | ours | best rival | | ours / best | FlexAttention, Triton |"]
    lines.append("|---|---|---|---|---|---|")
    for case, _ in shown:
        name, rate = case.best_rival() or ("none", 0.0)
        way = str(case.rows[name].get("way", "")) if name in case.rows else ""
        words = f"{name}: {way}" if way and name in (FA4, FLEX) else name
        cells = [case.spec, _ours(case), _rival(name, case), words]
        cells += [f"{case.rate / rate:.2f}" if rate else "", _rival(FLEX, case)]
        lines.append("| " + " | ".join(cells) + " |")
    if rest := [case.spec for case, _ in shown if not _asked(case)]:
        lines += ["", *_wrapped(
            f"Not asked beside {', '.join(rest)}: FlexAttention's FLASH back end and "
            "FlashAttention-4 with functions of a recipe; these rows' best rival may be "
            "another.")]  # fmt: skip
    if any(case.verdict != "pass" for case, _ in shown):
        lines += ["", *_wrapped("* timed without a whole G4 in the same run.")]
    return lines


def _asked(case: Timed) -> bool:
    """Whether the run asked FlexAttention's FLASH back end, whatever it answered."""
    return FLASH in case.rows or FLASH in case.absent


def _versions(case: Timed) -> str:
    version = case.rows.get(FA4, {}).get("version")
    return f", FlashAttention-4 {version}" if version else ""


def absent_of(record: Mapping[str, Any]) -> list[str]:
    """Markdown: why a rival has no time, as its run established it; variants of one reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in timed_of(record):
        for name, reason in case.absent.items():
            if _asked(case) and case.kernel == KERNEL:
                said = found.setdefault((name, reason), [])
                said += [case.spec] if case.spec not in said else []
    if not found:
        return []
    lines = ["", "| no time of | with | because |", "|---|---|---|"]
    for (name, reason), specs in sorted(found.items()):
        words = re.sub(r"\s+", " ", reason).replace("|", "/")
        lines.append(f"| {name} | {', '.join(specs)} | {words[:400]} |")
    return lines


def measured_pages(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every recorded row, card by card, and why cells are empty."""
    lines: list[str] = []
    for record in records:
        lines += [f"## {record['device']['name']}", "", *measured_table([record])]
        old = sorted({c.spec for c in timed_of(record) if not _asked(c)})
        if old:
            lines += ["", *_wrapped(
                "An empty cell of FlashAttention-4 or of FlexAttention's FLASH back end beside "
                f"{', '.join(old)} says nothing of what they take: these runs gave "
                "FlashAttention-4 its own arguments alone, FlexAttention its Triton template by "
                "its own options alone, and did not ask the FLASH back end.")]  # fmt: skip
        if plain := sorted({c.spec for c in timed_of(record) if _lacks_what_ops_do(c)}):
            lines += ["", *_wrapped(
                f"Beside {', '.join(plain)} no rival was asked with PyTorch's ops around it "
                "([gpu.md](gpu.md)), as one has it without this kernel: an empty cell there says "
                "that the library's function alone does not compute it.")]  # fmt: skip
        lines += [*absent_of(record), ""]
    return lines[:-1]


def _lacks_what_ops_do(case: Timed) -> bool:
    """Whether a rival has no time for want of a parameter that PyTorch's ops around it replace."""
    return any(reason.endswith(NEEDS[need]) for reason in case.absent.values() for need in AROUND)


def measured_table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """One row per variant and shape, both kernels beside the rivals.

    Of rows of the same kernel, variant and shape the newest stands there. A rival's figure is from
    the run of the Hopper kernel where there is one; where the runs of the two kernels differ by
    more than 5%, both are given.
    """
    cards = sorted({str(r["device"]["name"]) for r in records})
    versions = sorted({f"torch {r['device']['torch']}" for r in records})
    drivers = sorted({f"driver {r['device']['driver']}" for r in records})
    lines = _wrapped(
        f"On one {' and one '.join(cards)} ({', '.join([*versions, *drivers])}), bf16, forward, "
        "cold L2, rivals interleaved with ours in one process; TFLOP/s = 2 (D + Dv) x kept pairs / "
        f"time; {SCALED}: measured on the heads that fit, and scaled to all. Every variant was "
        "made by the rules at the first proposal. Held: with tile lists that the caller holds. "
        "Predicted: the cost model's figure for flash_fwd_sm90, from the "
        "CuIR ([cost.md](cost.md))."
    )
    found: dict[tuple[str, str], dict[str, Timed]] = {}
    for record in records:
        for case in timed_of(record):
            by = found.setdefault((case.spec, case.case), {})
            if case.kernel not in by or by[case.kernel].when < case.when:
                by[case.kernel] = case
    shown = [n for n in SHOWN if any(n in t.rows for by in found.values() for t in by.values())]
    head = ["variant", "shape", "flash_fwd_sm90", "predicted", "flash_fwd_sm80", *shown]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (spec, shape), by in sorted(found.items(), key=lambda item: _order(*item[0])):
        cells = [spec, shape]
        new, old = by.get("flash_fwd_sm90"), by.get("flash_fwd_sm80")
        cells.append(_ours(new))
        cells.append(f"{new.predicted:.0f}" if new and new.predicted else "")
        cells.append(_ours(old))
        cells += [_rival(name, new, old) for name in shown]
        lines.append("| " + " | ".join(cells) + " |")
    unverified = sorted(
        {f"{t.spec} on {t.kernel}" for by in found.values() for t in by.values()
         if t.verdict != "pass"}
    )  # fmt: skip
    for record in records:
        if record.get("note"):
            lines += ["", *_wrapped(str(record["note"]))]
    if unverified:
        lines += ["", *_wrapped(f"Timed without G4 in the same run: {', '.join(unverified)}.")]
    if untimed := [words for record in records for words in untimed_of(record)]:
        lines += ["", *_wrapped(f"Not timed: {'; '.join(untimed)}.")]
    return lines


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, 100, break_long_words=False, break_on_hyphens=False)


def _order(spec: str, shape: str) -> tuple[Any, ...]:
    numbers = [int(n) for n in re.findall(r"\d+", shape)]
    width = numbers[-1] if numbers else 0
    first = {"full": 0, "causal": 1}.get(spec, 2)
    return (first, spec if first == 2 else "", -width if width != 128 else -1000, shape)


def _ours(case: Timed | None) -> str:
    if case is None:
        return ""
    held = case.rows.get(HELD)
    beside = f" ({float(held['tflops']):.0f} held)" if held else ""
    return f"{case.rate:.0f}" + ("" if case.verdict == "pass" else "*") + beside


def _rival(name: str, *cases: Timed | None) -> str:
    rows = [c.rows[name] for c in cases if c is not None and name in c.rows]
    if not rows:
        return ""
    rates = [float(row["tflops"]) for row in rows]
    mark = SCALED if any("scaled" in str(row.get("note", "")) for row in rows) else ""
    if max(rates) / min(rates) > 1.05:
        return f"{min(rates):.0f} to {max(rates):.0f}{mark}"
    return f"{rates[0]:.0f}{mark}"


def paper_table(record: Mapping[str, Any]) -> list[str]:
    """Markdown: CuBridge's own 96 cases (arXiv 2605.05023, section 4), 8 variants x 3 models x 4
    lengths: ours on the Hopper kernel, and how many times as fast as FlexAttention's Triton
    template and as the best rival of the run."""
    every = timed_of(record)
    right = {k: [t for t in every if t.kernel == k and t.verdict == "pass"] for k in BOTH}
    cases = right[KERNEL]
    sizes = sorted({_length(t) for t in cases})
    lines = ["| variant | heads |" + "".join(f" S {n} |" for n in sizes),
             "|---|---|" + "---|" * len(sizes)]  # fmt: skip
    rows: dict[tuple[str, str], dict[int, Timed]] = {}
    for case in cases:
        heads = re.findall(r"heads (\S+)", case.case)[0]
        rows.setdefault((case.spec, heads), {})[_length(case)] = case
    for (spec, heads), by in rows.items():
        cells = [_beside(by[n]) if n in by else "" for n in sizes]
        lines.append(f"| {spec} | {heads} | " + " | ".join(cells) + " |")
    best = [(t.rate / rival[1], rival[0]) for t in cases if (rival := t.best_rival())]
    fused = [ratio for ratio, name in best if name != EAGER]
    flex = [t.rate / float(t.rows[FLEX]["tflops"]) for t in cases if FLEX in t.rows]
    counts = " and ".join(f"{len(right[k])} of 96 on {k}" for k in BOTH)
    device = record["device"]
    words = (
        f"One {device['name']} (torch {device['torch']}, driver {device['driver']}), f16, forward, "
        f"cold L2, one run a kernel. Right, and through the whole of G4, by rules at the first "
        f"proposal: {counts}. Each cell: TFLOP/s of {KERNEL}, times as fast as FlexAttention's "
        "Triton template (its own autotuning options; it takes no weights but softmax's), times "
        "as fast as the best rival of the run. Geometric means: "
        f"{_mean(flex):.2f} of the Triton template over {len(flex)} cases, "
        f"{_mean([ratio for ratio, _ in best]):.2f} of the best rival over {len(best)}, "
        f"{_mean(fused):.2f} over the {len(fused)} where that is not eager PyTorch. CuBridge, the "
        "paper, says 1.62 of FlexAttention on an H100, for its own kernels."
    )
    return [*_wrapped(words), "", *lines]


def _length(case: Timed) -> int:
    return int(re.findall(r"S (\d+)", case.case)[0])


def _beside(case: Timed) -> str:
    flex, best = case.rows.get(FLEX), case.best_rival()
    cells = [f"{case.rate:.0f}", f"{case.rate / float(flex['tflops']):.2f}" if flex else "none"]
    return ", ".join([*cells, f"{case.rate / best[1]:.2f} {best[0]}" if best else "none"])


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def cost_table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown: predicted beside measured for every recorded row of ours, and the error."""
    lines = [
        "| kernel | variant | shape | measured | predicted | error | bound | busy | clock |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    errors = []
    for record in records:
        for case in timed_of(record):
            for name, row in case.rows.items():
                made = row.get("prediction")
                if not isinstance(made, Mapping) or "tflops" not in made:
                    continue
                rate = float(row["tflops"])
                error = float(made["tflops"]) / rate - 1
                errors.append(error)
                busy = made["busy"].get(made["bound"])
                spec = case.spec if name == OURS else f"{case.spec}, lists held"
                lines.append(
                    f"| {case.kernel} | {spec} | {case.case} | {rate:.0f} | "
                    f"{float(made['tflops']):.0f} | {100 * error:+.0f}% | {made['bound']} | "
                    f"{'' if busy is None else f'{100 * busy:.0f}%'} | {made['clock_mhz']} MHz |"
                )
    if errors:
        sizes = sorted(abs(e) for e in errors)
        middle = sizes[len(sizes) // 2]
        mean = math.exp(sum(math.log1p(e) for e in errors) / len(errors)) - 1
        within = sum(s <= 0.15 for s in sizes)
        lines += [
            "",
            f"{len(errors)} rows: half of them within {100 * middle:.0f}%, {within} within 15%, "
            f"from {100 * min(errors):+.0f}% to {100 * max(errors):+.0f}%; "
            "geometric mean of predicted over measured "
            f"{1 + mean:.2f}.",
        ]
    return lines


def put(text: str, name: str, lines: Sequence[str]) -> str:
    """`text` with the lines between its two marks. Raises `ValueError` where a mark is missing."""
    begin = BEGIN.format(name=name)
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"no place for {name}: {begin} ... {END}")
    return f"{before}{begin}\n" + "\n".join(lines) + f"\n{END}{after}"


def written(records: Sequence[Mapping[str, Any]]) -> dict[Path, str]:
    """Every page that holds a table of the records, as it must be."""
    measured = put(MEASURED.read_text(encoding="utf-8"), "every row", measured_pages(records))
    (paper,) = load_records([PAPER])
    return {
        README: put(README.read_text(encoding="utf-8"), "measured", readme_table(records)),
        MEASURED: put(measured, "paper", paper_table(paper)),
        COST: put(COST.read_text(encoding="utf-8"), "predicted", cost_table(records)),
    }


# --- plots ---------------------------------------------------------------------------------------


def plots(records: Sequence[Mapping[str, Any]]) -> dict[str, Picture]:
    """Bars of every entry by card and kernel, and predicted against measured, by file name."""
    out: dict[str, Picture] = {}
    groups: dict[tuple[str, str], list[Group]] = {}
    notes: dict[tuple[str, str], list[str]] = {}
    for record in records:
        card = str(record["device"]["name"])
        for entry in record["entries"]:
            kernel, spec = kernel_and_spec(str(entry["name"]))
            groups.setdefault((kernel, card), []).extend(
                groups_of(entry["times"], record["device"], f"{spec}  ")
            )
            notes[kernel, card] = notes_of(record["device"], str(record["method"]))
    for (kernel, card), found in groups.items():
        name = f"attention_{kernel.removeprefix('flash_fwd_')}"
        known = name if name not in out else f"{name}_{len(out)}"
        out[known] = bars(f"{kernel} on {card}", found, notes[kernel, card])
    series: dict[str, list[Point]] = {}
    for record in records:
        for case in timed_of(record):
            if case.predicted is not None:
                far = abs(case.predicted / case.rate - 1) > 0.1
                point = Point(case.rate, case.predicted, case.spec if far else "")
                series.setdefault(case.kernel, []).append(point)
    if series:
        out["predicted"] = scatter(
            "Predicted and measured", list(series.items()), "measured TFLOP/s",
            "predicted TFLOP/s; lines: equal, a tenth more, a tenth less",
        )  # fmt: skip
    return out


def write_plots(records: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Each plot as SVG; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, picture in plots(records).items():
        (folder / f"{name}.svg").write_text(svg(picture), encoding="utf-8")
        files.append(folder / f"{name}.svg")
    return files
