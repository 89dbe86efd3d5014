"""A session's lowered kernel as a GPU job, and a result as its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import InputError
from engine.gpu.job import Contents, LiftedJob, compares_lse, hashes_of, keys_of
from engine.gpu.result import (
    first_difference,
    import_result,
    matching,
    read_results,
    recomputed,
    verdict_of,
    worker_words,
)
from engine.gpu.schema import fault_of_rows
from engine.lift import KernelPackage, lift, specialisation_key
from engine.lift.files.kernel_package import used_headers
from engine.lower.lower import lower
from engine.lower.spelling.legal import legal
from engine.resources import include_dir
from engine.service.session.content import LOWERED
from engine.service.session.disk_inputs import check_kernel, check_spec
from engine.service.session.stage_work import Work
from engine.service.session.workbench import Bench, cache_dir
from engine.spec.python.signature import Asked, signature_of
from engine.spec.recipes.recipe_json import recipe_from_json
from engine.transfer.rules import apply, plan
from engine.transfer.workspace import constants_by_arch
from engine.types import Stage, Verdict, VerdictKind, sha256_of
from engine.types.trust import taken_on_trust
from engine.worker.orchestration.manifest import head_sizes

USUAL = "bf16_128"


def contents_of(
    work: Work, only: Sequence[str] = (), bench: Mapping[str, Any] | None = None
) -> Contents:
    """The job of a session's lowered kernel; `only` names the specialisations to take along.

    Raises:
        InputError: the session has no lowered kernel yet, does not build one of `only`, or its
            spec has changed on disk.
    """
    session = work.session.id
    if LOWERED not in work.state.stage(Stage.LOWERED).artifacts:
        raise InputError(
            f"session {session} has no lowered kernel yet", fix=f"cubridge lower {session}"
        )
    asked = work.asked
    check_kernel(work)
    check_spec(work)
    theirs = work.own_job(bench or {})
    if theirs is not None:
        _check_built(session, only, theirs.specialisations)
        return theirs
    binding, package = work.binding, work.package
    primary = specialisation_key(work.options.specialisation)
    _check_built(session, only, chosen(package, (), primary, asked))
    source = work.session.artifact(Stage.LOWERED, LOWERED).data
    return Contents(
        name=f"{package.name}-{work.spec.stem}",
        title=work.state.title,
        source=source,
        headers=used_headers(source, "kernel.cu", include_dir(), Path(package.file).parent),
        headers_sha256=package.hashes["headers"],
        entry=package.entry,
        archs=package.archs,
        specialisations=chosen(package, only, primary, asked),
        primary=primary,
        kind=LiftedJob(work.target),
        spec=work.spec,
        options=work.options.spec,
        asked=asked,
        binding=binding,
        declared=keys_of(package.specialisations),
        constants=constants_by_arch(source, package, binding),
        bench=bench or {},
    )


def contents_of_kernel(
    bench: Bench,
    package: KernelPackage,
    primary: str | None = None,
    only: Sequence[str] = (),
    times: Mapping[str, Any] | None = None,
) -> Contents:
    """The job of an expert kernel by itself, with its own reference as the spec.

    Raises:
        InputError: the kernel has no reference, or does not compute what its reference says.
    """
    if package.reference is None:
        raise InputError(f"{package.file} has no reference to verify it against")
    contents = contents_by_rules(bench, package, package.reference, primary, only, times)
    if contents.source != package.source:
        raise InputError(f"{package.name} is not its own reference: the rules would change it")
    return replace(contents, name=package.name, title=package.title)


def contents_by_rules(
    bench: Bench,
    package: KernelPackage,
    spec: Path,
    primary: str | None = None,
    only: Sequence[str] = (),
    times: Mapping[str, Any] | None = None,
) -> Contents:
    """The job of a kernel as the rules carry it over to a spec, without a session or a gate.

    Raises:
        TransferError: the rules do not carry this spec.
    """
    key = primary or usual(package)
    for named in (key, *only):
        package = package.building(package.specialisation(named))
    lifted = lift(package, package.specialisation(key))
    answer = bench.child.call(
        "recipe", {"path": str(spec), "options": {}}, cancel=bench.cancel, progress=bench.progress
    )
    recipe = recipe_from_json(answer["recipe"])
    planned = plan(lifted.module, recipe)
    module, source = lifted.module, package.source
    if planned.steps:
        module = legal([*apply(module, planned.steps)][-1][1])
        source = lower(lifted, module).source
    return Contents(
        name=f"{package.name}-{spec.stem}",
        title=f"{spec.stem} on {package.name}",
        source=source,
        headers=used_headers(source, "kernel.cu", include_dir(), Path(package.file).parent),
        headers_sha256=package.hashes["headers"],
        entry=package.entry,
        archs=package.archs,
        specialisations=chosen(package, only, key, recipe),
        primary=key,
        kind=LiftedJob(module),
        spec=spec,
        options={},
        asked=recipe,
        binding=planned.binding,
        declared=keys_of(package.specialisations),
        constants=constants_by_arch(source, package, planned.binding),
        bench=times or {},
    )


def usual(package: KernelPackage) -> str:
    """The specialisation that is timed where none is named: bf16 and D 128 where there is one."""
    keys = keys_of(package.specialisations)
    return USUAL if USUAL in keys else keys[-1]


def chosen(
    package: KernelPackage, only: Sequence[str], primary: str, asked: Asked
) -> tuple[Mapping[str, str], ...]:
    """The package's specialisations, or those named by key and the primary, as far as the spec has
    them: one with values of another size than its keys needs a spec that names both."""
    keys = dict.fromkeys([primary, *only]) if only else None
    named = [package.specialisation(k) for k in keys] if keys else list(package.specialisations)
    square = "Dv" not in signature_of(asked).role("v").dims
    return tuple(s for s in named if not square or len(set(head_sizes(s))) == 1)


def _check_built(
    session: str, keys: Sequence[str], specialisations: Sequence[Mapping[str, str]]
) -> None:
    """Raises `InputError` for a key of a specialisation that the session's G3 does not compile."""
    built = keys_of(specialisations)
    for key in keys:
        if key not in built:
            raise InputError(
                f"session {session} does not build {key}, so nothing of it was judged here",
                fix=f"name one of: {', '.join(built)}; another head size is another session",
            )


