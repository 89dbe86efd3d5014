"""Launch constants from the host plan of lifted kernels and of written ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.build.host_plan import launches_of
from engine.build.machine_code.products import Launch
from engine.cuir.arch import arch
from engine.cuir.parser import parse_module
from engine.lift import lift
from engine.lift.files.kernel_package import load_package

TEXT = """
specialisation(arch='sm_80', T=bf16, D=128)


class Args:
    o: tensor
    n: i32


@kernel(threads=THREADS)
def first(args, *, T, D, THREADS):
    O = gmem[T](args.o, args.n, D // 2)
    store(O[0:], O[0:])


@kernel(threads=32)
def second(args):
    sync()


@host
def launch(args, *, T, D):
    THREADS = 128 if shared_limit() >= 128 * 1024 else 64
    BYTES = THREADS * D * sizeof(T)
    blocks = ceil_div(args.n, 64)
    if D == 128:
        run(second, [args], grid=[blocks], threads=32, shared=args.n)
    run(first[T, D, THREADS], [args], grid=[blocks], threads=THREADS, shared=BYTES)
    return run(first[T, D, THREADS], [args], grid=[blocks], threads=THREADS, shared=16)
"""


@pytest.mark.parametrize(("name", "threads"), [("sm_80", 128), ("sm_86", 64)])
def test_constants_of_each_kernel(name: str, threads: int) -> None:
    found = launches_of(parse_module(TEXT.replace("sm_80", name)))
    assert found == {
        "first": Launch(threads * 128 * 2, threads),
        "second": Launch(None, 32),  # its bytes depend on the arguments
    }


def test_the_bundled_kernel(root: Path) -> None:
    package = load_package(root / "kernels" / "flash_fwd_sm80")
    for specialisation in package.specialisations:
        module = lift(package, specialisation, "sm_80").module
        launch = launches_of(module)["flash_fwd"]
        assert launch.threads and launch.threads % 32 == 0
        assert launch.shared and 16384 <= launch.shared <= arch("sm_80").shared_block
