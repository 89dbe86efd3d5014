"""The client: streaming Chat Completions of any OpenAI-compatible server, through `openai`.

The package takes seconds to import, so it is imported in the thread that asks, never before. The
SDK's own retries are off: ours count down where the person sees it. The SDK sends and opens the
stream; `engine.llm.events` reads it. A stream that broke is never retried; what came of it is an
incomplete draft.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from engine.llm.errors import Exhausted, Refused
from engine.llm.events import DONE, Event, EventReader
from engine.llm.options import CAPS, Learnt, learn
from engine.llm.quirks import (
    Piece,
    caused_by,
    connection_words,
    ending_of,
    read_chunk,
    retry_after,
    said_in,
)
from engine.llm.scrub import Scrubber
from engine.llm.settings import CONFIG, Settings
from engine.llm.types import Ending, Heard, Kind, Listen, Reply, Request, Usage, deaf

RETRIED = frozenset({408, 409, 425, 429})
FINAL_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "script_exhausted"})
PULSE_S = 10.0  # between words about a server that says nothing
_TICK = 1.0
_CLOSE_S = 1.0


class _Again(Exception):
    """A try failed in a way that another may cure."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        self.why, self.wait = why, wait
        super().__init__(why)


class _Options(Exception):
    """The server refuses the request as it was sent: other options may cure it."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


@dataclass(slots=True)
class _Draft:
    """What has come of an answer so far."""

    scrub: Scrubber
    scrub_reasoning: Scrubber  # a stream of its own
    listen: Listen
    limit: int
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    size: int = 0
    refusal: str = ""
    finish: str | None = None
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    response_id: str = ""
    error: str = ""

    def add(self, piece: Piece) -> bool:
        """Take a piece in; False when the answer has grown past the cap."""
        if piece.text:
            self._hear(Kind.TEXT, self.scrub.feed(piece.text))
        if piece.reasoning:
            self._hear(Kind.REASONING, self.scrub_reasoning.feed(piece.reasoning))
        self.refusal += piece.refusal
        self.finish = piece.finish or self.finish
        self.usage = piece.usage or self.usage
        self.model = self.model or piece.model
        self.response_id = self.response_id or piece.response_id
        self.error = piece.error or self.error
        return self.size <= self.limit

    def _hear(self, kind: Kind, text: str) -> None:
        if text:
            (self.text if kind is Kind.TEXT else self.reasoning).append(text)
            self.size += len(text)
            self.listen(Heard(kind, text))

    def reply(self, ending: Ending, note: str, seconds: float, tries: int) -> Reply:
        self._hear(Kind.TEXT, self.scrub.rest())
        self._hear(Kind.REASONING, self.scrub_reasoning.rest())
        return Reply(
            ending, self.scrub.whole("".join(self.text)),
            self.scrub.whole("".join(self.reasoning)), self.usage,
            self.scrub.whole(self.model), self.scrub.whole(self.response_id), round(seconds, 3),
            tries, self.scrub.whole(note),
        )  # fmt: skip

    @property
    def begun(self) -> bool:
        return bool(self.text or self.reasoning)


class ServerClient:
    """Asks one server. Holds no connection between requests."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._learnt = Learnt()

    @property
    def place(self) -> str:
        return self.settings.host

    @property
    def manner(self) -> str:
        return self.settings.manner

    async def complete(self, request: Request, listen: Listen = deaf) -> Reply:
        """The reply: complete, or an incomplete draft that says why.

        Raises:
            Refused: the server does not take this request (key, model, address, length).
            Exhausted: no answer within the tries.
        """
        limits = self.settings.limits
        # What a prompt leaves for the answer is learnt anew for each.
        self._learnt = replace(self._learnt, caps=())
        failures: list[str] = []
        for number in range(1, limits.retries + 2):
            listen(Heard(Kind.CONNECTING, self.place))
            try:
                return await self._try(request, listen, number)
            except _Again as error:
                failures.append(error.why)
                if number > limits.retries:
                    break
                await self._wait(error, number, listen)
        tries = len(failures)
        raise Exhausted(
            f"{self.place} gave no answer in {tries} {'try' if tries == 1 else 'tries'}: "
            f"{failures[-1]}",
            fix=f"see whether {self.settings.base_url} is up, then send again",
        )

    async def _wait(self, error: _Again, number: int, listen: Listen) -> None:
        """The pause before the next try, counted down."""
        limits = self.settings.limits
        own = min(limits.wait_s * 2 ** (number - 1), limits.longest_wait_s)
        wait = max(own, error.wait or 0.0)
        if wait > limits.longest_wait_s:
            raise Exhausted(
                f"{self.place}: {error.why}; it asks to wait {wait:.0f} s",
                fix=f"send again after {wait:.0f} s, or raise longest_wait_s",
            )
        end = time.monotonic() + wait
        while (left := end - time.monotonic()) > 0:
            listen(Heard(Kind.WAITING, error.why, left))
            await asyncio.sleep(min(_TICK, left))

    async def _try(self, request: Request, listen: Listen, number: int) -> Reply:
        """One try, with other options as long as the server's refusals teach some."""
        while True:
            options = self._learnt.applied(self._options(request))
            try:
                return await self._send(request, options, listen, number)
            except _Options as error:
                lesson = learn(options, self._learnt, error.message)
                if lesson is None:
                    cap = f"set max_tokens lower under [parameters] in {CONFIG}, then send again"
                    other = "change what its words name, then send again"
                    raise Refused(
                        f"{self.place} refuses the request: {error.message}",
                        fix=cap if any(name in error.message for name in CAPS) else other,
                    ) from None
                self._learnt = lesson.learnt
                listen(Heard(Kind.NOTE, lesson.note))

    def _options(self, request: Request) -> dict[str, Any]:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}}
        return options | request.parameters.to_json()

    async def _send(
        self, request: Request, options: Mapping[str, Any], listen: Listen, number: int
    ) -> Reply:
        import httpx2
        import openai

        settings, limits = self.settings, self.settings.limits
        scrub = Scrubber(settings.key.reveal())
        scrub_reasoning = Scrubber(settings.key.reveal())
        draft = _Draft(scrub, scrub_reasoning, listen, limits.max_characters)
        begin = time.monotonic()

        def reply(ending: Ending, note: str) -> Reply:
            return draft.reply(ending, note, time.monotonic() - begin, number)

        timeout = httpx2.Timeout(
            limits.first_s, connect=limits.connect_s, write=limits.chunk_s, pool=limits.connect_s
        )
        # A redirect would carry kernel and key to a host that the person has not seen. Proxy
        # variables are for the outside: with them a local server would be asked through a proxy.
        http = openai.DefaultAsyncHttpx2Client(
            timeout=timeout, trust_env=not settings.loopback, follow_redirects=False,
            verify=_certificates(),
        )  # fmt: skip
        sdk = openai.AsyncOpenAI(
            api_key=settings.key.reveal(), base_url=settings.base_url, max_retries=0,
            timeout=timeout, http_client=http,
        )  # fmt: skip
        pulse = asyncio.create_task(self._pulse(draft))
        try:
            async with asyncio.timeout(limits.total_s):
                raw = await self._open(sdk, request, options)
                try:
                    kept = await self._read(raw, draft)
                finally:
                    with contextlib.suppress(Exception):
                        await asyncio.wait_for(raw.http_response.aclose(), _CLOSE_S)
            if not kept:
                return reply(Ending.LENGTH, f"longer than {limits.max_characters} characters")
            if draft.error:
                return self._broken(draft, reply, draft.error)
            return reply(*ending_of(draft.finish, "".join(draft.text), bool(draft.refusal)))
        except openai.APIStatusError as error:
            raise self._status(error, scrub) from None
        except (openai.APITimeoutError, httpx2.TimeoutException) as error:
            connecting = caused_by(error, httpx2.ConnectTimeout)
            if connecting and not draft.begun:
                raise _Again(f"no connection within {limits.connect_s:g} s") from None
            return reply(Ending.STALLED, f"nothing came for {limits.first_s:g} s")
        except _Stalled:
            waited = limits.chunk_s if draft.begun else limits.first_s
            return reply(Ending.STALLED, f"nothing came for {waited:g} s")
        except TimeoutError:
            return reply(Ending.OVERTIME, f"not done after {limits.total_s:g} s")
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            if not draft.begun:
                raise _Again(scrub.whole(connection_words(error))) from None
            return reply(Ending.BROKEN, "the connection broke in the middle of the answer")
        except _NoChunk:
            return reply(Ending.BROKEN, "the stream holds what is no JSON of an answer")
        finally:
            pulse.cancel()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(sdk.close(), _CLOSE_S)

    async def _pulse(self, draft: _Draft) -> None:
        """Says from time to time that a server which has said nothing is still waited for."""
        begin, limit = time.monotonic(), self.settings.limits.first_s
        while not draft.begun:
            await asyncio.sleep(PULSE_S)
            if not draft.begun:
                waited = time.monotonic() - begin
                words = f"no word for {waited:.0f} s; it may be silent for {limit:g} s"
                draft.listen(Heard(Kind.NOTE, words))

    async def _open(self, sdk: Any, request: Request, options: Mapping[str, Any]) -> Any:
        """The server's response, its body not read yet."""
        messages = [m.to_json() for m in request.messages]
        return await sdk.chat.completions.with_raw_response.create(
            model=request.model, messages=messages, stream=True, **options
        )

    def _broken(self, draft: _Draft, reply: Any, words: str) -> Reply:
        made: Reply = reply(Ending.BROKEN, f"the server reported: {words}")
        return made

    async def _read(self, raw: Any, draft: _Draft) -> bool:
        """The body into the draft; False when it outgrew the cap."""
        kind = str(raw.headers.get("content-type", "")).split(";")[0].strip().lower()
        if kind in ("text/html", "application/xhtml+xml"):
            raise Refused(
                f"{self.place} answered with a web page, not with a model's answer",
                fix=f"check the base URL ({self.settings.base_url}); it usually ends in /v1",
            )
        if kind == "application/json":  # a server that does not stream
            try:
                data = json.loads(await raw.http_response.aread())
            except (RecursionError, ValueError):
                raise _NoChunk from None
            return draft.add(read_chunk(data)) if isinstance(data, dict) else True
        async for event in self._events(raw.http_response, draft):
            try:
                data = json.loads(event.data)
            except (RecursionError, ValueError):
                if event.name != "error":
                    raise _NoChunk from None
                data = event.data
            if event.name == "error" and not (isinstance(data, dict) and data.get("error")):
                data = {"error": data}
            if not isinstance(data, dict):
                raise _NoChunk
            if not draft.add(read_chunk(data)):
                return False
        return True

    async def _events(self, response: Any, draft: _Draft) -> AsyncGenerator[Event, None]:
        """The body's events until it says that it is done.

        Whatever comes is a sign of life, a comment too: the limit runs from the last byte. It is
        the one on the first words until some have come, since servers send empty chunks (a role, a
        filter's verdict) before they have read the prompt.
        """
        reader = EventReader()
        parts = response.aiter_bytes().__aiter__()
        limits, ended = self.settings.limits, False
        while not ended:
            try:
                limit = limits.chunk_s if draft.begun else limits.first_s
                async with asyncio.timeout(limit) as timer:
                    events = reader.feed(await anext(parts))
            except StopAsyncIteration:
                events, ended = reader.end(), True
            except TimeoutError:
                if timer.expired():
                    raise _Stalled from None
                raise
            for event in events:
                if event.data.strip() == DONE:
                    return
                yield event

    def _status(self, error: Any, scrub: Scrubber) -> Exception:
        """An HTTP error as what the person should do, or as a reason to try again."""
        code = int(error.status_code)
        words = scrub.whole(said_in(error))
        headers = error.response.headers
        if "html" in str(headers.get("content-type", "")):
            words = "a web page instead of an answer"
        again = headers.get("x-should-retry")
        final = str(getattr(error, "code", None)) in FINAL_CODES  # any JSON, not only a text
        if code in (400, 422) and not final:
            return _Options(words)
        final = final or again == "false"
        if not final and (code in RETRIED or code >= 500):
            name = "too many requests" if code == 429 else f"HTTP {code}"
            return _Again(f"{name}: {words}", retry_after(headers))
        fixes = {
            401: self._about_key(),
            403: "the key may not use this model: choose another model",
            404: f"check the base URL ({self.settings.base_url}) and the model's name",
        }
        if 300 <= code < 400:
            where = scrub.whole(str(headers.get("location", "elsewhere"))[:200])
            return Refused(
                f"{self.place} redirects to {where}; nothing was sent there",
                fix="give that address as the base URL if you trust it",
            )
        if code == 401 and self.settings.key_name:
            words = f"the key in {self.settings.key_name} was refused: {words}"
        return Refused(f"{self.place}: HTTP {code}: {words}", fix=fixes.get(code))

    def _about_key(self) -> str:
        """What to do about a key that is refused, or was not sent."""
        settings = self.settings
        if settings.key_name:
            return f"export {settings.key_name}=... again, with a key for {self.place}"
        return f"no key was sent: export {settings.key_env}=..., then try again"


@cache
def _certificates() -> Any:
    """The TLS context that httpx2 would make anew for each request, in a twelfth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


class _NoChunk(Exception):
    """JSON that is no chunk of an answer."""


class _Stalled(Exception):
    """No chunk within the limit."""
