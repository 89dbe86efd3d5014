"""What an export writes, where it may write, and that texts of others stay texts."""

from __future__ import annotations

import itertools
import json
import keyword
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.build.folder.units import COMPILE_FLAGS
from engine.errors import InputError, StoreError
from engine.lift.files.kernel_package import load_package
from engine.package.export import (
    Content,
    Layout,
    export,
    package_data,
    package_files,
    verdicts_json,
)
from engine.package.fold import unfold
from engine.package.hub import hub_files
from engine.package.source import BEGIN, END
from engine.package.vendor import vendored
from engine.spec.recipes.recipe import Clause, Input
from engine.types import Gate, Level, Verdict, VerdictKind, sha256_of
from tests.engine.package.conftest import content, content_with_extras, recipe


def test_the_files(root: Path, tmp_path: Path) -> None:
    made = content(root, verdicts=(Verdict(Gate.G1, VerdictKind.PASS, "runs equal the spec"),))
    folder = export(made, tmp_path / "full_attention")
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert names == {
        "README.md", "__init__.py", "_hosts.py", "_runtime.py", "_spec.py", "build.py", "kernel.cu",
        "pyproject.toml", "spec.py", "verdicts.json",
    }  # fmt: skip
    assert (folder / "spec.py").read_bytes() == made.spec
    judged = json.loads((folder / "verdicts.json").read_text())["judged"]
    assert judged["kernel"] == sha256_of(made.source)
    assert judged["spec"] == sha256_of(made.spec)
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert Verdict.from_json(verdicts["verdicts"][0]) == made.verdicts[0]
    assert list(tmp_path.iterdir()) == [folder]  # nothing half-written is left


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (Level.GPU_VERIFIED, "a GPU ran it against the spec"),
        (Level.CPU_VERIFIED, "No GPU has run this kernel yet"),
        (Level.OVERRIDDEN, "not proven"),
        (Level.NONE, "Nothing is proven"),
    ],
)
def test_the_level_is_said(root: Path, level: Level, said: str) -> None:
    files = package_files(content(root, level=level), "attention")
    readme = files["README.md"].decode()
    assert f"Level: {level.value}" in readme and said in readme
    assert f'LEVEL = "{level.value}"' in files["__init__.py"].decode()


def test_an_override_names_the_person(root: Path) -> None:
    verdict = Verdict(Gate.G3, VerdictKind.OVERRIDDEN, "spills are fine", by="Ada")
    files = package_files(content(root, verdicts=(verdict,)), "attention")
    assert "**overridden**: by Ada: spills are fine\n" in files["README.md"].decode()


def test_texts_of_others_stay_texts(root: Path) -> None:
    hostile = 'x"""\nimport os; os.abort()\n"""\\ | <b>`*'
    made = content(
        root, kernel=hostile, spec_name="spec.py",
        asked=recipe(clauses=(Clause("mask", hostile),)),
        verdicts=(Verdict(Gate.G1, VerdictKind.FAIL, hostile),),
    )  # fmt: skip
    files = package_files(made, "attention")
    tree = compile(files["__init__.py"], "__init__.py", "exec")
    assert "os" not in tree.co_names
    rows = [r for r in files["README.md"].decode().splitlines() if r.startswith("- G")]
    assert [r[2:4] for r in rows] == ["G1"] and "import os" in rows[0]
    assert "<b>" not in files["README.md"].decode().replace("\\<b>", "")
    assert "\nimport os" not in files["kernel.cu"].decode()
    assert "import os; os.abort()" not in files["README.md"].decode().splitlines()


@pytest.mark.parametrize("name", ["torch", "numpy", "triton", "json", "sys", "pytest", "engine"])
def test_a_name_that_would_shadow_a_module(name: str, root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"a package called {name}") as caught:
        export(content(root), tmp_path / name)
    assert f"attention_{name}" in str(caught.value.fix)
    assert not (tmp_path / name).exists()
    export(content(root), tmp_path / f"attention_{name}")


