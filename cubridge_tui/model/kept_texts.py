"""The texts of a session and what is read from them alone: kept by their contents' hashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubridge_tui.model import linediff
from cubridge_tui.model.links import Links, link
from cubridge_tui.model.rows import Key
from engine.cuir.parser import Parsed, parse_with_tables
from engine.errors import CuBridgeError, InputError
from engine.files import read_spec
from engine.lift import lift_source
from engine.lift.cpp.provenance import Lifted
from engine.service.session.stage_work import Work
from engine.types import Stage, sha256_of

KEPT = 64  # things, of a few contents


class KeptTexts:
    """Texts, trees, maps and differences of one session; used by one thread at a time."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._kept: dict[tuple[Any, ...], Any] = {}

    def keep(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives, made once for a key; a key says all that it depends on."""
        if key not in self._kept:
            if len(self._kept) > KEPT:
                self._kept.clear()
            self._kept[key] = make()
        return self._kept[key]

    def artifact(self, stage: Stage, name: str) -> str | None:
        """A stage's text, or None where it has none."""
        sha = self.work.state.stage(stage).artifacts.get(name)
        if sha is None:
            return None
        text: str = self.keep(("text", sha), lambda: self.work.text(stage, name))
        return text

    def parsed(self, text: str | None) -> Parsed | None:
        """A CuIR text as a tree with its tables."""
        if text is None:
            return None
        found: Parsed = self.keep(("cuir", sha256_of(text)), lambda: parse_with_tables(text))
        return found

    def relift(self, text: str | None, stale: dict[Stage, str]) -> Lifted | None:
        """A lowered source lifted again; where it does not lift, `stale` says so."""
        if text is None:
            return None
        options = self.work.options
        data = text.encode("utf-8", "surrogateescape")

        def make() -> Lifted | str:
            try:
                return lift_source(
                    data, options.specialisation, options.arch, entry=self.work.package.entry
                )
            except CuBridgeError as error:
                return error.message

        found = self.keep(("lift", sha256_of(data)), make)
        if isinstance(found, str):
            stale[Stage.LOWERED] = f"no map: {found}"
            return None
        assert isinstance(found, Lifted)
        return found

    def links(
        self, lifted: Lifted | None, lifted_text: str | None, target: Parsed | None,
        target_text: str | None, lowered: Lifted | None, lowered_text: str | None,
        stale: dict[Stage, str],
    ) -> tuple[Links, Callable[[tuple[str | int, ...]], Key]]:  # fmt: skip
        """The map between the panes, and the function that names the target's ops."""
        key = ("links", lifted_text, target_text, lowered_text, tuple(stale.items()))
        both = (target, target_text) if target is not None and target_text is not None else None
        found: tuple[Links, Callable[[tuple[str | int, ...]], Key]] = self.keep(
            key,
            lambda: link(lifted, lifted_text or "", self.parsed(lifted_text), both, lowered, stale),
        )
        return found

    def spec_text(self) -> str:
        """The spec as the session took it in, else as it is on the disk."""
        wanted = self.work.state.hashes.get("spec")
        for kept in self.work.state.transcripts:
            if kept.sha256 == wanted:
                return self.work.session.content(kept.sha256).decode("utf-8", "replace")
        try:
            return read_spec(self.work.spec).decode("utf-8", "replace")
        except InputError as error:
            return f"# {self.work.spec}: {error.message}\n"

    def ops(self, old: list[str], new: list[str]) -> linediff.Ops:
        """How one text's lines become another's."""
        key = ("ops", sha256_of("\n".join(old)), sha256_of("\n".join(new)))
        found: linediff.Ops = self.keep(key, lambda: linediff.opcodes(old, new))
        return found
