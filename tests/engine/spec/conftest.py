"""Specs written to a temporary folder and read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from engine.spec import Recipe, read_recipe

Read = Callable[..., Recipe]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a spec's text to a file."""

    def put(text: str) -> Path:
        path = tmp_path / "spec.py"
        path.write_text(text)
        return path

    return put


@pytest.fixture
def read(write: Callable[[str], Path]) -> Read:
    """Read a spec from its text, with options by keyword."""

    def run(text: str, **options: object) -> Recipe:
        return read_recipe(write(text), options)

    return run