def test_an_older_export_is_no_stranger(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = export(content(root), tmp_path / "my_attention")
    assert export(content(root), folder) == folder
    with pytest.raises(InputError, match="would take the place"):
        export(content(root), tmp_path / "elsewhere" / "my_attention")


def test_folders(root: Path, tmp_path: Path) -> None:
    made = content(root)
    folder = tmp_path / "pkg"
    export(made, folder)
    (folder / "build").mkdir()
    (folder / "build" / "old.so").touch()
    export(made, folder)  # our own is replaced, with what was built from it
    assert not (folder / "build").exists()

    for name in ("soft-cap", "class", "1st", "größe", "\ufb01ne", "_cap_", "__main__", "a\n"):
        with pytest.raises(InputError, match="cannot be imported and installed") as caught:
            export(made, tmp_path / name)
        fix = str(caught.value.fix).rsplit(" ", 1)[-1]
        assert fix.isidentifier() and fix.isascii() and not keyword.iskeyword(fix)
        assert fix == fix.strip("_")
    with pytest.raises(StoreError, match="File name too long") as long:
        export(made, tmp_path / ("a" * 300))
    assert long.value.fix == "name a folder that you may write to"

    (tmp_path / "link").symlink_to(folder)
    for there in (tmp_path / "link", Path(f"{tmp_path / 'link'}/")):
        with pytest.raises(InputError, match="is a link"):
            export(made, there)

    other = tmp_path / "other"
    other.mkdir()
    export(made, other)  # an empty one may be filled
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="something else"):
        export(made, foreign)
    assert (foreign / "thesis.txt").exists()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        export(made, tmp_path / "file")
    with pytest.raises((StoreError, InputError)):
        export(made, tmp_path / "file" / "pkg")


def test_wrong_content(root: Path) -> None:
    with pytest.raises(InputError, match="at least one"):
        package_data(content(root, specialisations=()), "pkg")
    extra = Input("lambda", "extra", "f32", ("Hq",))
    wrong = content_with_extras(root)
    wrong = replace(wrong, asked=recipe((extra,)))
    binding = replace(wrong.binding.tensors[-1], source="lambda")
    wrong = replace(wrong, binding=replace(wrong.binding, tensors=(binding,)))
    with pytest.raises(InputError, match="cannot be a parameter's name"):
        package_data(wrong, "pkg")


