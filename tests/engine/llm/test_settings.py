"""Which server, model, key and limits are in force; and that a key cannot be written."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.llm.scrub import Scrubber
from engine.llm.settings import Limits, Secret, load_settings, normal_url


def test_options_win_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "llm.toml"
    file.write_text(
        'base_url = "http://file:1/v1"\nmodel = "file"\n[limits]\ntotal_s = 7\n'
        '[prices]\nprompt = 1.0\nanswer = 2\ncurrency = "EUR"\n'
    )
    env = {"OPENAI_API_KEY": "sk-abc", "OPENAI_BASE_URL": "https://env.example"}
    made = load_settings(environ=env, config=file)
    assert (made.base_url, made.model, made.host) == (
        "https://env.example/v1",
        "file",
        "env.example",
    )
    assert made.limits.total_s == 7 and made.prices is not None and made.prices.currency == "EUR"
    made = load_settings("http://localhost:8000/v1/", "named", env, file)
    assert (made.base_url, made.model, made.loopback) == ("http://localhost:8000/v1", "named", True)
    assert load_settings("http://[::1]:80", "m", {}, file).loopback  # no key needed here


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("modle = 'x'", "unknown setting"),
        ("api_key = 'sk-1'", "never kept in a file"),
        ("[limits]\ntotal = 3", "takes connect_s"),
        ("[limits]\ntotal_s = 0", "between"),
        ("[parameters]\ntemperature = 'hot'", "number"),
        ("[prices]\nprompt = 1", "lacks answer"),
        ("model = 3", "must be text"),
        ("model =", "cannot read"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "llm.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        load_settings("http://localhost/v1", "m", {}, file)


def test_what_is_missing(tmp_path: Path) -> None:
    none = tmp_path / "none.toml"
    with pytest.raises(InputError, match="no model"):
        load_settings(environ={}, config=none)
    with pytest.raises(InputError, match=r"no key for api\.openai\.com"):
        load_settings(None, "m", {}, none)
    for near in ("http://10.0.0.7:8000", "http://192.168.1.2", "http://[fd00::1]:80", "http://gpu",
                 "http://box.local:8000"):  # fmt: skip
        assert load_settings(near, "m", {}, none).manner == "NOT encrypted, without a key"
    for far in ("http://8.8.8.8", "https://box.localhost.example", "http://[2001:4860::8888]"):
        with pytest.raises(InputError, match="no key for"):
            load_settings(far, "m", {}, none)
    for key in ("two words", "line\nbreak", "schlüssel"):
        with pytest.raises(InputError) as caught:
            load_settings(None, "m", {"OPENAI_API_KEY": key}, none)
        assert key not in str(caught.value)


def test_base_urls() -> None:
    assert normal_url("http://h:1") == "http://h:1/v1"
    assert normal_url("http://h/api/v3/") == "http://h/api/v3"
    assert normal_url("https://h/v1/chat/completions") == "https://h/v1"
    for wrong in ("h:1", "ftp://h", "http://", "http://u:p@h/v1", "http://h/v1?x=1"):
        with pytest.raises(InputError):
            normal_url(wrong)


def test_a_secret_is_not_written() -> None:
    secret = Secret("sk-abcdef")
    assert "abcdef" not in f"{secret} {secret!r} {[secret]}"
    for write in (pickle.dumps, copy.copy, json.dumps):
        with pytest.raises(TypeError):
            write(secret)


def test_limits_are_finite() -> None:
    with pytest.raises(InputError):
        Limits(chunk_s=float("inf"))


@given(st.lists(st.text("abkey-", max_size=6), max_size=12))
def test_a_split_key_never_passes(parts: list[str]) -> None:
    key = "ab-key-ab"
    scrub = Scrubber(key)
    shown = "".join(map(scrub.feed, parts)) + scrub.rest()
    assert key not in shown
    if key not in "".join(parts):
        assert shown == "".join(parts)


def test_how_requests_travel_is_said(tmp_path: Path) -> None:
    def manner(url: str, env: dict[str, str]) -> str:
        return load_settings(url, "m", env, tmp_path / "none.toml").manner

    key = {"OPENAI_API_KEY": "sk-abc"}
    assert manner("http://127.0.0.1:1", {}) == "on this machine, without a key"
    assert manner("https://h/v1", key) == "encrypted, with the key in OPENAI_API_KEY"
    assert manner("http://h/v1", key) == "NOT encrypted, with the key in OPENAI_API_KEY"
