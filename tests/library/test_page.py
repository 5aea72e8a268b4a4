"""docs/library.md as somebody follows it: the built package, the page's program and test, two type checkers."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from components.nodes.lifecycle_bucket import lifecycle_files

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "library.md"
# What a package is built from.
SOURCES = (
    "pyproject.toml", "hyperpod.py", "requirements.in", "rehearsal/requirements.in", "operations/__init__.py",
    "LICENSE", "components", "lifecycle",
)  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, in a folder. The clone is not in it."""
    clone, built = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("built")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (clone / name).parent.mkdir(exist_ok=True)
            shutil.copy(source, clone / name)
    build = ("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable)
    subprocess.run([Path(sys.executable).with_name("uv"), *build, "--out-dir", built, clone], check=True)
    [wheel] = built.glob("*.whl")
    installed = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(installed)
    return installed


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the page prints."""
    folder = tmp_path_factory.mktemp("program")
    for text in re.findall(r"^```(?:python|ini)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        name = text.splitlines()[0].removeprefix("# ")
        (folder / name).write_text(text)
    assert {path.name for path in folder.iterdir()} == {"cluster.py", "test_cluster.py", "mypy.ini"}
    return folder


def run(program: Path, package: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A tool in the program's folder, which finds the package where a user has it: not in the clone."""
    tool, *rest = words
    command: Sequence[str | Path] = [Path(sys.executable).with_name(str(tool)), *rest]
    environment = {**os.environ, "PYTHONPATH": str(package), "MYPYPATH": str(package)}
    return subprocess.run(command, cwd=program, env=environment, capture_output=True, text=True, check=False)


def test_the_package_has_every_file_that_nodes_get(package: Path) -> None:
    shipped = package / "hyperpod_on_pulumi" / "lifecycle"
    expected = {path.relative_to(ROOT / "lifecycle"): path.read_bytes() for path in lifecycle_files(ROOT / "lifecycle")}
    assert {path.relative_to(shipped): path.read_bytes() for path in lifecycle_files(shipped)} == expected


def test_the_package_has_every_module_and_table_of_the_components(package: Path) -> None:
    def files(folder: Path) -> set[Path]:
        return {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if path.is_file() and "lifecycle" not in path.relative_to(folder).parts[:1] and path.suffix != ".pyc"
        }

    assert files(package / "hyperpod_on_pulumi") == files(ROOT / "components")


def test_the_pages_test_passes_with_the_package(program: Path, package: Path) -> None:
    ran = run(program, package, "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore")
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
    where = run(program, package, "python", "-c", "import hyperpod_on_pulumi, hyperpod_node as n; print(n.__file__)")
    assert where.stdout.startswith(str(package)), where.stderr


@pytest.mark.parametrize("tool", [("mypy",), ("basedpyright", "--level", "error", "--pythonpath", sys.executable)])
def test_type_checkers_find_a_mistake_in_an_argument_and_none_in_the_pages_program(
    tool: Sequence[str], program: Path, package: Path
) -> None:
    wrong = (program / "cluster.py").read_text().replace("subnet_id=subnet,", "subnet_id=7,", 1)
    (program / "mistake.py").write_text(wrong)
    found = run(program, package, *tool, "cluster.py", "test_cluster.py", "mistake.py").stdout
    errors = [line for line in found.splitlines() if "error:" in line]
    assert errors, found
    assert all("mistake.py" in line and "subnet_id" in line for line in errors), found
