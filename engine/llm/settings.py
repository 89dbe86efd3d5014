"""Which server, which model, which limits: from options, the environment and the config file.

Options win over the environment (`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `CUBRIDGE_MODEL`), that over
`$XDG_CONFIG_HOME/cubridge/llm.toml`. The key lives in a `Secret` that no print shows.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from engine.errors import InputError, Where
from engine.files import read_text
from engine.llm.types import Parameters

DEFAULT_URL = "https://api.openai.com/v1"
LOCAL_KEY = "local"  # the SDK wants some text; servers on loopback need none
CONFIG = "llm.toml"


class Secret:
    """A key. It prints as stars, has no JSON, and is read in one place."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "Secret('***')" if self._value else "Secret('')"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a key is not written anywhere")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and counts after which a request is over. All are finite: nothing waits for ever."""

    connect_s: float = 5.0
    first_s: float = 180.0  # until the first chunk: a large prompt is read first
    chunk_s: float = 60.0  # between chunks
    total_s: float = 900.0  # one try
    retries: int = 3  # after the first try
    wait_s: float = 1.0  # before the first retry; doubles
    longest_wait_s: float = 60.0
    max_characters: int = 400_000

    def __post_init__(self) -> None:
        for name in ("connect_s", "first_s", "chunk_s", "total_s", "wait_s", "longest_wait_s"):
            if not 0 < getattr(self, name) < 86_400:
                raise InputError(f"limit {name} must be between 0 and 86400 seconds")
        if not (0 <= self.retries <= 20 and self.max_characters > 0):
            raise InputError("limit retries must be 0 to 20, and max_characters positive")


@dataclass(frozen=True, slots=True)
class Prices:
    """What the person pays, per million tokens, in their own currency. Nothing is assumed."""

    prompt: float
    answer: float
    currency: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a client needs."""

    base_url: str
    model: str
    key: Secret = field(default_factory=lambda: Secret(""))
    parameters: Parameters = field(default_factory=Parameters)
    limits: Limits = field(default_factory=Limits)
    prices: Prices | None = None
    key_name: str = ""  # the variable that the key came from; empty for none
    key_env: str = "OPENAI_API_KEY"  # the variable that a key is read from

    @property
    def host(self) -> str:
        """Host and port, as a person should see them."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def manner(self) -> str:
        """How requests travel and with which key, for a person to read before anything is sent."""
        if self.loopback:
            way = "on this machine"
        else:
            way = "encrypted" if self.base_url.startswith("https:") else "NOT encrypted"
        return f"{way}, " + (
            f"with the key in {self.key_name}" if self.key_name else "without a key"
        )

    @property
    def loopback(self) -> bool:
        return is_loopback(self.base_url)


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_near(url: str) -> bool:
    """Whether a URL's host is this machine or one of its own network, where servers need no key.

    That is a private address (RFC 1918, RFC 4193, link-local), a name without a dot, or one below
    `.local`, `.lan`, `.internal` or `.home.arpa`. Nothing is looked up.
    """
    host = (urlsplit(url).hostname or "").removesuffix(".")
    if is_loopback(url):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))
    return address.is_private and not address.is_unspecified


def normal_url(url: str) -> str:
    """The base URL as the SDK needs it: scheme, host, a path (`/v1` where none is given).

    Raises:
        InputError: no http(s) URL, or one with a user name or password in it.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(
            f"{url!r} is no base URL", fix="give scheme and host, such as http://127.0.0.1:8000/v1"
        )
    if parts.username or parts.password:
        raise InputError(
            "a base URL holds no user name or password", fix="set OPENAI_API_KEY instead"
        )
    if parts.query or parts.fragment:
        raise InputError("a base URL has no query", fix="remove what follows the path")
    path = parts.path.rstrip("/")
    path = path.removesuffix("/chat/completions")
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def load_settings(
    base_url: str | None = None,
    model: str | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """The settings in force.

    Raises:
        InputError: no model named, no key for a server that is not near, or a config that is wrong.
    """
    env = os.environ if environ is None else environ
    file = config or config_path(env)
    data = read_config(file)
    url = normal_url(
        base_url or env.get("OPENAI_BASE_URL") or _text(data, "base_url", file) or DEFAULT_URL
    )
    chosen = model or env.get("CUBRIDGE_MODEL") or _text(data, "model", file)
    if not chosen:
        raise InputError(
            "no model is named", fix=f'{NAME_WHERE_ASKED}, or write `model = "NAME"` in {file}'
        )
    variable = _text(data, "key_env", file) or "OPENAI_API_KEY"
    key = env.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(
            f"{variable} holds what no key has (spaces, control or non-ASCII characters)",
            fix=f"export {variable}=... again, the key alone",
        )
    if not key and not is_near(url):
        raise InputError(
            f"no key for {urlsplit(url).hostname}", fix=f"export {variable}=..., then try again"
        )
    made = Settings(
        url, chosen, Secret(key or LOCAL_KEY), key_name=variable if key else "", key_env=variable
    )
    return _with_tables(made, data, file)


def config_path(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_CONFIG_HOME", "")
    base = Path(named) if named.startswith("/") else Path.home() / ".config"
    return base / "cubridge" / CONFIG


NAME_WHERE_ASKED = "name one where you ask"
KNOWN = ("base_url", "model", "key_env", "parameters", "limits", "prices")


def read_config(file: Path) -> dict[str, Any]:
    """The config file as a table; an absent one is empty. Raises `InputError`."""
    if not os.path.lexists(file):
        return {}
    text = read_text(file, "make it a TOML file, or remove it")
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"cannot read it: {error}", where=Where(str(file))) from None
    unknown = sorted(set(data) - set(KNOWN))
    if unknown:
        what = unknown[0]
        why = "a key is never kept in a file: name its variable with key_env"
        fix = why if "key" in what else f"known here: {', '.join(KNOWN)}"
        raise InputError(f"unknown setting {what!r}", where=Where(str(file)), fix=fix)
    for name in ("base_url", "model", "key_env"):
        _text(data, name, file)
    return data


def _text(data: Mapping[str, Any], name: str, file: Path) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name} must be text", where=Where(str(file)))
    return value


def _with_tables(made: Settings, data: Mapping[str, Any], file: Path) -> Settings:
    def table(name: str, kind: Any) -> dict[str, Any]:
        values = data.get(name, {})
        known = [f.name for f in fields(kind)]
        if not isinstance(values, dict) or set(values) - set(known):
            raise InputError(
                f"[{name}] takes {', '.join(known)}", where=Where(str(file)), fix="remove the rest"
            )
        for key, value in values.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number or (key == "currency" and isinstance(value, str))):
                raise InputError(f"[{name}] {key} must be a number", where=Where(str(file)))
        return values

    prices = None
    if "prices" in data:
        given = table("prices", Prices)
        missing = [n for n in ("prompt", "answer", "currency") if n not in given]
        if missing:
            raise InputError(f"[prices] lacks {missing[0]}", where=Where(str(file)))
        prices = Prices(**given)
    return replace(
        made,
        parameters=replace(made.parameters, **table("parameters", Parameters)),
        limits=replace(made.limits, **table("limits", Limits)),
        prices=prices,
    )