def verdict_from(work: Work, path: Path) -> Verdict:
    """G4's verdict on the session's present content from a result file.

    Raises:
        InputError: the file is no result, is for other bytes, or of a specialisation that the
            session does not build.
    """
    contents = contents_of(work)
    expected = hashes_of(contents)
    result = matching(read_results(path), expected, path)
    keys = tuple(dict.fromkeys(result["keys"]))
    _check_built(work.session.id, keys, contents.specialisations)
    # What must have been judged is known here; what the file says of it is not asked.
    known = {
        "softmax": compares_lse(contents),
        "primary": contents.primary,
        "keys": list(keys),
        "declared": list(contents.declared),
    }
    said = import_result({**result, **known}, expected, work.subject(Stage.LOWERED), path)
    return with_samples_again(work, contents, said)


def with_samples_again(work: Work, contents: Contents, said: Verdict) -> Verdict:
    """The verdict of a result with its samples computed again: outputs that are not what the spec
    computes are a failure, whatever else the result says; a pass says what rests on trust."""
    bench = work.bench

    def ask(payload: dict[str, Any]) -> dict[str, Any]:
        return bench.child.call("recompute", payload, cancel=bench.cancel, progress=bench.progress)

    rows = recomputed(ask, contents, said.details["samples"])
    details = {**said.details, "recomputed": rows, "made_by": worker_words(said.details, contents)}
    wrong = first_difference(rows)
    kind = VerdictKind.FAIL if wrong is not None else said.kind
    reason = said.reason if wrong is None else wrong
    if kind is VerdictKind.PASS:
        reason += f"; {taken_on_trust(details)}"
    return replace(said, kind=kind, reason=reason, details=details)


def said_again(work: Work, given: Verdict) -> Verdict:
    """A recorded G4 as its own details bear it out: the verdict of its rows, its samples computed
    again. What carries no rows, as one that was written into the store by hand, is not run."""
    contents = contents_of(work)
    details = given.details
    keys = sorted({str(r.get("specialisation")) for r in details.get("checks", ())})
    hashes = hashes_of(contents)
    wrong = fault_of_rows(details)
    if wrong:
        return replace(given, kind=VerdictKind.NOT_RUN, reason=f"it carries no result: {wrong}")
    kind, reason = verdict_of({
        "checks": details["checks"], "keys": keys, "primary": contents.primary, "hashes": hashes,
        "softmax": compares_lse(contents), "declared": list(contents.declared),
    })  # fmt: skip
    samples = list(details.get("samples", ()))
    said = replace(given, kind=VerdictKind(kind), reason=reason,
                   details={**details, "samples": samples})  # fmt: skip
    return with_samples_again(work, contents, said)


def job_folder(contents: Contents) -> Path:
    """Where a runner's job of these contents lives: the same folder for the same bytes, so that an
    interrupted run goes on where it was."""
    digest = sha256_of("".join(f"{n} {h}\n" for n, h in sorted(hashes_of(contents).items())))
    return cache_dir() / "jobs" / f"{contents.name}-{digest[:12]}"
