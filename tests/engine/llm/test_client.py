"""The client against a real HTTP server: every quirk ends in one clear state."""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from dataclasses import replace

import pytest

from engine.llm import client as client_module
from engine.llm.ask import ask
from engine.llm.client import ServerClient
from engine.llm.errors import Exhausted, LlmError, Refused
from engine.llm.settings import Limits, Secret, Settings
from engine.llm.types import Ending, Heard, Kind, Message, Parameters, Request, Usage
from tests.engine.llm import server as acts
from tests.engine.llm.conftest import KEY, SHORT, Serve
from tests.engine.llm.server import Ears

REQUEST = Request("fake", (Message("system", "be exact"), Message("user", "edit it")))


def test_an_answer_with_its_tokens(serve: Serve) -> None:
    server, client = serve(acts.answer("hello " * 30))
    ears = Ears()
    reply = ask(client, REQUEST, ears)
    assert reply.complete and reply.text == "hello " * 30 == ears.text
    assert reply.usage == Usage(11, 7) and reply.model == "fake" and reply.response_id == "r-1"
    sent = server.asked[0]
    assert sent.path == "/v1/chat/completions"
    assert sent.body["stream"] is True and sent.body["temperature"] == 0.0
    assert sent.body["max_tokens"] == Parameters().max_tokens


@pytest.mark.parametrize(
    ("finish", "ending"),
    [
        ("length", Ending.LENGTH),
        ("content_filter", Ending.FILTERED),
        ("tool_calls", Ending.BROKEN),
        (None, Ending.BROKEN),
    ],
)
def test_only_a_stop_completes(serve: Serve, finish: str | None, ending: Ending) -> None:
    _, client = serve(acts.answer("half of", finish), acts.answer("whole"))
    reply = ask(client, REQUEST)
    assert reply.ending is ending and reply.text == "half of" and not reply.complete
    assert ask(client, REQUEST).complete  # the next request works


def test_an_empty_answer_is_no_answer(serve: Serve) -> None:
    _, client = serve(acts.answer("  \n"))
    assert ask(client, REQUEST).ending is Ending.EMPTY


