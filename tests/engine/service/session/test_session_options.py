"""What a session builds: all that its kernel declares, one more that is named, or one alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cubridge_tui.desk import Desk
from engine.cuir.static.host_constants import head_sizes
from engine.errors import InputError
from engine.lift import lift
from engine.service.session.adaptation import start
from engine.service.session.session_options import Options, choose_options, refuse_other_columns
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench, find_kernel, find_spec
from sessions.store import Store

DECLARED = {f"{t}_{d}" for t in ("f16", "bf16") for d in (64, 96, 128, 192, 256)}


@pytest.mark.parametrize(
    ("size", "only", "built"),
    [
        ("128", False, DECLARED),
        ("80", False, DECLARED | {"bf16_80"}),  # for the one element type that was named
        ("128", True, {"bf16_128"}),
        ("80", True, {"bf16_80"}),
    ],
)
def test_what_a_session_builds(tmp_path: Path, size: str, only: bool, built: set[str]) -> None:
    package = find_kernel("flash_fwd_sm90")
    options = choose_options(package, specialisation={"D": size}, only=only)
    with Bench(Store.open(tmp_path / "s.git")) as bench:
        session = start(bench, package, find_spec("causal"), options, "tester")
        work = Work(bench, bench.store.load(session))  # from what the store holds
    assert {"_".join(s.values()) for s in work.package.specialisations} == built
    assert work.options == options


@pytest.mark.parametrize("only", [True, False])
def test_a_kernel_that_is_taken_in_again_builds_what_the_session_builds(
    tmp_path: Path, only: bool
) -> None:
    folder = tmp_path / "flash_fwd_sm90"
    shutil.copytree(find_kernel("flash_fwd_sm90").folder, folder)
    package = find_kernel(str(folder))
    options = choose_options(package, specialisation={"D": "80"}, only=only)
    with Bench(Store.open(tmp_path / "s.git")) as bench:
        session = start(bench, package, find_spec("causal"), options, "tester")
        desk = Desk(bench, session, "tester", {})
        built = desk.work.package.specialisations
        source = folder / "kernel.cu"
        source.write_bytes(source.read_bytes() + b"// changed\n")
        desk.take_in()
        assert desk.work.package.source.endswith(b"// changed\n")
        assert desk.work.package.specialisations == built
        assert len(built) == (1 if only else 11)
        desk.close()


def test_an_older_session_s_options_mean_all() -> None:
    data = {"arch": "sm_80", "specialisation": {"T": "f16", "D": "64"}, "spec": {}}
    assert not Options.from_json(data).only
    assert Options.from_json(data).to_json() == data


FIXED = """\
import torch
from jaxtyping import Float
from torch import Tensor


def attention(
    q: Float[Tensor, "B H Nq {d}"], k: Float[Tensor, "B H Nk {d}"], v: Float[Tensor, "B H Nk {dv}"]
) -> Float[Tensor, "B H Nq {dv}"]:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
"""


@pytest.mark.parametrize(
    ("kernel", "d", "dv", "built"),
    [
        ("flash_fwd_sm90", "192", "128", {"f16_192", "bf16_192"}),
        ("flash_fwd_sm80", "64", "64", {"f16_64", "bf16_64"}),
        ("flash_fwd_sm90", "80", "80", {"bf16_80"}),
        ("flash_fwd_sm90", "D", "D", DECLARED),
    ],
)
def test_sizes_that_annotations_fix_decide_what_is_built(
    tmp_path: Path, kernel: str, d: str, dv: str, built: set[str]
) -> None:
    spec = tmp_path / "fixed.py"
    spec.write_text(FIXED.format(d=d, dv=dv))
    package = find_kernel(kernel)
    options = choose_options(package, asked=spec)
    assert {"_".join(s.values()) for s in options.building(package).specialisations} == built
    assert Options.from_json(options.to_json()) == options


def test_a_fixed_size_that_the_kernel_has_not_is_refused(tmp_path: Path) -> None:
    spec = tmp_path / "fixed.py"
    spec.write_text(FIXED.format(d=192, dv=128))
    with pytest.raises(InputError, match="fix 192 columns of queries, and flash_fwd_sm80 has no"):
        choose_options(find_kernel("flash_fwd_sm80"), asked=spec)
    with pytest.raises(InputError, match="fix 192 columns of queries, not 64"):
        choose_options(find_kernel("flash_fwd_sm90"), None, {"D": "64"}, asked=spec)


@pytest.mark.parametrize(("dv", "said"), [("192", "192 columns of v, .* has 128"), ("128", "")])
def test_columns_of_values_that_the_kernel_has_not_are_refused(
    tmp_path: Path, dv: str, said: str
) -> None:
    spec = tmp_path / "fixed.py"
    spec.write_text(FIXED.format(d=192, dv=dv))
    package = find_kernel("flash_fwd_sm90")
    module = lift(package, choose_options(package, asked=spec).specialisation, "sm_90a").module
    if said:
        with pytest.raises(InputError, match=said):
            refuse_other_columns(spec, head_sizes(module))
    else:
        refuse_other_columns(spec, head_sizes(module))
