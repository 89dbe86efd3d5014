"""Starts the processes that judge as copies of one that has loaded torch already.

A test that judges pays for what is judged, not for two seconds of torch each time. A copy's parent
is the asker, as that of a process that was started would be. `Warm.start` stands in for
`engine.child.client.start_server`; what is started from its very start, as by a terminal, does not
meet it. Where the kernel makes no such copies, the asker starts a process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, NoReturn

from engine.child import client
from engine.child.environment import child_environment

_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
_CLONE_PARENT = 0x8000
# A copy has one thread: libraries of a process that makes copies start none.
ALONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_start_from_nothing = client.start_server


class Copy(subprocess.Popen[bytes]):
    """A running process of this one, as `Popen` has it."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.args = ["python", "-P", "-m", "engine.torch_child.server"]
        self.pid, self.returncode, self._child_created = pid, None, True
        self._waitpid_lock = threading.Lock()
        self._input, self._communication_started = None, False
        self._sigint_wait_secs = 0.0
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self.stderr = None


class Warm:
    """The asker's end: `start` has a copy made by the process at the other end of a socket."""

    def __init__(self, orders: socket.socket) -> None:
        self.orders = orders
        self.lock = threading.Lock()

    def start(self, log: IO[bytes], reason: int) -> subprocess.Popen[bytes]:
        theirs, stdin = os.pipe()
        stdout, answers = os.pipe()
        order = json.dumps([os.getcwd(), child_environment(), reason]).encode()
        try:
            with self.lock:
                socket.send_fds(self.orders, [order], [theirs, answers, log.fileno(), reason])
                pid = int(self.orders.recv(64) or -1)
        except OSError:  # what makes copies was ended by a test
            pid = -1
        finally:
            os.close(theirs)
            os.close(answers)
        if pid > 0:
            return Copy(pid, stdin, stdout)
        os.close(stdin)
        os.close(stdout)
        return _start_from_nothing(log, reason)


def load() -> None:
    """All that the server loads before it is asked anything."""
    import torch

    import engine.gates.g1_g2.judge
    import engine.spec.read
    import engine.torch_child.server  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def apart(descriptor: int) -> None:
    """Have a process beside this one, a child of its parent's, make copies for that parent."""
    orders = socket.socket(fileno=descriptor)
    if sibling() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        serve(orders)
    orders.close()


def beneath() -> Warm:
    """Have a process below this one, which has loaded torch, make copies for this one."""
    mine, theirs = pair()
    if os.fork() == 0:
        mine.close()
        serve(theirs)
    theirs.close()
    return Warm(mine)


def serve(orders: socket.socket) -> NoReturn:
    """Make a copy for each order, until the asker is gone."""
    from engine.torch_child.server import main

    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 1 << 20, 4)
        if not order:
            os._exit(0)
        pid = sibling()
        if pid == 0:
            orders.close()
            os.setsid()
            os._exit(_become(main, json.loads(order), descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        orders.send(str(pid).encode())


def _become(
    main: Callable[[], None], order: tuple[str, dict[str, str], int], descriptors: Sequence[int]
) -> int:
    """Serve with the standard streams, the folder and the environment that an order names."""
    cwd, environ, reason = order
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.dup2(descriptors[3], reason)
    for descriptor in descriptors:
        if descriptor > 2 and descriptor != reason:
            os.close(descriptor)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["server", str(reason)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
    return 0


def sibling() -> int:
    """Fork a process whose parent is this one's parent: 0 in it, -1 where that cannot be."""
    if _CLONE is None or sys.platform != "linux":
        return -1
    # Both keep the interpreter's lock: no other thread runs, and none is told of in the copy.
    call, python = ctypes.PyDLL(None).syscall, ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = int(call(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    (python.PyOS_AfterFork_Child if pid == 0 else python.PyOS_AfterFork_Parent)()
    return pid
