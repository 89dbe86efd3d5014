"""A scripted server, and a client for it with short limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.llm.client import ServerClient
from engine.llm.settings import Limits, Secret, Settings
from tests.engine.llm.server import Act, Server

KEY = "sk-verysecretkey0123456789"
SHORT = Limits(
    connect_s=1, first_s=0.6, chunk_s=0.4, total_s=5, retries=2, wait_s=0.05, longest_wait_s=2
)
Serve = Callable[..., tuple[Server, ServerClient]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def make(*acts: Act, limits: Limits = SHORT, key: str = KEY) -> tuple[Server, ServerClient]:
        server = Server(acts)
        servers.append(server)
        return server, ServerClient(Settings(server.url, "fake", Secret(key), limits=limits))

    yield make
    for server in servers:
        server.stop()
