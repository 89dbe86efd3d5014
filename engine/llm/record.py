"""Recordings: every request and its reply as one file, and a client that answers from them.

A replay needs no server and no key. Requests are found by their hash, so what is replayed is
exactly what was sent; equal requests are answered in the order in which they were asked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from engine.errors import InputError, Where
from engine.files import read_text
from engine.llm.errors import NotRecorded
from engine.llm.types import Client, Heard, Kind, Listen, Parameters, Reply, Request, deaf

SCHEMA = 1


class Recorder:
    """A client that writes down what another one answers. `folder` is made if need be."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot record there: {error.strerror or error}", where=Where(str(folder)),
                fix="name a folder that can be written",
            ) from None  # fmt: skip

    @property
    def place(self) -> str:
        return self._client.place

    @property
    def manner(self) -> str:
        return self._client.manner

    async def complete(self, request: Request, listen: Listen = deaf) -> Reply:
        reply = await self._client.complete(request, listen)
        self._write(request, reply)
        return reply

    def _write(self, request: Request, reply: Reply) -> None:
        number = 1 + max((int(p.name[:4]) for p in _files(self.folder)), default=0)
        file = self.folder / f"{number:04d}-{request.sha256[:12]}.json"
        data = {
            "schema": SCHEMA, "request_sha256": request.sha256, "request": request.to_json(),
            "reply": reply.to_json(),
        }  # fmt: skip
        text = json.dumps(data, indent=1, ensure_ascii=True) + "\n"
        part = file.with_suffix(".part")
        part.write_text(text, encoding="ascii")
        part.replace(file)


class Replayer:
    """A client that answers from a recording."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._replies: dict[str, list[Reply]] = defaultdict(list)
        files = _files(folder)
        if not files:
            raise InputError(
                "there is no recording here", where=Where(str(folder)),
                fix="make one with --record DIR",
            )  # fmt: skip
        self._requests: list[dict[str, object]] = []
        for file in files:
            try:
                data = json.loads(read_text(file, "record again, or take the file away"))
                reply = Reply.from_json(data["reply"])
                self._replies[str(data["request_sha256"])].append(reply)
                self._requests.append(data["request"])
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"not a recorded answer: {error}", where=Where(str(file)),
                    fix="record again, or take the file away",
                ) from None  # fmt: skip

    @property
    def place(self) -> str:
        return f"recording {self.folder}"

    @property
    def manner(self) -> str:
        return "nothing leaves this machine"

    @property
    def model(self) -> str:
        """The model that was asked first."""
        return str(self._requests[0].get("model", ""))

    @property
    def parameters(self) -> Parameters:
        """The parameters that the first request was sent with."""
        given = self._requests[0].get("parameters")
        values = given if isinstance(given, dict) else {}
        return Parameters(values.get("temperature"), values.get("max_tokens"), values.get("seed"))

    async def complete(self, request: Request, listen: Listen = deaf) -> Reply:
        """Raises `NotRecorded`."""
        replies = self._replies.get(request.sha256)
        if not replies:
            raise NotRecorded(
                f"the recording holds no answer to this request ({self._difference(request)})",
                where=Where(str(self.folder)),
                fix="replay with the kernel, spec, options and version that it was made with",
            )
        reply = replies.pop(0)
        if reply.text:
            listen(Heard(Kind.TEXT, reply.text))
        return reply

    def _difference(self, request: Request) -> str:
        """Where the nearest recorded request differs, for the message."""
        mine = request.to_json()
        if any(r == mine for r in self._requests):
            return "it was asked more often than recorded"
        best = "no recorded request resembles it"
        depth = -1
        for other in self._requests:
            for name in ("model", "parameters"):
                if other.get(name) != mine[name] and depth < 0:
                    best = f"{name} was {other.get(name)!r}, now {mine[name]!r}"
            messages = other.get("messages")
            if not isinstance(messages, list):
                continue
            for number, (old, new) in enumerate(
                zip(messages, mine["messages"], strict=False), start=1
            ):
                if old == new:
                    continue
                same = _common(str(old), str(new))
                if number * 1_000_000 + same > depth:
                    depth = number * 1_000_000 + same
                    line = new["content"][:same].count("\n") + 1
                    best = f"message {number} differs near its line {line}"
                break
        return best


def _common(a: str, b: str) -> int:
    size = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        size += 1
    return size


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("[0-9][0-9][0-9][0-9]-*.json") if p.is_file())
