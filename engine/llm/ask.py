"""Ask from an ordinary thread, with a cancel that returns at once.

The request runs in an event loop of a daemon thread, so that neither a hanging name lookup nor a
server that ignores a closed connection can hold the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field

from engine.llm.types import Client, Ending, Heard, Kind, Listen, Reply, Request, deaf

_TICK = 0.02
_TIDY_S = 2.0
AFTER_CANCEL = "cancelled; the server may still be working on it"


@dataclass(slots=True)
class _Result:
    reply: Reply | None = None
    error: BaseException | None = None
    text: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    left: bool = False  # the caller went away: nobody listens any more


def ask(
    client: Client,
    request: Request,
    listen: Listen = deaf,
    cancel: threading.Event | None = None,
) -> Reply:
    """The reply of `client`. When `cancel` is set: an incomplete draft, at once.

    `listen` is called from the other thread. Raises `LlmError`.
    """
    result = _Result()

    def hear(heard: Heard) -> None:
        if result.left:
            return
        if heard.kind is Kind.TEXT:
            result.text.append(heard.text)
        listen(heard)

    loop = asyncio.new_event_loop()

    def work() -> None:
        try:
            asyncio.set_event_loop(loop)
            result.reply = loop.run_until_complete(client.complete(request, hear))
        except BaseException as error:
            result.error = error
        finally:
            result.done.set()
            with contextlib.suppress(Exception):
                tidy = asyncio.wait_for(loop.shutdown_asyncgens(), _TIDY_S)
                loop.run_until_complete(tidy)
            with contextlib.suppress(Exception):
                loop.close()

    thread = threading.Thread(target=work, name="model request", daemon=True)
    thread.start()
    try:
        while not result.done.wait(_TICK):
            if cancel is not None and cancel.is_set():
                return Reply(Ending.CANCELLED, "".join(result.text), note=AFTER_CANCEL)
    finally:
        if not result.done.is_set():
            result.left = True
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_cancel_all, loop)
    if result.error is not None:
        raise result.error
    assert result.reply is not None
    return result.reply


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
