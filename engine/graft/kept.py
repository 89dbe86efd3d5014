"""What was found of a kernel as a session keeps it, to be read again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.foreign.probe.places import ELEMENT, Found, Hook, Loop, Meaning, Place, Row


def found_json(found: Found) -> str:
    """All that was found, as JSON."""
    return json.dumps(asdict(found), indent=2, default=str) + "\n"


def read_found(text: str) -> Found:
    """What `found_json` wrote."""
    data = json.loads(text)
    return Found(
        tuple(_hook(h) for h in data["hooks"]),
        tuple(Meaning(**_filed(m)) for m in data["meanings"]),
        tuple(_loop(x) for x in data["loops"]),
        tuple(data["refused"]),
        data["executed"],
        tuple(map(Path, data["files"])),
        tuple(Row(**_numbered(r)) for r in data.get("rows", ())),
        tuple(_hook(h) for h in data.get("more", ())),
    )


def _filed(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "file": Path(data["file"])}


def _numbered(data: Mapping[str, Any]) -> dict[str, Any]:
    """A place or a row. Sessions called the number of an element `e` before."""
    made = _filed(data)
    if data["elements"] > 1 and ELEMENT not in data["element"]:
        made["element"] = _number(data["element"])
        if "coordinates" in data:
            made["coordinates"] = {n: _number(t) for n, t in data["coordinates"].items()}
    return made


def _number(text: str) -> str:
    return re.sub(r"\be\b", ELEMENT, text)


def _hook(data: Mapping[str, Any]) -> Hook:
    data = {"dropped": "score" if data.get("whole") else "", **data}  # as sessions had it before
    data = {n: v for n, v in data.items() if n != "whole"}
    return Hook(**{**data, "places": tuple(map(_place, data["places"]))})


def _place(data: Mapping[str, Any]) -> Place:
    return Place(**_numbered(data) | {n: tuple(data.get(n, ())) for n in ("signed", "alike")})


def _loop(data: Mapping[str, Any]) -> Loop:
    spans = {n: None if data[n] is None else tuple(data[n]) for n in ("first", "end")}
    return Loop(**{**_filed(data), **spans})
