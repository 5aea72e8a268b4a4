"""The benchmark that makes mistakes makes them one at a time, and asks the nearest tests first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from coverage import CoverageData

from benchmarks import mutants
from tests.support import ROOT


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    path = tmp_path / "components" / "one.py"
    path.parent.mkdir()
    path.write_text('def one() -> str:\n    return call("a", tags=2)\n')
    return path


def mistake(file: str) -> mutants.Mutant:
    """One as mutmut makes it. mutmut itself takes a second to load; the slow tests have it."""
    before, after = 'return call("a", tags=2)', 'return call("a", tags=3)'
    return mutants.Mutant(file, f"def one() -> str:\n    {after}\n", 2, before, after)


@pytest.mark.slow
def test_a_mistake_is_one_place_and_the_case_of_a_string_is_none(file: Path) -> None:
    _, every = mutants.mutations(file)
    total, chosen = mutants.sample("components", 100, seed=1)
    assert total == len(every) == len(chosen)
    assert {mutant.after for mutant in chosen} == {
        'return call("XXaXX", tags=2)',
        'return call("a", tags=3)',
        "return call(None, tags=2)",
        'return call("a", tags=None)',
        "return call(tags=2)",
        'return call("a", )',
    }
    assert {(mutant.file, mutant.line, mutant.before) for mutant in chosen} == {
        ("components/one.py", 2, 'return call("a", tags=2)')
    }


@pytest.mark.slow
def test_a_copy_of_the_tree_has_what_git_has_and_says_so(tmp_path: Path) -> None:
    copy = mutants._copy_of_the_tree(tmp_path)
    listed = subprocess.check_output(["git", "ls-files"], cwd=copy, text=True).splitlines()
    assert {"__main__.py", "components/policies.py", "lifecycle/on_create.sh"} <= set(listed)
    assert (copy / "components" / "policies.py").is_file()
    assert not [name for name in listed if name.startswith("venv/")]


@pytest.mark.slow
def test_a_seed_says_which(file: Path) -> None:
    assert mutants.sample("components", 3, seed=5) == mutants.sample("components", 3, seed=5)


def test_the_nearest_tests_come_first() -> None:
    found = mutants.nearest("components/config/model.py", ROOT)
    assert found[0] == "tests/components/config/test_config.py"
    assert found[-2:] == ["tests/components", "tests/golden"]


def test_the_tests_that_run_a_line_come_first_and_are_known_by_their_files(file: Path) -> None:
    root = file.parents[1]
    (root / "tests").mkdir()
    (root / "tests/test_one.py").touch()
    data = CoverageData(str(root / mutants.RECORD))
    for context, line in (("tests.test_one.test_it", 2), ("tests.test_one.fixture", 2), ("tests.test_one.test_no", 1)):
        data.set_context(context)
        data.add_lines({str(file): [line]})
    data.write()
    assert mutants.running(root, "components/one.py", 2) == ["tests/test_one.py::test_it"]
    assert mutants.running(root, "components/one.py", 9) == []


def test_a_mistake_is_made_while_tests_run_and_never_after(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def pytest_run(root: Path, *where: str, marked: str) -> object:
        seen.append((root / "components/one.py").read_text())
        return type("Done", (), {"returncode": 1})()

    monkeypatch.setattr(mutants, "_pytest", pytest_run)
    monkeypatch.setattr(mutants, "running", lambda *_: ["tests/test_one.py::test_it"])
    original = file.read_text()
    mutant = mistake("components/one.py")
    assert not mutants.survives(file.parents[1], mutant, only_near=False)
    assert seen == [mutant.text]
    assert file.read_text() == original


def test_what_the_fast_tests_miss_of_the_trainers_is_tried_with_the_slow_tests_of_these(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[tuple[str, ...], str]] = []

    def pytest_run(root: Path, *where: str, marked: str) -> object:
        asked.append((where, marked))
        return type("Done", (), {"returncode": int(marked == "slow")})()

    monkeypatch.setattr(mutants, "_pytest", pytest_run)
    monkeypatch.setattr(mutants, "running", lambda *_: ["tests/test_one.py::test_it"])
    root = file.parents[1]
    (root / "lifecycle/training").mkdir(parents=True)
    (root / "lifecycle/training/one.py").write_text(file.read_text())
    of_a_component, of_a_trainer = mistake("components/one.py"), mistake("lifecycle/training/one.py")
    assert mutants.survives(root, of_a_component, only_near=False)
    assert {marked for _, marked in asked} == {mutants.FAST}
    assert not mutants.survives(root, of_a_trainer, only_near=False)
    assert asked[-1] == (("tests/jobs/test_trainers.py",), "slow")
