"""Looking closer: the mask as a picture, and what a GPU says."""

from __future__ import annotations

from typing import Any

from cubridge_tui.screens.adaptation.shared import Shared
from engine.types import Gate


class EvidenceActions(Shared):
    """Actions that open a screen about the session's evidence."""

    gpu_choice: Any = None  # what was chosen on the GPU screen
    mask_values: dict[str, str]  # what a person gave to the inputs that the mask reads
    model_state: Any = None  # the model's run, also while its screen is closed

    def do_mask(self) -> None:
        from cubridge_tui.screens.mask import MaskScreen, MaskSubject

        snap = self.snap
        if snap is None or snap.recipe is None:
            return
        subject = MaskSubject(
            snap.title,
            snap.recipe,
            snap.target,
            snap.binding,
            snap.lifted,
            snap.state.verdict(Gate.G2),
            self.mask_values,
            sum(decision is None for _, _, decision in snap.hunks),
        )
        self.app.push_screen(MaskScreen(subject))

    def do_gpu(self) -> None:
        from cubridge_tui.screens.gpu import GpuScreen

        self.app.push_screen(GpuScreen(self))

    def do_ask_model(self) -> None:
        from cubridge_tui.screens.ask_model import ModelScreen, ModelState

        if self.model_state is None:
            self.model_state = ModelState()
        self.app.push_screen(ModelScreen(self, self.model_state))