def test_reasoning_without_content(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        to.chunk({"role": "assistant", "content": None, "reasoning_content": "think"})
        to.chunk({"reasoning": " more"})
        to.chunk(None)
        to.chunk({}, "stop")
        to.done()

    _, client = serve(act)
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.EMPTY and reply.reasoning == "think more"


def test_a_refusal(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        to.chunk({"refusal": "I will not"})
        to.chunk({}, "stop")
        to.done()

    _, client = serve(act)
    assert ask(client, REQUEST).ending is Ending.FILTERED


def test_odd_chunks_are_read(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        to.send(": keep-alive comment\n\n")
        to.chunk({"content": [{"type": "text", "text": "par"}, {"type": "text", "text": "ts"}]})
        to.chunk({"content": " a\u2028b\u2029c\x85d"})  # separators of Unicode are no line ends
        to.chunk(choices=None)
        to.send('data: {"id": "x"}\n\n')
        to.chunk({"content": ""}, "stop")
        to.chunk(choices=[], usage={"input_tokens": 3, "output_tokens": 4})
        to.done()

    _, client = serve(act)
    reply = ask(client, REQUEST)
    assert reply.complete and reply.text == "parts a\u2028b\u2029c\x85d"
    assert reply.usage == Usage(3, 4)


def test_a_server_that_does_not_stream(serve: Serve) -> None:
    body = '{"id": "n", "choices": [{"message": {"content": "all"}, "finish_reason": "stop"}]}'
    _, client = serve(acts.raw(body, kind="application/json"))
    reply = ask(client, REQUEST)
    assert reply.complete and reply.text == "all" and reply.usage == Usage(None, None)


@pytest.mark.parametrize("code", [408, 409, 429, 500, 503])
def test_retries_count_down_where_it_is_seen(serve: Serve, code: int) -> None:
    busy = acts.status(code, "busy", retry_after="0")
    server, client = serve(busy, busy, acts.answer("yes"))
    ears = Ears()
    reply = ask(client, REQUEST, ears)
    assert reply.complete and reply.tries == 3 and len(server.asked) == 3
    waits = [h for h in ears.heard if h.kind.value == "waiting"]
    assert len(waits) >= 2 and all(w.seconds > 0 and "busy" in w.text for w in waits)


def test_retries_are_bounded(serve: Serve) -> None:
    server, client = serve(*[acts.status(500, "down")] * 9)
    with pytest.raises(Exhausted, match=r"3 tries.*down"):
        ask(client, REQUEST)
    assert len(server.asked) == 3


def test_retry_after_is_honoured_and_bounded(serve: Serve) -> None:
    _, client = serve(acts.status(429, "wait", retry_after="0.3"), acts.answer("yes"))
    begin = time.monotonic()
    assert ask(client, REQUEST).complete
    assert time.monotonic() - begin >= 0.3
    server, client = serve(acts.status(429, "quota", retry_after="7200"))
    with pytest.raises(Exhausted, match="7200 s"):
        ask(client, REQUEST)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "act",
    [
        acts.status(401, "no such key"),
        acts.status(404, "no such model"),
        acts.status(429, "no money", error_code="insufficient_quota"),
        acts.status(503, "never", x_should_retry="false"),
    ],
)
def test_what_no_retry_cures_is_asked_once(serve: Serve, act: acts.Act) -> None:
    server, client = serve(act, acts.answer("yes"))
    with pytest.raises(Refused):
        ask(client, REQUEST)
    assert len(server.asked) == 1
    assert ask(client, REQUEST).complete


def test_a_server_that_says_nothing_yet_is_told_of(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PULSE_S", 0.05)
    heard: list[Heard] = []
    waited = threading.Event()

    def listen(one: Heard) -> None:
        heard.append(one)
        if one.kind is Kind.NOTE:
            waited.set()

    def slow(to: acts.Handler) -> None:
        waited.wait(30)
        acts.answer("at last")(to)

    _, client = serve(slow, acts.answer("at once"), limits=replace(SHORT, first_s=60, total_s=60))
    assert ask(client, REQUEST, listen).text == "at last"
    notes = [h.text for h in heard if h.kind is Kind.NOTE]
    assert notes and all(n.endswith("it may be silent for 60 s") for n in notes)
    kinds = [h.kind for h in heard]
    assert Kind.NOTE not in kinds[kinds.index(Kind.TEXT) :]


def test_a_refused_key_is_told_from_a_missing_one(serve: Serve) -> None:
    server, client = serve(*[acts.status(401, "nobody knows you")] * 2)
    named = replace(client.settings, key_name="SHOP_KEY", key_env="SHOP_KEY")
    with pytest.raises(Refused) as refused:
        ask(ServerClient(named), REQUEST)
    assert "the key in SHOP_KEY was refused: nobody knows you" in refused.value.message
    assert refused.value.fix == f"export SHOP_KEY=... again, with a key for {client.place}"
    assert KEY not in str(refused.value)
    unnamed = replace(named, key_name="")
    with pytest.raises(Refused) as missing:
        ask(ServerClient(unnamed), REQUEST)
    assert "refused" not in missing.value.message and "nobody knows you" in missing.value.message
    assert missing.value.fix == "no key was sent: export SHOP_KEY=..., then try again"
    assert len(server.asked) == 2


def test_unknown_options_are_left_out_one_by_one(serve: Serve) -> None:
    server, client = serve(
        acts.status(400, "stream_options is not supported"),
        acts.status(400, "Use 'max_completion_tokens' instead of 'max_tokens'"),
        acts.status(400, "temperature: only the default is supported"),
        acts.answer("yes"),
        acts.answer("again"),
    )
    ears = Ears()
    assert ask(client, REQUEST, ears).complete
    assert ears.kinds().count("note") == 3
    last = server.asked[3].body
    assert "stream_options" not in last and "temperature" not in last
    assert last["max_completion_tokens"] == 16_000 and "max_tokens" not in last
    assert ask(client, REQUEST).complete and len(server.asked) == 5  # learnt


TOO_LARGE = "max_tokens or max_completion_tokens is too large: {}. {}"


def test_a_cap_that_is_too_large_is_lowered_to_what_the_server_allows(serve: Serve) -> None:
    server, client = serve(
        acts.status(400, "Use 'max_completion_tokens' instead of 'max_tokens'"),
        acts.status(400, TOO_LARGE.format(16_000, "This model supports at most 4096 tokens")),
        acts.status(400, TOO_LARGE.format(4096, "maximum context length is 8192 tokens and your "
                    "request has 5000 input tokens")),
        acts.answer("yes"),
        acts.answer("shorter"),
    )  # fmt: skip
    ears = Ears()
    assert ask(client, REQUEST, ears).complete
    assert ears.kinds().count("note") == 3
    caps = [asked.body.get("max_completion_tokens") for asked in server.asked]
    assert caps == [None, 16_000, 4096, 3192]
    assert ask(client, REQUEST).complete
    assert server.asked[-1].body["max_completion_tokens"] == 16_000, "the prompt decided that"


@pytest.mark.parametrize("words", ["", "It must be at most 16000", "never"])
def test_a_cap_that_is_always_too_large_ends_the_asking(serve: Serve, words: str) -> None:
    server, client = serve(*[acts.status(400, TOO_LARGE.format(16_000, words))] * 50)
    with pytest.raises(Refused, match="too large") as refused:
        ask(client, REQUEST)
    assert len(server.asked) == 1
    assert "max_tokens" in str(refused.value.fix) and "llm.toml" in str(refused.value.fix)


@pytest.mark.parametrize("message", ["max_tokens, max_completion_tokens", "no", "temperature seed"])
def test_a_server_that_refuses_all_options_is_asked_a_few_times(serve: Serve, message: str) -> None:
    server, client = serve(*[acts.status(400, message)] * 50)
    for _ in range(2):
        with pytest.raises(Refused):
            ask(client, REQUEST)
    assert len(server.asked) <= 8


def test_a_400_about_the_prompt_is_final(serve: Serve) -> None:
    server, client = serve(acts.status(400, "maximum context length is 8192 tokens"))
    with pytest.raises(Refused, match="context length"):
        ask(client, REQUEST)
    assert len(server.asked) == 1


def test_a_stream_that_breaks_is_a_draft(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.send_response(200)
        to.send_header("content-type", "text/event-stream")
        to.send_header("content-length", "100000")
        to.end_headers()
        to.chunk({"content": "half"})

    server, client = serve(act, acts.answer("whole"))
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.BROKEN and reply.text == "half" and len(server.asked) == 1
    assert ask(client, REQUEST).text == "whole"


def test_garbage_is_a_draft(serve: Serve) -> None:
    good = 'data: {"choices": [{"delta": {"content": "good"}}]}\n\n'
    _, client = serve(acts.raw(good, "data: {not json\n\n"), acts.answer("whole"))
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.BROKEN and reply.text == "good"
    assert ask(client, REQUEST).complete


DEEP = "[" * 20_000 + "]" * 20_000
ODD = ("null", "true", "5", "-1e400", '"x"', "[]", "[[]]", "[5]", "{}", '{"x": [{}]}', DEEP,
       "9" * 5000, '"\\ud800"')  # fmt: skip
CHUNK = {
    "id": "r-1", "object": "chat.completion.chunk", "created": 1, "model": "fake",
    "choices": [{"index": 0, "delta": {"content": "x", "role": "assistant", "refusal": None,
                 "reasoning_content": "hm", "tool_calls": None}, "finish_reason": None}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2}, "error": None,
}  # fmt: skip


def variants(value: object, odd: tuple[str, ...] = ODD) -> list[str]:
    """A JSON value with each odd value in its place, and some of them at every place in it."""
    inside = ("5", "[[5]]", '{"x": []}')
    found = list(odd)
    if isinstance(value, dict):
        for key, inner in value.items():
            rest = json.dumps({k: v for k, v in value.items() if k != key})
            comma = ", " if len(value) > 1 else ""
            found += [f'{rest[:-1]}{comma}"{key}": {odd}}}' for odd in variants(inner, inside)]
    elif isinstance(value, list):
        found += [f"[{odd}]" for odd in variants(value[0], inside)]
    return found


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_no_json_in_a_chunk_is_more_than_a_draft(serve: Serve, kind: str) -> None:
    texts = variants(CHUNK)
    form = "data: {}\n\n" if kind == "text/event-stream" else "{}"
    _, client = serve(*(acts.raw(form.replace("{}", text, 1), kind=kind) for text in texts))
    for text in texts:
        reply = ask(client, REQUEST)
        assert isinstance(reply.ending, Ending), text[:200]
        json.dumps([reply.text, reply.note, reply.model])


def test_no_json_in_an_error_is_more_than_a_refusal(serve: Serve) -> None:
    texts = variants({"error": {"message": "no", "code": "c", "type": "t", "param": "p"}})

    def refuse(text: str) -> acts.Act:
        def act(to: acts.Handler) -> None:
            to.start(401, "application/json")
            to.send(text)

        return act

    _, client = serve(*map(refuse, texts))
    for _ in texts:
        with pytest.raises(Refused, match="HTTP 401"):
            ask(client, REQUEST)


def test_an_error_inside_the_stream(serve: Serve) -> None:
    error = 'data: {"error": {"message": "out of memory"}}\n\n'
    _, client = serve(acts.raw(error))
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.BROKEN and "out of memory" in reply.note


WORDS = [
    '{"error": {"message": "out of memory"}}',
    '{"error": "out of memory"}',
    '{"detail": "out of memory"}',
    '{"detail": [{"loc": ["body", "messages", 0], "msg": "out of memory", "type": "t"}]}',
    '{"object": "error", "message": "out of memory", "code": 400}',
    '[{"error": {"code": 400, "message": "out of memory"}}]',
    '{"error": {"error": {"message": "out of memory"}}}',
    '{"errors": ["out of memory", "twice"]}',
    '"out of memory"',
    "out of memory",
]


@pytest.mark.parametrize("body", WORDS)
def test_a_servers_own_words_are_kept(serve: Serve, body: str) -> None:
    def refuse(to: acts.Handler) -> None:
        to.start(403, "application/json")
        to.send(body)

    whole = body if body.startswith("{") else f'{{"error": {json.dumps(body)}}}'
    named = f"event: error\ndata: {body}\n\n"
    _, client = serve(refuse, acts.raw(named), acts.raw(whole, kind="application/json"))
    with pytest.raises(Refused, match=r"HTTP 403: .*out of memory") as refused:
        ask(client, REQUEST)
    assert "{" not in refused.value.message and "'" not in refused.value.message
    assert "out of memory" in ask(client, REQUEST).note
    if '"errors"' not in body:
        assert "out of memory" in ask(client, REQUEST).note


def test_a_character_in_two_halves_is_one(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        for half in ("\\ud83d", "\\ude00 \\ud800 end"):
            delta = f'{{"content": "{half}", "reasoning_content": "{half}"}}'
            to.send(f'data: {{"choices": [{{"delta": {delta}}}]}}\n\n')
        to.chunk({}, "stop")
        to.done()

    lone = '{"model": "\\udfff", "choices": [{"message": {"content": "x\\ud800"}, "finish_reason": "stop"}]}'  # noqa: E501
    _, client = serve(
        act, acts.raw(lone, kind="application/json"), acts.status(401, "no \ud83d"),
        acts.raw('data: {"error": "no \\ud83d"}\n\n'),
    )  # fmt: skip
    ears = Ears()
    reply = ask(client, REQUEST, ears)
    assert reply.complete and reply.text == reply.reasoning == "\U0001f600 \ufffd end" == ears.text
    reply = ask(client, REQUEST)
    assert (reply.text, reply.model) == ("x\ufffd", "\ufffd")
    with pytest.raises(Refused, match="no \ufffd"):
        ask(client, REQUEST)
    assert ask(client, REQUEST).note == "the server reported: no \ufffd"


def test_a_key_split_over_reasoning_is_not_shown(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        to.chunk({"reasoning": KEY[:9]})
        to.chunk({"reasoning": KEY[9:] + " it is"})
        to.chunk({"content": "x"}, "stop")
        to.done()

    _, client = serve(act)
    ears = Ears()
    assert ask(client, REQUEST, ears).reasoning == "*** it is"
    assert "".join(h.text for h in ears.heard if h.kind is Kind.REASONING) == "*** it is"


EMPTY = {
    "a role": {"delta": {"role": "assistant", "content": ""}},
    "a null": {"delta": {"content": None}},
    "filters": None,
}


@pytest.mark.parametrize("first", sorted(EMPTY))
def test_an_empty_first_chunk_is_no_first_word(serve: Serve, first: str) -> None:
    """Servers send it before they have read the prompt: the limit on first words holds on."""

    def act(to: acts.Handler) -> None:
        to.start()
        to.chunk(choices=[EMPTY[first]] if EMPTY[first] else [], prompt_filter_results=[])
        time.sleep(0.7)
        to.chunk({"content": "late"}, "stop")
        to.done()

    limits = replace(SHORT, first_s=3, chunk_s=0.3)
    _, client = serve(act, limits=limits)
    assert ask(client, REQUEST).text == "late"


def test_keep_alive_comments_are_life(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        for sign in (": alive\n\n", "id: 1\n\n", "data: : ALIVE\n\n", "event: ping\ndata: x\n\n"):
            time.sleep(0.35)
            to.send(sign)
        to.chunk({"content": "some"})
        for _ in range(3):
            time.sleep(0.35)
            to.send(": alive\n\n")
        to.chunk({"content": " more"}, "stop")
        to.done()

    _, client = serve(act, limits=replace(SHORT, first_s=0.7, chunk_s=0.7))
    assert ask(client, REQUEST).text == "some more"


def test_comments_alone_end_at_the_limit_on_all(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        while not to.server.stopping.wait(0.05):
            to.send(": alive\n\n")

    _, client = serve(act, limits=replace(SHORT, total_s=0.6))
    assert ask(client, REQUEST).ending is Ending.OVERTIME


def test_web_pages(serve: Serve) -> None:
    _, client = serve(acts.html(200))
    with pytest.raises(Refused, match="web page"):
        ask(client, REQUEST)
    _, client = serve(*[acts.html(502)] * 3)
    with pytest.raises(Exhausted) as caught:
        ask(client, REQUEST)
    assert "HTTP 502: a web page" in str(caught.value) and "<" not in str(caught.value)


def test_a_hang_ends_at_the_limit(serve: Serve) -> None:
    _, client = serve(acts.hang, acts.answer("yes"))
    begin = time.monotonic()
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.STALLED and time.monotonic() - begin < 2.5
    assert ask(client, REQUEST).complete


def test_a_stall_in_the_middle(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        to.chunk({"content": "some"})
        to.server.stopping.wait(20)

    _, client = serve(act)
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.STALLED and reply.text == "some"


def test_a_slow_server_is_only_slow(serve: Serve) -> None:
    _, client = serve(acts.slow(0.3, acts.answer("yes")))
    assert ask(client, REQUEST).complete


def test_an_endless_answer_is_cut(serve: Serve) -> None:
    limits = Limits(max_characters=5000, total_s=5)
    server, client = serve(acts.endless, limits=limits)
    reply = ask(client, REQUEST)
    assert reply.ending is Ending.LENGTH and 5000 < len(reply.text) < 20_000
    assert server.gone.wait(3)  # the connection was closed
    _, client = serve(acts.endless, limits=Limits(total_s=0.5, max_characters=10**9))
    assert ask(client, REQUEST).ending is Ending.OVERTIME


def test_cancel_returns_at_once(serve: Serve) -> None:
    def act(to: acts.Handler) -> None:
        to.start()
        to.chunk({"content": "some"})
        to.server.stopping.wait(20)  # ignores that the client went away

    _, client = serve(act, acts.answer("yes"), limits=Limits())
    cancel = threading.Event()
    ears = Ears()

    def hear(heard: object) -> None:
        ears(heard)
        if ears.text:
            threading.Timer(0.05, cancel.set).start()

    reply = ask(client, REQUEST, hear, cancel)
    after = time.monotonic()
    assert reply.ending is Ending.CANCELLED and reply.text == "some"
    assert "may still" in reply.note
    assert ask(client, REQUEST).complete and time.monotonic() - after < 2


def test_cancel_before_the_first_byte_and_between_tries(serve: Serve) -> None:
    for act in (acts.hang, acts.status(429, "busy", retry_after="1.5")):
        _, client = serve(act)
        cancel = threading.Event()
        threading.Timer(0.3, cancel.set).start()
        begin = time.monotonic()
        assert ask(client, REQUEST, cancel=cancel).ending is Ending.CANCELLED
        assert time.monotonic() - begin < 0.6


def test_nobody_listens() -> None:
    settings = Settings("http://127.0.0.1:9/v1", "fake", Secret(KEY), limits=SHORT)
    with pytest.raises(Exhausted, match=r"127.0.0.1:9 gave no answer in 3 tries.*no connection"):
        ask(ServerClient(settings), REQUEST)


def test_loopback_ignores_proxies(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    _, client = serve(acts.answer("yes"))
    assert ask(client, REQUEST).complete


def test_a_redirect_sends_nothing_elsewhere(serve: Serve) -> None:
    other, _ = serve(acts.answer("stolen"))
    _, client = serve(acts.status(307, "moved", location=other.url + "/chat/completions"))
    with pytest.raises(Refused, match="redirects"):
        ask(client, REQUEST)
    assert not other.asked


def test_the_key_shows_nowhere(
    serve: Serve, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    split = KEY[:9], KEY[9:]

    def echo(to: acts.Handler) -> None:
        to.start()
        for part in ("your key is ", *split, " and sk-very"):
            to.chunk({"content": part, "reasoning_content": KEY})
        to.chunk({}, "stop", model=KEY)
        to.done()

    _, client = serve(
        acts.status(401, f"Incorrect API key provided: {KEY}"),
        *[acts.status(500, KEY)] * 3,
        echo,
        acts.raw(f'data: {{"error": {{"message": "{KEY}"}}}}\n\n'),
    )
    texts: list[str] = []
    for _ in range(2):
        try:
            ask(client, REQUEST)
        except LlmError as error:
            texts += [str(error), repr(error), "".join(traceback.format_exception(error))]
    assert len(texts) == 6
    ears = Ears()
    reply = ask(client, REQUEST, ears)
    assert reply.text == "your key is *** and sk-very" == ears.text
    texts += [repr(reply), repr(ears.heard), repr(ask(client, REQUEST)), repr(client.settings)]
    texts += [caplog.text, *capfd.readouterr()]
    assert not [t for t in texts if KEY in t]


def test_import_is_lazy() -> None:
    import subprocess
    import sys

    code = (
        "import sys, engine.llm.client, engine.llm.ask, engine.llm.record, engine.llm.settings;"
        "print(sorted({'openai', 'httpx2', 'torch'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
