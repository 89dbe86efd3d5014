"""What can go wrong with a model server, each with what to do next. No text here holds a key."""

from __future__ import annotations

from engine.errors import CuBridgeError


class LlmError(CuBridgeError):
    """No answer came: the server, the network or the configuration is at fault."""

    exit_code = 3


class Refused(LlmError):
    """The server understood the request and refuses it: trying again changes nothing."""


class Exhausted(LlmError):
    """Every try failed in a way that another try might have cured."""


class NotRecorded(LlmError):
    """A replay meets a request that the recording does not hold."""

    exit_code = 2
