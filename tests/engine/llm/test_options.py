"""What a refusal teaches: the cap that it allows, the option that it is about, or nothing."""

from __future__ import annotations

import pytest

from engine.llm.options import CAPS, LADDER, LOWERINGS, Learnt, learn

SENT = {"stream_options": {}, "temperature": 0.0, "max_tokens": 16_000}


@pytest.mark.parametrize(
    ("message", "cap"),
    [
        # OpenAI, Groq, DeepSeek, Anthropic, Cohere, pydantic's words, Gemini
        ("max_tokens is too large: 16000. This model supports at most 4096 completion tokens, "
         "whereas you provided 16000.", 4096),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens`",
         8192),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        ("max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for "
         "claude-3-5-sonnet-20241022", 8192),
        ("too many tokens: max tokens must be less than or equal to 4,096", 4096),
        ("body.max_tokens: Input should be less than or equal to 4096", 4096),
        ("a maxOutputTokens value of 16000 but the supported range is from 1 (inclusive) to 8193 "
         "(exclusive). max_output_tokens", 8192),
        ("max_tokens is above the model's limit of 12000", 12_000),
        # vLLM old and new, OpenAI, TGI, SGLang: what the prompt leaves of the context
        ("'max_tokens' or 'max_completion_tokens' is too large: 16000. This model's maximum "
         "context length is 8192 tokens and your request has 1000 input tokens "
         "(16000 > 8192 - 1000).", 7192),
        ("This model's maximum context length is 8192 tokens. However, you requested 16000 output "
         "tokens and your prompt contains at least 1000 input tokens, for a total of at least "
         "17000 tokens.", 7192),
        ("This model's maximum context length is 4097 tokens. However, you requested 16600 tokens "
         "(600 in the messages, 16000 in the completion).", 3497),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 600 `inputs` tokens and 16000 "
         "`max_new_tokens`", 3496),
        ("Requested token count exceeds the model's maximum context length of 8192 tokens. You "
         "requested a total of 17000 tokens: 1000 tokens from the input messages and 16000 tokens "
         "for the completion.", 7192),
    ],
)  # fmt: skip
def test_the_cap_is_lowered_to_what_the_message_allows(message: str, cap: int) -> None:
    lesson = learn(SENT, Learnt(), message)
    assert lesson is not None
    assert lesson.learnt == Learnt(caps=(cap,))
    assert lesson.learnt.applied(SENT) == {**SENT, "max_tokens": cap}
    assert str(cap) in lesson.note


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large",
        "max_tokens or max_completion_tokens is too large",
        "max_tokens exceeds what is allowed for claude-3-haiku-20240307",
        "max_tokens must be at most 16000",
        "max_tokens must be at most 0",
        "maximum context length is 8192 tokens",
        "This model's maximum context length is 8192 tokens: your prompt has 9000 input tokens",
        "the model is not loaded",
    ],
)
def test_where_no_options_can_cure_it_nothing_is_learnt(message: str) -> None:
    assert learn(SENT, Learnt(), message) is None


def test_a_renamed_cap_is_never_named_back() -> None:
    both = "use 'max_completion_tokens' instead of 'max_tokens'"
    first = learn(SENT, Learnt(), both)
    assert first is not None and first.learnt == Learnt(renamed=True)
    sent = first.learnt.applied(SENT)
    assert "max_tokens" not in sent and sent["max_completion_tokens"] == 16_000
    second = learn(sent, first.learnt, both)
    assert second is not None and second.learnt.renamed
    assert not set(CAPS) & set(second.learnt.applied(SENT))
    assert learn({}, second.learnt, both) is None


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens or max_completion_tokens",
        "no",
        "max_tokens: at most 5",
        "stream_options seed temperature max_tokens max_completion_tokens",
    ],
)
def test_a_server_that_refuses_whatever_it_gets_is_left_after_few_tries(message: str) -> None:
    learnt, tries = Learnt(), 0
    sent = {**SENT, "seed": 1}
    while (lesson := learn(learnt.applied(sent), learnt, message)) is not None:
        assert lesson.learnt != learnt
        learnt, tries = lesson.learnt, tries + 1
        assert tries <= len(LADDER) + len(CAPS) + LOWERINGS


def test_a_server_that_lowers_its_limit_each_time_is_left_too() -> None:
    learnt, cap = Learnt(), 16_000
    for _ in range(LOWERINGS):
        cap -= 1
        lesson = learn(learnt.applied(SENT), learnt, f"max_tokens: at most {cap}")
        assert lesson is not None
        learnt = lesson.learnt
    assert learn(learnt.applied(SENT), learnt, f"max_tokens: at most {cap - 1}") is None
