"""Make `docs/tour.md` and its pictures from the app itself: `python docs/make_tour.py`.

The app runs headless on a store of its own, with the real engine: what the pictures show was
lifted, proposed, judged and lowered while they were taken (one to two minutes; G3 needs nvcc, and
says so where there is none). `--only NAME` takes only the pictures whose names begin so.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "tour"
PAGE = ROOT / "docs" / "tour.md"
SIZE = (160, 44)
HEAD = """# A tour of the app

One adaptation from beginning to end: `softcap_causal` on `flash_fwd_sm80`. Every picture was made
by the app while it did the work (`python docs/make_tour.py` makes this page again). `cubridge`
starts it, `?` lists every key that works where you are, and the footer shows the ones that do
something now.
"""


@dataclass
class Tour:
    """The app on its way, and the page as far as it is written."""

    app: Any
    pilot: Any
    only: str = ""
    page: list[str] = field(default_factory=lambda: [HEAD])

    async def press(self, *keys: str) -> None:
        """Keys as a person types them: each after the work that the last one started."""
        for key in keys:
            await asyncio.sleep(0.35)  # a key that comes before its screen answers nothing
            await self.pilot.press(key)
            await self.idle()

    async def idle(self) -> None:
        await self.pilot.pause()
        while self.app.jobs.busy:
            await asyncio.sleep(0.05)
        await self.pilot.pause()

    async def picture(self, name: str, title: str, words: str) -> None:
        """Take a picture and write its paragraph."""
        await self.pilot.pause(0.3)
        number = sum(line.startswith("![") for line in self.page) + 1
        file = PICTURES / f"{number:02}-{name}.svg"
        if not self.only or name.startswith(self.only):
            file.write_text(tidy(self.app.export_screenshot(title=f"CuBridge: {title}")))
        self.page += [
            f"## {number}. {title}",
            "",
            words.strip(),
            "",
            f"![{title}](tour/{file.name})",
            "",
        ]

    async def until(self, done: Callable[[], object]) -> None:
        """Wait for ten minutes. Raises `TimeoutError` after them."""
        async with asyncio.timeout(600):
            while not done():
                await asyncio.sleep(0.05)


def tidy(svg: str) -> str:
    """The picture without ids and fonts that change or are fetched from elsewhere."""
    svg = re.sub(r"terminal-\d+", "terminal", svg)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(
        r"font-family: ?Fira Code, ?monospace", "font-family: Fira Code, Menlo, monospace", svg
    )


async def walk(tour: Tour) -> None:
    """The steps of the tour."""
    from cubridge_tui.widgets.code_pane import CodePane

    app = tour.app
    await tour.idle()
    specs = app.screen.query_one("#specs", CodePane)
    specs.go_to(next(i for i, r in enumerate(specs.content.rows) if "softcap_causal" in r.text))
    specs.focus()
    await tour.picture("start", "Choose a kernel and a spec", """
The start screen lists the expert kernels, the specs (bundled ones and those of the current
folder) and the saved sessions. The second line always names the next key.
""")  # fmt: skip
    await tour.press("s", "s")
    await tour.picture("lifted", "Lift, and G1", """
`s` takes the next step and nothing runs by itself. The source was lifted to CuIR, and G1 ran
the lifted program against the kernel's declared reference. The cursor leads: the op under it is
marked in every pane, its loop and its worker more faintly.
""")  # fmt: skip
    await tour.press("s", "2")
    question = app.screen.snap.question
    await tour.until(lambda: {*question.sets} <= {*app.screen.costs.tried})
    factor = next(f"{p.id}/{h.id}" for p, h, _ in app.screen.snap.hunks if "_factor =" in h.after)
    while app.screen.current_hunk() != factor:
        await tour.press("right_square_bracket")
    await tour.picture("proposal", "What the rules propose", """
The spec was traced, and the rules propose hunks. Under its head each says what it does, what the
target computes without it (tried at a few sizes), what that does to the predicted time, why it is
there, which clauses of the recipe it serves, its numbers by name, which names it needs and gives.
Nothing is in the target until you accept it: `]` and `[` go from hunk to hunk, `a` accepts, `x`
rejects, `e` edits, `A` accepts all of an origin.
""")  # fmt: skip
    await tour.press("o", "j", "j", "j")
    await tour.picture("overview", "All hunks in a list", """
`o` lists them: decision, title, clause, what each needs, what its absence costs. `/` shows those
with some words (a clause, a name, `undecided`), and `A` accepts all that are shown.
""")  # fmt: skip
    await tour.press("escape")
    await tour.press("r")
    await tour.picture("recipe", "The recipe in words", """
`r` shows what was read from the spec, beside the lines that caused each clause.
""")  # fmt: skip
    await tour.press("escape", "A")
    mask = next((f"{p.id}/{h.id}" for p, h, _ in app.screen.snap.hunks if "keep(" in h.after), "")
    for _ in range(40):
        if app.screen.current_hunk() == mask:
            break
        await tour.press("right_square_bracket")
    await tour.press("x", "s")
    await tour.picture("failed", "A rejected hunk, and G2 fails", """
With the hunk of the mask rejected, the target is another function than the spec, and G2 says so
with a counterexample.
""")  # fmt: skip
    await tour.press("w")
    await tour.picture("why", "Why a gate failed", """
