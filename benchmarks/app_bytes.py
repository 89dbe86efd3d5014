"""Random bytes typed into the app in a real terminal: `python benchmarks/app_bytes.py`.

Each round starts the app on a pty and writes sequences of bytes to it: any bytes, well and badly
made escape sequences, mouse reports of every encoding, broken UTF-8, pastes. Then Ctrl-Q must end
it with exit status 0 and the terminal as it was; a sequence that ends it before (`q` does) must do
the same, and the round goes on with a new one. Anything else, a crash, a deaf app or a terminal
left raw, is a failure, told with the sequences since the app's start. With `--write` the counts go
to benchmarks/results/app_bytes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.cubridge_tui.terminal import Terminal  # noqa: E402

SEQUENCES, EACH = 10_000, 100
RESULTS = ROOT / "benchmarks" / "results" / "app_bytes.json"
# Ctrl-Q ends the app; Ctrl-Z would stop it, and Ctrl-\\ is a signal where a terminal is not raw.
LEFT_OUT = b"\x11\x1a\x1c"


def sequence(rng: random.Random) -> bytes:
    """A few bytes as a terminal, a paste or line noise may bring them."""

    def some(most: int, low: int = 0) -> bytes:
        return bytes(rng.randrange(low, 256) for _ in range(rng.randint(1, most)))

    def number() -> bytes:
        return str(rng.choice((0, 1, 27, 97, 127, 48, 10**9, 2**31, 10**15))).encode()

    kinds = (
        lambda: some(12),
        lambda: some(4, 0x80),
        lambda: b"\x1b[M" + some(3, 0x20)[:3],  # a mouse report of the oldest encoding
        lambda: b"\x1b[<" + b";".join(number() for _ in range(3)) + rng.choice((b"M", b"m")),
        lambda: b"\x1b[" + b";".join(number() for _ in range(rng.randint(0, 3))) + some(1),
        lambda: b"\x1b[" + b":".join(number() for _ in range(rng.randint(1, 3))) + b"u",
        lambda: b"\x1b[48;" + b";".join(number() for _ in range(4)) + b"t",
        lambda: b"\x1b[?" + number() + b";" + number() + b"$y",
        lambda: b"\x1b[200~" + some(20) + rng.choice((b"\x1b[201~", b"")),
        lambda: b"\x1b" + some(2),
        lambda: "é漢😀".encode()[: rng.randint(1, 9)],
    )
    made = rng.choice(kinds)()
    return bytes(byte for byte in made if byte not in LEFT_OUT) or b"\xff"


def round_of(sequences: list[bytes], environment: dict[str, str], cwd: Path) -> list[str]:
    """Type them all; what went wrong, in words."""
    rest, failures = list(sequences), []
    while rest:
        typed: list[bytes] = []
        with Terminal(environment, 120, 40, cwd=cwd) as terminal:
            terminal.wait_for("s adapts")
            while rest and terminal.process.poll() is None:
                typed.append(rest.pop(0))
                try:
                    os.write(terminal.master, typed[-1])
                except OSError:
                    break
                terminal.pump(0.002)
            # The end of a paste that was left open, then out of any dialog, then the end.
            for keys in (b"\x1b[201~", b"\x1b", b"\x1b", b"\x11", b"\x11", b"\x11"):
                if terminal.process.poll() is None:
                    os.write(terminal.master, keys)
                    terminal.pump(0.15)
            try:
                code = terminal.ended(20)
                fault = "" if code == 0 else f"exit status {code}"
                fault = fault or ("" if terminal.restored else "the terminal was not restored")
            except AssertionError:
                fault = "it is deaf"
            if fault:
                failures.append(f"{fault} after {typed!r}\n{terminal.text}")
    return failures


def measure(count: int, each: int, seed: int) -> dict[str, Any]:
    """The counts of `count` sequences, `each` of them a round."""
    rng = random.Random(seed)
    failures: list[str] = []
    begin, rounds = time.monotonic(), -(-count // each)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        # A key may start the person's editor, or write a file: into a folder of its own.
        environment = {
            "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_STATE_HOME": folder, "EDITOR": "true",
            "CUBRIDGE_STORE": str(home / "store.git"),
        }  # fmt: skip
        for at in range(rounds):
            size = min(each, count - at * each)
            failures += round_of([sequence(rng) for _ in range(size)], environment, home)
            print(f"{at + 1}/{rounds}: {len(failures)} failures", file=sys.stderr, flush=True)
    return {
        "sequences": count, "each": each, "seed": seed, "seconds": round(time.monotonic() - begin),
        "failures": failures,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--sequences", type=int, default=SEQUENCES)
    parser.add_argument("--each", type=int, default=EACH)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = measure(given.sequences, given.each, given.seed)
    print(json.dumps(found, indent=1))
    if given.write:
        from machine_state import described

        RESULTS.write_text(json.dumps({"machine": described(), **found}, indent=1) + "\n")
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
