"""The sanitizer's child: launches dumped calls through the driver API, without torch.

    compute-sanitizer --tool memcheck python3 -P run.py --child sanitize JOB LIBRARY DUMP

Every tensor is an allocation of exactly its size, so that one element too far is out of bounds.
"""

from __future__ import annotations

import base64
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from engine.worker.launches.abi import Library
from engine.worker.orchestration.manifest import read_job


class Driver:
    """The few calls of the CUDA driver that a launch needs."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check("cuDeviceGet", ctypes.byref(device), 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.check("cuCtxSetCurrent", context)

    def check(self, name: str, *arguments: Any) -> None:
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} gives CUDA driver error {status}")

    def allocate(self, size: int, data: bytes) -> int:
        address = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        if data:
            self.check("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
        return int(address.value)

    def free(self, address: int) -> None:
        self.check("cuMemFree_v2", ctypes.c_uint64(address))

    def synchronise(self) -> None:
        self.check("cuCtxSynchronize")


def main(arguments: list[str]) -> int:
    folder, library, dump = arguments
    job = read_job(Path(folder))
    opened = Library(Path(library), job.fields)
    driver = Driver()
    for case in json.loads(Path(dump).read_text(encoding="utf-8")):
        held: list[int] = []
        values: dict[str, Any] = {}
        for name, value in case["fields"].items():
            if isinstance(value, dict):
                address = driver.allocate(value["bytes"], base64.b64decode(value["data"]))
                held.append(address)
                values[name] = (address, value["strides"])
            else:
                values[name] = value
        status = opened.launch(opened.arguments(values), case["key"], None)
        if status:
            print(f"{case['case']}: the launch returned {status}: {opened.error(status)}")
            return 1
        driver.synchronise()
        for address in held:
            driver.free(address)
        # On a line of its own, also where the author's launcher printed half of one.
        print(f"\nlaunched {case['case']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
