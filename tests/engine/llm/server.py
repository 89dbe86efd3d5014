"""A scriptable chat server on loopback: each request takes the next act of the script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[["Handler"], None]


@dataclass
class Asked:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        return "\n".join(m["content"] for m in self.body["messages"])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(size))
        with self.server.lock:
            self.server.asked.append(Asked(self.path, dict(self.headers.items()), body))
            act = self.server.acts.pop(0) if self.server.acts else status(400, "no act left")
        self.close_connection = True
        try:
            act(self)
        except (BrokenPipeError, ConnectionResetError):
            self.server.gone.set()

    def log_message(self, *_: object) -> None:
        pass

    def start(self, code: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, text: str | bytes) -> None:
        self.wfile.write(text.encode() if isinstance(text, str) else text)
        self.wfile.flush()

    def chunk(self, delta: Any = None, finish: str | None = None, **more: Any) -> None:
        data: dict[str, Any] = {
            "id": "r-1", "object": "chat.completion.chunk", "created": 1, "model": "fake",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }  # fmt: skip
        self.send(f"data: {json.dumps(data | more, ensure_ascii=False)}\n\n")

    def done(self) -> None:
        self.send("data: [DONE]\n\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, acts: Iterable[Act] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.acts: list[Act] = list(acts)
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        self.gone = threading.Event()
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()


# --- acts -----------------------------------------------------------------------------------------


def answer(text: str, finish: str | None = "stop", size: int = 40) -> Act:
    def act(to: Handler) -> None:
        to.start()
        for at in range(0, len(text), size):
            to.chunk({"content": text[at : at + size]})
        to.chunk({}, finish)
        to.chunk(choices=[], usage={"prompt_tokens": 11, "completion_tokens": 7})
        to.done()

    return act


def status(code: int, message: str, /, *, error_code: str | None = None, **headers: str) -> Act:
    def act(to: Handler) -> None:
        to.start(code, "application/json", **headers)
        to.send(json.dumps({"error": {"message": message, "code": error_code}}))

    return act


def html(code: int) -> Act:
    def act(to: Handler) -> None:
        to.start(code, "text/html")
        to.send("<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>")

    return act


def hang(to: Handler) -> None:
    to.server.stopping.wait(30)


def slow(seconds: float, then: Act) -> Act:
    def act(to: Handler) -> None:
        time.sleep(seconds)
        then(to)

    return act


def raw(*parts: str | bytes, kind: str = "text/event-stream") -> Act:
    def act(to: Handler) -> None:
        to.start(kind=kind)
        for part in parts:
            to.send(part)

    return act


def endless(to: Handler) -> None:
    to.start()
    while not to.server.stopping.is_set():
        to.chunk({"content": "again and again " * 50})


@dataclass
class Ears:
    heard: list[Any] = field(default_factory=list)

    def __call__(self, heard: Any) -> None:
        self.heard.append(heard)

    def kinds(self) -> list[str]:
        return [h.kind.value for h in self.heard]

    @property
    def text(self) -> str:
        return "".join(h.text for h in self.heard if h.kind.value == "text")
