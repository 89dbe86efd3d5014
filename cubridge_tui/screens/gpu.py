"""G4: choose where the GPU is and run the job there, or carry it by hand; what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult

from cubridge_tui import actions
from cubridge_tui.headless import how_to_run
from cubridge_tui.jobs import Outcome
from cubridge_tui.model.facts import Facts
from cubridge_tui.model.gpu_results import bars, contestants, picture, table
from cubridge_tui.model.rows import PaneText, Row
from cubridge_tui.model.snapshot import Snapshot
from cubridge_tui.screens.base import ActionScreen, bindings
from cubridge_tui.screens.dialogs import Prompt
from cubridge_tui.widgets.chart_pane import ChartPane
from cubridge_tui.widgets.code_pane import CodePane
from cubridge_tui.widgets.line import KeyBar, Line, Part
from cubridge_tui.widgets.stage_bar import StageBar
from engine.errors import CuBridgeError
from engine.types import Gate, Verdict

if TYPE_CHECKING:
    from cubridge_tui.screens.adaptation.evidence import EvidenceActions

LOCAL, SSH, COMMAND, RAY, BY_HAND = range(5)
NAMES = ("local", "ssh", "command", "ray", "by hand")


@dataclass(frozen=True, slots=True)
class Choice:
    """Where jobs go; kept while the session is open."""

    runner: int = LOCAL
    host: str = ""
    command: str = ""
    address: str = ""
    timed: bool = True


class GpuScreen(ActionScreen):
    """Runners above, the table of checks and the bars below."""

    NAME = actions.GPU
    BINDINGS = bindings(actions.GPU)
    DEFAULT_CSS = """
    GpuScreen #runners { height: 7; }
    GpuScreen #checks { height: 1fr; }
    GpuScreen #bars { height: 1fr; }
    """

    def __init__(self, owner: EvidenceActions) -> None:
        super().__init__()
        self.owner = owner
        config = owner.cubridge.config
        known = owner.gpu_choice
        self.choice: Choice = known or Choice(
            host=config["gpu_host"],
            command=config["gpu_command"],
            address=config["ray_address"],
        )
        self.has_gpu: bool | None = None

    def compose(self) -> ComposeResult:
        yield StageBar(id="stages")
        yield Line(id="decision")
        yield CodePane(id="runners")
        yield ChartPane(id="checks")
        yield ChartPane(id="bars")
        yield Line(id="status")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        self.present()
        runners = self.query_one("#runners", CodePane)
        runners.go_to(self.choice.runner)
        runners.focus()
        from engine.gpu.runners import has_gpu

        # Asking the driver takes a moment on some machines.
        self.cubridge.jobs.submit("", has_gpu, self._found, quiet=True)

    def _found(self, outcome: Outcome) -> None:
        if self.is_attached and isinstance(outcome.value, bool):
            self.has_gpu = outcome.value
            self.present()

    def on_resize(self) -> None:
        if self.is_mounted:
            self.present()

    @property
    def snap(self) -> Snapshot:
        assert self.owner.snap is not None
        return self.owner.snap

    @property
    def verdict(self) -> Verdict | None:
        return self.snap.state.verdict(Gate.G4)

    def facts(self) -> Facts:
        verdict = self.verdict
        return Facts(
            job=self.cubridge.jobs.running,
            read_only=self.snap.read_only,
            lowered=True,
            times=bool(verdict is not None and contestants(verdict.details)),
        )

    # --- showing ---------------------------------------------------------------------------------

    def present(self) -> None:
        """Bring everything to the session's present state."""
        snap = self.snap
        self.query_one(StageBar).show(snap.state, snap.title, self.size.width)
        runners = self.query_one("#runners", CodePane)
        text = PaneText(self._runners(), "", "where the GPU is")
        if text != runners.content:
            runners.show(text)
        verdict = self.verdict
        self.query_one("#checks", ChartPane).chart("what the GPU found", table(verdict))
        width = max(self.size.width - 10, 40)
        shown = bars(verdict.details if verdict is not None else {}, width)
        self.query_one("#bars", ChartPane).chart("times beside the rivals", shown)
        self._tell()

    def _runners(self) -> tuple[Row, ...]:
        gpu = {None: "looking …", True: "an NVIDIA GPU is here", False: "no NVIDIA GPU here"}
        choice = self.choice
        words = (
            gpu[self.has_gpu],
            choice.host or "no host yet: e names one",
            choice.command
            or "no command yet: e writes one, such as srun --gres=gpu:1 python3 "
            "{job}/run.py --out {out} {options}",
            choice.address or "the Ray cluster that this machine is part of: e names another",
            "p packs the job to carry, i imports what run.py wrote",
        )
        return tuple(
            Row(f"{name:<9} {text}", number=i)
            for i, (name, text) in enumerate(zip(NAMES, words, strict=True), start=1)
        )

    @property
    def _next(self) -> str:
        """The action that leads on: nothing runs on a GPU that is not here."""
        choice = self.choice.runner
        nowhere = choice == BY_HAND or (NAMES[choice] == "local" and self.has_gpu is False)
        return "gpu-pack" if nowhere else "gpu-run"

    def _tell(self) -> None:
        if not self.is_attached:
            return
        jobs = self.cubridge.jobs
        if jobs.running:
            parts: list[Part] = [(f" {jobs.running} ", "title"), (jobs.line, "dim")]
            self.query_one("#decision", Line).put(parts, [("ctrl+c", "key"), (" cancels ", "dim")])
        else:
            timed = "verify, then time" if self.choice.timed else "verify only"
            key = actions.key_of(self._next, self.cubridge.actions)
            name = NAMES[self.query_one("#runners", CodePane).cursor]
            words = f"  run the job: {name}"
            if self._next == "gpu-pack":
                words = "  pack the job, to run where a GPU is"
            parts = [(" Next: ", "dim"), (key, "key"), (words, "title"), (f"  ({timed})", "dim")]
            self.query_one("#decision", Line).put(parts)
        self.refresh_keys()

    def job_news(self) -> None:
        self._tell()

    def on_code_pane_cursor_moved(self, event: CodePane.CursorMoved) -> None:
        if event.pane.id == "runners":
            self._keep(replace(self.choice, runner=min(event.pane.cursor, BY_HAND)))
            self._tell()

    def _keep(self, choice: Choice) -> None:
        self.choice = choice
        self.owner.gpu_choice = choice

    # --- actions ---------------------------------------------------------------------------------

    def _submit(
        self,
        name: str,
        work: Callable[[], Any],
        said: Callable[[Any], str],
        *,
        keeps: bool = False,
    ) -> None:
        def done(outcome: Outcome) -> None:
            if isinstance(outcome.value, Snapshot) and self.owner.is_attached:
                self.owner.show(outcome.value)
            if not self.is_attached:
                return
            if outcome.error is not None:
                self.say(str(outcome.error).replace("\n", " "), "fail")
            elif outcome.cancelled:
                self.say("cancelled; the next run goes on where it was", "stale")
            else:
                self.say(said(outcome.value))
            self.present()

        self.cubridge.jobs.submit(name, work, done, keeps=keeps)
        self._tell()

    def do_gpu_run(self) -> None:
        from cubridge_tui import gpu_desk
        from engine.gpu.runners import choose_runner

        choice, desk = self.choice, self.owner.open_desk
        if choice.runner == BY_HAND:
            self.do_gpu_pack()
            return
        try:
            runner = choose_runner(
                NAMES[choice.runner],
                host=choice.address if choice.runner == RAY else choice.host,
                command=choice.command,
                environ={},
            )
        except CuBridgeError as error:
            self.say(f"{error.message}: e names it", "stale")
            return
        options = [] if choice.timed else ["--no-bench"]
        self._submit(
            f"G4 ({runner.name})",
            lambda: gpu_desk.run_on(desk, runner, options),
            self._verdict_said,
        )

    def _verdict_said(self, _: Any) -> str:
        verdict = self.verdict
        return f"G4 {verdict.kind}: {verdict.reason}" if verdict is not None else ""

    def do_gpu_cancel(self) -> None:
        self.cubridge.jobs.stop()
        self.say("cancelling …")

    def do_gpu_edit(self) -> None:
        choice = self.choice
        if choice.runner == COMMAND:
            title = "the command; {job} is the job's folder, {out} its result, {options} run.py's"
            self.app.push_screen(Prompt(title, choice.command), self._commanded)
        elif choice.runner == SSH:
            title = "the host, as ssh takes it (its python3 has torch)"
            self.app.push_screen(Prompt(title, choice.host), self._hosted)
        elif choice.runner == RAY:
            title = "the Ray cluster's address (ray://HOST:10001); empty: the one of this machine"
            self.app.push_screen(Prompt(title, choice.address), self._addressed)
        else:
            self.say("there is nothing to name here: choose ssh, command or ray", "stale")

    def _commanded(self, text: str | None) -> None:
        if text is not None:
            self._keep(replace(self.choice, command=text.strip()))
            self.present()

    def _hosted(self, text: str | None) -> None:
        if text is not None:
            self._keep(replace(self.choice, host=text.strip()))
            self.present()

    def _addressed(self, text: str | None) -> None:
        if text is not None:
            self._keep(replace(self.choice, address=text.strip()))
            self.present()

    def do_gpu_bench(self) -> None:
        self._keep(replace(self.choice, timed=not self.choice.timed))
        self._tell()

    def do_gpu_pack(self) -> None:
        name = f"{self.owner.session}-job.tar"
        self.app.push_screen(
            Prompt("pack into a new folder, or a new .tar", name, _named), self._pack
        )

    def _pack(self, text: str | None) -> None:
        if text is None:
            return
        from cubridge_tui import gpu_desk

        desk, target = self.owner.open_desk, Path(text.strip()).expanduser()
        self._submit(
            "pack",
            lambda: gpu_desk.pack_to(desk, target),
            lambda path: (
                f"packed: {path}. On the GPU machine: {how_to_run(path)}. Then i takes result.json"
            ),
            keeps=True,
        )

    def do_gpu_import(self) -> None:
        title = "the result file that run.py wrote"
        self.app.push_screen(Prompt(title, "result.json", _named), self._import)

    def _import(self, text: str | None) -> None:
        if text is None:
            return
        from cubridge_tui import gpu_desk

        desk, path = self.owner.open_desk, Path(text.strip()).expanduser()
        self._submit(
            "import", lambda: gpu_desk.take_result(desk, path), self._verdict_said, keeps=True
        )

    def do_gpu_export(self) -> None:
        name = f"{self.owner.session}-times.svg"
        self.app.push_screen(Prompt("Write the bars to (.svg):", name, _picture), self._export)

    def _export(self, text: str | None) -> None:
        from engine.report.picture import svg

        verdict = self.verdict
        if text is None or verdict is None:
            return
        path = Path(text.strip()).expanduser()
        shown = picture(self.snap.title, verdict.details)
        try:
            with path.open("xb") as file:
                file.write(svg(shown).encode())
        except OSError as error:
            self.say(f"{path} was not written: {error.strerror}", "fail")
            return
        self.say(f"written: {path}")

    def do_gpu_next_pane(self) -> None:
        self.focus_next()

    def do_gpu_previous_pane(self) -> None:
        self.focus_previous()

    def do_gpu_close(self) -> None:
        self.dismiss(None)


def _named(text: str) -> str:
    return "" if text.strip() else "a path is needed"


def _picture(text: str) -> str:
    return "" if Path(text.strip()).suffix == ".svg" else "a name that ends in .svg"