def test_what_no_export_wrote_stays(root: Path, tmp_path: Path) -> None:
    folder = export(content(root, spec_modules={"other.py": b""}), tmp_path / "pkg")
    mine = [folder / ".git" / "HEAD", folder / "notes.txt", folder / "spec" / "mine.py"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (folder / "__pycache__").mkdir()
    export(content(root), folder)
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert {p.name for p in (folder / "spec").iterdir()} == {"mine.py"}
    assert (folder / "spec.py").is_file() and not (folder / "__pycache__").exists()
    listed = json.loads((folder / "verdicts.json").read_text())["files"]
    assert "verdicts.json" in listed and "notes.txt" not in listed

    (folder / "spec" / "other.py").write_text("mine")
    with pytest.raises(InputError, match=r"spec/other\.py is in the way"):
        export(content(root, spec_modules={"other.py": b""}), folder)
    assert (folder / "spec.py").is_file()  # nothing was removed before it was refused


class Killed(BaseException):
    pass


def killed_at(number: int) -> Callable[..., Callable[..., Any]]:
    """Makes a function that is killed when the functions it made are called for that time."""
    calls = itertools.count()

    def made(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(calls) == number:
                raise Killed
            return real(*args, **options)

        return call

    return made


@pytest.mark.parametrize("layout", [package_files, hub_files])
def test_an_export_that_was_killed_over_an_older_one_is_made_whole_by_the_next(
    layout: Layout, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = content(root)
    wanted = set(layout(made, "my_pkg"))
    for number in itertools.count():
        older = content(root, spec_modules={"other.py": b""})
        folder = export(older, tmp_path / str(number) / "my_pkg")
        (folder / "notes.txt").write_text("mine")
        with monkeypatch.context() as patch:
            killed = killed_at(number)
            for name in ("unlink", "replace", "rmdir"):
                patch.setattr(Path, name, killed(getattr(Path, name)))
            try:
                export(made, folder, layout)
                break
            except Killed:
                pass
        export(made, folder, layout)
        files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        assert files == wanted | {"notes.txt"}
    assert number > len(wanted)


@pytest.mark.parametrize("name", ["../thesis.txt", "link/thesis.txt"])
def test_a_list_that_leads_out_of_the_folder_removes_nothing(
    name: str, root: Path, tmp_path: Path
) -> None:
    folder = export(content(root), tmp_path / "pkg")
    (tmp_path / "thesis.txt").write_text("years of work")
    (folder / "link").symlink_to(tmp_path)
    verdicts = json.loads((folder / "verdicts.json").read_text())
    (folder / "verdicts.json").write_text(json.dumps({**verdicts, "files": [name]}))
    with pytest.raises(InputError, match="something else"):
        export(content(root), folder)
    assert (tmp_path / "thesis.txt").exists()


def test_an_archive_holds_what_the_export_wrote(root: Path, tmp_path: Path) -> None:
    folder = export(content(root), tmp_path / "pkg")
    (folder / ".env").write_text("SECRET=1")
    code = "import build, sys; print(build.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    with tarfile.open(tmp_path / done.stdout.strip()) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert "kernel.cu" in names and "verdicts.json" in names and ".env" not in names


def test_the_operator_is_named_by_content(root: Path) -> None:
    one, same = (package_data(content(root), "pkg")["op"] for _ in range(2))
    other = package_data(content(root, source=b"// another\n"), "pkg")["op"]
    assert one == same != other


def test_flags_are_those_of_the_gates(root: Path) -> None:
    """What was proven is what is built: only the compiler's reports are left out."""
    info = verdicts_json(content(root), "pkg")["build"]
    assert [*info["compile"], "-Xptxas", "-v"].sort() == [*COMPILE_FLAGS].sort()
    assert set(COMPILE_FLAGS) - set(info["compile"]) == {"-Xptxas", "-v"}
    assert info["archs"]["sm_90"][0] == "-gencode=arch=compute_90,code=sm_90"


def test_the_vendored_part_stands_alone(tmp_path: Path) -> None:
    for name, data in vendored().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import engine.spec.readings.derived_inputs, engine.spec.recipes.recipe_json; "
        "print(engine.__file__, any(m.startswith('tree_sitter') for m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "engine/__init__.py"), "False"]


def renamed(made: Content, names: Mapping[str, str]) -> Content:
    """A spec that calls q, k and v otherwise."""
    asked, binding = made.asked, made.binding
    inputs = tuple(replace(i, name=names.get(i.name, i.name)) for i in asked.inputs)
    tensors = tuple(replace(t, source=names.get(t.source, t.source)) for t in binding.tensors)
    return replace(
        made, asked=replace(asked, inputs=inputs), binding=replace(binding, tensors=tensors)
    )


def test_the_readme_speaks_of_the_spec_s_own_names_and_of_all_that_is_given_back(
    root: Path,
) -> None:
    made = renamed(content(root), {"q": "query", "k": "key", "v": "value"})
    text = package_files(made, "mine")["README.md"].decode()
    text = " ".join(text.split())
    assert (
        "`query` [B, Hq, Nq, D], float16 or bfloat16; `key`, `value` [B, Hkv, Nk, D], query's"
        in (text)
    )
    assert "query, key and value have contiguous rows" in text and " q's dtype" not in text
    assert "Out: `out` [B, Hq, Nq, D], query's dtype; `lse` [B, Hq, Nq], float32" in text
    assert "Python 3.10 and torch 2.6" in text


def test_what_the_source_says_of_the_struct_is_what_is_compiled(root: Path, tmp_path: Path) -> None:
    """Its C text, compiled by a C compiler, has the layout that the kernel's units assert."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = content_with_extras(root)
    files = package_files(made, "mine")
    text = files["kernel.cu"].decode()
    comments = [line[3:] for line in text.partition(END)[2].splitlines() if line[:3] == "// "]
    said = "\n".join(comments)
    declared = said[said.index("  struct TensorArg") : said.index("  int cubridge_launch")]
    asserted = re.findall(r"static_assert\((?:sizeof|offsetof)\(Args.*\);", text)
    assert len(asserted) == len(made.specialisations) * (1 + len(made.fields))
    checks = "\n".join(asserted).replace("static_assert", "_Static_assert")
    checks = re.sub(r"(sizeof|offsetof)\(Args", r"\1(struct Args", checks)
    source = tmp_path / "caller.c"
    source.write_text(f"#include <stddef.h>\n{declared}\n{checks}\n")
    done = subprocess.run(
        [compiler, "-fsyntax-only", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.strip() for line in said.splitlines() if re.match(r"  \w+: ", line)]
    assert [row.split(":")[0] for row in rows] == [name for name, _ in made.fields]
    assert "q: input q, q's dtype, strides of [B, Hq, Nq, D]" in rows
    assert "lse: output LSE, float32, strides of [B, Hq, Nq]" in rows
    assert "Nk: the size Nk" in rows and "scale: rsqrt(D)" in rows


def test_the_judged_files_are_in_the_one_source(root: Path) -> None:
    for kernel in ("flash_fwd_sm80", "flash_fwd_sm90"):
        package = load_package(root / "kernels" / kernel)
        made = content(root, source=package.source, headers=package.headers)
        text = package_files(made, "mine")["kernel.cu"].decode()
        files = unfold(text.partition(BEGIN)[2].partition(f"\n{END}")[0].encode())
        assert files == {"": package.source, **dict(package.headers)}
        judged = verdicts_json(made, "mine")["judged"]["files"]
        assert judged == {name or "kernel.cu": sha256_of(data) for name, data in files.items()}
