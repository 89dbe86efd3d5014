"""Fixtures of the session tests: a store on disk and small sessions in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.types import Artifact, Gate, Stage, Verdict, VerdictKind, sha256_of
from sessions.events import ArtifactSet, Body, SessionCreated, VerdictGiven
from sessions.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store.git")


@pytest.fixture
def session(store: Store) -> str:
    return store.create(created(), actor="ana")


@pytest.fixture
def git(store: Store) -> Callable[..., str]:
    """Plain git on the store, as a person would use it."""
    import subprocess

    def run(*args: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", "-C", str(store.path), *args], capture_output=True, text=True, check=check
        )
        return done.stdout

    return run


def created(title: str = "softcap on causal") -> SessionCreated:
    return SessionCreated(
        title, "flash_fwd_sm80", sha256_of("kernel"), "softcap_causal.py", sha256_of("spec")
    )


def artifact_set(stage: Stage, text: str, name: str = "text") -> tuple[ArtifactSet, Artifact]:
    artifact = Artifact.of(stage, name, text)
    return ArtifactSet(stage, name, artifact.sha256), artifact


def passed(gate: Gate, text: str, kind: VerdictKind = VerdictKind.PASS, **more: str) -> Body:
    """A verdict on the artifact with this text; `more` are further hashes by name."""
    subject = (("artifact", sha256_of(text)), *((n, sha256_of(t)) for n, t in more.items()))
    reason = "" if kind is VerdictKind.PASS else "because"
    by = "ana" if kind is VerdictKind.OVERRIDDEN else ""
    return VerdictGiven(Verdict(gate, kind, reason, 0.5, subject, by=by))