`w` (or enter) brings every pane to what made it fail: first the hunk that was rejected, on `w`
in the dialog the op that the gate names; with the pair where it shows, what was expected, what came
out, and the clause of the recipe. `a` takes the hunk after all, `u` undoes the latest decision.
""")  # fmt: skip
    await tour.press("pagedown", "pagedown")
    await tour.picture("errors", "Where the errors are", """
Further down the same page draws how large the errors are, of O over (i, d) and of the weights over
(i, j), with the wrong row's weights beside the spec's.
""")  # fmt: skip
    await tour.press("escape", "m")
    while app.screen.sizes["Nq"] < 190:  # the failing run itself has five rows
        await tour.press("s")
    grid = app.screen.pane.grid
    await tour.until(lambda: grid.known >= 190)  # what is in sight comes first
    await tour.picture("mask-wrong", "The mask, where it is wrong", """
`m` draws what spec and target keep over i and j. `+` is a pair that only the target keeps, `-` one
that only the spec keeps; `n` goes from failing row to failing row. The glyphs say it without
colours: `█` a full tile, `▓▀▄` kept in a partial tile, a blank masked, `·` not visited.
""")  # fmt: skip
    await tour.press("escape", "u", "s")
    app.screen.mask_values.clear()  # the sizes chosen last
    await tour.press("m")
    grid = app.screen.pane.grid
    await tour.until(lambda: grid.next_part is None and grid.known > 2 * grid.tiles[0])
    await tour.picture("mask", "The mask at a glance", """
`u` undid the rejection. Where nothing fails, the mask opens at 4096 x 4096 in tiles: each row of
tiles visits the keys that it needs and no others. Below stand the shares of full, partial and
skipped tiles, and what is proven of the schedule for all sizes; `v` shows pairs, `s` other sizes.
""")  # fmt: skip
    await tour.press("escape")
    await tour.picture("passed", "G2 passes", """
The target computes the spec: O, LSE and the keep set on the deck, exactly in float64 and within
FlashAttention's bound in the kernel's types.
""")  # fmt: skip
    await tour.press("C")
    await tour.until(lambda: len(app.screen.pane.shown.lanes) == 4)
    await tour.picture("cost", "Where the time goes", """
`C` shows one block over time, the expert's kernel above the target: what its warps do and what is
in flight meanwhile, from a simulation that agrees with the cost model and is schematic. Arrows go
from event to event, `+` and `-` zoom; below stand the units' shares and the predicted rates, and
after a benchmark the points that a GPU measured.
""")  # fmt: skip
    await tour.press("escape", "s", "3")
    await tour.picture("lowered", "Lowered to CUDA, and G3", """
The target written back into the source: bytes outside the changed lines are the expert's own.
G3 lifted it again, compared it with the target and compiled it.
""")  # fmt: skip
    await tour.press("v")
    await tour.picture("gpu", "Verify on a GPU", """
`v` chooses where the GPU is: this machine, one reached by ssh, any command of a cluster, Ray, or a
job that is packed and carried by hand. Checks come back as a table, times as bars beside the
rivals.
""")  # fmt: skip
    await tour.press("escape", "K")
    await tour.picture("accept", "Accept, at the level that was reached", """
What is accepted, at which level, and what was not run. Writing the package and committing it
into your own repository are steps of their own.
""")  # fmt: skip
    await tour.press("escape", "B", "p")
    await tour.press("right_square_bracket", "right_square_bracket", "right_square_bracket")
    await tour.picture("replay", "Replay", """
A saved session plays read-only: `s` and `b` step, space plays, `]` and `}` jump to decisions
and stages, and `c` continues from the shown step as a new
session.
""")  # fmt: skip
    await tour.press("escape")
    await tour.until(lambda: app.screen.query("#sessions"))
    app.screen.query_one("#sessions", CodePane).focus()
    await tour.press("enter")
    await tour.pilot.resize_terminal(80, 24)
    await tour.press("2")
    await tour.picture("small", "80 x 24", """
Below 120 columns there is one pane and a strip that names the others; nothing else changes.
""")  # fmt: skip
    await tour.pilot.resize_terminal(*SIZE)
    await tour.press("T", "3")
    await tour.picture("light", "Themes", """
`T` goes through four themes (dark, light, high contrast, colour-blind safe) and your own. Signs
stand beside every colour, so 16 colours or `NO_COLOR` lose nothing.
""")  # fmt: skip


async def make(only: str, store: Path) -> list[str]:
    from cubridge_tui.app import CuBridgeApp

    app = CuBridgeApp(str(store))
    try:
        async with app.run_test(size=SIZE) as pilot:
            tour = Tour(app, pilot, only)
            steps: Awaitable[None] = walk(tour)
            await steps
            return tour.page
    finally:
        app.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", help="take only pictures whose names begin so")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cubridge-tour-") as folder:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            os.environ[name] = folder
        for name in ("NO_COLOR", "CUBRIDGE_THEME"):
            os.environ.pop(name, None)
        os.environ["COLORTERM"] = "truecolor"
        os.environ["USER"] = os.environ["LOGNAME"] = "you"
        os.chdir(folder)
        page = asyncio.run(make(args.only, Path(folder) / "store.git"))
    if not args.only:
        wanted = {line.split("](tour/")[1][:-1] for line in page if line.startswith("![")}
        for old in PICTURES.glob("*.svg"):
            if old.name not in wanted:
                old.unlink()
    PAGE.write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    print(f"{PAGE} with {sum(line.startswith('![') for line in page)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
